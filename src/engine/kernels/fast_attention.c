/* fast_attention.c - fast kernels of attention: the formulas are in ref_attention.c. Compiled for each instruction
 * set (unit.h).
 *
 * Rows and columns are processed in blocks of 64, which are copied to the stack as floats, with widths padded with
 * zeros:
 *
 *   forward    for each block of rows: for each block of columns that they see: compute the scores, and their
 *              exponentials relative to the largest score so far; add the weighted values to the result, which
 *              is scaled down when a larger score appears
 *   backward   for each block of columns: for each block of rows that sees it: compute the weights and the
 *              gradients of scores again; add them to the gradients of keys and values, which stay on the
 *              stack, and to that of the queries, in place. If the latter is not fp32, its sums are on the stack if
 *              there is room; otherwise it takes a second pass, over blocks of rows.
 *
 * A task computes one head of keys, so that each sum has a fixed order. */
#include "kernels/unit_fast.h"
#include "kernels/unit_math.h"

enum {
  SIDE = 64,                      /* rows or columns of a block */
  WIDTH = 256,                    /* the widest head */
  QUERY_SUMS = 128 << 10,         /* floats: 1,024 rows of two heads of 64 */
  STEP = 2 * TSR__LANES,          /* widths are padded to a multiple of this */
  ROWS = TSR__LANES == 16 ? 8 : 4 /* rows of a product at a time, as many as registers allow */
};

/* (SIDE, width) or (width, SIDE) or (SIDE, SIDE). */
typedef float block[SIDE * WIDTH];
typedef float square[SIDE * SIDE];

typedef struct attention {
  tsr__strided q, k, v, bias, to, lse; /* (batch, heads, rows, width) */
  bool has_bias, is_causal, has_sums;
  float scale;
  double dropout;
  uint64_t window, key;
  uint64_t first_row; /* the position of row 0 for causality */
  size_t width;       /* padded */
  /* Only for backward. */
  tsr__strided out, result, sums, dq, dk, dv;
  bool wants[3], adds_queries;
} attention;

/* Some rows or columns of one head. */
typedef struct range {
  uint64_t batch, head, first;
  size_t count;
} range;

/* ---- blocks ---- */

/* Compute c (rows, columns) += a b, or = a b; element (i, k) of a is a[i * down + k * across]. `rows` is a multiple
 * of ROWS, `columns` of STEP; c has room for both. */
static inline void multiply(size_t rows, size_t columns, size_t depth, const float *a, size_t down,
                            size_t across, const float *b, size_t b_pitch, float *c, size_t c_pitch,
                            bool adds) {
  for (size_t i = 0; i < rows; i += ROWS)
    for (size_t j = 0; j < columns; j += STEP) {
      lanes own[ROWS][2];
#pragma GCC unroll 8
      for (size_t r = 0; r < ROWS; r++)
        for (size_t s = 0; s < 2; s++)
          own[r][s] = adds ? lanes_load(c + (i + r) * c_pitch + j + s * TSR__LANES) : lanes_of(0);
      for (size_t k = 0; k < depth; k++) {
        lanes left = lanes_load(b + k * b_pitch + j);
        lanes right = lanes_load(b + k * b_pitch + j + TSR__LANES);
#pragma GCC unroll 8
        for (size_t r = 0; r < ROWS; r++) {
          lanes each = lanes_of(a[(i + r) * down + k * across]);
          own[r][0] += each * left;
          own[r][1] += each * right;
        }
      }
#pragma GCC unroll 8
      for (size_t r = 0; r < ROWS; r++)
        for (size_t s = 0; s < 2; s++)
          lanes_store(c + (i + r) * c_pitch + j + s * TSR__LANES, own[r][s]);
    }
}

/* Some rows of floats, `pitch` apart, in the tensor or in a block. */
typedef struct rows_at {
  const float *data;
  size_t pitch;
} rows_at;

/* Load rows of a tensor times `scale`, padded with zeros to SIDE rows. */
static rows_at load_rows(const tsr__strided *v, const range *r, size_t width, float scale,
                         float *out) {
  size_t own = (size_t)v->dim[3];
  for (size_t i = 0; i < r->count; i++) {
    float *row = out + i * width;
    unit_load(v, tsr__strided_at(v, r->batch, r->head, r->first + i, 0), v->stride[3], own, row);
    for (size_t n = 0; scale != 1 && n < own; n++) row[n] *= scale;
    for (size_t n = own; n < width; n++) row[n] = 0;
  }
  memset(out + r->count * width, 0, (SIDE - r->count) * width * sizeof *out);
  return (rows_at){out, width};
}

