/* json.c - spells values as JSON, in ASCII, for people who compare files line by line.
 *
 *   {"device_traces":[
 *   [
 *   {"action":"alloc","addr":140234,...,"frames":[{"name":...},...]},
 *   ...
 *   ]
 *   ],
 *   "segments":[
 *   ...
 *
 * A list that has lines begins each item on a new one; everything else is written without blanks.
 *
 * Every text becomes valid JSON: what is not ASCII as \uXXXX, characters beyond U+FFFF as two
 * surrogates, lone surrogates as \uXXXX too (Python reads them), bytes that are not UTF-8 as
 * U+FFFD. Most texts need no escapes; `plain` remembers which, so that they are checked once and
 * then copied.
 *
 * Keys that are not texts are written as Python's json module writes them: numbers in quotes, true,
 * false and null in quotes. A container has no such form. */
#include <assert.h>
#include <string.h>

#include "base/python_text.h"
#include "write/write.h"

enum { PIECE = 64 << 10, MOST_SHORT = 64 };

typedef enum text_state { TEXT_UNKNOWN, TEXT_PLAIN, TEXT_ESCAPED } text_state;

/* Invariant: used <= PIECE. */
typedef struct json {
  tsr__encoder base; /* first, so that a pointer to one is a pointer to the other */
  uint8_t *texts;    /* by string id: text_state */
  uint32_t indent; /* columns a level, as Python's json module; 0: lines where they are requested */
  size_t used;
  char data[PIECE];
} json;

/* ---- bytes ---- */

static void flush(json *j) {
  tsr__encoder_flush(&j->base, j->data, j->used);
  j->used = 0;
}

/* Room for `size` <= MOST_SHORT bytes. */
static inline char *reserve(json *j, size_t size) {
  assert(size <= MOST_SHORT);
  if (PIECE - j->used < size) flush(j);
  return j->data + j->used;
}

static inline void put(json *j, char byte) {
  *reserve(j, 1) = byte;
  j->used++;
}

static void append(json *j, const void *data, size_t size) {
  if (PIECE - j->used < size) flush(j);
  if (size > PIECE) {
    tsr__encoder_flush(&j->base, data, size);
    return;
  }
  memcpy(j->data + j->used, data, size);
  j->used += size;
}

/* ---- structure ---- */

static inline bool is_key(const tsr__level *level) {
  return level && level->kind == TSR__DICT && level->position % 2 == 0;
}

/* Begin a line at the depth of the open container's items. */
static void break_line(json *j) {
  put(j, '\n');
  for (size_t columns = (size_t)j->base.depth * j->indent; columns;) {
    static const char blanks[] = "                                ";
    size_t piece = columns < sizeof blanks - 1 ? columns : sizeof blanks - 1;
    append(j, blanks, piece);
    columns -= piece;
  }
}

/* What separates a value from the one before; returns whether it is a key. */
static inline bool before_value(json *j) {
  tsr__level *level = tsr__encoder_level(&j->base);
  if (!level) return false;
  bool key = is_key(level);
  if (level->kind == TSR__DICT && !key) {
    put(j, ':');
    if (j->indent) put(j, ' ');
  } else if (j->indent) {
    if (level->position) put(j, ',');
    break_line(j);
  } else {
    if (level->position) put(j, ',');
    /* A dict's first key stays on the line of its brace. */
    if (level->has_lines && (level->position || level->kind != TSR__DICT)) put(j, '\n');
  }
  level->position++;
  return key;
}

static void json_begin(tsr__encoder *encoder, tsr__container_kind kind, uint64_t count,
                       bool has_lines) {
  json *j = (json *)encoder;
  if (before_value(j) && !encoder->status) encoder->status = TSR_ERROR_UNSUPPORTED;
  assert(encoder->depth < TSR__WRITE_DEPTH);
  encoder->levels[encoder->depth++] =
      (tsr__level){.count = count, .kind = (uint8_t)kind, .has_lines = has_lines};
  put(j, kind == TSR__DICT ? '{' : '[');
}

static void json_end(tsr__encoder *encoder) {
  json *j = (json *)encoder;
  const tsr__level *level = &encoder->levels[--encoder->depth];
  if (level->position && j->indent) break_line(j);
  if (level->position && level->has_lines && !j->indent) put(j, '\n');
  put(j, level->kind == TSR__DICT ? '}' : ']');
}

static bool json_refer(tsr__encoder *encoder, tsr__tag tag, uint32_t id) {
  (void)encoder, (void)tag, (void)id;
  return false;
}

/* ---- plain values ---- */

/* A word without quotes, which get some where it is a key. */
static void put_word(json *j, const char *word, size_t size) {
  bool key = before_value(j);
  if (key) put(j, '"');
  append(j, word, size);
  if (key) put(j, '"');
}

