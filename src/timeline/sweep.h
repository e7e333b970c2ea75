/* sweep.h - every event of a timeline once, in order, with the totals after it and what was born and
 * what died in it.
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

/* Something that happens to the totals at an event. */
typedef struct tsr__sweep_turn {
  uint32_t event, index; /* index: of a span or a wait, by list */
} tsr__sweep_turn;

typedef TSR__VECTOR(tsr__sweep_turn) tsr__sweep_turns;

typedef struct tsr__sweep {
  const tsr__timeline *timeline; /* not owned */
  int64_t event;                 /* -1 before the first */
  tsr_totals totals;             /* after it */
  uint32_t born;                 /* the allocation that it made, or TSR_NONE */
  const uint32_t *died;          /* the allocations whose memory it freed, mostly one or none */
  size_t died_count;

  uint64_t waiting_bytes;      /* of active blocks, those already freed */
  uint32_t next_born;          /* allocation */
  uint32_t *first_dead, *dead; /* by event: where its dead begin; allocations by death */
  tsr__sweep_turns spans_born, spans_gone, waits_begun,
      waits_ended; /* by event; heads are consumed */
  size_t at_spans_born, at_spans_gone, at_waits_begun, at_waits_ended;
} tsr__sweep;

/* Ready before the first event: `died` is empty then, and the totals are the start's. Time linear
 * in events, memory 4 bytes an event and 4 an allocation. Fails with TSR_ERROR_MEMORY, after which
 * there is nothing to release. */
int tsr__sweep_begin(const tsr__timeline *timeline, tsr__sweep *out, tsr_error *error);
/* Advance to the next event; false at the end. O(1) on average. */
bool tsr__sweep_next(tsr__sweep *sweep);
void tsr__sweep_release(tsr__sweep *sweep);

#endif