/* Get rows of a tensor, without a copy if they are floats that need no padding. */
static rows_at find_rows(const tsr__strided *v, const range *r, size_t width, float *room) {
  if (v->dtype == TSR__DTYPE_F32 && v->stride[3] == 1 && v->dim[3] == width && r->count == SIDE)
    return (rows_at){(const float *)v->data + tsr__strided_at(v, r->batch, r->head, r->first, 0),
                     (size_t)v->stride[2]};
  return load_rows(v, r, width, 1, room);
}

static void transpose(rows_at rows, size_t width, float *out) {
  for (size_t n = 0; n < width; n += TSR__LANES)
    for (size_t i = 0; i < SIDE; i += TSR__LANES) {
      lanes x[TSR__LANES];
#pragma GCC unroll 16
      for (size_t k = 0; k < TSR__LANES; k++)
        x[k] = lanes_load(rows.data + (i + k) * rows.pitch + n);
      lanes_transpose(x);
#pragma GCC unroll 16
      for (size_t k = 0; k < TSR__LANES; k++) lanes_store(out + (n + k) * SIDE + i, x[k]);
    }
}

static void store_rows(const tsr__strided *v, const range *r, size_t width, const float *rows) {
  for (size_t i = 0; i < r->count; i++)
    unit_store(v, tsr__strided_at(v, r->batch, r->head, r->first + i, 0), v->stride[3],
               (size_t)v->dim[3], rows + i * width);
}

/* ---- scores ---- */

static uint64_t kv_head(const attention *a, uint64_t head) {
  assert(a->k.dim[1] && a->q.dim[1] >= a->k.dim[1]);
  return head / (a->q.dim[1] / a->k.dim[1]);
}

/* The columns that row `i` sees: from `first` to before `end`. */
static void seen_by(const attention *a, uint64_t i, uint64_t *first, uint64_t *end) {
  uint64_t row = i + a->first_row;
  *first = a->window && row + 1 > a->window ? row + 1 - a->window : 0;
  *end = a->is_causal && row + 1 < a->k.dim[2] ? row + 1 : a->k.dim[2];
  if (*first > *end) *first = *end;
}

/* Whether any of the rows sees any of the columns. */
static bool meet(const attention *a, const range *rows, const range *columns) {
  uint64_t first, end, unused;
  seen_by(a, rows->first, &first, &unused);
  seen_by(a, rows->first + rows->count - 1, &unused, &end);
  return columns->first < end && columns->first + columns->count > first;
}

/* Compute the scores of some rows and columns; -infinity if a row does not see a column. */
static void find_scores(const attention *a, const range *rows, const range *columns, const float *q,
                        const float *k_across, float *scores) {
  float room[SIDE];
  multiply((rows->count + ROWS - 1) / ROWS * ROWS, SIDE, a->width, q, a->width, 1, k_across, SIDE,
           scores, SIDE, false);
  for (size_t i = 0; i < rows->count; i++) {
    float *s = scores + i * SIDE;
    uint64_t first, end;
    seen_by(a, rows->first + i, &first, &end);
    if (a->has_bias) {
      uint64_t at = tsr__strided_at(&a->bias, rows->batch, rows->head, rows->first + i, 0);
      const float *bias = unit_row(&a->bias, at, columns->first, columns->count, room);
      for (size_t j = 0; j < columns->count; j++) s[j] += bias[j];
    }
    for (size_t j = 0; j < SIDE && columns->first + j < first; j++) s[j] = -INFINITY;
    size_t seen = end > columns->first ? (size_t)(end - columns->first) : 0;
    if (seen > columns->count) seen = columns->count;
    for (size_t j = seen; j < SIDE; j++) s[j] = -INFINITY;
  }
}

/* The dropout factors of row `i`'s weights in some columns: 0 or 1 / (1 - dropout). */
static void find_keeps(const attention *a, const range *rows, size_t i, const range *columns,
                       float *keeps) {
  uint64_t row = (rows->batch * a->q.dim[1] + rows->head) * a->q.dim[2] + rows->first + i;
  float factor = (float)(1 / (1 - a->dropout));
  unit_keeps(a->key, row * a->k.dim[2] + columns->first, columns->count, a->dropout, keeps);
  for (size_t j = 0; j < columns->count; j++) keeps[j] *= factor;
  for (size_t j = columns->count; j < SIDE; j++) keeps[j] = 0;
}

static range next_range(uint64_t batch, uint64_t head, uint64_t first, uint64_t all) {
  uint64_t left = all - first;
  return (range){batch, head, first, left < SIDE ? (size_t)left : SIDE};
}

/* ---- forward ---- */

/* The state of each row of a block. */
typedef struct online {
  float largest[SIDE]; /* the largest score so far */
  float sum[SIDE];     /* of exponentials relative to it */
} online;

