/* normal.c - see normal.h. */
#include "tokens/normal.h"

#include <assert.h>
#include <string.h>
#include <utf8proc.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sort.h"
#include "base/utf8.h"

#define REFUSE(status, ...) tsr__fail(error, (status), TSR_OFFSET_NONE, __VA_ARGS__)

enum { MOST_DEPTH = 8 };

/* ---- reading ---- */

static bool keep(const json_t *value, char **out, size_t *size_bytes) {
  size_t size = json_string_length(value);
  *out = TSR__NEW_ARRAY(char, size + 1);
  if (!*out) return false;
  memcpy(*out, json_string_value(value), size);
  *size_bytes = size;
  return true;
}

int tsr__replace_read(tsr__normal_step *step, const json_t *description, tsr_error *error) {
  const json_t *pattern = json_object_get(description, "pattern");
  const json_t *from = json_object_get(pattern, "String");
  const json_t *to = json_object_get(description, "content");
  step->kind = TSR__NORMAL_REPLACE;
  if (json_object_get(pattern, "Regex"))
    return REFUSE(TSR_ERROR_UNSUPPORTED, "'Replace' with a Regex is not supported");
  if (!json_is_string(from) || !json_string_length(from) || !json_is_string(to))
    return REFUSE(TSR_ERROR_FORMAT, "'Replace' needs a pattern that is not empty, and content");
  bool ok = keep(from, &step->from, &step->from_bytes) && keep(to, &step->to, &step->to_bytes);
  return ok ? 0 : tsr__fail_memory(error);
}

void tsr__replace_release(tsr__normal_step *step) {
  tsr__free(step->from);
  tsr__free(step->to);
}

static int read_prepend(tsr__normal_step *step, const json_t *description, tsr_error *error) {
  const json_t *text = json_object_get(description, "prepend");
  step->kind = TSR__NORMAL_PREPEND;
  if (!json_is_string(text)) return REFUSE(TSR_ERROR_FORMAT, "'Prepend' has nothing to prepend");
  return keep(text, &step->to, &step->to_bytes) ? 0 : tsr__fail_memory(error);
}

static int read_step(tsr__normal *normal, const json_t *description, unsigned depth,
                     tsr_error *error) {
  const char *type = json_string_value(json_object_get(description, "type"));
  tsr__normal_step step = {.kind = TSR__NORMAL_NFC};
  int status = 0;
  if (!type) return REFUSE(TSR_ERROR_FORMAT, "a normalizer has no type");
  if (strcmp(type, "Sequence") == 0) {
    const json_t *list = json_object_get(description, "normalizers");
    if (!json_is_array(list) || depth == MOST_DEPTH)
      return REFUSE(TSR_ERROR_FORMAT, "the normalizer is nested too deep, or no list");
    for (size_t i = 0; status == 0 && i < json_array_size(list); i++)
      status = read_step(normal, json_array_get(list, i), depth + 1, error);
    return status;
  }
  if (strcmp(type, "Prepend") == 0)
    status = read_prepend(&step, description, error);
  else if (strcmp(type, "Replace") == 0)
    status = tsr__replace_read(&step, description, error);
  else if (strcmp(type, "NFC") != 0)
    status = REFUSE(TSR_ERROR_UNSUPPORTED, "the normalizer '%.60s' is not supported", type);
  if (status == 0 && !TSR__VECTOR_PUSH(&normal->steps, step)) status = tsr__fail_memory(error);
  if (status) tsr__replace_release(&step);
  return status;
}

int tsr__normal_read(tsr__normal *normal, const json_t *description, tsr_error *error) {
  if (!description || json_is_null(description)) return 0;
  return read_step(normal, description, 0, error);
}

void tsr__normal_release(tsr__normal *normal) {
  for (size_t i = 0; i < normal->steps.count; i++) tsr__replace_release(&normal->steps.items[i]);
  TSR__VECTOR_FREE(&normal->steps);
}

/* ---- applying ---- */

void tsr__replace(const tsr__normal_step *step, const char *text, size_t size_bytes,
                  tsr__buffer *out) {
  size_t done = 0;
  assert(step->kind == TSR__NORMAL_REPLACE && step->from_bytes);
  for (size_t at = 0; size_bytes - at >= step->from_bytes;) {
    const char *found = memchr(text + at, step->from[0], size_bytes - at - step->from_bytes + 1);
    if (!found) break;
    at = (size_t)(found - text);
    if (memcmp(found, step->from, step->from_bytes) != 0) {
      at++;
      continue;
    }
    tsr__buffer_append(out, text + done, at - done);
    tsr__buffer_append(out, step->to, step->to_bytes);
    done = at += step->from_bytes;
  }
  tsr__buffer_append(out, text + done, size_bytes - done);
}

/* Where the next character from U+0300 on is, or the end. */
static size_t skip_composed(const char *text, size_t size_bytes, size_t from) {
  size_t at = from;
  while (at < size_bytes && (unsigned char)text[at] < 0xCC) at++;
  return at;
}

