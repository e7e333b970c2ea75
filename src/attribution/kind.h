/* kind.h - what each allocation of a device is for, and how that is known. */
#ifndef TSR_ATTRIBUTION_KIND_H
#define TSR_ATTRIBUTION_KIND_H

#include "attribution/phase.h"
#include "timeline/timeline.h"

/* By allocation of the timeline, those from before the recording included. */
typedef struct tsr__kinds {
  uint8_t *kind;     /* tsr_kind */
  uint8_t *evidence; /* tsr_evidence */
  uint8_t *phase;    /* tsr_phase in which it was made; UNKNOWN for one from before the recording,
                        unless its stack tells */
  size_t count;
} tsr__kinds;

/* `phases` are the timeline's. Time is linear in allocations and runs, memory 3 bytes an allocation
 * and what the gradients of a step take. Fails with TSR_ERROR_MEMORY. */
int tsr__kinds_compute(const tsr__timeline *timeline, const tsr__roles *roles,
                       const tsr__phases *phases, tsr__kinds *out, tsr_error *error);
/* The same for whoever has no use for the phases. */
int tsr__kinds_of_timeline(const tsr__timeline *timeline, const tsr__roles *roles, tsr__kinds *out,
                           tsr_error *error);
void tsr__kinds_release(tsr__kinds *kinds);

#endif
