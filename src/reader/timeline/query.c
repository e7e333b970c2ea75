/* query.c - the state at any event, from the checkpoint before it. See timeline.h.
 *
 * Between checkpoints the events themselves say what changes: allocation_of names what each makes
 * or frees, and when each dies is known. So a query costs the distance between checkpoints, not the
 * trace. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/sort.h"
#include "timeline/timeline.h"

uint64_t tsr__timeline_requested(const tsr__timeline *t, uint32_t allocation) {
  assert(allocation < t->birth.count);
  if (allocation < t->initial.count) return t->initial.items[allocation].requested_bytes;
  return t->events.size[t->birth.items[allocation]];
}

uint64_t tsr__timeline_address(const tsr__timeline *t, uint32_t allocation) {
  assert(allocation < t->birth.count);
  if (allocation < t->initial.count) return t->initial.items[allocation].address;
  return t->events.addr[t->birth.items[allocation]];
}

uint32_t tsr__timeline_stack(const tsr__timeline *t, uint32_t allocation) {
  assert(allocation < t->birth.count);
  if (allocation < t->initial.count) return t->initial.items[allocation].stack;
  return t->events.stack[t->birth.items[allocation]];
}

/* The last checkpoint at or before an event. */
static const tsr__checkpoint *checkpoint_before(const tsr__timeline *t, int64_t event) {
  size_t low = 0, high = t->checkpoints.count;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (t->checkpoints.items[middle].event <= event)
      low = middle;
    else
      high = middle;
  }
  assert(low < t->checkpoints.count && t->checkpoints.items[low].event <= event);
  return &t->checkpoints.items[low];
}

bool tsr__span_is_there(const tsr__span *span, int64_t event) {
  bool is_born = span->birth == TSR_NONE || (int64_t)span->birth <= event;
  bool is_gone = span->death != TSR_NONE && (int64_t)span->death <= event;
  return is_born && !is_gone;
}

static int compare_changes(const void *left, const void *right) {
  const tsr__span_change *a = left, *b = right;
  if (a->event != b->event) return a->event < b->event ? -1 : 1;
  if (a->is_end != b->is_end) return a->is_end ? -1 : 1;
  return (a->span > b->span) - (a->span < b->span);
}

tsr__span_change *tsr__timeline_span_changes(const tsr__timeline *t, int64_t lag) {
  tsr__span_change *changes = TSR__NEW_ARRAY(tsr__span_change, 2 * t->spans.count + 1);
  for (size_t i = 0; changes && i < t->spans.count; i++) {
    const tsr__span *span = &t->spans.items[i];
    int64_t birth = span->birth == TSR_NONE ? -1 : (int64_t)span->birth;
    int64_t death = span->death == TSR_NONE ? INT64_MAX : (int64_t)span->death + lag;
    changes[2 * i] = (tsr__span_change){birth, (uint32_t)i, false};
    changes[2 * i + 1] = (tsr__span_change){death, (uint32_t)i, true};
  }
  if (changes) tsr__sort(changes, 2 * t->spans.count, sizeof *changes, compare_changes);
  return changes;
}

int64_t tsr__timeline_highest(const tsr__timeline *t) {
  int64_t event = t->reserved_event, next = event;
  const tsr_events *events = &t->events;
  if (t->at_peak.reserved_bytes == t->maxima.reserved_bytes) return t->allocated_event;
  if (event < 0) return event;
  while (next + 1 < (int64_t)events->count && (events->action[next] == TSR_ACTION_SEGMENT_ALLOC ||
                                               events->action[next] == TSR_ACTION_SEGMENT_MAP))
    next++;
  return events->action[next] == TSR_ACTION_ALLOC ? next : event;
}

const tsr__reserved_mark *tsr__timeline_mark(const tsr__timeline *t, int64_t event) {
  const tsr__reserved_mark *marks = t->snapshot->reserved_marks.items;
  size_t low = t->flat->first_mark, high = low + t->flat->mark_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (marks[middle].event <= event)
      low = middle + 1;
    else
      high = middle;
  }
  return low > t->flat->first_mark ? &marks[low - 1] : NULL;
}

static uint64_t reserved_at(const tsr__timeline *t, int64_t event) {
  uint64_t bytes = 0;
  const tsr__reserved_mark *mark = t->flat ? tsr__timeline_mark(t, event) : NULL;
  if (t->flat) return mark ? mark->bytes : 0;
  for (size_t i = 0; i < t->spans.count; i++) {
    if (tsr__span_is_there(&t->spans.items[i], event))
      bytes = tsr__sum_u64(bytes, t->spans.items[i].size_bytes);
  }
  return bytes;
}

static bool is_live(const tsr__timeline *t, uint32_t allocation, int64_t event) {
  uint32_t death = t->death.items[allocation];
  return death == TSR_NONE || (int64_t)death > event;
}

