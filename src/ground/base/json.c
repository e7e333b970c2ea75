/* json.c - see json.h and tessera/unstable/json.h.
 *
 * jansson has a parser, which is not used: it ignores that a token cannot be lengthened, and then reads beyond the
 * token's end. Its allocation functions are no way out, because they are global, and this library shares jansson with
 * the rest of the program (docs/decisions/007-jansson.md). Its values are sound: making one fails only for lack of
 * memory.
 *
 * Tokens are read where they are in the text. Only a string with escapes and a real are copied, into `scratch`, of which
 * the first `kept` bytes are keys whose values are being read. */
#include "base/json.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "base/utf8.h"
#include "tessera/types.h"

enum {
  MOST_DEPTH = 2048,
  /* A longer token is not part of a message. */
  SHOWN_BYTES = 20
};

/* Tokens of one byte are that byte. */
enum {
  END = 0,
  INVALID = '?',
  STRING = 's',
  INTEGER = 'i',
  REAL = 'r',
  TRUE = 't',
  FALSE = 'f',
  NOTHING = 'n'
};

typedef struct reader {
  const char *start, *at, *end; /* the text; what comes after the token */
  size_t flags;
  const char *what; /* of messages, or NULL */
  const char *token;
  int kind;
  bool is_copied; /* a string that is in `scratch` */
  tsr_text text;  /* of a string */
  json_int_t integer;
  double real;
  tsr__buffer scratch;
  size_t kept;
  int status; /* of the first failure */
  tsr_error *error;
} reader;

/* ---- failures ---- */

static void no_memory(reader *r) {
  r->kind = INVALID;
  if (!r->status) r->status = tsr__fail_memory(r->error);
}

static unsigned line_of(const reader *r) {
  unsigned line = 1;
  for (const char *p = r->start; p < r->at; p++) line += *p == '\n';
  return line;
}

/* Refuse the text, at the token. */
TSR__PRINTF(2, 3) static void refuse(reader *r, const char *format, ...) {
  char where[24], problem[48], near[SHOWN_BYTES + 16] = "";
  size_t size = (size_t)(r->at - r->token);
  va_list arguments;
  r->kind = INVALID;
  if (r->status) return;
  va_start(arguments, format);
  (void)vsnprintf(problem, sizeof problem, format, arguments);
  va_end(arguments);
  (void)snprintf(where, sizeof where, "line %u", line_of(r));
  if (r->token == r->end)
    (void)snprintf(near, sizeof near, " near end of file");
  else if (size && size <= SHOWN_BYTES)
    (void)snprintf(near, sizeof near, " near '%.*s'", (int)size, r->token);
  r->status = tsr__fail(r->error, TSR_ERROR_FORMAT, (uint64_t)(r->at - r->start), "%s: %s%s",
                        r->what ? r->what : where, problem, near);
}

/* ---- tokens ---- */

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The byte that comes next, or 0 at the end. */
static char peek(const reader *r) {
  return r->at < r->end ? *r->at : '\0';
}

static bool is_surrogate(uint32_t code) {
  return code >= 0xd800 && code <= 0xdfff;
}

/* Skip a character outside ASCII. */
static bool skip_character(reader *r) {
  uint32_t code;
  size_t size = tsr__utf8_decode(r->at, (size_t)(r->end - r->at), &code);
  bool is_valid = code != TSR__CODE_INVALID && !is_surrogate(code);
  if (is_valid)
    r->at += size;
  else
    refuse(r, "unable to decode byte 0x%x", (unsigned)(unsigned char)*r->at);
  return is_valid;
}

/* The code of the "\uXXXX" that comes next; TSR__CODE_INVALID if something else does. */
static uint32_t peek_code(const reader *r) {
  size_t size = (size_t)(r->end - r->at);
  if (size < 6 || r->at[0] != '\\' || r->at[1] != 'u') return TSR__CODE_INVALID;
  return tsr__hex_code((const unsigned char *)r->at + 2, size - 2, 4);
}

/* Append to `scratch` what the escape at the cursor stands for, and skip it. */
static void unescape(reader *r) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  unsigned char bytes[TSR__UTF8_BYTES];
  char letter = r->end - r->at > 1 ? r->at[1] : '\0';
  const char *simple = letter ? strchr(from, letter) : NULL;
  uint32_t code = peek_code(r), low;
  if (simple) {
    tsr__buffer_append(&r->scratch, &to[simple - from], 1);
    r->at += 2;
    return;
  }
  r->at += code == TSR__CODE_INVALID ? r->end - r->at > 1 : 6;
  if (code == TSR__CODE_INVALID) {
    refuse(r, "invalid escape");
    return;
  }
  low = peek_code(r);
  if (code < 0xdc00 && is_surrogate(code) && low >= 0xdc00 && is_surrogate(low)) {
    code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
    r->at += 6;
  }
  if (is_surrogate(code))
    refuse(r, "invalid Unicode '\\u%04X'", (unsigned)code);
  else
    tsr__buffer_append(&r->scratch, bytes, tsr__utf8_encode(code, bytes));
}

