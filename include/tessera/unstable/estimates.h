/* tessera/unstable/estimates.h - what papers and other tools say that training a model takes on each of several
 * cards, from their formulas: for comparison. Some count states (parameters, gradients, the optimizer's), some what is
 * saved for backward; tessera's own figures are simulated (tessera/simulate.h). */
#ifndef TESSERA_UNSTABLE_ESTIMATES_H
#define TESSERA_UNSTABLE_ESTIMATES_H

#include <stdint.h>

#include "tessera/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_estimate_question {
  uint64_t parameters;          /* of the model */
  uint64_t largest_layer;       /* parameters of the module that has most of its own; 0: unknown */
  uint64_t cards, cards_a_node; /* in all; in each machine */
  uint64_t bucket_elements;     /* that are reduced or gathered at once; 0: DeepSpeed's 5e8 */
  /* What the rest needs; without it, their rows have no bytes. */
  tsr_model_sizes sizes;    /* layers 0: unknown */
  uint64_t batch, sequence; /* sequences of a card's batch, and tokens of each */
  uint64_t tensor_cards;    /* among which each layer is divided; 0 is 1 */
  uint64_t adapter_rank;    /* of LoRA */
} tsr_estimate_question;

typedef enum tsr_estimate_kind { TSR_ESTIMATE_STATES, TSR_ESTIMATE_ACTIVATIONS } tsr_estimate_kind;

typedef struct tsr_estimate {
  tsr_estimate_kind kind;    /* what is counted */
  const char *source, *what; /* "DeepSpeed", "ZeRO-3, optimizer on the host" */
  double device_bytes;       /* on each card */
  double host_bytes;         /* on each machine; 0 if the formula has none */
  const char *remark;        /* what a reader should know; NULL: nothing */
} tsr_estimate;

#define TSR_ESTIMATES 32

/* All of them, in the order of a table, states first. Those whose formula needs what is not known
 * have no bytes; nor do those of divided layers if tensor_cards is 1. `cards` is at least 1, a multiple of `cards_a_node` and of
 * `tensor_cards`. Strings are static. */
void tsr_estimates(const tsr_estimate_question *question, tsr_estimate out[TSR_ESTIMATES]);

#ifdef __cplusplus
}
#endif

#endif
