/* Tests of the kernels. References: each against a formula written out on dense arrays of doubles, for
 * all types and for operands in scattered layouts. A kernel without a function, or without a case
 * here, is a failure. Fast kernels: each against its reference, with every set of instructions that the
 * processor has, and the same bits with any number of threads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "kernels/fast.h"
#include "kernels/half.h"
#include "kernels/kernel.h"
#include "kernels/random.h"
#include "kernels/unit_math.h"
#include "test_support.h"

/* A tensor as formulas see it: four dimensions, elements in order. */
typedef struct dense {
  uint64_t dim[4], count;
  double *v;
} dense;

/* What an operand holds. */
typedef enum content {
  ABSENT,
  ANY,
  POSITIVE,
  TRUTH,
  IDS,
  LABELS,
  WEIGHTS,
  WIDE_FLOAT,
  INTEGER
} content;

typedef struct operand {
  content what;
  tsr__shape shape;
} operand;

typedef void formula(const dense *r, dense *w, const double *s);

typedef struct kernel_case {
  tsr__kernel kernel;
  operand reads[TSR__KERNEL_READS], writes[TSR__KERNEL_WRITES];
  double scalars[TSR__KERNEL_SCALARS];
  uint32_t scalar_count;
  uint8_t transposed;
  bool is_dense; /* no scattered layouts: rows first, or sizes of its own */
  formula *want;
} kernel_case;

static double at4(const dense *x, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  uint64_t i[4] = {a, b, c, d}, at = 0;
  for (int k = 0; k < 4; k++) at = at * x->dim[k] + (x->dim[k] == 1 ? 0 : i[k]);
  return x->v[at];
}
#define FOR4(w)                                  \
  for (uint64_t a = 0; a < (w)->dim[0]; a++)     \
    for (uint64_t b = 0; b < (w)->dim[1]; b++)   \
      for (uint64_t c = 0; c < (w)->dim[2]; c++) \
        for (uint64_t d = 0; d < (w)->dim[3]; d++)
#define INDEX(w) (((a * (w)->dim[1] + b) * (w)->dim[2] + c) * (w)->dim[3] + d)
#define AT(x)    at4(&(x), a, b, c, d)

#define PI 3.14159265358979323846

/* ---- element by element ---- */

#define EACH(name, expression)                                         \
  static void want_##name(const dense *r, dense *w, const double *s) { \
    (void)s;                                                           \
    FOR4(&w[0]) {                                                      \
      double x = AT(r[0]);                                             \
      double y = r[1].v ? AT(r[1]) : NAN;                              \
      double z = r[2].v ? AT(r[2]) : NAN;                              \
      (void)x, (void)y, (void)z;                                       \
      w[0].v[INDEX(&w[0])] = (expression);                             \
    }                                                                  \
  }
EACH(add, x + y)
EACH(add_scaled, x + s[0] * y)
EACH(add_number, x + s[0])
EACH(mul, x *y)
EACH(mul_scaled, s[0] * x * y)
EACH(mul_number, x *s[0])
EACH(div, x / y)
EACH(div_number, x / s[0])
EACH(sub, x - y)
EACH(neg, -x)
EACH(cube, x *x *x)
EACH(root_power, pow(x, 0.5))
EACH(sqrt, sqrt(x))
EACH(rsqrt, 1 / sqrt(x))
EACH(reciprocal, 1 / x)
EACH(tanh, tanh(x))
EACH(tanh_backward, x *(1 - y * y))
EACH(cos, cos(x))
EACH(sin, sin(x))
EACH(gelu, x * 0.5 * erfc(-x / sqrt(2)))
EACH(gelu_tanh, 0.5 * x * (1 + tanh(sqrt(2 / PI) * (x + 0.044715 * x * x * x))))
static double slope(double (*f)(double), double x) { /* by Richardson's rule */
  double h = 1e-3;
  double near = (f(x + h) - f(x - h)) / (2 * h), far = (f(x + 2 * h) - f(x - 2 * h)) / (4 * h);
  return (4 * near - far) / 3;
}
static double exact_gelu(double x) {
  return x * 0.5 * erfc(-x / sqrt(2));
}
static double tanh_gelu(double x) {
  return 0.5 * x * (1 + tanh(sqrt(2 / PI) * (x + 0.044715 * x * x * x)));
}
static double silu(double x) {
  return x / (1 + exp(-x));
}
EACH(silu_gate, silu(x) * y)
EACH(gelu_backward, x *slope(exact_gelu, y))
EACH(gelu_tanh_backward, x *slope(tanh_gelu, y))
EACH(silu, silu(x))
EACH(silu_backward, x *slope(silu, y))
EACH(where, x != 0 ? y : z)
EACH(where_number, x != 0 ? y : s[0])
EACH(where_numbers, x != 0 ? s[0] : s[1])
EACH(ne, x != y)
EACH(ne_number, x != s[0])
EACH(eq, x == y)
EACH(and, x != 0 && y != 0)
EACH(not, x == 0)
EACH(is_neginf, x == -INFINITY)
EACH(attends, x <= y)
EACH(attends_window, x <= y && x > y - s[0])
EACH(dropout_backward, x *y *s[0])
EACH(lerp, x + s[0] * (y - x))
EACH(addcmul, x + s[0] * y * z)
EACH(addcdiv, x + s[0] * y / z)

/* ---- copies ---- */

static void want_silu_gate_backward(const dense *r, dense *w, const double *s) {
  (void)s;
  FOR4(&w[0]) {
    w[0].v[INDEX(&w[0])] = AT(r[0]) * AT(r[2]) * slope(silu, AT(r[1]));
    w[1].v[INDEX(&w[1])] = AT(r[0]) * silu(AT(r[1]));
  }
}
static void want_copy(const dense *r, dense *w, const double *s) {
  (void)s;
  memcpy(w[0].v, r[0].v, w[0].count * sizeof *w[0].v);
}
static void want_repeat(const dense *r, dense *w, const double *s) {
  (void)s;
  FOR4(&w[0]) w[0].v[INDEX(&w[0])] = at4(&r[0], a, b * r[0].dim[1] / w[0].dim[1], c, d);
}
static void want_cat(const dense *r, dense *w, const double *s) {
  uint32_t dim = (uint32_t)(4 + s[0]);
  FOR4(&w[0]) {
    uint64_t i[4] = {a, b, c, d};
    size_t part = 0;
    while (i[dim] >= r[part].dim[dim]) i[dim] -= r[part++].dim[dim];
    w[0].v[INDEX(&w[0])] = at4(&r[part], i[0], i[1], i[2], i[3]);
  }
}
static void want_pad(const dense *r, dense *w, const double *s) {
  FOR4(&w[0]) w[0].v[INDEX(&w[0])] = d < r[0].dim[3] ? AT(r[0]) : s[0];
}
static void want_slice_backward(const dense *r, dense *w, const double *s) {
  uint64_t first = (uint64_t)s[0];
  FOR4(&w[0]) {
    bool is_in = d >= first && d < first + r[0].dim[3];
    w[0].v[INDEX(&w[0])] = is_in ? at4(&r[0], a, b, c, d - first) : 0;
  }
}
static void want_all(dense *w, double number) {
  for (uint64_t i = 0; i < w->count; i++) w->v[i] = number;
}
static void want_zeros(const dense *r, dense *w, const double *s) {
  (void)r, (void)s;
  want_all(w, 0);
}
static void want_ones(const dense *r, dense *w, const double *s) {
  (void)r, (void)s;
  want_all(w, 1);
}
static void want_full(const dense *r, dense *w, const double *s) {
  (void)r;
  want_all(w, s[0]);
}
static void want_arange(const dense *r, dense *w, const double *s) {
  (void)r;
  for (uint64_t i = 0; i < w->count; i++) w->v[i] = s[0] + (double)i * s[1];
}

/* ---- rows ---- */

static void want_sum(const dense *r, dense *w, const double *s) {
  (void)s;
  want_all(w, 0);
  FOR4(&r[0]) {
    uint64_t i[4] = {a, b, c, d}, at = 0;
    for (int k = 0; k < 4; k++) at = at * w->dim[k] + (w->dim[k] == 1 ? 0 : i[k]);
    w->v[at] += AT(r[0]);
  }
}
static void want_sum_more(const dense *r, dense *w, const double *s) {
  want_sum(r, w, s);
  for (uint64_t i = 0; i < w->count; i++) w->v[i] += r[1].v[i];
}
static void want_mean(const dense *r, dense *w, const double *s) {
  want_sum(r, w, s);
  for (uint64_t i = 0; i < w->count; i++) w->v[i] *= (double)w->count / (double)r[0].count;
}
static void want_sum_groups(const dense *r, dense *w, const double *s) {
  (void)s;
  uint64_t each = r[0].dim[1] / w->dim[1];
  want_all(w, 0);
  FOR4(w)
  for (uint64_t i = 0; i < each; i++) w->v[INDEX(w)] += at4(&r[0], a, b * each + i, c, d);
}
static void want_all_true(const dense *r, dense *w, const double *s) {
  (void)s;
  FOR4(w) {
    bool all = true;
    for (uint64_t i = 0; i < r->dim[3]; i++) all = all && at4(&r[0], a, b, c, i) != 0;
    w->v[INDEX(w)] = all;
  }
}
static void want_tril(const dense *r, dense *w, const double *s) {
  (void)s;
  FOR4(w) w->v[INDEX(w)] = d <= c ? AT(r[0]) : 0;
}
static void want_cumsum(const dense *r, dense *w, const double *s) {
  (void)s;
  FOR4(w) {
    double sum = 0;
    for (uint64_t i = 0; i <= d; i++) sum += at4(&r[0], a, b, c, i);
    w->v[INDEX(w)] = sum;
  }
}
static double row_log_sum(const dense *x, uint64_t a, uint64_t b, uint64_t c) {
  double sum = 0;
  for (uint64_t i = 0; i < x->dim[3]; i++) sum += exp(at4(x, a, b, c, i));
  return log(sum);
}
static void want_softmax(const dense *r, dense *w, const double *s) {
  (void)s;
  FOR4(w) w->v[INDEX(w)] = exp(AT(r[0]) - row_log_sum(&r[0], a, b, c));
}
static void want_log_softmax(const dense *r, dense *w, const double *s) {
  (void)s;
  FOR4(w) w->v[INDEX(w)] = AT(r[0]) - row_log_sum(&r[0], a, b, c);
}
static void want_softmax_backward(const dense *r, dense *w, const double *s) {
  (void)s;
  FOR4(w) {
    double sum = 0;
    for (uint64_t i = 0; i < w->dim[3]; i++) sum += at4(&r[0], a, b, c, i) * at4(&r[1], a, b, c, i);
    w->v[INDEX(w)] = (AT(r[0]) - sum) * AT(r[1]);
  }
}
static void want_log_softmax_backward(const dense *r, dense *w, const double *s) {
  (void)s;
  FOR4(w) {
    double sum = 0;
    for (uint64_t i = 0; i < w->dim[3]; i++) sum += at4(&r[0], a, b, c, i);
    w->v[INDEX(w)] = AT(r[0]) - exp(AT(r[1])) * sum;
  }
}
static void row_moments(const dense *x, uint64_t a, uint64_t b, uint64_t c, double *mean,
                        double *variance) {
  *mean = *variance = 0;
  for (uint64_t i = 0; i < x->dim[3]; i++) *mean += at4(x, a, b, c, i) / (double)x->dim[3];
  for (uint64_t i = 0; i < x->dim[3]; i++)
    *variance += pow(at4(x, a, b, c, i) - *mean, 2) / (double)x->dim[3];
}
static void want_layer_norm(const dense *r, dense *w, const double *s) {
  double mean, variance;
  FOR4(&w[0]) {
    row_moments(&r[0], a, b, c, &mean, &variance);
    w[0].v[INDEX(&w[0])] = (AT(r[0]) - mean) / sqrt(variance + s[0]) * AT(r[1]) + AT(r[2]);
  }
  FOR4(&w[1]) {
    row_moments(&r[0], a, b, c, &mean, &variance);
    w[1].v[INDEX(&w[1])] = mean;
    w[2].v[INDEX(&w[2])] = 1 / sqrt(variance + s[0]);
  }
}
static void want_layer_norm_backward(const dense *r, dense *w, const double *s) {
  double width = (double)r[0].dim[3];
  (void)s;
  want_all(&w[1], 0);
  want_all(&w[2], 0);
  FOR4(&w[0]) {
    double mean = AT(r[2]), factor = AT(r[3]), sum = 0, product = 0;
    for (uint64_t i = 0; i < r[0].dim[3]; i++) {
      double g = at4(&r[0], a, b, c, i) * at4(&r[4], 0, 0, 0, i);
      sum += g;
      product += g * (at4(&r[1], a, b, c, i) - mean) * factor;
    }
    double y = (AT(r[1]) - mean) * factor;
    w[0].v[INDEX(&w[0])] = factor * (AT(r[0]) * AT(r[4]) - sum / width - y * product / width);
    w[1].v[d] += AT(r[0]) * y;
    w[2].v[d] += AT(r[0]);
  }
}

