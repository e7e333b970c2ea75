/* json_scan.c - see json_scan.h.
 *
 * A value's end is found by counting brackets outside of strings. The count is kept while the window
 * grows, so each byte is looked at once, however small the pieces are that the input comes in. */
#include "formats/json_scan.h"

#include <string.h>

#include "base/number.h"
#include "base/utf8.h"

enum { LONGEST_NUMBER = 64 };

void tsr__scan_init(tsr__json *j, tsr__input *source, tsr__assembler *assembler,
                    const tsr_open_options *options, uint64_t total_bytes, tsr_error *error) {
  tsr__json_begin(j, source, assembler, options, total_bytes, error);
  if (j->end - j->next >= 3 && memcmp(j->next, "\xef\xbb\xbf", 3) == 0) j->next += 3;
}

void tsr__scan_release(tsr__json *j) {
  tsr__buffer_release(&j->text);
}

static inline bool is_space(unsigned char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

int tsr__scan_peek(tsr__json *j, unsigned char *byte) {
  for (;;) {
    while (j->next < j->end && is_space(*j->next)) j->next++;
    if (j->next < j->end) break;
    int status = tsr__json_need(j, 1);
    if (status) return status;
  }
  *byte = *j->next;
  return 0;
}

/* ---- the end of a value ---- */

/* How far a value has been looked at. */
typedef struct progress {
  size_t depth;
  bool is_in_string, is_plain; /* plain: a number or word */
} progress;

static inline const unsigned char *find_quote(const unsigned char *p, const unsigned char *end) {
  while ((p = tsr__json_find_special(p, end)) < end && *p < 0x20) p++;
  return p;
}

/* Inside a container only these bytes matter: a table, because most bytes of a trace come by here. */
static const bool is_structure[256] = {
    ['"'] = true, ['{'] = true, ['}'] = true, ['['] = true, [']'] = true};

static inline bool ends_plain(unsigned char c) {
  return is_space(c) || c == ',' || c == ']' || c == '}' || c == ':';
}

/* Look at the bytes from `p` on: the first byte after the value, or NULL if it goes on; then `*at` is where
 * to continue. */
static const unsigned char *look(progress *s, const unsigned char *p, const unsigned char *end,
                                 const unsigned char **at) {
  while (p < end) {
    if (s->is_in_string) {
      p = find_quote(p, end);
      if (p == end) break;
      if (*p == '\\') {
        if (end - p < 2) break;
        p += 2;
        continue;
      }
      s->is_in_string = false;
      p++;
      if (!s->depth) return p;
      continue;
    }
    if (s->is_plain) {
      if (ends_plain(*p)) return p;
      p++;
      continue;
    }
    if (s->depth)
      while (p < end && !is_structure[*p]) p++;
    if (p == end) break;
    unsigned char c = *p;
    if (c == '"') {
      s->is_in_string = true;
    } else if (c == '{' || c == '[') {
      s->depth++;
    } else if (c == '}' || c == ']') {
      if (s->depth <= 1) return p + 1;
      s->depth--;
    } else if (!s->depth) {
      s->is_plain = true;
    }
    p++;
  }
  *at = p;
  return NULL;
}

int tsr__scan_value(tsr__json *j, size_t *size) {
  progress s = {0};
  size_t from = 0;
  for (;;) {
    const unsigned char *at = j->next;
    const unsigned char *end = look(&s, j->next + from, j->end, &at);
    if (end) {
      *size = (size_t)(end - j->next);
      return 0;
    }
    from = (size_t)(at - j->next);
    if (from > j->assembler->limits.string_bytes)
      return tsr__json_limit(j, "an entry longer than tsr_limits.string_bytes");
    if (j->source->at_end && s.is_plain) {
      *size = from;
      return 0;
    }
    int status = tsr__json_need(j, (size_t)(j->end - j->next) + 1);
    if (status) return status;
  }
}

int tsr__scan_pass(tsr__json *j) {
  progress s = {0};
  for (;;) {
    const unsigned char *end = look(&s, j->next, j->end, &j->next);
    if (end) {
      j->next = end;
      return 0;
    }
    /* A backslash at the end of the window stays there until the byte after it comes. */
    int status = tsr__json_need(j, (size_t)(j->end - j->next) + 1);
    if (status) return status == 1 && s.is_plain ? 0 : status;
  }
}

/* ---- inside a value ---- */

static int damaged(const tsr__scan *s, const char *what) {
  return tsr__json_damaged(s->j, s->next, what);
}

static bool skip_space(tsr__scan *s) {
  while (s->next < s->end && is_space(*s->next)) s->next++;
  return s->next < s->end;
}

int tsr__scan_open(tsr__scan *s, char bracket) {
  if (!skip_space(s) || *s->next != (unsigned char)bracket)
    return damaged(s, bracket == '{' ? "expected an object" : "expected a list");
  s->next++;
  return 0;
}

/* Before the next member: past the comma, or past the closing bracket. */
static int next_member(tsr__scan *s, unsigned char close, size_t *count, bool *is_there) {
  if (!skip_space(s)) return damaged(s, "an entry ends too early");
  *is_there = *s->next != close;
  if (*is_there && *count) {
    if (*s->next != ',')
      return damaged(s, close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
    s->next++;
    if (!skip_space(s)) return damaged(s, "an entry ends too early");
  }
  if (!*is_there) s->next++;
  ++*count;
  return 0;
}

int tsr__scan_key(tsr__scan *s, size_t *count, tsr__raw *key) {
  bool is_there;
  *key = (tsr__raw){0};
  int status = next_member(s, '}', count, &is_there);
  if (status || !is_there) return status;
  if (*s->next != '"') return damaged(s, "expected a key in quotes");
  status = tsr__scan_raw(s, key);
  if (status) return status;
  if (!skip_space(s) || *s->next != ':') return damaged(s, "expected ':'");
  s->next++;
  return 0;
}

int tsr__scan_item(tsr__scan *s, size_t *count, bool *is_there) {
  return next_member(s, ']', count, is_there);
}

/* A string, whose quote is at the cursor. */
static int raw_text(tsr__scan *s, tsr__raw *out) {
  const unsigned char *p = s->next + 1, *first = p;
  bool has_escapes = false;
  while ((p = find_quote(p, s->end)) < s->end && *p == '\\') {
    has_escapes = true;
    p = s->end - p < 2 ? s->end : p + 2;
  }
  if (p == s->end) return damaged(s, "a string without an end");
  *out = (tsr__raw){first, (size_t)(p - first), true, has_escapes};
  s->next = p + 1;
  return 0;
}

int tsr__scan_raw(tsr__scan *s, tsr__raw *out) {
  if (!skip_space(s)) return damaged(s, "expected a value");
  if (*s->next == '"') return raw_text(s, out);
  progress state = {0};
  const unsigned char *at = s->end, *end = look(&state, s->next, s->end, &at);
  if (!end && !state.is_plain) return damaged(s, "a value without an end");
  if (!end) end = s->end;
  *out = (tsr__raw){.data = s->next, .size = (size_t)(end - s->next)};
  if (!out->size || ends_plain(*s->next)) return damaged(s, "expected a value");
  s->next = end;
  return 0;
}

/* ---- numbers ---- */

/* The digits at `*p` as a number; false if it does not fit. */
static bool read_digits(const unsigned char **p, const unsigned char *end, uint64_t *out) {
  *out = 0;
  for (; *p < end && **p >= '0' && **p <= '9'; ++*p) {
    unsigned digit = (unsigned)**p - '0';
    if (*out > (UINT64_MAX - digit) / 10) return false;
    *out = *out * 10 + digit;
  }
  return true;
}

static bool read_real(const tsr__raw *raw, double *out) {
  char text[LONGEST_NUMBER + 1];
  if (!raw->size || raw->size > LONGEST_NUMBER) return false;
  for (size_t i = 0; i < raw->size; i++) {
    unsigned char c = raw->data[i];
    bool is_fine = (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || (c | 32) == 'e';
    if (!is_fine) return false;
    text[i] = (char)c;
  }
  text[raw->size] = '\0';
  return tsr__read_real(text, out);
}

bool tsr__raw_unsigned(const tsr__raw *raw, uint64_t *out) {
  const unsigned char *p = raw->data, *end = p + raw->size;
  uint64_t value;
  double real;
  if (p == end || raw->is_text) return false;
  if (read_digits(&p, end, &value) && p == end) {
    *out = value;
    return true;
  }
  if (!read_real(raw, &real) || !(real >= 0 && real < 18446744073709549568.0)) return false;
  *out = (uint64_t)real;
  return true;
}

bool tsr__raw_signed(const tsr__raw *raw, int64_t *out) {
  bool is_negative = raw->size && raw->data[0] == '-';
  tsr__raw rest = *raw;
  rest.data += is_negative;
  rest.size -= is_negative;
  uint64_t value;
  if (!tsr__raw_unsigned(&rest, &value) || value > INT64_MAX) return false;
  *out = is_negative ? -(int64_t)value : (int64_t)value;
  return true;
}

bool tsr__raw_ns(const tsr__raw *raw, int64_t *out) {
  const unsigned char *p = raw->data, *end = p + raw->size;
  bool is_negative = p < end && *p == '-';
  uint64_t us, ns = 0;
  double real;
  p += is_negative;
  const unsigned char *first = p;
  if (read_digits(&p, end, &us) && p > first && us < INT64_MAX / 1000) {
    if (p < end && *p == '.') {
      unsigned scale = 100;
      for (p++; p < end && *p >= '0' && *p <= '9'; p++, scale /= 10)
        ns += scale * (unsigned)(*p - '0');
    }
    if (p == end) {
      *out = (int64_t)(us * 1000 + ns) * (is_negative ? -1 : 1);
      return true;
    }
  }
  if (!read_real(raw, &real) || !(real > -9e15 && real < 9e15)) return false;
  *out = (int64_t)(real * 1000);
  return true;
}

/* ---- texts ---- */

/* The code of "\uXXXX" at `p`; TSR__CODE_INVALID where there is no such escape. */
static uint32_t unicode_escape(const unsigned char *p, const unsigned char *end) {
  if (end - p < 6 || p[0] != '\\' || p[1] != 'u') return TSR__CODE_INVALID;
  return tsr__hex_code(p + 2, 4, 4);
}

static const unsigned char *append_escape(const unsigned char *p, const unsigned char *end,
                                          tsr__buffer *out) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  const char *simple = end - p > 1 && p[1] ? strchr(from, p[1]) : NULL;
  if (simple) {
    tsr__buffer_append(out, &to[simple - from], 1);
    return p + 2;
  }
  uint32_t code = unicode_escape(p, end);
  if (code == TSR__CODE_INVALID) {
    tsr__buffer_append(out, p, 1);
    return p + 1;
  }
  p += 6;
  uint32_t low = (code & 0xfc00) == 0xd800 ? unicode_escape(p, end) : TSR__CODE_INVALID;
  if ((low & 0xfffffc00) == 0xdc00) {
    code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
    p += 6;
  }
  unsigned char bytes[TSR__UTF8_BYTES];
  tsr__buffer_append(out, bytes, tsr__utf8_encode(code, bytes));
  return p;
}

bool tsr__raw_unescape(const tsr__raw *raw, tsr__buffer *out) {
  const unsigned char *p = raw->data, *end = p + raw->size;
  out->size = 0;
  while (p < end) {
    const unsigned char *backslash = raw->has_escapes ? memchr(p, '\\', (size_t)(end - p)) : NULL;
    if (!backslash) backslash = end;
    tsr__buffer_append(out, p, (size_t)(backslash - p));
    p = backslash < end ? append_escape(backslash, end, out) : end;
  }
  return !out->failed;
}
