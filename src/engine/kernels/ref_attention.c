/* ref_attention.c - reference kernels of attention.
 *
 * Let s = scale * q k' + bias, p = softmax of s over the columns that a row sees, and keep = 0 or 1 / (1 - dropout)
 * for each pair:
 *
 *   forward    out = (p keep) v          lse = the log-sum-exp of s, from which backward recomputes p
 *   backward   delta = sum of gradient * out, for each row
 *              ds = p (keep (gradient v') - delta)
 *              dq = scale ds k           dk = scale ds' q          dv = (p keep)' gradient
 *
 * No matrix of pairs is ever in memory: a row's pairs are computed in a tile on the stack, again each time they are
 * needed. Backward iterates over rows for dq and over columns for dk and dv, so that each result is one sum in a
 * fixed order.
 *
 * Row i sees columns up to i; with a window, those above i - window; without causality, all. Pairs of dropout are
 * numbered in the order (batch, heads, rows, columns). */
#include <assert.h>
#include <math.h>

#include "kernels/random.h"
#include "kernels/reference.h"

typedef struct attention {
  tsr__strided q, k, v, bias; /* (batch, heads, rows, width) */
  bool has_bias, is_causal;
  double scale, dropout;
  uint64_t window, key; /* key: of dropout */
  uint64_t first_row;   /* the position of row 0 for causality */
} attention;

/* The operands of backward, for each row: the gradient, the log-sum-exp, and delta. */
typedef struct gradient {
  tsr__strided result, lse, out, sums;
  bool has_sums;
} gradient;

typedef struct range {
  uint64_t first, end;
} range;

/* The columns that row `i` sees. */
static range seen_by(const attention *a, uint64_t i) {
  range seen = {0, a->k.dim[2]};
  uint64_t row = i + a->first_row;
  if (a->is_causal && row + 1 < seen.end) seen.end = row + 1;
  if (a->window && row + 1 > a->window) seen.first = row + 1 - a->window;
  if (seen.first > seen.end) seen.first = seen.end;
  return seen;
}

static uint64_t kv_head(const attention *a, uint64_t head) {
  assert(a->k.dim[1] && a->q.dim[1] % a->k.dim[1] == 0);
  return head / (a->q.dim[1] / a->k.dim[1]);
}

/* Dot products of one row with `count` rows of another matrix, from `first` on. */
static void dots(const tsr__strided *x, uint64_t x_at, const tsr__strided *y, uint64_t y_at,
                 uint64_t first, size_t count, double *out) {
  double left[TSR__TILE], right[TSR__TILE];
  for (size_t i = 0; i < count; i++) out[i] = 0;
  TSR__EACH_TILE(column, width, x->dim[3]) {
    tsr__strided_load_row(x, x_at, column, width, left);
    for (size_t i = 0; i < count; i++) {
      tsr__strided_load_row(y, y_at + (first + i) * y->stride[2], column, width, right);
      double sum = 0;
      for (size_t j = 0; j < width; j++) sum += left[j] * right[j];
      out[i] += sum;
    }
  }
}

/* Scores of row `i` with some of the columns that it sees. */
static void scores_of(const attention *a, uint64_t b, uint64_t h, uint64_t i, uint64_t first,
                      size_t count, double *out) {
  double bias[TSR__TILE];
  dots(&a->q, tsr__strided_at(&a->q, b, h, i, 0), &a->k,
       tsr__strided_at(&a->k, b, kv_head(a, h), 0, 0), first, count, out);
  if (a->has_bias)
    tsr__strided_load_row(&a->bias, tsr__strided_at(&a->bias, b, h, i, 0), first, count, bias);
  for (size_t j = 0; j < count; j++) out[j] = out[j] * a->scale + (a->has_bias ? bias[j] : 0);
}

/* The dropout factors of some pairs of row `i`: 0 or 1 / (1 - dropout). */
static void keeps_of(const attention *a, uint64_t b, uint64_t h, uint64_t i, uint64_t first,
                     size_t count, double *out) {
  uint64_t row = (b * a->q.dim[1] + h) * a->q.dim[2] + i;
  if (a->dropout == 0) {
    for (size_t j = 0; j < count; j++) out[j] = 1;
    return;
  }
  assert(a->dropout > 0 && a->dropout < 1);
  tsr__random_uniform(a->key, row * a->k.dim[2] + first, count, out);
  for (size_t j = 0; j < count; j++) out[j] = out[j] >= a->dropout ? 1 / (1 - a->dropout) : 0;
}

