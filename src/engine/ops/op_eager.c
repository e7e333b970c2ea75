/* op_eager.c - attention written out: matmul, scale, mask, softmax, dropout, matmul.
 *
 * As in transformers' eager_attention_forward (modeling_gpt2.py, modeling_llama.py). GPT-2 divides by a tensor,
 * writes the smallest number where its own mask is false and adds the model's mask; the Llama family multiplies,
 * adds, and computes the softmax in fp32. Kept for backward: q and k as the matrix product used them, the softmax,
 * the dropout's mask, the weights after it, v; for GPT-2 also the divisor.
 *
 * matmul needs its operands as batches of matrices, and copies those with other layouts. Inputs: q, k, v (with as
 * many heads each), the mask and, for GPT-2, the layer's causal buffer. Outputs: the result (batch, rows, heads *
 * width), and the weights, which the caller's function holds. */
#include <assert.h>
#include <math.h>

#include "graph/table.h"

#define Q        IN(0)
#define K        IN(1)
#define V        IN(2)
#define MASK     IN(3)
#define BUFFER   IN(4)
#define SAVED_Q  SAVED(0)
#define SAVED_K  SAVED(1)
#define SOFTMAX  SAVED(2)
#define WEIGHTS  SAVED(3)
#define SAVED_V  SAVED(4)
#define DROPPED  SAVED(5)
#define CAUSAL   SAVED(6)
#define DIVISOR  SAVED(7)
#define SCORES   T(2)
#define VARIABLE T(8) /* a variable of the function, which holds it until it returns */

static tsr__shape scores(const tsr__op_call *call) {
  tsr__shape shape = tsr__op_shape(call, Q);
  shape.dim[3] = tsr__op_shape(call, K).dim[2];
  return shape;
}

static tsr__shape merged(const tsr__op_call *call) {
  tsr__shape q = tsr__op_shape(call, Q);
  assert(q.rank == 4);
  return TSR__SHAPE(q.dim[0], q.dim[2], q.dim[1] * q.dim[3]);
}

static tsr__shape scalar(const tsr__op_call *call) {
  (void)call;
  return TSR__SCALAR;
}

static bool has_mask(const tsr__op_call *call) {
  return call->reg[MASK] != 0;
}
static bool has_dropout(const tsr__op_call *call) {
  return call->attributes->dropout > 0;
}

static double dropout(const tsr__op_call *call) {
  return call->attributes->dropout;
}
static double kept(const tsr__op_call *call) {
  assert(dropout(call) < 1);
  return 1 / (1 - dropout(call));
}
/* Scores are divided by the root of the heads' width, or multiplied by its reciprocal. */
static double root_of_width(const tsr__op_call *call) {
  return sqrt((double)tsr__op_shape(call, Q).dim[3]);
}
static double scale(const tsr__op_call *call) {
  return 1 / root_of_width(call);
}
static double lowest(const tsr__op_call *call) {
  return tsr__dtype_lowest(tsr__op_dtype(call, SCORES));
}

/* Views: (batch, rows, heads * width) by head; (batch, heads, rows, width) by row; the part of the buffer for these
 * rows and columns. */
static tsr__layout by_head(const tsr__op_call *call, tsr__layout layout) {
  return tsr__layout_heads(layout, tsr__op_shape(call, Q).dim[1]);
}
static tsr__layout by_row(const tsr__op_call *call, tsr__layout layout) {
  (void)call;
  return tsr__layout_swap(layout, 1, 2);
}
static tsr__layout causal_part(const tsr__op_call *call, tsr__layout layout) {
  uint64_t queries = tsr__op_shape(call, Q).dim[2], keys = tsr__op_shape(call, K).dim[2];
  assert(queries && queries <= keys);
  return tsr__layout_slice(tsr__layout_slice(layout, 0, keys - queries, queries), 1, 0, keys);
}

static tsr__layout as_merged(const tsr__op_call *call, tsr__layout layout) {
  return tsr__layout_reshaped(layout, merged(call));
}
/* With one head or one row, results by row are already in order. */
static bool is_merged(const tsr__op_call *call) {
  return tsr__layout_is_dense(tsr__op_layout(call, T(5)));
}
static bool has_heads(const tsr__op_call *call) {
  return !is_merged(call);
}

/* The softmax in fp32 copies bf16 to fp32 first, but reads fp16 directly. */
static bool copies_for_llama(const tsr__op_call *call) {
  return tsr__op_dtype(call, SCORES) != TSR__DTYPE_F32 &&
         (call->tape->is_autocast || tsr__op_dtype(call, Q) == TSR__DTYPE_BF16);
}
static bool copies_for_gpt2(const tsr__op_call *call) {
  return tsr__op_dtype(call, SCORES) != TSR__DTYPE_F32 && call->tape->is_autocast;
}

/* A product saves an operand for the gradient of the other one. */
static bool trains_scores(const tsr__op_call *call) {
  return tsr__op_trains_0(call) || tsr__op_trains_1(call);
}
static bool has_saved_q(const tsr__op_call *call) {
  return call->reg[SAVED_Q] != 0;
}
static bool lacks_saved_q(const tsr__op_call *call) {
  return !has_saved_q(call);
}

