/* scratch.h - shapes of temporaries that PyTorch's CUDA kernels allocate while they run.
 *
 * They are for the backward of attention and of embeddings. The op table (src/engine/ops) uses these rules for
 * models, and the table of temporaries (src/engine/traced/temporaries.c) for step graphs. Queries are (batch,
 * heads, rows, width), keys (batch, heads, columns, width). Rules are those of PyTorch 2.9.1. */
#ifndef TSR_KERNELS_SCRATCH_H
#define TSR_KERNELS_SCRATCH_H

#include "kernels/layout.h"

/* One number for each row of the queries, such as the sum of gradient times result
 * (aten/src/ATen/native/transformers/cuda/attention_backward.cu). */
static inline tsr__shape tsr__scratch_rows(tsr__shape q) {
  assert(q.rank == 4);
  return TSR__SHAPE(q.dim[0], q.dim[1], q.dim[2]);
}

/* The same for flash attention, which rounds rows up (transformers/cuda/flash_attn/flash_api.cpp, mha_bwd). */
static inline tsr__shape tsr__scratch_flash_rows(tsr__shape q) {
  assert(q.rank == 4);
  return TSR__SHAPE(q.dim[0], q.dim[1], tsr__shape_round_up(q.dim[2], 128));
}

/* The sum of the queries' gradient in flash attention: dq_accum of the same function. */
static inline tsr__shape tsr__scratch_flash_queries(tsr__shape q) {
  assert(q.rank == 4);
  return TSR__SHAPE(q.dim[0], tsr__shape_round_up(q.dim[2], 128), q.dim[1],
                    tsr__shape_round_up(q.dim[3], 32));
}

/* Gradients of keys or values for each head of the queries, if several heads share one: dk_expanded and
 * dv_expanded. */
static inline tsr__shape tsr__scratch_all_heads(tsr__shape k, uint64_t heads) {
  assert(k.rank == 4);
  k.dim[1] = heads;
  return k;
}

/* Whether an embedding's gradient sorts its indices and then sums; up to 3072 indices are added directly
 * (aten/src/ATen/native/cuda/Embedding.cu, embedding_dense_backward_cuda). */
static inline bool tsr__scratch_sorts(uint64_t indices) {
  return indices > 3072;
}

#endif
