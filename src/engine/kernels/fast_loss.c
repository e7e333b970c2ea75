/* fast_loss.c - fast kernels of losses and embeddings. Compiled for each instruction set (unit.h).
 *
 * Labels and token ids are integers of any shape, used in its order, and less than the table's height. */
#include "kernels/unit_fast.h"
#include "kernels/unit_math.h"

/* View integers as one row if possible. */
static tsr__strided integers_of(const tsr__kernel_tensor *tensor) {
  tsr__strided v = tsr__strided_of(tensor);
  bool is_there = true;
  assert(v.dtype == TSR__DTYPE_I64);
  tsr__strided_join(&v, &is_there, 1);
  return v;
}

static int64_t integer_at(const tsr__strided *v, uint64_t i) {
  uint64_t at = v->offset + i * v->stride[3];
  assert(v->dim[3]);
  if (i >= v->dim[3]) at = tsr__strided_row(v, i / v->dim[3]) + i % v->dim[3] * v->stride[3];
  return ((const int64_t *)v->data)[at];
}

static bool is_fast(const tsr__kernel_tensor *a, const tsr__kernel_tensor *b) {
  return unit_has_type(a->dtype) && unit_has_type(b->dtype);
}

/* ---- losses ---- */

void TSR__UNIT(tsr__fast_nll_loss_backward)(const tsr__kernel_args *args) {
  tsr__kernel_args copy = {
      .reads = {args->reads[0]}, .writes = {args->writes[0]}, .pool = args->pool};
  if (args->reads[0].data != args->writes[0].data) TSR__UNIT(tsr__fast_copy)(&copy);
  tsr__kernel_args own = *args; /* in place: the tensor has been copied */
  own.reads[0] = args->writes[0];
  tsr__reference_nll_loss_backward(&own);
}

/* The losses of this many rows are collected on the stack and then added in order. */
enum { LOSSES = 512 };

typedef struct cross_entropy {
  tsr__strided logits, to, labels;
  double ignored, weight, losses[LOSSES]; /* weight: of a row in the gradient */
  uint64_t first;                         /* the row of losses[0] */
} cross_entropy;

/* The log-sum-exp of a row. */
static double log_sum_of(const tsr__strided *v, uint64_t at) {
  float room[UNIT_TILE], other[UNIT_TILE], largest = -INFINITY;
  double sum = 0;
  UNIT_EACH_TILE(column, count, v->dim[3]) {
    float some = floats_largest(unit_row(v, at, column, count, room), count);
    largest = some > largest ? some : largest;
  }
  UNIT_EACH_TILE(column, count, v->dim[3]) {
    const float *x = unit_row(v, at, column, count, room);
    for (size_t i = 0; i < count; i++) other[i] = unit_exp(x[i] - largest);
    sum += (double)floats_sum(other, count);
  }
  return (double)largest + log(sum);
}

/* Compute losses and gradients of some rows, counted from `first`. */
static void cross_entropy_rows(void *context, uint64_t first, uint64_t end) {
  cross_entropy *c = context;
  float room[UNIT_TILE], other[UNIT_TILE];
  for (uint64_t i = first; i < end; i++) {
    uint64_t row = c->first + i, from = tsr__strided_row(&c->logits, row);
    uint64_t to = tsr__strided_row(&c->to, row);
    int64_t label = integer_at(&c->labels, row);
    bool counts = (double)label != c->ignored;
    double exact = counts ? log_sum_of(&c->logits, from) : 0;
    float log_sum = (float)exact, weight = counts ? (float)c->weight : 0;
    c->losses[i] = 0;
    UNIT_EACH_TILE(column, count, c->to.dim[3]) {
      const float *x = unit_row(&c->logits, from, column, count, room);
      float *out = unit_row_room(&c->to, to, column, other); /* may be x */
      uint64_t at = (uint64_t)label - column;                /* of the label within this tile */
      float own = 0;
      if (counts && at < count) {
        c->losses[i] = exact - (double)x[at];
        own = (unit_exp(x[at] - log_sum) - 1) * weight;
      }
      TSR__EACH_TURN
      for (size_t k = 0; k < count; k++) out[k] = unit_exp(x[k] - log_sum) * weight;
      if (!counts) memset(out, 0, count * sizeof *out);
      if (counts && at < count) out[at] = own;
      unit_row_done(&c->to, to, column, count, other);
    }
  }
}