/* Turn scores into weights, and scale the sums so far to the new largest score. */
static void find_weights(const attention *a, const range *rows, const range *columns, online *o,
                         float *scores, float *sums) {
  float keeps[SIDE];
  for (size_t i = 0; i < rows->count; i++) {
    float *s = scores + i * SIDE, *out = sums + i * a->width;
    float some = floats_largest(s, SIDE), before = o->largest[i];
    float largest = some > before ? some : before;
    float base = largest == -INFINITY ? 0 : largest, kept = unit_exp(before - base);
    for (size_t j = 0; j < SIDE; j++) s[j] = unit_exp(s[j] - base);
    o->sum[i] = o->sum[i] * kept + floats_sum(s, SIDE);
    o->largest[i] = largest;
    if (kept != 1)
      for (size_t n = 0; n < a->width; n++) out[n] *= kept;
    if (a->dropout == 0) continue;
    find_keeps(a, rows, i, columns, keeps);
    for (size_t j = 0; j < SIDE; j++) s[j] *= keeps[j];
  }
}

static void attend_rows(const attention *a, const range *rows) {
  block q, sums, side, across;
  square scores;
  online o;
  uint64_t h = kv_head(a, rows->head);
  load_rows(&a->q, rows, a->width, a->scale, q);
  memset(sums, 0, SIDE * a->width * sizeof *sums);
  memset(scores, 0, sizeof scores);
  for (size_t i = 0; i < SIDE; i++) o.largest[i] = -INFINITY, o.sum[i] = 0;
  for (uint64_t j = 0; j < a->k.dim[2]; j += SIDE) {
    range columns = next_range(rows->batch, h, j, a->k.dim[2]);
    if (!meet(a, rows, &columns)) continue;
    transpose(find_rows(&a->k, &columns, a->width, side), a->width, across);
    find_scores(a, rows, &columns, q, across, scores);
    find_weights(a, rows, &columns, &o, scores, sums);
    rows_at v = find_rows(&a->v, &columns, a->width, side);
    multiply((rows->count + ROWS - 1) / ROWS * ROWS, a->width, columns.count, scores, SIDE, 1,
             v.data, v.pitch, sums, a->width, true);
  }
  for (size_t i = 0; i < rows->count; i++) {
    float sum = o.sum[i], base = o.largest[i] == -INFINITY ? 0 : o.largest[i];
    float factor = sum > 0 || isnan(sum) ? 1 / sum : 0;
    float log_sum = factor == 0 ? INFINITY : base + logf(sum);
    for (size_t n = 0; n < a->width; n++) sums[i * a->width + n] *= factor;
    if (a->lse.data)
      unit_store(&a->lse, tsr__strided_at(&a->lse, 0, rows->batch, rows->head, rows->first + i), 1,
                 1, &log_sum);
  }
  store_rows(&a->to, rows, a->width, sums);
}

/* Process blocks of rows of all heads, numbered consecutively. */
static void attend_blocks(void *context, uint64_t first, uint64_t end) {
  const attention *a = context;
  uint64_t each = (a->q.dim[2] + SIDE - 1) / SIDE;
  for (uint64_t i = first; i < end; i++) {
    uint64_t head = i / each % a->q.dim[1], batch = i / each / a->q.dim[1];
    range rows = next_range(batch, head, i % each * SIDE, a->q.dim[2]);
    attend_rows(a, &rows);
  }
}

/* Fill the end of rows of log-sum-exps that are longer than necessary with infinity. */
static void end_log_sums(const attention *a) {
  const float endless = INFINITY;
  for (uint64_t b = 0; b < a->q.dim[0]; b++)
    for (uint64_t h = 0; h < a->q.dim[1]; h++)
      for (uint64_t i = a->q.dim[2]; i < a->lse.dim[3]; i++)
        unit_store(&a->lse, tsr__strided_at(&a->lse, 0, b, h, i), 1, 1, &endless);
}

/* ---- backward ---- */

/* A block of rows, and what it contributes to a block of columns. */
typedef struct pairs {
  block q, out_room, k_room, k_across, v_across;
  rows_at out, k; /* rows of the gradient and of keys: in these rooms, or in the tensors */
  float lse[SIDE], delta[SIDE];
  square weights, ds;
} pairs;

static void load_columns(const attention *a, const range *columns, pairs *t) {
  transpose(find_rows(&a->v, columns, a->width, t->k_room), a->width, t->v_across);
  t->k = find_rows(&a->k, columns, a->width, t->k_room);
  transpose(t->k, a->width, t->k_across);
}

