/* ref_narrow.c - reference kernels to and from 8 bits.
 *
 * A row, the last dimension, has a scale: its largest absolute number divided by 127. A code is a number divided by
 * the scale, rounded to the nearest integer (ties to even). So a restored number differs by at most half a scale,
 * 1/254 of the row's largest. If a number is not finite, its whole row is restored as NaN, so that a diverging run
 * is noticed. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/reference.h"

enum { SCALE_BYTES = sizeof(float) };
static const float largest_code = 127;

/* The start of a row's codes, which its scale follows. */
static int8_t *codes_of(const tsr__kernel_tensor *tensor, uint64_t row, uint64_t columns) {
  assert(tensor->dtype == TSR__DTYPE_I8 && tsr__layout_is_dense(tensor->layout));
  assert(tsr__shape_from_end(tensor->layout.shape, 0) == columns + SCALE_BYTES);
  return (int8_t *)tensor->data + tensor->layout.offset + row * (columns + SCALE_BYTES);
}

static float scale_of_row(const tsr__strided *from, uint64_t at) {
  double most = 0, numbers[TSR__TILE];
  TSR__EACH_TILE(column, count, from->dim[3]) {
    tsr__strided_load_row(from, at, column, count, numbers);
    for (size_t i = 0; i < count; i++) {
      if (!isfinite(numbers[i])) return NAN;
      if (fabs(numbers[i]) > most) most = fabs(numbers[i]);
    }
  }
  return (float)most / largest_code;
}

void tsr__reference_quantise(const tsr__kernel_args *args) {
  tsr__strided from = tsr__strided_of(&args->reads[0]);
  uint64_t rows = tsr__strided_rows(&from), columns = from.dim[3];
  for (uint64_t row = 0; row < rows; row++) {
    uint64_t at = tsr__strided_row(&from, row);
    float scale = scale_of_row(&from, at);
    float factor =
        scale > 0 ? 1 / scale : 0; /* 0 also for NaN, and if scale is too small to divide by */
    int8_t *codes = codes_of(&args->writes[0], row, columns);
    double numbers[TSR__TILE];
    if (!isfinite(factor)) factor = 0;
    TSR__EACH_TILE(column, count, columns) {
      tsr__strided_load_row(&from, at, column, count, numbers);
      for (size_t i = 0; i < count; i++)
        codes[column + i] =
            factor > 0 ? (int8_t)fmin(127, fmax(-127, nearbyint(numbers[i] * (double)factor))) : 0;
    }
    memcpy(codes + columns, &scale, sizeof scale);
  }
}

void tsr__reference_dequantise(const tsr__kernel_args *args) {
  tsr__strided to = tsr__strided_of(&args->writes[0]);
  uint64_t rows = tsr__strided_rows(&to), columns = to.dim[3];
  for (uint64_t row = 0; row < rows; row++) {
    const int8_t *codes = codes_of(&args->reads[0], row, columns);
    double numbers[TSR__TILE];
    float scale;
    memcpy(&scale, codes + columns, sizeof scale);
    TSR__EACH_TILE(column, count, columns) {
      for (size_t i = 0; i < count; i++) numbers[i] = (double)scale * codes[column + i];
      tsr__strided_store_row(&to, tsr__strided_row(&to, row), column, count, numbers);
    }
  }
}