void TSR__UNIT(tsr__fast_cross_entropy)(const tsr__kernel_args *args) {
  if (!is_fast(&args->reads[0], &args->writes[0])) {
    tsr__reference_cross_entropy(args);
    return;
  }
  cross_entropy c = {.logits = tsr__strided_of(&args->reads[0]),
                     .to = tsr__strided_of(&args->writes[0]),
                     .labels = integers_of(&args->reads[1]),
                     .ignored = args->scalars[0]};
  tsr__strided all = integers_of(&args->reads[2]);
  uint64_t counting = 0, rows = tsr__strided_elements(&c.labels);
  double loss = 0;
  for (uint64_t i = 0; i < tsr__strided_elements(&all); i++)
    counting += (double)integer_at(&all, i) != c.ignored;
  double share = 1 / (double)counting;
  c.weight = args->scalar_count > 1 ? 1 / ((double)counting * args->scalars[1]) : share;
  for (; c.first < rows; c.first += LOSSES) {
    uint64_t some = rows - c.first < LOSSES ? rows - c.first : LOSSES;
    unit_split(args->pool, some, 4 * c.to.dim[3], cross_entropy_rows, &c);
    for (uint64_t i = 0; i < some; i++) loss += c.losses[i];
  }
  tsr__put_number(&args->writes[1], tsr__number_of(&args->reads[3]) + loss * share);
}

/* Compute the log-sum-exps and losses of some rows. */
static void loss_rows(void *context, uint64_t first, uint64_t end) {
  cross_entropy *c = context;
  for (uint64_t i = first; i < end; i++) {
    uint64_t row = c->first + i, from = tsr__strided_row(&c->logits, row);
    int64_t label = integer_at(&c->labels, row);
    bool counts = (double)label != c->ignored;
    double exact = counts ? log_sum_of(&c->logits, from) : 0;
    float log_sum = (float)exact, own = 0;
    if (counts) {
      assert(label >= 0 && (uint64_t)label < c->logits.dim[3]);
      unit_load(&c->logits, from + (uint64_t)label * c->logits.stride[3], 1, 1, &own);
    }
    c->losses[i] = counts ? exact - (double)own : 0;
    unit_store(&c->to, tsr__strided_row(&c->to, row), 1, 1, &log_sum);
  }
}

void TSR__UNIT(tsr__fast_loss)(const tsr__kernel_args *args) {
  if (!is_fast(&args->reads[0], &args->writes[1])) {
    tsr__reference_loss(args);
    return;
  }
  cross_entropy c = {.logits = tsr__strided_of(&args->reads[0]),
                     .to = tsr__strided_of(&args->writes[1]),
                     .labels = integers_of(&args->reads[1]),
                     .ignored = args->scalars[0]};
  uint64_t counting = 0, rows = tsr__strided_elements(&c.labels);
  double loss = 0;
  for (uint64_t i = 0; i < rows; i++) counting += (double)integer_at(&c.labels, i) != c.ignored;
  for (; c.first < rows; c.first += LOSSES) {
    uint64_t some = rows - c.first < LOSSES ? rows - c.first : LOSSES;
    unit_split(args->pool, some, 4 * c.logits.dim[3], loss_rows, &c);
    for (uint64_t i = 0; i < some; i++) loss += c.losses[i];
  }
  tsr__put_number(&args->writes[0], loss / (double)counting);
  tsr__put_number(&args->writes[2], (double)counting);
}

typedef struct loss_slope {
  tsr__strided logits, to, labels, sums;
  double ignored;
  float weight;
} loss_slope;

