/* ref_each.c - reference kernels that work element by element.
 *
 * A kernel is an expression of a, b and c, its operands' elements, of s, its numbers, and of `number`, its optional
 * additional one. Operands are repeated to the result's shape. Then neighbouring dimensions that are nested without
 * gaps in all of them are joined, so that most calls have one long row. Rows are processed in tiles: load operands,
 * compute, store results. */
#include <assert.h>
#include <math.h>
#include <stdbool.h>

#include "kernels/random.h"
#include "kernels/reference.h"

enum { OPERANDS = 3, RESULTS = 2 };

/* The tile being processed. */
typedef struct tile {
  const tsr__kernel_args *args;
  size_t count;
  uint64_t first; /* the index of its first element, in the order of the result's shape */
  double in[OPERANDS][TSR__TILE], out[RESULTS][TSR__TILE];
  double number; /* the number after those for absent operands; 1 if not given */
} tile;

typedef struct job {
  tsr__strided views[OPERANDS + RESULTS]; /* of operands, then of results; data NULL if absent */
  bool is_there[OPERANDS + RESULTS];
} job;

static void prepare(job *j, const tsr__kernel_args *args) {
  const tsr__strided model = tsr__strided_of(&args->writes[0]);
  for (uint32_t i = 0; i < OPERANDS + RESULTS; i++) {
    const tsr__kernel_tensor *tensor = i < OPERANDS ? &args->reads[i] : &args->writes[i - OPERANDS];
    j->is_there[i] = tensor->data != NULL;
    if (j->is_there[i]) j->views[i] = tsr__strided_repeated(tensor, &model);
  }
  tsr__strided_join(j->views, j->is_there, OPERANDS + RESULTS);
}

static void fill(double *numbers, double number) {
  for (size_t i = 0; i < TSR__TILE; i++) numbers[i] = number;
}

/* Fill those of the first `operands` operands that are absent with the call's numbers. */
static void fill_missing(tile *t, const job *j, uint32_t operands) {
  uint32_t next = 0;
  for (uint32_t i = 0; i < operands; i++)
    if (!j->is_there[i]) fill(t->in[i], t->args->scalars[next++]);
  t->number = t->args->scalar_count > next ? t->args->scalars[next] : 1;
}

static void run(const tsr__kernel_args *args, uint32_t operands, void (*compute)(tile *t)) {
  job j;
  tile t = {.args = args};
  prepare(&j, args);
  fill_missing(&t, &j, operands);
  const tsr__strided *model = &j.views[OPERANDS];
  uint64_t rows = tsr__strided_rows(model), columns = model->dim[3];
  for (uint64_t row = 0; row < rows; row++) {
    TSR__EACH_TILE(column, count, columns) {
      t.count = count;
      for (uint32_t i = 0; i < OPERANDS; i++)
        if (j.is_there[i])
          tsr__strided_load_row(&j.views[i], tsr__strided_row(&j.views[i], row), column, count,
                                t.in[i]);
      compute(&t);
      for (uint32_t i = 0; i < RESULTS; i++) {
        const tsr__strided *v = &j.views[OPERANDS + i];
        if (j.is_there[OPERANDS + i])
          tsr__strided_store_row(v, tsr__strided_row(v, row), column, count, t.out[i]);
      }
      t.first += count;
    }
  }
  assert(t.first == rows * columns);
}

#define EACH(name, operands, expression)                        \
  static void each_##name(tile *t) {                            \
    const double *s = t->args->scalars, number = t->number;     \
    (void)s;                                                    \
    (void)number;                                               \
    for (size_t i = 0; i < t->count; i++) {                     \
      double a = t->in[0][i], b = t->in[1][i], c = t->in[2][i]; \
      (void)b;                                                  \
      (void)c;                                                  \
      t->out[0][i] = (expression);                              \
    }                                                           \
  }                                                             \
  void tsr__reference_##name(const tsr__kernel_args *args) {    \
    run(args, (operands), each_##name);                         \
  }

static double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

/* Powers of 2 and 3 are products, as in PyTorch. */
static double power(double x, double exponent) {
  return exponent == 2 ? x * x : exponent == 3 ? x * x * x : pow(x, exponent);
}

static const double root_half = 0.70710678118654752440;  /* square root of 1 / 2 */
static const double root_2_pi = 0.79788456080286535588;  /* square root of 2 / pi */
static const double root_1_2pi = 0.39894228040143267794; /* 1 / square root of 2 pi */

