/* json_scan.h - JSON texts that are a long list of small values, of which few members matter.
 *
 * json.c makes values of everything it reads, which is right for snapshots. A profiler's trace has
 * millions of entries that are ignored, or of which two members count. So the window is moved to hold one entry
 * completely, and what matters is picked from its bytes; nothing else is made of it.
 *
 *   tsr__json j;  tsr__scan_init(&j, source, assembler, options, total_bytes, error);
 *   status = tsr__scan_value(&j, &size);              the value at the cursor is in the window: `size` bytes
 *   tsr__scan s = tsr__scan_of(&j, size);             read it, without asking for more
 *   ... tsr__scan_key, tsr__scan_text, tsr__scan_skip
 *   j.next += size;
 *
 * Control characters inside strings are accepted, since writers of traces leave them in.
 * Functions return 0, a negative tsr_status, or 1 if the input ends in the midst of what they read. */
#ifndef TSR_FORMATS_JSON_SCAN_H
#define TSR_FORMATS_JSON_SCAN_H

#include <string.h>

#include "formats/json.h"

/* Begin at the window's first byte, after a byte order mark. */
void tsr__scan_init(tsr__json *j, tsr__input *source, tsr__assembler *assembler,
                    const tsr_open_options *options, uint64_t total_bytes, tsr_error *error);
void tsr__scan_release(tsr__json *j);

/* Skip white space and return the byte at the cursor. */
int tsr__scan_peek(tsr__json *j, unsigned char *byte);
/* Have the value at the cursor, which is on its first byte, in the window. Longer ones than
 * tsr_limits.string_bytes fail with TSR_ERROR_LIMIT. A number or word is taken to end where nothing of it can
 * follow. */
int tsr__scan_value(tsr__json *j, size_t *size);
/* Move past the value at the cursor, of any length. */
int tsr__scan_pass(tsr__json *j);

/* A value that is completely in the window. */
typedef struct tsr__scan {
  tsr__json *j;
  const unsigned char *next, *end;
} tsr__scan;

static inline tsr__scan tsr__scan_of(tsr__json *j, size_t size) {
  return (tsr__scan){j, j->next, j->next + size};
}

/* The bytes of a value as they are in the text; a string's without its quotes. */
typedef struct tsr__raw {
  const unsigned char *data;
  size_t size;
  bool is_text, has_escapes;
} tsr__raw;

/* Open the object or list at the cursor: TSR_ERROR_FORMAT if it is neither of `bracket`. */
int tsr__scan_open(tsr__scan *s, char bracket);
/* Move to the next key of the open object and past its colon, or to its end: `key->data` is NULL then. `*count` is
 * how many keys there were before; it is counted up. */
int tsr__scan_key(tsr__scan *s, size_t *count, tsr__raw *key);
/* The same for the values of a list: `*is_there` is false at its end. */
int tsr__scan_item(tsr__scan *s, size_t *count, bool *is_there);
/* The value at the cursor, of any kind, and move past it. */
int tsr__scan_raw(tsr__scan *s, tsr__raw *out);

/* Inline, so that the length of a constant is one. */
static inline bool tsr__raw_is(const tsr__raw *raw, const char *text) {
  size_t size = strlen(text);
  return raw->size == size && memcmp(raw->data, text, size) == 0;
}
/* An integer of 64 bits; a number with a fraction or an exponent is cut towards zero. False for what is no number, or
 * out of range. */
bool tsr__raw_signed(const tsr__raw *raw, int64_t *out);
/* The same without a sign. */
bool tsr__raw_unsigned(const tsr__raw *raw, uint64_t *out);
/* A number of microseconds, in nanoseconds. Exact for up to three digits after the point. */
bool tsr__raw_ns(const tsr__raw *raw, int64_t *out);
/* A string's text into `out`, which is emptied first. Invalid escapes stay as they are. False when out of memory. */
bool tsr__raw_unescape(const tsr__raw *raw, tsr__buffer *out);

#endif