static void read_string(reader *r) {
  const char *from = r->at; /* what is not in `scratch` yet */
  r->is_copied = false;
  r->kind = STRING;
  while (r->kind == STRING && peek(r) != '"') {
    unsigned char c = (unsigned char)peek(r);
    if (r->at == r->end) {
      refuse(r, "premature end of input");
    } else if (c < 0x20) {
      if (c == '\n')
        refuse(r, "unexpected newline");
      else
        refuse(r, "control character 0x%x", c);
    } else if (c == '\\') {
      tsr__buffer_append(&r->scratch, from, (size_t)(r->at - from));
      unescape(r);
      from = r->at;
      r->is_copied = true;
    } else if (c < 0x80) {
      r->at++;
    } else {
      (void)skip_character(r);
    }
  }
  if (r->kind != STRING) return;
  r->text = (tsr_text){from, (size_t)(r->at - from)};
  r->at++;
  if (!r->is_copied) return;
  tsr__buffer_append(&r->scratch, r->text.data, r->text.size_bytes);
  r->text = (tsr_text){r->scratch.data + r->kept, r->scratch.size - r->kept};
  if (r->scratch.failed) no_memory(r);
}

static bool skip_digits(reader *r) {
  const char *from = r->at;
  while (is_digit(peek(r))) r->at++;
  return r->at > from;
}

static void read_integer(reader *r) {
  bool is_negative = *r->token == '-';
  json_int_t value = 0;
  for (const char *p = r->token + is_negative; p < r->at; p++) {
    json_int_t digit = *p - '0';
    bool fits = is_negative ? value >= (INT64_MIN + digit) / 10 : value <= (INT64_MAX - digit) / 10;
    if (!fits) {
      refuse(r, is_negative ? "too big negative integer" : "too big integer");
      return;
    }
    value = 10 * value + (is_negative ? -digit : digit);
  }
  r->integer = value;
  r->kind = INTEGER;
}

static void read_real(reader *r) {
  r->kind = REAL;
  tsr__buffer_append(&r->scratch, r->token, (size_t)(r->at - r->token));
  tsr__buffer_append(&r->scratch, "", 1);
  if (r->scratch.failed)
    no_memory(r);
  else if (!tsr__read_real(r->scratch.data + r->kept, &r->real) || isinf(r->real))
    refuse(r, "real number overflow");
}

static void read_number(reader *r) {
  bool is_real = (r->flags & JSON_DECODE_INT_AS_REAL) != 0, ok = true;
  if (*r->token == '-')
    ok = is_digit(peek(r));
  else
    r->at = r->token;
  if (ok && peek(r) == '0')
    ok = ++r->at == r->end || !is_digit(*r->at);
  else if (ok)
    (void)skip_digits(r);
  if (ok && peek(r) == '.') {
    r->at++;
    is_real = true;
    ok = skip_digits(r);
  }
  if (ok && (peek(r) | 32) == 'e') {
    r->at++;
    is_real = true;
    r->at += peek(r) == '+' || peek(r) == '-';
    ok = skip_digits(r);
  }
  if (!ok)
    r->kind = INVALID;
  else if (is_real)
    read_real(r);
  else
    read_integer(r);
}

static void read_word(reader *r) {
  static const char *const words[] = {"true", "false", "null"};
  while (is_letter(peek(r))) r->at++;
  size_t size = (size_t)(r->at - r->token);
  r->kind = INVALID;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strlen(words[i]) == size && memcmp(words[i], r->token, size) == 0) r->kind = *words[i];
}

/* Read the next token. */
static void next(reader *r) {
  r->scratch.size = r->kept;
  while (r->at < r->end && strchr(" \t\n\r", *r->at) && *r->at) r->at++;
  r->token = r->at;
  r->kind = END;
  if (r->at == r->end) return;
  char c = *r->at;
  if ((unsigned char)c >= 0x80) {
    r->kind = INVALID;
    (void)skip_character(r);
    return;
  }
  r->at++;
  if (c == '"')
    read_string(r);
  else if (is_digit(c) || c == '-')
    read_number(r);
  else if (is_letter(c))
    read_word(r);
  else
    r->kind = c && strchr("{}[]:,", c) ? c : INVALID;
}

/* ---- values ---- */

static json_t *read_value(reader *r, unsigned depth);

