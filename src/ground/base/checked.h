/* checked.h - arithmetic on numbers from a file. */
#ifndef TSR_BASE_CHECKED_H
#define TSR_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `*out = a + b` / `a * b`; returns false and leaves `*out` unchanged if that would overflow. */
static inline bool tsr__add_u64(uint64_t a, uint64_t b, uint64_t *out) {
  if (a > UINT64_MAX - b) return false;
  *out = a + b;
  return true;
}

static inline bool tsr__mul_size(size_t a, size_t b, size_t *out) {
  if (b && a > SIZE_MAX / b) return false;
  *out = a * b;
  return true;
}

/* A sum that saturates instead of wrapping. */
static inline uint64_t tsr__sum_u64(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* A product that saturates. Numbers of 32 bits need no division. */
static inline uint64_t tsr__product_u64(uint64_t a, uint64_t b) {
  if ((a | b) >> 32 && b && a > UINT64_MAX / b) return UINT64_MAX;
  return a * b;
}

/* A difference that stops at zero. */
static inline uint64_t tsr__drop_u64(uint64_t a, uint64_t b) {
  return a > b ? a - b : 0;
}

#endif