static void add_all(dense *w, const dense *more) {
  for (uint64_t i = 0; i < w->count; i++) w->v[i] += more->v[i];
}
static void want_layer_norm_more(const dense *r, dense *w, const double *s) {
  want_layer_norm_backward(r, w, s);
  for (int i = 0; i < 3; i++) add_all(&w[i], &r[5 + i]);
}
static void want_rms_norm(const dense *r, dense *w, const double *s) {
  FOR4(&w[0]) {
    double squares = 0;
    for (uint64_t i = 0; i < r[0].dim[3]; i++)
      squares += pow(at4(&r[0], a, b, c, i), 2) / (double)r[0].dim[3];
    w[0].v[INDEX(&w[0])] = AT(r[0]) / sqrt(squares + s[0]) * AT(r[1]);
    w[1].v[(a * r[0].dim[1] + b) * r[0].dim[2] + c] = 1 / sqrt(squares + s[0]);
  }
}
static void want_rms_norm_backward(const dense *r, dense *w, const double *s) {
  (void)s;
  want_all(&w[1], 0);
  FOR4(&w[0]) {
    double factor = AT(r[2]), product = 0, y = AT(r[1]) * factor;
    for (uint64_t i = 0; i < r[0].dim[3]; i++)
      product += at4(&r[0], a, b, c, i) * at4(&r[3], 0, 0, 0, i) * at4(&r[1], a, b, c, i) * factor;
    w[0].v[INDEX(&w[0])] = factor * (AT(r[0]) * AT(r[3]) - y * product / (double)r[0].dim[3]);
    w[1].v[d] += AT(r[0]) * y;
  }
  if (r[4].v) add_all(&w[0], &r[4]);
  if (r[5].v) add_all(&w[1], &r[5]);
}
static void want_rotate(const dense *r, dense *w, const double *s) {
  for (int k = 0; k < 2; k++) FOR4(&w[k]) {
      uint64_t half = w[k].dim[3] / 2;
      double other = at4(&r[k], a, b, c, d < half ? d + half : d - half);
      double sine = at4(&r[3], 0, 0, c, d % half) * s[0];
      w[k].v[INDEX(&w[k])] =
          AT(r[k]) * at4(&r[2], 0, 0, c, d % half) + (d < half ? -other : other) * sine;
    }
}

/* ---- losses ---- */

static double label_count(const dense *labels, double ignored) {
  double count = 0;
  for (uint64_t i = 0; i < labels->count; i++) count += labels->v[i] != ignored;
  return count;
}
static void want_nll(const dense *r, dense *w, const double *s) {
  double sum = 0;
  for (uint64_t i = 0; i < r[1].count; i++)
    if (r[1].v[i] != s[0]) sum -= at4(&r[0], 0, 0, i, (uint64_t)r[1].v[i]);
  w[0].v[0] = sum / label_count(&r[1], s[0]);
  w[1].v[0] = label_count(&r[1], s[0]);
}
static void want_nll_backward(const dense *r, dense *w, const double *s) {
  memcpy(w->v, r[0].v, w->count * sizeof *w->v);
  for (uint64_t i = 0; i < r[2].count; i++)
    if (r[2].v[i] != s[0]) w->v[i * w->dim[3] + (uint64_t)r[2].v[i]] = -r[1].v[0] / r[3].v[0];
}
static void want_cross_entropy(const dense *r, dense *w, const double *s) {
  double count = label_count(&r[2], s[0]);
  w[1].v[0] = r[3].v[0];
  FOR4(&w[0]) {
    double label = r[1].v[c], log_sum = row_log_sum(&r[0], a, b, c);
    double p = exp(AT(r[0]) - log_sum);
    w[0].v[INDEX(&w[0])] = label == s[0] ? 0 : (p - (label == (double)d)) / count;
    if (label == (double)d) w[1].v[0] += (log_sum - AT(r[0])) / count;
  }
}
static void want_divided_cross_entropy(const dense *r, dense *w, const double *s) {
  want_cross_entropy(r, w, s);
  for (uint64_t i = 0; i < w[0].count; i++) w[0].v[i] /= s[1];
}
static void want_loss(const dense *r, dense *w, const double *s) {
  double count = label_count(&r[1], s[0]);
  w[0].v[0] = 0;
  w[2].v[0] = count;
  for (uint64_t i = 0; i < r[1].count; i++) {
    double label = r[1].v[i], log_sum = row_log_sum(&r[0], 0, 0, i);
    w[1].v[i] = label == s[0] ? 0 : log_sum;
    if (label != s[0]) w[0].v[0] += (log_sum - at4(&r[0], 0, 0, i, (uint64_t)label)) / count;
  }
}
static void want_loss_backward(const dense *r, dense *w, const double *s) {
  FOR4(w) {
    double label = r[1].v[c], p = exp(AT(r[0]) - r[2].v[c]) - (label == (double)d);
    w->v[INDEX(w)] = label == s[0] ? 0 : p * r[4].v[0] / r[3].v[0] / s[1];
  }
}
static void want_embedding(const dense *r, dense *w, const double *s) {
  (void)s;
  for (uint64_t i = 0; i < r[1].count; i++)
    for (uint64_t j = 0; j < r[0].dim[3]; j++)
      w->v[i * r[0].dim[3] + j] = at4(&r[0], 0, 0, (uint64_t)r[1].v[i], j);
}
static void want_embedding_backward(const dense *r, dense *w, const double *s) {
  (void)s;
  want_all(w, 0);
  for (uint64_t i = 0; i < r[1].count; i++)
    for (uint64_t j = 0; j < w->dim[3]; j++)
      w->v[(uint64_t)r[1].v[i] * w->dim[3] + j] += r[0].v[i * w->dim[3] + j];
}

static void want_embedding_add(const dense *r, dense *w, const double *s) {
  want_embedding_backward(r, w, s);
  if (r[2].v) add_all(w, &r[2]);
}

/* ---- products: a is (rows, inner), perhaps stored transposed; leading dimensions are rows ---- */

static double flat(const dense *x, uint64_t row, uint64_t column) {
  return x->v[row * x->dim[3] + column];
}
#define PRODUCT(name, first, second)                                                             \
  static void want_##name(const dense *r, dense *w, const double *s) {                           \
    uint64_t columns = w->dim[3], rows = w->count / columns;                                     \
    (void)s;                                                                                     \
    for (uint64_t i = 0; i < rows; i++)                                                          \
      for (uint64_t j = 0; j < columns; j++) {                                                   \
        uint64_t at = i * columns + j, inner = (first) ? r[0].count / r[0].dim[3] : r[0].dim[3]; \
        double sum = 0;                                                                          \
        for (uint64_t k = 0; k < inner; k++)                                                     \
          sum += ((first) ? flat(&r[0], k, i) : flat(&r[0], i, k)) *                             \
                 ((second) ? flat(&r[1], j, k) : flat(&r[1], k, j));                             \
        w->v[at] = sum;                                                                          \
        if (r[2].v) w->v[at] += r[2].v[r[2].count == columns ? j : at];                          \
      }                                                                                          \
  }
PRODUCT(mm, false, false)
PRODUCT(mm_first, true, false)
PRODUCT(mm_second, false, true)
#define BATCHES(name, first, second)                                                           \
  static void want_##name(const dense *r, dense *w, const double *s) {                         \
    uint64_t each = r[0].dim[1] / w->dim[1], share = r[0].dim[1] / r[1].dim[1];                \
    uint64_t inner = r[0].dim[(first) ? 2 : 3];                                                \
    (void)s;                                                                                   \
    FOR4(w) {                                                                                  \
      double sum = r[2].v ? AT(r[2]) : 0;                                                      \
      for (uint64_t h = b * each; h < b * each + each; h++)                                    \
        for (uint64_t k = 0; k < inner; k++)                                                   \
          sum += ((first) ? at4(&r[0], a, h, k, c) : at4(&r[0], a, h, c, k)) *                 \
                 ((second) ? at4(&r[1], a, h / share, d, k) : at4(&r[1], a, h / share, k, d)); \
      w->v[INDEX(w)] = sum;                                                                    \
    }                                                                                          \
  }
BATCHES(bmm, false, false)
BATCHES(bmm_first, true, false)
BATCHES(bmm_second, false, true)

/* ---- attention ---- */

/* How it is masked, from a case's numbers: causal, a window, something to add. */
typedef struct masking {
  bool is_causal;
  double window, first;
  const dense *bias;
} masking;

static bool sees(const masking *m, uint64_t i, uint64_t j) {
  double row = (double)i + m->first, column = (double)j;
  return (!m->is_causal || column <= row) && (m->window == 0 || column > row - m->window);
}
static double score(const dense *r, double scale, const masking *m, uint64_t a, uint64_t b,
                    uint64_t i, uint64_t j) {
  double sum = 0;
  uint64_t kv = b * r[1].dim[1] / r[0].dim[1];
  for (uint64_t k = 0; k < r[0].dim[3]; k++)
    sum += at4(&r[0], a, b, i, k) * at4(&r[1], a, kv, j, k);
  return sum * scale + (m->bias && m->bias->v ? at4(m->bias, a, b, i, j) : 0);
}
static double log_sum(const dense *r, double scale, const masking *m, uint64_t a, uint64_t b,
                      uint64_t i) {
  double sum = 0;
  for (uint64_t j = 0; j < r[1].dim[2]; j++)
    if (sees(m, i, j)) sum += exp(score(r, scale, m, a, b, i, j));
  return log(sum);
}
static void attend(const dense *r, dense *w, double scale, const masking *m) {
  uint64_t heads = r[0].dim[1], rows = r[0].dim[2], width = r[2].dim[3];
  for (uint64_t a = 0; a < r[0].dim[0]; a++)
    for (uint64_t b = 0; b < heads; b++)
      for (uint64_t i = 0; i < rows; i++) {
        double lse = log_sum(r, scale, m, a, b, i);
        if (w[1].v) w[1].v[(a * heads + b) * w[1].dim[3] + i] = lse;
        for (uint64_t d = 0; d < width; d++) {
          double sum = 0;
          for (uint64_t j = 0; j < r[1].dim[2]; j++)
            if (sees(m, i, j))
              sum += exp(score(r, scale, m, a, b, i, j) - lse) *
                     at4(&r[2], a, b * r[1].dim[1] / heads, j, d);
          w[0].v[((a * rows + i) * heads + b) * width + d] = sum;
        }
      }
}
/* The formula's gradient; of results (batch, rows, heads * width). */
static void attend_back(const dense *r, dense *w, double scale, const masking *m) {
  uint64_t heads = r[0].dim[1], rows = r[0].dim[2], width = r[2].dim[3], kvs = r[1].dim[1];
  for (int k = 0; k < 3; k++) want_all(&w[k], 0);
  for (uint64_t a = 0; a < r[0].dim[0]; a++)
    for (uint64_t b = 0; b < heads; b++)
      for (uint64_t i = 0; i < rows; i++) {
        uint64_t at = ((a * rows + i) * heads + b) * width, kv = b * kvs / heads;
        double delta = 0, lse = r[5].v[(a * heads + b) * r[5].dim[3] + i];
        for (uint64_t d = 0; d < width; d++) delta += r[3].v[at + d] * r[4].v[at + d];
        for (uint64_t j = 0; j < r[1].dim[2]; j++) {
          if (!sees(m, i, j)) continue;
          double p = exp(score(r, scale, m, a, b, i, j) - lse), dp = 0;
          uint64_t column = ((a * kvs + kv) * r[1].dim[2] + j) * width;
          for (uint64_t d = 0; d < width; d++) dp += r[3].v[at + d] * r[2].v[column + d];
          double ds = p * (dp - delta) * scale;
          for (uint64_t d = 0; d < width; d++) {
            w[0].v[((a * heads + b) * rows + i) * width + d] += ds * r[1].v[column + d];
            w[1].v[column + d] += ds * at4(&r[0], a, b, i, d);
            w[2].v[column + d] += p * r[3].v[at + d];
          }
        }
      }
}
static void want_efficient(const dense *r, dense *w, const double *s) {
  masking m = {.is_causal = s[2] != 0, .bias = &r[3]};
  if (w[1].v) want_all(&w[1], INFINITY);
  attend(r, w, s[0], &m);
  w[2].v[0] = 77;
  w[3].v[0] = 0;
}
static void want_flash(const dense *r, dense *w, const double *s) {
  masking m = {.is_causal = s[2] != 0, .window = s[3], .first = s[4]};
  attend(r, w, s[0], &m);
  if (!w[2].v) return;
  w[2].v[0] = 77;
  w[2].v[1] = w[3].v[0] = 0;
}
static void want_efficient_backward(const dense *r, dense *w, const double *s) {
  masking m = {.is_causal = s[2] != 0, .bias = &r[8]};
  attend_back(r, w, s[0], &m);
}
static void want_flash_backward(const dense *r, dense *w, const double *s) {
  masking m = {.is_causal = s[2] != 0, .window = s[3]};
  attend_back(r, w, s[0], &m);
}
static void want_chunk_softmax(const dense *r, dense *w, const double *s) {
  masking m = {.is_causal = true, .window = s[3], .first = s[1]};
  for (uint64_t a = 0; a < r[0].dim[0]; a++)
    for (uint64_t b = 0; b < r[0].dim[1]; b++)
      for (uint64_t i = 0; i < r[0].dim[2]; i++) {
        double sum = 0;
        for (uint64_t j = 0; j < r[0].dim[3]; j++)
          if (sees(&m, i, j)) sum += exp(at4(&r[0], a, b, i, j) * s[0]);
        uint64_t row = (a * r[0].dim[1] + b) * r[0].dim[2] + i;
        w[1].v[row] = log(sum);
        for (uint64_t j = 0; j < r[0].dim[3]; j++)
          w[0].v[row * r[0].dim[3] + j] =
              sees(&m, i, j) ? exp(at4(&r[0], a, b, i, j) * s[0]) / sum : 0;
      }
}
static void want_chunk_weights(const dense *r, dense *w, const double *s) {
  masking m = {.is_causal = true, .window = s[2], .first = s[1]};
  FOR4(w)
  w->v[INDEX(w)] =
      sees(&m, c, d) ? exp(score(r, s[0], &m, a, b, c, d) - at4(&r[2], 0, a, b, c)) : 0;
}
static void want_chunk_backward(const dense *r, dense *w, const double *s) {
  FOR4(&w[0]) {
    double delta = 0, dp = 0, p = AT(r[3]);
    for (uint64_t k = 0; k < r[0].dim[3]; k++) {
      delta += at4(&r[0], a, b, c, k) * at4(&r[2], a, b, c, k);
      dp += at4(&r[0], a, b, c, k) * at4(&r[1], a, b * r[1].dim[1] / r[0].dim[1], d, k);
    }
    w[0].v[INDEX(&w[0])] = s[0] * p * (dp - delta);
    w[1].v[INDEX(&w[1])] = p;
  }
}

