/* op_attention.c - attention in one kernel: q, k, v and, perhaps, a mask.
 *
 * Shapes: q (batch, heads, rows, width), k and v (batch, kv heads, columns, width); the result is
 * (batch, rows, heads * width), as the output projection wants it: the kernels write it so.
 *
 *   memory-efficient  saves q, k, v, out, a log-sum-exp per row (rows rounded up to 32) and the
 *                     dropout's seed and offset; a mask is a float tensor for it, so that a boolean
 *                     one is converted, and kept (transformers/attention.cu, attention_backward.cu)
 *   flash             the same, without masks; its backward accumulates dq in fp32 (flash_api.cpp)
 *   chunked           our own: scores of `chunk` query rows exist at a time, in both directions
 *
 * op_eager.c has attention as four operations. */
#include "engine/table.h"

#define Q       IN(0)
#define K       IN(1)
#define V       IN(2)
#define MASK    IN(3)
#define SAVED_Q SAVED(0)
#define SAVED_K SAVED(1)
#define SAVED_V SAVED(2)
#define RESULT  SAVED(3)
#define LSE     SAVED(4)

/* ---- shapes ---- */

static tsr__shape result(const tsr__call *call) {
  tsr__shape q = tsr__shape_in(call, Q);
  return TSR__SHAPE(q.dim[0], q.dim[2], q.dim[1] * tsr__shape_in(call, V).dim[3]);
}

static tsr__shape rows(const tsr__call *call) {
  tsr__shape q = tsr__shape_in(call, Q);
  return TSR__SHAPE(q.dim[0], q.dim[1], q.dim[2]);
}

static tsr__shape rows_32(const tsr__call *call) {
  tsr__shape q = tsr__shape_in(call, Q);
  return TSR__SHAPE(q.dim[0], q.dim[1], tsr__round_up(q.dim[2], 32));
}

static tsr__shape rows_128(const tsr__call *call) {
  tsr__shape q = tsr__shape_in(call, Q);
  return TSR__SHAPE(q.dim[0], q.dim[1], tsr__round_up(q.dim[2], 128));
}

static tsr__shape padded_queries(const tsr__call *call) {
  tsr__shape q = tsr__shape_in(call, Q);
  return TSR__SHAPE(q.dim[0], tsr__round_up(q.dim[2], 128), q.dim[1], tsr__round_up(q.dim[3], 32));
}

/* The mask's rows are whole 16 elements long for the kernel. */
static tsr__shape padded_mask(const tsr__call *call) {
  tsr__shape shape = tsr__shape_in(call, MASK);
  shape.dim[3] = tsr__round_up(shape.dim[3], 16);
  return shape;
}

static tsr__shape one(const tsr__call *call) {
  (void)call;
  return TSR__SHAPE(1);
}

static tsr__shape two(const tsr__call *call) {
  (void)call;
  return TSR__SHAPE(2);
}

static tsr__shape scalar(const tsr__call *call) {
  (void)call;
  return TSR__SCALAR;
}

/* q, k and v in one, as the gradient of what they are views of. */
static tsr__shape packed(const tsr__call *call) {
  tsr__shape q = tsr__shape_in(call, Q);
  return TSR__SHAPE(q.dim[0], q.dim[2], 3, q.dim[1] * q.dim[3]);
}

static tsr__shape all_heads(const tsr__call *call) {
  tsr__shape k = tsr__shape_in(call, K);
  k.dim[1] = tsr__shape_in(call, Q).dim[1];
  return k;
}

static uint64_t chunks(const tsr__call *call) {
  uint64_t chunk = call->attributes->chunk;
  return tsr__round_up(tsr__shape_in(call, Q).dim[2], chunk) / chunk;
}

static tsr__shape scores(const tsr__call *call) {
  tsr__shape q = tsr__shape_in(call, Q);
  uint64_t chunk = call->attributes->chunk, left = q.dim[2] - call->turn * chunk;
  return TSR__SHAPE(q.dim[0], q.dim[1], left < chunk ? left : chunk, tsr__shape_in(call, K).dim[2]);
}

/* ---- conditions ---- */

