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
#include "engine/op.h"

enum { Q, K, V, MASK };
enum { STYLE_GPT2, STYLE_LLAMA };
enum { SAVED_Q, SAVED_K, SAVED_SOFTMAX, SAVED_DROPOUT, SAVED_WEIGHTS, SAVED_V };

static bool is_gpt2(const tsr__call *call) {
  return call->attributes->implementation == STYLE_GPT2;
}

/* Held by the caller: the operand, or its copy. */
static tsr__tid as_matrices(tsr__call *call, tsr__tid operand) {
  if (!tsr__tensor_at(call->tape, operand)->is_dense) return tsr__make_like(call, "clone", operand);
  tsr__hold(call->tape, operand);
  return operand;
}

static tsr__tid replace(tsr__call *call, const char *what, tsr__dtype dtype, tsr__tid old) {
  tsr__tid made = tsr__make(call, what, dtype, tsr__shape_of(call->tape, old));
  tsr__drop(call, old);
  return made;
}

/* Scores as the softmax takes them. */
static tsr__tid scores_of(tsr__call *call, tsr__dtype dtype) {
  tsr__shape shape = tsr__in_shape(call, Q);
  shape.dim[3] = tsr__in_shape(call, K).dim[2];
  tsr__workspace(call);
  tsr__tid scores = tsr__make(call, "bmm", dtype, shape);
  if (is_gpt2(call)) {
    tsr__tid root = tsr__make(call, "full", dtype, TSR__SCALAR);
    scores = replace(call, "div_Tensor", dtype, scores);
    tsr__drop(call, root);
    tsr__tid least = tsr__make(call, "full", dtype, TSR__SCALAR);
    scores = replace(call, "where_self", dtype, scores);
    tsr__drop(call, least);
  } else {
    scores = replace(call, "mul_Tensor", dtype, scores);
  }
  if (call->input_count > MASK)
    scores = replace(call, "add_Tensor", tsr__promote(dtype, tsr__in_dtype(call, MASK)), scores);
  return scores;
}

/* The softmax, in `dtype` again; saved as it was computed. */
static tsr__tid softmax_of(tsr__call *call, tsr__tid scores, tsr__dtype dtype) {
  bool is_wide = call->tape->is_autocast || !is_gpt2(call);
  tsr__dtype computed = is_wide ? TSR__F32 : dtype;
  if (tsr__dtype_of(call->tape, scores) != computed &&
      (call->tape->is_autocast || dtype == TSR__BF16))
    scores = replace(call, "_to_copy", computed, scores);
  tsr__tid softmax = replace(call, "_softmax", computed, scores);
  tsr__save(call, softmax);
  return computed == dtype ? softmax : replace(call, "_to_copy", dtype, softmax);
}

void tsr__eager_attention_forward(tsr__call *call) {
  tsr__dtype dtype = tsr__in_dtype(call, Q);
  tsr__shape shape = tsr__in_shape(call, Q);
  tsr__tid q = as_matrices(call, call->in[Q]), k = as_matrices(call, call->in[K]);
  tsr__save(call, q);
  tsr__save(call, k);
  tsr__tid scores = scores_of(call, dtype);
  tsr__drop(call, k);
  tsr__drop(call, q);
  tsr__tid weights = softmax_of(call, scores, dtype);
  if (call->attributes->has_dropout) {
    tsr__tid dropped = tsr__make_like(call, "native_dropout", weights);
    tsr__tid mask =
        tsr__make(call, "native_dropout", TSR__BOOL8, tsr__shape_of(call->tape, weights));
    tsr__save(call, mask);
    tsr__drop(call, mask);
    tsr__drop(call, weights);
    weights = dropped;
  }
  tsr__tid v = as_matrices(call, call->in[V]);
  tsr__save(call, weights);
  tsr__save(call, v);
  tsr__tid result = tsr__make(call, "bmm", dtype, shape);
  tsr__drop(call, v);
  call->out[0] = tsr__make(call, "clone", dtype,
                           TSR__SHAPE(shape.dim[0], shape.dim[2], shape.dim[1] * shape.dim[3]));
  tsr__drop(call, result);
  call->out[1] = weights;
}

/* Back through the softmax: the gradient of the scores, in `dtype`. */
static tsr__tid softmax_backward(tsr__call *call, tsr__tid grad, tsr__dtype dtype) {
  tsr__tid softmax = call->saved[SAVED_SOFTMAX];
  tsr__dtype computed = tsr__dtype_of(call->tape, softmax);
  if (computed != dtype) {
    tsr__node(call, "ToCopyBackward0");
    grad = replace(call, "_to_copy", computed, grad);
  }
  tsr__node(call, "SoftmaxBackward0");
  grad = replace(call, "_softmax_backward_data", computed, grad);
  tsr__done_with(call, SAVED_SOFTMAX);
  if (computed == dtype) return grad;
  tsr__node(call, "ToCopyBackward0");
  return replace(call, "_to_copy", dtype, grad);
}

void tsr__eager_attention_backward(tsr__call *call) {
  tsr__dtype dtype = tsr__in_dtype(call, Q);
  tsr__shape scores = tsr__in_shape(call, Q);
  bool has_dropout = call->attributes->has_dropout;
  uint32_t weights = has_dropout ? SAVED_WEIGHTS : SAVED_WEIGHTS - 1;
  scores.dim[3] = tsr__in_shape(call, K).dim[2];
  tsr__workspace(call);
  tsr__node(call, "UnsafeViewBackward0");
  tsr__tid out = tsr__make(call, "clone", dtype, tsr__in_shape(call, Q));
  tsr__done_with_grad(call, 0);
  tsr__node(call, "BmmBackward0");
  tsr__tid grad = tsr__make_in(call, "bmm_self_backward", "bmm", dtype, scores);
  call->grad_in[V] = tsr__make_in(call, "bmm_mat2_backward", "bmm", dtype, tsr__in_shape(call, V));
  tsr__drop(call, out);
  tsr__done_with(call, weights);
  tsr__done_with(call, weights + 1);
  if (has_dropout) {
    tsr__node(call, "NativeDropoutBackward0");
    grad = replace(call, "native_dropout_backward", dtype, grad);
    tsr__done_with(call, SAVED_DROPOUT);
  }
  grad = softmax_backward(call, grad, dtype);
  if (is_gpt2(call)) {
    tsr__node(call, "WhereBackward0");
    grad = replace(call, "where_self", dtype, grad);
    tsr__node(call, "DivBackward0");
    tsr__push_frame(call->tape, "torch::autograd::generated::details::div_tensor_self_backward",
                    "FunctionsManual.cpp", 0);
    grad = replace(call, "div_Tensor", dtype, grad);
  } else {
    tsr__node(call, "MulBackward0");
    tsr__push_frame(call->tape, "torch::autograd::generated::details::mul_tensor_backward",
                    "FunctionsManual.cpp", 0);
    grad = replace(call, "mul_Tensor", dtype, grad);
  }
  tsr__pop_frames(call->tape, 1);
  tsr__node(call, "BmmBackward0");
  call->grad_in[Q] = tsr__make_in(call, "bmm_self_backward", "bmm", dtype, tsr__in_shape(call, Q));
  call->grad_in[K] = tsr__make_in(call, "bmm_mat2_backward", "bmm", dtype, tsr__in_shape(call, K));
  tsr__drop(call, grad);
}