static bool takes_as_is(const tsr__op_call *call) {
  return !call->reg[T(3)];
}

/* GPT-2's softmax is in the model's type, which is that of q; under autocast it is in fp32. */
static bool is_autocast(const tsr__op_call *call) {
  return call->tape->is_autocast;
}
static bool is_plain(const tsr__op_call *call) {
  return !call->tape->is_autocast;
}

/* Under autocast each product casts its operands, the second one first. Operands that are not contiguous are
 * copied. */
#define PRODUCT_OF_QUERIES_AND_KEYS                                                              \
  {CAST(T(6), K), LOW, LIKE}, {CAST(T(5), Q), LOW, LIKE}, {DENSE(T(0), T(5))},                   \
      {DENSE(T(1), T(6))}, {SAVE(0, T(0)), .when = tsr__op_trains_1},                            \
      {SAVE(1, T(1)), .when = tsr__op_trains_0}, {                                               \
    RUN(BMM), .to = SCORES, .reads = {T(0), T(1)}, SECOND_TRANSPOSED, .shape = scores, .done = { \
      T(0),                                                                                      \
      T(1),                                                                                      \
      T(6),                                                                                      \
      T(5)                                                                                       \
    }                                                                                            \
  }

/* From the weights, in SCORES, to the result. */
#define WEIGH_VALUES                                                                             \
  {MAKE(DROPOUT), .to = T(3), .like = SCORES, .when = has_dropout},                              \
      {MAKE(DROPOUT), .to = T(4), .like = SCORES, BOOL, .when = has_dropout},                    \
      {RUN(DROPOUT), .reads = {SCORES}, .writes = {T(3), T(4)}, .scalars = {RULE(dropout)},      \
       .when = has_dropout},                                                                     \
      {SAVE(5, T(4)), .when = has_dropout, .done = {T(4), SCORES}},                              \
      {MOVE(SCORES, T(3)), .when = has_dropout}, {CAST(T(7), V), LOW, LIKE},                     \
      {CAST(T(9), SCORES), LOW}, {DENSE(T(5), T(7))}, {SAVE(3, T(9)), .when = tsr__op_trains_2}, \
      {SAVE(4, T(5)), .when = trains_scores},                                                    \
      {RUN(BMM),  .to = T(6),    .reads = {T(9), T(5)},                                          \
       .like = Q, .typed = T(9), .done = {T(9), T(5), T(7)}},                                    \
      {VIEW(T(5), T(6), by_row), .done = {VARIABLE}},                                            \
      {RUN(CLONE), .to = OUT(0), .reads = {T(5)}, .shape = merged, .when = has_heads},           \
      {VIEW(OUT(0), T(5), as_merged), .when = is_merged}, {FREE(T(5), T(6))}, {                  \
    MOVE(OUT(1), SCORES)                                                                         \
  }

/* From the result's gradient to that of the scores, in T(1). Gradients are cast back if autocast cast the operand;
 * the operand that was cast last comes first. */
#define WEIGH_VALUES_BACK(model)                                                                \
  {VIEW(T(2), GRAD_OUT(0), by_head)},                                                           \
      {DENSE(T(0), T(2)), .node = "UnsafeViewBackward0", .done = {T(2), GRAD_OUT(0)}},          \
      {RUN(BMM),                                                                                \
       .to = GRAD_IN(2),                                                                        \
       .reads = {WEIGHTS, T(0)},                                                                \
       FIRST_TRANSPOSED,                                                                        \
       .like = V,                                                                               \
       .typed = T(0),                                                                           \
       IN_ORDER,                                                                                \
       .node = "BmmBackward0",                                                                  \
       .within = "bmm_mat2_backward"},                                                          \
      {RUN(BMM),                                                                                \
       .to = T(1),                                                                              \
       .reads = {T(0), SAVED_V},                                                                \
       SECOND_TRANSPOSED,                                                                       \
       .shape = scores,                                                                         \
       .within = "bmm_self_backward",                                                           \
       .done = {T(0), WEIGHTS, SAVED_V}},                                                       \
      {CAST(T(1), T(1)), .typed = (model), .node = "ToCopyBackward0"},                          \
      {CAST(GRAD_IN(2), GRAD_IN(2)), .typed = V, LIKE},                                         \
      {RUN(DROPOUT_BACKWARD),   .to = T(1),          .reads = {T(1), DROPPED},                  \
       .scalars = {RULE(kept)}, .when = has_dropout, .node = "NativeDropoutBackward0",          \
       .done = {DROPPED}},                                                                      \
      {CAST(T(1), T(1)), .typed = SOFTMAX, .node = "ToCopyBackward0"},                          \
      {RUN(SOFTMAX_BACKWARD), .to = T(1), .reads = {T(1), SOFTMAX}, .node = "SoftmaxBackward0", \
       .done = {SOFTMAX}},                                                                      \
      {CAST(T(1), T(1)), .typed = SAVED_Q, .node = "AddBackward0", .when = has_saved_q}, {      \
    CAST(T(1), T(1)), .typed = SAVED_K, .node = "AddBackward0", .when = lacks_saved_q           \
  }