/* Iterate over tiles of columns in a range. */
#define EACH_COLUMN_TILE(column, count, from)                                             \
  for (uint64_t column = (from).first, count = tsr__tile_size((from).end - (from).first); \
       column < (from).end; column += count, count = tsr__tile_size((from).end - column))

/* ---- forward ---- */

/* The log-sum-exp of a row's scores; infinite for a row that sees nothing, so that all its weights become 0. */
static double log_sum_of(const attention *a, uint64_t b, uint64_t h, uint64_t i) {
  double numbers[TSR__TILE], largest = -INFINITY, sum = 0;
  range seen = seen_by(a, i);
  EACH_COLUMN_TILE(column, count, seen) {
    double before = largest;
    scores_of(a, b, h, i, column, count, numbers);
    for (size_t j = 0; j < count; j++) largest = fmax(largest, numbers[j]);
    if (largest == -INFINITY) continue;
    sum *= exp(before - largest);
    for (size_t j = 0; j < count; j++) sum += exp(numbers[j] - largest);
  }
  return sum > 0 || isnan(sum) ? largest + log(sum) : INFINITY;
}

static void attend_row(const attention *a, const tsr__strided *to, uint64_t b, uint64_t h,
                       uint64_t i, double lse) {
  double p[TSR__TILE], keeps[TSR__TILE], value[TSR__TILE];
  range seen = seen_by(a, i);
  TSR__EACH_TILE(first, width, to->dim[3]) {
    double sums[TSR__TILE] = {0};
    EACH_COLUMN_TILE(column, count, seen) {
      scores_of(a, b, h, i, column, count, p);
      keeps_of(a, b, h, i, column, count, keeps);
      for (size_t j = 0; j < count; j++) {
        double weight = exp(p[j] - lse) * keeps[j];
        tsr__strided_load_row(&a->v, tsr__strided_at(&a->v, b, kv_head(a, h), column + j, 0), first,
                              width, value);
        for (size_t w = 0; w < width; w++) sums[w] += weight * value[w];
      }
    }
    tsr__strided_store_row(to, tsr__strided_at(to, b, h, i, 0), first, width, sums);
  }
}

static attention attention_of(const tsr__kernel_args *args) {
  return (attention){.q = tsr__strided_of(&args->reads[0]),
                     .k = tsr__strided_of(&args->reads[1]),
                     .v = tsr__strided_of(&args->reads[2]),
                     .scale = args->scalars[0],
                     .dropout = args->scalars[1],
                     .is_causal = args->scalars[2] != 0,
                     .key = args->key};
}

/* Set what is added to scores, for all batches, heads and rows; its rows may be longer than necessary. */
static void add_bias(attention *a, const tsr__kernel_tensor *bias) {
  if (!bias->data) return;
  tsr__strided model = a->q;
  model.dim[3] = bias->layout.shape.dim[bias->layout.shape.rank - 1];
  assert(model.dim[3] >= a->k.dim[2]);
  a->bias = tsr__strided_repeated(bias, &model);
  a->has_bias = true;
}

tsr__strided tsr__strided_by_head(const tsr__kernel_tensor *tensor, uint64_t heads) {
  return tsr__strided_with(tensor, tsr__layout_heads(tensor->layout, heads));
}

/* Compute results and, if requested, log-sum-exps; the rest of a longer row of these is infinite. */
static void attend(const attention *a, const tsr__kernel_args *args) {
  bool has_lse = args->writes[1].data != NULL;
  tsr__strided to = tsr__strided_by_head(&args->writes[0], a->q.dim[1]), lse = {.data = NULL};
  if (has_lse) lse = tsr__strided_of(&args->writes[1]);
  uint64_t count = has_lse ? lse.dim[3] : a->q.dim[2];
  for (uint64_t b = 0; b < a->q.dim[0]; b++)
    for (uint64_t h = 0; h < a->q.dim[1]; h++)
      for (uint64_t i = 0; i < count; i++) {
        bool is_row = i < a->q.dim[2];
        double log_sum = is_row ? log_sum_of(a, b, h, i) : INFINITY;
        if (is_row) attend_row(a, &to, b, h, i, log_sum);
        if (has_lse) tsr__strided_put(&lse, tsr__strided_at(&lse, 0, b, h, i), log_sum);
      }
}

