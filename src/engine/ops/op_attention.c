/* op_attention.c - attention in one kernel: q, k, v and optionally a mask.
 *
 * Shapes: q (batch, heads, rows, width), k and v (batch, kv heads, columns, width). The result is (batch, rows,
 * heads * width), the layout that the kernels write and the output projection needs.
 *
 *   memory-efficient  saves q, k, v, out, a log-sum-exp per row (rows rounded up to 32; not made
 *                     without gradients) and the dropout's seed and offset; it takes a mask as a float
 *                     tensor, so a boolean one is converted and kept: where(not mask, -inf, 0)
 *                     (transformers/attention.cpp, cuda/attention.cu, attention_backward.cu)
 *   flash             the same, without masks; its backward accumulates dq in fp32 (flash_api.cpp)
 *   chunked           our own: scores of `chunk` query rows exist at a time, in both directions
 *
 * op_eager.c has attention as four operations. */
#include <math.h>

#include "graph/table.h"
#include "kernels/scratch.h"

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

static tsr__shape result(const tsr__op_call *call) {
  tsr__shape q = tsr__op_shape(call, Q);
  return TSR__SHAPE(q.dim[0], q.dim[2], q.dim[1] * tsr__op_shape(call, V).dim[3]);
}

static tsr__shape rows(const tsr__op_call *call) {
  return tsr__scratch_rows(tsr__op_shape(call, Q));
}

static tsr__shape row_sums(const tsr__op_call *call) {
  tsr__shape q = tsr__op_shape(call, Q);
  return TSR__SHAPE(q.dim[0], q.dim[1], q.dim[2], 1);
}

static tsr__shape rows_32(const tsr__op_call *call) {
  tsr__shape q = tsr__op_shape(call, Q);
  return TSR__SHAPE(q.dim[0], q.dim[1], tsr__shape_round_up(q.dim[2], 32));
}

static tsr__shape rows_128(const tsr__op_call *call) {
  return tsr__scratch_flash_rows(tsr__op_shape(call, Q));
}

static tsr__shape padded_queries(const tsr__op_call *call) {
  return tsr__scratch_flash_queries(tsr__op_shape(call, Q));
}

/* The kernel needs rows of the mask that are a multiple of 16 elements. */
static tsr__shape padded_mask(const tsr__op_call *call) {
  tsr__shape shape = tsr__op_shape(call, MASK);
  shape.dim[3] = tsr__shape_round_up(shape.dim[3], 16);
  return shape;
}

static tsr__shape one(const tsr__op_call *call) {
  (void)call;
  return TSR__SHAPE(1);
}

static tsr__shape two(const tsr__op_call *call) {
  (void)call;
  return TSR__SHAPE(2);
}

static tsr__shape scalar(const tsr__op_call *call) {
  (void)call;
  return TSR__SCALAR;
}

/* q, k and v in one tensor: the shape of the gradient of the tensor that they are views of. */
static tsr__shape packed(const tsr__op_call *call) {
  tsr__shape q = tsr__op_shape(call, Q);
  return TSR__SHAPE(q.dim[0], q.dim[2], 3, q.dim[1] * q.dim[3]);
}

static uint64_t chunks(const tsr__op_call *call) {
  uint64_t chunk = call->attributes->chunk;
  return tsr__shape_round_up(tsr__op_shape(call, Q).dim[2], chunk) / chunk;
}

static tsr__shape scores(const tsr__op_call *call) {
  tsr__shape q = tsr__op_shape(call, Q);
  uint64_t chunk = call->attributes->chunk, left = q.dim[2] - call->turn * chunk;
  return TSR__SHAPE(q.dim[0], q.dim[1], left < chunk ? left : chunk, tsr__op_shape(call, K).dim[2]);
}

/* ---- numbers ---- */

