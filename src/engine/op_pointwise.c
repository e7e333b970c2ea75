/* op_pointwise.c - ops that go element by element.
 *
 * GELU comes in two forms. transformers' NewGELU is eight operations in Python:
 *
 *   half = 0.5 * x            kept by the last product
 *   cube = x ** 3             keeps x
 *   inner = 0.044715 * cube; sum = x + inner; scaled = c * sum
 *   tanh                      keeps itself
 *   one = 1 + tanh            kept by the last product
 *   half * one
 *
 * so that four tensors of its width stay for backward, besides the product itself that the next op
 * keeps. Under autocast pow works in fp32, and everything from there on with it. The fused form is
 * one kernel that keeps its input. */
#include "engine/op.h"

void tsr__dropout_forward(tsr__call *call) {
  call->out[0] = tsr__make_like(call, "native_dropout", call->in[0]);
  call->out[1] = tsr__make(call, "native_dropout", TSR__BOOL8, tsr__in_shape(call, 0));
  tsr__save(call, call->out[1]);
}

void tsr__dropout_backward(tsr__call *call) {
  call->grad_in[0] = tsr__make_like(call, "native_dropout_backward", call->grad_out[0]);
}

void tsr__add_forward(tsr__call *call) {
  tsr__shape a = tsr__in_shape(call, 0), b = tsr__in_shape(call, 1);
  call->out[0] =
      tsr__make(call, "add_Tensor", tsr__promote(tsr__in_dtype(call, 0), tsr__in_dtype(call, 1)),
                tsr__elements(a) >= tsr__elements(b) ? a : b);
}

void tsr__add_backward(tsr__call *call) {
  tsr__pass(call, 0, call->grad_out[0]);
  tsr__pass(call, 1, call->grad_out[0]);
}

void tsr__mul_forward(tsr__call *call) {
  call->out[0] =
      tsr__make(call, "mul_Tensor", tsr__promote(tsr__in_dtype(call, 0), tsr__in_dtype(call, 1)),
                tsr__in_shape(call, 0));
  tsr__save(call, call->in[0]);
  tsr__save(call, call->in[1]);
}

void tsr__mul_backward(tsr__call *call) {
  tsr__dtype dtype = tsr__dtype_of(call->tape, call->grad_out[0]);
  for (uint32_t i = 0; i < 2; i++)
    if (call->needs[i])
      call->grad_in[i] =
          tsr__make_in(call, "mul_tensor_backward", "mul_Tensor", dtype, tsr__in_shape(call, i));
}

/* ---- activation functions ---- */

/* What the eager form saved. */
enum { GELU_INPUT, GELU_HALF, GELU_TANH, GELU_ONE };

void tsr__gelu_forward(tsr__call *call) {
  tsr__shape shape = tsr__in_shape(call, 0);
  tsr__dtype dtype = tsr__in_dtype(call, 0);
  tsr__dtype wide = call->tape->is_autocast ? TSR__F32 : dtype;
  tsr__tid half = tsr__make(call, "mul_Tensor", dtype, shape);
  tsr__tid input = call->in[0];
  tsr__hold(call->tape, input);
  if (wide != dtype) {
    tsr__drop(call, input);
    input = tsr__make(call, "_to_copy", wide, shape);
  }
  tsr__save(call, input);
  tsr__tid cube = tsr__make(call, "pow_Tensor_Scalar", wide, shape);
  tsr__drop(call, input);
  tsr__tid inner = tsr__make(call, "mul_Tensor", wide, shape);
  tsr__drop(call, cube);
  tsr__tid sum = tsr__make(call, "add_Tensor", wide, shape);
  tsr__drop(call, inner);
  tsr__tid scaled = tsr__make(call, "mul_Tensor", wide, shape);
  tsr__drop(call, sum);
  tsr__tid tanh = tsr__make(call, "tanh", wide, shape);
  tsr__drop(call, scaled);
  tsr__tid one = tsr__make(call, "add_Tensor", wide, shape);
  tsr__save(call, half);
  tsr__save(call, tanh);
  tsr__save(call, one);
  tsr__drop(call, tanh);
  call->out[0] = tsr__make(call, "mul_Tensor", wide, shape);
  tsr__drop(call, half);
  tsr__drop(call, one);
}

/* `grad`, which is used up, in another type; itself where that is its own. */
static tsr__tid cast_grad(tsr__call *call, tsr__tid grad, tsr__dtype dtype) {
  if (tsr__dtype_of(call->tape, grad) == dtype) return grad;
  tsr__tid cast = tsr__make(call, "_to_copy", dtype, tsr__shape_of(call->tape, grad));
  tsr__drop(call, grad);
  return cast;
}