void tsr__put_key(const tsr__kernel_tensor *tensor, uint64_t key) {
  tsr__strided v = tsr__strided_of(tensor);
  assert(v.dtype == TSR__DTYPE_I64);
  for (uint64_t i = 0; i < v.dim[3]; i++)
    ((int64_t *)v.data)[v.offset + i * v.stride[3]] = i ? 0 : (int64_t)key;
}

uint64_t tsr__get_key(const tsr__kernel_tensor *tensor) {
  tsr__strided v = tsr__strided_of(tensor);
  assert(v.dtype == TSR__DTYPE_I64);
  return (uint64_t)((const int64_t *)v.data)[v.offset];
}

void tsr__reference_efficient(const tsr__kernel_args *args) {
  attention a = attention_of(args);
  add_bias(&a, &args->reads[3]);
  attend(&a, args);
  tsr__put_key(&args->writes[2], args->key);
  tsr__put_key(&args->writes[3], 0);
}

void tsr__reference_flash(const tsr__kernel_args *args) {
  attention a = attention_of(args);
  a.window = (uint64_t)args->scalars[3];
  a.first_row = (uint64_t)args->scalars[4];
  attend(&a, args);
  if (args->writes[2].data) tsr__put_key(&args->writes[2], args->key);
  if (args->writes[3].data) tsr__put_key(&args->writes[3], 0);
}

/* ---- backward ---- */

static double delta_of(const gradient *g, uint64_t b, uint64_t h, uint64_t i) {
  double sum;
  if (g->has_sums) return tsr__strided_get(&g->sums, tsr__strided_at(&g->sums, 0, b, h, i));
  dots(&g->out, tsr__strided_at(&g->out, b, h, i, 0), &g->result,
       tsr__strided_at(&g->result, b, h, i, 0), 0, 1, &sum);
  return sum;
}

/* For some pairs of row `i`: ds, and p keep. */
static void pairs_of(const attention *a, const gradient *g, const uint64_t at[3], uint64_t first,
                     size_t count, double *ds, double *weights) {
  double keeps[TSR__TILE],
      lse = tsr__strided_get(&g->lse, tsr__strided_at(&g->lse, 0, at[0], at[1], at[2]));
  double delta = delta_of(g, at[0], at[1], at[2]);
  scores_of(a, at[0], at[1], at[2], first, count, weights);
  keeps_of(a, at[0], at[1], at[2], first, count, keeps);
  dots(&g->out, tsr__strided_at(&g->out, at[0], at[1], at[2], 0), &a->v,
       tsr__strided_at(&a->v, at[0], kv_head(a, at[1]), 0, 0), first, count, ds);
  for (size_t j = 0; j < count; j++) {
    double p = exp(weights[j] - lse);
    ds[j] = p * (keeps[j] * ds[j] - delta);
    weights[j] = p * keeps[j];
  }
}

static void add_scaled(double *sums, double factor, const tsr__strided *v, uint64_t at,
                       uint64_t first, size_t count) {
  double numbers[TSR__TILE];
  tsr__strided_load_row(v, at, first, count, numbers);
  for (size_t i = 0; i < count; i++) sums[i] += factor * numbers[i];
}

static void queries_back(const attention *a, const gradient *g, const tsr__strided *to, uint64_t b,
                         uint64_t h) {
  double ds[TSR__TILE], weights[TSR__TILE];
  for (uint64_t i = 0; i < a->q.dim[2]; i++) {
    const uint64_t at[3] = {b, h, i};
    range seen = seen_by(a, i);
    TSR__EACH_TILE(first, width, to->dim[3]) {
      double sums[TSR__TILE] = {0};
      EACH_COLUMN_TILE(column, count, seen) {
        pairs_of(a, g, at, column, count, ds, weights);
        for (size_t j = 0; j < count; j++)
          add_scaled(sums, a->scale * ds[j], &a->k,
                     tsr__strided_at(&a->k, b, kv_head(a, h), column + j, 0), first, width);
      }
      tsr__strided_store_row(to, tsr__strided_at(to, b, h, i, 0), first, width, sums);
    }
  }
}

