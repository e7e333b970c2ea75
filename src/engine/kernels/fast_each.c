/* fast_each.c - fast element-by-element kernels, including casts and copies. Compiled for each instruction set
 * (unit.h).
 *
 * As in ref_each.c, a kernel is an expression of a, b and c, its operands' elements, of s, its numbers, and of
 * `number`; all in fp32. Rows are processed in tiles, and the tiles of all rows are split over the threads. Tiles
 * start at fixed places, so that no result depends on the split. */
#include "kernels/random.h"
#include "kernels/unit.h"
#include "kernels/unit_fast.h"
#include "kernels/unit_math.h"

enum { OPERANDS = 3, RESULTS = 2, VIEWS = OPERANDS + RESULTS };

/* The tile being processed. */
typedef struct tile {
  const tsr__kernel_args *args;
  size_t count;
  uint64_t first; /* the index of its first element, in the order of the result's shape */
  const float *in[OPERANDS];
  float *out[RESULTS];
  float s[TSR__KERNEL_SCALARS], number;
} tile;

typedef void compute_fn(const tile *t);

typedef struct job {
  const tsr__kernel_args *args;
  compute_fn *compute;
  uint32_t operands;
  tsr__strided views[VIEWS]; /* of operands, then of results; data NULL if absent */
  bool is_there[VIEWS];
  uint64_t tiles; /* in each row */
} job;

static void prepare(job *j) {
  const tsr__strided model = tsr__strided_of(&j->args->writes[0]);
  for (uint32_t i = 0; i < VIEWS; i++) {
    const tsr__kernel_tensor *tensor =
        i < OPERANDS ? &j->args->reads[i] : &j->args->writes[i - OPERANDS];
    j->is_there[i] = tensor->data && (i >= OPERANDS || i < j->operands);
    if (j->is_there[i]) j->views[i] = tsr__strided_repeated(tensor, &model);
  }
  tsr__strided_join(j->views, j->is_there, VIEWS);
  j->tiles = (j->views[OPERANDS].dim[3] + UNIT_TILE - 1) / UNIT_TILE;
}

/* Fill absent operands with the call's numbers. */
static void fill_missing(tile *t, const job *j, float room[][UNIT_TILE]) {
  uint32_t next = 0;
  for (uint32_t i = 0; i < j->operands; i++) {
    if (j->is_there[i]) continue;
    float number = (float)t->args->scalars[next++];
    for (size_t k = 0; k < UNIT_TILE; k++) room[i][k] = number;
    t->in[i] = room[i];
  }
  t->number = t->args->scalar_count > next ? (float)t->args->scalars[next] : 1;
  for (uint32_t i = 0; i < TSR__KERNEL_SCALARS; i++) t->s[i] = (float)t->args->scalars[i];
}

static void run_tiles(void *context, uint64_t first, uint64_t end) {
  const job *j = context;
  float room[VIEWS][UNIT_TILE];
  tile t = {.args = j->args};
  const tsr__strided *model = &j->views[OPERANDS];
  fill_missing(&t, j, room);
  for (uint64_t i = first; i < end; i++) {
    uint64_t row = i / j->tiles, column = i % j->tiles * UNIT_TILE;
    uint64_t at[VIEWS] = {0};
    t.count = unit_tile(model->dim[3] - column);
    t.first = row * model->dim[3] + column;
    for (uint32_t k = 0; k < VIEWS; k++) {
      if (!j->is_there[k]) continue;
      at[k] = tsr__strided_row(&j->views[k], row);
      if (k < OPERANDS)
        t.in[k] = unit_row(&j->views[k], at[k], column, t.count, room[k]);
      else
        t.out[k - OPERANDS] = unit_row_room(&j->views[k], at[k], column, room[k]);
    }
    j->compute(&t);
    for (uint32_t k = OPERANDS; k < VIEWS; k++)
      if (j->is_there[k]) unit_row_done(&j->views[k], at[k], column, t.count, room[k]);
  }
}

static void run(const tsr__kernel_args *args, uint32_t operands, compute_fn *compute,
                tsr__kernel_fn *otherwise) {
  job j = {.args = args, .compute = compute, .operands = operands};
  if (!unit_has_types(args)) {
    otherwise(args);
    return;
  }
  prepare(&j);
  uint64_t columns = j.views[OPERANDS].dim[3];
  unit_split(args->pool, tsr__strided_rows(&j.views[OPERANDS]) * j.tiles,
             columns < UNIT_TILE ? columns : UNIT_TILE, run_tiles, &j);
}

