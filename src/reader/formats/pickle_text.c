/* pickle_text.c - the operands that protocol 0 writes as text, and integers of any length. */
#include <string.h>

#include "base/decimal.h"
#include "base/number.h"
#include "base/utf8.h"
#include "formats/pickle.h"

tsr__value tsr__pickle_long(const unsigned char *data, size_t size) {
  if (!size) return tsr__value_int(0);
  bool negative = data[size - 1] & 0x80;
  unsigned char fill = negative ? 0xff : 0;
  while (size > 8 && data[size - 1] == fill) size--;
  uint64_t bits = negative ? UINT64_MAX : 0;
  for (size_t i = size < 8 ? size : 8; i--;) bits = bits << 8 | data[i];
  bool fits = size <= 8 && (!negative || bits >> 63);
  if (!fits) return tsr__value_id(TSR__BIG, TSR_NONE);
  return negative ? tsr__value_int((int64_t)bits) : tsr__value_u64(bits);
}

static int damaged(tsr__pickle *m, const unsigned char *line, const char *what) {
  return tsr__pickle_fail(m, line, TSR_ERROR_FORMAT, what);
}

/* Decimal digits with a sign, and an "L" after them if LONG wrote it. */
static bool parse_integer(const unsigned char *line, size_t size, tsr__value *out) {
  bool negative = size && *line == '-';
  if (size && line[size - 1] == 'L') size--;
  size_t i = negative || (size && *line == '+') ? 1 : 0;
  if (i == size) return false;
  uint64_t magnitude = 0;
  bool big = false;
  for (; i < size; i++) {
    unsigned digit = (unsigned)line[i] - '0';
    if (digit > 9) return false;
    big = big || magnitude > (UINT64_MAX - digit) / 10;
    magnitude = magnitude * 10 + digit;
  }
  big = big || (negative && magnitude > (uint64_t)INT64_MAX + 1);
  if (big)
    *out = tsr__value_id(TSR__BIG, TSR_NONE);
  else
    *out = negative ? tsr__value_int((int64_t)(0 - magnitude)) : tsr__value_u64(magnitude);
  return true;
}

/* The digits of an integer beyond 64 bits, as others would write them. */
static int keep_digits(tsr__pickle *m, const unsigned char *line, size_t size, tsr__value *out) {
  char text[TSR__DECIMAL_TEXT];
  size_t used = 0;
  if (line[size - 1] == 'L') size--;
  if (*line == '-') text[used++] = '-';
  if (*line == '-' || *line == '+') line++, size--;
  while (*line == '0') line++, size--;
  if (size > sizeof text - used)
    return tsr__builder_big(m->assembler->builder, NULL, 0, out, m->error);
  memcpy(text + used, line, size);
  return tsr__builder_big(m->assembler->builder, text, used + size, out, m->error);
}

static int push_integer(tsr__pickle *m, const unsigned char *line, size_t size, bool may_be_bool) {
  tsr__value value;
  if (may_be_bool && size == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1'))
    return tsr__pickle_push(m, (tsr__value){.tag = TSR__BOOL, .u = line[1] == '1'});
  if (!parse_integer(line, size, &value))
    return damaged(m, line, "damaged pickle: an invalid integer");
  int status = value.tag == TSR__BIG ? keep_digits(m, line, size, &value) : 0;
  return status ? status : tsr__pickle_push(m, value);
}

/* No float is spelled with more digits than a few dozen. */
static int push_float(tsr__pickle *m, const unsigned char *line, size_t size) {
  char digits[64];
  tsr__value value = tsr__value_plain(TSR__FLOAT);
  bool is_number = size < sizeof digits;
  if (is_number) {
    memcpy(digits, line, size);
    digits[size] = 0;
    is_number = tsr__read_real(digits, &value.f);
  }
  if (!is_number) return damaged(m, line, "damaged pickle: an invalid number");
  return tsr__pickle_push(m, value);
}

/* ---- texts ---- */

/* Undo an escape after a backslash: `*p` is past it. TSR__CODE_INVALID if it is not an escape: the
 * backslash is then literal. `is_string`: the escapes of Python's repr, not only \u and \U.
 */
static uint32_t unescape(const unsigned char **p, const unsigned char *end, bool is_string) {
  static const char from[] = "\\'\"nrtabfv", to[] = "\\'\"\n\r\t\a\b\f\v";
  if (*p == end) return TSR__CODE_INVALID;
  unsigned char c = **p;
  size_t digits = c == 'u' && !is_string ? 4 : c == 'U' && !is_string ? 8 : 0;
  if (c == 'x' && is_string) digits = 2;
  if (digits) {
    uint32_t code = tsr__hex_code(*p + 1, (size_t)(end - *p) - 1, digits);
    if (code != TSR__CODE_INVALID) *p += 1 + digits;
    return code;
  }
  const char *escape = is_string && c ? strchr(from, c) : NULL;
  if (!escape) return TSR__CODE_INVALID;
  ++*p;
  return (unsigned char)to[escape - from];
}

/* UNICODE writes Latin-1 with \u escapes, STRING the repr of a byte string; both become UTF-8. */
static int push_text(tsr__pickle *m, const unsigned char *line, size_t size, bool is_string) {
  if (is_string) {
    if (size < 2 || line[0] != line[size - 1] || (line[0] != '\'' && line[0] != '"'))
      return damaged(m, line, "damaged pickle: a string without quotes");
    line++;
    size -= 2;
  }
  unsigned char *text = tsr__realloc(NULL, size, 2);
  if (!text) return tsr__fail_memory(m->error);
  const unsigned char *p = line, *end = line + size;
  size_t length = 0;
  while (p < end) {
    uint32_t code = *p++;
    if (code == '\\') {
      uint32_t escaped = unescape(&p, end, is_string);
      if (escaped != TSR__CODE_INVALID) code = escaped;
    }
    length += tsr__utf8_encode(code, text + length);
  }
  uint32_t id = TSR_NONE;
  int status = tsr__pickle_intern(m, text, length, &id);
  tsr__free(text);
  return status ? status : tsr__pickle_push(m, tsr__value_id(TSR__STRING, id));
}

/* ---- memo ---- */

static int memo_line(tsr__pickle *m, const unsigned char *line, size_t size, bool is_put) {
  tsr__value index;
  if (!parse_integer(line, size, &index) || index.tag != TSR__INT || index.i < 0)
    return damaged(m, line, "damaged pickle: an invalid memo index");
  if (!is_put) {
    tsr__value value = tsr__memo_get(m->assembler, index.u);
    if (value.tag == TSR__NOTHING)
      return damaged(m, line, "damaged pickle: it refers to an object that was never stored");
    return tsr__pickle_push(m, value);
  }
  if (index.u > tsr__pickle_offset(m, line))
    return damaged(m, line, "damaged pickle: a memo index beyond any object read so far");
  return tsr__pickle_memo_put(m, index.u);
}

int tsr__pickle_text(tsr__pickle *m, unsigned char opcode) {
  const unsigned char *line;
  size_t size;
  int status = tsr__pickle_line(m, &line, &size);
  if (status) return status;
  switch (opcode) {
  case 'I': return push_integer(m, line, size, true);
  case 'L': return push_integer(m, line, size, false);
  case 'F': return push_float(m, line, size);
  case 'S': return push_text(m, line, size, true);
  case 'V': return push_text(m, line, size, false);
  default: return memo_line(m, line, size, opcode == 'p');
  }
}
