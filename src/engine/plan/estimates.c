/* estimates.c - memory formulas from papers and other programs. See tessera/unstable/estimates.h.
 *
 * N is the number of parameters, n of cards, and t of cards that divide a layer. L, C and A are the layers, the
 * width and the heads; K and F are the heads of keys and the width of the feed-forward part; B and T are sequences
 * and tokens.
 *
 * Parameters, gradients and optimizer state:
 *
 * ZeRO (arXiv 1910.02054, 3.1 and 5): parameters and gradients take 2 bytes each, and Adam's state takes K = 12: a
 * master copy, a mean and a variance in fp32. Stage 1 shards Adam's state, stage 2 also the gradients, stage 3
 * everything.
 * DeepSpeed: estimate_zero2_model_states_mem_needs and estimate_zero3_model_states_mem_needs. Its host figures
 * contain a factor of 1.5 for buffers. Since pull request 5099, ZeRO-2 counts the fp32 copy of gradients: 18
 * sharded bytes instead of 16, and 2 unsharded ones instead of 4.
 * ZeRO-Infinity (2104.07857, 3): 20 bytes for each of the 12 L C^2 parameters of the blocks. The card holds the
 * weight and the gradient of the largest product, 4 C 4C.
 * LoRA (2106.09685): 16-bit weights, and 16 bytes for each element of the adapters of queries and values. QLoRA
 * (2305.14314): 4-bit weights and 0.127 bits for their constants; training in 16 bits takes 12 bytes a parameter.
 * Megatron-LM: the page on the distributed optimizer, bf16 with fp32 gradients: 18 bytes, or 6 + 12/d.
 * accelerate: estimate-memory, training with Adam in fp32: four times the model.
 *
 * What forward saves, in 16 bits. In a pipeline, the first stage holds as many micro-batches as there are stages,
 * which takes as much as all layers do for one micro-batch:
 *
 * ZeRO, appendix: 12 L C numbers a token.
 * Korthikanti et al. (2205.05198, table 2): TBC (34 + 5 A T / C) a block. Of the 34, 10 are not divided by t,
 * unless sequences are divided, too. Recomputing attention removes the second term; recomputing blocks leaves 2.
 * Megatron-LM: the same with what its kernels do differently: a fused attention keeps one more copy of its output,
 * and 4 bytes for each row and head; keys and values may have fewer heads, and the feed-forward part any width.
 * Outside of the blocks there are 7 TBC and 6 bytes a logit. Derived from the peaks that its functional tests
 * record.
 * ZeRO-Infinity: 2 TBC a block on the host. The card holds what one block needs, TB (16 C + 2 A T). */
#include "tessera/unstable/estimates.h"

#include <assert.h>
#include <stddef.h>

static const double buffers = 1.5, usual_bucket = 5e8;

static double larger(double a, double b) {
  return a > b ? a : b;
}

typedef struct list {
  tsr_estimate *items;
  size_t count;
  tsr_estimate_kind kind;
} list;

static void add(list *to, const char *source, const char *what, double device_bytes,
                double host_bytes, const char *remark) {
  assert(to->count < TSR_ESTIMATES && device_bytes >= 0 && host_bytes >= 0);
  to->items[to->count++] = (tsr_estimate){to->kind, source, what, device_bytes, host_bytes, remark};
}

/* ---- parameters, gradients and optimizer state ---- */

static void add_zero(list *to, double p, double n) {
  add(to, "ZeRO paper", "no sharding", 16 * p, 0, "2 + 2 + 12 bytes a parameter, mixed precision");
  add(to, "ZeRO paper", "stage 1", 4 * p + 12 * p / n, 0, NULL);
  add(to, "ZeRO paper", "stage 2", 2 * p + 14 * p / n, 0,
      "sharding what stage 1 shards, the master copy too: 5.5 GB for 1e9 parameters on 4 cards; a "
      "text that leaves it whole says 8.5");
  add(to, "ZeRO paper", "stage 3", 16 * p / n, 0, "without what is gathered for a block in use");
}