/* ---- optimizers ---- */

static void want_adamw(const dense *r, dense *w, const double *s) {
  double step = r[4].v[0] + 1;
  for (uint64_t i = 0; i < w[0].count; i++) {
    double m = s[1] * r[2].v[i] + (1 - s[1]) * r[1].v[i];
    double v = s[2] * r[3].v[i] + (1 - s[2]) * r[1].v[i] * r[1].v[i];
    double m_hat = m / (1 - pow(s[1], step)), v_hat = v / (1 - pow(s[2], step));
    w[0].v[i] = r[0].v[i] - s[0] * s[4] * r[0].v[i] - s[0] * m_hat / (sqrt(v_hat) + s[3]);
    w[1].v[i] = m;
    w[2].v[i] = v;
  }
  w[3].v[0] = step;
}
static void want_plain_adamw(const dense *r, dense *w, const double *s) {
  for (uint64_t i = 0; i < w[0].count; i++) {
    w[1].v[i] = r[2].v[i] + s[1] * (r[1].v[i] - r[2].v[i]);
    w[2].v[i] = s[2] * r[3].v[i] + (1 - s[2]) * r[1].v[i] * r[1].v[i];
    w[0].v[i] = s[0] * r[0].v[i] + s[4] * w[1].v[i] / (sqrt(w[2].v[i]) / s[3] + s[5]);
  }
}
static void want_norm(const dense *r, dense *w, const double *s) {
  double sum = 0;
  (void)s;
  for (uint64_t i = 0; i < r[0].count; i++) sum += r[0].v[i] * r[0].v[i];
  w[0].v[0] = sqrt(sum);
}
static void want_at_most(const dense *r, dense *w, const double *s) {
  for (uint64_t i = 0; i < w[0].count; i++) w[0].v[i] = r[0].v[i] < s[0] ? r[0].v[i] : s[0];
}
static void want_unscale(const dense *r, dense *w, const double *s) {
  (void)s;
  for (uint64_t i = 0; i < w[0].count; i++) w[0].v[i] = r[0].v[i] * r[1].v[0];
  w[1].v[0] = r[2].v[0];
}
static void want_update_scale(const dense *r, dense *w, const double *s) {
  (void)s;
  w[0].v[0] = r[2].v[0] != 0 ? r[0].v[0] / 2 : r[0].v[0];
  w[1].v[0] = r[2].v[0] != 0 ? 0 : r[1].v[0] + 1;
}

/* ---- the cases ---- */

#define S(...) \
  { .dim = {__VA_ARGS__}, .rank = sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t) }
#define A(...) \
  { ANY, S(__VA_ARGS__) }
#define P(...) \
  { POSITIVE, S(__VA_ARGS__) }
#define B(...) \
  { TRUTH, S(__VA_ARGS__) }
#define F(...) \
  { WIDE_FLOAT, S(__VA_ARGS__) }
#define I(...) \
  { INTEGER, S(__VA_ARGS__) }
#define ONE     \
  {             \
    ANY, {      \
      .rank = 0 \
    }           \
  }
#define FONE      \
  {               \
    WIDE_FLOAT, { \
      .rank = 0   \
    }             \
  }
