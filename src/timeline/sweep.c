/* sweep.c - the timeline played forward. See sweep.h.
 *
 * The timeline has the begin and end of everything. Births are in order already; deaths are brought
 * into order by counting:
 *
 *   first_dead   0 0 1 3 3 ...    event e frees dead[first_dead[e] .. first_dead[e + 1])
 *   dead         7 2 9 ...        allocations
 *
 * Spans and waits are few, and sorted. */
#include "timeline/sweep.h"

#include <assert.h>
#include <stdlib.h>

#include "base/checked.h"

static int compare_turns(const void *a, const void *b) {
  const tsr__sweep_turn *x = a, *y = b;
  return (x->event > y->event) - (x->event < y->event);
}

static bool add_turn(tsr__sweep_turns *turns, uint32_t event, size_t index) {
  return event == TSR_NONE || TSR__VECTOR_PUSH(turns, (tsr__sweep_turn){event, (uint32_t)index});
}

static void sort_turns(tsr__sweep_turns *turns) {
  if (turns->count) qsort(turns->items, turns->count, sizeof *turns->items, compare_turns);
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

static bool order_dead(tsr__sweep *s) {
  const tsr__timeline *t = s->timeline;
  size_t events = (size_t)t->events.count;
  s->first_dead = TSR__NEW_ARRAY(uint32_t, events + 2);
  s->dead = TSR__NEW_ARRAY(uint32_t, t->death.count);
  if (!s->first_dead || !s->dead) return false;
  /* Counted two places further on, so that after the placing, which moves each start to its end,
   * they stand where they belong. */
  for (size_t i = 0; i < t->death.count; i++)
    if (t->death.items[i] != TSR_NONE) s->first_dead[t->death.items[i] + 2]++;
  for (size_t i = 2; i < events + 2; i++) s->first_dead[i] += s->first_dead[i - 1];
  for (size_t i = 0; i < t->death.count; i++)
    if (t->death.items[i] != TSR_NONE)
      s->dead[s->first_dead[t->death.items[i] + 1]++] = (uint32_t)i;
  assert(s->first_dead[0] == 0 && s->first_dead[events] <= t->death.count);
  return true;
}

int tsr__sweep_begin(const tsr__timeline *timeline, tsr__sweep *out, tsr_error *error) {
  tsr__sweep sweep = {.timeline = timeline,
                      .event = -1,
                      .totals = timeline->start,
                      .born = TSR_NONE,
                      .next_born = (uint32_t)timeline->initial.count};
  if (!order_turns(&sweep) || !order_dead(&sweep)) {
    tsr__sweep_release(&sweep);
    return tsr__fail_memory(error);
  }
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

static void apply_turns(tsr__sweep *s, uint32_t event) {
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
}

bool tsr__sweep_next(tsr__sweep *s) {
  const tsr__timeline *t = s->timeline;
  if (s->event + 1 >= (int64_t)t->events.count) return false;
  uint32_t event = (uint32_t)++s->event;
  assert(s->first_dead[event] <= s->first_dead[event + 1]);
  assert(s->next_born >= t->initial.count && s->next_born <= t->birth.count);
  s->born = TSR_NONE;
  if (s->next_born < t->birth.count && t->birth.items[s->next_born] == event) {
    s->born = s->next_born++;
    s->totals.active_bytes = tsr__sum_u64(s->totals.active_bytes, t->block_bytes.items[s->born]);
    s->totals.requested_bytes =
        tsr__sum_u64(s->totals.requested_bytes, tsr__timeline_requested(t, s->born));
  }
  s->died = s->dead + s->first_dead[event];
  s->died_count = s->first_dead[event + 1] - s->first_dead[event];
  for (size_t i = 0; i < s->died_count; i++) {
    s->totals.active_bytes =
        tsr__drop_u64(s->totals.active_bytes, t->block_bytes.items[s->died[i]]);
    s->totals.requested_bytes =
        tsr__drop_u64(s->totals.requested_bytes, tsr__timeline_requested(t, s->died[i]));
  }
  apply_turns(s, event);
  /* A free that completes with the next event is no wait of the timeline's, see timeline.h. */
  uint64_t waiting = s->waiting_bytes;
  uint32_t freed = t->allocation_of[event];
  if (t->events.action[event] == TSR_ACTION_FREE_REQUESTED && freed != TSR_NONE &&
      t->death.items[freed] != TSR_NONE && t->death.items[freed] == event + 1)
    waiting = tsr__sum_u64(waiting, t->block_bytes.items[freed]);
  s->totals.allocated_bytes = tsr__drop_u64(s->totals.active_bytes, waiting);
  return true;
}

void tsr__sweep_release(tsr__sweep *sweep) {
  tsr__free(sweep->first_dead);
  tsr__free(sweep->dead);
  TSR__VECTOR_FREE(&sweep->spans_born);
  TSR__VECTOR_FREE(&sweep->spans_gone);
  TSR__VECTOR_FREE(&sweep->waits_begun);
  TSR__VECTOR_FREE(&sweep->waits_ended);
}
