/* random.c - see random.h. A block is four numbers: the counter (block, 0), encrypted with the key. */
#include "kernels/random.h"

#include <assert.h>
#include <math.h>

static void multiply(uint32_t a, uint32_t b, uint32_t *high, uint32_t *low) {
  uint64_t product = (uint64_t)a * b;
  *high = (uint32_t)(product >> 32);
  *low = (uint32_t)product;
}

static void philox(uint64_t key, const uint32_t counter[4], uint32_t out[4]) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  for (int round = 0; round < 10; round++) {
    uint32_t high0, low0, high1, low1;
    multiply(0xD2511F53, c0, &high0, &low0);
    multiply(0xCD9E8D57, c2, &high1, &low1);
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

void tsr__random_block(uint64_t key, uint64_t block, uint32_t out[4]) {
  philox(key, (uint32_t[4]){(uint32_t)block, (uint32_t)(block >> 32), 0, 0}, out);
}

void tsr__random_uniform(uint64_t key, uint64_t first, size_t count, double *out) {
  uint32_t block[4] = {0};
  for (size_t i = 0; i < count; i++) {
    uint64_t number = first + i;
    if (i == 0 || number % 4 == 0) tsr__random_block(key, number / 4, block);
    out[i] = block[number % 4] * 0x1p-32;
    assert(out[i] >= 0 && out[i] < 1);
  }
}

/* Box-Muller, with the cosine only: a block of four makes two numbers. */
void tsr__random_normal(uint64_t key, uint64_t first, size_t count, double *out) {
  const double turn = 6.283185307179586476925;
  uint32_t block[4] = {0};
  for (size_t i = 0; i < count; i++) {
    uint64_t number = first + i;
    if (i == 0 || number % 2 == 0) tsr__random_block(key, number / 2, block);
    const uint32_t *pair = block + number % 2 * 2;
    double radius = sqrt(-2 * log((pair[0] + 1.0) * 0x1p-32));
    out[i] = radius * cos(turn * (pair[1] * 0x1p-32));
    assert(isfinite(out[i]));
  }
}

uint64_t tsr__random_key(uint64_t key, uint64_t part) {
  uint32_t out[4];
  philox(key, (uint32_t[4]){(uint32_t)part, (uint32_t)(part >> 32), 1, 0}, out);
  return (uint64_t)out[1] << 32 | out[0];
}