static double scale(const tsr__op_call *call) {
  return 1 / sqrt((double)tsr__op_shape(call, Q).dim[3]);
}
static double dropout(const tsr__op_call *call) {
  return call->attributes->dropout;
}
/* The kernel is causal, unless a mask decides which positions attend to which. */
static double is_causal(const tsr__op_call *call) {
  return !call->reg[MASK];
}
static double window(const tsr__op_call *call) {
  return (double)call->attributes->window;
}
static double position(const tsr__op_call *call) {
  return (double)call->attributes->position;
}
static double first_row(const tsr__op_call *call) {
  return (double)(call->turn * call->attributes->chunk);
}

/* ---- views ---- */

/* View q, k or v, or its gradient, within one tensor (batch, rows, 3, heads * width). */
static tsr__layout part(const tsr__op_call *call, tsr__layout layout, uint64_t index) {
  tsr__shape q = tsr__op_shape(call, Q);
  uint64_t size = q.dim[1] * q.dim[3];
  assert(layout.shape.rank == 4 && layout.shape.dim[2] == 3 && layout.shape.dim[3] == size);
  return (tsr__layout){.shape = q,
                       .stride = {layout.stride[0], q.dim[3], layout.stride[1], 1},
                       .offset = layout.offset + index * size};
}
static tsr__layout part_0(const tsr__op_call *call, tsr__layout layout) {
  return part(call, layout, 0);
}
static tsr__layout part_1(const tsr__op_call *call, tsr__layout layout) {
  return part(call, layout, 1);
}
static tsr__layout part_2(const tsr__op_call *call, tsr__layout layout) {
  return part(call, layout, 2);
}

/* The rows of this turn, in a tensor by head. */
static tsr__layout chunk_rows(const tsr__op_call *call, tsr__layout layout) {
  uint64_t first = call->turn * call->attributes->chunk, left = layout.shape.dim[2] - first;
  uint64_t count = left < call->attributes->chunk ? left : call->attributes->chunk;
  return tsr__layout_slice(layout, 2, first, count);
}
/* The same in a result or its gradient, in which each row has all heads. */
static tsr__layout chunk_result(const tsr__op_call *call, tsr__layout layout) {
  return chunk_rows(call, tsr__layout_heads(layout, tsr__op_shape(call, Q).dim[1]));
}
static tsr__layout by_head(const tsr__op_call *call, tsr__layout layout) {
  return tsr__layout_heads(layout, tsr__op_shape(call, Q).dim[1]);
}

/* ---- conditions ---- */

static bool has_mask(const tsr__op_call *call) {
  return call->reg[MASK] != 0;
}
static bool has_odd_mask(const tsr__op_call *call) {
  return has_mask(call) && tsr__op_shape(call, MASK).dim[3] % 16;
}
static bool is_packed(const tsr__op_call *call) {
  return call->attributes->is_packed;
}
static bool is_apart(const tsr__op_call *call) {
  return !is_packed(call);
}
static bool is_half(const tsr__op_call *call) {
  return tsr__dtype_is_half(tsr__op_dtype(call, Q));
}
static bool is_full(const tsr__op_call *call) {
  return !is_half(call);
}
static bool is_grouped(const tsr__op_call *call) {
  return tsr__op_shape(call, K).dim[1] != tsr__op_shape(call, Q).dim[1];
}
static bool is_recorded(const tsr__op_call *call) {
  return call->is_recorded;
}
static bool wants_q(const tsr__op_call *call) {
  return call->reg[GRAD_IN(0)] != 0;
}
static bool is_first_turn(const tsr__op_call *call) {
  return call->turn == 0;
}
static bool is_later_turn(const tsr__op_call *call) {
  return call->turn > 0;
}

/* ---- steps that several kernels share ---- */

/* Backward computes exponentials of the log-sum-exp, whose rows have an end that nobody writes. */
#define SAVE_QKV_AND_RESULT                                      \
  {SAVE(0, Q)}, {SAVE(1, K)}, {SAVE(2, V)}, {SAVE(3, OUT(0))}, { \
    SAVE(4, T(1)), .is_exact = true                              \
  }

/* Make the gradients of q, k and v for our own kernels: parts of one tensor if q, k and v were. PyTorch's kernels
 * could write such parts, but scaled_dot_product_attention does not ask them to. */