static void json_integer(tsr__encoder *encoder, uint64_t bits, bool is_negative) {
  char digits[24], *end = digits + sizeof digits, *first = end;
  uint64_t magnitude = is_negative ? 0 - bits : bits;
  do *--first = (char)('0' + magnitude % 10);
  while (magnitude /= 10);
  if (is_negative) *--first = '-';
  put_word((json *)encoder, first, (size_t)(end - first));
}

static void json_big(tsr__encoder *encoder, uint32_t digits) {
  tsr_text text = tsr_snapshot_string(encoder->snapshot, digits);
  put_word((json *)encoder, text.data, text.size_bytes);
}

static void json_real(tsr__encoder *encoder, double value) {
  char digits[TSR__PYTHON_FLOAT_BYTES];
  const char *text = tsr__python_float(value, digits);
  if (value - value == 0)
    put_word((json *)encoder, text, strlen(text));
  else if (value > 0)
    put_word((json *)encoder, "Infinity", 8);
  else if (value < 0)
    put_word((json *)encoder, "-Infinity", 9);
  else
    put_word((json *)encoder, "NaN", 3);
}

static void json_boolean(tsr__encoder *encoder, bool value) {
  put_word((json *)encoder, value ? "true" : "false", value ? 4 : 5);
}

static void json_null(tsr__encoder *encoder) {
  put_word((json *)encoder, "null", 4);
}

/* ---- texts ---- */

static void put_unit(json *j, uint32_t unit) {
  static const char hexadecimal[] = "0123456789abcdef";
  char *out = reserve(j, 6);
  out[0] = '\\';
  out[1] = 'u';
  for (unsigned i = 0; i < 4; i++) out[2 + i] = hexadecimal[unit >> (12 - 4 * i) & 15];
  j->used += 6;
}

static void put_escaped(json *j, uint32_t code) {
  static const char short_names[] = "\bb\tt\nn\ff\rr\"\"\\\\";
  for (const char *pair = short_names; *pair; pair += 2)
    if (code == (unsigned char)*pair) {
      put(j, '\\');
      put(j, pair[1]);
      return;
    }
  if (code >= 0x10000) {
    put_unit(j, 0xd800 + ((code - 0x10000) >> 10));
    put_unit(j, 0xdc00 + ((code - 0x10000) & 0x3ff));
  } else {
    put_unit(j, code);
  }
}

static inline bool is_plain(unsigned char c) {
  return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static text_state state_of(json *j, uint32_t id) {
  if (j->texts[id] != TEXT_UNKNOWN) return (text_state)j->texts[id];
  const tsr__interned *text = &j->base.snapshot->strings.items[id];
  uint32_t i = 0;
  while (i < text->size_bytes && is_plain(text->data[i])) i++;
  j->texts[id] = i == text->size_bytes ? TEXT_PLAIN : TEXT_ESCAPED;
  return (text_state)j->texts[id];
}

static void json_string(tsr__encoder *encoder, uint32_t id) {
  json *j = (json *)encoder;
  const tsr__interned *text = &encoder->snapshot->strings.items[id];
  const unsigned char *at = text->data, *end = text->data + text->size_bytes;
  (void)before_value(j);
  put(j, '"');
  if (state_of(j, id) == TEXT_PLAIN) {
    append(j, text->data, text->size_bytes);
  } else {
    while (at < end) {
      bool is_valid;
      uint32_t code = tsr__next_character(&at, end, &is_valid);
      if (code < 0x7f && is_plain((unsigned char)code))
        put(j, (char)code);
      else
        put_escaped(j, code);
    }
  }
  put(j, '"');
}

/* ---- the encoder ---- */

static void json_release(tsr__encoder *encoder) {
  tsr__free(((json *)encoder)->texts);
  tsr__free(encoder);
}

static tsr__encoder *json_create(const tsr_snapshot *snapshot, tsr_write_fn *write, void *context) {
  json *j = TSR__NEW(json);
  if (!j) return NULL;
  j->base.snapshot = snapshot;
  j->base.write = write;
  j->base.context = context;
  j->texts = TSR__NEW_ARRAY(uint8_t, snapshot->strings.count);
  if (!j->texts) {
    json_release(&j->base);
    return NULL;
  }
  return &j->base;
}

static tsr__encoder *python_json_create(const tsr_snapshot *snapshot, tsr_write_fn *write,
                                        void *context) {
  tsr__encoder *encoder = json_create(snapshot, write, context);
  if (encoder) ((json *)encoder)->indent = 4;
  return encoder;
}

static void json_finish(tsr__encoder *encoder) {
  json *j = (json *)encoder;
  if (!j->indent) put(j, '\n');
  flush(j);
}

#define ENCODING(first_call)                                                                   \
  {                                                                                            \
    .create = first_call, .finish = json_finish, .release = json_release, .refer = json_refer, \
    .begin = json_begin, .end = json_end, .integer = json_integer, .real = json_real,          \
    .big = json_big, .boolean = json_boolean, .null = json_null, .string = json_string         \
  }

const tsr__encoding tsr__json_encoding = ENCODING(json_create);
const tsr__encoding tsr__python_json_encoding = ENCODING(python_json_create);
