/* json_text.c - the tokens of a JSON text: strings, numbers and words.
 *
 * A token is read where it is in the window; the window grows where a token is longer. Strings are
 * searched eight bytes at a time for the few bytes that mean something in them, and interned from
 * the window; only one with escapes is copied. Nearly all numbers are integers of less than twenty
 * digits, which are read in one loop; everything else (fractions, exponents, too many digits, the
 * end of the window) takes the slow way, which checks the grammar in full.
 *
 * A number or word that touches the end of the input inside a container is cut: nobody knows what
 * would have followed. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"
#include "formats/json.h"

static inline bool is_digit(unsigned char c) {
  return c >= '0' && c <= '9';
}

/* Is the whole token longer than any may be? */
static int check_size(tsr__json *j, size_t size) {
  return size > j->assembler->limits.string_bytes
             ? tsr__json_limit(j, "a string or number longer than tsr_limits.string_bytes")
             : 0;
}

/* ---- strings ---- */

const unsigned char *tsr__json_find_special(const unsigned char *p, const unsigned char *end) {
  const uint64_t ones = UINT64_C(0x0101010101010101), highs = UINT64_C(0x8080808080808080);
  while (end - p >= 8) {
    uint64_t word;
    memcpy(&word, p, sizeof word);
    uint64_t quote = word ^ ones * '"', backslash = word ^ ones * '\\';
    /* Each term has the high bit of some byte set exactly if one of the bytes is what is looked
     * for; which byte it is, the loop below finds out on any order of bytes. */
    if ((((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) |
         ((word - ones * 0x20) & ~word)) &
        highs)
      break;
    p += 8;
  }
  while (p < end && *p != '"' && *p != '\\' && *p >= 0x20) p++;
  return p;
}

/* Bytes from the quote at the cursor to the one that closes the string, that one left out. */
static int find_end(tsr__json *j, size_t *size, bool *has_escapes) {
  size_t at = 1;
  *has_escapes = false;
  for (;;) {
    size_t there = (size_t)(j->end - j->next);
    while (at < there) {
      const unsigned char *p = tsr__json_find_special(j->next + at, j->end);
      at = (size_t)(p - j->next);
      if (at == there) break;
      if (*p == '"') {
        *size = at;
        return check_size(j, at - 1);
      }
      if (*p != '\\') return tsr__json_damaged(j, p, "a control character in a string");
      *has_escapes = true;
      at += 2;
    }
    int status = check_size(j, at - 1);
    if (!status) status = tsr__json_need(j, at + 1);
    if (status) return status;
  }
}

static int intern(tsr__json *j, const void *data, size_t size, uint32_t *string) {
  const tsr_snapshot *snapshot = j->assembler->snapshot;
  uint32_t id = tsr__builder_string(j->assembler->builder, data, size);
  if (id == TSR_NONE) return tsr__fail_memory(j->error);
  if (snapshot->strings.bytes > j->assembler->limits.all_strings_bytes)
    return tsr__json_limit(j, "more text than tsr_limits.all_strings_bytes");
  *string = id;
  return 0;
}

/* The code of "\uXXXX" at `p`; TSR__CODE_INVALID where there is no such escape. */
static uint32_t unicode_escape(const unsigned char *p, const unsigned char *end) {
  if (end - p < 2 || p[0] != '\\' || p[1] != 'u') return TSR__CODE_INVALID;
  return tsr__hex_code(p + 2, (size_t)(end - p) - 2, 4);
}

/* Append what the escape at `*p` stands for, and move past it. */
static int unescape(tsr__json *j, const unsigned char **p, const unsigned char *end) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  const char *simple = (*p)[1] ? strchr(from, (*p)[1]) : NULL;
  if (simple) {
    tsr__buffer_append(&j->text, &to[simple - from], 1);
    *p += 2;
    return 0;
  }
  if ((*p)[1] != 'u') return tsr__json_damaged(j, *p, "an unknown escape in a string");
  uint32_t code = unicode_escape(*p, end);
  if (code == TSR__CODE_INVALID)
    return tsr__json_damaged(j, *p, "\\u without four hexadecimal digits in a string");
  *p += 6;
  uint32_t low = (code & 0xfc00) == 0xd800 ? unicode_escape(*p, end) : TSR__CODE_INVALID;
  if ((low & 0xfffffc00) == 0xdc00) {
    code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
    *p += 6;
  }
  unsigned char bytes[TSR__UTF8_BYTES];
  tsr__buffer_append(&j->text, bytes, tsr__utf8_encode(code, bytes));
  return 0;
}

