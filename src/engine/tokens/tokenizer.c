/* tokenizer.c - reads a tokenizer.json (tokenizer.h). Rule: tokenizers, tokenizer/serialization.rs. */
#include "tokens/tokenizer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/os.h"

#define REFUSE(status, ...) tsr__fail(error, (status), TSR_OFFSET_NONE, __VA_ARGS__)

enum { FILE_BYTES_MOST = 256 << 20, MOST_DEPTH = 8, MOST_FRAME = 1024 };

/* ---- bytes as characters ---- */

static bool is_printable(uint32_t code) {
  return (code >= '!' && code <= '~') || (code >= 0xA1 && code <= 0xAC) ||
         (code >= 0xAE && code <= 0xFF);
}

uint32_t tsr__byte_character(unsigned char byte) {
  if (is_printable(byte)) return byte;
  if (byte <= ' ') return 0x100u + byte;
  return byte < 0xA1 ? 0x121u + (byte - 0x7Fu) : 0x143u; /* 0x7F to 0xA0; 0xAD */
}

int tsr__character_byte(uint32_t code) {
  if (code < 0x100) return is_printable(code) ? (int)code : -1;
  if (code <= 0x120) return (int)(code - 0x100);
  if (code <= 0x142) return (int)(code - 0x121 + 0x7F);
  return code == 0x143 ? 0xAD : -1;
}

/* ---- added tokens ---- */

static int read_flag(const json_t *token, const char *key, bool *out, tsr_error *error) {
  const json_t *value = json_object_get(token, key);
  if (!json_is_boolean(value))
    return REFUSE(TSR_ERROR_FORMAT, "an added token has no \"%s\" that is true or false", key);
  *out = json_is_true(value);
  return 0;
}

static int read_flags(tsr__added_token *token, const json_t *description, tsr_error *error) {
  int status = read_flag(description, "lstrip", &token->takes_left, error);
  if (!status) status = read_flag(description, "rstrip", &token->takes_right, error);
  if (!status) status = read_flag(description, "single_word", &token->is_word, error);
  if (!status) status = read_flag(description, "normalized", &token->is_normalized, error);
  if (!status) status = read_flag(description, "special", &token->is_special, error);
  return status;
}

/* The id that a new token gets, whatever the file says: that of its text in the vocabulary, or the next one. */
static uint32_t id_of_new(const tsr_tokenizer *t, const tsr__added_token *token, int64_t most) {
  uint32_t id = tsr__bpe_id(&t->bpe, token->text, token->size_bytes), count = t->bpe.texts.count;
  if (id != TSR__TOKEN_NONE) return id;
  return most >= (int64_t)count || !count ? (uint32_t)(most + 1) : count;
}

static int add_token(tsr_tokenizer *t, const json_t *description, int64_t *most, tsr_error *error) {
  const json_t *content = json_object_get(description, "content");
  const json_t *number = json_object_get(description, "id");
  size_t size = json_string_length(content);
  tsr__added_token token = {.size_bytes = size};
  bool is_new;
  int status = read_flags(&token, description, error);
  if (status) return status;
  if (!size || !json_is_integer(number))
    return REFUSE(TSR_ERROR_FORMAT, "an added token has no \"content\" or no \"id\"");
  token.text = tsr__arena_copy(&t->arena, json_string_value(content), size, 1);
  if (!token.text ||
      tsr__intern_put(&t->added_texts, token.text, size, &is_new) == TSR__INTERN_FULL)
    return tsr__fail_memory(error);
  int shown = size < 60 ? (int)size : 60;
  if (!is_new)
    return REFUSE(TSR_ERROR_FORMAT, "the added token '%.*s' is listed twice", shown, token.text);
  token.id = id_of_new(t, &token, *most);
  if (json_integer_value(number) != token.id || token.id >= TSR__TOKEN_ID_MOST)
    return REFUSE(TSR_ERROR_FORMAT,
                  "the added token '%.*s' has the id %lld; by the vocabulary it is %" PRIu32, shown,
                  token.text, (long long)json_integer_value(number), token.id);
  if (token.id > *most) *most = token.id;
  if (token.id >= t->id_count) t->id_count = token.id + 1;
  if (!tsr__map_put(t->added_by_id, token.id, t->added.count, NULL) ||
      !TSR__VECTOR_PUSH(&t->added, token))
    return tsr__fail_memory(error);
  return 0;
}

/* Special tokens come first: of two that are the same when normalized, they are found. */
static int find_texts(tsr_tokenizer *t, bool is_special, tsr_error *error) {
  tsr__buffer rooms[2] = {0};
  int status = 0;
  for (size_t i = 0; status == 0 && i < t->added.count; i++) {
    const tsr__added_token *token = &t->added.items[i];
    const char *text = token->text;
    size_t size = token->size_bytes;
    if (token->is_special != is_special) continue;
    if (token->is_normalized) status = tsr__normal_apply(&t->normal, &text, &size, rooms, error);
    if (status) break;
    tsr__trie *trie = token->is_normalized ? &t->normalized : &t->plain;
    if (!size)
      status = REFUSE(TSR_ERROR_UNSUPPORTED, "an added token is empty when it is normalized");
    else if (!tsr__trie_add(trie, text, size, (uint32_t)i))
      status = tsr__fail_memory(error);
  }
  tsr__buffer_release(&rooms[0]);
  tsr__buffer_release(&rooms[1]);
  return status;
}