#define EACH(name, operands, expression)                           \
  static void each_##name(const tile *t) {                         \
    const float *s = t->s, number = t->number;                     \
    const float *in_a = t->in[0], *in_b = t->in[(operands) > 1];   \
    const float *in_c = t->in[(operands) > 2 ? 2 : 0];             \
    float *out = t->out[0];                                        \
    size_t count = t->count;                                       \
    (void)s;                                                       \
    (void)number;                                                  \
    TSR__EACH_TURN                                                 \
    for (size_t i = 0; i < count; i++) {                           \
      float a = in_a[i], b = in_b[i], c = in_c[i];                 \
      (void)b;                                                     \
      (void)c;                                                     \
      out[i] = (expression);                                       \
    }                                                              \
  }                                                                \
  void TSR__UNIT(tsr__fast_##name)(const tsr__kernel_args *args) { \
    run(args, (operands), each_##name, tsr__reference_##name);     \
  }

#define ROOT_HALF  0.70710678118654752440f /* square root of 1 / 2 */
#define ROOT_2_PI  0.79788456080286535588f /* square root of 2 / pi */
#define ROOT_1_2PI 0.39894228040143267794f /* 1 / square root of 2 pi */

static inline float exact_gelu(float x) {
  return 0.5f * x * (1.0f + unit_erf(x * ROOT_HALF));
}
static inline float exact_slope(float x) {
  return 0.5f * (1.0f + unit_erf(x * ROOT_HALF)) + x * ROOT_1_2PI * unit_exp(-0.5f * x * x);
}
static inline float tanh_gelu(float x) {
  return 0.5f * x * (1.0f + unit_tanh(ROOT_2_PI * (x + 0.044715f * x * x * x)));
}
static inline float tanh_slope(float x) {
  float y = unit_tanh(ROOT_2_PI * (x + 0.044715f * x * x * x));
  return 0.5f * (1.0f + y) +
         0.5f * x * (1.0f - y * y) * ROOT_2_PI * (1.0f + 3.0f * 0.044715f * x * x);
}

EACH(add, 2, a + number * b)
EACH(mul, 2, number *a *b)
EACH(div, 2, a / b)
EACH(sub, 2, a - b)
EACH(neg, 1, -a)
EACH(sqrt, 1, sqrtf(a))
EACH(rsqrt, 1, 1.0f / sqrtf(a))
EACH(reciprocal, 1, 1.0f / a)
EACH(tanh, 1, unit_tanh(a))
EACH(tanh_backward, 2, a *(1.0f - b * b))
EACH(silu, 1, a *unit_sigmoid(a))
EACH(silu_gate, 2, a *unit_sigmoid(a) * b)
EACH(where, 3, a != 0 ? b : c)
EACH(and, 2, (a != 0 && b != 0) ? 1.0f : 0.0f)
EACH(not, 1, a == 0 ? 1.0f : 0.0f)
EACH(dropout_backward, 2, a *b *s[0])
EACH(lerp, 2, a + s[0] * (b - a))
EACH(addcmul, 3, a + s[0] * b * c)
EACH(addcdiv, 3, a + s[0] * b / c)

static inline float silu_slope(float x) {
  float y = unit_sigmoid(x);
  return y * (1.0f + x * (1.0f - y));
}
EACH(silu_backward, 2, a *silu_slope(b))

/* ---- kernels with variants ---- */

#define VARIANT(name, expression)                   \
  static void variant_##name(const tile *t) {       \
    const float *in_a = t->in[0], *in_b = t->in[1]; \
    float *out = t->out[0];                         \
    size_t count = t->count;                        \
    TSR__EACH_TURN                                  \
    for (size_t i = 0; i < count; i++) {            \
      float a = in_a[i], b = in_b[i];               \
      (void)b;                                      \
      out[i] = (expression);                        \
    }                                               \
  }
#define VARIANT_OF_ONE(name, expression)      \
  static void variant_##name(const tile *t) { \
    const float *in_a = t->in[0];             \
    float *out = t->out[0];                   \
    size_t count = t->count;                  \
    TSR__EACH_TURN                            \
    for (size_t i = 0; i < count; i++) {      \
      float a = in_a[i];                      \
      out[i] = (expression);                  \
    }                                         \
  }

