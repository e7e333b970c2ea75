/* op_eager.c - attention written out: matmul, scale, mask, softmax, dropout, matmul.
 *
 * As transformers' eager_attention_forward has it (modeling_gpt2.py, modeling_llama.py). GPT-2
 * divides by a tensor, writes the smallest number where its own mask is false and adds the model's
 * mask; the Llama family multiplies, adds, and takes the softmax in fp32. Kept for backward: q and
 * k as the matrix product took them, the softmax, the dropout's mask, the weights after it, v.
 *
 * matmul wants its operands as batches of matrices: what does not lie so is copied. Inputs: q, k, v
 * (as many heads each), mask. Outputs: the result (batch, rows, heads * width), and the weights,
 * which the caller's function holds. */
#include "engine/table.h"

#define Q       IN(0)
#define K       IN(1)
#define V       IN(2)
#define MASK    IN(3)
#define SAVED_Q SAVED(0)
#define SAVED_K SAVED(1)
#define SOFTMAX SAVED(2)
#define WEIGHTS SAVED(3)
#define SAVED_V SAVED(4)
#define DROPPED SAVED(5)
#define SCORES  T(2)

static tsr__shape scores(const tsr__call *call) {
  tsr__shape shape = tsr__shape_in(call, Q);
  shape.dim[3] = tsr__shape_in(call, K).dim[2];
  return shape;
}

static tsr__shape merged(const tsr__call *call) {
  tsr__shape q = tsr__shape_in(call, Q);
  return TSR__SHAPE(q.dim[0], q.dim[2], q.dim[1] * q.dim[3]);
}

static tsr__shape scalar(const tsr__call *call) {
  (void)call;
  return TSR__SCALAR;
}

static bool has_mask(const tsr__call *call) {
  return call->reg[MASK] != 0;
}
static bool has_dropout(const tsr__call *call) {
  return call->attributes->has_dropout;
}

/* The softmax in fp32 reads bf16 only as a copy, fp16 as it is. */
static bool copies_for_llama(const tsr__call *call) {
  return tsr__type_in(call, SCORES) != TSR__F32 &&
         (call->tape->is_autocast || tsr__type_in(call, Q) == TSR__BF16);
}
static bool copies_for_gpt2(const tsr__call *call) {
  return tsr__type_in(call, SCORES) != TSR__F32 && call->tape->is_autocast;
}

/* GPT-2's softmax is in the type of the model, and so in that of q; in fp32 under autocast. */
static bool is_autocast(const tsr__call *call) {
  return call->tape->is_autocast;
}
static bool is_plain(const tsr__call *call) {
  return !call->tape->is_autocast;
}

#define PRODUCT_OF_QUERIES_AND_KEYS                                       \
  {DENSE(T(0), Q)}, {DENSE(T(1), K)}, {SAVE(0, T(0))}, {SAVE(1, T(1))}, { \
    RUN(BMM), .to = SCORES, .from = {T(0), T(1)}, .shape = scores         \
  }

/* From the softmax, in SCORES, to the results. */
#define WEIGH_VALUES                                                                              \
  {SAVE(2, SCORES)}, {CAST(SCORES, SCORES), .typed = Q},                                          \
      {MAKE(DROPOUT), .to = T(3), .like = SCORES, .when = has_dropout},                           \
      {MAKE(DROPOUT), .to = T(4), .like = SCORES, BOOL, .when = has_dropout},                     \
      {RUN(DROPOUT), .from = {SCORES}, .when = has_dropout},                                      \
      {SAVE(5, T(4)), .when = has_dropout, .done = {T(4), SCORES}},                               \
      {MOVE(SCORES, T(3)), .when = has_dropout}, {DENSE(T(5), V)}, {SAVE(3, SCORES)},             \
      {SAVE(4, T(5))}, {RUN(BMM), .to = T(6), .from = {SCORES, T(5)}, .like = Q, .done = {T(5)}}, \
      {RUN(CLONE), .to = OUT(0), .from = {T(6)}, .shape = merged, .done = {T(6)}}, {              \
    MOVE(OUT(1), SCORES)                                                                          \
  }