static void add_deepspeed(list *to, const tsr_estimate_question *q) {
  double p = (double)q->parameters, n = (double)q->cards, local = (double)q->cards_a_node;
  double largest = 4 * (double)q->largest_layer, nodes = n / local;
  double bucket = q->bucket_elements ? (double)q->bucket_elements : usual_bucket;
  add(to, "DeepSpeed", "ZeRO-2", 2 * p + 18 * p / n, 4 * p * local * buffers,
      "the function's; its documentation still has 4 + 16/n bytes, from before the fp32 gradients "
      "were sharded");
  add(to, "DeepSpeed", "ZeRO-2, optimizer on the host", 2 * p, p * larger(4 * n, 16) * buffers,
      NULL);
  add(to, "DeepSpeed", "ZeRO-3", largest + 18 * p / n, largest * local * buffers, NULL);
  add(to, "DeepSpeed", "ZeRO-3, optimizer on the host", largest + 2 * p / n,
      16 * p / nodes * buffers, NULL);
  add(to, "DeepSpeed", "ZeRO-3, all on the host", largest, 18 * p / nodes * buffers, NULL);
  add(to, "DeepSpeed", "buckets of ZeRO-1 and 2", 2 * 4.5 * 2 * bucket, 0,
      "reduce and gather, 5e8 elements each or --bucket, besides the states");
}

static void add_offload(list *to, const tsr_estimate_question *q) {
  double p = (double)q->parameters, nodes = (double)(q->cards / q->cards_a_node);
  double c = (double)q->sizes.width, layers = (double)q->sizes.layers;
  add(to, "ZeRO-Offload", "gradients", 14 * p, 2 * p, NULL);
  add(to, "ZeRO-Offload", "optimizer", 4 * p, 12 * p,
      "one card; 4 bytes a parameter cross the link in a step");
  add(to, "ZeRO-Offload", "optimizer and gradients", 2 * p, 14 * p, "the same");
  add(to, "ZeRO-Infinity", "states elsewhere", 4 * c * 4 * c, 240 * layers * c * c / nodes,
      "20 bytes for each of 12 L C^2 parameters; a card has the largest product's");
}

/* Adapters of the queries and values of all layers. Each maps the width to the numbers of its heads. */
static double adapter_elements(const tsr_estimate_question *q) {
  const tsr_model_sizes *m = &q->sizes;
  uint64_t numbers = (m->heads + m->kv_heads) * m->head_width;
  return (double)q->adapter_rank * (double)m->layers * (double)(2 * m->width + numbers);
}

static void add_others(list *to, const tsr_estimate_question *q) {
  double p = (double)q->parameters, adapters = adapter_elements(q);
  double sharded_by = (double)(q->cards / (q->tensor_cards ? q->tensor_cards : 1));
  double own = p / (q->tensor_cards ? (double)q->tensor_cards : 1);
  add(to, "Megatron-LM", "bf16, fp32 gradients", 18 * own, 0, NULL);
  add(to, "Megatron-LM", "the same, distributed optimizer", (6 + 12 / sharded_by) * own, 0, NULL);
  add(to, "accelerate", "estimate-memory, Adam, fp32", 16 * p, 0,
      "on every card; no batch, no activations");
  add(to, "LoRA paper", "queries and values", adapters > 0 ? 2 * p + 16 * adapters : 0, 0,
      "weights in 16 bits, 16 bytes for each element of adapters of rank 4 or --lora-rank");
  add(to, "QLoRA paper", "the same, weights in 4 bits", p * (4 + 0.127) / 8 + 16 * adapters, 0,
      "and 0.127 bits a weight for the constants of its blocks");
  add(to, "QLoRA paper", "16 bits, all weights trained", 12 * p, 0, NULL);
}

/* ---- activations ---- */

