/* tessera/unstable/estimates.h - what papers and other tools say that training a model takes on each of several
 * cards, from their formulas: for comparison. They count states (parameters, gradients, the optimizer's), no activations,
 * unless stated; tessera's own figures are simulated (tessera/simulate.h). */
#ifndef TESSERA_UNSTABLE_ESTIMATES_H
#define TESSERA_UNSTABLE_ESTIMATES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_estimate_question {
  uint64_t parameters;          /* of the model */
  uint64_t largest_layer;       /* parameters of the module that has most of its own; 0: unknown */
  uint64_t cards, cards_a_node; /* in all; in each machine */
} tsr_estimate_question;

typedef struct tsr_estimate {
  const char *source, *what; /* "DeepSpeed", "ZeRO-3, optimizer on the host" */
  double device_bytes;       /* on each card */
  double host_bytes;         /* on each machine; 0 if the formula has none */
  const char *remark;        /* what a reader should know; NULL: nothing */
} tsr_estimate;

#define TSR_ESTIMATES 15

/* All of them, in the order of a table. `cards` is at least 1, and a multiple of `cards_a_node`. Strings are static. */
void tsr_estimates(const tsr_estimate_question *question, tsr_estimate out[TSR_ESTIMATES]);

#ifdef __cplusplus
}
#endif

#endif