/* A value of jansson's, which is NULL only if memory has run out. */
static json_t *made(reader *r, json_t *value) {
  if (!value) no_memory(r);
  return value;
}

/* The member that begins with the token, which should be a key. */
static void read_member(reader *r, json_t *object, unsigned depth) {
  size_t before = r->kept;
  tsr_text key = r->text;
  bool is_copied = r->is_copied;
  if (r->kind != STRING)
    refuse(r, "string or '}' expected");
  else if (memchr(key.data, '\0', key.size_bytes))
    refuse(r, "NUL byte in object key not supported");
  else if ((r->flags & JSON_REJECT_DUPLICATES) &&
           json_object_getn(object, key.data, key.size_bytes))
    refuse(r, "duplicate object key");
  if (r->status) return;
  r->kept = r->scratch.size;
  next(r);
  if (r->kind != ':') {
    refuse(r, "':' expected");
    return;
  }
  next(r);
  json_t *value = read_value(r, depth);
  if (!value) return;
  if (is_copied) key.data = r->scratch.data + before;
  if (json_object_setn_new_nocheck(object, key.data, key.size_bytes, value)) no_memory(r);
  r->kept = before;
}

/* `list` is an array or an object, of which the token is the first one inside. */
static void read_items(reader *r, json_t *list, unsigned depth) {
  bool is_array = json_is_array(list);
  int end = is_array ? ']' : '}';
  bool goes_on = r->kind != end && !(is_array && r->kind == END);
  while (goes_on && !r->status) {
    if (!is_array) {
      read_member(r, list, depth);
    } else {
      json_t *value = read_value(r, depth);
      if (value && json_array_append_new(list, value)) no_memory(r);
    }
    if (r->status) return;
    next(r);
    goes_on = r->kind == ',';
    if (goes_on) next(r);
    if (is_array && r->kind == END) goes_on = false;
  }
  if (r->kind != end) refuse(r, is_array ? "']' expected" : "'}' expected");
}

static json_t *read_list(reader *r, json_t *list, unsigned depth) {
  if (!made(r, list)) return NULL;
  next(r);
  read_items(r, list, depth + 1);
  if (!r->status) return list;
  json_decref(list);
  return NULL;
}

static json_t *read_text(reader *r) {
  bool has_zero = r->text.size_bytes && memchr(r->text.data, '\0', r->text.size_bytes);
  if (has_zero && !(r->flags & JSON_ALLOW_NUL)) {
    refuse(r, "\\u0000 is not allowed");
    return NULL;
  }
  return made(r, json_stringn_nocheck(r->text.data, r->text.size_bytes));
}

/* The value that begins with the token; NULL if it is refused. As deep as MOST_DEPTH. */
static json_t *read_value(reader *r, unsigned depth) { /* NOLINT(misc-no-recursion) */
  if (r->status) return NULL;
  if (depth == MOST_DEPTH) {
    refuse(r, "maximum parsing depth reached");
    return NULL;
  }
  switch (r->kind) {
  case '{': return read_list(r, json_object(), depth);
  case '[': return read_list(r, json_array(), depth);
  case STRING: return read_text(r);
  case INTEGER: return made(r, json_integer(r->integer));
  case REAL: return made(r, json_real(r->real));
  case TRUE: return json_true();
  case FALSE: return json_false();
  case NOTHING: return json_null();
  default: refuse(r, r->kind == INVALID ? "invalid token" : "unexpected token"); return NULL;
  }
}

int tsr_json_load(const char *text, size_t size_bytes, size_t flags, const char *what,
                  struct json_t **out, tsr_error *error) {
  reader r = {.start = text,
              .at = text,
              .end = text + size_bytes,
              .flags = flags,
              .what = what,
              .error = error};
  next(&r);
  if (!(flags & JSON_DECODE_ANY) && r.kind != '[' && r.kind != '{')
    refuse(&r, "'[' or '{' expected");
  json_t *root = read_value(&r, 0);
  if (root) next(&r);
  if (root && r.kind != END) refuse(&r, "end of file expected");
  tsr__buffer_release(&r.scratch);
  assert(root || r.status);
  if (r.status)
    json_decref(root);
  else
    *out = root;
  return r.status;
}

/* ---- writing ---- */

static int append(const char *text, size_t size_bytes, void *out) {
  tsr__buffer_append(out, text, size_bytes);
  return ((const tsr__buffer *)out)->failed ? -1 : 0;
}

bool tsr__json_append(tsr__buffer *out, const json_t *value, size_t flags) {
  if (!value || json_dump_callback(value, append, out, flags | JSON_ENCODE_ANY)) out->failed = true;
  return !out->failed;
}
