/* op_norm.c - normalisations over the last dimension.
 *
 * LayerNorm is one kernel, which saves its input and a mean and a deviation for each row, in fp32
 * (aten/src/ATen/native/cuda/layer_norm_kernel.cu).
 *
 * RMS norm is what LlamaRMSNorm writes out in Python, nine operations in fp32: a copy of the input
 * in fp32 where that is 16 bits wide, its square, its mean, plus epsilon, its reciprocal root, the
 * product, a cast back, times the weight. */
#include "engine/op.h"

static tsr__shape rows_of(tsr__shape shape) {
  shape.dim[shape.rank - 1] = 1;
  return shape;
}

void tsr__layer_norm_forward(tsr__call *call) {
  tsr__shape shape = tsr__in_shape(call, 0);
  call->out[0] = tsr__make_like(call, "native_layer_norm", call->in[0]);
  call->out[1] = tsr__make(call, "native_layer_norm", TSR__F32, rows_of(shape));
  call->out[2] = tsr__make(call, "native_layer_norm", TSR__F32, rows_of(shape));
  tsr__save(call, call->in[0]);
  tsr__save(call, call->out[1]);
  tsr__save(call, call->out[2]);
}

void tsr__layer_norm_backward(tsr__call *call) {
  static const char *const what = "native_layer_norm_backward";
  for (uint32_t i = 0; i < 3; i++)
    if (call->needs[i]) call->grad_in[i] = tsr__make_like(call, what, call->in[i]);
}

/* What the forward saved. */
enum { RMS_INPUT, RMS_ROOT, RMS_NORMALISED, RMS_WEIGHT };

void tsr__rms_norm_forward(tsr__call *call) {
  tsr__shape shape = tsr__in_shape(call, 0), rows = rows_of(shape);
  tsr__dtype dtype = tsr__in_dtype(call, 0);
  tsr__tid wide = call->in[0], narrow;
  tsr__hold(call->tape, wide);
  if (dtype != TSR__F32) {
    tsr__drop(call, wide);
    wide = tsr__make(call, "_to_copy", TSR__F32, shape);
  }
  tsr__tid square = tsr__make(call, "pow_Tensor_Scalar", TSR__F32, shape);
  tsr__tid variance = tsr__make(call, "mean_dim", TSR__F32, rows);
  tsr__drop(call, square);
  tsr__tid sum = tsr__make(call, "add_Tensor", TSR__F32, rows);
  tsr__tid root = tsr__make(call, "rsqrt", TSR__F32, rows);
  tsr__drop(call, sum);
  tsr__save(call, wide);
  tsr__save(call, root);
  tsr__tid normalised = narrow = tsr__make(call, "mul_Tensor", TSR__F32, shape);
  tsr__drop(call, wide);
  tsr__drop(call, root);
  if (dtype == TSR__F32)
    tsr__hold(call->tape, narrow);
  else
    narrow = tsr__make(call, "_to_copy", dtype, shape);
  call->out[0] = tsr__make(call, "mul_Tensor", tsr__promote(dtype, tsr__in_dtype(call, 1)), shape);
  tsr__save(call, narrow);
  tsr__save(call, call->in[1]);
  tsr__drop(call, narrow);
  tsr__drop(call, normalised);
  tsr__drop(call, variance);
}

/* The gradient of the weight, and of what it multiplied, in fp32. */
static tsr__tid rms_weight_backward(tsr__call *call, tsr__shape shape) {
  tsr__dtype dtype = tsr__in_dtype(call, 0);
  tsr__dtype grad = tsr__dtype_of(call->tape, call->grad_out[0]);
  tsr__node(call, "MulBackward0");
  tsr__tid full = tsr__make_in(call, "mul_tensor_backward", "mul_Tensor", grad, shape);
  tsr__tid narrow = tsr__make_in(call, "mul_tensor_backward", "mul_Tensor", grad, shape);
  call->grad_in[1] = tsr__make(call, "sum_dim_IntList", grad, tsr__in_shape(call, 1));
  tsr__drop(call, full);
  tsr__done_with_grad(call, 0);
  tsr__done_with(call, RMS_NORMALISED);
  tsr__done_with(call, RMS_WEIGHT);
  if (dtype == TSR__F32) return narrow;
  tsr__node(call, "ToCopyBackward0");
  tsr__tid wide = tsr__make(call, "_to_copy", TSR__F32, shape);
  tsr__drop(call, narrow);
  return wide;
}

void tsr__rms_norm_backward(tsr__call *call) {
  tsr__shape shape = tsr__in_shape(call, 0), rows = rows_of(shape);
  static const char *const mul = "mul_tensor_backward", *const pow = "pow_backward";
  tsr__tid grad = rms_weight_backward(call, shape);
  tsr__node(call, "MulBackward0");
  tsr__tid sum = tsr__make_in(call, mul, "mul_Tensor", TSR__F32, shape);
  tsr__tid full = tsr__make_in(call, mul, "mul_Tensor", TSR__F32, shape);
  tsr__tid root = tsr__make(call, "sum_dim_IntList", TSR__F32, rows);
  tsr__drop(call, full);
  tsr__drop(call, grad);
  tsr__node(call, "RsqrtBackward0");
  tsr__tid cube = tsr__make_in(call, "rsqrt_backward", "pow_Tensor_Scalar", TSR__F32, rows);
  tsr__tid small = tsr__make_in(call, "rsqrt_backward", "mul_Tensor", TSR__F32, rows);
  tsr__drop(call, cube);
  tsr__drop(call, root);
  tsr__done_with(call, RMS_ROOT);
  tsr__node(call, "MeanBackward1");
  tsr__tid mean = tsr__make_in(call, "mean_backward", "div_Tensor", TSR__F32, shape);
  tsr__drop(call, small);
  tsr__node(call, "PowBackward0");
  tsr__tid power = tsr__make_in(call, pow, "pow_Tensor_Scalar", TSR__F32, shape);
  tsr__tid twice = tsr__make_in(call, pow, "mul_Tensor", TSR__F32, shape);
  tsr__tid square = tsr__make_in(call, pow, "mul_Tensor", TSR__F32, shape);
  tsr__drop(call, twice);
  tsr__drop(call, power);
  tsr__drop(call, mean);
  tsr__drop(call, square); /* added in place */
  tsr__done_with(call, RMS_INPUT);
  call->grad_in[0] = sum;
  if (tsr__in_dtype(call, 0) == TSR__F32) return;
  tsr__node(call, "ToCopyBackward0");
  call->grad_in[0] = tsr__make(call, "_to_copy", tsr__in_dtype(call, 0), shape);
  tsr__drop(call, sum);
}

void tsr__norm_cost(const tsr__call *call, tsr__cost *forward, tsr__cost *backward) {
  uint64_t bytes = tsr__tensor_bytes(call->tape, call->in[0]);
  uint64_t count = tsr__elements(tsr__in_shape(call, 0));
  *forward = (tsr__cost){8 * count, 2 * bytes};
  *backward = (tsr__cost){12 * count, 3 * bytes};
}
