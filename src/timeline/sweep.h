/* sweep.h - every event of a timeline once, in order, with the totals after it and what was born and
 * what died in it, at most one of each.
 *
 *   tsr__sweep sweep;
 *   int status = tsr__sweep_begin(&timeline, &sweep, error);    before the first event
 *   while (!status && tsr__sweep_next(&sweep)) ... sweep.totals, sweep.born, sweep.died
 *   tsr__sweep_release(&sweep);
 *
 * The totals are those of tsr__timeline_totals; one moment alone is cheaper asked of that. Not
 * thread safe; several sweeps of one timeline may run at once. */
#ifndef TSR_TIMELINE_SWEEP_H
#define TSR_TIMELINE_SWEEP_H

#include "timeline/timeline.h"

/* Something that happens at an event. */
typedef struct tsr__sweep_turn {
  uint32_t event, index; /* index: of a span, a wait or an allocation, by list */
} tsr__sweep_turn;

typedef TSR__VECTOR(tsr__sweep_turn) tsr__sweep_turns;

typedef struct tsr__sweep {
  const tsr__timeline *timeline; /* not owned */
  int64_t event;                 /* -1 before the first */
  tsr_totals totals;             /* after it */
  uint32_t born;                 /* the allocation that it made, or TSR_NONE */
  uint32_t died;                 /* the allocation whose memory it freed, or TSR_NONE */

  uint64_t waiting_bytes; /* of active blocks, those already freed */
  uint32_t next_turn;     /* the first event that is still in a list below, or TSR_NONE */
  tsr__sweep_turns spans_born, spans_gone, waits_begun, waits_ended,
      replaced; /* by event; heads are consumed */
  size_t at_spans_born, at_spans_gone, at_waits_begun, at_waits_ended, at_replaced;
} tsr__sweep;

/* Ready before the first event: nothing has died then, and the totals are the start's. Time
 * O(n log n) in spans and waits, linear in allocations if the trace takes addresses that are in use, and
 * independent of it else. Fails with TSR_ERROR_MEMORY, after which there is nothing to release. */
int tsr__sweep_begin(const tsr__timeline *timeline, tsr__sweep *out, tsr_error *error);
/* Advance to the next event; false at the end. O(1) on average. */
bool tsr__sweep_next(tsr__sweep *sweep);
void tsr__sweep_release(tsr__sweep *sweep);

#endif
