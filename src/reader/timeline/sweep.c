/* sweep.c - the timeline played forward. See sweep.h.
 *
 * An event makes or frees the allocation that the timeline has for it. It frees another one only if it
 * makes one at an address in use, which is an error of the trace. Such deaths, spans and waits are few, and
 * sorted before the sweep; `next_turn` is the next event that is about any of them. */
#include "timeline/sweep.h"

#include <assert.h>

#include "base/checked.h"
#include "base/sort.h"

static int compare_turns(const void *a, const void *b) {
  const tsr__sweep_turn *x = a, *y = b;
  return (x->event > y->event) - (x->event < y->event);
}

static bool add_turn(tsr__sweep_turns *turns, uint32_t event, size_t index) {
  return event == TSR_NONE || TSR__VECTOR_PUSH(turns, (tsr__sweep_turn){event, (uint32_t)index});
}

static void sort_turns(tsr__sweep_turns *turns) {
  tsr__sort(turns->items, turns->count, sizeof *turns->items, compare_turns);
}

static bool order_turns(tsr__sweep *s) {
  const tsr__timeline *t = s->timeline;
  bool ok = true;
  for (size_t i = 0; ok && i < t->spans.count; i++) {
    const tsr__span *span = &t->spans.items[i];
    ok = add_turn(&s->spans_born, span->birth, i) && add_turn(&s->spans_gone, span->death, i);
  }
  for (size_t i = 0; ok && i < t->waits.count; i++) {
    const tsr__wait *wait = &t->waits.items[i];
    if (wait->from == TSR_NONE)
      s->waiting_bytes = tsr__sum_u64(s->waiting_bytes, t->block_bytes.items[wait->allocation]);
    ok = add_turn(&s->waits_begun, wait->from, i) && add_turn(&s->waits_ended, wait->until, i);
  }
  sort_turns(&s->spans_born);
  sort_turns(&s->spans_gone);
  sort_turns(&s->waits_begun);
  sort_turns(&s->waits_ended);
  return ok;
}

/* Allocations that died because their address was taken again. */
static bool order_replaced(tsr__sweep *s) {
  const tsr__timeline *t = s->timeline;
  bool ok = true;
  if (!t->misfits[TSR__MISFIT_ALLOC_LIVE]) return true;
  for (size_t i = 0; ok && i < t->death.count; i++) {
    uint32_t death = t->death.items[i];
    if (death != TSR_NONE && t->allocation_of[death] != i) ok = add_turn(&s->replaced, death, i);
  }
  sort_turns(&s->replaced);
  return ok;
}

static void see_next(const tsr__sweep_turns *turns, size_t at, uint32_t *next) {
  if (at < turns->count && turns->items[at].event < *next) *next = turns->items[at].event;
}

/* The next mark of reserved memory, or NULL: of snapshots, and after the last one. */
static const tsr__reserved_mark *next_mark(const tsr__sweep *s) {
  const tsr__flat_device *flat = s->timeline->flat;
  if (!flat || s->next_mark >= flat->mark_count) return NULL;
  return &s->timeline->snapshot->reserved_marks.items[flat->first_mark + s->next_mark];
}

static void find_next_turn(tsr__sweep *s) {
  const tsr__reserved_mark *mark = next_mark(s);
  s->next_turn = mark && mark->event < (int64_t)TSR_NONE ? (uint32_t)mark->event : TSR_NONE;
  see_next(&s->spans_born, s->at_spans_born, &s->next_turn);
  see_next(&s->spans_gone, s->at_spans_gone, &s->next_turn);
  see_next(&s->waits_begun, s->at_waits_begun, &s->next_turn);
  see_next(&s->waits_ended, s->at_waits_ended, &s->next_turn);
  see_next(&s->replaced, s->at_replaced, &s->next_turn);
}

int tsr__sweep_begin(const tsr__timeline *timeline, tsr__sweep *out, tsr_error *error) {
  tsr__sweep sweep = {.timeline = timeline,
                      .event = -1,
                      .totals = timeline->start,
                      .born = TSR_NONE,
                      .died = TSR_NONE};
  static_assert(TSR_NONE == UINT32_MAX, "no event comes after it");
  if (!order_turns(&sweep) || !order_replaced(&sweep)) {
    tsr__sweep_release(&sweep);
    return tsr__fail_memory(error);
  }
  const tsr__reserved_mark *mark = next_mark(&sweep);
  sweep.next_mark += mark && mark->event < 0; /* it is in the totals of the start */
  find_next_turn(&sweep);
  *out = sweep;
  return 0;
}

/* Is it this list's turn? Then `*index` is what the turn is about. */
static bool take_turn(const tsr__sweep_turns *turns, size_t *at, uint32_t event, uint32_t *index) {
  if (*at == turns->count || turns->items[*at].event != event) return false;
  assert(!*at || turns->items[*at - 1].event <= event);
  *index = turns->items[(*at)++].index;
  return true;
}

void tsr__sweep_apply_turns(tsr__sweep *s, uint32_t event) {
  const tsr__timeline *t = s->timeline;
  uint64_t *reserved = &s->totals.reserved_bytes, *waiting = &s->waiting_bytes;
  uint32_t i;
  while (take_turn(&s->spans_born, &s->at_spans_born, event, &i))
    *reserved = tsr__sum_u64(*reserved, t->spans.items[i].size_bytes);
  while (take_turn(&s->spans_gone, &s->at_spans_gone, event, &i))
    *reserved = tsr__drop_u64(*reserved, t->spans.items[i].size_bytes);
  while (take_turn(&s->waits_begun, &s->at_waits_begun, event, &i))
    *waiting = tsr__sum_u64(*waiting, t->block_bytes.items[t->waits.items[i].allocation]);
  while (take_turn(&s->waits_ended, &s->at_waits_ended, event, &i))
    *waiting = tsr__drop_u64(*waiting, t->block_bytes.items[t->waits.items[i].allocation]);
  const tsr__reserved_mark *mark = next_mark(s);
  if (mark && mark->event == (int64_t)event) {
    *reserved = mark->bytes;
    s->next_mark++;
  }
  if (take_turn(&s->replaced, &s->at_replaced, event, &i)) s->died = i;
  find_next_turn(s);
}

void tsr__sweep_release(tsr__sweep *sweep) {
  TSR__VECTOR_FREE(&sweep->spans_born);
  TSR__VECTOR_FREE(&sweep->spans_gone);
  TSR__VECTOR_FREE(&sweep->waits_begun);
  TSR__VECTOR_FREE(&sweep->waits_ended);
  TSR__VECTOR_FREE(&sweep->replaced);
}
