/* placed.h - the address of each tensor, decided before the run.
 *
 * A caching allocator chooses a place when a tensor is made, without knowing the future. A schedule is known
 * from beginning to end, and every step is like the one before: so places can be chosen once, for all steps,
 * and memory is one range of bytes that is never fragmented.
 *
 * A tensor that outlives its step is still there while the next step makes its own. So a slot has two
 * places, for odd and for even steps, and time is a circle of two steps:
 *
 *   odd step                  even step
 *   |--- a ---|               |--- a ---|             within a step
 *         |------- b (odd) --------|                  carried into the next one
 *   ------|                   |------- b (even) ----- and around
 *
 * Rule: tensors are placed largest first, each in the smallest gap that is large enough between those that live at
 * the same time (best fit, decreasing). Tensors that live all the time come first. */
#ifndef TSR_EXEC_PLACED_H
#define TSR_EXEC_PLACED_H

#include "base/effort.h"
#include "graph/schedule.h"

typedef struct tsr__placement {
  uint64_t *offsets[2]; /* of each slot, in even and in odd steps; owned */
  uint64_t total_bytes; /* of the range that holds all of them */
  uint64_t bound_bytes; /* the most bytes that are live at once: no placement needs less */
} tsr__placement;

/* Place the slots of a finished schedule, at multiples of 512 bytes. Slots without bytes have offset 0. The
 * placement may be released either way. Time O(slots^2) at worst, memory 40 bytes a slot. Fails with TSR_ERROR_MEMORY, or as
 * tsr__effort_fail; `effort` may be NULL. */
int tsr__placement_solve(const tsr__schedule *schedule, tsr_effort *effort, tsr__placement *out,
                         tsr_error *error);
/* Zeroed is fine. */
void tsr__placement_release(tsr__placement *placement);

#endif