VARIANT_OF_ONE(square, a *a)
VARIANT_OF_ONE(cube, a *a *a)
VARIANT_OF_ONE(exact, exact_gelu(a))
VARIANT_OF_ONE(by_tanh, tanh_gelu(a))
VARIANT_OF_ONE(copy, a)
VARIANT(exact_backward, a *exact_slope(b))
VARIANT(by_tanh_backward, a *tanh_slope(b))

void TSR__UNIT(tsr__fast_pow)(const tsr__kernel_args *args) {
  if (args->scalars[0] != 2 && args->scalars[0] != 3)
    tsr__reference_pow(args);
  else
    run(args, 1, args->scalars[0] == 2 ? variant_square : variant_cube, tsr__reference_pow);
}

void TSR__UNIT(tsr__fast_gelu)(const tsr__kernel_args *args) {
  run(args, 1, args->scalars[0] == 0 ? variant_exact : variant_by_tanh, tsr__reference_gelu);
}

void TSR__UNIT(tsr__fast_gelu_backward)(const tsr__kernel_args *args) {
  run(args, 2, args->scalars[0] == 0 ? variant_exact_backward : variant_by_tanh_backward,
      tsr__reference_gelu_backward);
}

static void each_silu_gate_backward(const tile *t) {
  const float *g = t->in[0], *gate = t->in[1], *passing = t->in[2];
  float *to_gate = t->out[0], *to_passing = t->out[1];
  size_t count = t->count;
  TSR__EACH_TURN
  for (size_t i = 0; i < count; i++) {
    float x = gate[i], y = unit_sigmoid(x), own = g[i], other = passing[i];
    to_gate[i] = own * other * y * (1.0f + x * (1.0f - y));
    to_passing[i] = own * x * y;
  }
}

void TSR__UNIT(tsr__fast_silu_gate_backward)(const tsr__kernel_args *args) {
  run(args, 3, each_silu_gate_backward, tsr__reference_silu_gate_backward);
}

static void each_drop(const tile *t) {
  float factor = (float)(1 / (1 - t->args->scalars[0])), keeps[UNIT_TILE];
  const float *in = t->in[0];
  float *out = t->out[0];
  size_t count = t->count;
  unit_keeps(t->args->key, t->first, count, t->args->scalars[0], keeps);
  TSR__EACH_TURN
  for (size_t i = 0; i < count; i++) out[i] = in[i] * (keeps[i] * factor);
}

void TSR__UNIT(tsr__fast_drop)(const tsr__kernel_args *args) {
  assert(args->scalars[0] >= 0 && args->scalars[0] < 1);
  run(args, 1, each_drop, tsr__reference_drop);
}

static void each_dropout_noise(const tile *t) {
  float factor = (float)(1 / (1 - t->args->scalars[0])), *out = t->out[0];
  size_t count = t->count;
  unit_keeps(t->args->key, t->first, count, t->args->scalars[0], out);
  TSR__EACH_TURN
  for (size_t i = 0; i < count; i++) out[i] *= factor;
}

void TSR__UNIT(tsr__fast_dropout_noise)(const tsr__kernel_args *args) {
  assert(args->scalars[0] >= 0 && args->scalars[0] < 1);
  run(args, 0, each_dropout_noise, tsr__reference_dropout_noise);
}

static void each_dropout(const tile *t) {
  float factor = (float)(1 / (1 - t->args->scalars[0]));
  float *out = t->out[0], *keeps = t->out[1];
  const float *in = t->in[0];
  size_t count = t->count;
  unit_keeps(t->args->key, t->first, count, t->args->scalars[0], keeps);
  TSR__EACH_TURN
  for (size_t i = 0; i < count; i++) out[i] = in[i] * keeps[i] * factor;
}

void TSR__UNIT(tsr__fast_dropout)(const tsr__kernel_args *args) {
  assert(args->scalars[0] >= 0 && args->scalars[0] < 1);
  run(args, 1, each_dropout, tsr__reference_dropout);
}

/* ---- copies ---- */

/* Make a tensor's elements one row, if they are contiguous in the order of its shape. */
static bool flatten(tsr__kernel_tensor *tensor) {
  uint64_t count = tsr__shape_elements(tensor->layout.shape), offset = tensor->layout.offset;
  tsr__layout from_start = tensor->layout;
  from_start.offset = 0;
  if (!tsr__layout_is_dense(from_start)) return false;
  tensor->layout = tsr__layout_dense(TSR__SHAPE(count));
  tensor->layout.offset = offset;
  return true;
}

