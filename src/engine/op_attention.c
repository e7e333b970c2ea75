/* op_attention.c - attention in one kernel, and what comes before it.
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
#include "engine/op.h"

enum { Q, K, V, MASK };
/* What the forward saved, in that order. */
enum { SAVED_Q, SAVED_K, SAVED_V, SAVED_OUT, SAVED_LSE, SAVED_SEED, SAVED_OFFSET, SAVED_BIAS };

static uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/* ---- before ---- */

void tsr__split_forward(tsr__call *call) {
  tsr__shape third = tsr__in_shape(call, 0);
  third.dim[third.rank - 1] /= 3;
  for (uint32_t i = 0; i < 3; i++) call->out[i] = tsr__view(call->tape, call->in[0], third, false);
}

void tsr__split_backward(tsr__call *call) {
  tsr__tid missing[3] = {0};
  tsr__dtype dtype = tsr__in_dtype(call, 0);
  for (uint32_t i = 0; i < 3; i++)
    if (!call->grad_out[i])
      missing[i] = tsr__make_in(call, "split_backward", "zeros", dtype,
                                tsr__shape_of(call->tape, call->out[i]));
  call->grad_in[0] =
      tsr__make_in(call, "split_with_sizes_backward", "cat", dtype, tsr__in_shape(call, 0));
  for (uint32_t i = 0; i < 3; i++) tsr__drop(call, missing[i]);
}

void tsr__cache_forward(tsr__call *call) {
  call->out[0] = tsr__make_like(call, "cat", call->in[0]);
}

void tsr__cache_backward(tsr__call *call) {
  tsr__pass(call, 0, call->grad_out[0]);
}

void tsr__repeat_forward(tsr__call *call) {
  tsr__shape shape = tsr__in_shape(call, 0);
  shape.dim[1] *= call->attributes->repeats;
  call->out[0] = tsr__make(call, "clone", tsr__in_dtype(call, 0), shape);
}

void tsr__repeat_backward(tsr__call *call) {
  call->grad_in[0] = tsr__make_in(call, "expand_backward", "sum_dim_IntList",
                                  tsr__in_dtype(call, 0), tsr__in_shape(call, 0));
}

/* transformers' rotary table: in fp32, and then in the model's type. Input: positions; attribute
 * `features`: the heads' width. */
void tsr__rotary_table_forward(tsr__call *call) {
  uint64_t rows = tsr__elements(tsr__in_shape(call, 0)), width = call->attributes->features;
  tsr__shape shape = TSR__SHAPE(1, rows, width);
  tsr__dtype dtype = (tsr__dtype)call->attributes->dtype;
  tsr__tid positions = tsr__make(call, "_to_copy", TSR__F32, TSR__SHAPE(1, rows));
  tsr__tid angles = tsr__make(call, "bmm", TSR__F32, TSR__SHAPE(1, rows, width / 2));
  tsr__tid both = tsr__make(call, "cat", TSR__F32, shape);
  static const char *const names[] = {"cos", "sin"};
  for (uint32_t i = 0; i < 2; i++) {
    tsr__tid plain = tsr__make(call, names[i], TSR__F32, shape);
    call->out[i] = tsr__make(call, "mul_Tensor", TSR__F32, shape);
    tsr__drop(call, plain);
  }
  for (uint32_t i = 0; i < 2 && dtype != TSR__F32; i++) {
    tsr__tid wide = call->out[i];
    call->out[i] = tsr__make(call, "_to_copy", dtype, shape);
    tsr__drop(call, wide);
  }
  tsr__drop(call, both);
  tsr__drop(call, angles);
  tsr__drop(call, positions);
}

void tsr__rotary_table_backward(tsr__call *call) {
  (void)call;
}

