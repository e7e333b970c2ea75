/* scratch.h - shapes of temporaries that PyTorch's CUDA kernels allocate while they run.
 *
 * They are for the backward of attention and of embeddings, and for sums over many numbers. The op table (src/engine/ops) uses these rules for
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

/* A reduction as its kernel sees it: `inputs` numbers are reduced to each of `outputs`. */
typedef struct tsr__reduced {
  uint64_t outputs, inputs;
  uint64_t outputs_at_once; /* outputs next to each other that a thread makes: 1, 2 or 4 */
  uint64_t
      inputs_at_once; /* 1 or 4 if the inputs of an output are next to each other; otherwise 0 */
  uint64_t processors, threads; /* multiprocessors of the card, and the most threads of each */
} tsr__reduced;

/* The numbers and the semaphores through which blocks of threads that share an output add up; 0 and 0 if none do. Blocks share
 * outputs if there are many inputs and few outputs, such as in the gradient of a bias: 128 MiB for that of 8,000 features over 2,048 rows
 * (aten/src/ATen/native/cuda/Reduce.cuh, setReduceConfig). O(1). */
void tsr__scratch_reduction(const tsr__reduced *reduction, uint64_t *numbers, uint64_t *semaphores);

#endif
