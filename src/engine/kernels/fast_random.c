/* fast_random.c - many random numbers at once: the rounds of random.c on 16 blocks side by side. Compiled for each
 * instruction set (unit.h). */
#include "kernels/unit_fast.h"

enum { BLOCKS = 16, NUMBERS = 4 * BLOCKS };

/* Numbers 4 * `block` to 4 * `block` + NUMBERS - 1 of a key. */
static void draw(uint64_t key, uint64_t block, uint32_t out[NUMBERS]) {
  uint32_t c0[BLOCKS], c1[BLOCKS], c2[BLOCKS] = {0}, c3[BLOCKS] = {0};
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (uint64_t i = 0; i < BLOCKS; i++) {
    c0[i] = (uint32_t)(block + i);
    c1[i] = (uint32_t)((block + i) >> 32);
  }
  for (int round = 0; round < 10; round++) {
    for (size_t i = 0; i < BLOCKS; i++) {
      uint64_t first = (uint64_t)0xD2511F53 * c0[i], second = (uint64_t)0xCD9E8D57 * c2[i];
      uint32_t high = (uint32_t)(second >> 32) ^ c1[i] ^ k0;
      c2[i] = (uint32_t)(first >> 32) ^ c3[i] ^ k1;
      c1[i] = (uint32_t)second;
      c3[i] = (uint32_t)first;
      c0[i] = high;
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  for (size_t i = 0; i < BLOCKS; i++) {
    out[4 * i] = c0[i];
    out[4 * i + 1] = c1[i];
    out[4 * i + 2] = c2[i];
    out[4 * i + 3] = c3[i];
  }
}

/* A random number is exactly its bits times 2^-32, so the bits are compared with the chance times 2^32. */
void unit_keeps(uint64_t key, uint64_t first, size_t count, double chance, float *out) {
  uint64_t least = (uint64_t)ceil(chance * 0x1p32);
  uint32_t bits[NUMBERS];
  assert(chance >= 0 && chance < 1);
  for (size_t done = 0; done < count;) {
    uint64_t number = first + done, block = number / 4;
    size_t skip = (size_t)(number % 4), some = NUMBERS - skip;
    if (some > count - done) some = count - done;
    draw(key, block, bits);
    for (size_t i = 0; i < some; i++) out[done + i] = bits[skip + i] >= least ? 1.0f : 0.0f;
    done += some;
  }
}