/* x * cos + rotate_half(x) * sin, for q and then for k. Inputs: q, k, cos, sin. */
void tsr__rotary_forward(tsr__call *call) {
  for (uint32_t i = 0; i < 2; i++) {
    tsr__shape shape = tsr__in_shape(call, i), half = shape;
    tsr__dtype dtype = tsr__in_dtype(call, i);
    tsr__dtype wide = tsr__promote(dtype, tsr__in_dtype(call, 2));
    half.dim[3] /= 2;
    tsr__tid straight = tsr__make(call, "mul_Tensor", wide, shape);
    tsr__tid negative = tsr__make(call, "neg", dtype, half);
    tsr__tid turned = tsr__make(call, "cat", dtype, shape);
    tsr__drop(call, negative);
    tsr__tid product = tsr__make(call, "mul_Tensor", wide, shape);
    tsr__drop(call, turned);
    call->out[i] = tsr__make(call, "add_Tensor", wide, shape);
    tsr__drop(call, product);
    tsr__drop(call, straight);
    tsr__tensor_at(call->tape, call->out[i])->is_dense = false;
  }
  tsr__save(call, call->in[2]);
  tsr__save(call, call->in[3]);
}

/* The output's gradient times a table, in the input's type. */
static tsr__tid rotary_product(tsr__call *call, uint32_t i) {
  tsr__shape shape = tsr__in_shape(call, i);
  tsr__dtype wide = tsr__dtype_of(call->tape, call->grad_out[i]);
  tsr__tid product = tsr__make_in(call, "mul_tensor_backward", "mul_Tensor", wide, shape);
  if (wide == tsr__in_dtype(call, i)) return product;
  tsr__tid cast = tsr__make(call, "_to_copy", tsr__in_dtype(call, i), shape);
  tsr__drop(call, product);
  return cast;
}

void tsr__rotary_backward(tsr__call *call) {
  static const char *const slice = "slice_backward";
  for (uint32_t i = 2; i-- > 0;) {
    tsr__shape shape = tsr__in_shape(call, i), half = shape;
    tsr__dtype dtype = tsr__in_dtype(call, i);
    half.dim[3] /= 2;
    if (!call->grad_out[i]) continue;
    tsr__node(call, "MulBackward0");
    tsr__tid turned = rotary_product(call, i);
    tsr__node(call, "NegBackward0");
    tsr__tid negative = tsr__make(call, "neg", dtype, half);
    tsr__node(call, "SliceBackward0");
    tsr__tid sum = tsr__make(call, slice, dtype, shape);
    tsr__drop(call, negative);
    tsr__tid other = tsr__make(call, slice, dtype, shape);
    tsr__drop(call, turned);
    tsr__drop(call, other); /* added in place */
    tsr__node(call, "MulBackward0");
    tsr__tid straight = rotary_product(call, i);
    tsr__done_with_grad(call, i);
    tsr__drop(call, straight); /* added in place */
    call->grad_in[i] = sum;
  }
}

/* The mask that transformers makes where it does not leave causality to the kernel: which sequence
 * a position belongs to, compared for all pairs. Inputs: positions; `features`: the batch; `dtype`:
 * boolean, or the type of an additive mask. (masking_utils.py) */
void tsr__causal_mask_forward(tsr__call *call) {
  uint64_t rows = tsr__elements(tsr__in_shape(call, 0)), batch = call->attributes->features;
  tsr__shape shape = TSR__SHAPE(batch, 1, rows, rows), line = TSR__SHAPE(batch, rows);
  tsr__tid difference = tsr__make(call, "sub_Tensor", TSR__I64, line);
  tsr__tid starts = tsr__make(call, "ne_Scalar", TSR__BOOL8, line);
  tsr__tid sequence = tsr__make(call, "cumsum", TSR__I64, line);
  tsr__drop(call, starts);
  tsr__drop(call, difference);
  tsr__tid columns = tsr__make(call, "arange", TSR__I64, TSR__SHAPE(rows));
  tsr__tid before = tsr__make(call, "le_Tensor", TSR__BOOL8, TSR__SHAPE(rows, rows));
  tsr__tid same = tsr__make(call, "eq_Tensor", TSR__BOOL8, shape);
  call->out[0] = tsr__make(call, "bitwise_and_Tensor", TSR__BOOL8, shape);
  tsr__drop(call, same);
  tsr__drop(call, before);
  tsr__drop(call, columns);
  tsr__drop(call, sequence);
  if (call->attributes->dtype == TSR__BOOL8) return;
  tsr__tid boolean = call->out[0];
  call->out[0] = tsr__make(call, "where_self", (tsr__dtype)call->attributes->dtype, shape);
  tsr__drop(call, boolean);
}

void tsr__causal_mask_backward(tsr__call *call) {
  (void)call;
}

/* ---- the kernels ---- */