#define FOUR      A(2, 3, 4, 5)
#define K(name)   .kernel = TSR__KERNEL_##name
#define R(...)    .reads = {__VA_ARGS__}
#define W(...)    .writes = {__VA_ARGS__}
#define N(n, ...) .scalars = {__VA_ARGS__}, .scalar_count = (n)
#define UNARY(name, formula) \
  { K(name), R(FOUR), W(FOUR), .want = want_##formula }
#define UNARYP(name, formula) \
  { K(name), R(P(2, 3, 4, 5)), W(FOUR), .want = want_##formula }
#define BINARY(name, formula) \
  { K(name), R(FOUR, FOUR), W(FOUR), .want = want_##formula }

static const kernel_case cases[] = {
    BINARY(ADD, add),
    {K(ADD), R(A(3, 300), A(300)), W(A(3, 300)), .want = want_add},
    {K(ADD), R(A(2, 3, 7), A(1, 3, 7)), W(A(2, 3, 7)), N(1, 0.5), .want = want_add_scaled},
    {K(ADD), R(FOUR), W(FOUR), N(1, 0.25), .want = want_add_number},
    BINARY(MUL, mul),
    {K(MUL), R(A(4, 6), A(4, 1)), W(A(4, 6)), N(1, -0.5), .want = want_mul_scaled},
    {K(MUL), R(FOUR), W(FOUR), N(1, 3), .want = want_mul_number},
    {K(DIV), R(FOUR, P(2, 3, 4, 5)), W(FOUR), .want = want_div},
    {K(DIV), R(ONE), W(A(3, 5)), N(1, 8), .want = want_div_number},
    BINARY(SUB, sub),
    UNARY(NEG, neg),
    {K(POW), R(FOUR), W(FOUR), N(1, 3), .want = want_cube},
    {K(POW), R(P(2, 3, 4, 5)), W(FOUR), N(1, 0.5), .want = want_root_power},
    UNARYP(SQRT, sqrt),
    UNARYP(RSQRT, rsqrt),
    UNARYP(RECIPROCAL, reciprocal),
    UNARY(TANH, tanh),
    BINARY(TANH_BACKWARD, tanh_backward),
    UNARY(COS, cos),
    UNARY(SIN, sin),
    {K(GELU), R(FOUR), W(FOUR), N(1, 0), .want = want_gelu},
    {K(GELU), R(FOUR), W(FOUR), N(1, 1), .want = want_gelu_tanh},
    {K(GELU_BACKWARD), R(FOUR, FOUR), W(FOUR), N(1, 0), .want = want_gelu_backward},
    {K(GELU_BACKWARD), R(FOUR, FOUR), W(FOUR), N(1, 1), .want = want_gelu_tanh_backward},
    UNARY(SILU, silu),
    BINARY(SILU_BACKWARD, silu_backward),
    BINARY(SILU_GATE, silu_gate),
    {K(SILU_GATE_BACKWARD), R(FOUR, FOUR, FOUR), W(FOUR, FOUR), .want = want_silu_gate_backward},
    {K(WHERE), R(B(4, 5), FOUR, ONE), W(FOUR), .want = want_where},
    {K(WHERE), R(B(2, 3, 4, 5), FOUR), W(FOUR), N(1, -2), .want = want_where_number},
    {K(WHERE), R(B(2, 3, 4, 5)), W(FOUR), N(2, 0, -4), .want = want_where_numbers},
    {K(NE), R(I(3, 4), I(3, 4)), W(B(3, 4)), .want = want_ne},
    {K(NE), R(I(3, 4)), W(B(3, 4)), N(1, 1), .want = want_ne_number},
    {K(EQ), R(I(2, 1, 1, 4), I(2, 1, 3, 1)), W(B(2, 1, 3, 4)), .want = want_eq},
    {K(AND), R(B(3, 4), B(2, 1, 3, 4)), W(B(2, 1, 3, 4)), .want = want_and},
    {K(NOT), R(B(3, 4)), W(B(3, 4)), .want = want_not},
    {K(IS_NEGINF), R(FOUR), W(B(2, 3, 4, 5)), .want = want_is_neginf},
    {K(ATTENDS), R(I(5), I(4, 1)), W(B(4, 5)), N(1, 0), .want = want_attends},
    {K(ATTENDS), R(I(5), I(4, 1)), W(B(4, 5)), N(1, 2), .want = want_attends_window},
    {K(DROPOUT_BACKWARD), R(FOUR, B(2, 3, 4, 5)), W(FOUR), N(1, 2), .want = want_dropout_backward},
    UNARY(TO_COPY, copy),
    {K(TO_COPY), R(FOUR), W(F(2, 12, 5)), .want = want_copy},
    {K(TO_COPY), R(I(1, 7)), W(A(1, 7, 1)), .want = want_copy},
    {K(CLONE), R(FOUR), W(A(6, 20)), .want = want_copy},
    {K(INDEX), R(I(3, 300)), W(I(3, 300)), .want = want_copy},
    {K(REPEAT), R(A(2, 2, 3, 5)), W(A(2, 6, 3, 5)), .want = want_repeat},
    {K(CAT), R(A(3, 4), A(3, 7)), W(A(3, 11)), N(1, -1), .want = want_cat},
    {K(CAT), R(A(2, 1, 3, 4), A(2, 1, 2, 4), A(2, 1, 1, 4)), W(A(2, 1, 6, 4)), N(1, -2),
     .want = want_cat},
    {K(PAD), R(FOUR), W(A(2, 3, 4, 8)), N(1, -1), .want = want_pad},
    {K(SLICE_BACKWARD), R(A(2, 3, 4, 2)), W(FOUR), N(1, 2), .want = want_slice_backward},
    {K(ZEROS), W(FOUR), .want = want_zeros},
    {K(ZEROS_LIKE), W(FOUR), .want = want_zeros},
    {K(ONES_LIKE), W(FOUR), .want = want_ones},
    {K(FULL), W(A(3, 4)), N(1, 1.5), .want = want_full},
    {K(ARANGE), W(I(300)), N(2, 3, 2), .want = want_arange},
    {K(SUM), R(A(3, 4, 300)), W(A(300)), .want = want_sum},
    {K(SUM), R(A(3, 4, 5)), W(A(1, 4, 5)), .want = want_sum},
    {K(SUM), R(A(3, 4, 300), A(300)), W(A(300)), .want = want_sum_more},
    {K(SUM), R(A(3, 4, 5), A(3, 4, 1)), W(A(3, 4, 1)), .want = want_sum_more},
    {K(SUM), R(A(2, 3, 4, 300)), W(A(2, 3, 4, 1)), .want = want_sum},
    {K(SUM), R(FOUR), W(ONE), .want = want_sum},
    {K(SUM_GROUPS), R(A(2, 6, 3, 5)), W(A(2, 2, 3, 5)), .want = want_sum_groups},
    {K(MEAN), R(FOUR), W(ONE), .want = want_mean},
    {K(MEAN_DIM), R(A(3, 4, 300)), W(A(3, 4, 1)), .want = want_mean},
    {K(ALL), R(B(2, 40, 2)), W(B(2, 40, 1)), .want = want_all_true},
    {K(TRIL), R(A(2, 3, 7, 5)), W(A(2, 3, 7, 5)), .want = want_tril},
    {K(TRIL), R(B(4, 300)), W(B(4, 300)), .want = want_tril},
    {K(CUMSUM), R(B(3, 300)), W(I(3, 300)), .want = want_cumsum},
    {K(SOFTMAX), R(A(4, 300)), W(A(4, 300)), .want = want_softmax},
    {K(SOFTMAX_BACKWARD), R(A(4, 300), A(4, 300)), W(A(4, 300)), .want = want_softmax_backward},
    {K(LOG_SOFTMAX), R(A(4, 300)), W(A(4, 300)), .want = want_log_softmax},
    {K(LOG_SOFTMAX_BACKWARD), R(A(4, 7), A(4, 7)), W(A(4, 7)), .want = want_log_softmax_backward},
    {K(LAYER_NORM), R(A(2, 3, 300), A(300), A(300)), W(A(2, 3, 300), F(2, 3, 1), F(2, 3, 1)),
     N(1, 1e-5), .want = want_layer_norm},
    {K(LAYER_NORM_BACKWARD), R(A(2, 3, 30), A(2, 3, 30), F(2, 3, 1), F(2, 3, 1), A(30)),
     W(A(2, 3, 30), A(30), A(30)), .want = want_layer_norm_backward},
    {K(LAYER_NORM_BACKWARD),
     R(A(2, 3, 30), A(2, 3, 30), F(2, 3, 1), F(2, 3, 1), A(30), A(2, 3, 30), A(30), A(30)),
     W(A(2, 3, 30), A(30), A(30)), .want = want_layer_norm_more},
    {K(RMS_NORM), R(A(2, 3, 300), A(300)), W(A(2, 3, 300), F(2, 3, 1)), N(1, 1e-5),
     .want = want_rms_norm},
    {K(RMS_NORM_BACKWARD), R(A(2, 3, 30), A(2, 3, 30), F(2, 3, 1), A(30)), W(A(2, 3, 30), A(30)),
     .want = want_rms_norm_backward},
    {K(RMS_NORM_BACKWARD), R(A(2, 3, 30), A(2, 3, 30), F(2, 3, 1), A(30), A(2, 3, 30), A(30)),
     W(A(2, 3, 30), A(30)), .want = want_rms_norm_backward},
    {K(ROTATE), R(A(2, 3, 4, 6), A(2, 1, 4, 6), F(1, 4, 6), F(1, 4, 6)),
     W(A(2, 3, 4, 6), A(2, 1, 4, 6)), N(1, 1), .want = want_rotate},
    {K(ROTATE), R(A(2, 3, 4, 6), A(2, 1, 4, 6), F(4, 6), F(4, 6)), W(A(2, 3, 4, 6), A(2, 1, 4, 6)),
     N(1, -1), .want = want_rotate},
    {K(NLL_LOSS), R(A(6, 9), {LABELS, S(2, 3)}), W(ONE, ONE), N(1, -100), .want = want_nll},
    {K(NLL_LOSS_BACKWARD), R(A(6, 9), ONE, {LABELS, S(2, 3)}, {POSITIVE, {.rank = 0}}), W(A(6, 9)),
     N(1, -100), .want = want_nll_backward},
    {K(CROSS_ENTROPY), R(A(6, 300), {LABELS, S(6)}, {LABELS, S(2, 5)}, FONE), W(F(6, 300), FONE),
     N(1, -100), .want = want_cross_entropy},
    {K(CROSS_ENTROPY), R(F(6, 30), {LABELS, S(6)}, {LABELS, S(2, 5)}, FONE), W(F(6, 30), FONE),
     N(2, -100, 3), .want = want_divided_cross_entropy},
    {K(LOSS), R(A(6, 300), {LABELS, S(2, 3)}), W(ONE, F(6, 1), ONE), N(1, -100), .want = want_loss},
    {K(LOSS_BACKWARD), R(A(6, 30), {LABELS, S(2, 3)}, F(6, 1), {POSITIVE, {.rank = 0}}, FONE),
     W(A(6, 30)), N(2, -100, 3), .want = want_loss_backward},
    {K(EMBEDDING), R(A(9, 300), {IDS, S(2, 3)}), W(A(2, 3, 300)), .want = want_embedding},
    {K(EMBEDDING_ADD), R(A(2, 3, 300), {IDS, S(2, 3)}), W(A(9, 300)), .want = want_embedding_add},
    {K(EMBEDDING_ADD), R(A(2, 3, 30), {IDS, S(2, 3)}, A(9, 30)), W(A(9, 30)),
     .want = want_embedding_add},
    {K(EMBEDDING_BACKWARD), R(A(2, 3, 300), {IDS, S(2, 3)}), W(A(9, 300)),
     .want = want_embedding_backward},
    {K(ADDMM), R(A(2, 5, 7), A(7, 9), A(9)), W(A(2, 5, 9)), .want = want_mm},
    {K(ADDMM), R(A(2, 5, 7), A(9, 7), A(9)), W(A(2, 5, 9)), .transposed = 2,
     .want = want_mm_second},
    {K(MM), R(A(70, 130), A(130, 65)), W(A(70, 65)), .want = want_mm},
    {K(MM), R(A(2, 20, 40), A(2, 20, 70)), W(A(40, 70)), .transposed = 1, .want = want_mm_first},
    {K(MM), R(A(6, 4), A(6, 5), A(4, 5)), W(A(4, 5)), .transposed = 1, .want = want_mm_first},
    {K(MM), R(A(2, 3, 4), A(5, 4)), W(A(2, 3, 5)), .transposed = 2, .want = want_mm_second},
    {K(BMM), R(A(2, 3, 4, 5), A(2, 3, 5, 6)), W(A(2, 3, 4, 6)), .want = want_bmm},
    {K(BMM), R(A(2, 4, 3, 5), A(2, 2, 7, 5)), W(A(2, 4, 3, 7)), .transposed = 2,
     .want = want_bmm_second},
    {K(BMM), R(A(2, 4, 3, 5), A(2, 4, 3, 6), A(2, 2, 5, 6)), W(A(2, 2, 5, 6)), .transposed = 1,
     .want = want_bmm_first},
    {K(BMM), R(A(1, 4, 1), A(1, 1, 3)), W(A(1, 4, 3)), .want = want_bmm},
    {K(EFFICIENT), R(A(2, 3, 6, 4), A(2, 3, 6, 4), A(2, 3, 6, 4)),
     W(A(2, 6, 12), F(2, 3, 32), I(1), {INTEGER, {.rank = 0}}), N(3, 0.5, 0, 1),
     .want = want_efficient},
    {K(EFFICIENT), R(A(2, 3, 6, 4), A(2, 3, 6, 4), A(2, 3, 6, 4), A(2, 1, 6, 16)),
     W(A(2, 6, 12), F(2, 3, 32), I(1), {INTEGER, {.rank = 0}}), N(3, 0.5, 0, 0),
     .want = want_efficient},
    {K(EFFICIENT), R(A(2, 3, 6, 4), A(2, 3, 6, 4), A(2, 3, 6, 4)),
     W(A(2, 6, 12), {ABSENT, {.rank = 0}}, I(1), {INTEGER, {.rank = 0}}), N(3, 0.5, 0, 1),
     .want = want_efficient},
    {K(EFFICIENT_BACKWARD),
     R(A(2, 3, 6, 4), A(2, 3, 6, 4), A(2, 3, 6, 4), A(2, 6, 12), A(2, 6, 12), F(2, 3, 32), I(1),
       {INTEGER, {.rank = 0}}, A(2, 1, 6, 16)),
     W(A(2, 3, 6, 4), A(2, 3, 6, 4), A(2, 3, 6, 4)), N(3, 0.5, 0, 0), .is_dense = true,
     .want = want_efficient_backward},
    {K(FLASH), R(A(2, 4, 6, 4), A(2, 2, 6, 4), A(2, 2, 6, 4)),
     W(A(2, 6, 16), F(2, 4, 6), I(2), {INTEGER, {.rank = 0}}), N(4, 0.5, 0, 1, 3),
     .want = want_flash},
    {K(FLASH), R(A(1, 1, 300, 3), A(1, 1, 300, 3), A(1, 1, 300, 3)),
     W(A(1, 300, 3), F(1, 1, 300), I(2), {INTEGER, {.rank = 0}}), N(4, 0.5, 0, 0, 0),
     .want = want_flash},
    {K(FLASH), R(A(2, 4, 6, 4), A(2, 2, 6, 4), A(2, 2, 6, 4)), W(A(2, 6, 16), F(2, 4, 6)),
     N(4, 0.5, 0, 1, 3), .want = want_flash},
    {K(FLASH), R(A(2, 4, 3, 4), A(2, 2, 9, 4), A(2, 2, 9, 4)), W(A(2, 3, 16), F(2, 4, 3)),
     N(5, 0.5, 0, 1, 3, 4), .want = want_flash},
    {K(FLASH_BACKWARD),
     R(A(2, 4, 6, 4), A(2, 2, 6, 4), A(2, 2, 6, 4), A(2, 6, 16), A(2, 6, 16), F(2, 4, 6)),
     W(A(2, 4, 6, 4), A(2, 2, 6, 4), A(2, 2, 6, 4)), N(4, 0.5, 0, 1, 0), .is_dense = true,
     .want = want_flash_backward},
    {K(FLASH_BACKWARD),
     R(A(2, 4, 6, 4), A(2, 2, 6, 4), A(2, 2, 6, 4), A(2, 6, 16), A(2, 6, 16), F(2, 4, 6), I(2)),
     W(A(2, 4, 6, 4), A(2, 2, 6, 4), A(2, 2, 6, 4)), N(4, 0.5, 0, 1, 3), .is_dense = true,
     .want = want_flash_backward},
    {K(CHUNK_SOFTMAX), R(A(2, 3, 4, 9)), W(F(2, 3, 4, 9), F(2, 3, 4)), N(4, 0.5, 4, 0, 3),
     .want = want_chunk_softmax},
    {K(CHUNK_WEIGHTS), R(A(2, 4, 3, 5), A(2, 2, 9, 5), F(2, 4, 3)), W(F(2, 4, 3, 9)),
     N(3, 0.5, 4, 3), .want = want_chunk_weights},
    {K(CHUNK_BACKWARD), R(A(2, 4, 3, 5), A(2, 2, 9, 5), A(2, 4, 3, 5), F(2, 4, 3, 9)),
     W(F(2, 4, 3, 9), F(2, 4, 3, 9)), N(2, 0.5, 0), .want = want_chunk_backward},
    {K(LERP), R(FOUR, FOUR), W(FOUR), N(1, 0.25), .want = want_lerp},
    {K(ADDCMUL), R(FOUR, FOUR, FOUR), W(FOUR), N(1, 0.25), .want = want_addcmul},
    {K(ADDCDIV), R(FOUR, FOUR, P(2, 3, 4, 5)), W(FOUR), N(1, 0.25), .want = want_addcdiv},
    UNARYP(FOREACH_SQRT, sqrt),
    {K(FUSED_ADAMW), R(A(4, 5), A(4, 5), A(4, 5), P(4, 5), {WEIGHTS, {.rank = 0}}),
     W(A(4, 5), A(4, 5), A(4, 5), FONE), N(5, 1e-2, 0.9, 0.99, 1e-8, 0.1), .want = want_adamw},
    {K(ADAMW), R(A(4, 5), A(4, 5), A(4, 5), P(4, 5)), W(A(4, 5), A(4, 5), A(4, 5)),
     N(6, 0.99, 0.1, 0.99, 0.5, -1e-2, 1e-8), .want = want_plain_adamw},
    {K(NORM), R(FOUR), W(ONE), .want = want_norm},
    {K(FOREACH_NORM), R(A(3, 5000)), W(ONE), .want = want_norm},
    {K(AT_MOST), R(FOUR), W(FOUR), N(1, 0.25), .want = want_at_most},
    {K(UNSCALE), R(A(4, 5), FONE, FONE), W(A(4, 5), FONE), .want = want_unscale},
    {K(UPDATE_SCALE), R({POSITIVE, {.rank = 0}}, {WEIGHTS, {.rank = 0}}, {POSITIVE, {.rank = 0}}),
     W(FONE, FONE), N(1, 2000), .want = want_update_scale},
};

/* ---- running one ---- */

enum { CANARY = 0x5a };

/* A tensor in storage: where its elements are not, there are canaries. */
typedef struct stored {
  tsr__kernel_tensor tensor;
  dense values;
  size_t bytes;
} stored;

static double round_to(tsr__dtype dtype, double x) {
  switch (dtype) {
  case TSR__DTYPE_F32: return (float)x;
  case TSR__DTYPE_BF16: return tsr__bf16_to_float(tsr__bf16_of_float((float)x));
  case TSR__DTYPE_F16: return tsr__f16_to_float(tsr__f16_of_float((float)x));
  default: return x;
  }
}

static double read_element(const tsr__kernel_tensor *t, uint64_t at) {
  switch (t->dtype) {
  case TSR__DTYPE_F32: return ((const float *)t->data)[at];
  case TSR__DTYPE_F64: return ((const double *)t->data)[at];
  case TSR__DTYPE_BF16: return tsr__bf16_to_float(((const uint16_t *)t->data)[at]);
  case TSR__DTYPE_F16: return tsr__f16_to_float(((const uint16_t *)t->data)[at]);
  case TSR__DTYPE_I64: return (double)((const int64_t *)t->data)[at];
  case TSR__DTYPE_BOOL: return ((const uint8_t *)t->data)[at];
  case TSR__DTYPE_I8: return ((const int8_t *)t->data)[at];
  }
  return NAN;
}

static void write_element(const tsr__kernel_tensor *t, uint64_t at, double x) {
  switch (t->dtype) {
  case TSR__DTYPE_F32: ((float *)t->data)[at] = (float)x; break;
  case TSR__DTYPE_F64: ((double *)t->data)[at] = x; break;
  case TSR__DTYPE_BF16: ((uint16_t *)t->data)[at] = tsr__bf16_of_float((float)x); break;
  case TSR__DTYPE_F16: ((uint16_t *)t->data)[at] = tsr__f16_of_float((float)x); break;
  case TSR__DTYPE_I64: ((int64_t *)t->data)[at] = (int64_t)x; break;
  case TSR__DTYPE_BOOL: ((uint8_t *)t->data)[at] = x != 0; break;
  case TSR__DTYPE_I8: ((int8_t *)t->data)[at] = (int8_t)x; break;
  }
}

static tsr__dtype type_of(content what, tsr__dtype real) {
  switch (what) {
  case TRUTH: return TSR__DTYPE_BOOL;
  case IDS:
  case LABELS:
  case INTEGER: return TSR__DTYPE_I64;
  case WIDE_FLOAT:
  case WEIGHTS: return real == TSR__DTYPE_F64 ? TSR__DTYPE_F64 : TSR__DTYPE_F32;
  default: return real;
  }
}

/* Dimensions in the opposite order, with gaps. */
static tsr__layout scattered(tsr__shape shape) {
  tsr__layout layout = {.shape = shape, .offset = 3};
  uint64_t stride = 2;
  for (uint32_t i = 0; i < shape.rank; i++) {
    layout.stride[i] = stride;
    stride = stride * shape.dim[i] + 1;
  }
  return layout;
}

static uint64_t place_of(const tsr__layout *layout, uint64_t i) {
  uint64_t at = layout->offset;
  for (uint32_t k = layout->shape.rank; k-- > 0; i /= layout->shape.dim[k])
    at += i % layout->shape.dim[k] * layout->stride[k];
  return at;
}

static double draw(content what, uint64_t key, uint64_t i) {
  double u;
  tsr__random_uniform(key, i, 1, &u);
  switch (what) {
  case POSITIVE: return 0.5 + u;
  case TRUTH: return u < 0.5;
  case IDS: return floor(u * 9);
  case LABELS: return u < 0.2 ? -100 : floor(u * 9);
  case WEIGHTS: return 3;
  case INTEGER: return floor(u * 5);
  default: return 2 * u - 1;
  }
}

static stored store(const operand *o, tsr__dtype real, bool is_scattered, uint64_t key) {
  stored s = {.tensor = {.dtype = type_of(o->what, real)}};
  s.tensor.layout = is_scattered ? scattered(o->shape) : tsr__layout_dense(o->shape);
  s.values.count = tsr__shape_elements(o->shape);
  for (uint32_t i = 0; i < 4; i++) s.values.dim[i] = tsr__shape_from_end(o->shape, 3 - i);
  s.values.v = calloc(s.values.count, sizeof *s.values.v);
  s.bytes = (tsr__layout_end(s.tensor.layout) + 5) * tsr__dtype_bytes(s.tensor.dtype);
  s.tensor.data = malloc(s.bytes);
  memset(s.tensor.data, CANARY, s.bytes);
  for (uint64_t i = 0; i < s.values.count; i++) {
    s.values.v[i] = round_to(s.tensor.dtype, draw(o->what, key, i));
    write_element(&s.tensor, place_of(&s.tensor.layout, i), s.values.v[i]);
  }
  return s;
}

static void check(const stored *got, const stored *want, const char *name, uint32_t result) {
  static const double precision[] = {
      [TSR__DTYPE_F32] = 0x1p-22, [TSR__DTYPE_BF16] = 0x1p-7, [TSR__DTYPE_F16] = 0x1p-10,
      [TSR__DTYPE_F64] = 1e-9,    [TSR__DTYPE_I64] = 0,       [TSR__DTYPE_BOOL] = 0};
  uint8_t *bytes = got->tensor.data;
  uint64_t size = tsr__dtype_bytes(got->tensor.dtype);
  for (uint64_t i = 0; i < got->values.count; i++) {
    uint64_t at = place_of(&got->tensor.layout, i);
    double x = read_element(&got->tensor, at), y = want->values.v[i];
    double allowed = precision[got->tensor.dtype] * (fabs(y) + 0.01);
    if (x != y && !(fabs(x - y) <= allowed))
      fail_msg("%s, result %u, type %d, element %llu is %.17g and not %.17g", name, result,
               (int)got->tensor.dtype, (unsigned long long)i, x, y);
    memset(bytes + at * size, CANARY, size);
  }
  for (size_t i = 0; i < got->bytes; i++)
    if (bytes[i] != CANARY)
      fail_msg("%s, result %u: wrote elsewhere, at byte %zu", name, result, i);
}

static void run_case(const kernel_case *k, tsr__dtype real, bool is_scattered) {
  const tsr__kernel_row *row = tsr__kernel_row_of(k->kernel);
  tsr__kernel_args args = {.key = 77,
                           .scalar_count = k->scalar_count,
                           .is_transposed = {k->transposed & 1, k->transposed >> 1}};
  stored reads[TSR__KERNEL_READS] = {0}, writes[TSR__KERNEL_WRITES] = {0};
  dense r[TSR__KERNEL_READS] = {0}, w[TSR__KERNEL_WRITES] = {0};
  memcpy(args.scalars, k->scalars, sizeof args.scalars);
  for (uint32_t i = 0; i < row->most_reads; i++) {
    if (!k->reads[i].what) continue;
    reads[i] = store(&k->reads[i], real, is_scattered, 100 + i);
    args.reads[i] = reads[i].tensor;
    r[i] = reads[i].values;
  }
  for (uint32_t i = 0; i < row->most_writes; i++) {
    if (!k->writes[i].what) continue;
    writes[i] = store(&k->writes[i], real, is_scattered, 200 + i);
    args.writes[i] = writes[i].tensor;
    w[i] = writes[i].values;
  }
  row->reference(&args);
  k->want(r, w, k->scalars);
  for (uint32_t i = 0; i < row->most_writes; i++)
    if (k->writes[i].what) check(&writes[i], &writes[i], row->name, i);
  for (uint32_t i = 0; i < TSR__KERNEL_READS; i++)
    free(reads[i].tensor.data), free(reads[i].values.v);
  for (uint32_t i = 0; i < TSR__KERNEL_WRITES; i++)
    free(writes[i].tensor.data), free(writes[i].values.v);
}

static void formulas(void **state) {
  static const tsr__dtype types[] = {TSR__DTYPE_F64, TSR__DTYPE_F32, TSR__DTYPE_BF16,
                                     TSR__DTYPE_F16};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
      run_case(&cases[i], types[t], false);
      if (!cases[i].is_dense) run_case(&cases[i], types[t], true);
    }
}

/* A row that writes something has a function, which a test here calls, except that of a kernel which is only simulated. */
static void every_row_computes(void **state) {
  static const tsr__kernel apart[] = {
      TSR__KERNEL_DROPOUT,         TSR__KERNEL_DROPOUT_NOISE, TSR__KERNEL_QUANTISE,
      TSR__KERNEL_DEQUANTISE,      TSR__KERNEL_DROP,          TSR__KERNEL_BATCH,
      TSR__KERNEL_NORM_PART,       TSR__KERNEL_NORM_END,      TSR__KERNEL_SET_ROWS,
      TSR__KERNEL_DEQUANTISE_4BIT, TSR__KERNEL_QUANTISE_FP8,  TSR__KERNEL_SCALED_MM};
  (void)state;
  for (int k = TSR__KERNEL_NONE + 1; k < TSR__KERNEL_COUNT; k++) {
    const tsr__kernel_row *row = tsr__kernel_row_of((tsr__kernel)k);
    bool is_tested = false;
    if ((row->reference != NULL) != (row->most_writes > 0))
      fail_msg("%s %s", row->name, row->reference ? "is never run" : "has no function");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
      is_tested |= cases[i].kernel == (tsr__kernel)k;
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
      is_tested |= apart[i] == (tsr__kernel)k;
    if (row->reference && !is_tested) fail_msg("%s is not tested", row->name);
  }
}

/* A norm whose elements are in several places, one after another, is the norm of all of them, to the bit, whatever
 * instructions make that. */
static void norm_in_parts(void **state) {
  enum { COUNT = 10000 };
  static const uint64_t ends[] = {64, 4032, 4096, 4160, 9984, COUNT};
  static float numbers[COUNT];
  (void)state;
  for (size_t i = 0; i < COUNT; i++) numbers[i] = (float)sin((double)i) / (float)(1 + i % 7);
  for (int isa = 0; isa < TSR__ISA_COUNT && isa <= (int)tsr__isa_best(); isa++) {
    double sums[TSR__NORM_SUMS] = {0};
    float whole = 0, parts = 0;
    tsr__kernel_tensor to = {&whole, TSR__DTYPE_F32, tsr__layout_dense(TSR__SCALAR)};
    tsr__kernel_tensor all = {numbers, TSR__DTYPE_F32, tsr__layout_dense(TSR__SHAPE(COUNT))};
    tsr__kernel_tensor sum = {sums, TSR__DTYPE_F64, tsr__layout_dense(TSR__SHAPE(TSR__NORM_SUMS))};
    tsr__kernel_fast(TSR__KERNEL_NORM,
                     (tsr__isa)isa)(&(tsr__kernel_args){.reads = {all}, .writes = {to}});
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
      uint64_t first = i ? ends[i - 1] : 0;
      tsr__kernel_tensor part = all;
      part.layout = tsr__layout_dense(TSR__SHAPE(ends[i] - first));
      part.layout.offset = first;
      tsr__kernel_row_of(TSR__KERNEL_NORM_PART)
          ->reference(&(tsr__kernel_args){.reads = {part, sum},
                                          .writes = {sum},
                                          .scalars = {(double)first},
                                          .scalar_count = 1});
    }
    to.data = &parts;
    tsr__kernel_row_of(TSR__KERNEL_NORM_END)
        ->reference(&(tsr__kernel_args){.reads = {sum}, .writes = {to}});
    assert_true(whole > 0);
    assert_memory_equal(&whole, &parts, sizeof whole);
  }
}

/* Some rows of a larger tensor change, and no others. */
static void rows_are_set(void **state) {
  enum { HEADS = 2, POSITIONS = 5, WIDTH = 3, ROWS = 2, FIRST = 2 };
  float cache[HEADS][POSITIONS][WIDTH], rows[ROWS][HEADS][WIDTH];
  (void)state;
  for (size_t i = 0; i < HEADS * POSITIONS * WIDTH; i++)
    cache[i / WIDTH / POSITIONS][i / WIDTH % POSITIONS][i % WIDTH] = -1;
  for (size_t i = 0; i < ROWS * HEADS * WIDTH; i++)
    rows[i / WIDTH / HEADS][i / WIDTH % HEADS][i % WIDTH] = (float)i;
  tsr__kernel_tensor from = {
      rows, TSR__DTYPE_F32,
      tsr__layout_swap(tsr__layout_dense(TSR__SHAPE(1, ROWS, HEADS, WIDTH)), 1, 2)};
  tsr__kernel_tensor to = {cache, TSR__DTYPE_F32,
                           tsr__layout_dense(TSR__SHAPE(1, HEADS, POSITIONS, WIDTH))};
  tsr__kernel_row_of(TSR__KERNEL_SET_ROWS)
      ->reference(&(tsr__kernel_args){
          .reads = {from}, .writes = {to}, .scalars = {FIRST}, .scalar_count = 1});
  for (size_t h = 0; h < HEADS; h++)
    for (size_t i = 0; i < POSITIONS; i++)
      for (size_t w = 0; w < WIDTH; w++) {
        bool is_set = i >= FIRST && i < FIRST + ROWS;
        assert_true(cache[h][i][w] == (is_set ? rows[i - FIRST][h][w] : -1));
      }
}

/* A row of a product has the same bits alone as among others, whatever computes it, on any threads. */
static void row_is_the_same_alone(void **state) {
  enum { ROWS = 3, DEPTH = 530, COLUMNS = 1201 };
  static float a[ROWS][DEPTH], b[DEPTH * COLUMNS], more[COLUMNS], all[ROWS][COLUMNS], one[COLUMNS];
  tsr__thread_pool *pool = tsr__thread_pool_new(3);
  (void)state;
  for (size_t i = 0; i < ROWS * DEPTH; i++) a[i / DEPTH][i % DEPTH] = (float)sin((double)i);
  for (size_t i = 0; i < DEPTH * COLUMNS; i++) b[i] = (float)cos((double)i * 0.37);
  for (size_t i = 0; i < COLUMNS; i++) more[i] = (float)i * 0.01f;
  for (int isa = 0; isa < TSR__ISA_COUNT && isa <= (int)tsr__isa_best(); isa++)
    for (int variant = 0; variant < 4; variant++) {
      bool is_transposed = variant & 1;
      tsr__shape shape = is_transposed ? TSR__SHAPE(COLUMNS, DEPTH) : TSR__SHAPE(DEPTH, COLUMNS);
      tsr__kernel_args args = {
          .reads = {{a, TSR__DTYPE_F32, tsr__layout_dense(TSR__SHAPE(ROWS, DEPTH))},
                    {b, TSR__DTYPE_F32, tsr__layout_dense(shape)}},
          .writes = {{all, TSR__DTYPE_F32, tsr__layout_dense(TSR__SHAPE(ROWS, COLUMNS))}},
          .is_transposed = {false, is_transposed}};
      if (variant & 2)
        args.reads[2] =
            (tsr__kernel_tensor){more, TSR__DTYPE_F32, tsr__layout_dense(TSR__SHAPE(COLUMNS))};
      tsr__kernel_fn *multiply = tsr__kernel_fast(TSR__KERNEL_ADDMM, (tsr__isa)isa);
      multiply(&args);
      for (size_t i = 0; i < ROWS; i++) {
        tsr__kernel_args alone = args;
        alone.pool = i ? pool : NULL;
        alone.reads[0] =
            (tsr__kernel_tensor){a[i], TSR__DTYPE_F32, tsr__layout_dense(TSR__SHAPE(1, DEPTH))};
        alone.writes[0] =
            (tsr__kernel_tensor){one, TSR__DTYPE_F32, tsr__layout_dense(TSR__SHAPE(1, COLUMNS))};
        multiply(&alone);
        assert_memory_equal(one, all[i], sizeof one);
      }
    }
  tsr__thread_pool_free(pool);
}

/* Results on top of the operands that rows allow: the same numbers. By the reference (-1), or with a
 * set of instructions. */
static void check_in_place(int isa) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const kernel_case *k = &cases[i];
    const tsr__kernel_row *row = tsr__kernel_row_of(k->kernel);
    tsr__kernel_fn *run = isa < 0 ? row->reference : tsr__kernel_fast(k->kernel, (tsr__isa)isa);
    if (!run) continue;
    stored reads[TSR__KERNEL_READS] = {0}, writes[TSR__KERNEL_WRITES] = {0};
    tsr__kernel_args args = {.scalar_count = k->scalar_count,
                             .is_transposed = {k->transposed & 1, k->transposed >> 1}};
    memcpy(args.scalars, k->scalars, sizeof args.scalars);
    for (uint32_t r = 0; r < row->most_reads; r++) {
      if (!k->reads[r].what) continue;
      reads[r] = store(&k->reads[r], TSR__DTYPE_F32, false, 100 + r);
      args.reads[r] = reads[r].tensor;
    }
    for (uint32_t w = 0; w < row->most_writes; w++) {
      if (!k->writes[w].what) continue;
      writes[w] = store(&k->writes[w], TSR__DTYPE_F32, false, 200 + w);
      args.writes[w] = writes[w].tensor;
    }
    run(&args);
    for (uint32_t w = 0; w < row->most_writes; w++) {
      const tsr__kernel_tensor *own = row->in_place[w] ? &args.reads[row->in_place[w] - 1] : NULL;
      if (own && own->data && own->dtype == writes[w].tensor.dtype &&
          tsr__shape_is_same(own->layout.shape, writes[w].tensor.layout.shape))
        args.writes[w] = *own;
    }
    run(&args);
    for (uint32_t w = 0; w < row->most_writes; w++)
      for (uint64_t e = 0; e < writes[w].values.count; e++)
        if (memcmp((char *)args.writes[w].data + e * tsr__dtype_bytes(args.writes[w].dtype),
                   (char *)writes[w].tensor.data + e * tsr__dtype_bytes(args.writes[w].dtype),
                   tsr__dtype_bytes(args.writes[w].dtype)) != 0)
          fail_msg("%s differs in place", row->name);
    for (uint32_t r = 0; r < TSR__KERNEL_READS; r++)
      free(reads[r].tensor.data), free(reads[r].values.v);
    for (uint32_t w = 0; w < TSR__KERNEL_WRITES; w++)
      free(writes[w].tensor.data), free(writes[w].values.v);
  }
}