/* Load rows of queries and of the gradient, log-sum-exps, and the sums of gradient times result. */
static void load_pair_rows(const attention *a, const range *rows, pairs *t) {
  float room[WIDTH];
  load_rows(&a->q, rows, a->width, a->scale, t->q);
  t->out = find_rows(&a->out, rows, a->width, t->out_room);
  for (size_t i = 0; i < rows->count; i++) {
    uint64_t row = rows->first + i, at = tsr__strided_at(&a->lse, 0, rows->batch, rows->head, row);
    unit_load(&a->lse, at, 1, 1, &t->lse[i]);
    if (a->has_sums) {
      at = tsr__strided_at(&a->sums, 0, rows->batch, rows->head, row);
      unit_load(&a->sums, at, 1, 1, &t->delta[i]);
      continue;
    }
    at = tsr__strided_at(&a->result, rows->batch, rows->head, row, 0);
    const float *result = unit_row(&a->result, at, 0, (size_t)a->result.dim[3], room);
    t->delta[i] = floats_dot(t->out.data + i * t->out.pitch, result, (size_t)a->result.dim[3]);
  }
}

/* Compute the weights after dropout, and the gradient of scores. */
static void find_pairs(const attention *a, const range *rows, const range *columns, pairs *t) {
  float keeps[SIDE];
  find_scores(a, rows, columns, t->q, t->k_across, t->weights);
  multiply((rows->count + ROWS - 1) / ROWS * ROWS, SIDE, a->width, t->out.data, t->out.pitch, 1,
           t->v_across, SIDE, t->ds, SIDE, false);
  for (size_t i = 0; i < rows->count; i++) {
    float *p = t->weights + i * SIDE, *ds = t->ds + i * SIDE;
    float lse = t->lse[i], delta = t->delta[i];
    if (a->dropout != 0) {
      find_keeps(a, rows, i, columns, keeps);
      for (size_t j = 0; j < SIDE; j++) {
        float own = unit_exp(p[j] - lse);
        ds[j] = own * (keeps[j] * ds[j] - delta);
        p[j] = own * keeps[j];
      }
      continue;
    }
    for (size_t j = 0; j < SIDE; j++) {
      p[j] = unit_exp(p[j] - lse);
      ds[j] = p[j] * (ds[j] - delta);
    }
  }
  memset(t->weights + rows->count * SIDE, 0, (SIDE - rows->count) * SIDE * sizeof(float));
  memset(t->ds + rows->count * SIDE, 0, (SIDE - rows->count) * SIDE * sizeof(float));
}

/* Add scale * ds k to the gradient of the queries. */
static void add_queries(const attention *a, const range *rows, const pairs *t, size_t columns,
                        bool adds, float *sums) {
  multiply((rows->count + ROWS - 1) / ROWS * ROWS, a->width, columns, t->ds, SIDE, 1, t->k.data,
           t->k.pitch, sums, a->width, adds);
}

/* The same, to the tensor itself. */
static void add_queries_in_place(const attention *a, const range *rows, const pairs *t,
                                 size_t columns) {
  block sums;
  add_queries(a, rows, t, columns, false, sums);
  for (size_t i = 0; i < rows->count; i++) {
    float *to =
        (float *)a->dq.data + tsr__strided_at(&a->dq, rows->batch, rows->head, rows->first + i, 0);
    for (size_t n = 0; n < a->dq.dim[3]; n++) to[n] += a->scale * sums[i * a->width + n];
  }
}

static void columns_back(const attention *a, const range *columns, pairs *t) {
  block dk, dv;
  uint64_t each = a->q.dim[1] / a->k.dim[1];
  load_columns(a, columns, t);
  memset(dk, 0, SIDE * a->width * sizeof *dk);
  memset(dv, 0, SIDE * a->width * sizeof *dv);
  for (uint64_t h = columns->head * each; h < (columns->head + 1) * each; h++)
    for (uint64_t i = 0; i < a->q.dim[2]; i += SIDE) {
      range rows = next_range(columns->batch, h, i, a->q.dim[2]);
      if (!meet(a, &rows, columns)) continue;
      load_pair_rows(a, &rows, t);
      find_pairs(a, &rows, columns, t);
      multiply(SIDE, a->width, rows.count, t->ds, 1, SIDE, t->q, a->width, dk, a->width, true);
      multiply(SIDE, a->width, rows.count, t->weights, 1, SIDE, t->out.data, t->out.pitch, dv,
               a->width, true);
      if (a->adds_queries) add_queries_in_place(a, &rows, t, columns->count);
    }
  if (a->wants[1]) store_rows(&a->dk, columns, a->width, dk);
  if (a->wants[2]) store_rows(&a->dv, columns, a->width, dv);
}

/* Compute the gradient of a block of queries separately. */
static void queries_back(const attention *a, const range *rows, pairs *t) {
  block sums;
  memset(sums, 0, SIDE * a->width * sizeof *sums);
  load_pair_rows(a, rows, t);
  for (uint64_t j = 0; j < a->k.dim[2]; j += SIDE) {
    range columns = next_range(rows->batch, kv_head(a, rows->head), j, a->k.dim[2]);
    if (!meet(a, rows, &columns)) continue;
    load_columns(a, &columns, t);
    find_pairs(a, rows, &columns, t);
    add_queries(a, rows, t, columns.count, true, sums);
  }
  for (size_t n = 0; n < rows->count * a->width; n++) sums[n] *= a->scale;
  store_rows(&a->dq, rows, a->width, sums);
}