#define MAKE_GRADIENTS(name)                                                                \
  {MAKE(name), .to = T(0), .like = Q, .shape = packed, .when = is_packed},                  \
      {VIEW(GRAD_IN(0), T(0), part_0), .when = is_packed},                                  \
      {VIEW(GRAD_IN(1), T(0), part_1), .when = is_packed},                                  \
      {VIEW(GRAD_IN(2), T(0), part_2), .when = is_packed}, {FREE(T(0)), .when = is_packed}, \
      {MAKE(name), .to = GRAD_IN(0), .like = Q, ROWS_FIRST, .when = is_apart},              \
      {MAKE(name), .to = GRAD_IN(1), .like = K, ROWS_FIRST, .when = is_apart}, {            \
    MAKE(name), .to = GRAD_IN(2), .like = V, ROWS_FIRST, .when = is_apart                   \
  }
#define GRADIENTS \
  { GRAD_IN(0), GRAD_IN(1), GRAD_IN(2) }

/* ---- memory-efficient ---- */

#define SEED   SAVED(5)
#define OFFSET SAVED(6)
#define BIAS   SAVED(7)
#define NUMBERS \
  { RULE(scale), RULE(dropout), RULE(is_causal) }

static double minus_infinity(const tsr__op_call *call) {
  (void)call;
  return -INFINITY;
}

static const tsr__op_step efficient_forward[] = {
    {RUN(NOT), .to = T(1), .reads = {MASK}, .when = has_mask},
    {RUN(ZEROS), .to = T(2), .like = Q, .shape = scalar, .when = has_mask},
    {RUN(FULL), .to = T(3), .like = Q, .shape = scalar, .scalars = {RULE(minus_infinity)},
     .when = has_mask},
    {RUN(WHERE), .to = T(0), .reads = {T(1), T(3), T(2)}, .like = MASK, .typed = Q,
     .done = {T(3), T(1), T(2)}, .when = has_mask},
    {RUN(PAD), .to = T(0), .reads = {T(0)}, .scalars = {NUMBER(0)}, .shape = padded_mask,
     .when = has_odd_mask},
    {MAKE(EFFICIENT), .to = OUT(0), .like = Q, .shape = result},
    {MAKE(EFFICIENT), .to = T(1), F32, .shape = rows_32, .when = is_recorded},
    {MAKE(EFFICIENT), .to = T(2), I64, .shape = one},    /* seed */
    {MAKE(EFFICIENT), .to = T(3), I64, .shape = scalar}, /* offset */
    {RUN(EFFICIENT), .reads = {Q, K, V, T(0)}, .writes = {OUT(0), T(1), T(2), T(3)},
     .scalars = NUMBERS},
    SAVE_QKV_AND_RESULT,
    {SAVE(5, T(2))},
    {SAVE(6, T(3))},
    {SAVE(7, T(0)), .is_exact = true}, /* minus infinity */
    {FREE(T(1), T(2), T(3), T(0))},
    {.action = TSR__DO_END}};
/* In fp32 the kernel expects the row sums of gradient times result; in 16 bits it allocates memory for them, and
 * for the sum of dq. */