/* Compute the gradient of one key or value, from all rows of all heads that share it. */
static void column_back(const attention *a, const gradient *g, const tsr__strided *to, uint64_t b,
                        uint64_t h, uint64_t j, bool is_value) {
  uint64_t each = a->q.dim[1] / a->k.dim[1];
  const tsr__strided *from = is_value ? &g->out : &a->q;
  double ds, weight;
  TSR__EACH_TILE(first, width, to->dim[3]) {
    double sums[TSR__TILE] = {0};
    for (uint64_t head = h * each; head < (h + 1) * each; head++)
      for (uint64_t i = 0; i < a->q.dim[2]; i++) {
        const uint64_t at[3] = {b, head, i};
        range seen = seen_by(a, i);
        if (j < seen.first || j >= seen.end) continue;
        pairs_of(a, g, at, j, 1, &ds, &weight);
        add_scaled(sums, is_value ? weight : a->scale * ds, from,
                   tsr__strided_at(from, b, head, i, 0), first, width);
      }
    tsr__strided_store_row(to, tsr__strided_at(to, b, h, j, 0), first, width, sums);
  }
}

static void attend_back(const attention *a, const gradient *g, const tsr__kernel_args *args) {
  for (uint32_t w = 0; w < 3; w++) {
    if (!args->writes[w].data) continue;
    tsr__strided to = tsr__strided_of(&args->writes[w]);
    for (uint64_t b = 0; b < to.dim[0]; b++)
      for (uint64_t h = 0; h < to.dim[1]; h++)
        if (w == 0)
          queries_back(a, g, &to, b, h);
        else
          for (uint64_t j = 0; j < to.dim[2]; j++) column_back(a, g, &to, b, h, j, w == 2);
  }
}

static gradient gradient_of(const attention *a, const tsr__kernel_args *args) {
  uint64_t heads = a->q.dim[1];
  return (gradient){.out = tsr__strided_by_head(&args->reads[3], heads),
                    .result = tsr__strided_by_head(&args->reads[4], heads),
                    .lse = tsr__strided_of(&args->reads[5])};
}

void tsr__reference_efficient_backward(const tsr__kernel_args *args) {
  attention a = attention_of(args);
  gradient g = gradient_of(&a, args);
  a.key = tsr__get_key(&args->reads[6]);
  add_bias(&a, &args->reads[8]);
  g.has_sums = args->reads[9].data != NULL;
  if (g.has_sums) g.sums = tsr__strided_of(&args->reads[9]);
  attend_back(&a, &g, args);
}

void tsr__reference_flash_backward(const tsr__kernel_args *args) {
  attention a = attention_of(args);
  gradient g = gradient_of(&a, args);
  if (args->reads[6].data) a.key = tsr__get_key(&args->reads[6]);
  a.window = (uint64_t)args->scalars[3];
  attend_back(&a, &g, args);
}

/* ---- chunked: some rows at a time; other kernels compute the products with keys and values ---- */

/* Causality and dropout of a chunk: `q` and `k` have sizes, and possibly data. */
static attention chunk_of(const tsr__kernel_args *args, const tsr__strided *scores,
                          uint32_t first_row, uint32_t dropout, uint32_t window) {
  attention a = {.is_causal = true, .key = args->key, .scale = args->scalars[0]};
  a.q.dim[0] = scores->dim[0];
  a.q.dim[1] = scores->dim[1];
  a.q.dim[2] = scores->dim[2];
  a.k.dim[1] = scores->dim[1];
  a.k.dim[2] = scores->dim[3];
  if (first_row) a.first_row = (uint64_t)args->scalars[first_row];
  if (dropout) a.dropout = args->scalars[dropout];
  if (window) a.window = (uint64_t)args->scalars[window];
  return a;
}

static double scaled_log_sum(const attention *a, const tsr__strided *scores, uint64_t at,
                             range seen) {
  double numbers[TSR__TILE], largest = -INFINITY, sum = 0;
  EACH_COLUMN_TILE(column, count, seen) {
    tsr__strided_load_row(scores, at, column, count, numbers);
    for (size_t j = 0; j < count; j++) largest = fmax(largest, numbers[j] * a->scale);
  }
  EACH_COLUMN_TILE(column, count, seen) {
    tsr__strided_load_row(scores, at, column, count, numbers);
    for (size_t j = 0; j < count; j++) sum += exp(numbers[j] * a->scale - largest);
  }
  return largest + log(sum);
}

/* Set numbers to zero except those that a row sees. */
static void hide(range seen, uint64_t first, size_t count, double *numbers) {
  for (size_t j = 0; j < count; j++)
    if (first + j < seen.first || first + j >= seen.end) numbers[j] = 0;
}

