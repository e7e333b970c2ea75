/* op_loss.c - from hidden states to the loss.
 *
 * transformers' ForCausalLMLoss shifts labels by padding and copying them, and takes
 * cross_entropy, which is log_softmax and nll_loss: the first keeps its whole output, the second
 * labels and a weight. In backward each makes a tensor as large as the logits; the second of them
 * exists beside the first.
 *
 * The chunked loss is head and cross-entropy in one, some tokens at a time, as Liger's and others
 * do: for each chunk its logits and, from their softmax, their gradient, which at once becomes part
 * of the gradients of hidden states and weight. Only these two outlive the forward. */
#include "engine/op.h"

void tsr__shift_labels_forward(tsr__call *call) {
  tsr__shape shape = tsr__in_shape(call, 0), longer = shape;
  longer.dim[longer.rank - 1]++;
  call->out[1] = tsr__make(call, "constant_pad_nd", TSR__I64, longer);
  call->out[0] = tsr__make(call, "clone", TSR__I64, shape);
}

void tsr__shift_labels_backward(tsr__call *call) {
  (void)call;
}

void tsr__log_softmax_forward(tsr__call *call) {
  call->out[0] = tsr__make_like(call, "_log_softmax", call->in[0]);
  tsr__save(call, call->out[0]);
}

void tsr__log_softmax_backward(tsr__call *call) {
  call->grad_in[0] = tsr__make_like(call, "_log_softmax_backward_data", call->in[0]);
}

void tsr__nll_loss_forward(tsr__call *call) {
  call->out[0] = tsr__make(call, "nll_loss_forward", tsr__in_dtype(call, 0), TSR__SCALAR);
  call->out[1] = tsr__make(call, "nll_loss_forward", tsr__in_dtype(call, 0), TSR__SCALAR);
  tsr__save(call, call->in[0]);
  tsr__save(call, call->in[1]);
  tsr__save(call, call->out[1]);
}

void tsr__nll_loss_backward(tsr__call *call) {
  /* The kernel is no structured one: it calls zeros_like for its result. */
  tsr__push_frame(call->tape, "at::_ops::nll_loss_backward::call", "??", 0);
  tsr__push_frame(call->tape, "at::native::nll_loss_backward_cuda", "??", 0);
  call->grad_in[0] = tsr__make_like(call, "zeros_like", call->in[0]);
  tsr__pop_frames(call->tape, 2);
}

/* Inputs: hidden states (tokens, width), weight (vocabulary, width), labels. */
void tsr__chunked_loss_forward(tsr__call *call) {
  tsr__tape *tape = call->tape;
  tsr__shape hidden = tsr__in_shape(call, 0), weight = tsr__in_shape(call, 1);
  uint64_t tokens = hidden.dim[0], chunk = call->attributes->chunk;
  tsr__tid grad_hidden = 0, grad_weight = 0;
  tsr__workspace(call);
  if (call->is_recorded) {
    grad_hidden = tsr__make_like(call, "empty_like", call->in[0]);
    grad_weight = tsr__make_like(call, "zeros_like", call->in[1]);
  }
  call->out[0] = tsr__make(call, "zeros", TSR__F32, TSR__SCALAR);
  for (uint64_t first = 0; first < tokens && !tape->status; first += chunk) {
    uint64_t count = tokens - first < chunk ? tokens - first : chunk;
    tsr__shape shape = TSR__SHAPE(count, weight.dim[0]);
    tsr__tid logits = tsr__make(call, "mm", tsr__in_dtype(call, 0), shape);
    tsr__tid softmax = tsr__make(call, "_softmax", TSR__F32, shape);
    tsr__drop(call, logits);
    if (call->is_recorded && tsr__in_dtype(call, 0) != TSR__F32) {
      tsr__tid narrow = tsr__make(call, "_to_copy", tsr__in_dtype(call, 0), shape);
      tsr__drop(call, softmax);
      softmax = narrow;
    }
    tsr__drop(call, softmax);
  }
  tsr__set_role(tape, grad_weight, TSR_ROLE_GRADIENT);
  tsr__save(call, grad_hidden);
  tsr__save(call, grad_weight);
  tsr__drop(call, grad_hidden);
  tsr__drop(call, grad_weight);
}

/* What was saved is scaled in place and handed on. */
void tsr__chunked_loss_backward(tsr__call *call) {
  for (uint32_t i = 0; i < 2; i++) tsr__pass(call, i, call->saved[i]);
}

void tsr__chunked_loss_cost(const tsr__call *call, tsr__cost *forward, tsr__cost *backward) {
  uint64_t tokens = tsr__in_shape(call, 0).dim[0];
  uint64_t weight = tsr__elements(tsr__in_shape(call, 1));
  forward->flops = (call->is_recorded ? 6 : 2) * tokens * weight;
  forward->bytes = 3 * tsr__tensor_bytes(call->tape, call->in[1]);
  *backward = (tsr__cost){weight, 2 * tsr__tensor_bytes(call->tape, call->in[1])};
}
