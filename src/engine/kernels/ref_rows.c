/* ref_rows.c - reference kernels along rows: sums, softmax, norms, rotary positions.
 *
 * A row is the last dimension. It is read as often as the formula requires, a tile at a time, and written in the
 * last pass, so that a result may overwrite its operand. */
#include <assert.h>
#include <math.h>

#include "kernels/reference.h"

/* ---- sums ---- */

/* The number of elements of `from` for each element of `to`, in each leading dimension. */
static void find_reach(const tsr__strided *from, const tsr__strided *to, uint64_t reach[3]) {
  for (uint32_t i = 0; i < 3; i++) {
    assert(to->dim[i] == from->dim[i] || to->dim[i] == 1);
    reach[i] = to->dim[i] == from->dim[i] ? 1 : from->dim[i];
  }
}

/* Add up the rows that belong to row (a, b, c) of the result, from `column` on. */
static void add_rows(const tsr__strided *from, const uint64_t at[3], const uint64_t reach[3],
                     uint64_t column, size_t count, double *sums) {
  double numbers[TSR__TILE];
  for (uint64_t a = at[0]; a < at[0] + reach[0]; a++)
    for (uint64_t b = at[1]; b < at[1] + reach[1]; b++)
      for (uint64_t c = at[2]; c < at[2] + reach[2]; c++) {
        tsr__strided_load_row(from, tsr__strided_at(from, a, b, c, 0), column, count, numbers);
        for (size_t i = 0; i < count; i++) sums[i] += numbers[i];
      }
}

static void sum_to(const tsr__kernel_args *args, double scale) {
  tsr__strided from = tsr__strided_of(&args->reads[0]), to = tsr__strided_of(&args->writes[0]);
  bool keeps_columns = to.dim[3] == from.dim[3], adds = args->reads[1].data != NULL;
  tsr__strided more = adds ? tsr__strided_repeated(&args->reads[1], &to) : to;
  uint64_t reach[3], rows = tsr__strided_rows(&to);
  find_reach(&from, &to, reach);
  for (uint64_t row = 0; row < rows; row++) {
    uint64_t c = row % to.dim[2], b = row / to.dim[2] % to.dim[1], a = row / to.dim[2] / to.dim[1];
    uint64_t at[3] = {a, b, c}, target = tsr__strided_at(&to, a, b, c, 0);
    double total = 0;
    TSR__EACH_TILE(column, count, from.dim[3]) {
      double sums[TSR__TILE] = {0};
      if (adds && keeps_columns)
        tsr__strided_load_row(&more, tsr__strided_row(&more, row), column, count, sums);
      add_rows(&from, at, reach, column, count, sums);
      for (size_t i = 0; i < count; i++) total += sums[i], sums[i] *= scale;
      if (keeps_columns) tsr__strided_store_row(&to, target, column, count, sums);
    }
    if (adds && !keeps_columns) total += tsr__strided_get(&more, tsr__strided_row(&more, row));
    if (!keeps_columns) tsr__strided_put(&to, target, total * scale);
  }
}

void tsr__reference_sum(const tsr__kernel_args *args) {
  sum_to(args, 1);
}

void tsr__reference_mean(const tsr__kernel_args *args) {
  uint64_t from = tsr__shape_elements(args->reads[0].layout.shape);
  uint64_t to = tsr__shape_elements(args->writes[0].layout.shape);
  assert(from && to && from % to == 0);
  sum_to(args, (double)to / (double)from);
}

void tsr__reference_sum_groups(const tsr__kernel_args *args) {
  tsr__strided from = tsr__strided_of(&args->reads[0]), to = tsr__strided_of(&args->writes[0]);
  uint64_t each = to.dim[1] ? from.dim[1] / to.dim[1] : 0, rows = tsr__strided_rows(&to);
  const uint64_t reach[3] = {1, each, 1};
  assert(each * to.dim[1] == from.dim[1] && from.dim[3] == to.dim[3]);
  for (uint64_t row = 0; row < rows; row++) {
    uint64_t c = row % to.dim[2], b = row / to.dim[2] % to.dim[1], a = row / to.dim[2] / to.dim[1];
    const uint64_t at[3] = {a, b * each, c};
    TSR__EACH_TILE(column, count, to.dim[3]) {
      double sums[TSR__TILE] = {0};
      add_rows(&from, at, reach, column, count, sums);
      tsr__strided_store_row(&to, tsr__strided_at(&to, a, b, c, 0), column, count, sums);
    }
  }
}

