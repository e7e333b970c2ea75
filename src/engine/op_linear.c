/* op_linear.c - embeddings and matrix products.
 *
 * torch.nn.functional.linear with a bias is one addmm (aten/src/ATen/native/Linear.cpp), and so is
 * Conv1D; without a bias it is an mm. Either saves its input and its weight. Their gradients
 * (tools/autograd/derivatives.yaml): the input's, then the weight's, each a matrix product; the
 * bias's is the output's, summed over rows. */
#include "engine/op.h"

static tsr__shape with_features(tsr__shape shape, uint64_t features) {
  shape.dim[shape.rank - 1] = features;
  return shape;
}

void tsr__embedding_forward(tsr__call *call) {
  tsr__shape shape = tsr__in_shape(call, 1);
  shape.dim[shape.rank++] = tsr__in_shape(call, 0).dim[1];
  call->out[0] = tsr__make(call, "embedding", tsr__in_dtype(call, 0), shape);
  tsr__save(call, call->in[1]);
}

/* aten/src/ATen/native/cuda/Embedding.cu, embedding_dense_backward_cuda: up to 3072 indices go
 * straight into the gradient; more are sorted, and summed in segments, whose number depends on the
 * data: as many as there are indices is the most. */
void tsr__embedding_backward(tsr__call *call) {
  enum { MOST_UNSORTED = 3072 };
  uint64_t count = tsr__elements(tsr__in_shape(call, 1));
  tsr__shape weight = tsr__in_shape(call, 0), indices = TSR__SHAPE(count);
  tsr__tid temporaries[4] = {0};
  static const char *const what = "embedding_dense_backward";
  if (count > MOST_UNSORTED) {
    temporaries[0] = tsr__make(call, what, TSR__I64, indices); /* sorted */
    temporaries[1] = tsr__make(call, what, TSR__I64, indices); /* where they were */
  }
  call->grad_in[0] = tsr__make(call, what, tsr__dtype_of(call->tape, call->grad_out[0]), weight);
  if (count > MOST_UNSORTED) {
    temporaries[2] = tsr__make(call, what, TSR__I64, indices); /* where segments begin */
    temporaries[3] = tsr__make(call, what, TSR__F32, TSR__SHAPE(count, weight.dim[1]));
  }
  for (int i = 3; i >= 0; i--) tsr__drop(call, temporaries[i]);
}

static void product_gradients(tsr__call *call, uint32_t x, uint32_t weight) {
  tsr__dtype dtype = tsr__dtype_of(call->tape, call->grad_out[0]);
  if (call->needs[x])
    call->grad_in[x] = tsr__make_in(call, "mm_mat1_backward", "mm", dtype, tsr__in_shape(call, x));
  tsr__push_frame(call->tape, "torch::autograd::generated::details::mm_mat1_backward",
                  "FunctionsManual.cpp", 0);
  tsr__workspace(call);
  tsr__pop_frames(call->tape, 1);
  if (call->needs[weight])
    call->grad_in[weight] =
        tsr__make_in(call, "mm_mat2_backward", "mm", dtype, tsr__in_shape(call, weight));
}

void tsr__addmm_forward(tsr__call *call) {
  call->out[0] = tsr__make(call, "addmm", tsr__in_dtype(call, 1),
                           with_features(tsr__in_shape(call, 1), call->attributes->features));
  tsr__workspace(call);
  tsr__save(call, call->in[1]);
  tsr__save(call, call->in[2]);
}

void tsr__addmm_backward(tsr__call *call) {
  product_gradients(call, 1, 2);
  tsr__pass(call, 0, call->grad_out[0]);
}

void tsr__mm_forward(tsr__call *call) {
  call->out[0] = tsr__make(call, "mm", tsr__in_dtype(call, 0),
                           with_features(tsr__in_shape(call, 0), call->attributes->features));
  tsr__workspace(call);
  tsr__save(call, call->in[0]);
  tsr__save(call, call->in[1]);
}

void tsr__mm_backward(tsr__call *call) {
  product_gradients(call, 0, 1);
}

void tsr__linear_cost(const tsr__call *call, tsr__cost *forward, tsr__cost *backward) {
  uint32_t x = call->input_count - 2, weight = call->input_count - 1;
  uint64_t rows = tsr__elements(tsr__in_shape(call, x)) /
                  tsr__in_shape(call, x).dim[tsr__in_shape(call, x).rank - 1];
  forward->flops = 2 * rows * tsr__elements(tsr__in_shape(call, weight));
  forward->bytes = tsr__tensor_bytes(call->tape, call->in[x]) +
                   tsr__tensor_bytes(call->tape, call->in[weight]) +
                   tsr__tensor_bytes(call->tape, call->out[0]);
  backward->flops = 2 * forward->flops;
  backward->bytes = 2 * forward->bytes;
}