static tsr__shape result_shape(const tsr__call *call) {
  tsr__shape q = tsr__in_shape(call, Q);
  return TSR__SHAPE(q.dim[0], q.dim[2], q.dim[1] * tsr__in_shape(call, V).dim[3]);
}

/* A boolean mask as the kernel wants it: floats, in rows of whole 16 bytes. */
static tsr__tid float_mask(tsr__call *call) {
  tsr__shape shape = tsr__in_shape(call, MASK);
  tsr__dtype dtype = tsr__in_dtype(call, Q);
  uint64_t columns = round_up(shape.dim[3], 16);
  tsr__tid bias = tsr__make(call, "zeros_like", dtype, shape);
  tsr__tid inverse = tsr__make(call, "logical_not", TSR__BOOL8, shape);
  tsr__drop(call, inverse);
  if (columns == shape.dim[3]) return bias;
  shape.dim[3] = columns;
  tsr__tid padded = tsr__make(call, "constant_pad_nd", dtype, shape);
  tsr__drop(call, bias);
  return padded;
}

static void chunks_forward(tsr__call *call) {
  tsr__shape q = tsr__in_shape(call, Q);
  uint64_t columns = tsr__in_shape(call, K).dim[2];
  for (uint64_t first = 0; first < q.dim[2] && !call->tape->status;
       first += call->attributes->chunk) {
    uint64_t rows = q.dim[2] - first;
    if (rows > call->attributes->chunk) rows = call->attributes->chunk;
    tsr__shape shape = TSR__SHAPE(q.dim[0], q.dim[1], rows, columns);
    tsr__tid scores = tsr__make(call, "bmm", tsr__in_dtype(call, Q), shape);
    tsr__tid softmax = tsr__make(call, "_softmax", TSR__F32, shape);
    tsr__drop(call, scores);
    tsr__drop(call, softmax);
  }
}

void tsr__attention_forward(tsr__call *call) {
  tsr__shape q = tsr__in_shape(call, Q);
  tsr__attention_kernel kernel = (tsr__attention_kernel)call->attributes->implementation;
  const char *what = kernel == TSR__KERNEL_FLASH       ? "_scaled_dot_product_flash_attention"
                     : kernel == TSR__KERNEL_EFFICIENT ? "_scaled_dot_product_efficient_attention"
                                                       : "empty_like";
  uint64_t rows = kernel == TSR__KERNEL_EFFICIENT ? round_up(q.dim[2], 32) : q.dim[2];
  tsr__tid bias = call->input_count > MASK ? float_mask(call) : 0, seed = 0, offset = 0;
  call->out[0] = tsr__make(call, what, tsr__in_dtype(call, Q), result_shape(call));
  tsr__tid lse = tsr__make(call, what, TSR__F32, TSR__SHAPE(q.dim[0], q.dim[1], rows));
  if (kernel != TSR__KERNEL_CHUNKED) {
    seed = tsr__make(call, what, TSR__I64, TSR__SHAPE(kernel == TSR__KERNEL_FLASH ? 2 : 1));
    offset = tsr__make(call, what, TSR__I64, TSR__SCALAR);
  } else {
    chunks_forward(call);
  }
  for (uint32_t i = Q; i <= V; i++) tsr__save(call, call->in[i]);
  tsr__save(call, call->out[0]);
  tsr__save(call, lse);
  tsr__save(call, seed);
  tsr__save(call, offset);
  tsr__save(call, bias);
  tsr__drop(call, lse);
  tsr__drop(call, seed);
  tsr__drop(call, offset);
  tsr__drop(call, bias);
}

/* Gradients of q, k and v: parts of one tensor where these were. */
static void make_gradients(tsr__call *call, const char *what) {
  tsr__dtype dtype = tsr__in_dtype(call, Q);
  if (call->attributes->is_packed) {
    tsr__shape q = tsr__in_shape(call, Q);
    tsr__tid chunk =
        tsr__make(call, what, dtype, TSR__SHAPE(q.dim[0], q.dim[2], 3, q.dim[1] * q.dim[3]));
    for (uint32_t i = Q; i <= V; i++) {
      call->grad_in[i] = tsr__view(call->tape, chunk, tsr__in_shape(call, i), false);
      tsr__tensor_at(call->tape, call->grad_in[i])->base = 0;
    }
    tsr__drop(call, chunk);
    return;
  }
  for (uint32_t i = Q; i <= V; i++)
    if (call->needs[i]) call->grad_in[i] = tsr__make(call, what, dtype, tsr__in_shape(call, i));
}