static void in_place(void **state) {
  (void)state;
  for (int isa = -1; isa <= (int)tsr__isa_best(); isa++) check_in_place(isa);
}

/* ---- fast kernels ---- */

typedef struct product_case {
  tsr__shape a, b, more, to; /* more of rank 0: nothing is added */
  uint8_t transposed;
  bool is_in_place; /* what is added is the result */
} product_case;

static const product_case products[] = {
    {S(37, 300), S(300, 70), {.rank = 0}, S(37, 70), 0, false},
    {S(3, 90, 257), S(257, 515), S(515), S(3, 90, 515), 0, false},
    {S(2, 130, 40), S(600, 40), S(600), S(2, 130, 600), 2, false},
    {S(2, 300, 70), S(2, 300, 33), {.rank = 0}, S(70, 33), 1, false},
    {S(513, 20), S(513, 530), S(20, 530), S(20, 530), 1, true},
    {S(1, 1), S(1, 1), {.rank = 0}, S(1, 1), 0, false},
};

static stored store_shape(const tsr__shape *shape, bool is_scattered, uint64_t key) {
  operand o = {ANY, *shape};
  return store(&o, TSR__DTYPE_F32, is_scattered, key);
}

static void free_stored(stored *s) {
  free(s->tensor.data);
  free(s->values.v);
}