void tsr__reference_all(const tsr__kernel_args *args) {
  tsr__strided from = tsr__strided_of(&args->reads[0]), to = tsr__strided_of(&args->writes[0]);
  double numbers[TSR__TILE];
  assert(to.dim[3] == 1 && tsr__strided_rows(&from) == tsr__strided_rows(&to));
  for (uint64_t row = 0; row < tsr__strided_rows(&to); row++) {
    bool are_true = true;
    TSR__EACH_TILE(column, count, from.dim[3]) {
      tsr__strided_load_row(&from, tsr__strided_row(&from, row), column, count, numbers);
      for (size_t i = 0; i < count; i++) are_true &= numbers[i] != 0;
    }
    tsr__strided_put(&to, tsr__strided_row(&to, row), are_true);
  }
}

void tsr__reference_tril(const tsr__kernel_args *args) {
  tsr__strided from = tsr__strided_of(&args->reads[0]), to = tsr__strided_of(&args->writes[0]);
  double numbers[TSR__TILE];
  for (uint64_t row = 0; row < tsr__strided_rows(&to); row++) {
    uint64_t last = row % to.dim[2];
    TSR__EACH_TILE(column, count, to.dim[3]) {
      tsr__strided_load_row(&from, tsr__strided_row(&from, row), column, count, numbers);
      for (size_t i = 0; i < count; i++)
        if (column + i > last) numbers[i] = 0;
      tsr__strided_store_row(&to, tsr__strided_row(&to, row), column, count, numbers);
    }
  }
}

void tsr__reference_cumsum(const tsr__kernel_args *args) {
  tsr__strided from = tsr__strided_of(&args->reads[0]), to = tsr__strided_of(&args->writes[0]);
  double numbers[TSR__TILE];
  for (uint64_t row = 0; row < tsr__strided_rows(&to); row++) {
    double sum = 0;
    TSR__EACH_TILE(column, count, to.dim[3]) {
      tsr__strided_load_row(&from, tsr__strided_row(&from, row), column, count, numbers);
      for (size_t i = 0; i < count; i++) numbers[i] = sum += numbers[i];
      tsr__strided_store_row(&to, tsr__strided_row(&to, row), column, count, numbers);
    }
  }
}

/* ---- softmax ---- */

/* The largest number of a row, and the sum of exp(number - largest). */
static void find_norm(const tsr__strided *from, uint64_t at, double *largest, double *sum) {
  double numbers[TSR__TILE];
  *largest = -INFINITY;
  *sum = 0;
  TSR__EACH_TILE(column, count, from->dim[3]) {
    tsr__strided_load_row(from, at, column, count, numbers);
    for (size_t i = 0; i < count; i++) *largest = fmax(*largest, numbers[i]);
  }
  TSR__EACH_TILE(column, count, from->dim[3]) {
    tsr__strided_load_row(from, at, column, count, numbers);
    for (size_t i = 0; i < count; i++) *sum += exp(numbers[i] - *largest);
  }
}

static void softmax(const tsr__kernel_args *args, bool is_log) {
  tsr__strided from = tsr__strided_of(&args->reads[0]), to = tsr__strided_of(&args->writes[0]);
  double numbers[TSR__TILE], largest, sum;
  for (uint64_t row = 0; row < tsr__strided_rows(&to); row++) {
    find_norm(&from, tsr__strided_row(&from, row), &largest, &sum);
    double log_sum = log(sum);
    TSR__EACH_TILE(column, count, to.dim[3]) {
      tsr__strided_load_row(&from, tsr__strided_row(&from, row), column, count, numbers);
      for (size_t i = 0; i < count; i++)
        numbers[i] = is_log ? numbers[i] - largest - log_sum : exp(numbers[i] - largest) / sum;
      tsr__strided_store_row(&to, tsr__strided_row(&to, row), column, count, numbers);
    }
  }
}

