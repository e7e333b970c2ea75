/* run.h - what the caller of a training run decides: sizes, types, kernels, what is recomputed.
 *
 * The part of tsr_simulate_options that a program depends on. The executor handles the device and its size. */
#ifndef TSR_MODELS_RUN_H
#define TSR_MODELS_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera/model.h"

/* A zeroed struct is one step of one token in fp32 with PyTorch's defaults. */
typedef struct tsr__run_options {
  uint64_t batch, sequence, steps; /* 0 = 1 */
  uint64_t accumulate;             /* micro-batches of `batch` per step; 0 = 1 */
  tsr_simulate_optimizer optimizer;
  tsr_simulate_dtype dtype;
  tsr_simulate_attention attention;
  uint64_t attention_chunk; /* query rows */
  tsr_simulate_checkpoint checkpoint;
  uint64_t checkpoint_every; /* blocks */
  uint64_t loss_chunk;       /* tokens; 0 = the whole loss at once */
  bool master_weights; /* parameters of 16 bits have masters in fp32, which the optimizer updates */
  double loss_scale;   /* of fp16, at first; 0 = 65536, where losses are scaled */
  uint64_t loss_scale_window; /* good steps after which it doubles; 0 = 2000 */
  tsr_offload offload;        /* what is kept outside the device */
  bool gelu_fused;            /* one kernel instead of the eight operations of the model's class */
  bool no_kv_cache;           /* use_cache=False */
  bool fresh_process;         /* cuBLAS allocates its workspaces during the recording, not before */
  double clip_norm;           /* gradients are clipped to it; 0: they are not */
  tsr_simulate_leak leak;     /* planted */
  uint64_t micro_batch;       /* sequences; 0 = batch */
  tsr_simulate_accumulation accumulation;
  bool backward_once;             /* for all micro-batches */
  bool update_in_backward;        /* each parameter, once its gradient is complete */
  bool non_reentrant;             /* checkpoints */
  unsigned in_place;              /* flags of tsr_in_place */
  const tsr_block_choice *blocks; /* block_count of them; borrowed */
  size_t block_count;
  tsr_simulate_book book; /* whose ops run: PyTorch's by default */
  uint64_t ranks,
      rank;      /* processes that train together, and which one this is; 0 ranks: one alone */
  uint64_t zero; /* ZeRO's stage, 0 to 3 */
  uint64_t bucket_elements; /* of gradients that are summed at once; 0: a unit's */
  bool no_overlap;          /* sums end before backward goes on */
  uint64_t eval_steps,
      eval_batch; /* steps between evaluations (0: never); sequences of an evaluation batch (0 = batch) */
} tsr__run_options;

#endif
