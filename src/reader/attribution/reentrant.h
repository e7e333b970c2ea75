/* reentrant.h - checkpointing that no name reveals: forward runs again inside an autograd node. */
#ifndef TSR_ATTRIBUTION_REENTRANT_H
#define TSR_ATTRIBUTION_REENTRANT_H

#include "attribution/phase.h"

/* Change the phase of stacks that recompute, but were classified as backward, to recomputation. Time is
 * linear in distinct stacks' depth and, if there are such stacks, in events. Fails with
 * TSR_ERROR_MEMORY. */
int tsr__reentrant_find(const tsr_snapshot *snapshot, const uint8_t *mark_of_frame,
                        tsr__roles *roles, tsr_error *error);

#endif
