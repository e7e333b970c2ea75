/* cycle.h - where the steps and the forward passes of a trace begin and end, found without markers, and where
 * it ran out of memory. Everything that numbers a step or a pass does so by this. */
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

/* An oom event. The program recovered from it if the same stack is served later, or as many bytes in total
 * before the next failure, or if its step still reached its end. */
typedef struct tsr__failure {
  uint32_t event;
  bool is_recovered;
  uint8_t phase; /* tsr_phase of the request */
  uint32_t step; /* the step it is in, from 1; 0: in none, or the trace does not show which */
  uint32_t pass; /* forward passes that had begun */
} tsr__failure;

typedef TSR__VECTOR(tsr__cycle_step) tsr__cycle_steps;

/* Steps that are rounds of one loop, found by the lines that call their first module. Two that do something
 * else for long are two loops, even on one line. */
typedef struct tsr__loop {
  tsr_steps_unit unit;
  uint32_t frame; /* the line that tells it from others, or runs it; TSR_NONE: not known */
  bool is_listed; /* its steps are among those of the cycle, and their numbers are from there */
  tsr__cycle_steps steps;        /* in order; those of other loops may be between them */
  TSR__VECTOR(uint32_t) numbers; /* of its steps, from 1 */
} tsr__loop;

/* Steps of one loop follow each other without gaps. The events before the first, after the last and between
 * loops are those of no step.
 *
 * A pass begins with the first forward, or loading of data, after a backward or an optimizer's step; if
 * nothing trains, with each iteration. So a step that accumulates gradients has several. */
typedef struct tsr__cycle {
  tsr_steps_basis basis; /* NONE: there are no steps */
  tsr_steps_unit unit;   /* ITERATION: nothing runs backward */
  tsr__cycle_steps steps;
  /* By first step. Each step is in one; where a program trains, loops that evaluate are here and not in `steps`. */
  TSR__VECTOR(tsr__loop) loops;
  /* Each backward pass ends a step for want of better evidence: no optimizer, zero_grad or mark is
   * visible. If gradients accumulate, these are parts of steps. */
  bool counts_backwards;
  TSR__VECTOR(uint32_t) passes;       /* first events, ascending */
  TSR__VECTOR(tsr__failure) failures; /* by event */
} tsr__cycle;

/* `phases` are the timeline's. Time is linear in events, memory 25 bytes an allocation at most.
 * Fails with TSR_ERROR_MEMORY. */
int tsr__cycle_compute(const tsr__timeline *timeline, const tsr__roles *roles,
                       const tsr__phases *phases, tsr__cycle *out, tsr_error *error);
void tsr__cycle_release(tsr__cycle *cycle);
/* The forward passes that have begun by an event, counting one that begins with it. O(log passes). */
size_t tsr__cycle_passes_by(const tsr__cycle *cycle, uint32_t event);
/* The last failure from which the program did not recover; NULL if absent. */
const tsr__failure *tsr__cycle_stop(const tsr__cycle *cycle);
/* A failure in the words that the answers share; `event` -1 if `failure` is NULL. `allocated_bytes` is left 0. */
tsr_step_stop tsr__cycle_stop_of(const tsr__failure *failure);

/* ---- between the files of the room ---- */

/* The failures of a trace, without steps and passes. False if out of memory. */
bool tsr__failures_find(const tsr__timeline *timeline, const tsr__phases *phases, tsr__cycle *out);
/* The passes of a trace whose steps are known. False if out of memory. */
bool tsr__passes_find(const tsr__phases *phases, tsr__cycle *out);
/* Give each failure its step and pass. */
void tsr__failures_place(const tsr__timeline *timeline, const tsr__roles *roles, tsr__cycle *cycle);

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
 * no loop repeats. `stop`: where memory ran out for good, or NULL. `shows_forward` is whether stacks show a
 * forward pass: if so, the answer is final. Time is linear in events times the depth of the loop. False if out of memory. */
bool tsr__loop_find(const tsr__timeline *timeline, const tsr__roles *roles,
                    const tsr__failure *stop, tsr__cycle_steps *out, bool *shows_forward);

/* The same between events first .. last of each of some ranges, which ascend: the rounds of loops in them, in
 * order. */
bool tsr__loop_find_in(const tsr__timeline *timeline, const tsr__roles *roles,
                       const tsr__cycle_step *ranges, size_t range_count, tsr__cycle_steps *out);

/* The loops of a cycle whose steps and failures are known. `trains`: something runs backward; then evaluations
 * before or after a step are taken out of it. False if out of memory; to be released in any case. */
bool tsr__loops_find(const tsr__timeline *timeline, const tsr__roles *roles,
                     const tsr__phases *phases, bool trains, tsr__cycle *cycle);
void tsr__loops_release(tsr__cycle *cycle);

/* The steps of a trace without known phases, from the sequence of its allocations alone. Leaves
 * `out` empty if nothing repeats. False if out of memory. */
bool tsr__sequence_find(const tsr__timeline *timeline, const tsr__roles *roles,
                        tsr__cycle_steps *out);

#endif
