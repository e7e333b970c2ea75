/* sha256.c - see sha256.h. Names are those of the standard: message schedule w, working variables a to h.
 *
 * A message is padded with a one bit, zeros and its length in bits, to a multiple of 64 bytes. */
#include "base/sha256.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK_BYTES = 64, ROUNDS = 64, LENGTH_BYTES = 8 };

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/* ... and of the square roots of the first 8. */
static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static uint32_t rotate(uint32_t x, unsigned by) {
  return x >> by | x << (32 - by);
}

static uint32_t load(const unsigned char *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void schedule(const unsigned char *block, uint32_t w[ROUNDS]) {
  for (size_t i = 0; i < 16; i++) w[i] = load(block + 4 * i);
  for (size_t i = 16; i < ROUNDS; i++) {
    uint32_t x = w[i - 15], y = w[i - 2];
    uint32_t low = rotate(x, 7) ^ rotate(x, 18) ^ x >> 3;
    uint32_t high = rotate(y, 17) ^ rotate(y, 19) ^ y >> 10;
    w[i] = w[i - 16] + low + w[i - 7] + high;
  }
}

/* v: a to h. */
static void add_block(uint32_t state[8], const unsigned char *block) {
  uint32_t w[ROUNDS], v[8];
  schedule(block, w);
  memcpy(v, state, sizeof v);
  for (size_t i = 0; i < ROUNDS; i++) {
    uint32_t sum_e = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
    uint32_t sum_a = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
    uint32_t chosen = (v[4] & v[5]) ^ (~v[4] & v[6]);
    uint32_t most = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
    uint32_t first = v[7] + sum_e + chosen + constants[i] + w[i], second = sum_a + most;
    memmove(v + 1, v, 7 * sizeof *v);
    v[4] += first;
    v[0] = first + second;
  }
  for (size_t i = 0; i < 8; i++) state[i] += v[i];
}

static void add_end(uint32_t state[8], const unsigned char *rest, size_t rest_bytes,
                    uint64_t size_bytes) {
  unsigned char end[2 * BLOCK_BYTES] = {0};
  size_t blocks = rest_bytes + 1 + LENGTH_BYTES > BLOCK_BYTES ? 2 : 1;
  assert(rest_bytes < BLOCK_BYTES);
  if (rest_bytes) memcpy(end, rest, rest_bytes);
  end[rest_bytes] = 0x80;
  for (size_t i = 0; i < LENGTH_BYTES; i++)
    end[blocks * BLOCK_BYTES - 1 - i] = (unsigned char)(size_bytes * 8 >> 8 * i);
  for (size_t i = 0; i < blocks; i++) add_block(state, end + i * BLOCK_BYTES);
}

void tsr__sha256_text(const void *data, size_t size_bytes, char text[TSR__SHA256_TEXT_BYTES]) {
  static const char digits[] = "0123456789abcdef";
  const unsigned char *at = data;
  uint32_t state[8];
  size_t whole = size_bytes / BLOCK_BYTES;
  memcpy(state, initial, sizeof state);
  for (size_t i = 0; i < whole; i++) add_block(state, at + i * BLOCK_BYTES);
  add_end(state, whole ? at + whole * BLOCK_BYTES : at, size_bytes % BLOCK_BYTES, size_bytes);
  for (size_t i = 0; i < 64; i++) text[i] = digits[state[i / 8] >> (28 - 4 * (i % 8)) & 15];
  text[64] = '\0';
}
