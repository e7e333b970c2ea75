/* ref_optimizer.c - reference kernels of the fused optimizer and of loss scaling. */
#include <assert.h>
#include <math.h>

#include "kernels/reference.h"

/* torch/optim's fused AdamW: increments the step, then updates each element. */
void tsr__reference_fused_adamw(const tsr__kernel_args *args) {
  tsr__strided p = tsr__strided_of(&args->reads[0]), g = tsr__strided_of(&args->reads[1]);
  tsr__strided m = tsr__strided_of(&args->reads[2]), v = tsr__strided_of(&args->reads[3]);
  tsr__strided to_p = tsr__strided_of(&args->writes[0]), to_m = tsr__strided_of(&args->writes[1]);
  tsr__strided to_v = tsr__strided_of(&args->writes[2]);
  const double *s = args->scalars;
  double rate = s[0], beta_1 = s[1], beta_2 = s[2], epsilon = s[3], decay = s[4];
  double step = tsr__number_of(&args->reads[4]) + 1;
  double rest_1 = 1 - pow(beta_1, step), rest_2 = 1 - pow(beta_2, step);
  double a[TSR__TILE], b[TSR__TILE], c[TSR__TILE], d[TSR__TILE];
  assert(step >= 1);
  for (uint64_t row = 0; row < tsr__strided_rows(&p); row++) {
    TSR__EACH_TILE(column, count, p.dim[3]) {
      tsr__strided_load_row(&p, tsr__strided_row(&p, row), column, count, a);
      tsr__strided_load_row(&g, tsr__strided_row(&g, row), column, count, b);
      tsr__strided_load_row(&m, tsr__strided_row(&m, row), column, count, c);
      tsr__strided_load_row(&v, tsr__strided_row(&v, row), column, count, d);
      for (size_t i = 0; i < count; i++) {
        c[i] += (1 - beta_1) * (b[i] - c[i]);
        d[i] = beta_2 * d[i] + (1 - beta_2) * b[i] * b[i];
        a[i] *= 1 - rate * decay;
        a[i] -= rate / rest_1 * c[i] / (sqrt(d[i]) / sqrt(rest_2) + epsilon);
      }
      tsr__strided_store_row(&to_p, tsr__strided_row(&to_p, row), column, count, a);
      tsr__strided_store_row(&to_m, tsr__strided_row(&to_m, row), column, count, c);
      tsr__strided_store_row(&to_v, tsr__strided_row(&to_v, row), column, count, d);
    }
  }
  tsr__put_number(&args->writes[3], step);
}

/* The same, but the caller counts steps, and passes the numbers that depend on them. */
void tsr__reference_adamw(const tsr__kernel_args *args) {
  tsr__strided from[4], to[3];
  double n[4][TSR__TILE];
  const double *s = args->scalars;
  for (uint32_t k = 0; k < 4; k++) from[k] = tsr__strided_of(&args->reads[k]);
  for (uint32_t k = 0; k < 3; k++) to[k] = tsr__strided_of(&args->writes[k]);
  for (uint64_t row = 0; row < tsr__strided_rows(&to[0]); row++) {
    TSR__EACH_TILE(column, count, to[0].dim[3]) {
      for (uint32_t k = 0; k < 4; k++)
        tsr__strided_load_row(&from[k], tsr__strided_row(&from[k], row), column, count, n[k]);
      double *p = n[0], *g = n[1], *m = n[2], *v = n[3];
      for (size_t i = 0; i < count; i++) {
        m[i] += s[1] * (g[i] - m[i]);
        v[i] = s[2] * v[i] + (1 - s[2]) * g[i] * g[i];
        p[i] = p[i] * s[0] + s[4] * m[i] / (sqrt(v[i]) / s[3] + s[5]);
      }
      for (uint32_t k = 0; k < 3; k++)
        tsr__strided_store_row(&to[k], tsr__strided_row(&to[k], row), column, count,
                               n[k ? k + 1 : 0]);
    }
  }
}

