/* cycle.h - where the steps of a trace begin and end, found without markers. */
#ifndef TSR_ATTRIBUTION_CYCLE_H
#define TSR_ATTRIBUTION_CYCLE_H

#include "attribution/phase.h"
#include "tessera/steps.h"
#include "timeline/timeline.h"

/* Events first .. last, both included. A step that the recording cuts, or that ended early, is not
 * whole. */
typedef struct tsr__step {
  uint32_t first, last;
  bool is_whole;
} tsr__step;

typedef TSR__VECTOR(tsr__step) tsr__step_list;

/* Steps follow each other without gaps; what is before the first, or behind the last, is set-up and
 * leave-taking. */
typedef struct tsr__cycle {
  tsr_steps_basis basis; /* NONE: there are no steps */
  tsr__step_list steps;
} tsr__cycle;

/* `phases` are the timeline's. Time is linear in events, memory 25 bytes an allocation at most.
 * Fails with TSR_ERROR_MEMORY. */
int tsr__cycle_compute(const tsr__timeline *timeline, const tsr__roles *roles,
                       const tsr__phases *phases, tsr__cycle *out, tsr_error *error);
void tsr__cycle_release(tsr__cycle *cycle);

/* ---- between the files of the room ---- */

/* What a stretch of allocations is made of: how many of each stack (or size, without a stack),
 * folded into a few places. Alike stretches have alike bags. */
#define TSR__BAG_PLACES 64

typedef struct tsr__bag {
  uint32_t place[TSR__BAG_PLACES];
  uint32_t count; /* of allocations */
} tsr__bag;

void tsr__bag_add(tsr__bag *bag, uint64_t symbol);
/* From 0, nothing in common, to 1, the same. */
double tsr__bag_likeness(const tsr__bag *a, const tsr__bag *b);

/* What an allocation is of, for comparing: its stack, or its size where it has no frames. */
uint64_t tsr__symbol(const tsr__roles *roles, const tsr_events *events, uint64_t event);

/* The steps of a trace whose phases do not tell, by the sequence of its allocations alone. Leaves
 * `out` empty where nothing repeats. False when out of memory. */
bool tsr__sequence_find(const tsr__timeline *timeline, const tsr__roles *roles,
                        tsr__step_list *out);

#endif
