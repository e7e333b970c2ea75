/* op_math.c - attention as PyTorch composes it if none of its kernels fits: its math kernel.
 *
 * Without a mask, scaled_dot_product_attention uses it for grouped queries and for heads whose size is not a
 * multiple of 16 bytes: in fp32, and in 16 bits on a card without flash attention
 * (_scaled_dot_product_attention_math and _safe_softmax of aten/src/ATen/native/transformers/attention.cpp,
 * SoftMax.cpp; PyTorch 2.9.1):
 *
 *   q = q * root                               the root of the scale
 *   mask = where(tril(ones), 0, -inf)
 *   keys, values: each head as often as queries share it, if they do
 *   scores = q @ (keys * root)^T; += mask
 *   weights = softmax(scores), and 0 in rows in which all scores are -inf
 *   weights = dropout(weights); weights @ values
 *
 * in fp32. (In 16 bits PyTorch copies the weights for a second result that nobody uses; nothing here reads that
 * copy, so it is omitted.) Each of these names holds its tensor until the function returns. Kept for backward: q
 * and keys as the product used them, the softmax, dropout's mask, the weights after it, the values.
 *
 * Inputs: q (batch, heads, rows, width), k and v with as many heads or fewer. Output: (batch, rows, heads * width),
 * which transformers makes from the kernel's result. */
#include <assert.h>
#include <math.h>

#include "graph/table.h"

#define Q       IN(0)
#define K       IN(1)
#define V       IN(2)
#define SAVED_Q SAVED(0)
#define SAVED_K SAVED(1)
#define SAVED_V SAVED(2)
#define SOFTMAX SAVED(3)
#define WEIGHTS SAVED(4)
#define DROPPED SAVED(5)
#define QUERIES T(0)
#define MASK    T(1)
#define KEYS    T(2)
#define VALUES  T(3)
#define SCORES  T(4)
#define WIDE_Q  T(5)
#define WIDE_K  T(6)
#define WIDE_V  T(7)

/* ---- shapes ---- */

static tsr__shape scores(const tsr__op_call *call) {
  tsr__shape shape = tsr__op_shape(call, Q);
  assert(shape.rank == 4);
  shape.dim[3] = tsr__op_shape(call, K).dim[2];
  return shape;
}
static tsr__shape score_rows(const tsr__op_call *call) {
  tsr__shape shape = tsr__op_shape(call, Q);
  shape.dim[3] = 1;
  return shape;
}
static tsr__shape pairs(const tsr__op_call *call) {
  return TSR__SHAPE(tsr__op_shape(call, Q).dim[2], tsr__op_shape(call, K).dim[2]);
}
static tsr__shape merged(const tsr__op_call *call) {
  tsr__shape q = tsr__op_shape(call, Q);
  return TSR__SHAPE(q.dim[0], q.dim[2], q.dim[1] * q.dim[3]);
}
static tsr__shape scalar(const tsr__op_call *call) {
  (void)call;
  return TSR__SCALAR;
}
/* The shape of keys or values repeated for all heads of queries. */
static tsr__shape all_heads(const tsr__op_call *call) {
  tsr__shape k = tsr__op_shape(call, K);
  k.dim[1] = tsr__op_shape(call, Q).dim[1];
  assert(k.dim[1] % tsr__op_shape(call, K).dim[1] == 0);
  return k;
}

/* ---- numbers, views, conditions ---- */

static double root(const tsr__op_call *call) {
  return pow((double)tsr__op_shape(call, Q).dim[3], -0.25);
}
static double minus_infinity(const tsr__op_call *call) {
  (void)call;
  return -INFINITY;
}
static double dropout(const tsr__op_call *call) {
  return call->attributes->dropout;
}
static double kept(const tsr__op_call *call) {
  assert(dropout(call) < 1);
  return 1 / (1 - dropout(call));
}

static tsr__layout by_row(const tsr__op_call *call, tsr__layout layout) {
  (void)call;
  return tsr__layout_swap(layout, 1, 2);
}
static tsr__layout by_head(const tsr__op_call *call, tsr__layout layout) {
  return tsr__layout_heads(layout, tsr__op_shape(call, Q).dim[1]);
}