/* Clear the gradient of queries, to which blocks of columns add. */
static void clear_queries(const attention *a, uint64_t batch, uint64_t head) {
  for (uint64_t i = 0; i < a->dq.dim[2]; i++)
    memset((float *)a->dq.data + tsr__strided_at(&a->dq, batch, head, i, 0), 0,
           a->dq.dim[3] * sizeof(float));
}

/* Gradients of the queries of some heads, summed separately in fp32. */
typedef float query_sums[QUERY_SUMS];

/* A copy of `a` that uses these sums instead of the gradient of the queries; heads are counted from `first`. */
static attention with_sums(const attention *a, uint64_t first, float *sums) {
  attention own = *a;
  uint64_t pitch = a->dq.dim[3], head = pitch * a->dq.dim[2];
  own.dq.data = sums;
  own.dq.dtype = TSR__DTYPE_F32;
  own.dq.offset = 0 - first * head; /* wraps around, so that the first head is at 0 */
  own.dq.stride[0] = 0;
  own.dq.stride[1] = head;
  own.dq.stride[2] = pitch;
  own.dq.stride[3] = 1;
  own.adds_queries = true;
  return own;
}

/* Round the sums to the gradient of the queries. */
static void store_sums(const attention *a, uint64_t batch, uint64_t first, uint64_t count,
                       const float *sums) {
  for (uint64_t h = first; h < first + count; h++)
    for (uint64_t i = 0; i < a->dq.dim[2]; i++, sums += a->dq.dim[3])
      unit_store(&a->dq, tsr__strided_at(&a->dq, batch, h, i, 0), a->dq.stride[3],
                 (size_t)a->dq.dim[3], sums);
}

/* Process the heads of queries that share one head of keys. */
static void head_back(const attention *a, uint64_t batch, uint64_t head, pairs *t) {
  uint64_t each = a->q.dim[1] / a->k.dim[1];
  for (uint64_t h = head * each; a->adds_queries && h < (head + 1) * each; h++)
    clear_queries(a, batch, h);
  for (uint64_t j = 0; j < a->k.dim[2]; j += SIDE) {
    range columns = next_range(batch, head, j, a->k.dim[2]);
    if (a->wants[1] || a->wants[2] || a->adds_queries) columns_back(a, &columns, t);
  }
  if (!a->wants[0] || a->adds_queries) return;
  for (uint64_t h = head * each; h < (head + 1) * each; h++)
    for (uint64_t i = 0; i < a->q.dim[2]; i += SIDE) {
      range rows = next_range(batch, h, i, a->q.dim[2]);
      queries_back(a, &rows, t);
    }
}

/* Process heads of keys, numbered over all batches. */
static void attend_back(void *context, uint64_t first, uint64_t end) {
  const attention *a = context;
  uint64_t each = a->q.dim[1] / a->k.dim[1];
  bool is_apart =
      a->wants[0] && !a->adds_queries && each * a->dq.dim[2] * a->dq.dim[3] <= QUERY_SUMS;
  pairs t;
  query_sums sums;
  memset(t.weights, 0, sizeof t.weights);
  for (uint64_t n = first; n < end; n++) {
    uint64_t batch = n / a->k.dim[1], head = n % a->k.dim[1];
    attention own = is_apart ? with_sums(a, head * each, sums) : *a;
    head_back(&own, batch, head, &t);
    if (is_apart) store_sums(a, batch, head * each, each, sums);
  }
}

/* ---- chunked: some rows at a time; other kernels compute the products with keys and values ---- */

typedef struct chunk {
  attention a; /* q and k have at least the sizes of scores */
  tsr__strided from, to, dropped;
} chunk;