static int intern_escaped(tsr__json *j, const unsigned char *p, const unsigned char *end,
                          uint32_t *string) {
  j->text.size = 0;
  while (p < end) {
    const unsigned char *backslash = memchr(p, '\\', (size_t)(end - p));
    if (!backslash) backslash = end;
    tsr__buffer_append(&j->text, p, (size_t)(backslash - p));
    p = backslash;
    int status = p < end ? unescape(j, &p, end) : 0;
    if (status) return status;
  }
  if (j->text.failed) return tsr__fail_memory(j->error);
  return intern(j, j->text.data, j->text.size, string);
}

int tsr__json_string(tsr__json *j, uint32_t *string) {
  size_t size = 0;
  bool has_escapes;
  int status = find_end(j, &size, &has_escapes);
  if (status) return status;
  const unsigned char *end = j->next + size;
  status = has_escapes ? intern_escaped(j, j->next + 1, end, string)
                       : intern(j, j->next + 1, size - 1, string);
  if (!status) j->next = end + 1;
  return status;
}

/* ---- numbers ---- */

static inline bool is_in_number(unsigned char c) {
  return is_digit(c) || c == '-' || c == '+' || c == '.' || (c | 32) == 'e';
}

/* Have all bytes at the cursor that may belong to a number, and the one after them unless the
 * input ends there, in the window: how many they are, at least one. */
static int number_size(tsr__json *j, size_t *size) {
  size_t at = 1;
  for (;;) {
    size_t there = (size_t)(j->end - j->next);
    while (at < there && is_in_number(j->next[at])) at++;
    int status = check_size(j, at);
    if (!status && at == there) status = tsr__json_need(j, at + 1);
    if (status < 0) return status;
    if (at < there || status == 1) {
      *size = at;
      return 0;
    }
  }
}

static tsr__value integer_of(const unsigned char *p, const unsigned char *end) {
  bool negative = *p == '-', is_big = false;
  uint64_t magnitude = 0;
  for (p += negative; p < end; p++) {
    unsigned digit = (unsigned)*p - '0';
    is_big = is_big || magnitude > (UINT64_MAX - digit) / 10;
    magnitude = magnitude * 10 + digit;
  }
  if (is_big || (negative && magnitude > (uint64_t)INT64_MAX + 1))
    return tsr__value_id(TSR__BIG, TSR_NONE);
  return negative ? tsr__value_int((int64_t)(0 - magnitude)) : tsr__value_u64(magnitude);
}

static int float_of(tsr__json *j, const unsigned char *p, const unsigned char *end,
                    tsr__value *out) {
  j->text.size = 0;
  tsr__buffer_append(&j->text, p, (size_t)(end - p));
  tsr__buffer_append(&j->text, "", 1);
  if (j->text.failed) return tsr__fail_memory(j->error);
  double value = 0;
  bool is_number = tsr__read_real(j->text.data, &value);
  assert(is_number); /* the grammar has been checked */
  (void)is_number;
  *out = (tsr__value){.tag = TSR__FLOAT, .f = value};
  return 0;
}

/* Move `*p` over digits, of which there must be one. */
static int digits(tsr__json *j, const unsigned char **p, const unsigned char *end) {
  if (*p == j->end) return 1;
  if (*p == end || !is_digit(**p)) return tsr__json_damaged(j, *p, "expected a digit");
  while (*p < end && is_digit(**p)) ++*p;
  return 0;
}