#define OPERANDS SAVED_Q, SAVED_K, SAVED_V, GRAD_OUT(0), RESULT, LSE, SEED, OFFSET, BIAS
static const tsr__op_step efficient_backward[] = {
    {MAKE(EFFICIENT_BACKWARD), .to = GRAD_IN(0), .like = Q, ROWS_FIRST},
    {MAKE(EFFICIENT_BACKWARD), .to = GRAD_IN(1), .like = K, ROWS_FIRST},
    {MAKE(EFFICIENT_BACKWARD), .to = GRAD_IN(2), .like = V, ROWS_FIRST},
    {RUN(MUL), .to = T(1), .reads = {GRAD_OUT(0), RESULT}, .when = is_full,
     .by = TSR__KERNEL_EFFICIENT_BACKWARD},
    {VIEW(T(5), T(1), by_head), .when = is_full},
    {RUN(SUM), .to = T(2), .reads = {T(5)}, .shape = row_sums, .when = is_full,
     .by = TSR__KERNEL_EFFICIENT_BACKWARD, .done = {T(5), T(1)}},
    {RUN(CLONE), .to = T(3), .reads = {T(2)}, .shape = rows, .when = is_full,
     .by = TSR__KERNEL_EFFICIENT_BACKWARD, .done = {T(2)}},
    {MAKE(EFFICIENT_BACKWARD), .to = T(3), F32, .shape = rows, .when = is_half},
    {MAKE(EFFICIENT_BACKWARD), .to = T(4), F32, .shape = result, .when = is_half},
    {RUN(EFFICIENT_BACKWARD), .reads = {OPERANDS, T(3)}, .writes = GRADIENTS, .scalars = NUMBERS,
     .when = is_full, .done = {T(3)}},
    {RUN(EFFICIENT_BACKWARD), .reads = {OPERANDS}, .writes = GRADIENTS, .scratch = {T(3), T(4)},
     .scalars = NUMBERS, .when = is_half, .done = {T(4), T(3)}},
    {.action = TSR__DO_END}};
#undef OPERANDS
#undef NUMBERS
const tsr__op_row tsr__op_attention_efficient = {.name = "memory-efficient attention",
                                                 .node =
                                                     "ScaledDotProductEfficientAttentionBackward0",
                                                 .autocast = TSR__AUTOCAST_LOW,
                                                 .casts = {1, 2, 3},
                                                 .forward = efficient_forward,
                                                 .backward = efficient_backward};

/* ---- flash ---- */

#define NUMBERS \
  { RULE(scale), RULE(dropout), RULE(is_causal), RULE(window) }

/* The kernel needs heads whose size is a multiple of 16 bytes. Other heads are padded, and the result is cut
 * (pad_last_dim and post_process_flash_output of transformers/attention.cpp). */
enum { HEAD_UNIT = 8 };

static tsr__shape padded(tsr__shape shape) {
  assert(shape.rank == 4);
  shape.dim[3] = tsr__shape_round_up(shape.dim[3], HEAD_UNIT);
  return shape;
}
static tsr__shape padded_q(const tsr__op_call *call) {
  return padded(tsr__op_shape(call, Q));
}
static tsr__shape padded_k(const tsr__op_call *call) {
  return padded(tsr__op_shape(call, K));
}
static tsr__shape padded_v(const tsr__op_call *call) {
  return padded(tsr__op_shape(call, V));
}
static tsr__shape padded_result(const tsr__op_call *call) {
  tsr__shape q = padded_q(call);
  return TSR__SHAPE(q.dim[0], q.dim[2], q.dim[1] * q.dim[3]);
}
/* The same, row by row. */
static tsr__shape padded_rows(const tsr__op_call *call) {
  tsr__shape q = padded_q(call);
  return TSR__SHAPE(q.dim[0], q.dim[2], q.dim[1], q.dim[3]);
}
static tsr__shape padded_heads(const tsr__op_call *call) {
  return tsr__scratch_all_heads(padded_k(call), tsr__op_shape(call, Q).dim[1]);
}

static tsr__layout by_row(const tsr__op_call *call, tsr__layout layout) {
  return tsr__layout_swap(tsr__layout_heads(layout, tsr__op_shape(call, Q).dim[1]), 1, 2);
}
/* Cut off the padding. */
static tsr__layout cut(const tsr__op_call *call, tsr__layout layout) {
  return tsr__layout_slice(layout, 3, 0, tsr__op_shape(call, Q).dim[3]);
}
static tsr__layout cut_rows(const tsr__op_call *call, tsr__layout layout) {
  return cut(call, by_row(call, layout));
}
static tsr__layout as_result(const tsr__op_call *call, tsr__layout layout) {
  return tsr__layout_reshaped(layout, padded_result(call));
}

static bool is_padded(const tsr__op_call *call) {
  return tsr__op_shape(call, Q).dim[3] % HEAD_UNIT != 0;
}
static bool is_whole(const tsr__op_call *call) {
  return !is_padded(call);
}