static void chunk_softmax_row(const chunk *c, uint64_t b, uint64_t h, uint64_t i) {
  const attention *a = &c->a;
  float room[UNIT_TILE], x[UNIT_TILE], keeps[UNIT_TILE], largest = -INFINITY;
  uint64_t at = tsr__strided_at(&c->from, b, h, i, 0), to = tsr__strided_at(&c->to, b, h, i, 0);
  uint64_t begin, end, row = (b * a->q.dim[1] + h) * a->q.dim[2] + i, columns = c->to.dim[3];
  float factor = (float)(1 / (1 - a->dropout));
  double sum = 0;
  seen_by(a, i, &begin, &end);
  UNIT_EACH_TILE(first, count, end - begin) {
    const float *s = unit_row(&c->from, at, begin + first, count, room);
    for (size_t j = 0; j < count; j++) x[j] = s[j] * a->scale;
    float some = floats_largest(x, count);
    largest = some > largest ? some : largest;
  }
  UNIT_EACH_TILE(first, count, end - begin) {
    const float *s = unit_row(&c->from, at, begin + first, count, room);
    for (size_t j = 0; j < count; j++) x[j] = unit_exp(s[j] * a->scale - largest);
    sum += (double)floats_sum(x, count);
  }
  float log_sum = (float)((double)largest + log(sum));
  UNIT_EACH_TILE(first, count, columns) {
    const float *s = unit_row(&c->from, at, first, count, room);
    for (size_t j = 0; j < count; j++) x[j] = unit_exp(s[j] * a->scale - log_sum);
    if (a->dropout != 0) {
      unit_keeps(a->key, row * columns + first, count, a->dropout, keeps);
      for (size_t j = 0; j < count; j++) x[j] *= keeps[j] * factor;
    }
    for (size_t j = 0; j < count && first + j < begin; j++) x[j] = 0;
    for (size_t j = end > first ? (size_t)(end - first) : 0; j < count; j++) x[j] = 0;
    unit_store(&c->to, to + first * c->to.stride[3], c->to.stride[3], count, x);
  }
  unit_store(&a->lse, tsr__strided_at(&a->lse, 0, b, h, i), 1, 1, &log_sum);
}

static void chunk_softmax_rows(void *context, uint64_t first, uint64_t end) {
  const chunk *c = context;
  for (uint64_t n = first; n < end; n++) {
    uint64_t head = n / c->to.dim[2];
    chunk_softmax_row(c, head / c->to.dim[1], head % c->to.dim[1], n % c->to.dim[2]);
  }
}

/* Store a block of rows and columns of a tensor. */
static void store_square(const tsr__strided *v, const range *rows, const range *columns,
                         const float *from) {
  for (size_t i = 0; i < rows->count; i++)
    unit_store(v, tsr__strided_at(v, rows->batch, rows->head, rows->first + i, columns->first),
               v->stride[3], columns->count, from + i * SIDE);
}

static void chunk_weights_block(const chunk *c, const range *rows) {
  const attention *a = &c->a;
  block q, room, across;
  square p;
  float lse[SIDE] = {0};
  load_rows(&a->q, rows, a->width, a->scale, q);
  for (size_t i = 0; i < rows->count; i++)
    unit_load(&a->lse, tsr__strided_at(&a->lse, 0, rows->batch, rows->head, rows->first + i), 1, 1,
              &lse[i]);
  for (uint64_t j = 0; j < a->k.dim[2]; j += SIDE) {
    range columns = next_range(rows->batch, kv_head(a, rows->head), j, a->k.dim[2]);
    if (meet(a, rows, &columns)) {
      transpose(find_rows(&a->k, &columns, a->width, room), a->width, across);
      find_scores(a, rows, &columns, q, across, p);
      for (size_t i = 0; i < rows->count; i++)
        for (size_t n = 0; n < SIDE; n++) p[i * SIDE + n] = unit_exp(p[i * SIDE + n] - lse[i]);
    } else {
      memset(p, 0, sizeof p);
    }
    store_square(&c->to, rows, &columns, p);
  }
}

/* Process row `i` of a block: p becomes the weights after dropout, ds the gradient before scaling. */
static void chunk_back_row(const attention *a, const range *rows, size_t i, const range *columns,
                           float delta, float *p, float *ds) {
  float keeps[SIDE];
  if (a->dropout == 0) {
    for (size_t j = 0; j < columns->count; j++) ds[j] = a->scale * p[j] * (ds[j] - delta);
    return;
  }
  find_keeps(a, rows, i, columns, keeps);
  for (size_t j = 0; j < columns->count; j++) {
    ds[j] = a->scale * p[j] * (keeps[j] * ds[j] - delta);
    p[j] *= keeps[j];
  }
}

static void chunk_back_block(const chunk *c, const range *rows) {
  const attention *a = &c->a;
  block out_room, room, across;
  square p, ds;
  float delta[SIDE] = {0}, result_room[WIDTH];
  rows_at out = find_rows(&a->out, rows, a->width, out_room);
  for (size_t i = 0; i < rows->count; i++) {
    uint64_t at = tsr__strided_at(&a->result, rows->batch, rows->head, rows->first + i, 0);
    size_t width = (size_t)a->result.dim[3];
    delta[i] = floats_dot(out.data + i * out.pitch, unit_row(&a->result, at, 0, width, result_room),
                          width);
  }
  for (uint64_t j = 0; j < a->k.dim[2]; j += SIDE) {
    range columns = next_range(rows->batch, kv_head(a, rows->head), j, a->k.dim[2]);
    transpose(find_rows(&a->v, &columns, a->width, room), a->width, across);
    multiply((rows->count + ROWS - 1) / ROWS * ROWS, SIDE, a->width, out.data, out.pitch, 1, across,
             SIDE, ds, SIDE, false);
    for (size_t i = 0; i < rows->count; i++) {
      float *own = p + i * SIDE;
      unit_load(&c->from, tsr__strided_at(&c->from, rows->batch, rows->head, rows->first + i, j),
                c->from.stride[3], columns.count, own);
      chunk_back_row(a, rows, i, &columns, delta[i], own, ds + i * SIDE);
    }
    store_square(&c->to, rows, &columns, ds);
    store_square(&c->dropped, rows, &columns, p);
  }
}