static bool has_mask(const tsr__call *call) {
  return call->reg[MASK] != 0;
}
static bool has_odd_mask(const tsr__call *call) {
  return has_mask(call) && tsr__shape_in(call, MASK).dim[3] % 16;
}
static bool is_packed(const tsr__call *call) {
  return call->attributes->is_packed;
}
static bool is_apart(const tsr__call *call) {
  return !is_packed(call);
}
static bool is_half(const tsr__call *call) {
  return tsr__is_half(tsr__type_in(call, Q));
}
static bool is_full(const tsr__call *call) {
  return !is_half(call);
}
static bool is_grouped(const tsr__call *call) {
  return tsr__shape_in(call, K).dim[1] != tsr__shape_in(call, Q).dim[1];
}

/* ---- what all have in common ---- */

#define SAVE_QKV_AND_RESULT                                      \
  {SAVE(0, Q)}, {SAVE(1, K)}, {SAVE(2, V)}, {SAVE(3, OUT(0))}, { \
    SAVE(4, T(1))                                                \
  }

/* Gradients of q, k and v: parts of one tensor where these were. */
#define MAKE_GRADIENTS(name)                                                                   \
  {MAKE(name), .to = T(0), .like = Q, .shape = packed, .when = is_packed},                     \
      {VIEW(GRAD_IN(0), T(0)), .like = Q, .when = is_packed},                                  \
      {VIEW(GRAD_IN(1), T(0)), .like = K, .when = is_packed},                                  \
      {VIEW(GRAD_IN(2), T(0)), .like = V, .when = is_packed}, {FREE(T(0)), .when = is_packed}, \
      {MAKE(name), .to = GRAD_IN(0), .like = Q, .when = is_apart},                             \
      {MAKE(name), .to = GRAD_IN(1), .like = K, .when = is_apart}, {                           \
    MAKE(name), .to = GRAD_IN(2), .like = V, .when = is_apart                                  \
  }

/* ---- memory-efficient ---- */

static const tsr__step efficient_forward[] = {
    {RUN(ZEROS_LIKE), .to = T(0), .from = {MASK}, .typed = Q, .when = has_mask},
    {RUN(NOT), .to = T(1), .from = {MASK}, .when = has_mask},
    {INTO(MASKED_FILL), .from = {T(0), T(1)}, .done = {T(1)}, .when = has_mask},
    {RUN(PAD), .to = T(0), .from = {T(0)}, .shape = padded_mask, .when = has_odd_mask},
    {MAKE(EFFICIENT), .to = OUT(0), .like = Q, .shape = result},
    {MAKE(EFFICIENT), .to = T(1), F32, .shape = rows_32},
    {MAKE(EFFICIENT), .to = T(2), I64, .shape = one},    /* seed */
    {MAKE(EFFICIENT), .to = T(3), I64, .shape = scalar}, /* offset */
    {RUN(EFFICIENT), .from = {Q, K, V, T(0)}},
    SAVE_QKV_AND_RESULT,
    {SAVE(5, T(2))},
    {SAVE(6, T(3))},
    {SAVE(7, T(0))},
    {FREE(T(1), T(2), T(3), T(0))},
    {.action = TSR__DO_END}};
/* In fp32 the kernel leaves the row sums of gradient times result to others; in 16 bits it needs room
 * to add up dq. */