static double gelu(double x, double is_tanh) {
  if (is_tanh == 0) return 0.5 * x * (1 + erf(x * root_half));
  return 0.5 * x * (1 + tanh(root_2_pi * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x, double is_tanh) {
  if (is_tanh == 0) return 0.5 * (1 + erf(x * root_half)) + x * root_1_2pi * exp(-0.5 * x * x);
  double y = tanh(root_2_pi * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + y) + 0.5 * x * (1 - y * y) * root_2_pi * (1 + 3 * 0.044715 * x * x);
}

EACH(add, 2, a + number * b)
EACH(mul, 2, number *a *b)
EACH(div, 2, a / b)
EACH(sub, 2, a - b)
EACH(neg, 1, -a)
EACH(pow, 1, power(a, s[0]))
EACH(at_most, 1, a > s[0] ? s[0] : a)
EACH(sqrt, 1, sqrt(a))
EACH(rsqrt, 1, 1 / sqrt(a))
EACH(reciprocal, 1, 1 / a)
EACH(tanh, 1, tanh(a))
EACH(tanh_backward, 2, a *(1 - b * b))
EACH(cos, 1, cos(a))
EACH(sin, 1, sin(a))
EACH(gelu, 1, gelu(a, s[0]))
EACH(gelu_backward, 2, a *gelu_slope(b, s[0]))
EACH(silu, 1, a *sigmoid(a))
EACH(silu_backward, 2, a *sigmoid(b) * (1 + b * (1 - sigmoid(b))))
EACH(silu_gate, 2, a *sigmoid(a) * b)
EACH(where, 3, a != 0 ? b : c)
EACH(ne, 2, a != b)
EACH(eq, 2, a == b)
EACH(and, 2, a != 0 && b != 0)
EACH(not, 1, a == 0)
EACH(is_neginf, 1, a == -INFINITY)
EACH(attends, 2, a <= b && (s[0] == 0 || a > b - s[0]))
EACH(dropout_backward, 2, a *b *s[0])
EACH(lerp, 2, a + s[0] * (b - a))
EACH(addcmul, 3, a + s[0] * b * c)
EACH(addcdiv, 3, a + s[0] * b / c)

static void each_silu_gate_backward(tile *t) {
  for (size_t i = 0; i < t->count; i++) {
    double g = t->in[0][i], gate = t->in[1][i], passing = t->in[2][i], y = sigmoid(gate);
    t->out[0][i] = g * passing * y * (1 + gate * (1 - y));
    t->out[1][i] = g * gate * y;
  }
}
void tsr__reference_silu_gate_backward(const tsr__kernel_args *args) {
  run(args, 3, each_silu_gate_backward);
}

static void each_drop(tile *t) {
  double chance = t->args->scalars[0], *out = t->out[0];
  tsr__random_uniform(t->args->key, t->first, t->count, out);
  for (size_t i = 0; i < t->count; i++) out[i] = out[i] >= chance ? t->in[0][i] / (1 - chance) : 0;
}
void tsr__reference_drop(const tsr__kernel_args *args) {
  assert(args->scalars[0] >= 0 && args->scalars[0] < 1);
  run(args, 1, each_drop);
}

static void each_dropout_noise(tile *t) {
  double chance = t->args->scalars[0], *out = t->out[0];
  tsr__random_uniform(t->args->key, t->first, t->count, out);
  for (size_t i = 0; i < t->count; i++) out[i] = out[i] >= chance ? 1 / (1 - chance) : 0;
}
void tsr__reference_dropout_noise(const tsr__kernel_args *args) {
  assert(args->scalars[0] >= 0 && args->scalars[0] < 1);
  run(args, 0, each_dropout_noise);
}

static void each_dropout(tile *t) {
  double chance = t->args->scalars[0], *keeps = t->out[1];
  tsr__random_uniform(t->args->key, t->first, t->count, keeps);
  for (size_t i = 0; i < t->count; i++) {
    keeps[i] = keeps[i] >= chance;
    t->out[0][i] = t->in[0][i] * keeps[i] / (1 - chance);
  }
}
void tsr__reference_dropout(const tsr__kernel_args *args) {
  assert(args->scalars[0] >= 0 && args->scalars[0] < 1);
  run(args, 1, each_dropout);
}
