/* bytes.h - numbers in the bytes of sketches, and the sum at their end: docs/sketch.md. */
#ifndef TSR_FLEET_BYTES_H
#define TSR_FLEET_BYTES_H

#include "base/buffer.h"
#include <stdint.h>

enum { TSR__SUM_BYTES = 8 };

/* FNV-1a: it finds damage, not malice. O(size). */
static inline uint64_t tsr__sum_of(const unsigned char *data, size_t size) {
  uint64_t sum = 14695981039346656037u;
  for (size_t i = 0; i < size; i++) sum = (sum ^ data[i]) * 1099511628211u;
  return sum;
}

/* Append the sum of the bytes from `begin` on. */
static inline void tsr__put_sum(tsr__buffer *out, size_t begin) {
  unsigned char bytes[TSR__SUM_BYTES];
  if (out->failed) return;
  uint64_t sum = tsr__sum_of((const unsigned char *)out->data + begin, out->size - begin);
  for (size_t i = 0; i < TSR__SUM_BYTES; i++) bytes[i] = (unsigned char)(sum >> 8 * i);
  tsr__buffer_append(out, bytes, TSR__SUM_BYTES);
}

/* Whether the last bytes are the sum of those before; `size` is at least TSR__SUM_BYTES. */
static inline bool tsr__has_sum(const unsigned char *data, size_t size) {
  uint64_t sum = 0;
  for (size_t i = 0; i < TSR__SUM_BYTES; i++)
    sum |= (uint64_t)data[size - TSR__SUM_BYTES + i] << 8 * i;
  return sum == tsr__sum_of(data, size - TSR__SUM_BYTES);
}

/* Append a number in LEB128. */
static inline void tsr__put_leb(tsr__buffer *out, uint64_t number) {
  unsigned char bytes[10];
  size_t n = 0;
  do {
    bytes[n] = (unsigned char)(number & 127) | (number > 127 ? 128 : 0);
    number >>= 7;
    n++;
  } while (number);
  tsr__buffer_append(out, bytes, n);
}

/* Read one, at most `most`, and go past it. False, with `*out` 0, if there is no such number. */
static inline bool tsr__get_leb(const unsigned char **at, const unsigned char *end, uint64_t most,
                                uint64_t *out) {
  uint64_t number = 0;
  *out = 0;
  for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
    unsigned char byte = *(*at)++;
    if (shift == 63 && byte > 1) break;
    number |= (uint64_t)(byte & 127) << shift;
    if (byte >= 128) continue;
    if (number > most) break;
    *out = number;
    return true;
  }
  return false;
}

#endif