static const tsr__step efficient_backward[] = {
    MAKE_GRADIENTS(EFFICIENT_BACKWARD),
    {RUN(MUL), .to = T(1), .from = {GRAD_OUT(0), RESULT}, .when = is_full,
     .by = TSR__KERNEL_EFFICIENT_BACKWARD},
    {RUN(SUM), .to = T(2), .from = {T(1)}, .shape = rows, .when = is_full,
     .by = TSR__KERNEL_EFFICIENT_BACKWARD, .done = {T(1)}},
    {RUN(CLONE), .to = T(3), .from = {T(2)}, .when = is_full, .by = TSR__KERNEL_EFFICIENT_BACKWARD,
     .done = {T(2)}},
    {MAKE(EFFICIENT_BACKWARD), .to = T(3), F32, .like = Q, .shape = rows, .when = is_half},
    {MAKE(EFFICIENT_BACKWARD), .to = T(4), F32, .like = Q, .shape = result, .when = is_half},
    {RUN(EFFICIENT_BACKWARD), .from = {SAVED_Q, SAVED_K, SAVED_V, GRAD_OUT(0)},
     .done = {T(4), T(3)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_attention_efficient = {.name = "memory-efficient attention",
                                                 .node =
                                                     "ScaledDotProductEfficientAttentionBackward0",
                                                 .autocast = TSR__AUTOCAST_LOW,
                                                 .forward = efficient_forward,
                                                 .backward = efficient_backward};

/* ---- flash ---- */

static const tsr__step flash_forward[] = {
    {MAKE(FLASH), .to = OUT(0), .like = Q, .shape = result},
    {MAKE(FLASH), .to = T(1), F32, .shape = rows},
    {MAKE(FLASH), .to = T(2), I64, .shape = two},    /* seed and offset */
    {MAKE(FLASH), .to = T(3), I64, .shape = scalar}, /* unused */
    {RUN(FLASH), .from = {Q, K, V}},
    SAVE_QKV_AND_RESULT,
    {SAVE(5, T(2))},
    {SAVE(6, T(3))},
    {FREE(T(1), T(2), T(3))},
    {.action = TSR__DO_END}};
/* With fewer keys than queries, gradients of keys and values for all heads, to be summed over those
 * that share one. */
static const tsr__step flash_backward[] = {
    MAKE_GRADIENTS(FLASH_BACKWARD),
    {MAKE(FLASH_BACKWARD), .to = T(1), F32, .shape = rows_128},
    {MAKE(FLASH_BACKWARD), .to = T(2), F32, .shape = padded_queries},
    {MAKE(FLASH_BACKWARD), .to = T(3), .like = Q, .shape = all_heads, .when = is_grouped},
    {MAKE(FLASH_BACKWARD), .to = T(4), .like = Q, .shape = all_heads, .when = is_grouped},
    {RUN(FLASH_BACKWARD), .from = {SAVED_Q, SAVED_K, SAVED_V, GRAD_OUT(0)},
     .done = {T(4), T(3), T(2), T(1)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_attention_flash = {.name = "flash attention",
                                             .node = "ScaledDotProductFlashAttentionBackward0",
                                             .autocast = TSR__AUTOCAST_LOW,
                                             .forward = flash_forward,
                                             .backward = flash_backward};

/* ---- chunked ---- */

static const tsr__step chunked_forward[] = {
    {RUN(EMPTY_LIKE), .to = OUT(0), .like = Q, .shape = result},
    {RUN(EMPTY_LIKE), .to = T(1), F32, .shape = rows},
    {LOOP(chunks)},
    {RUN(BMM), .to = T(2), .from = {Q, K}, .shape = scores},
    {RUN(SOFTMAX), .to = T(3), .from = {T(2)}, F32, .done = {T(2)}},
    {INTO(BMM), .from = {OUT(0), T(3), V}, .done = {T(3)}},
    {AGAIN},
    SAVE_QKV_AND_RESULT,
    {FREE(T(1))},
    {.action = TSR__DO_END}};
/* Of each chunk: the scores again, from which and the log-sum-exp the weights; then the gradient of
 * the weights, and what it adds to those of q, k and v. */
static const tsr__step chunked_backward[] = {
    MAKE_GRADIENTS(CHUNKED_BACKWARD),
    {LOOP(chunks)},
    {RUN(BMM), .to = T(1), .from = {SAVED_Q, SAVED_K, LSE}, F32, .shape = scores,
     .within = "chunked_attention_backward"},
    {RUN(BMM), .to = T(2), .from = {SAVED_V, GRAD_OUT(0), RESULT}, F32, .like = SAVED_Q,
     .shape = scores, .within = "chunked_attention_backward"},
    {INTO(BMM), .from = {GRAD_IN(2), T(1), SAVED_V}},
    {INTO(BMM), .from = {GRAD_IN(0), T(2), SAVED_K}},
    {INTO(BMM), .from = {GRAD_IN(1), T(2), SAVED_Q}},
    {FREE(T(2), T(1))},
    {AGAIN},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_attention_chunked = {.name = "chunked attention",
                                               .node = "ChunkedAttentionBackward",
                                               .autocast = TSR__AUTOCAST_LOW,
                                               .forward = chunked_forward,
                                               .backward = chunked_backward};
