/* reentrant.h - checkpointing that no name tells: forward runs again inside a node of autograd. */
#ifndef TSR_ATTRIBUTION_REENTRANT_H
#define TSR_ATTRIBUTION_REENTRANT_H

#include "attribution/phase.h"

/* Give the stacks that compute again, and were taken for backward, the phase of recomputation. Time is
 * linear in distinct stacks' depth and, where such stacks are, in events. Fails with
 * TSR_ERROR_MEMORY. */
int tsr__reentrant_find(const tsr_snapshot *snapshot, const uint8_t *mark_of_frame,
                        tsr__roles *roles, tsr_error *error);

#endif