/* Marks and letters that compose since Unicode 10. tokenizers composes by Unicode 9, for which they are characters that nothing
 * is known of; so are those of newer.def. U+11A7 composes
 * with nothing, but utf8proc 2.8 takes it for the end of a syllable. */
static const struct {
  uint32_t first, last;
} unknown[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x11A7, 0x11A7},
    {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},
    {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938},
    {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F},
    {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
#define X(first, last, category) {first, last},
#include "tokens/newer.def"
#undef X
};

static bool is_unknown(uint32_t code) {
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
    if (code >= unknown[i].first && code <= unknown[i].last) return true;
  return false;
}

/* Sort marks by their combining class where several follow each other. utf8proc does so too, but in time that is
 * quadratic in the length of such a run. */
static int compare_marks(const void *a, const void *b) {
  const utf8proc_int32_t *x = a, *y = b;
  int left = utf8proc_get_property(*x)->combining_class;
  return left - utf8proc_get_property(*y)->combining_class;
}

static void order_marks(utf8proc_int32_t *codes, size_t count) {
  for (size_t at = 0; at < count;) {
    size_t end = at;
    while (end < count && utf8proc_get_property(codes[end])->combining_class) end++;
    tsr__sort(codes + at, end - at, sizeof *codes, compare_marks);
    at = end + 1;
  }
}

/* Compose `count` decomposed characters, and append them. */
static void put_composed(utf8proc_int32_t *codes, size_t count, tsr__buffer *out) {
  order_marks(codes, count);
  utf8proc_ssize_t composed =
      utf8proc_normalize_utf32(codes, (utf8proc_ssize_t)count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  for (utf8proc_ssize_t i = 0; i < composed; i++) {
    unsigned char character[TSR__UTF8_BYTES];
    size_t length = tsr__utf8_encode((uint32_t)codes[i], character);
    tsr__buffer_append(out, character, length);
  }
}

enum { LONGEST_DECOMPOSITION = 4 }; /* of one character, canonical */

static int compose_run(const char *text, size_t size_bytes, tsr__buffer *out, tsr_error *error) {
  utf8proc_int32_t *codes = TSR__NEW_ARRAY(utf8proc_int32_t, size_bytes * LONGEST_DECOMPOSITION);
  size_t count = 0;
  if (!codes) return tsr__fail_memory(error);
  for (size_t at = 0, length; at < size_bytes; at += length) {
    uint32_t code;
    int class = 0;
    length = tsr__utf8_decode(text + at, size_bytes - at, &code);
    if (is_unknown(code)) {
      put_composed(codes, count, out);
      tsr__buffer_append(out, text + at, length);
      count = 0;
      continue;
    }
    utf8proc_ssize_t made =
        utf8proc_decompose_char((utf8proc_int32_t)code, codes + count, LONGEST_DECOMPOSITION,
                                UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &class);
    assert(made > 0 && made <= LONGEST_DECOMPOSITION); /* the text is valid UTF-8 */
    count += (size_t)made;
  }
  put_composed(codes, count, out);
  tsr__free(codes);
  return 0;
}

/* Characters below U+0300 are composed, so only runs are looked at: from the character before one that is U+0300 or above,
 * with which it may compose, to the next ASCII character, which composes with nothing before it. */
static int compose(const char *text, size_t size_bytes, tsr__buffer *out, tsr_error *error) {
  for (size_t done = 0; done < size_bytes;) {
    size_t at = skip_composed(text, size_bytes, done), end = at;
    if (at == size_bytes) {
      tsr__buffer_append(out, text + done, size_bytes - done);
      break;
    }
    if (at > done) {
      do at--;
      while (at > done && ((unsigned char)text[at] & 0xC0) == 0x80);
    }
    tsr__buffer_append(out, text + done, at - done);
    while (end < size_bytes && (unsigned char)text[end] >= 0x80) end++;
    int status = compose_run(text + at, end - at, out, error);
    if (status) return status;
    done = end;
  }
  return 0;
}

int tsr__normal_apply(const tsr__normal *normal, const char **text, size_t *size_bytes,
                      tsr__buffer rooms[2], tsr_error *error) {
  for (size_t i = 0, turn = 0; i < normal->steps.count; i++) {
    const tsr__normal_step *step = &normal->steps.items[i];
    tsr__buffer *out = &rooms[turn];
    if (!*size_bytes) return 0;
    if (step->kind == TSR__NORMAL_NFC && skip_composed(*text, *size_bytes, 0) == *size_bytes)
      continue;
    out->size = 0;
    int status = 0;
    if (step->kind == TSR__NORMAL_NFC)
      status = compose(*text, *size_bytes, out, error);
    else if (step->kind == TSR__NORMAL_REPLACE)
      tsr__replace(step, *text, *size_bytes, out);
    else {
      tsr__buffer_append(out, step->to, step->to_bytes);
      tsr__buffer_append(out, *text, *size_bytes);
    }
    if (status == 0 && out->failed) status = tsr__fail_memory(error);
    if (status) return status;
    *text = out->data ? out->data : "";
    *size_bytes = out->size;
    turn = !turn;
  }
  return 0;
}