/* From the result's gradient to that of the scores, in T(1). */
#define WEIGH_VALUES_BACK                                                                      \
  {RUN(CLONE),                                                                                 \
   .to = T(0),                                                                                 \
   .from = {GRAD_OUT(0)},                                                                      \
   .like = Q,                                                                                  \
   .node = "UnsafeViewBackward0",                                                              \
   .done = {GRAD_OUT(0)}},                                                                     \
      {RUN(BMM),                                                                               \
       .to = T(1),                                                                             \
       .from = {T(0), SAVED_V},                                                                \
       .like = Q,                                                                              \
       .shape = scores,                                                                        \
       .node = "BmmBackward0",                                                                 \
       .within = "bmm_self_backward"},                                                         \
      {RUN(BMM),                                                                               \
       .to = GRAD_IN(2),                                                                       \
       .from = {WEIGHTS, T(0)},                                                                \
       .like = V,                                                                              \
       .typed = Q,                                                                             \
       .within = "bmm_mat2_backward",                                                          \
       .is_transposed = true,                                                                  \
       .done = {T(0), WEIGHTS, SAVED_V}},                                                      \
      {RUN(DROPOUT_BACKWARD),                                                                  \
       .to = T(1),                                                                             \
       .from = {T(1), DROPPED},                                                                \
       .when = has_dropout,                                                                    \
       .node = "NativeDropoutBackward0",                                                       \
       .done = {DROPPED}},                                                                     \
      {CAST(T(1), T(1)), .typed = SOFTMAX, .node = "ToCopyBackward0"},                         \
      {RUN(SOFTMAX_BACKWARD), .to = T(1), .from = {T(1), SOFTMAX}, .node = "SoftmaxBackward0", \
       .done = {SOFTMAX}},                                                                     \
  {                                                                                            \
    CAST(T(1), T(1)), .typed = Q, .node = "ToCopyBackward0"                                    \
  }

/* From the gradient of the product to those of q and k. */
#define PRODUCT_BACK                                                            \
  {RUN(BMM),  .to = GRAD_IN(0),       .from = {T(1), SAVED_K},                  \
   .like = Q, .node = "BmmBackward0", .within = "bmm_self_backward"},           \
  {                                                                             \
    RUN(BMM), .to = GRAD_IN(1), .from = {T(1), SAVED_Q}, .like = K, .typed = Q, \
              .within = "bmm_mat2_backward", .is_transposed = true, .done = {   \
                T(1)                                                            \
              }                                                                 \
  }

/* ---- GPT-2 ---- */

static const tsr__step gpt2_forward[] = {
    PRODUCT_OF_QUERIES_AND_KEYS,
    {RUN(FULL), .to = T(3), .like = Q, .shape = scalar},
    {RUN(DIV), .to = SCORES, .from = {SCORES, T(3)}, .done = {T(3)}},
    {RUN(FULL), .to = T(3), .like = Q, .shape = scalar},
    {RUN(WHERE), .to = SCORES, .from = {SCORES, T(3)}, .done = {T(3)}},
    {RUN(ADD), .to = SCORES, .from = {SCORES, MASK}, PROMOTED, .when = has_mask},
    {FREE(T(1), T(0))},
    {RUN(TO_COPY), .to = SCORES, .from = {SCORES}, F32, .when = copies_for_gpt2},
    {RUN(SOFTMAX), .to = SCORES, .from = {SCORES}, F32, .when = is_autocast},
    {RUN(SOFTMAX), .to = SCORES, .from = {SCORES}, .typed = Q, .when = is_plain},
    WEIGH_VALUES,
    {.action = TSR__DO_END}};
static const tsr__step gpt2_backward[] = {
    WEIGH_VALUES_BACK,
    {RUN(WHERE), .to = T(1), .from = {T(1)}, .node = "WhereBackward0"},
    {RUN(DIV), .to = T(1), .from = {T(1)}, .node = "DivBackward0",
     .within = "div_tensor_self_backward"},
    PRODUCT_BACK,
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_attention_gpt2 = {.name = "eager attention",
                                            .node = "CloneBackward0",
                                            .autocast = TSR__AUTOCAST_LOW,
                                            .forward = gpt2_forward,
                                            .backward = gpt2_backward};

/* ---- Llama ---- */

static const tsr__step llama_forward[] = {
    PRODUCT_OF_QUERIES_AND_KEYS,
    {RUN(MUL), .to = SCORES, .from = {SCORES}},
    {RUN(ADD), .to = SCORES, .from = {SCORES, MASK}, PROMOTED, .when = has_mask},
    {FREE(T(1), T(0))},
    {RUN(TO_COPY), .to = SCORES, .from = {SCORES}, F32, .when = copies_for_llama},
    {RUN(SOFTMAX), .to = SCORES, .from = {SCORES}, F32},
    WEIGH_VALUES,
    {.action = TSR__DO_END}};
static const tsr__step llama_backward[] = {
    WEIGH_VALUES_BACK,
    {RUN(MUL), .to = T(1), .from = {T(1)}, .node = "MulBackward0", .within = "mul_tensor_backward"},
    PRODUCT_BACK,
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_attention_llama = {.name = "eager attention",
                                             .node = "CloneBackward0",
                                             .autocast = TSR__AUTOCAST_LOW,
                                             .forward = llama_forward,
                                             .backward = llama_backward};