/* q, k and v as passed to the kernel, its result, and the gradient of the result. */
#define GIVEN_Q  T(4)
#define GIVEN_K  T(5)
#define GIVEN_V  T(6)
#define MADE     T(7)
#define MADE_OUT T(5)

static const tsr__op_step flash_forward[] = {
    {RUN(PAD), .to = GIVEN_Q, .reads = {Q}, .scalars = {NUMBER(0)}, .shape = padded_q,
     .when = is_padded},
    {RUN(PAD), .to = GIVEN_K, .reads = {K}, .scalars = {NUMBER(0)}, .shape = padded_k,
     .when = is_padded},
    {RUN(PAD), .to = GIVEN_V, .reads = {V}, .scalars = {NUMBER(0)}, .shape = padded_v,
     .when = is_padded},
    {PASS(GIVEN_Q, Q), .when = is_whole},
    {PASS(GIVEN_K, K), .when = is_whole},
    {PASS(GIVEN_V, V), .when = is_whole},
    {MAKE(FLASH), .to = MADE, .like = Q, .shape = padded_result},
    {MAKE(FLASH), .to = T(1), F32, .shape = rows},
    {MAKE(FLASH), .to = T(2), I64, .shape = two},    /* seed and offset */
    {MAKE(FLASH), .to = T(3), I64, .shape = scalar}, /* unused */
    {RUN(FLASH), .reads = {GIVEN_Q, GIVEN_K, GIVEN_V}, .writes = {MADE, T(1), T(2), T(3)},
     .scalars = NUMBERS},
    {SAVE(0, GIVEN_Q)},
    {SAVE(1, GIVEN_K)},
    {SAVE(2, GIVEN_V)},
    {SAVE(3, MADE)},
    {SAVE(4, T(1)), .is_exact = true},
    {SAVE(5, T(2))},
    {SAVE(6, T(3))},
    {FREE(T(1), T(2), T(3), GIVEN_Q, GIVEN_K, GIVEN_V)},
    {VIEW(T(8), MADE, cut_rows), .when = is_padded},
    {RUN(CLONE), .to = OUT(0), .reads = {T(8)}, .shape = result, .done = {T(8), MADE},
     .when = is_padded},
    {MOVE(OUT(0), MADE), .when = is_whole},
    {.action = TSR__DO_END}};

/* Cut the gradient of a padded tensor. */
#define CUT_GRADIENT(i, of)                                                                \
  {VIEW(T(6), of, cut), .when = is_padded}, {                                              \
    RUN(CLONE), .to = GRAD_IN(i), .reads = {T(6)}, .like = IN(i), .typed = T(6), IN_ORDER, \
                .node = "ConstantPadNdBackward0", .when = is_padded, .done = {             \
                  T(6),                                                                    \
                  of                                                                       \
                }                                                                          \
  }
/* Gradients have the layout of what the kernel was given. With fewer keys than queries, it makes the gradients of
 * keys and values for all heads, which are then summed over those that share one. */