/* Process blocks of rows of all heads, numbered consecutively. */
static void chunk_blocks(const chunk *c, uint64_t first, uint64_t end,
                         void (*run)(const chunk *c, const range *rows)) {
  uint64_t each = (c->to.dim[2] + SIDE - 1) / SIDE;
  for (uint64_t n = first; n < end; n++) {
    uint64_t head = n / each % c->to.dim[1], batch = n / each / c->to.dim[1];
    range rows = next_range(batch, head, n % each * SIDE, c->to.dim[2]);
    run(c, &rows);
  }
}

static void chunk_weights_blocks(void *context, uint64_t first, uint64_t end) {
  chunk_blocks(context, first, end, chunk_weights_block);
}

static void chunk_back_blocks(void *context, uint64_t first, uint64_t end) {
  chunk_blocks(context, first, end, chunk_back_block);
}

/* ---- calls ---- */

/* Whether blocks support the head's width and the types. */
static bool is_fast(const tsr__kernel_args *args, uint32_t reads, uint32_t writes) {
  for (uint32_t i = 0; i < reads; i++)
    if (args->reads[i].data && !unit_has_type(args->reads[i].dtype)) return false;
  for (uint32_t i = 0; i < writes; i++)
    if (args->writes[i].data && !unit_has_type(args->writes[i].dtype)) return false;
  return tsr__shape_from_end(args->reads[0].layout.shape, 0) <= WIDTH;
}

static attention attention_of(const tsr__kernel_args *args, bool has_window) {
  attention a = {.q = tsr__strided_of(&args->reads[0]),
                 .k = tsr__strided_of(&args->reads[1]),
                 .v = tsr__strided_of(&args->reads[2]),
                 .scale = (float)args->scalars[0],
                 .dropout = args->scalars[1],
                 .is_causal = args->scalars[2] != 0,
                 .key = args->key};
  a.width = ((size_t)a.q.dim[3] + STEP - 1) / STEP * STEP;
  if (has_window) a.window = (uint64_t)args->scalars[3];
  assert(a.v.dim[3] == a.q.dim[3] && a.k.dim[1] && a.q.dim[1] % a.k.dim[1] == 0);
  return a;
}

/* Set what is added to scores, for all batches, heads and rows; its rows may be longer than necessary. */
static void add_bias(attention *a, const tsr__kernel_tensor *bias) {
  if (!bias->data) return;
  tsr__strided model = a->q;
  model.dim[3] = tsr__shape_from_end(bias->layout.shape, 0);
  assert(model.dim[3] >= a->k.dim[2]);
  a->bias = tsr__strided_repeated(bias, &model);
  a->has_bias = true;
}

static void attend(attention *a, const tsr__kernel_args *args) {
  uint64_t each = (a->q.dim[2] + SIDE - 1) / SIDE;
  a->to = tsr__strided_by_head(&args->writes[0], a->q.dim[1]);
  if (args->writes[1].data) a->lse = tsr__strided_of(&args->writes[1]);
  unit_split(args->pool, a->q.dim[0] * a->q.dim[1] * each, SIDE * a->k.dim[2], attend_blocks, a);
  if (args->writes[1].data) end_log_sums(a);
  if (args->writes[2].data) tsr__put_key(&args->writes[2], args->key);
  if (args->writes[3].data) tsr__put_key(&args->writes[3], 0);
}

void TSR__UNIT(tsr__fast_efficient)(const tsr__kernel_args *args) {
  if (!is_fast(args, 4, 2)) {
    tsr__reference_efficient(args);
    return;
  }
  attention a = attention_of(args, false);
  add_bias(&a, &args->reads[3]);
  attend(&a, args);
}

void TSR__UNIT(tsr__fast_flash)(const tsr__kernel_args *args) {
  if (!is_fast(args, 3, 2)) {
    tsr__reference_flash(args);
    return;
  }
  attention a = attention_of(args, true);
  a.first_row = (uint64_t)args->scalars[4];
  attend(&a, args);
}