/* Compute each number of the gradient exactly as cross_entropy_rows does. */
static void loss_back_rows(void *context, uint64_t first, uint64_t end) {
  const loss_slope *c = context;
  float room[UNIT_TILE], other[UNIT_TILE];
  for (uint64_t row = first; row < end; row++) {
    uint64_t from = tsr__strided_row(&c->logits, row), to = tsr__strided_row(&c->to, row);
    int64_t label = integer_at(&c->labels, row);
    bool counts = (double)label != c->ignored;
    float log_sum = 0, weight = counts ? c->weight : 0;
    unit_load(&c->sums, tsr__strided_row(&c->sums, row), 1, 1, &log_sum);
    UNIT_EACH_TILE(column, count, c->to.dim[3]) {
      const float *x = unit_row(&c->logits, from, column, count, room);
      float *out = unit_row_room(&c->to, to, column, other);
      uint64_t at = (uint64_t)label - column; /* of the label within this tile */
      float own = counts && at < count ? (unit_exp(x[at] - log_sum) - 1) * weight : 0;
      TSR__EACH_TURN
      for (size_t k = 0; k < count; k++) out[k] = unit_exp(x[k] - log_sum) * weight;
      if (!counts) memset(out, 0, count * sizeof *out);
      if (counts && at < count) out[at] = own;
      unit_row_done(&c->to, to, column, count, other);
    }
  }
}

void TSR__UNIT(tsr__fast_loss_backward)(const tsr__kernel_args *args) {
  if (!is_fast(&args->reads[0], &args->writes[0])) {
    tsr__reference_loss_backward(args);
    return;
  }
  loss_slope c = {.logits = tsr__strided_of(&args->reads[0]),
                  .to = tsr__strided_of(&args->writes[0]),
                  .labels = integers_of(&args->reads[1]),
                  .sums = tsr__strided_of(&args->reads[2]),
                  .ignored = args->scalars[0]};
  double count = tsr__number_of(&args->reads[3]) * args->scalars[1];
  c.weight = (float)(tsr__number_of(&args->reads[4]) / count);
  unit_split(args->pool, tsr__strided_elements(&c.labels), 2 * c.to.dim[3], loss_back_rows, &c);
}

/* ---- embeddings ---- */

typedef struct embedding {
  tsr__strided table, ids, rows; /* rows: one for each id */
} embedding;

static void embed_rows(void *context, uint64_t first, uint64_t end) {
  const embedding *e = context;
  float room[UNIT_TILE], other[UNIT_TILE];
  for (uint64_t i = first; i < end; i++) {
    int64_t id = integer_at(&e->ids, i);
    assert(id >= 0 && (uint64_t)id < e->table.dim[2]);
    uint64_t from = tsr__strided_row(&e->table, (uint64_t)id), to = tsr__strided_row(&e->rows, i);
    UNIT_EACH_TILE(column, count, e->rows.dim[3]) {
      const float *x = unit_row(&e->table, from, column, count, room);
      float *out = unit_row_room(&e->rows, to, column, other);
      for (size_t k = 0; k < count; k++) out[k] = x[k];
      unit_row_done(&e->rows, to, column, count, other);
    }
  }
}

void TSR__UNIT(tsr__fast_embedding)(const tsr__kernel_args *args) {
  if (!is_fast(&args->reads[0], &args->writes[0])) {
    tsr__reference_embedding(args);
    return;
  }
  embedding e = {tsr__strided_of(&args->reads[0]), integers_of(&args->reads[1]),
                 tsr__strided_of(&args->writes[0])};
  unit_split(args->pool, tsr__strided_elements(&e.ids), e.rows.dim[3], embed_rows, &e);
}

static bool occurs_before(const tsr__strided *ids, uint64_t end, int64_t id) {
  for (uint64_t i = 0; i < end; i++)
    if (integer_at(ids, i) == id) return true;
  return false;
}

/* For each of these ids that does not occur before: add up the gradients of all its occurrences. */
static void embed_back(void *context, uint64_t first, uint64_t end) {
  const embedding *e = context;
  uint64_t total = tsr__strided_elements(&e->ids);
  float room[UNIT_TILE];
  for (uint64_t i = first; i < end; i++) {
    int64_t id = integer_at(&e->ids, i);
    assert(id >= 0 && (uint64_t)id < e->table.dim[2]);
    if (occurs_before(&e->ids, i, id)) continue;
    uint64_t to = tsr__strided_row(&e->table, (uint64_t)id);
    UNIT_EACH_TILE(column, count, e->table.dim[3]) {
      float sums[UNIT_TILE] = {0};
      for (uint64_t j = i; j < total; j++) {
        if (integer_at(&e->ids, j) != id) continue;
        const float *g = unit_row(&e->rows, tsr__strided_row(&e->rows, j), column, count, room);
        for (size_t k = 0; k < count; k++) sums[k] += g[k];
      }
      unit_store(&e->table, to + column * e->table.stride[3], e->table.stride[3], count, sums);
    }
  }
}