/* One product with one set of instructions: close to the reference, and the same with any number of
 * threads. */
static void check_product(const product_case *c, tsr__isa isa, bool is_scattered) {
  stored a = store_shape(&c->a, is_scattered, 1), b = store_shape(&c->b, is_scattered, 2);
  stored more = store_shape(&c->more, is_scattered, 3);
  stored want = store_shape(&c->to, is_scattered, 3), got = store_shape(&c->to, is_scattered, 3);
  tsr__kernel_args args = {.reads = {a.tensor, b.tensor},
                           .writes = {want.tensor},
                           .is_transposed = {c->transposed & 1, c->transposed >> 1}};
  if (c->more.rank) args.reads[2] = c->is_in_place ? want.tensor : more.tensor;
  tsr__kernel_row_of(TSR__KERNEL_MM)->reference(&args);
  void *first = malloc(got.bytes), *start = malloc(got.bytes);
  memcpy(start, got.tensor.data, got.bytes);
  for (unsigned width = 1; width <= 3; width++) {
    tsr__thread_pool *pool = tsr__thread_pool_new(width);
    memcpy(got.tensor.data, start, got.bytes);
    args.writes[0] = got.tensor;
    if (c->is_in_place) args.reads[2] = got.tensor;
    args.pool = pool;
    tsr__kernel_fast(TSR__KERNEL_MM, isa)(&args);
    for (uint64_t i = 0; i < got.values.count; i++) {
      uint64_t at = place_of(&got.tensor.layout, i);
      double x = read_element(&got.tensor, at), y = read_element(&want.tensor, at);
      if (!(fabs(x - y) <= 1e-5 * (fabs(y) + 1)))
        fail_msg("set %d, element %llu: %g and not %g", (int)isa, (unsigned long long)i, x, y);
    }
    if (width == 1) memcpy(first, got.tensor.data, got.bytes);
    assert_memory_equal(first, got.tensor.data, got.bytes); /* gaps included */
    tsr__thread_pool_free(pool);
  }
  free(first);
  free(start);
  stored *all[] = {&a, &b, &more, &want, &got};
  for (size_t i = 0; i < 5; i++) free_stored(all[i]);
}

static void fast_products(void **state) {
  (void)state;
  for (int isa = 0; isa <= (int)tsr__isa_best(); isa++)
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
      for (int is_scattered = 0; is_scattered < 2; is_scattered++)
        check_product(&products[i], (tsr__isa)isa, is_scattered != 0);
}

/* A bf16 operand may meet one in fp32, which the instructions for bf16 round to bf16 as they read it. */
static void mixed_products(void **state) {
  static const tsr__shape a = S(70, 301), b = S(301, 90), to = S(70, 90);
  const tsr__shape shapes[] = {a, b};
  (void)state;
  for (int isa = 0; isa <= (int)tsr__isa_best(); isa++)
    for (uint32_t wide = 0; wide < 2; wide++)
      for (uint32_t turned = 0; turned < 4; turned++) {
        stored in[2], want = store_shape(&to, false, 3), got = store_shape(&to, false, 3);
        for (uint32_t i = 0; i < 2; i++) {
          operand o = {ANY, shapes[i]};
          if (turned & 1U << i) o.shape = (tsr__shape)S(shapes[i].dim[1], shapes[i].dim[0]);
          in[i] = store(&o, i == wide ? TSR__DTYPE_F32 : TSR__DTYPE_BF16, false, i);
        }
        tsr__kernel_args args = {.reads = {in[0].tensor, in[1].tensor},
                                 .writes = {want.tensor},
                                 .is_transposed = {turned & 1, turned >> 1}};
        tsr__kernel_row_of(TSR__KERNEL_MM)->reference(&args);
        args.writes[0] = got.tensor;
        tsr__kernel_fast(TSR__KERNEL_MM, (tsr__isa)isa)(&args);
        for (uint64_t i = 0; i < got.values.count; i++) {
          double x = read_element(&got.tensor, i), y = read_element(&want.tensor, i);
          if (!(fabs(x - y) <= (isa == TSR__ISA_AVX512_BF16 ? 0.05 : 1e-4)))
            fail_msg("set %d, element %llu: %g and not %g", isa, (unsigned long long)i, x, y);
        }
        stored *all[] = {&in[0], &in[1], &want, &got};
        for (size_t i = 0; i < 4; i++) free_stored(all[i]);
      }
}

/* Rows do not depend on the rows beside them, and a weight's gradient is a sum of 256 tokens after
 * another: so micro-batches of 256 tokens give the gradient of the whole batch. */
static void panels(void **state) {
  static const tsr__shape tokens = S(512, 40), gradients = S(512, 30), weight = S(40, 30);
  stored x = store_shape(&tokens, false, 1), g = store_shape(&gradients, false, 2);
  stored whole = store_shape(&weight, false, 3), parts = store_shape(&weight, false, 4);
  tsr__kernel_args args = {
      .reads = {x.tensor, g.tensor}, .writes = {whole.tensor}, .is_transposed = {true, false}};
  (void)state;
  tsr__kernel_fn *multiply = tsr__kernel_fast(TSR__KERNEL_MM, tsr__isa_best());
  multiply(&args);
  args.writes[0] = parts.tensor;
  for (uint64_t first = 0; first < 512; first += 256) {
    args.reads[0].layout = tsr__layout_slice(x.tensor.layout, 0, first, 256);
    args.reads[1].layout = tsr__layout_slice(g.tensor.layout, 0, first, 256);
    if (first) args.reads[2] = parts.tensor;
    multiply(&args);
  }
  assert_memory_equal(parts.tensor.data, whole.tensor.data, whole.bytes);
  stored *all[] = {&x, &g, &whole, &parts};
  for (size_t i = 0; i < 4; i++) free_stored(all[i]);
}

