/* category.h - the category of each allocation of a device, and the evidence for it. */
#ifndef TSR_ATTRIBUTION_CATEGORY_H
#define TSR_ATTRIBUTION_CATEGORY_H

#include "attribution/cycle.h"
#include "attribution/named.h"
#include "attribution/phase.h"
#include "timeline/timeline.h"

/* By allocation of the timeline, including those from before the recording. */
typedef struct tsr__categories {
  uint8_t *category; /* tsr_category */
  uint8_t *evidence; /* tsr_evidence */
  uint8_t *phase;    /* tsr_phase of its allocation; UNKNOWN for one from before the recording,
                        unless its stack shows it */
  size_t count;
} tsr__categories;

/* `phases`, `cycle` and `names` are the timeline's. `cycle` may be NULL: a loop without a backward pass is
 * one run; `names` may be NULL: nothing is named. Time is linear in allocations and runs, memory 3 bytes an allocation
 * and what the gradients of a step take. Fails with TSR_ERROR_MEMORY. */
int tsr__categories_compute(const tsr__timeline *timeline, const tsr__roles *roles,
                            const tsr__phases *phases, const tsr__cycle *cycle,
                            const tsr__names *names, tsr__categories *out, tsr_error *error);
void tsr__categories_release(tsr__categories *categories);

#endif
