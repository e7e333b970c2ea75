/* tessera/unstable/findings.h - what a user can do about the memory at the peak, with the evidence.
 *
 * Each rule looks for one habit that costs memory and is easy to change. A rule that is not sure stays
 * silent: a wrong hint costs more than a missing one. docs/findings.md describes when each applies. */
#ifndef TESSERA_UNSTABLE_FINDINGS_H
#define TESSERA_UNSTABLE_FINDINGS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tsr_finding_rule {
  TSR_FINDING_NO_GRAD,       /* a forward pass keeps memory for a backward pass that never runs */
  TSR_FINDING_CHECKPOINT,    /* equal blocks keep activations that could be recomputed */
  TSR_FINDING_TWO_FORWARDS,  /* an earlier forward pass is alive while a later one runs */
  TSR_FINDING_OLD_GRADIENTS, /* gradients are older than the model that is being trained */
  TSR_FINDING_CACHED,        /* segments are reserved and entirely free at the peak */
  TSR_FINDING_RULE_COUNT
} tsr_finding_rule;

/* "no_grad", "checkpoint", "two_forwards", "old_gradients", "cached"; static text, never NULL. */
const char *tsr_finding_rule_name(tsr_finding_rule rule);

typedef struct tsr_finding {
  tsr_finding_rule rule;
  uint64_t bytes;       /* that the finding is about; of CHECKPOINT, of one block */
  uint64_t saved_bytes; /* about how much less the peak would be; of CACHED, reserved memory */
  uint64_t count; /* NO_GRAD, OLD_GRADIENTS: allocations; CHECKPOINT: blocks; TWO_FORWARDS: passes
                           that are alive; CACHED: 0 */
  int64_t event;  /* the moment at which they are alive: the peak, or of NO_GRAD, the end of that
                           forward pass */
  bool
      has_backward; /* CHECKPOINT: the trace shows a backward pass, so there is something to recompute for */
  uint32_t frame; /* CHECKPOINT: frame id of the line that calls the block; else TSR_NONE */
  uint32_t stack; /* that allocated most of it, or TSR_NONE */
} tsr_finding;

#ifdef __cplusplus
}
#endif
#endif
