/* hash.h - a fast hash of bytes and numbers, for tables inside one process.
 *
 * Keys come from files, and a crafted file could contain keys that all hash to one slot. So each table
 * has a seed that a file cannot know, derived from the table's address in memory. Results of a
 * table never depend on it; only the order of its slots does. */
#ifndef TSR_BASE_HASH_H
#define TSR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Saved runs contain results of this one (train/tokens.c), so it must not change. */
static inline uint64_t tsr__mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ UINT64_C(0x9e3779b97f4a7c15)) * (b ^ UINT64_C(0xd6e8feb86659fd93));
  uint64_t y = a * UINT64_C(0xa0761d6478bd642f) + b;
  x ^= x >> 32;
  y ^= y >> 29;
  return (x + y) * UINT64_C(0xe7037ed1a0b428db) ^ (x >> 17);
}

static inline uint64_t tsr__hash_u64(uint64_t key) {
  key ^= key >> 32;
  key *= UINT64_C(0xd6e8feb86659fd93);
  key ^= key >> 32;
  key *= UINT64_C(0xd6e8feb86659fd93);
  return key ^ (key >> 32);
}

/* A seed for the table at `place`: its address, and that of a function of this library. */
uint64_t tsr__hash_seed(const void *place);

/* Hash of `size` bytes. */
static inline uint64_t tsr__hash_bytes(const void *data, size_t size, uint64_t seed) {
  const unsigned char *p = data;
  uint64_t hash = seed + size * UINT64_C(0x9e3779b97f4a7c15), word;
  for (; size >= 8; p += 8, size -= 8) {
    memcpy(&word, p, 8);
    hash = tsr__mix(hash, word);
  }
  word = 0;
  if (size) memcpy(&word, p, size);
  return tsr__hash_u64(tsr__mix(hash, word));
}

#endif
