/* half.h - converts the two 16-bit types to and from fp32. Numbers are rounded to the nearest, ties to even;
 * numbers that are too large become infinity, and NaN stays NaN. */
#ifndef TSR_KERNELS_HALF_H
#define TSR_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t tsr__bits_of_float(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
static inline float tsr__float_of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline float tsr__bf16_to_float(uint16_t half) {
  return tsr__float_of_bits((uint32_t)half << 16);
}

static inline uint16_t tsr__bf16_of_float(float x) {
  uint32_t bits = tsr__bits_of_float(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float tsr__f16_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
  if (rest >= 0x7c00) return tsr__float_of_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  /* These bits, read as a float, are 2^-112 of the number, also if it is subnormal. */
  float x = tsr__float_of_bits(rest << 13) * 0x1p112f;
  return tsr__float_of_bits(sign | tsr__bits_of_float(x));
}

static inline uint16_t tsr__f16_of_float(float x) {
  uint32_t bits = tsr__bits_of_float(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and more round up */
  if (rest < 0x38800000) { /* subnormal: in steps of 2^-24, which adding 0.5 rounds to */
    float sum = tsr__float_of_bits(rest) + 0.5f;
    return (uint16_t)(sign | (tsr__bits_of_float(sum) - 0x3f000000));
  }
  return (uint16_t)(sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
}

#endif