void tsr__reference_norm(const tsr__kernel_args *args) {
  tsr__strided x = tsr__strided_of(&args->reads[0]);
  double numbers[TSR__TILE], total = 0, block = 0;
  uint64_t left = TSR__NORM_BLOCK;
  for (uint64_t row = 0; row < tsr__strided_rows(&x); row++) {
    TSR__EACH_TILE(column, count, x.dim[3]) {
      tsr__strided_load_row(&x, tsr__strided_row(&x, row), column, count, numbers);
      for (size_t i = 0; i < count; i++) {
        block += numbers[i] * numbers[i];
        if (--left) continue;
        total += block;
        block = 0;
        left = TSR__NORM_BLOCK;
      }
    }
  }
  tsr__put_number(&args->writes[0], sqrt(total + block));
}

void tsr__reference_unscale(const tsr__kernel_args *args) {
  tsr__strided g = tsr__strided_of(&args->reads[0]), to = tsr__strided_of(&args->writes[0]);
  double factor = tsr__number_of(&args->reads[1]), overflowed = tsr__number_of(&args->reads[2]);
  double numbers[TSR__TILE];
  for (uint64_t row = 0; row < tsr__strided_rows(&g); row++) {
    TSR__EACH_TILE(column, count, g.dim[3]) {
      tsr__strided_load_row(&g, tsr__strided_row(&g, row), column, count, numbers);
      for (size_t i = 0; i < count; i++) {
        if (!isfinite(numbers[i])) overflowed = 1;
        numbers[i] *= factor;
      }
      tsr__strided_store_row(&to, tsr__strided_row(&to, row), column, count, numbers);
    }
  }
  tsr__put_number(&args->writes[1], overflowed);
}

/* Update a GradScaler: the scale doubles after a number of good steps in a row, and halves after an overflow
 * (aten/src/ATen/native/cuda/AmpKernels.cu, amp_update_scale_cuda_kernel). */
void tsr__reference_update_scale(const tsr__kernel_args *args) {
  const double interval = args->scalars[0];
  double scale = tsr__number_of(&args->reads[0]), good = tsr__number_of(&args->reads[1]);
  assert(scale > 0 && good >= 0 && interval >= 1);
  if (tsr__number_of(&args->reads[2]) != 0) {
    scale *= 0.5;
    good = 0;
  } else if (++good >= interval) {
    double grown = scale * 2;
    if (grown <= 0x1.FFFFFEp127) scale = grown;
    good = 0;
  }
  tsr__put_number(&args->writes[0], scale);
  tsr__put_number(&args->writes[1], good);
}

/* The sums of a block are in the order of fast_optimizer.c: element i belongs to sum i modulo 8. */
static void end_block(double *sums) {
  enum { LANES = TSR__NORM_SUMS - 1 };
  double block = 0;
  for (size_t k = 0; k < LANES; k++) {
    block += sums[k];
    sums[k] = 0;
  }
  sums[LANES] += block;
}

void tsr__reference_norm_part(const tsr__kernel_args *args) {
  enum { LANES = TSR__NORM_SUMS - 1 };
  tsr__strided x = tsr__strided_of(&args->reads[0]), from = tsr__strided_of(&args->reads[1]);
  tsr__strided to = tsr__strided_of(&args->writes[0]);
  double numbers[TSR__TILE], sums[TSR__NORM_SUMS];
  uint64_t at = (uint64_t)args->scalars[0];
  assert(at % LANES == 0);
  tsr__strided_load_row(&from, tsr__strided_row(&from, 0), 0, TSR__NORM_SUMS, sums);
  for (uint64_t row = 0; row < tsr__strided_rows(&x); row++) {
    TSR__EACH_TILE(column, count, x.dim[3]) {
      tsr__strided_load_row(&x, tsr__strided_row(&x, row), column, count, numbers);
      for (size_t i = 0; i < count; i++) {
        sums[at % LANES] += numbers[i] * numbers[i];
        if (++at % TSR__NORM_BLOCK == 0) end_block(sums);
      }
    }
  }
  tsr__strided_store_row(&to, tsr__strided_row(&to, 0), 0, TSR__NORM_SUMS, sums);
}

void tsr__reference_norm_end(const tsr__kernel_args *args) {
  tsr__strided from = tsr__strided_of(&args->reads[0]);
  double sums[TSR__NORM_SUMS];
  tsr__strided_load_row(&from, tsr__strided_row(&from, 0), 0, TSR__NORM_SUMS, sums);
  end_block(sums);
  tsr__put_number(&args->writes[0], sqrt(sums[TSR__NORM_SUMS - 1]));
}
