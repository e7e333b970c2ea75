/* estimates.h - what other tools and papers say that training a model takes on each of several cards, from
 * their formulas: states only, no activations, unless stated. For comparison; tessera's own figures are
 * simulated. */
#ifndef TSR_PLAN_ESTIMATES_H
#define TSR_PLAN_ESTIMATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tsr__estimate_question {
  uint64_t parameters;          /* of the model */
  uint64_t largest_layer;       /* parameters of the module that has most of its own */
  uint64_t cards, cards_a_node; /* in all; in each machine, which they fill */
} tsr__estimate_question;

typedef struct tsr__estimate {
  const char *source, *what; /* "DeepSpeed", "ZeRO-3, optimizer offloaded" */
  double device_bytes;       /* on each card */
  double host_bytes;         /* on each machine; 0 if the formula has none */
  const char *remark;        /* what a reader should know; NULL: nothing */
} tsr__estimate;

enum { TSR__ESTIMATES = 15 };

/* All of them, in the order of a table. Cards are at least 1, and a multiple of cards_a_node. */
void tsr__estimates(const tsr__estimate_question *question, tsr__estimate out[TSR__ESTIMATES]);

#endif