void TSR__UNIT(tsr__fast_embedding_backward)(const tsr__kernel_args *args) {
  if (!is_fast(&args->reads[0], &args->writes[0])) {
    tsr__reference_embedding_backward(args);
    return;
  }
  embedding e = {tsr__strided_of(&args->writes[0]), integers_of(&args->reads[1]),
                 tsr__strided_of(&args->reads[0])};
  TSR__UNIT(tsr__fast_zeros)(args);
  unit_split(args->pool, tsr__strided_elements(&e.ids), e.table.dim[3], embed_back, &e);
}

/* ---- embeddings, added to an existing gradient ---- */

/* The positions of one id form a chain, from the first to each next one. Chains are found in one pass, so that the
 * time does not depend on how often ids occur. */
typedef struct chains {
  tsr__strided table, ids, rows;
  const int64_t *next;  /* of each position: the next one with the same id, or -1 */
  const int64_t *first; /* of each id that occurs */
} chains;

enum { EMBEDDING_PIECE = 256 };

/* Sums of pieces of 256 positions start at zero, and are added one after another. */
static void add_chain(const chains *c, uint64_t start, uint64_t to, uint64_t column, size_t count) {
  float room[UNIT_TILE], total[UNIT_TILE];
  unit_load(&c->table, to + column * c->table.stride[3], c->table.stride[3], count, total);
  for (int64_t i = (int64_t)start; i >= 0;) {
    float piece[UNIT_TILE] = {0};
    int64_t end = (i / EMBEDDING_PIECE + 1) * EMBEDDING_PIECE;
    for (; i >= 0 && i < end; i = c->next[i]) {
      uint64_t at = tsr__strided_row(&c->rows, (uint64_t)i);
      const float *g = unit_row(&c->rows, at, column, count, room);
      for (size_t k = 0; k < count; k++) piece[k] += g[k];
    }
    for (size_t k = 0; k < count; k++) total[k] += piece[k];
  }
  unit_store(&c->table, to + column * c->table.stride[3], c->table.stride[3], count, total);
}

static void add_chains(void *context, uint64_t first, uint64_t end) {
  const chains *c = context;
  for (uint64_t i = first; i < end; i++) {
    int64_t id = integer_at(&c->ids, i);
    if (c->first[id] != (int64_t)i) continue;
    uint64_t to = tsr__strided_row(&c->table, (uint64_t)id);
    UNIT_EACH_TILE(column, count, c->table.dim[3]) {
      add_chain(c, i, to, column, count);
    }
  }
}

void TSR__UNIT(tsr__fast_embedding_add)(const tsr__kernel_args *args) {
  const tsr__kernel_args copy = {
      .reads = {args->reads[2]}, .writes = {args->writes[0]}, .pool = args->pool};
  if (!is_fast(&args->reads[0], &args->writes[0]) || !args->scratch[1].data) {
    tsr__reference_embedding_add(args);
    return;
  }
  int64_t *next = args->scratch[0].data, *first = args->scratch[1].data;
  chains c = {tsr__strided_of(&args->writes[0]), integers_of(&args->reads[1]),
              tsr__strided_of(&args->reads[0]), next, first};
  uint64_t count = tsr__strided_elements(&c.ids);
  assert(tsr__shape_elements(args->scratch[0].layout.shape) >= count);
  assert(tsr__shape_elements(args->scratch[1].layout.shape) >= c.table.dim[2]);
  if (!args->reads[2].data)
    TSR__UNIT(tsr__fast_zeros)(args);
  else if (args->reads[2].data != args->writes[0].data)
    TSR__UNIT(tsr__fast_copy)(&copy);
  for (uint64_t i = 0; i < count; i++) {
    int64_t id = integer_at(&c.ids, i);
    assert(id >= 0 && (uint64_t)id < c.table.dim[2]);
    first[id] = -1;
  }
  for (uint64_t i = count; i-- > 0;) {
    int64_t id = integer_at(&c.ids, i);
    next[i] = first[id];
    first[id] = (int64_t)i;
  }
  unit_split(args->pool, count, c.table.dim[3], add_chains, &c);
}