static const tsr__op_step flash_backward[] = {
    {VIEW(T(6), GRAD_OUT(0), by_row), .when = is_padded},
    {RUN(SLICE_BACKWARD), .to = T(7), .reads = {T(6)}, .scalars = {NUMBER(0)}, .shape = padded_rows,
     .node = "SliceBackward0", .when = is_padded, .done = {T(6), GRAD_OUT(0)}},
    {VIEW(MADE_OUT, T(7), as_result), .when = is_padded, .done = {T(7)}},
    {PASS(MADE_OUT, GRAD_OUT(0)), .when = is_whole},
    {MAKE(FLASH_BACKWARD), .to = T(9), .like = SAVED_Q, .when = is_padded,
     .node = "ScaledDotProductFlashAttentionBackward0"},
    {MAKE(FLASH_BACKWARD), .to = T(10), .like = SAVED_K, .when = is_padded},
    {MAKE(FLASH_BACKWARD), .to = T(11), .like = SAVED_V, .when = is_padded},
    {MAKE(FLASH_BACKWARD), .to = GRAD_IN(0), .like = Q, .when = is_whole},
    {MAKE(FLASH_BACKWARD), .to = GRAD_IN(1), .like = K, .when = is_whole},
    {MAKE(FLASH_BACKWARD), .to = GRAD_IN(2), .like = V, .when = is_whole},
    {MAKE(FLASH_BACKWARD), .to = T(1), F32, .shape = rows_128},
    {MAKE(FLASH_BACKWARD), .to = T(2), F32, .shape = padded_queries},
    {MAKE(FLASH_BACKWARD), .to = T(3), .like = Q, .shape = padded_heads, .when = is_grouped},
    {MAKE(FLASH_BACKWARD), .to = T(4), .like = Q, .shape = padded_heads, .when = is_grouped},
    {RUN(FLASH_BACKWARD), .reads = {SAVED_Q, SAVED_K, SAVED_V, MADE_OUT, RESULT, LSE, SEED},
     .writes = GRADIENTS, .scratch = {T(1), T(2), T(3), T(4)}, .scalars = NUMBERS,
     .when = is_whole},
    {RUN(FLASH_BACKWARD), .reads = {SAVED_Q, SAVED_K, SAVED_V, MADE_OUT, RESULT, LSE, SEED},
     .writes = {T(9), T(10), T(11)}, .scratch = {T(1), T(2), T(3), T(4)}, .scalars = NUMBERS,
     .when = is_padded},
    {FREE(T(4), T(3), T(2), T(1), MADE_OUT)},
    {FREE(SAVED_Q, SAVED_K, SAVED_V, LSE, RESULT, SEED), .when = is_padded},
    {FREE(OFFSET), .when = is_padded},
    CUT_GRADIENT(2, T(11)),
    CUT_GRADIENT(1, T(10)),
    CUT_GRADIENT(0, T(9)),
    {.action = TSR__DO_END}};
#undef NUMBERS
const tsr__op_row tsr__op_attention_flash = {.name = "flash attention",
                                             .node = "ScaledDotProductFlashAttentionBackward0",
                                             .autocast = TSR__AUTOCAST_LOW,
                                             .casts = {1, 2, 3},
                                             .forward = flash_forward,
                                             .backward = flash_backward};

/* ---- chunked ---- */

#define Q_CHUNK      T(5)
#define LSE_CHUNK    T(6)
#define RESULT_CHUNK T(7)
#define GRAD_CHUNK   T(8)
#define DQ_CHUNK     T(9)

static const tsr__op_step chunked_forward[] = {
    {MAKE(EMPTY_LIKE), .to = OUT(0), .like = Q, .shape = result},
    {MAKE(EMPTY_LIKE), .to = T(1), F32, .shape = rows},
    {LOOP(chunks)},
    {VIEW(Q_CHUNK, Q, chunk_rows)},
    {VIEW(LSE_CHUNK, T(1), chunk_rows)},
    {VIEW(RESULT_CHUNK, OUT(0), chunk_result)},
    {RUN(BMM), .to = T(2), .reads = {Q_CHUNK, K}, SECOND_TRANSPOSED, .shape = scores},
    {MAKE(CHUNK_SOFTMAX), .to = T(3), F32, .like = T(2)},
    {RUN(CHUNK_SOFTMAX), .reads = {T(2)}, .writes = {T(3), LSE_CHUNK},
     .scalars = {RULE(scale), RULE(first_row), RULE(dropout), RULE(window)}, .done = {T(2)}},
    {INTO(BMM), .reads = {T(3), V}, .writes = {RESULT_CHUNK}, .done = {T(3)}},
    {FREE(RESULT_CHUNK, LSE_CHUNK, Q_CHUNK)},
    {AGAIN},
    SAVE_QKV_AND_RESULT,
    {FREE(T(1))},
    {.action = TSR__DO_END}};
/* For each chunk: compute the scores again, and the softmax from them and the log-sum-exp; then the gradient of the
 * scores, and what it adds to those of q, k and v. The first chunk writes the gradients of k and v, the others add
 * to them. */