uint64_t tsr__next_action(const tsr_events *events, tsr_action action, uint64_t from) {
  assert(from <= events->count && (unsigned)action <= UINT8_MAX);
  size_t left = (size_t)(events->count - from);
  const uint8_t *found = left ? memchr(events->action + from, (int)action, left) : NULL;
  return found ? (uint64_t)(found - events->action) : events->count;
}

bool tsr__has_history(const tsr_events *events) {
  uint64_t changes = 0, pending = 0;
  bool is_pending = false; /* a free was requested, and will be completed */
  for (uint64_t i = 0; i < events->count && changes < 2; i++) {
    uint8_t action = events->action[i];
    bool completes =
        action == TSR_ACTION_FREE_COMPLETED && is_pending && events->addr[i] == pending;
    changes += action == TSR_ACTION_ALLOC || action == TSR_ACTION_FREE_REQUESTED ||
               (action == TSR_ACTION_FREE_COMPLETED && !completes);
    if (action != TSR_ACTION_FREE_REQUESTED) continue;
    is_pending = true;
    pending = events->addr[i];
  }
  return changes > 1;
}

int tsr__timeline_live(const tsr__timeline *t, int64_t event, tsr__live_set *out,
                       tsr_error *error) {
  const tsr__checkpoint *point = checkpoint_before(t, event);
  tsr__live_set live = {0};
  bool ok = true;
  assert(event >= -1 && event < (int64_t)t->events.count);
  assert(point->first_live + point->live_count <= t->live_ids.count);
  for (size_t i = 0; ok && i < point->live_count; i++) {
    uint32_t allocation = t->live_ids.items[point->first_live + i];
    if (is_live(t, allocation, event)) ok = TSR__VECTOR_PUSH(&live, allocation);
  }
  for (int64_t i = point->event + 1; ok && i <= event; i++)
    if (t->events.action[i] == TSR_ACTION_ALLOC && t->allocation_of[i] != TSR_NONE &&
        is_live(t, t->allocation_of[i], event))
      ok = TSR__VECTOR_PUSH(&live, t->allocation_of[i]);
  if (ok) {
    for (size_t i = 1; i < live.count; i++) assert(live.items[i - 1] < live.items[i]);
    *out = live;
    return 0;
  }
  TSR__VECTOR_FREE(&live);
  return tsr__fail_memory(error);
}

/* Bytes of blocks that the program gave back and that are not free yet. */
static uint64_t waiting_at(const tsr__timeline *t, int64_t event) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < t->waits.count; i++) {
    const tsr__wait *wait = &t->waits.items[i];
    bool has_begun = wait->from == TSR_NONE || (int64_t)wait->from <= event;
    bool has_ended = wait->until != TSR_NONE && (int64_t)wait->until <= event;
    if (has_begun && !has_ended)
      bytes = tsr__sum_u64(bytes, t->block_bytes.items[wait->allocation]);
  }
  if (event < 0 || t->events.action[event] != TSR_ACTION_FREE_REQUESTED) return bytes;
  uint32_t allocation = t->allocation_of[event];
  if (allocation != TSR_NONE && (int64_t)t->death.items[allocation] == event + 1)
    bytes = tsr__sum_u64(bytes, t->block_bytes.items[allocation]);
  return bytes;
}

tsr_totals tsr__timeline_totals(const tsr__timeline *t, int64_t event, const tsr__live_set *live) {
  tsr_totals totals = {.reserved_bytes = reserved_at(t, event)};
  for (size_t i = 0; i < live->count; i++) {
    uint32_t allocation = live->items[i];
    totals.active_bytes = tsr__sum_u64(totals.active_bytes, t->block_bytes.items[allocation]);
    totals.requested_bytes =
        tsr__sum_u64(totals.requested_bytes, tsr__timeline_requested(t, allocation));
  }
  totals.allocated_bytes = tsr__drop_u64(totals.active_bytes, waiting_at(t, event));
  return totals;
}

size_t tsr__timeline_warnings(const tsr__timeline *t, tsr_warning *out) {
  static const tsr_warning texts[TSR__MISFIT_COUNT] = {
      {"alloc-of-live-address", 0,
       "allocations at an address in use; the older one is assumed to have been freed"},
      {"alloc-outside-segments", 0,
       "allocations outside all known free memory; they count with their rounded size"},
      {"alloc-inside-block", 0, "allocations inside a free block, not at its start"},
      {"alloc-too-long", 0, "allocations longer than the free memory at their address"},
      {"free-of-unknown", 0, "frees of memory that was not in use"},
      {"segments-contradict-trace", 0, "segment events that contradict the segments"},
      {"end-contradicts-trace", 0,
       "blocks live at the end that differ between the trace and the segments"},
      {"annotations-of-unknown", 0, "annotations of memory that was not in use; they name nothing"},
  };
  size_t count = 0;
  for (size_t i = 0; i < TSR__MISFIT_COUNT; i++) {
    if (!t->misfits[i]) continue;
    out[count] = texts[i];
    out[count++].count = t->misfits[i];
  }
  return count;
}