/* Move `*p` over the longest number before `end`. */
static int skip_number(tsr__json *j, const unsigned char **p, const unsigned char *end,
                       bool *is_float) {
  int status = 0;
  *p += **p == '-';
  if (*p < end && **p == '0')
    ++*p; /* no digit follows a leading 0 */
  else
    status = digits(j, p, end);
  if (!status && *p < end && **p == '.') {
    *is_float = true;
    ++*p;
    status = digits(j, p, end);
  }
  if (!status && *p < end && (**p | 32) == 'e') {
    *is_float = true;
    ++*p;
    if (*p < end && (**p == '+' || **p == '-')) ++*p;
    status = digits(j, p, end);
  }
  return status;
}

static int any_number(tsr__json *j, tsr__value *out) {
  size_t size = 0;
  bool is_float = false;
  int status = number_size(j, &size);
  if (status) return status;
  const unsigned char *p = j->next;
  if (size == 1 && *p == '-' && p + 1 < j->end && p[1] == 'I') return tsr__json_word(j, out);
  status = skip_number(j, &p, j->next + size, &is_float);
  if (status) return status;
  if (p == j->end && j->open.count) return 1;
  if (is_float) status = float_of(j, j->next, p, out);
  if (status) return status;
  if (!is_float) *out = integer_of(j->next, p);
  if (!is_float && out->tag == TSR__BIG) {
    int kept = tsr__builder_big(j->assembler->builder, (const char *)j->next, (size_t)(p - j->next),
                                out, j->error);
    if (kept) return kept;
  }
  j->next = p;
  return 0;
}

int tsr__json_number(tsr__json *j, tsr__value *out) {
  const unsigned char *p = j->next;
  bool negative = *p == '-';
  p += negative;
  const unsigned char *first = p;
  uint64_t magnitude = 0;
  while (p < j->end && is_digit(*p)) magnitude = magnitude * 10 + (*p++ - (unsigned)'0');
  ptrdiff_t count = p - first;
  if (p < j->end && count > 0 && count < 19 && (*first != '0' || count == 1) && *p != '.' &&
      (*p | 32) != 'e') {
    *out = negative ? tsr__value_int((int64_t)(0 - magnitude)) : tsr__value_u64(magnitude);
    j->next = p;
    return 0;
  }
  return any_number(j, out);
}

/* ---- words ---- */

int tsr__json_word(tsr__json *j, tsr__value *out) {
  static const struct {
    const char *text;
    tsr__value value;
  } words[] = {
      {"null", {.tag = TSR__NULL}},
      {"true", {.tag = TSR__BOOL, .u = 1}},
      {"false", {.tag = TSR__BOOL, .u = 0}},
      {"NaN", {.tag = TSR__FLOAT, .f = (double)NAN}},
      {"Infinity", {.tag = TSR__FLOAT, .f = (double)INFINITY}},
      {"-Infinity", {.tag = TSR__FLOAT, .f = -(double)INFINITY}},
  };
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (words[i].text[0] != (char)*j->next) continue;
    size_t size = strlen(words[i].text);
    int status = tsr__json_need(j, size);
    if (status < 0) return status;
    size_t there = status ? (size_t)(j->end - j->next) : size;
    if (memcmp(j->next, words[i].text, there) != 0) break;
    if (status) return status;
    *out = words[i].value;
    j->next += size;
    return 0;
  }
  return tsr__json_damaged(j, j->next, "expected a value");
}

/* ---- is it JSON? ---- */

static bool is_space(unsigned char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

bool tsr__json_looks_like(const unsigned char *data, size_t size) {
  size_t i = size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
  while (i < size && is_space(data[i])) i++;
  if (i == size || (data[i] != '{' && data[i] != '[')) return false;
  const char *fitting = data[i] == '{' ? "\"}" : "{[]\"-0123456789tfnNI";
  for (i++; i < size && is_space(data[i]);) i++;
  return i == size || (data[i] && strchr(fitting, data[i]));
}