static int read_added(tsr_tokenizer *t, const json_t *list, tsr_error *error) {
  int64_t most = -1;
  bool has_words = false;
  if (!list || json_is_null(list)) return 0;
  if (!json_is_array(list) || json_array_size(list) > TSR__TOKEN_ID_MOST)
    return REFUSE(TSR_ERROR_FORMAT, "the \"added_tokens\" are no list");
  for (size_t i = 0; i < json_array_size(list); i++) {
    int status = add_token(t, json_array_get(list, i), &most, error);
    if (status) return status;
    has_words |= t->added.items[i].is_word;
  }
  int status = find_texts(t, true, error);
  if (status == 0) status = find_texts(t, false, error);
  if (status == 0 && has_words) status = tsr__regex_word(&t->word, error);
  return status;
}

/* ---- post-processor ---- */

static int read_special(const json_t *specials, const json_t *name, tsr__token_ids *out,
                        tsr_error *error) {
  const char *text = json_string_value(name);
  const json_t *ids = json_object_get(text ? json_object_get(specials, text) : NULL, "ids");
  if (!json_is_array(ids) || json_array_size(ids) > MOST_FRAME)
    return REFUSE(TSR_ERROR_FORMAT, "the post-processor has no ids of '%.60s'", text ? text : "");
  for (size_t i = 0; i < json_array_size(ids); i++) {
    json_int_t id = json_integer_value(json_array_get(ids, i));
    if (id < 0 || id >= (json_int_t)TSR__TOKEN_ID_MOST || out->count >= MOST_FRAME)
      return REFUSE(TSR_ERROR_FORMAT, "the post-processor has an id that is out of range");
    if (!TSR__VECTOR_PUSH(out, (uint32_t)id)) return tsr__fail_memory(error);
  }
  return 0;
}

/* Put what a template has around a text around what the ones before it have. */
static int read_template(tsr_tokenizer *t, const json_t *description, tsr_error *error) {
  const json_t *parts = json_object_get(description, "single");
  const json_t *specials = json_object_get(description, "special_tokens");
  tsr__token_ids before = {0};
  unsigned sequences = 0;
  int status = 0;
  if (!json_is_array(parts))
    status = REFUSE(TSR_ERROR_FORMAT, "'TemplateProcessing' has no list \"single\"");
  for (size_t i = 0; status == 0 && i < json_array_size(parts); i++) {
    const json_t *part = json_array_get(parts, i), *special = json_object_get(part, "SpecialToken");
    if (special)
      status = read_special(specials, json_object_get(special, "id"),
                            sequences ? &t->after : &before, error);
    else
      sequences++;
  }
  if (status == 0 && sequences != 1)
    status = REFUSE(TSR_ERROR_UNSUPPORTED, "a 'TemplateProcessing' without exactly one text");
  for (size_t i = 0; status == 0 && i < t->before.count; i++)
    if (!TSR__VECTOR_PUSH(&before, t->before.items[i])) status = tsr__fail_memory(error);
  if (status) {
    TSR__VECTOR_FREE(&before);
    return status;
  }
  TSR__VECTOR_FREE(&t->before);
  t->before.items = before.items;
  t->before.count = before.count;
  t->before.capacity = before.capacity;
  return 0;
}

static int read_post(tsr_tokenizer *t, const json_t *description, unsigned depth,
                     tsr_error *error) {
  if (!description || json_is_null(description)) return 0;
  const char *type = json_string_value(json_object_get(description, "type"));
  if (!type) return REFUSE(TSR_ERROR_FORMAT, "the post-processor has no type");
  if (strcmp(type, "ByteLevel") == 0) return 0; /* about offsets alone */
  if (strcmp(type, "TemplateProcessing") == 0) return read_template(t, description, error);
  if (strcmp(type, "Sequence") != 0)
    return REFUSE(TSR_ERROR_UNSUPPORTED, "the post-processor '%.60s' is not supported", type);
  const json_t *list = json_object_get(description, "processors");
  int status = 0;
  if (!json_is_array(list) || depth == MOST_DEPTH)
    return REFUSE(TSR_ERROR_FORMAT, "the post-processor is nested too deep, or no list");
  for (size_t i = 0; status == 0 && i < json_array_size(list); i++)
    status = read_post(t, json_array_get(list, i), depth + 1, error);
  return status;
}

/* ---- all of it ---- */

/* Without a pattern a whole text is one piece, which is cut where no merge can be. With ignore_merges it is looked up first, so
 * it stays whole. */
static bool needs_cuts(const tsr_tokenizer *t) {
  bool has_pattern = false;
  for (size_t i = 0; i < t->split.steps.count; i++)
    has_pattern |= t->split.steps.items[i].kind == TSR__SPLIT_PATTERN;
  return !has_pattern && !t->bpe.ignores_merges;
}