static bool is_grouped(const tsr__op_call *call) {
  return tsr__op_shape(call, K).dim[1] != tsr__op_shape(call, Q).dim[1];
}
static bool is_grouped_and_trains_1(const tsr__op_call *call) {
  return is_grouped(call) && tsr__op_trains_1(call);
}
static bool is_grouped_and_trains_2(const tsr__op_call *call) {
  return is_grouped(call) && tsr__op_trains_2(call);
}
/* A product saves an operand for the gradient of the other one. */
static bool trains_scores(const tsr__op_call *call) {
  return tsr__op_trains_0(call) || tsr__op_trains_1(call);
}
static bool is_single(const tsr__op_call *call) {
  return !is_grouped(call);
}
static bool has_dropout(const tsr__op_call *call) {
  return dropout(call) > 0;
}

/* ---- forward ---- */

/* Compute the scores from q and keys, with the mask. */
#define SCORE                                                                                      \
  {RUN(MUL), .to = QUERIES, .reads = {WIDE_Q}, .scalars = {RULE(root)}, LIKE},                     \
      {RUN(FULL), .to = MASK, .like = Q, BOOL, .shape = pairs, .scalars = {NUMBER(1)}},            \
      {RUN(TRIL), .to = MASK, .reads = {MASK}},                                                    \
      {RUN(FULL), .to = T(8), .like = Q, F32, .shape = scalar, .scalars = {RULE(minus_infinity)}}, \
      {RUN(FULL), .to = T(9), .like = Q, F32, .shape = scalar, .scalars = {NUMBER(0)}},            \
      {RUN(WHERE), .to = MASK,   .reads = {MASK, T(9), T(8)},                                      \
       F32,        .like = MASK, .done = {T(9), T(8)}},                                            \
      {RUN(REPEAT), .to = KEYS, .reads = {WIDE_K}, .shape = all_heads, .when = is_grouped},        \
      {RUN(REPEAT), .to = VALUES, .reads = {WIDE_V}, .shape = all_heads, .when = is_grouped},      \
      {PASS(KEYS, WIDE_K), .when = is_single}, {PASS(VALUES, WIDE_V), .when = is_single},          \
      {RUN(MUL), .to = T(8), .reads = {KEYS}, .scalars = {RULE(root)}, LIKE},                      \
      {DENSE(T(9), QUERIES)}, {DENSE(T(10), T(8))}, {SAVE(0, T(9)), .when = tsr__op_trains_1},     \
      {SAVE(1, T(10)), .when = tsr__op_trains_0},                                                  \
      {RUN(BMM),          .to = SCORES,    .reads = {T(9), T(10)},                                 \
       SECOND_TRANSPOSED, .shape = scores, .done = {T(8), T(9), T(10)}},                           \
  {                                                                                                \
    INTO(ADD), .reads = {SCORES, MASK}, .writes = { SCORES }                                       \
  }

/* Compute a safe softmax: rows that attend to nothing become 0, not NaN. */
#define SOFTEN                                                                         \
  {RUN(SOFTMAX), .to = T(8), .reads = {SCORES}},                                       \
      {RUN(IS_NEGINF), .to = T(9), .reads = {SCORES}, BOOL},                           \
      {RUN(ALL), .to = T(10), .reads = {T(9)}, .shape = score_rows},                   \
      {RUN(FULL), .to = T(11), .like = T(8), .shape = scalar, .scalars = {NUMBER(0)}}, \
      {INTO(WHERE), .reads = {T(10), T(11), T(8)}, .writes = {T(8)},                   \
       .done = {T(11), T(10), T(9)}},                                                  \
      {MOVE(SCORES, T(8))}, {                                                          \
    SAVE(3, SCORES)                                                                    \
  }

static const tsr__op_step math_forward[] = {
    {CAST(WIDE_Q, Q), F32},
    {CAST(WIDE_K, K), F32},
    {CAST(WIDE_V, V), F32},
    SCORE,
    SOFTEN,
    {MAKE(DROPOUT), .to = T(8), .like = SCORES, .when = has_dropout},
    {MAKE(DROPOUT), .to = T(9), .like = SCORES, BOOL, .when = has_dropout},
    {RUN(DROPOUT), .reads = {SCORES}, .writes = {T(8), T(9)}, .scalars = {RULE(dropout)},
     .when = has_dropout},
    {SAVE(5, T(9)), .when = has_dropout, .done = {T(9)}},
    {MOVE(SCORES, T(8)), .when = has_dropout},
    {SAVE(4, SCORES), .when = tsr__op_trains_2},
    {DENSE(T(10), VALUES)},
    {SAVE(2, T(10)), .when = trains_scores},
    {RUN(BMM), .to = T(9), .reads = {SCORES, T(10)}, .like = WIDE_Q, .done = {T(10)}},
    {CAST(T(9), T(9)), .typed = Q},
    {FREE(SCORES, VALUES, KEYS, MASK, QUERIES)},
    {FREE(WIDE_V, WIDE_K, WIDE_Q)},
    {VIEW(T(8), T(9), by_row)},
    {RUN(CLONE), .to = OUT(0), .reads = {T(8)}, .shape = merged, .done = {T(8), T(9)}},
    {.action = TSR__DO_END}};