/* Cases that are large enough for several tiles, blocks and threads, and end in odd ones. */
#define BIG A(3, 1, 70, 701)
static const kernel_case large_cases[] = {
    {K(ADD), R(BIG, BIG), W(BIG), N(1, 0.5)},
    {K(ADD), R(A(300, 701), A(701)), W(A(300, 701))},
    {K(TANH), R(BIG), W(BIG)},
    {K(GELU), R(BIG), W(BIG), N(1, 0)},
    {K(GELU_BACKWARD), R(BIG, BIG), W(BIG), N(1, 1)},
    {K(SILU_BACKWARD), R(BIG, BIG), W(BIG)},
    {K(SILU_GATE), R(BIG, BIG), W(BIG)},
    {K(SILU_GATE_BACKWARD), R(BIG, BIG, BIG), W(BIG, BIG)},
    {K(DROP), R(BIG), W(BIG), N(1, 0.3)},
    {K(DROPOUT), R(BIG), W(BIG, B(3, 1, 70, 701)), N(1, 0.3)},
    {K(DROPOUT_NOISE), W(BIG), N(1, 0.3)},
    {K(TO_COPY), R(BIG), W(F(3, 1, 70, 701))},
    {K(TO_COPY), R(BIG), W(F(210, 701))},
    {K(CAT), R(A(40, 1, 600), A(40, 1, 701)), W(A(40, 1, 1301)), N(1, -1)},
    {K(REPEAT), R(A(2, 3, 50, 65)), W(A(2, 6, 50, 65))},
    {K(SLICE_BACKWARD), R(A(300, 101)), W(A(300, 701)), N(1, 300)},
    {K(SUM), R(A(3, 200, 701)), W(A(701))},
    {K(SUM), R(A(3, 200, 701), A(701)), W(A(701))},
    {K(SUM), R(A(3, 200, 701)), W(A(3, 200, 1))},
    {K(MEAN_DIM), R(A(300, 701)), W(A(300, 1))},
    {K(SOFTMAX), R(A(100, 1201)), W(A(100, 1201))},
    {K(SOFTMAX_BACKWARD), R(A(100, 1201), A(100, 1201)), W(A(100, 1201))},
    {K(LOG_SOFTMAX), R(A(100, 1201)), W(A(100, 1201))},
    {K(LOG_SOFTMAX_BACKWARD), R(A(100, 701), A(100, 701)), W(A(100, 701))},
    {K(LAYER_NORM), R(A(300, 701), A(701), A(701)), W(A(300, 701), F(300, 1), F(300, 1)),
     N(1, 1e-5)},
    {K(LAYER_NORM_BACKWARD), R(A(300, 701), A(300, 701), F(300, 1), F(300, 1), A(701)),
     W(A(300, 701), A(701), A(701))},
    {K(LAYER_NORM_BACKWARD),
     R(A(300, 701), A(300, 701), F(300, 1), F(300, 1), A(701), A(300, 701), A(701), A(701)),
     W(A(300, 701), A(701), A(701))},
    {K(RMS_NORM), R(A(300, 701), A(701)), W(A(300, 701), F(300, 1)), N(1, 1e-5)},
    {K(RMS_NORM_BACKWARD), R(A(300, 701), A(300, 701), F(300, 1), A(701), A(300, 701), A(701)),
     W(A(300, 701), A(701))},
    {K(ROTATE), R(A(2, 3, 90, 70), A(2, 1, 90, 70), F(1, 90, 70), F(1, 90, 70)),
     W(A(2, 3, 90, 70), A(2, 1, 90, 70)), N(1, 1)},
    {K(LOSS), R(A(600, 301), {LABELS, S(600)}), W(FONE, F(600, 1), FONE), N(1, -100)},
    {K(LOSS_BACKWARD), R(A(600, 301), {LABELS, S(600)}, F(600, 1), {POSITIVE, {.rank = 0}}, FONE),
     W(A(600, 301)), N(2, -100, 3)},
    {K(EMBEDDING_ADD), R(A(4, 90, 701), {IDS, S(4, 90)}, A(9, 701)), W(A(9, 701))},
    {K(EMBEDDING_ADD), R(A(4, 90, 701), {IDS, S(4, 90)}), W(A(9, 701))},
    {K(ADAMW), R(A(90, 701), A(90, 701), A(90, 701), P(90, 701)),
     W(A(90, 701), A(90, 701), A(90, 701)), N(6, 0.99, 0.1, 0.99, 0.5, -1e-2, 1e-8)},
    {K(CROSS_ENTROPY), R(A(600, 301), {LABELS, S(600)}, {LABELS, S(2, 500)}, FONE),
     W(F(600, 301), FONE), N(1, -100)},
    {K(EMBEDDING), R(A(9, 701), {IDS, S(4, 90)}), W(A(4, 90, 701))},
    {K(EMBEDDING_BACKWARD), R(A(4, 90, 701), {IDS, S(4, 90)}), W(A(9, 701))},
    {K(FUSED_ADAMW), R(A(90, 701), A(90, 701), A(90, 701), P(90, 701), {WEIGHTS, {.rank = 0}}),
     W(A(90, 701), A(90, 701), A(90, 701), FONE), N(5, 1e-2, 0.9, 0.99, 1e-8, 0.1)},
    {K(ADDMM), R(A(2, 130, 300), A(300, 517), A(517)), W(A(2, 130, 517))},
    {K(ADDMM), R(A(1, 1, 301), A(301, 517), A(517)), W(A(1, 1, 517))},
    {K(MM), R(A(1, 301), A(170, 301)), W(A(1, 170)), .transposed = 2},
    {K(MM), R(A(270, 301), A(170, 301)), W(A(270, 170)), .transposed = 2},
    {K(MM), R(A(301, 70), A(301, 300), A(70, 300)), W(A(70, 300)), .transposed = 1},
    {K(BMM), R(A(2, 4, 70, 65), A(2, 2, 90, 65)), W(A(2, 4, 70, 90)), .transposed = 2},
    {K(BMM), R(A(2, 4, 90, 30), A(2, 4, 90, 65), A(2, 2, 30, 65)), W(A(2, 2, 30, 65)),
     .transposed = 1},
    {K(EFFICIENT), R(A(2, 3, 150, 40), A(2, 3, 150, 40), A(2, 3, 150, 40), A(2, 1, 150, 160)),
     W(A(2, 150, 120), F(2, 3, 160), I(1), {INTEGER, {.rank = 0}}), N(3, 0.2, 0.25, 0)},
    {K(EFFICIENT_BACKWARD),
     R(A(2, 3, 90, 40), A(2, 3, 90, 40), A(2, 3, 90, 40), A(2, 90, 120), A(2, 90, 120), F(2, 3, 96),
       I(1), {INTEGER, {.rank = 0}}, {ABSENT, {.rank = 0}}, F(2, 3, 90)),
     W(A(2, 3, 90, 40), A(2, 3, 90, 40), A(2, 3, 90, 40)), N(3, 0.2, 0, 1)},
    {K(FLASH), R(A(2, 4, 150, 36), A(2, 2, 150, 36), A(2, 2, 150, 36)),
     W(A(2, 150, 144), F(2, 4, 150), I(2), {INTEGER, {.rank = 0}}), N(4, 0.2, 0, 1, 70)},
    {K(FLASH), R(A(1, 4, 1, 36), A(1, 2, 150, 36), A(1, 2, 150, 36)), W(A(1, 1, 144), F(1, 4, 1)),
     N(5, 0.2, 0, 1, 0, 139)},
    {K(FLASH), R(A(1, 2, 65, 130), A(1, 1, 65, 130), A(1, 1, 65, 130)),
     W(A(1, 65, 260), F(1, 2, 65), I(2), {INTEGER, {.rank = 0}}), N(4, 0.2, 0.25, 1, 0)},
    {K(FLASH_BACKWARD),
     R(A(2, 4, 150, 36), A(2, 2, 150, 36), A(2, 2, 150, 36), A(2, 150, 144), A(2, 150, 144),
       F(2, 4, 150), I(2)),
     W(A(2, 4, 150, 36), A(2, 2, 150, 36), A(2, 2, 150, 36)), N(4, 0.2, 0, 1, 70)},
    {K(FLASH_BACKWARD),
     R(A(1, 2, 65, 130), A(1, 1, 65, 130), A(1, 1, 65, 130), A(1, 65, 260), A(1, 65, 260),
       F(1, 2, 65), I(2)),
     W(A(1, 2, 65, 130), A(1, 1, 65, 130), A(1, 1, 65, 130)),
     N(4, 0.2, 0.25, 1,
       0)}, /* Whole blocks of the width that they have in registers; and more sums than fit on the stack. */
    {K(FLASH), R(A(1, 2, 130, 64), A(1, 2, 130, 64), A(1, 2, 130, 64)),
     W(A(1, 130, 128), F(1, 2, 130), I(2), {INTEGER, {.rank = 0}}), N(4, 0.1, 0, 1, 0)},
    {K(FLASH_BACKWARD),
     R(A(1, 2, 130, 64), A(1, 2, 130, 64), A(1, 2, 130, 64), A(1, 130, 128), A(1, 130, 128),
       F(1, 2, 130), I(2)),
     W(A(1, 2, 130, 64), A(1, 2, 130, 64), A(1, 2, 130, 64)), N(4, 0.1, 0, 1, 0)},
    {K(FLASH_BACKWARD),
     R(A(1, 2, 260, 256), A(1, 1, 260, 256), A(1, 1, 260, 256), A(1, 260, 512), A(1, 260, 512),
       F(1, 2, 260), I(2)),
     W(A(1, 2, 260, 256), A(1, 1, 260, 256), A(1, 1, 260, 256)), N(4, 0.05, 0, 1, 70)},
    {K(CHUNK_SOFTMAX), R(A(2, 3, 70, 600)), W(F(2, 3, 70, 600), F(2, 3, 70)),
     N(4, 0.2, 520, 0.25, 0)},
    {K(CHUNK_SOFTMAX), R(A(1, 2, 65, 150)), W(F(1, 2, 65, 150), F(1, 2, 65)), N(4, 0.2, 40, 0, 33)},
    {K(CHUNK_WEIGHTS), R(A(2, 4, 70, 36), A(2, 2, 150, 36), F(2, 4, 70)), W(F(2, 4, 70, 150)),
     N(3, 0.2, 80, 0)},
    {K(CHUNK_WEIGHTS), R(A(1, 2, 64, 64), A(1, 2, 128, 64), F(1, 2, 64)), W(F(1, 2, 64, 128)),
     N(3, 0.1, 64, 20)},
    {K(CHUNK_BACKWARD), R(A(2, 4, 70, 36), A(2, 2, 150, 36), A(2, 4, 70, 36), F(2, 4, 70, 150)),
     W(F(2, 4, 70, 150), F(2, 4, 70, 150)), N(2, 0.2, 0.25)},
    {K(CHUNK_BACKWARD), R(A(1, 2, 64, 64), A(1, 2, 128, 64), A(1, 2, 64, 64), F(1, 2, 64, 128)),
     W(F(1, 2, 64, 128), F(1, 2, 64, 128)), N(2, 0.1, 0)},
};

/* The operands and results of a call. */
typedef struct computed {
  stored reads[TSR__KERNEL_READS], writes[TSR__KERNEL_WRITES];
} computed;

static void draw_case(const kernel_case *k, tsr__dtype real, bool is_scattered, computed *out) {
  *out = (computed){0};
  for (uint32_t i = 0; i < TSR__KERNEL_READS; i++)
    if (k->reads[i].what) out->reads[i] = store(&k->reads[i], real, is_scattered, 100 + i);
  for (uint32_t i = 0; i < TSR__KERNEL_WRITES; i++)
    if (k->writes[i].what) out->writes[i] = store(&k->writes[i], real, is_scattered, 200 + i);
}

/* Results on a copy of what was drawn: by the reference if `isa` is negative. */
static void compute(const kernel_case *k, const computed *drawn, int isa, unsigned threads,
                    computed *out) {
  tsr__thread_pool *pool = tsr__thread_pool_new(threads);
  tsr__kernel_args args = {.key = 77,
                           .scalar_count = k->scalar_count,
                           .is_transposed = {k->transposed & 1, k->transposed >> 1},
                           .pool = pool};
  static int64_t room[2][4096];
  for (uint32_t i = 0; i < 2 && k->kernel == TSR__KERNEL_EMBEDDING_ADD; i++)
    args.scratch[i] = (tsr__kernel_tensor){
        .data = room[i], .dtype = TSR__DTYPE_I64, .layout = tsr__layout_dense((tsr__shape)S(4096))};
  *out = *drawn;
  memcpy(args.scalars, k->scalars, sizeof args.scalars);
  for (uint32_t i = 0; i < TSR__KERNEL_READS; i++) args.reads[i] = drawn->reads[i].tensor;
  for (uint32_t i = 0; i < TSR__KERNEL_WRITES; i++) {
    stored *own = &out->writes[i];
    if (!own->bytes) continue;
    own->tensor.data = malloc(own->bytes);
    memcpy(own->tensor.data, drawn->writes[i].tensor.data, own->bytes);
    args.writes[i] = own->tensor;
  }
  (isa < 0 ? tsr__kernel_row_of(k->kernel)->reference
           : tsr__kernel_fast(k->kernel, (tsr__isa)isa))(&args);
  tsr__thread_pool_free(pool);
}

static void free_results(computed *c) {
  for (uint32_t i = 0; i < TSR__KERNEL_WRITES; i++) free(c->writes[i].tensor.data);
}

static void free_computed(computed *c) {
  for (uint32_t i = 0; i < TSR__KERNEL_READS; i++) free_stored(&c->reads[i]);
  for (uint32_t i = 0; i < TSR__KERNEL_WRITES; i++) free_stored(&c->writes[i]);
}

/* Close, relative to what numbers of this size are summed from; nothing else written. */
static void check_close(const kernel_case *k, const stored *got, const stored *want, int isa,
                        uint32_t result) {
  static const double precision[] = {
      [TSR__DTYPE_F32] = 0x1p-18, [TSR__DTYPE_BF16] = 0x1p-7, [TSR__DTYPE_F16] = 0x1p-10,
      [TSR__DTYPE_F64] = 1e-9,    [TSR__DTYPE_I64] = 0,       [TSR__DTYPE_BOOL] = 0};
  const char *name = tsr__kernel_row_of(k->kernel)->name;
  uint64_t size = tsr__dtype_bytes(got->tensor.dtype);
  double largest = 0;
  for (uint64_t i = 0; i < want->values.count; i++) {
    double y = fabs(read_element(&want->tensor, place_of(&want->tensor.layout, i)));
    if (isfinite(y)) largest = fmax(largest, y);
  }
  for (uint64_t i = 0; i < got->values.count; i++) {
    uint64_t at = place_of(&got->tensor.layout, i);
    double x = read_element(&got->tensor, at), y = read_element(&want->tensor, at);
    double allowed = precision[got->tensor.dtype] * (fabs(y) + 0.1 * largest);
    if (x != y && !(fabs(x - y) <= allowed))
      fail_msg("%s, %s, result %u, type %d, element %llu is %.9g and not %.9g", name,
               tsr__isa_name((tsr__isa)isa), result, (int)got->tensor.dtype, (unsigned long long)i,
               x, y);
    memcpy((char *)got->tensor.data + at * size, (char *)want->tensor.data + at * size, size);
  }
  if (got->bytes && memcmp(got->tensor.data, want->tensor.data, got->bytes) != 0)
    fail_msg("%s, %s, result %u: wrote elsewhere", name, tsr__isa_name((tsr__isa)isa), result);
}