void tsr__reference_softmax(const tsr__kernel_args *args) {
  softmax(args, false);
}

void tsr__reference_log_softmax(const tsr__kernel_args *args) {
  softmax(args, true);
}

static void softmax_backward(const tsr__kernel_args *args, bool is_log) {
  tsr__strided gradient = tsr__strided_of(&args->reads[0]),
               result = tsr__strided_of(&args->reads[1]);
  tsr__strided to = tsr__strided_of(&args->writes[0]);
  double g[TSR__TILE], y[TSR__TILE];
  for (uint64_t row = 0; row < tsr__strided_rows(&to); row++) {
    uint64_t from = tsr__strided_row(&gradient, row), at = tsr__strided_row(&result, row);
    double sum = 0;
    TSR__EACH_TILE(column, count, to.dim[3]) {
      tsr__strided_load_row(&gradient, from, column, count, g);
      tsr__strided_load_row(&result, at, column, count, y);
      for (size_t i = 0; i < count; i++) sum += is_log ? g[i] : g[i] * y[i];
    }
    TSR__EACH_TILE(column, count, to.dim[3]) {
      tsr__strided_load_row(&gradient, from, column, count, g);
      tsr__strided_load_row(&result, at, column, count, y);
      for (size_t i = 0; i < count; i++)
        g[i] = is_log ? g[i] - exp(y[i]) * sum : (g[i] - sum) * y[i];
      tsr__strided_store_row(&to, tsr__strided_row(&to, row), column, count, g);
    }
  }
}

void tsr__reference_softmax_backward(const tsr__kernel_args *args) {
  softmax_backward(args, false);
}

void tsr__reference_log_softmax_backward(const tsr__kernel_args *args) {
  softmax_backward(args, true);
}

/* ---- layer norm ---- */

void tsr__reference_layer_norm(const tsr__kernel_args *args) {
  tsr__strided x = tsr__strided_of(&args->reads[0]), to = tsr__strided_of(&args->writes[0]);
  tsr__strided weight = tsr__strided_of(&args->reads[1]), bias = tsr__strided_of(&args->reads[2]);
  tsr__strided means = tsr__strided_of(&args->writes[1]),
               factors = tsr__strided_of(&args->writes[2]);
  double n[TSR__TILE], w[TSR__TILE], b[TSR__TILE], width = (double)x.dim[3];
  for (uint64_t row = 0; row < tsr__strided_rows(&x); row++) {
    uint64_t at = tsr__strided_row(&x, row);
    double sum = 0, squares = 0;
    TSR__EACH_TILE(column, count, x.dim[3]) {
      tsr__strided_load_row(&x, at, column, count, n);
      for (size_t i = 0; i < count; i++) sum += n[i];
    }
    double mean = sum / width;
    TSR__EACH_TILE(column, count, x.dim[3]) {
      tsr__strided_load_row(&x, at, column, count, n);
      for (size_t i = 0; i < count; i++) squares += (n[i] - mean) * (n[i] - mean);
    }
    double factor = 1 / sqrt(squares / width + args->scalars[0]);
    TSR__EACH_TILE(column, count, x.dim[3]) {
      tsr__strided_load_row(&x, at, column, count, n);
      tsr__strided_load_row(&weight, weight.offset, column, count, w);
      tsr__strided_load_row(&bias, bias.offset, column, count, b);
      for (size_t i = 0; i < count; i++) n[i] = (n[i] - mean) * factor * w[i] + b[i];
      tsr__strided_store_row(&to, tsr__strided_row(&to, row), column, count, n);
    }
    tsr__strided_put(&means, tsr__strided_row(&means, row), mean);
    tsr__strided_put(&factors, tsr__strided_row(&factors, row), factor);
  }
}

/* The operands of backward; an RMS norm has no means. */
typedef struct norm {
  tsr__strided gradient, x, means, factors, weight;
  bool has_means;
} norm;