static void chunks_backward(tsr__call *call) {
  tsr__shape q = tsr__in_shape(call, Q);
  uint64_t columns = tsr__in_shape(call, K).dim[2];
  make_gradients(call, "chunked_attention_backward");
  for (uint64_t first = 0; first < q.dim[2] && !call->tape->status;
       first += call->attributes->chunk) {
    uint64_t rows = q.dim[2] - first;
    if (rows > call->attributes->chunk) rows = call->attributes->chunk;
    tsr__shape shape = TSR__SHAPE(q.dim[0], q.dim[1], rows, columns);
    tsr__tid scores = tsr__make_in(call, "chunked_attention_backward", "bmm", TSR__F32, shape);
    tsr__tid grad = tsr__make_in(call, "chunked_attention_backward", "bmm", TSR__F32, shape);
    tsr__drop(call, grad);
    tsr__drop(call, scores);
  }
}

static void efficient_backward(tsr__call *call) {
  static const char *const what = "_scaled_dot_product_efficient_attention_backward";
  tsr__shape q = tsr__in_shape(call, Q), rows = TSR__SHAPE(q.dim[0], q.dim[1], q.dim[2]);
  tsr__tid product = 0, sums = 0, accumulator = 0;
  make_gradients(call, what);
  if (!tsr__is_half(tsr__in_dtype(call, Q))) { /* in fp32 the kernel leaves row sums to others */
    product = tsr__make(call, what, TSR__F32, result_shape(call));
    sums = tsr__make(call, what, TSR__F32, rows);
    tsr__drop(call, product);
  }
  tsr__tid delta = tsr__make(call, what, TSR__F32, rows);
  tsr__drop(call, sums);
  if (tsr__is_half(tsr__in_dtype(call, Q)))
    accumulator = tsr__make(call, what, TSR__F32, result_shape(call));
  tsr__drop(call, accumulator);
  tsr__drop(call, delta);
}

static void flash_backward(tsr__call *call) {
  static const char *const what = "_scaled_dot_product_flash_attention_backward";
  tsr__shape q = tsr__in_shape(call, Q), k = tsr__in_shape(call, K), full = k;
  tsr__dtype dtype = tsr__in_dtype(call, Q);
  uint64_t rows = round_up(q.dim[2], 128), width = round_up(q.dim[3], 32);
  tsr__tid keys = 0, values = 0;
  make_gradients(call, what);
  tsr__tid sums = tsr__make(call, what, TSR__F32, TSR__SHAPE(q.dim[0], q.dim[1], rows));
  tsr__tid accumulator =
      tsr__make(call, what, TSR__F32, TSR__SHAPE(q.dim[0], rows, q.dim[1], width));
  if (k.dim[1] != q.dim[1]) { /* of all heads, to be summed over those that share a key */
    full.dim[1] = q.dim[1];
    keys = tsr__make(call, what, dtype, full);
    values = tsr__make(call, what, dtype, full);
  }
  tsr__drop(call, values);
  tsr__drop(call, keys);
  tsr__drop(call, accumulator);
  tsr__drop(call, sums);
}

void tsr__attention_backward(tsr__call *call) {
  switch ((tsr__attention_kernel)call->attributes->implementation) {
  case TSR__KERNEL_EFFICIENT: efficient_backward(call); return;
  case TSR__KERNEL_FLASH: flash_backward(call); return;
  case TSR__KERNEL_CHUNKED: chunks_backward(call); return;
  }
}

/* Two matrix products over all pairs of positions; kernels that keep no scores compute them again
 * in backward. */
void tsr__attention_cost(const tsr__call *call, tsr__cost *forward, tsr__cost *backward) {
  tsr__shape q = tsr__in_shape(call, Q);
  forward->flops = 4 * tsr__elements(q) * tsr__in_shape(call, K).dim[2];
  forward->bytes = 0;
  for (uint32_t i = Q; i <= V; i++) forward->bytes += tsr__tensor_bytes(call->tape, call->in[i]);
  forward->bytes += tsr__tensor_bytes(call->tape, call->out[0]);
  backward->flops = forward->flops / 2 * 5;
  backward->bytes = 2 * forward->bytes;
}