/* A fast kernel of one set against the reference, and against itself with other numbers of threads. */
static void check_fast(const kernel_case *k, const computed *drawn, int isa, const computed *want) {
  computed one, more;
  compute(k, drawn, isa, 1, &one);
  for (unsigned threads = IS_SANITIZED ? 3 : 2; threads <= 3; threads++) {
    compute(k, drawn, isa, threads, &more);
    for (uint32_t w = 0; w < TSR__KERNEL_WRITES; w++)
      if (one.writes[w].bytes &&
          memcmp(one.writes[w].tensor.data, more.writes[w].tensor.data, one.writes[w].bytes) != 0)
        fail_msg("%s, %s: differs with %u threads", tsr__kernel_row_of(k->kernel)->name,
                 tsr__isa_name((tsr__isa)isa), threads);
    free_results(&more);
  }
  for (uint32_t w = 0; w < TSR__KERNEL_WRITES; w++)
    check_close(k, &one.writes[w], &want->writes[w], isa, w);
  free_results(&one);
}

/* With the first of the types. */
static void check_all_sets(const kernel_case *k, size_t count) {
  static const tsr__dtype types[] = {TSR__DTYPE_F32, TSR__DTYPE_BF16, TSR__DTYPE_F16};
  if (!tsr__kernel_fast(k->kernel, TSR__ISA_PLAIN)) return;
  assert_true(count <= sizeof types / sizeof *types);
  for (size_t t = 0; t < count; t++)
    for (int is_scattered = 0; is_scattered <= !k->is_dense; is_scattered++) {
      computed drawn, want;
      draw_case(k, types[t], is_scattered != 0, &drawn);
      compute(k, &drawn, -1, 1, &want);
      for (int isa = 0; isa <= (int)tsr__isa_best(); isa++) check_fast(k, &drawn, isa, &want);
      free_results(&want);
      free_computed(&drawn);
    }
}

static void fast_kernels(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_all_sets(&cases[i], 3);
  for (size_t i = 0; i < sizeof large_cases / sizeof *large_cases; i += IS_SANITIZED ? 2 : 1)
    check_all_sets(&large_cases[i], IS_SANITIZED ? 2 : 3); /* both 16-bit types take one path */
}

/* How far off a float is, in units of the last place of the exact number. */
static double ulps(float got, double want) {
  if (isnan(want)) return isnan(got) ? 0 : INFINITY;
  if ((double)got == (double)(float)want) return 0;
  if (fabs(want) < 0x1p-126) return fabs((double)got - want) / 0x1p-149;
  return fabs((double)got - want) / ldexp(1, (int)logb(want) - 23);
}

/* The errors that unit_math.h states, on floats of all sizes. */
static void functions(void **state) {
  double worst[3] = {0};
  (void)state;
  for (uint32_t i = 0; i <= 0x7f800001u; i += 10007) {
    for (int is_negative = 0; is_negative < 2; is_negative++) {
      float x = tsr__float_of_bits(i | (uint32_t)is_negative << 31);
      if (!(x < -87.3f)) worst[0] = fmax(worst[0], ulps(unit_exp(x), exp((double)x)));
      worst[1] = fmax(worst[1], ulps(unit_tanh(x), tanh((double)x)));
      worst[2] = fmax(worst[2], ulps(unit_erf(x), erf((double)x)));
    }
  }
  if (worst[0] > 1.1 || worst[1] > 2 || worst[2] > 2)
    fail_msg("exp %g, tanh %g, erf %g ulps", worst[0], worst[1], worst[2]);
  assert_true(unit_exp(-INFINITY) == 0 && unit_exp(INFINITY) == INFINITY && isnan(unit_exp(NAN)));
  assert_true(unit_exp(0) == 1 && unit_tanh(INFINITY) == 1 && unit_erf(-INFINITY) == -1);
  assert_true(isnan(unit_tanh(NAN)) && isnan(unit_erf(NAN)));
}

/* ---- what has no formula ---- */

static void dropout(void **state) {
  const operand x = A(40, 50), mask = B(40, 50);
  stored from = store(&x, TSR__DTYPE_F32, true, 1);
  stored to = store(&x, TSR__DTYPE_F32, false, 2), kept = store(&mask, TSR__DTYPE_F32, true, 3);
  stored again = store(&mask, TSR__DTYPE_F32, false, 4);
  stored plain = store(&x, TSR__DTYPE_F32, false, 6);
  tsr__kernel_args args = {.reads = {from.tensor},
                           .writes = {to.tensor, kept.tensor},
                           .scalars = {0.25},
                           .scalar_count = 1,
                           .key = 5};
  uint64_t count = 0, same = 0, total = to.values.count;
  (void)state;
  tsr__kernel_row_of(TSR__KERNEL_DROPOUT)->reference(&args);
  for (uint64_t i = 0; i < total; i++) {
    double keeps = read_element(&kept.tensor, place_of(&kept.tensor.layout, i));
    count += keeps != 0;
    assert_true(fabs(read_element(&to.tensor, i) - from.values.v[i] * keeps / 0.75) < 1e-6);
  }
  assert_in_range(count, total * 7 / 10, total * 8 / 10);
  /* Without a mask: what is dropped by the same key. */
  args.writes[0] = plain.tensor;
  args.writes[1] = (tsr__kernel_tensor){.data = NULL};
  tsr__kernel_row_of(TSR__KERNEL_DROP)->reference(&args);
  for (uint64_t i = 0; i < total; i++)
    assert_true(read_element(&plain.tensor, i) == read_element(&to.tensor, i));
  /* As noise, of 0 and 1 / 0.75. */
  args.reads[0] = (tsr__kernel_tensor){.data = NULL};
  tsr__kernel_row_of(TSR__KERNEL_DROPOUT_NOISE)->reference(&args);
  for (uint64_t i = 0; i < total; i++)
    assert_true(read_element(&plain.tensor, i) ==
                (float)(read_element(&kept.tensor, place_of(&kept.tensor.layout, i)) / 0.75));
  args.reads[0] = from.tensor;
  args.writes[0] = to.tensor;
  /* The layout does not matter, the key does. */
  args.writes[1] = again.tensor;
  tsr__kernel_row_of(TSR__KERNEL_DROPOUT)->reference(&args);
  for (uint64_t i = 0; i < total; i++)
    assert_true(read_element(&again.tensor, i) ==
                read_element(&kept.tensor, place_of(&kept.tensor.layout, i)));
  args.key = 6;
  tsr__kernel_row_of(TSR__KERNEL_DROPOUT)->reference(&args);
  for (uint64_t i = 0; i < total; i++)
    same += read_element(&again.tensor, i) ==
            read_element(&kept.tensor, place_of(&kept.tensor.layout, i));
  assert_in_range(same, total / 2, total * 3 / 4);
  const stored *all[] = {&from, &to, &kept, &again, &plain};
  for (size_t i = 0; i < 5; i++) free(all[i]->tensor.data), free(all[i]->values.v);
}

/* There and back: off by half a step, 1/254 of the row's largest, at most; zeros stay, and what is not finite is seen. */
static void eight_bits(void **state) {
  const uint64_t rows = 6, columns = 300;
  static const tsr__dtype types[] = {TSR__DTYPE_F32, TSR__DTYPE_BF16, TSR__DTYPE_F16};
  (void)state;
  for (size_t k = 0; k < 6; k++) {
    const operand x = A(2, 3, columns);
    stored from = store(&x, types[k / 2], k % 2, 1), to = store(&x, types[k / 2], false, 2);
    int8_t codes[6 * 304];
    tsr__kernel_tensor narrow = {.data = codes,
                                 .dtype = TSR__DTYPE_I8,
                                 .layout = tsr__layout_dense(TSR__SHAPE(rows, columns + 4))};
    for (uint64_t i = 0; i < columns; i++) {
      tsr__kernel_tensor one = from.tensor;
      one.layout = (tsr__layout){.offset = place_of(&from.tensor.layout, i)};
      tsr__put_number(&one, 0); /* the first row */
    }
    tsr__kernel_args there = {.reads = {from.tensor}, .writes = {narrow}};
    tsr__kernel_args back = {.reads = {narrow}, .writes = {to.tensor}};
    tsr__reference_quantise(&there);
    tsr__reference_dequantise(&back);
    for (uint64_t row = 0; row < rows; row++) {
      double most = 0, off = 0;
      for (uint64_t i = row * columns; i < (row + 1) * columns; i++) {
        double was = read_element(&from.tensor, place_of(&from.tensor.layout, i));
        if (fabs(was) > most) most = fabs(was);
        if (fabs(read_element(&to.tensor, i) - was) > off)
          off = fabs(read_element(&to.tensor, i) - was);
      }
      assert_true(row ? off > 0 && off <= most * (1 / 254. + 0x1p-8 * (k > 1)) : off == 0);
    }
    tsr__kernel_tensor last = from.tensor;
    last.layout = (tsr__layout){.offset = place_of(&from.tensor.layout, rows * columns - 1)};
    tsr__put_number(&last, INFINITY);
    tsr__reference_quantise(&there);
    tsr__reference_dequantise(&back);
    assert_true(isnan(read_element(&to.tensor, (rows - 1) * columns)));
    assert_true(!isnan(read_element(&to.tensor, (rows - 1) * columns - 1)));
    free(from.tensor.data), free(from.values.v), free(to.tensor.data), free(to.values.v);
  }
}

static void batches(void **state) {
  static const int64_t tokens[] = {5, 6, 7, 8, 9, 10};
  const operand ids = I(2, 3);
  stored to = store(&ids, TSR__DTYPE_F32, true, 1);
  tsr__kernel_args args = {.writes = {to.tensor}, .scalar_count = 1, .batch = tokens};
  (void)state;
  for (int round = 0; round < 2; round++) {
    tsr__kernel_row_of(TSR__KERNEL_BATCH)->reference(&args);
    for (uint64_t i = 0; i < 6; i++)
      assert_true(read_element(&to.tensor, place_of(&to.tensor.layout, i)) ==
                  (double)(round ? 1 : tokens[i]));
    args.batch = NULL; /* an attention mask */
  }
  free(to.tensor.data);
  free(to.values.v);
}

static void half_types(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 0x10000; i++) { /* there and back */
    float f = tsr__f16_to_float((uint16_t)i), b = tsr__bf16_to_float((uint16_t)i);
    if (isnan(f))
      assert_true(isnan(tsr__f16_to_float(tsr__f16_of_float(f))));
    else
      assert_int_equal(tsr__f16_of_float(f), i);
    if (isnan(b))
      assert_true(isnan(tsr__bf16_to_float(tsr__bf16_of_float(b))));
    else
      assert_int_equal(tsr__bf16_of_float(b), i);
  }
  assert_true(tsr__f16_to_float(0x3c00) == 1.0f && tsr__f16_to_float(1) == 0x1p-24f);
  assert_int_equal(tsr__f16_of_float(65519.0f), 0x7bff);
  assert_int_equal(tsr__f16_of_float(65520.0f), 0x7c00);
  assert_int_equal(tsr__f16_of_float(-0x1p-26f), 0x8000);
  assert_int_equal(tsr__f16_of_float(1 + 0x1p-11f), 0x3c00); /* ties to even */
  assert_int_equal(tsr__f16_of_float(1 + 0x3p-11f), 0x3c02);
  assert_int_equal(tsr__bf16_of_float(1 + 0x1p-8f), 0x3f80);
  assert_int_equal(tsr__bf16_of_float(1 + 0x3p-8f), 0x3f82);
}

static void random_numbers(void **state) {
  /* Known answers of Philox4x32-10, from the paper's authors: a zero counter and key. */
  uint32_t block[4];
  double one, many[1000], sum = 0, squares = 0;
  (void)state;
  tsr__random_block(0, 0, block);
  assert_int_equal(block[0], 0x6627e8d5);
  assert_int_equal(block[1], 0xe169c58d);
  assert_int_equal(block[2], 0xbc57ac4c);
  assert_int_equal(block[3], 0x9b00dbd8);
  tsr__random_uniform(9, 17, 1000, many);
  for (uint64_t i = 0; i < 1000; i += 7) { /* a number does not depend on how many are drawn */
    tsr__random_uniform(9, 17 + i, 1, &one);
    assert_true(one == many[i]);
  }
  tsr__random_normal(9, 3, 1000, many);
  for (uint64_t i = 0; i < 1000; i++) {
    if (i % 7 == 0) tsr__random_normal(9, 3 + i, 1, &one);
    if (i % 7 == 0) assert_true(one == many[i]);
    sum += many[i];
    squares += many[i] * many[i];
  }
  assert_true(fabs(sum / 1000) < 0.1 && fabs(squares / 1000 - 1) < 0.1);
  assert_true(tsr__random_key(1, 2) != tsr__random_key(2, 1));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_computes),
                                     cmocka_unit_test(formulas),
                                     cmocka_unit_test(norm_in_parts),
                                     cmocka_unit_test(rows_are_set),
                                     cmocka_unit_test(row_is_the_same_alone),
                                     cmocka_unit_test(in_place),
                                     cmocka_unit_test(dropout),
                                     cmocka_unit_test(eight_bits),
                                     cmocka_unit_test(batches),
                                     cmocka_unit_test(half_types),
                                     cmocka_unit_test(random_numbers),
                                     cmocka_unit_test(fast_products),
                                     cmocka_unit_test(fast_kernels),
                                     cmocka_unit_test(functions),
                                     cmocka_unit_test(mixed_products),
                                     cmocka_unit_test(panels)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
