/* remark.c - reads a text of the program. See remark.h.
 *
 * jansson reads the JSON; it bounds the depth (2048). What it rejects is text like any other. */
#include "attribution/remark.h"

#include <assert.h>
#include <string.h>

#include "base/json.h"

/* ---- Categories ---- */

static char plain(char c) {
  if (c >= 'A' && c <= 'Z') return (char)(c - 'A' + 'a');
  return c == ' ' || c == '-' ? '_' : c;
}

/* The length of the prefix of `text` that is `name`; 0 if it does not begin with it. */
static size_t prefix_of(tsr_text text, const char *name) {
  size_t at = 0;
  while (at < text.size_bytes && name[at] && plain(text.data[at]) == name[at]) at++;
  return name[at] ? 0 : at;
}

static bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static tsr_text trim(tsr_text text) {
  while (text.size_bytes && is_blank(*text.data)) text.data++, text.size_bytes--;
  while (text.size_bytes && is_blank(text.data[text.size_bytes - 1])) text.size_bytes--;
  return text;
}

bool tsr__category_from_text(tsr_text text, tsr_category *category) {
  for (int i = TSR_CATEGORY_UNKNOWN + 1; i < TSR_CATEGORY_COUNT; i++) {
    size_t length = prefix_of(text, tsr_category_name((tsr_category)i));
    if (!length || length != text.size_bytes) continue;
    *category = (tsr_category)i;
    return true;
  }
  return false;
}

/* "kv_cache", "kv_cache: layer 3", "kv_cache/3"; `*rest` is what follows the category, or empty. */
static bool take_category(tsr_text text, tsr_category *category, tsr_text *rest) {
  for (int i = TSR_CATEGORY_UNKNOWN + 1; i < TSR_CATEGORY_COUNT; i++) {
    size_t length = prefix_of(text, tsr_category_name((tsr_category)i));
    bool is_whole = length == text.size_bytes;
    if (!length || (!is_whole && text.data[length] != ':' && text.data[length] != '/')) continue;
    size_t used = length + !is_whole;
    assert(used <= text.size_bytes);
    *category = (tsr_category)i;
    *rest = trim((tsr_text){text.data + used, text.size_bytes - used});
    return true;
  }
  return false;
}

static bool begins(tsr_text text, const char *prefix) {
  size_t length = strlen(prefix);
  return text.size_bytes > length && !memcmp(text.data, prefix, length);
}

/* Names of tensors that say what they are, spelled as tessera.record spells them: the state that
 * PyTorch's optimizers keep, by names that nothing else has, and gradients. */
static tsr_category category_of_name(tsr_text name) {
  static const char *const states[] = {
      "exp_avg of ",    "exp_avg_sq of ", "max_exp_avg_sq of ", "momentum_buffer of ",
      "square_avg of ", "acc_delta of ",  "grad_avg of ",       "exp_inf of "};
  static const char grad[] = ".grad";
  size_t length = sizeof grad - 1;
  for (size_t i = 0; i < sizeof states / sizeof *states; i++)
    if (begins(name, states[i])) return TSR_CATEGORY_OPTIMIZER_STATE;
  bool is_gradient =
      name.size_bytes > length && !memcmp(name.data + name.size_bytes - length, grad, length);
  return is_gradient ? TSR_CATEGORY_GRADIENT : TSR_CATEGORY_UNKNOWN;
}

/* ---- Names ---- */

/* The later bytes of a character begin with the bits 10. */
tsr_text tsr__remark_cut(tsr_text text) {
  if (text.size_bytes <= TSR__REMARK_NAME_BYTES) return text;
  size_t size = TSR__REMARK_NAME_BYTES;
  while (size && ((unsigned char)text.data[size] & 0xc0) == 0x80) size--;
  assert(size <= TSR__REMARK_NAME_BYTES && size < text.size_bytes);
  return (tsr_text){text.data, size};
}

static void read_words(tsr_text text, tsr__remark *out) {
  tsr_text rest = {"", 0};
  bool has_category = take_category(text, &out->category, &rest);
  out->name = tsr__remark_cut(rest.size_bytes ? rest : text);
  if (!has_category) out->category = category_of_name(text);
  assert(out->category < TSR_CATEGORY_COUNT && out->name.size_bytes <= TSR__REMARK_NAME_BYTES);
}

/* ---- JSON ---- */

/* NULL: not an object. `*is_lost`: out of memory. */
static json_t *parse(tsr_text text, bool *is_lost) {
  json_t *root = NULL;
  *is_lost = false;
  if (!text.size_bytes || *text.data != '{' || text.size_bytes > TSR__REMARK_JSON_BYTES)
    return NULL;
  int status = tsr_json_load(text.data, text.size_bytes, JSON_ALLOW_NUL, NULL, &root, NULL);
  *is_lost = status == TSR_ERROR_MEMORY;
  return root;
}

static tsr_text string_at(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_string(value)) return (tsr_text){"", 0};
  return trim((tsr_text){json_string_value(value), json_string_length(value)});
}

bool tsr__remark_read(tsr_text text, tsr__arena *texts, tsr__remark *out) {
  bool is_lost;
  text = trim(text);
  tsr__remark remark = {.text = text, .category = TSR_CATEGORY_UNKNOWN};
  json_t *root = parse(text, &is_lost);
  if (is_lost) return false;
  tsr_text category = string_at(root, "category"), name = string_at(root, "name"), rest = {"", 0};
  if (root) {
    if (!take_category(category, &remark.category, &rest)) remark.category = category_of_name(name);
    if (!name.size_bytes) name = rest;
    remark.name = tsr__remark_cut(name.size_bytes ? name : text);
    const char *copy = name.size_bytes
                           ? tsr__arena_copy(texts, remark.name.data, remark.name.size_bytes, 1)
                           : remark.name.data;
    is_lost = !copy;
    remark.name.data = copy;
    json_decref(root);
  } else {
    read_words(text, &remark);
  }
  assert(!text.size_bytes == !remark.name.size_bytes);
  if (!is_lost) *out = remark;
  return !is_lost;
}

bool tsr__remark_member(tsr_text text, const char *key, tsr__buffer *out, bool *is_there) {
  bool is_lost;
  size_t from = out->size;
  json_t *root = parse(trim(text), &is_lost);
  const json_t *value = json_object_get(root, key);
  *is_there = value != NULL;
  if (json_is_string(value))
    tsr__buffer_append(out, json_string_value(value), json_string_length(value));
  else if (value)
    is_lost = !tsr__json_append(out, value, JSON_COMPACT);
  json_decref(root);
  if (!out->failed && out->size > from)
    out->size = from + tsr__remark_cut((tsr_text){out->data + from, out->size - from}).size_bytes;
  return !is_lost && !out->failed;
}