/* Load a tile of a row: its gradient, and x normalised. */
static void load_norm(const norm *n, uint64_t row, uint64_t column, size_t count, double *g,
                      double *y) {
  double mean = 0;
  if (n->has_means) mean = tsr__strided_get(&n->means, tsr__strided_row(&n->means, row));
  double factor = tsr__strided_get(&n->factors, tsr__strided_row(&n->factors, row));
  tsr__strided_load_row(&n->gradient, tsr__strided_row(&n->gradient, row), column, count, g);
  tsr__strided_load_row(&n->x, tsr__strided_row(&n->x, row), column, count, y);
  for (size_t i = 0; i < count; i++) y[i] = (y[i] - mean) * factor;
}

/* Load the addend of a result, or zeros if it has no data. */
static void load_more(const tsr__kernel_tensor *more, uint64_t row, uint64_t column, size_t count,
                      double *out) {
  for (size_t i = 0; i < count; i++) out[i] = 0;
  if (!more->data) return;
  tsr__strided v = tsr__strided_of(more);
  tsr__strided_load_row(&v, tsr__strided_row(&v, row), column, count, out);
}

/* dx = factor * (g w - mean of g w - y * mean of g w y), with y = x normalised; an RMS norm has no first mean. */
static void norm_of_x(const norm *n, const tsr__strided *to, const tsr__kernel_tensor *more) {
  double g[TSR__TILE], y[TSR__TILE], w[TSR__TILE], own[TSR__TILE], width = (double)to->dim[3];
  for (uint64_t row = 0; row < tsr__strided_rows(to); row++) {
    double sum = 0, product = 0;
    double factor = tsr__strided_get(&n->factors, tsr__strided_row(&n->factors, row));
    TSR__EACH_TILE(column, count, to->dim[3]) {
      load_norm(n, row, column, count, g, y);
      tsr__strided_load_row(&n->weight, n->weight.offset, column, count, w);
      for (size_t i = 0; i < count; i++) {
        sum += g[i] * w[i];
        product += g[i] * w[i] * y[i];
      }
    }
    if (!n->has_means) sum = 0;
    TSR__EACH_TILE(column, count, to->dim[3]) {
      load_norm(n, row, column, count, g, y);
      load_more(more, row, column, count, own);
      tsr__strided_load_row(&n->weight, n->weight.offset, column, count, w);
      for (size_t i = 0; i < count; i++)
        g[i] = own[i] + factor * (g[i] * w[i] - sum / width - y[i] * product / width);
      tsr__strided_store_row(to, tsr__strided_row(to, row), column, count, g);
    }
  }
}

/* Compute the gradients of weight and bias, summed over rows and added to `more`; either may be absent. */
static void norm_of_parameters(const norm *n, const tsr__kernel_tensor *weight,
                               const tsr__kernel_tensor *bias,
                               const tsr__kernel_tensor *more_weight,
                               const tsr__kernel_tensor *more_bias) {
  double g[TSR__TILE], y[TSR__TILE];
  TSR__EACH_TILE(column, count, n->x.dim[3]) {
    double dw[TSR__TILE], db[TSR__TILE];
    load_more(more_weight, 0, column, count, dw);
    load_more(more_bias, 0, column, count, db);
    for (uint64_t row = 0; row < tsr__strided_rows(&n->x); row++) {
      load_norm(n, row, column, count, g, y);
      for (size_t i = 0; i < count; i++) {
        dw[i] += g[i] * y[i];
        db[i] += g[i];
      }
    }
    for (int is_bias = 0; is_bias < 2; is_bias++) {
      const tsr__kernel_tensor *tensor = is_bias ? bias : weight;
      if (!tensor->data) continue;
      tsr__strided to = tsr__strided_of(tensor);
      tsr__strided_store_row(&to, to.offset, column, count, is_bias ? db : dw);
    }
  }
}

void tsr__reference_layer_norm_backward(const tsr__kernel_args *args) {
  const norm n = {tsr__strided_of(&args->reads[0]), tsr__strided_of(&args->reads[1]),
                  tsr__strided_of(&args->reads[2]), tsr__strided_of(&args->reads[3]),
                  tsr__strided_of(&args->reads[4]), true};
  /* The addend may be the result, so it is read before the result is written. */
  if (args->writes[1].data || args->writes[2].data)
    norm_of_parameters(&n, &args->writes[1], &args->writes[2], &args->reads[6], &args->reads[7]);
  if (args->writes[0].data) {
    tsr__strided to = tsr__strided_of(&args->writes[0]);
    norm_of_x(&n, &to, &args->reads[5]);
  }
}

