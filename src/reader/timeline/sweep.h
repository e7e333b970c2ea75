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

#include <assert.h>

#include "base/checked.h"
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
      replaced;     /* by event; heads are consumed */
  size_t next_mark; /* of a flat device's reserved memory */
  size_t at_spans_born, at_spans_gone, at_waits_begun, at_waits_ended, at_replaced;
} tsr__sweep;

/* Ready before the first event: nothing has died then, and the totals are the start's. Time
 * O(n log n) in spans and waits, linear in allocations if the trace takes addresses that are in use, and
 * independent of it else. Fails with TSR_ERROR_MEMORY, after which there is nothing to release. */
int tsr__sweep_begin(const tsr__timeline *timeline, tsr__sweep *out, tsr_error *error);
void tsr__sweep_release(tsr__sweep *sweep);
/* The part of tsr__sweep_next that few events need: what is in the lists. */
void tsr__sweep_apply_turns(tsr__sweep *sweep, uint32_t event);

/* Advance to the next event; false at the end. O(1) on average. Here, because it is called for millions of
 * events by loops that need a part of what it computes. */
static inline bool tsr__sweep_next(tsr__sweep *s) {
  const tsr__timeline *t = s->timeline;
  if (s->event + 1 >= (int64_t)t->events.count) return false;
  uint32_t event = (uint32_t)++s->event, allocation = t->allocation_of[event];
  s->born = s->died = TSR_NONE;
  assert(event <= s->next_turn);
  if (event == s->next_turn) tsr__sweep_apply_turns(s, event);
  uint64_t waiting = s->waiting_bytes;
  tsr_totals *totals = &s->totals;
  if (allocation != TSR_NONE) {
    uint64_t bytes = t->block_bytes.items[allocation];
    uint32_t death = t->death.items[allocation];
    if (t->birth.items[allocation] == event) {
      s->born = allocation;
      totals->active_bytes = tsr__sum_u64(totals->active_bytes, bytes);
      totals->requested_bytes = tsr__sum_u64(totals->requested_bytes, t->events.size[event]);
    }
    if (death == event) s->died = allocation;
    /* A free that completes with the next event is no wait of the timeline's, see timeline.h. */
    if (death == event + 1 && t->events.action[event] == TSR_ACTION_FREE_REQUESTED)
      waiting = tsr__sum_u64(waiting, bytes);
  }
  if (s->died != TSR_NONE) {
    totals->active_bytes = tsr__drop_u64(totals->active_bytes, t->block_bytes.items[s->died]);
    totals->requested_bytes =
        tsr__drop_u64(totals->requested_bytes, s->died < t->initial.count
                                                   ? t->initial.items[s->died].requested_bytes
                                                   : t->events.size[t->birth.items[s->died]]);
  }
  totals->allocated_bytes = tsr__drop_u64(totals->active_bytes, waiting);
  return true;
}

#endif