/* From the gradient of the product to those of q and k. */
#define PRODUCT_BACK                                                                 \
  {RUN(BMM),                                                                         \
   .to = GRAD_IN(1),                                                                 \
   .reads = {T(1), SAVED_Q},                                                         \
   FIRST_TRANSPOSED,                                                                 \
   .like = K,                                                                        \
   .typed = T(1),                                                                    \
   ROWS_LAST,                                                                        \
   .node = "BmmBackward0",                                                           \
   .within = "bmm_mat2_backward"},                                                   \
      {RUN(BMM),                                                                     \
       .to = GRAD_IN(0),                                                             \
       .reads = {T(1), SAVED_K},                                                     \
       .like = Q,                                                                    \
       .typed = T(1),                                                                \
       IN_ORDER,                                                                     \
       .within = "bmm_self_backward",                                                \
       .done = {T(1), SAVED_Q, SAVED_K}},                                            \
      {CAST(GRAD_IN(0), GRAD_IN(0)), .typed = Q, LIKE, .node = "ToCopyBackward0"}, { \
    CAST(GRAD_IN(1), GRAD_IN(1)), .typed = K, LIKE                                   \
  }

/* ---- GPT-2 ---- */

static const tsr__op_step gpt2_forward[] = {
    PRODUCT_OF_QUERIES_AND_KEYS,
    {RUN(FULL), .to = T(3), .like = SCORES, .shape = scalar, .scalars = {RULE(root_of_width)}},
    {RUN(DIV), .to = SCORES, .reads = {SCORES, T(3)}},
    {SAVE(7, T(3)), .done = {T(3)}},
    {RUN(FULL), .to = VARIABLE, .like = SCORES, .shape = scalar, .scalars = {RULE(lowest)}},
    {VIEW(T(7), BUFFER, causal_part)},
    {RUN(WHERE), .to = SCORES, .reads = {T(7), SCORES, VARIABLE}, .like = SCORES},
    {SAVE(6, T(7)), .done = {T(7)}},
    {RUN(ADD), .to = SCORES, .reads = {SCORES, MASK}, PROMOTED, .when = has_mask},
    {RUN(TO_COPY), .to = T(3), .reads = {SCORES}, F32, .when = copies_for_gpt2},
    {PASS(T(3), SCORES), .when = takes_as_is},
    {RUN(SOFTMAX), .to = SCORES, .reads = {T(3)}, F32, .when = is_autocast},
    {RUN(SOFTMAX), .to = SCORES, .reads = {T(3)}, .typed = Q, .when = is_plain},
    {SAVE(2, SCORES), .done = {T(3)}},
    {CAST(SCORES, SCORES), .typed = V},
    WEIGH_VALUES,
    {.action = TSR__DO_END}};
static const tsr__op_step gpt2_backward[] = {
    WEIGH_VALUES_BACK(V),
    {RUN(FULL), .to = T(2), .like = T(1), .shape = scalar, .scalars = {NUMBER(0)},
     .node = "WhereBackward0"},
    {RUN(WHERE), .to = T(1), .reads = {CAUSAL, T(1), T(2)}, .like = T(1), .done = {T(2)}},
    {RUN(DIV), .to = T(1), .reads = {T(1), DIVISOR}, .node = "DivBackward0",
     .within = "div_tensor_self_backward", .done = {DIVISOR}},
    PRODUCT_BACK,
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_attention_gpt2 = {.name = "eager attention",
                                            .node = "CloneBackward0",
                                            .forward = gpt2_forward,
                                            .backward = gpt2_backward};

/* ---- Llama ---- */

static const tsr__op_step llama_forward[] = {
    PRODUCT_OF_QUERIES_AND_KEYS,
    {RUN(MUL), .to = SCORES, .reads = {SCORES}, .scalars = {RULE(scale)}},
    {RUN(ADD), .to = SCORES, .reads = {SCORES, MASK}, PROMOTED, .when = has_mask},
    {RUN(TO_COPY), .to = T(3), .reads = {SCORES}, F32, .when = copies_for_llama},
    {PASS(T(3), SCORES), .when = takes_as_is},
    {RUN(SOFTMAX), .to = T(4), .reads = {T(3)}, F32, .done = {T(3)}},
    {SAVE(2, T(4))},
    {CAST(T(3), T(4)), .typed = Q}, /* the variable holds the scores until this replaces them */
    {MOVE(SCORES, T(3)), .done = {T(4)}},
    WEIGH_VALUES,
    {.action = TSR__DO_END}};
static const tsr__op_step llama_backward[] = {WEIGH_VALUES_BACK(Q),
                                              {RUN(MUL), .to = T(1), .reads = {T(1)},
                                               .scalars = {RULE(scale)}, .node = "MulBackward0",
                                               .within = "mul_tensor_backward"},
                                              PRODUCT_BACK,
                                              {.action = TSR__DO_END}};
const tsr__op_row tsr__op_attention_llama = {.name = "eager attention",
                                             .node = "CloneBackward0",
                                             .forward = llama_forward,
                                             .backward = llama_backward};