static void attend_backward(attention *a, const tsr__kernel_args *args) {
  tsr__strided *gradients[] = {&a->dq, &a->dk, &a->dv};
  if (args->reads[6].data) a->key = tsr__get_key(&args->reads[6]);
  a->out = tsr__strided_by_head(&args->reads[3], a->q.dim[1]);
  a->result = tsr__strided_by_head(&args->reads[4], a->q.dim[1]);
  a->lse = tsr__strided_of(&args->reads[5]);
  for (uint32_t i = 0; i < 3; i++) {
    a->wants[i] = args->writes[i].data != NULL;
    if (a->wants[i]) *gradients[i] = tsr__strided_of(&args->writes[i]);
  }
  a->adds_queries = a->wants[0] && a->dq.dtype == TSR__DTYPE_F32 && a->dq.stride[3] == 1;
  unit_split(args->pool, a->k.dim[0] * a->k.dim[1], a->q.dim[2] * a->k.dim[2], attend_back, a);
}

void TSR__UNIT(tsr__fast_efficient_backward)(const tsr__kernel_args *args) {
  bool has_types = unit_has_type(args->reads[9].dtype) && unit_has_type(args->reads[8].dtype);
  if (!is_fast(args, 6, 3) || !has_types) {
    tsr__reference_efficient_backward(args);
    return;
  }
  attention a = attention_of(args, false);
  add_bias(&a, &args->reads[8]);
  a.has_sums = args->reads[9].data != NULL;
  if (a.has_sums) a.sums = tsr__strided_of(&args->reads[9]);
  attend_backward(&a, args);
}

void TSR__UNIT(tsr__fast_flash_backward)(const tsr__kernel_args *args) {
  if (!is_fast(args, 6, 3)) {
    tsr__reference_flash_backward(args);
    return;
  }
  attention a = attention_of(args, true);
  attend_backward(&a, args);
}

static chunk chunk_of(const tsr__kernel_args *args) {
  chunk c = {.to = tsr__strided_of(&args->writes[0])};
  c.a = (attention){
      .q = c.to, .k = c.to, .scale = (float)args->scalars[0], .is_causal = true, .key = args->key};
  c.a.k.dim[2] = c.to.dim[3];
  return c;
}

static void run_chunk(chunk *c, const tsr__kernel_args *args, unit_range_fn *run) {
  uint64_t each = (c->to.dim[2] + SIDE - 1) / SIDE;
  unit_split(args->pool, c->to.dim[0] * c->to.dim[1] * each, SIDE * c->to.dim[3], run, c);
}

static size_t padded(uint64_t width) {
  return ((size_t)width + STEP - 1) / STEP * STEP;
}

void TSR__UNIT(tsr__fast_chunk_softmax)(const tsr__kernel_args *args) {
  if (!unit_has_types(args)) {
    tsr__reference_chunk_softmax(args);
    return;
  }
  chunk c = chunk_of(args);
  c.from = tsr__strided_of(&args->reads[0]);
  c.a.lse = tsr__strided_of(&args->writes[1]);
  c.a.first_row = (uint64_t)args->scalars[1];
  c.a.dropout = args->scalars[2];
  c.a.window = (uint64_t)args->scalars[3];
  unit_split(args->pool, tsr__strided_rows(&c.to), 4 * c.to.dim[3], chunk_softmax_rows, &c);
}

void TSR__UNIT(tsr__fast_chunk_weights)(const tsr__kernel_args *args) {
  if (!is_fast(args, 3, 1)) {
    tsr__reference_chunk_weights(args);
    return;
  }
  chunk c = chunk_of(args);
  c.a.q = tsr__strided_of(&args->reads[0]);
  c.a.k = tsr__strided_of(&args->reads[1]);
  c.a.lse = tsr__strided_of(&args->reads[2]);
  c.a.first_row = (uint64_t)args->scalars[1];
  c.a.window = (uint64_t)args->scalars[2];
  c.a.width = padded(c.a.q.dim[3]);
  run_chunk(&c, args, chunk_weights_blocks);
}

void TSR__UNIT(tsr__fast_chunk_backward)(const tsr__kernel_args *args) {
  if (!is_fast(args, 4, 2)) {
    tsr__reference_chunk_backward(args);
    return;
  }
  chunk c = chunk_of(args);
  c.a.out = tsr__strided_of(&args->reads[0]);
  c.a.v = tsr__strided_of(&args->reads[1]);
  c.a.result = tsr__strided_of(&args->reads[2]);
  c.from = tsr__strided_of(&args->reads[3]);
  c.dropped = tsr__strided_of(&args->writes[1]);
  c.a.k.dim[1] = c.a.v.dim[1];
  c.a.dropout = args->scalars[1];
  c.a.width = padded(c.a.v.dim[3]);
  run_chunk(&c, args, chunk_back_blocks);
}
