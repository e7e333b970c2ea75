/* iterations.h - what outlives the iteration of a loop in which it is made, where nothing runs backward.
 *
 * All iterations of an inference loop are one run of the phase forward, which ends with the last of them. What
 * outlives its own iteration (an output, a cache) is found from the steps of the trace. */
#ifndef TSR_ATTRIBUTION_ITERATIONS_H
#define TSR_ATTRIBUTION_ITERATIONS_H

#include "attribution/cycle.h"

typedef struct tsr__iterations {
  const tsr__timeline *timeline;
  const tsr__cycle_steps *steps; /* NULL: there are no iterations */
  uint32_t *last_alloc;          /* by step: the last event in it that allocates */
  uint32_t *made, *kept; /* by stack: allocations in whole iterations; those that outlive theirs */
  uint32_t stack_count;
} tsr__iterations;

/* `cycle` may be NULL: no iterations. The cycle and the timeline must live as long as `out`. Time is linear in
 * allocations. False if out of memory. */
bool tsr__iterations_find(const tsr__timeline *timeline, const tsr__cycle *cycle,
                          uint32_t stack_count, tsr__iterations *out);
void tsr__iterations_release(tsr__iterations *iterations);

/* Whether an allocation outlives the iteration in which it is made, in which nothing is allocated after
 * the event `until`; false in `*is_known` if it is made in none. In an iteration that the recording cuts, what
 * others of its stack do decides. O(log iterations). */
bool tsr__outlives_iteration(const tsr__iterations *iterations, uint32_t allocation, uint32_t until,
                             bool *is_known);

#endif
