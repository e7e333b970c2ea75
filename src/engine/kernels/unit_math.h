/* unit_math.h - functions of floats without branches or tables, so that a loop over them is vectorised.
 *
 * Errors are the largest found among all floats in steps of 7 ulps, in units of the last place (ulp) of the exact
 * result; tests/unit/test_fast.c checks them. Polynomials were fitted to minimise the largest error, on Chebyshev
 * nodes with 40 digits.
 *
 *   exp    1.1 ulp; from -87.3 to 88.7, beyond which it is 0 and infinity
 *   tanh   2 ulp
 *   erf    2 ulp
 *
 * NaN stays NaN. */
#ifndef TSR_KERNELS_UNIT_MATH_H
#define TSR_KERNELS_UNIT_MATH_H

#include "kernels/unit.h"

/* x = n ln 2 + r, |r| <= ln 2 / 2: exp x = 2^n (1 + r + r^2 p(r)). The exponent 2^n is applied in two halves,
 * because it may not be a normal number by itself. */
static inline float unit_exp(float x) {
  float y = x < -104.0f ? -104.0f : x;
  y = y > 89.0f ? 89.0f : y; /* NaN passes both */
  float shifted = y * 0x1.715476p+0f + 0x1.8p+23f;
  uint32_t n = tsr__bits_of_float(shifted) - 0x4b400000u;
  float whole = shifted - 0x1.8p+23f;
  float r = y - whole * 0x1.62e4p-1f;
  r = r - whole * 1.42860682e-06f;
  float p = 1.395060059e-03f;
  p = p * r + 8.368953930e-03f;
  p = p * r + 4.166620416e-02f;
  p = p * r + 1.666651830e-01f;
  p = p * r + 5.000000096e-01f;
  p = (p * r) * r + r;
  uint32_t half = (uint32_t)((int32_t)n >> 1);
  float a = tsr__float_of_bits((half + 127u) << 23);
  float b = tsr__float_of_bits((n - half + 127u) << 23);
  return (p * a + a) * b;
}

/* An odd polynomial near 0; else 1 - 2 / (exp 2x + 1). */
static inline float unit_tanh(float x) {
  float s = x * x;
  float p = -5.717032513e-03f;
  p = p * s + 2.065057555e-02f;
  p = p * s + -5.374349426e-02f;
  p = p * s + 1.333149124e-01f;
  p = p * s + -3.333328392e-01f;
  float small = (p * s) * x + x;
  float large = 1.0f - 2.0f / (unit_exp(2.0f * fabsf(x)) + 1.0f);
  large = copysignf(large, x);
  return fabsf(x) < 0.625f ? small : large;
}

/* An odd polynomial up to 1; above, 1 - exp(-q(|x|)), where q is -log erfc. From 3.95 on it rounds to 1. */
static inline float unit_erf(float x) {
  float s = x * x, t = fabsf(x);
  float p = 7.889119809e-05f;
  p = p * s + -8.020841606e-04f;
  p = p * s + 5.189535409e-03f;
  p = p * s + -2.685444465e-02f;
  p = p * s + 1.128360018e-01f;
  p = p * s + -3.761262714e-01f;
  p = p * s + 1.283791671e-01f;
  float small = p * x + x;
  t = t > 3.95f ? 3.95f : t;
  float q = -1.855751394e-04f;
  q = q * t + 2.939618273e-03f;
  q = q * t + -2.180536181e-02f;
  q = q * t + 1.030374589e-01f;
  q = q * t + 6.382255742e-01f;
  q = q * t + 1.127040098e+00f;
  q = q * t + 3.537043716e-04f;
  float large = copysignf(1.0f - unit_exp(-q), x);
  return fabsf(x) < 1.0f ? small : large;
}

static inline float unit_sigmoid(float x) {
  return 1.0f / (1.0f + unit_exp(-x));
}

#endif