/* ---- backward ---- */

static const tsr__op_step math_backward[] = {
    {VIEW(T(2), GRAD_OUT(0), by_head)},
    {CAST(T(2), T(2)), F32, .node = "ToCopyBackward0", .done = {GRAD_OUT(0)}},
    {DENSE(T(0), T(2)), .node = "UnsafeViewBackward0", .done = {T(2)}},
    {RUN(BMM), .to = T(1), .reads = {WEIGHTS, T(0)}, FIRST_TRANSPOSED, .shape = all_heads,
     .node = "BmmBackward0", .within = "bmm_mat2_backward", .when = tsr__op_trains_2},
    {RUN(BMM), .to = T(2), .reads = {T(0), SAVED_V}, SECOND_TRANSPOSED, .shape = scores,
     .within = "bmm_self_backward", .done = {T(0), WEIGHTS, SAVED_V}},
    {RUN(DROPOUT_BACKWARD), .to = T(2), .reads = {T(2), DROPPED}, .scalars = {RULE(kept)},
     .node = "NativeDropoutBackward0", .when = has_dropout, .done = {DROPPED}},
    {RUN(SOFTMAX_BACKWARD), .to = T(2), .reads = {T(2), SOFTMAX}, .node = "SafeSoftmaxBackward0",
     .done = {SOFTMAX}},
    {RUN(BMM), .to = T(3), .reads = {T(2), SAVED_Q}, FIRST_TRANSPOSED, .shape = all_heads,
     ROWS_LAST, .node = "BmmBackward0", .within = "bmm_mat2_backward", .when = tsr__op_trains_1},
    {RUN(BMM), .to = T(4), .reads = {T(2), SAVED_K}, .like = SAVED_K, .within = "bmm_self_backward",
     .when = tsr__op_trains_0},
    {FREE(T(2), SAVED_Q, SAVED_K)},
    {RUN(MUL), .to = T(3), .reads = {T(3)}, .scalars = {RULE(root)}, LIKE, .node = "MulBackward0",
     .when = tsr__op_trains_1},
    {RUN(SUM_GROUPS), .to = GRAD_IN(2), .reads = {T(1)}, .like = V, F32, IN_ORDER,
     .node = "ExpandBackward0", .done = {T(1)}, .when = is_grouped_and_trains_2},
    {RUN(SUM_GROUPS), .to = GRAD_IN(1), .reads = {T(3)}, .like = K, F32, IN_ORDER, .done = {T(3)},
     .when = is_grouped_and_trains_1},
    {MOVE(GRAD_IN(2), T(1)), .when = is_single},
    {MOVE(GRAD_IN(1), T(3)), .when = is_single},
    {RUN(MUL), .to = GRAD_IN(0), .reads = {T(4)}, .scalars = {RULE(root)}, .like = Q, F32, IN_ORDER,
     .node = "MulBackward0", .done = {T(4)}, .when = tsr__op_trains_0},
    {CAST(GRAD_IN(2), GRAD_IN(2)), .typed = V, LIKE, .node = "ToCopyBackward0"},
    {CAST(GRAD_IN(1), GRAD_IN(1)), .typed = K, LIKE},
    {CAST(GRAD_IN(0), GRAD_IN(0)), .typed = Q, LIKE},
    {.action = TSR__DO_END}};

const tsr__op_row tsr__op_attention_math = {.name = "math attention",
                                            .node = "CloneBackward0",
                                            .autocast = TSR__AUTOCAST_LOW,
                                            .casts = {1, 2, 3},
                                            .forward = math_forward,
                                            .backward = math_backward};