static int read_all(tsr_tokenizer *t, const json_t *root, tsr_error *error) {
  const json_t *version = json_object_get(root, "version");
  if (!json_is_object(root))
    return REFUSE(TSR_ERROR_FORMAT, "not a tokenizer.json: not a JSON object");
  if (version && (!json_is_string(version) || strcmp(json_string_value(version), "1.0") != 0))
    return REFUSE(TSR_ERROR_UNSUPPORTED, "a tokenizer.json of another version than 1.0");
  int status = tsr__bpe_read(&t->bpe, json_object_get(root, "model"), error);
  t->id_count = t->bpe.id_count;
  if (!status) status = tsr__normal_read(&t->normal, json_object_get(root, "normalizer"), error);
  if (!status) status = tsr__split_read(&t->split, json_object_get(root, "pre_tokenizer"), error);
  if (!status) status = read_added(t, json_object_get(root, "added_tokens"), error);
  if (!status) status = read_post(t, json_object_get(root, "post_processor"), 0, error);
  if (!status) status = tsr__decode_read(&t->decode, json_object_get(root, "decoder"), error);
  if (!status && needs_cuts(t)) status = tsr__bpe_find_pairs(&t->bpe, error);
  if (!status && !t->id_count) status = REFUSE(TSR_ERROR_FORMAT, "the tokenizer has no tokens");
  return status;
}

int tsr_tokenizer_read(const char *json, size_t size_bytes, tsr_tokenizer **out, tsr_error *error) {
  json_t *root = NULL;
  int status = tsr_json_load(json, size_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
                             "not a tokenizer.json", &root, error);
  if (status) return status;
  tsr_tokenizer *t = TSR__NEW(tsr_tokenizer);
  if (t) {
    tsr__arena_init(&t->arena);
    tsr__intern_init(&t->added_texts);
    t->added_by_id = TSR__NEW(tsr__map);
  }
  status = t && t->added_by_id ? read_all(t, root, error) : tsr__fail_memory(error);
  json_decref(root);
  if (status)
    tsr_tokenizer_free(t);
  else
    *out = t;
  return status;
}

static int read_file(const char *path, tsr_tokenizer **out, tsr_error *error) {
  int handle;
  uint64_t size;
  int status = tsr__os_open_sized(path, &handle, &size, error);
  if (status) return status;
  char *text = NULL;
  if (size > FILE_BYTES_MOST)
    status = REFUSE(TSR_ERROR_LIMIT, "a tokenizer.json has at most %d MiB", FILE_BYTES_MOST >> 20);
  else if (!(text = TSR__NEW_ARRAY(char, (size_t)size + 1)))
    status = tsr__fail_memory(error);
  if (status == 0) status = tsr__os_read_exactly(handle, 0, text, (size_t)size, error);
  tsr__os_close(handle);
  if (status == 0) status = tsr_tokenizer_read(text, (size_t)size, out, error);
  tsr__free(text);
  return status;
}

int tsr_tokenizer_open(const char *path, tsr_tokenizer **out, tsr_error *error) {
  static const char name[] = "/tokenizer.json";
  if (!tsr__os_is_folder(path)) return read_file(path, out, error);
  size_t size = strlen(path) + sizeof name;
  char *inside = TSR__NEW_ARRAY(char, size);
  if (!inside) return tsr__fail_memory(error);
  (void)snprintf(inside, size, "%s%s", path, name);
  int status = read_file(inside, out, error);
  tsr__free(inside);
  return status;
}

void tsr_tokenizer_free(tsr_tokenizer *t) {
  if (!t) return;
  tsr__bpe_release(&t->bpe);
  tsr__normal_release(&t->normal);
  tsr__split_release(&t->split);
  tsr__intern_release(&t->added_texts);
  TSR__VECTOR_FREE(&t->added);
  if (t->added_by_id) tsr__map_release(t->added_by_id);
  tsr__free(t->added_by_id);
  tsr__trie_release(&t->plain);
  tsr__trie_release(&t->normalized);
  tsr__regex_free(t->word);
  TSR__VECTOR_FREE(&t->before);
  TSR__VECTOR_FREE(&t->after);
  tsr__decode_release(&t->decode);
  tsr__arena_release(&t->arena);
  tsr__free(t);
}

uint32_t tsr_tokenizer_vocabulary(const tsr_tokenizer *t) {
  return t->id_count;
}

int64_t tsr_tokenizer_id(const tsr_tokenizer *t, const char *text) {
  uint32_t index = tsr__intern_find(&t->added_texts, text, strlen(text));
  if (index != TSR__INTERN_FULL) return t->added.items[index].id;
  uint32_t id = tsr__bpe_id(&t->bpe, text, strlen(text));
  return id == TSR__TOKEN_NONE ? -1 : (int64_t)id;
}

bool tsr_tokenizer_is_special(const tsr_tokenizer *t, uint32_t id) {
  const uint64_t *index = tsr__map_find(t->added_by_id, id);
  return index && t->added.items[*index].is_special;
}
