/* estimates.c - formulas of others. See tessera/unstable/estimates.h. N: parameters; n: cards.
 *
 * ZeRO (arXiv 1910.02054, 3.1 and 5): 16 bits for parameters and gradients, 2 bytes each, and K = 12 for Adam: a master copy,
 * a mean and a variance in fp32. Stage 1 shards K, 2 gradients as well, 3 all.
 * DeepSpeed: estimate_zero2_model_states_mem_needs and estimate_zero3_model_states_mem_needs. Its host figures have a factor of 1.5
 * for buffers. ZeRO-2 counts the fp32 copy of gradients since pull request 5099: 18 sharded bytes instead of 16, and 2 whole ones
 * instead of 4.
 * Megatron-LM: docs of the distributed optimizer, bf16 with gradients in fp32: 18 bytes, or 6 + 12/d.
 * accelerate: estimate-memory, training with Adam in fp32: four times the model. */
#include "tessera/unstable/estimates.h"

#include <assert.h>
#include <stddef.h>

static const double buffers = 1.5;

static double larger(double a, double b) {
  return a > b ? a : b;
}

void tsr_estimates(const tsr_estimate_question *q, tsr_estimate out[TSR_ESTIMATES]) {
  double p = (double)q->parameters, n = (double)q->cards, local = (double)q->cards_a_node;
  double largest = 4 * (double)q->largest_layer, nodes = n / local;
  assert(q->cards && q->cards_a_node && q->cards % q->cards_a_node == 0);
  const tsr_estimate all[TSR_ESTIMATES] = {
      {"ZeRO paper", "no sharding", 16 * p, 0, "2 + 2 + 12 bytes a parameter, mixed precision"},
      {"ZeRO paper", "stage 1", 4 * p + 12 * p / n, 0, NULL},
      {"ZeRO paper", "stage 2", 2 * p + 14 * p / n, 0,
       "sharding what stage 1 shards, the master copy too: 5.5 GB for 1e9 parameters on 4 cards; a "
       "text that leaves it whole says 8.5"},
      {"ZeRO paper", "stage 3", 16 * p / n, 0, "without what is gathered for a block in use"},
      {"DeepSpeed", "ZeRO-2", 2 * p + 18 * p / n, 4 * p * local * buffers,
       "the function's; its documentation still has 4 + 16/n bytes, from before the fp32 gradients "
       "were sharded"},
      {"DeepSpeed", "ZeRO-2, optimizer on the host", 2 * p, p * larger(4 * n, 16) * buffers, NULL},
      {"DeepSpeed", "ZeRO-3", largest + 18 * p / n, largest * local * buffers, NULL},
      {"DeepSpeed", "ZeRO-3, optimizer on the host", largest + 2 * p / n, 16 * p / nodes * buffers,
       NULL},
      {"DeepSpeed", "ZeRO-3, all on the host", largest, 18 * p / nodes * buffers, NULL},
      {"ZeRO-Offload", "optimizer", 4 * p, 12 * p,
       "one card; 4 bytes a parameter cross the link in a step"},
      {"ZeRO-Offload", "optimizer and gradients", 2 * p, 14 * p, "the same"},
      {"Megatron-LM", "bf16, fp32 gradients", 18 * p, 0, NULL},
      {"Megatron-LM", "the same, distributed optimizer", 6 * p + 12 * p / n, 0, NULL},
      {"accelerate", "estimate-memory, Adam, fp32", 16 * p, 0,
       "on every card; no batch, no activations"},
      {"DeepSpeed", "buckets of ZeRO-1 and 2", 2 * 4.5 * 2 * 5e8, 0,
       "reduce and gather, 5e8 elements each, besides the states; 2e8: 3.6 GB"},
  };
  for (size_t i = 0; i < TSR_ESTIMATES; i++) out[i] = all[i];
}