void tsr__reference_chunk_softmax(const tsr__kernel_args *args) {
  tsr__strided scores = tsr__strided_of(&args->reads[0]), to = tsr__strided_of(&args->writes[0]);
  tsr__strided lse = tsr__strided_of(&args->writes[1]);
  attention a = chunk_of(args, &scores, 1, 2, 3);
  double numbers[TSR__TILE], keeps[TSR__TILE];
  for (uint64_t row = 0; row < tsr__strided_rows(&scores); row++) {
    uint64_t i = row % scores.dim[2], bh = row / scores.dim[2], h = bh % scores.dim[1];
    uint64_t b = bh / scores.dim[1], at = tsr__strided_row(&scores, row);
    range seen = seen_by(&a, i);
    double log_sum = scaled_log_sum(&a, &scores, at, seen);
    TSR__EACH_TILE(column, count, scores.dim[3]) {
      tsr__strided_load_row(&scores, at, column, count, numbers);
      keeps_of(&a, b, h, i, column, count, keeps);
      for (size_t j = 0; j < count; j++)
        numbers[j] = exp(numbers[j] * a.scale - log_sum) * keeps[j];
      hide(seen, column, count, numbers);
      tsr__strided_store_row(&to, tsr__strided_row(&to, row), column, count, numbers);
    }
    tsr__strided_put(&lse, tsr__strided_at(&lse, 0, b, h, i), log_sum);
  }
}

void tsr__reference_chunk_weights(const tsr__kernel_args *args) {
  tsr__strided lse = tsr__strided_of(&args->reads[2]), to = tsr__strided_of(&args->writes[0]);
  attention a = chunk_of(args, &to, 1, 0, 2);
  double numbers[TSR__TILE];
  a.q = tsr__strided_of(&args->reads[0]);
  a.k = tsr__strided_of(&args->reads[1]);
  for (uint64_t row = 0; row < tsr__strided_rows(&to); row++) {
    uint64_t i = row % to.dim[2], bh = row / to.dim[2], h = bh % to.dim[1], b = bh / to.dim[1];
    double log_sum = tsr__strided_get(&lse, tsr__strided_at(&lse, 0, b, h, i));
    TSR__EACH_TILE(column, count, to.dim[3]) {
      scores_of(&a, b, h, i, column, count, numbers);
      for (size_t j = 0; j < count; j++) numbers[j] = exp(numbers[j] - log_sum);
      hide(seen_by(&a, i), column, count, numbers);
      tsr__strided_store_row(&to, tsr__strided_row(&to, row), column, count, numbers);
    }
  }
}

void tsr__reference_chunk_backward(const tsr__kernel_args *args) {
  tsr__strided softmax = tsr__strided_of(&args->reads[3]), to = tsr__strided_of(&args->writes[0]);
  tsr__strided dropped = tsr__strided_of(&args->writes[1]);
  attention a = chunk_of(args, &softmax, 0, 1, 0);
  const gradient g = {.out = tsr__strided_of(&args->reads[0]),
                      .result = tsr__strided_of(&args->reads[2])};
  double p[TSR__TILE], keeps[TSR__TILE], ds[TSR__TILE];
  a.v = tsr__strided_of(&args->reads[1]);
  a.k.dim[1] = a.v.dim[1];
  for (uint64_t row = 0; row < tsr__strided_rows(&to); row++) {
    uint64_t i = row % to.dim[2], bh = row / to.dim[2], h = bh % to.dim[1], b = bh / to.dim[1];
    double delta = delta_of(&g, b, h, i);
    TSR__EACH_TILE(column, count, to.dim[3]) {
      tsr__strided_load_row(&softmax, tsr__strided_row(&softmax, row), column, count, p);
      keeps_of(&a, b, h, i, column, count, keeps);
      dots(&g.out, tsr__strided_at(&g.out, b, h, i, 0), &a.v,
           tsr__strided_at(&a.v, b, kv_head(&a, h), 0, 0), column, count, ds);
      for (size_t j = 0; j < count; j++) {
        ds[j] = a.scale * p[j] * (keeps[j] * ds[j] - delta);
        p[j] *= keeps[j];
      }
      tsr__strided_store_row(&to, tsr__strided_row(&to, row), column, count, ds);
      tsr__strided_store_row(&dropped, tsr__strided_row(&dropped, row), column, count, p);
    }
  }
}