/* From the product back to the sum: its gradient, and, in `*half`, that of 0.5 * x. */
static tsr__tid gelu_outer_backward(tsr__call *call, tsr__dtype wide, tsr__tid *half) {
  tsr__shape shape = tsr__in_shape(call, 0);
  tsr__node(call, "MulBackward0");
  *half = tsr__make_in(call, "mul_tensor_backward", "mul_Tensor", wide, shape);
  tsr__tid one = tsr__make_in(call, "mul_tensor_backward", "mul_Tensor", wide, shape);
  *half = cast_grad(call, *half, tsr__in_dtype(call, 0));
  tsr__done_with_grad(call, 0);
  tsr__done_with(call, GELU_HALF);
  tsr__done_with(call, GELU_ONE);
  tsr__node(call, "TanhBackward0");
  tsr__tid tanh = tsr__make(call, "tanh_backward", wide, shape);
  tsr__drop(call, one);
  tsr__done_with(call, GELU_TANH);
  tsr__node(call, "MulBackward0");
  tsr__tid sum = tsr__make_in(call, "mul_tensor_backward", "mul_Tensor", wide, shape);
  tsr__drop(call, tanh);
  return sum;
}

void tsr__gelu_backward(tsr__call *call) {
  tsr__shape shape = tsr__in_shape(call, 0);
  tsr__dtype dtype = tsr__in_dtype(call, 0);
  tsr__dtype wide = tsr__dtype_of(call->tape, call->grad_out[0]);
  tsr__tid half, sum = gelu_outer_backward(call, wide, &half);
  tsr__tid result = sum; /* the gradient of x so far: that of the sum */
  tsr__hold(call->tape, sum);
  tsr__node(call, "AddBackward0");
  result = cast_grad(call, result, dtype);
  tsr__node(call, "MulBackward0");
  tsr__tid cube = tsr__make_in(call, "mul_tensor_backward", "mul_Tensor", wide, shape);
  tsr__drop(call, sum);
  tsr__node(call, "PowBackward0");
  tsr__tid square = tsr__make_in(call, "pow_backward", "pow_Tensor_Scalar", wide, shape);
  tsr__tid thrice = tsr__make_in(call, "pow_backward", "mul_Tensor", wide, shape);
  tsr__tid power = tsr__make_in(call, "pow_backward", "mul_Tensor", wide, shape);
  tsr__drop(call, thrice);
  tsr__drop(call, square);
  tsr__drop(call, cube);
  tsr__done_with(call, GELU_INPUT);
  power = cast_grad(call, power, dtype);
  tsr__drop(call, power); /* added in place */
  tsr__node(call, "MulBackward0");
  tsr__tid outer = tsr__make_in(call, "mul_tensor_backward", "mul_Tensor", dtype, shape);
  tsr__drop(call, half);
  tsr__drop(call, outer); /* added in place */
  call->grad_in[0] = result;
}

void tsr__gelu_fused_forward(tsr__call *call) {
  call->out[0] = tsr__make_like(call, "gelu", call->in[0]);
  tsr__save(call, call->in[0]);
}

void tsr__gelu_fused_backward(tsr__call *call) {
  call->grad_in[0] = tsr__make_like(call, "gelu_backward", call->grad_out[0]);
}

void tsr__gelu_cost(const tsr__call *call, tsr__cost *forward, tsr__cost *backward) {
  uint64_t bytes = tsr__tensor_bytes(call->tape, call->out[0]);
  uint64_t count = tsr__elements(tsr__in_shape(call, 0));
  *forward = (tsr__cost){12 * count, 18 * bytes}; /* eight passes */
  *backward = (tsr__cost){20 * count, 30 * bytes};
}

void tsr__silu_forward(tsr__call *call) {
  call->out[0] = tsr__make_like(call, "silu", call->in[0]);
  tsr__save(call, call->in[0]);
}

void tsr__silu_backward(tsr__call *call) {
  call->grad_in[0] = tsr__make_like(call, "silu_backward", call->grad_out[0]);
}

/* ---- the rest ---- */

void tsr__cast_forward(tsr__call *call) {
  call->out[0] =
      tsr__make(call, "_to_copy", (tsr__dtype)call->attributes->dtype, tsr__in_shape(call, 0));
}

void tsr__cast_backward(tsr__call *call) {
  call->grad_in[0] = tsr__make(call, "_to_copy", tsr__in_dtype(call, 0), tsr__in_shape(call, 0));
}

void tsr__scale_forward(tsr__call *call) {
  call->out[0] = tsr__make_like(call, "mul_Tensor", call->in[0]);
}

void tsr__scale_backward(tsr__call *call) {
  call->grad_in[0] = tsr__make_in(call, "mul_tensor_backward", "mul_Tensor", tsr__in_dtype(call, 0),
                                  tsr__in_shape(call, 0));
}

void tsr__mean_forward(tsr__call *call) {
  call->out[0] = tsr__make(call, "mean", tsr__in_dtype(call, 0), TSR__SCALAR);
}

/* The gradient is spread over all elements, and written out when it is divided by their number. */
void tsr__mean_backward(tsr__call *call) {
  call->grad_in[0] = tsr__make_in(call, "mean_backward", "div_Tensor", tsr__in_dtype(call, 0),
                                  tsr__in_shape(call, 0));
}

void tsr__arange_forward(tsr__call *call) {
  call->out[0] = tsr__make(call, "arange", TSR__I64, TSR__SHAPE(call->attributes->features));
}

void tsr__arange_backward(tsr__call *call) {
  (void)call;
}