/* ---- RMS norm ---- */

void tsr__reference_rms_norm(const tsr__kernel_args *args) {
  tsr__strided x = tsr__strided_of(&args->reads[0]), to = tsr__strided_of(&args->writes[0]);
  tsr__strided weight = tsr__strided_of(&args->reads[1]),
               factors = tsr__strided_of(&args->writes[1]);
  double n[TSR__TILE], w[TSR__TILE], width = (double)x.dim[3];
  for (uint64_t row = 0; row < tsr__strided_rows(&x); row++) {
    uint64_t at = tsr__strided_row(&x, row);
    double squares = 0;
    TSR__EACH_TILE(column, count, x.dim[3]) {
      tsr__strided_load_row(&x, at, column, count, n);
      for (size_t i = 0; i < count; i++) squares += n[i] * n[i];
    }
    double factor = 1 / sqrt(squares / width + args->scalars[0]);
    TSR__EACH_TILE(column, count, x.dim[3]) {
      tsr__strided_load_row(&x, at, column, count, n);
      tsr__strided_load_row(&weight, weight.offset, column, count, w);
      for (size_t i = 0; i < count; i++) n[i] *= factor * w[i];
      tsr__strided_store_row(&to, tsr__strided_row(&to, row), column, count, n);
    }
    tsr__strided_put(&factors, tsr__strided_row(&factors, row), factor);
  }
}

void tsr__reference_rms_norm_backward(const tsr__kernel_args *args) {
  static const tsr__kernel_tensor none = {.data = NULL};
  const norm n = {.gradient = tsr__strided_of(&args->reads[0]),
                  .x = tsr__strided_of(&args->reads[1]),
                  .factors = tsr__strided_of(&args->reads[2]),
                  .weight = tsr__strided_of(&args->reads[3])};
  if (args->writes[1].data) norm_of_parameters(&n, &args->writes[1], &none, &args->reads[5], &none);
  if (args->writes[0].data) {
    tsr__strided to = tsr__strided_of(&args->writes[0]);
    norm_of_x(&n, &to, &args->reads[4]);
  }
}

/* ---- rotary positions ---- */

/* (x, y) becomes (x cos - y sin, y cos + x sin), where x and y are the halves of a row. */
static void rotate(const tsr__kernel_args *args, uint32_t which) {
  tsr__strided from = tsr__strided_of(&args->reads[which]);
  tsr__strided to = tsr__strided_of(&args->writes[which]);
  tsr__strided cosines = tsr__strided_of(&args->reads[2]), sines = tsr__strided_of(&args->reads[3]);
  double x[TSR__TILE], y[TSR__TILE], cosine[TSR__TILE], sine[TSR__TILE];
  uint64_t half = from.dim[3] / 2;
  assert(from.dim[3] % 2 == 0 && cosines.dim[2] == from.dim[2] && cosines.dim[3] == from.dim[3]);
  for (uint64_t row = 0; row < tsr__strided_rows(&from); row++) {
    uint64_t at = tsr__strided_row(&from, row), target = tsr__strided_row(&to, row);
    uint64_t angle = row % from.dim[2];
    TSR__EACH_TILE(column, count, half) {
      tsr__strided_load_row(&from, at, column, count, x);
      tsr__strided_load_row(&from, at, half + column, count, y);
      tsr__strided_load_row(&cosines, tsr__strided_row(&cosines, angle), column, count, cosine);
      tsr__strided_load_row(&sines, tsr__strided_row(&sines, angle), column, count, sine);
      for (size_t i = 0; i < count; i++) {
        double s = sine[i] * args->scalars[0], own = x[i];
        x[i] = own * cosine[i] - y[i] * s;
        y[i] = y[i] * cosine[i] + own * s;
      }
      tsr__strided_store_row(&to, target, column, count, x);
      tsr__strided_store_row(&to, target, half + column, count, y);
    }
  }
}

void tsr__reference_rotate(const tsr__kernel_args *args) {
  rotate(args, 0);
  rotate(args, 1);
}
