/* cycle.h - where the steps of a trace begin and end, found without markers. */
#ifndef TSR_ATTRIBUTION_CYCLE_H
#define TSR_ATTRIBUTION_CYCLE_H

#include "attribution/phase.h"
#include "tessera/unstable/attribution.h"
#include "timeline/timeline.h"

/* Events first .. last, inclusive. A step that the recording cuts, or that ended early, is not
 * whole. */
typedef struct tsr__cycle_step {
  uint32_t first, last;
  bool is_whole;
} tsr__cycle_step;

typedef TSR__VECTOR(tsr__cycle_step) tsr__cycle_steps;

/* Steps follow each other without gaps. The events before the first and after the last are start-up and
 * shut-down. */
typedef struct tsr__cycle {
  tsr_steps_basis basis; /* NONE: there are no steps */
  tsr_steps_unit unit;   /* ITERATION: nothing runs backward */
  tsr__cycle_steps steps;
} tsr__cycle;

/* `phases` are the timeline's. Time is linear in events, memory 25 bytes an allocation at most.
 * Fails with TSR_ERROR_MEMORY. */
int tsr__cycle_compute(const tsr__timeline *timeline, const tsr__roles *roles,
                       const tsr__phases *phases, tsr__cycle *out, tsr_error *error);
void tsr__cycle_release(tsr__cycle *cycle);

/* ---- between the files of the room ---- */

/* The content of a range of allocations: the number of each stack (or size, without a stack),
 * hashed into a few slots. Similar ranges have similar bags. */
#define TSR__BAG_PLACES 64

typedef struct tsr__bag {
  uint32_t place[TSR__BAG_PLACES];
  uint32_t count; /* of allocations */
} tsr__bag;

void tsr__bag_add(tsr__bag *bag, uint64_t symbol);
/* From 0, nothing in common, to 1, the same. */
double tsr__bag_likeness(const tsr__bag *a, const tsr__bag *b);

/* The identity of an allocation for comparisons: its stack, or its size if it has no frames. */
uint64_t tsr__symbol(const tsr__roles *roles, const tsr_events *events, uint64_t event);

/* The steps of a trace without a backward pass, from the loops in its Python frames. Leaves `out` empty if
 * there are none. `shows_forward` is whether stacks show a forward pass: if so, the answer is final. Time
 * is linear in events times the depth of the loop. False if out of memory. */
bool tsr__loop_find(const tsr__timeline *timeline, const tsr__roles *roles, tsr__cycle_steps *out,
                    bool *shows_forward);

/* The steps of a trace without known phases, from the sequence of its allocations alone. Leaves
 * `out` empty if nothing repeats. False if out of memory. */
bool tsr__sequence_find(const tsr__timeline *timeline, const tsr__roles *roles,
                        tsr__cycle_steps *out);

#endif