static void add_korthikanti(list *to, const tsr_estimate_question *q, double t) {
  const tsr_model_sizes *m = &q->sizes;
  double all = (double)(q->batch * q->sequence) * (double)m->width * (double)m->layers;
  double scores = 5 * (double)m->heads * (double)q->sequence / (double)m->width;
  double divided =
      t > 1 ? all : 0; /* with t = 1, the rows for divided layers would repeat the others */
  add(to, "Megatron paper", "nothing recomputed", (34 + scores) * all, 0,
      "Korthikanti and others, 2022");
  add(to, "Megatron paper", "selective recomputation", 34 * all, 0, NULL);
  add(to, "Megatron paper", "tensor parallel", (10 + (24 + scores) / t) * divided, 0, NULL);
  add(to, "Megatron paper", "tensor and sequence parallel", (34 + scores) / t * divided, 0, NULL);
  add(to, "Megatron paper", "tensor parallel, selective", (10 + 24 / t) * divided, 0, NULL);
  add(to, "Megatron paper", "tensor and sequence, selective", 34 / t * divided, 0, NULL);
  add(to, "Megatron paper", "full recomputation", 2 * all, 0, NULL);
}

static void add_megatron(list *to, const tsr_estimate_question *q, double t) {
  const tsr_model_sizes *m = &q->sizes;
  double tokens = (double)(q->batch * q->sequence), layers = (double)m->layers;
  double c = (double)m->width, rows = tokens * (double)m->heads;
  double keys = (double)m->kv_heads / (double)m->heads;
  double fed = (m->is_gated ? 6 : 4) * (double)m->inner / c;
  double block = 10 + (4 + 4 * keys + fed) / t, scores = 5 * rows * (double)q->sequence / t;
  double rest = 7 * tokens * c + 6 * tokens * (double)m->vocabulary / t;
  add(to, "Megatron-LM", "unfused attention", layers * (tokens * c * block + scores) + rest, 0,
      "with logits; what its functional tests record is within 0.1 % of this, and up to 3.3 % more "
      "where 4 cards share layers");
  add(to, "Megatron-LM", "flash attention",
      layers * (tokens * c * (block + 2 / t) + 4 * rows / t) + rest, 0, NULL);
  add(to, "Megatron-LM", "full recomputation", layers * 2 * tokens * c + rest, 0, NULL);
}

static void add_activations(list *to, const tsr_estimate_question *q) {
  const tsr_model_sizes *m = &q->sizes;
  double t = q->tensor_cards ? (double)q->tensor_cards : 1;
  double tokens = (double)(q->batch * q->sequence), c = (double)m->width;
  add(to, "ZeRO paper", "12 L C numbers a token", 24 * tokens * c * (double)m->layers, 0,
      "a rough count: what attention keeps is not in it");
  add_korthikanti(to, q, t);
  add_megatron(to, q, t);
  add(to, "ZeRO-Infinity", "inputs of blocks elsewhere",
      tokens * (16 * c + 2 * (double)m->heads * (double)q->sequence),
      2 * tokens * c * (double)m->layers * (double)q->cards_a_node, NULL);
}

void tsr_estimates(const tsr_estimate_question *q, tsr_estimate out[TSR_ESTIMATES]) {
  list states = {out, 0, TSR_ESTIMATE_STATES};
  assert(q->cards && q->cards_a_node && q->cards % q->cards_a_node == 0);
  assert(!q->tensor_cards || q->cards % q->tensor_cards == 0);
  add_zero(&states, (double)q->parameters, (double)q->cards);
  add_deepspeed(&states, q);
  add_offload(&states, q);
  add_others(&states, q);
  list activations = {out + states.count, 0, TSR_ESTIMATE_ACTIVATIONS};
  size_t left = TSR_ESTIMATES - states.count;
  for (size_t i = 0; i < left; i++) activations.items[i] = (tsr_estimate){.source = "", .what = ""};
  if (q->sizes.layers && q->batch && q->sequence) add_activations(&activations, q);
  assert(!activations.count || activations.count == left);
}
