/* pickle_text.c - the operands that protocol 0 writes as text, and integers of any length. */
#include "snapshot/pickle.h"

#include <stdlib.h>
#include <string.h>

tsr__value tsr__pickle_long(const unsigned char *data, size_t size) {
  if (!size) return tsr__value_int(0);
  bool negative = data[size - 1] & 0x80;
  unsigned char fill = negative ? 0xff : 0;
  while (size > 8 && data[size - 1] == fill) size--;
  uint64_t bits = negative ? UINT64_MAX : 0;
  for (size_t i = size < 8 ? size : 8; i--;) bits = bits << 8 | data[i];
  bool fits = size <= 8 && (!negative || bits >> 63);
  if (!fits) return (tsr__value){.tag = TSR__BIG, .i = negative ? -1 : 1};
  return negative ? tsr__value_int((int64_t)bits) : tsr__value_u64(bits);
}

static int damaged(tsr__pickle *m, const unsigned char *line, const char *what) {
  return tsr__pickle_fail(m, line, TSR_ERROR_FORMAT, what);
}

static int push(tsr__pickle *m, tsr__value value) {
  return tsr__pickle_push(m, value) ? 0 : tsr__fail_memory(m->error);
}

/* Decimal digits with a sign, and an "L" behind them where LONG wrote it. */
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
    *out = (tsr__value){.tag = TSR__BIG, .i = negative ? -1 : 1};
  else
    *out = negative ? tsr__value_int((int64_t)(0 - magnitude)) : tsr__value_u64(magnitude);
  return true;
}

static int push_integer(tsr__pickle *m, const unsigned char *line, size_t size, bool may_be_bool) {
  tsr__value value;
  if (may_be_bool && size == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1'))
    return push(m, (tsr__value){.tag = TSR__BOOL, .u = line[1] == '1'});
  if (!parse_integer(line, size, &value))
    return damaged(m, line, "damaged pickle: an integer that is none");
  return push(m, value);
}

static int push_float(tsr__pickle *m, const unsigned char *line, size_t size) {
  char digits[64];
  char *end = digits;
  tsr__value value = tsr__value_plain(TSR__FLOAT);
  if (size < sizeof digits) {
    memcpy(digits, line, size);
    digits[size] = 0;
    value.f = strtod(digits, &end);
  }
  if (end == digits) return damaged(m, line, "damaged pickle: a number that is none");
  return push(m, value);
}

/* ---- texts ---- */

static size_t put_utf8(unsigned char *out, uint32_t code) {
  if (code < 0x80) {
    out[0] = (unsigned char)code;
    return 1;
  }
  if (code < 0x800) {
    out[0] = (unsigned char)(0xc0 | code >> 6);
    out[1] = (unsigned char)(0x80 | (code & 63));
    return 2;
  }
  if (code < 0x10000) {
    out[0] = (unsigned char)(0xe0 | code >> 12);
    out[1] = (unsigned char)(0x80 | (code >> 6 & 63));
    out[2] = (unsigned char)(0x80 | (code & 63));
    return 3;
  }
  out[0] = (unsigned char)(0xf0 | (code >> 18 & 7));
  out[1] = (unsigned char)(0x80 | (code >> 12 & 63));
  out[2] = (unsigned char)(0x80 | (code >> 6 & 63));
  out[3] = (unsigned char)(0x80 | (code & 63));
  return 4;
}

/* `count` hexadecimal digits at `p`, or UINT32_MAX. */
static uint32_t hex_digits(const unsigned char *p, const unsigned char *end, size_t count) {
  uint32_t value = 0;
  if ((size_t)(end - p) < count) return UINT32_MAX;
  for (size_t i = 0; i < count; i++) {
    unsigned char c = p[i], digit;
    if (c >= '0' && c <= '9')
      digit = (unsigned char)(c - '0');
    else if ((c | 32) >= 'a' && (c | 32) <= 'f')
      digit = (unsigned char)((c | 32) - 'a' + 10);
    else
      return UINT32_MAX;
    value = value << 4 | digit;
  }
  return value;
}

/* Undo an escape after a backslash: `*p` is behind it. UINT32_MAX where it is none: the backslash
 * then stands for itself. `is_string`: the escapes of Python's repr, not only \u and \U. */
static uint32_t unescape(const unsigned char **p, const unsigned char *end, bool is_string) {
  static const char from[] = "\\'\"nrtabfv", to[] = "\\'\"\n\r\t\a\b\f\v";
  if (*p == end) return UINT32_MAX;
  unsigned char c = **p;
  size_t digits = c == 'u' && !is_string ? 4 : c == 'U' && !is_string ? 8 : 0;
  if (c == 'x' && is_string) digits = 2;
  if (digits) {
    uint32_t code = hex_digits(*p + 1, end, digits);
    if (code > 0x10ffff) return UINT32_MAX;
    *p += 1 + digits;
    return code;
  }
  const char *escape = is_string && c ? strchr(from, c) : NULL;
  if (!escape) return UINT32_MAX;
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
      if (escaped != UINT32_MAX) code = escaped;
    }
    length += put_utf8(text + length, code);
  }
  uint32_t id = tsr__snapshot_string_id(m->assembler->snapshot, text, length);
  tsr__free(text);
  if (id == TSR_NONE) return tsr__fail_memory(m->error);
  return push(m, tsr__value_id(TSR__STRING, id));
}

/* ---- memo ---- */

static int memo_line(tsr__pickle *m, const unsigned char *line, size_t size, bool is_put) {
  tsr__value index;
  if (!parse_integer(line, size, &index) || index.tag != TSR__INT || index.i < 0)
    return damaged(m, line, "damaged pickle: a memo index that is none");
  if (!is_put) {
    tsr__value value = tsr__memo_get(m->assembler, (size_t)index.i);
    if (value.tag == TSR__NOTHING)
      return damaged(m, line, "damaged pickle: it refers to an object that was never stored");
    return push(m, value);
  }
  if (index.u > tsr__pickle_offset(m, line) || !m->stack.count)
    return damaged(m, line, "damaged pickle: a memo index beyond any object read so far");
  if (index.u >= m->memo_next) m->memo_next = (size_t)index.u + 1;
  return tsr__memo_put(m->assembler, (size_t)index.u, m->stack.items[m->stack.count - 1], m->error);
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