static const tsr__op_step chunked_backward[] = {
    MAKE_GRADIENTS(CHUNKED),
    {LOOP(chunks)},
    {VIEW(Q_CHUNK, SAVED_Q, chunk_rows)},
    {VIEW(LSE_CHUNK, LSE, chunk_rows)},
    {VIEW(RESULT_CHUNK, RESULT, chunk_result)},
    {VIEW(GRAD_CHUNK, GRAD_OUT(0), chunk_result)},
    {VIEW(DQ_CHUNK, GRAD_IN(0), chunk_rows), .when = wants_q},
    {RUN(CHUNK_WEIGHTS), .to = T(1), .reads = {Q_CHUNK, SAVED_K, LSE_CHUNK},
     .scalars = {RULE(scale), RULE(first_row), RULE(window)}, F32, .shape = scores,
     .within = "chunked_attention_backward"},
    {RUN(CHUNK_BACKWARD), .to = T(2), .reads = {GRAD_CHUNK, SAVED_V, RESULT_CHUNK, T(1)},
     .writes = {0, T(1)}, .scalars = {RULE(scale), RULE(dropout)}, F32, .shape = scores,
     .within = "chunked_attention_backward"},
    {INTO(BMM), .reads = {T(1), GRAD_CHUNK}, FIRST_TRANSPOSED, .writes = {GRAD_IN(2)},
     .when = is_first_turn},
    {INTO(BMM), .reads = {T(1), GRAD_CHUNK, GRAD_IN(2)}, FIRST_TRANSPOSED, .writes = {GRAD_IN(2)},
     .when = is_later_turn},
    {INTO(BMM), .reads = {T(2), SAVED_K}, .writes = {DQ_CHUNK}},
    {INTO(BMM), .reads = {T(2), Q_CHUNK}, FIRST_TRANSPOSED, .writes = {GRAD_IN(1)},
     .when = is_first_turn},
    {INTO(BMM), .reads = {T(2), Q_CHUNK, GRAD_IN(1)}, FIRST_TRANSPOSED, .writes = {GRAD_IN(1)},
     .when = is_later_turn},
    {FREE(T(2), T(1))},
    {FREE(DQ_CHUNK, GRAD_CHUNK, RESULT_CHUNK, LSE_CHUNK, Q_CHUNK)},
    {AGAIN},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_attention_chunked = {.name = "chunked attention",
                                               .node = "ChunkedAttentionBackward",
                                               .autocast = TSR__AUTOCAST_LOW,
                                               .forward = chunked_forward,
                                               .backward = chunked_backward};

/* ---- tessera's own: flash in any type, which keeps only the result and the log-sum-exps ---- */

#define NUMBERS RULE(scale), RULE(dropout), RULE(is_causal), RULE(window)

static const tsr__op_step own_forward[] = {{MAKE(FLASH), .to = OUT(0), .like = Q, .shape = result},
                                           {MAKE(FLASH), .to = T(1), .like = Q, F32, .shape = rows},
                                           {RUN(FLASH), .reads = {Q, K, V},
                                            .writes = {OUT(0), T(1)},
                                            .scalars = {NUMBERS, POSITION(position)}},
                                           SAVE_QKV_AND_RESULT,
                                           {FREE(T(1))},
                                           {.action = TSR__DO_END}};
static const tsr__op_step own_backward[] = {
    MAKE_GRADIENTS(FLASH_BACKWARD),
    {RUN(FLASH_BACKWARD), .reads = {SAVED_Q, SAVED_K, SAVED_V, GRAD_OUT(0), RESULT, LSE},
     .writes = GRADIENTS, .scalars = {NUMBERS}},
    {.action = TSR__DO_END}};
#undef NUMBERS
const tsr__op_row tsr__own_attention = {.name = "flash attention",
                                        .node = "AttentionBackward",
                                        .autocast = TSR__AUTOCAST_LOW,
                                        .forward = own_forward,
                                        .backward = own_backward};