/* Whether the dimensions are equal; missing leading ones count as 1. */
static bool has_same_dims(const tsr__kernel_tensor *a, const tsr__kernel_tensor *b) {
  for (uint32_t i = 0; i < TSR__SHAPE_RANK; i++)
    if (tsr__shape_from_end(a->layout.shape, i) != tsr__shape_from_end(b->layout.shape, i))
      return false;
  return true;
}

/* Shapes may differ if the elements are contiguous. */
void TSR__UNIT(tsr__fast_copy)(const tsr__kernel_args *args) {
  tsr__kernel_args own = *args;
  if (!has_same_dims(&own.reads[0], &own.writes[0])) {
    tsr__layout other;
    tsr__shape shape = own.writes[0].layout.shape;
    if (tsr__layout_reshape(own.reads[0].layout, shape, &other)) {
      own.reads[0].layout = other;
    } else if (!flatten(&own.reads[0]) || !flatten(&own.writes[0])) {
      tsr__reference_copy(args);
      return;
    }
  }
  run(&own, 1, variant_copy, tsr__reference_copy);
}

/* A part of a tensor: `count` from `first` on, along a dimension counted from the last. */
static tsr__kernel_tensor part(tsr__kernel_tensor tensor, uint32_t back, uint64_t first,
                               uint64_t count) {
  uint32_t dim = tensor.layout.shape.rank - 1 - back;
  assert(back < tensor.layout.shape.rank);
  tensor.layout = tsr__layout_slice(tensor.layout, dim, first, count);
  return tensor;
}

static void copy_to(const tsr__kernel_args *args, tsr__kernel_tensor from, tsr__kernel_tensor to) {
  tsr__kernel_args copy = {.reads = {from}, .writes = {to}, .pool = args->pool};
  if (tsr__shape_elements(to.layout.shape)) TSR__UNIT(tsr__fast_copy)(&copy);
}

void TSR__UNIT(tsr__fast_cat)(const tsr__kernel_args *args) {
  uint32_t back = (uint32_t)(-1 - (int)args->scalars[0]);
  uint64_t first = 0;
  for (uint32_t i = 0; i < TSR__KERNEL_READS && args->reads[i].data; i++) {
    uint64_t count = tsr__shape_from_end(args->reads[i].layout.shape, back);
    copy_to(args, args->reads[i], part(args->writes[0], back, first, count));
    first += count;
  }
  assert(first == tsr__shape_from_end(args->writes[0].layout.shape, back));
}

void TSR__UNIT(tsr__fast_repeat)(const tsr__kernel_args *args) {
  uint64_t heads = tsr__shape_from_end(args->writes[0].layout.shape, 2);
  uint64_t from = tsr__shape_from_end(args->reads[0].layout.shape, 2);
  assert(args->writes[0].layout.shape.rank >= 3 && from && heads % from == 0);
  for (uint64_t head = 0; head < heads; head++)
    copy_to(args, part(args->reads[0], 2, head / (heads / from), 1),
            part(args->writes[0], 2, head, 1));
}

static void fill(const tsr__kernel_args *args, tsr__kernel_tensor to, double number) {
  tsr__kernel_args full = {
      .writes = {to}, .scalars = {number}, .scalar_count = 1, .pool = args->pool};
  if (!tsr__shape_elements(to.layout.shape)) return;
  run(&full, 1, variant_copy, tsr__reference_full);
}

void TSR__UNIT(tsr__fast_zeros)(const tsr__kernel_args *args) {
  fill(args, args->writes[0], 0);
}
void TSR__UNIT(tsr__fast_ones)(const tsr__kernel_args *args) {
  fill(args, args->writes[0], 1);
}
void TSR__UNIT(tsr__fast_full)(const tsr__kernel_args *args) {
  fill(args, args->writes[0], args->scalars[0]);
}

void TSR__UNIT(tsr__fast_slice_backward)(const tsr__kernel_args *args) {
  uint64_t first = (uint64_t)args->scalars[0];
  uint64_t count = tsr__shape_from_end(args->reads[0].layout.shape, 0), end = first + count;
  uint64_t all = tsr__shape_from_end(args->writes[0].layout.shape, 0);
  fill(args, part(args->writes[0], 0, 0, first), 0);
  copy_to(args, args->reads[0], part(args->writes[0], 0, first, count));
  fill(args, part(args->writes[0], 0, end, all - end), 0);
}
