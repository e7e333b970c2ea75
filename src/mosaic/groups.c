/* groups.c - what is live at an event, grouped as Mosaic groups it.
 *
 * Mosaic keeps live events in a dict by address and visits them in the dict's order: the order in which
 * addresses became live. An address that was freed and allocated again is new; one that is allocated
 * while live keeps its position but counts as the newer event. So:
 *
 *   places   one for each time an address became live, in order: its newest event
 *   live     address -> index of its place
 *
 * and the content of `live` at the end, in the order of places, is grouped. A group is identified by
 * the text of its frames' files and lines; function names do not count. Distinct stacks are few, so
 * each stack's text is made once. */
#include <assert.h>
#include <inttypes.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/sort.h"
#include "mosaic/trace.h"

enum { FREED = 1 }; /* of a place: no longer live */

typedef struct grouping {
  const tsr__mosaic_trace *trace;
  TSR__VECTOR(uint64_t) places; /* event * 2, plus FREED */
  tsr__intern keys;             /* id: index of groups */
  uint32_t *group_of;           /* by stack: index of groups plus 1; 0: unknown so far */
  tsr__buffer text;
  TSR__VECTOR(tsr_mosaic_group) groups;
  tsr_mosaic_group rest;
  uint64_t *events; /* see tsr_mosaic_groups */
} grouping;

void tsr__mosaic_key(tsr__buffer *out, const tsr_snapshot *snapshot, uint32_t stack) {
  tsr_stack frames = tsr_snapshot_stack(snapshot, stack);
  for (uint32_t i = 0; i < frames.depth; i++) {
    tsr_frame frame = tsr_snapshot_frame(snapshot, frames.frames[i]);
    tsr_text file = tsr_snapshot_string(snapshot, frame.file);
    tsr__buffer_append(out, file.data, file.size_bytes);
    if (tsr_snapshot_has_negative_line(snapshot, frames.frames[i]))
      tsr__buffer_printf(out, "%" PRId64, (int64_t)frame.line);
    else
      tsr__buffer_printf(out, "%" PRIu64, frame.line);
  }
}

/* Process the events up to `event`. */
static bool find_live(grouping *g, int64_t event) {
  tsr__mosaic_count count = {.bytes = 0};
  const tsr_events *events = &g->trace->events;
  bool is_good = true;
  for (uint64_t i = 0; is_good && (int64_t)i <= event; i++) {
    if (!tsr__mosaic_counts(g->trace, i)) continue;
    uint8_t action = events->action[i];
    if (action != TSR_ACTION_ALLOC && action != TSR_ACTION_FREE_COMPLETED) continue;
    const uint64_t *place = tsr__map_find(&count.live, events->addr[i]);
    assert(!place || *place < g->places.count);
    if (place) g->places.items[*place] = i * 2 + (action == TSR_ACTION_FREE_COMPLETED ? FREED : 0);
    if (!place && action == TSR_ACTION_ALLOC) is_good = TSR__VECTOR_PUSH(&g->places, i * 2);
    is_good = is_good && tsr__mosaic_count_event(&count, g->trace, i, g->places.count - 1);
  }
  tsr__map_release(&count.live);
  return is_good;
}

/* The group of a stack, created if necessary: its index plus 1, or 0 if out of memory. */
static uint32_t group_of(grouping *g, uint32_t stack) {
  if (g->group_of[stack]) return g->group_of[stack];
  bool is_new = false;
  g->text.size = 0;
  tsr__mosaic_key(&g->text, g->trace->snapshot, stack);
  if (g->text.failed) return 0;
  uint32_t id = tsr__intern_put(&g->keys, g->text.data, g->text.size, &is_new);
  if (id == TSR__INTERN_FULL) return 0;
  if (is_new && !TSR__VECTOR_PUSH(&g->groups, (tsr_mosaic_group){.stack = stack})) return 0;
  return g->group_of[stack] = id + 1;
}

/* The group that a place is in, which may be `rest`; NULL for a place that is free, or if out of
 * memory. */
static tsr_mosaic_group *group_at(grouping *g, size_t place) {
  uint64_t event = g->places.items[place] / 2;
  assert(event < g->trace->events.count);
  if (g->places.items[place] % 2 == FREED) return NULL;
  uint32_t stack = g->trace->events.stack[event];
  if (stack == TSR_NONE) return &g->rest;
  uint32_t index = group_of(g, stack);
  return index ? &g->groups.items[index - 1] : NULL;
}

static bool sum_live(grouping *g) {
  for (size_t i = 0; i < g->places.count; i++) {
    tsr_mosaic_group *group = group_at(g, i);
    if (!group && g->places.items[i] % 2 != FREED) return false;
    if (!group) continue;
    group->bytes = tsr__sum_u64(group->bytes, g->trace->events.size[g->places.items[i] / 2]);
    group->allocations++;
  }
  return true;
}

/* List the members of each group after those of the previous group. `first` is where the next member
 * goes, and is reset at the end to where the first went. All groups exist by now. */
static bool list_live(grouping *g) {
  size_t first = 0;
  g->events = TSR__NEW_ARRAY(uint64_t, g->places.count);
  if (!g->events) return false;
  tsr_mosaic_group *groups = g->groups.items;
  size_t count = groups ? g->groups.count : 0; /* the static analyzer cannot infer this */
  for (size_t i = 0; i < count; i++) {
    groups[i].first = first;
    first += groups[i].allocations;
  }
  g->rest.first = first;
  assert(first + g->rest.allocations <= g->places.count);
  for (size_t i = 0; i < g->places.count; i++) {
    tsr_mosaic_group *group = group_at(g, i);
    if (group) g->events[group->first++] = g->places.items[i] / 2;
  }
  assert(g->groups.count == count || !groups); /* what is live was grouped before */
  for (size_t i = 0; i < count; i++) groups[i].first -= groups[i].allocations;
  g->rest.first -= g->rest.allocations;
  return true;
}

/* A group and its original position. */
typedef struct ranked {
  tsr_mosaic_group group;
  size_t place;
} ranked;

static int compare_ranked(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->group.bytes != y->group.bytes) return x->group.bytes < y->group.bytes ? 1 : -1;
  return (x->place > y->place) - (x->place < y->place);
}

/* Largest first; ties keep their order, which qsort does not guarantee. */
static bool sort(tsr_mosaic_group *groups, size_t count) {
  ranked *all = TSR__NEW_ARRAY(ranked, count);
  if (!all) return false;
  for (size_t i = 0; i < count; i++) all[i] = (ranked){groups[i], i};
  tsr__sort(all, count, sizeof *all, compare_ranked);
  for (size_t i = 0; i < count; i++) {
    assert(!i || all[i - 1].group.bytes >= all[i].group.bytes);
    groups[i] = all[i].group;
  }
  tsr__free(all);
  return true;
}

int tsr__mosaic_groups_at(const tsr__mosaic_trace *trace, int64_t event, tsr_mosaic_groups *out,
                          tsr_error *error) {
  grouping g = {.trace = trace, .rest.stack = TSR_NONE};
  tsr__intern_init(&g.keys);
  g.group_of = TSR__NEW_ARRAY(uint32_t, tsr_snapshot_stack_count(trace->snapshot));
  bool is_good = g.group_of && find_live(&g, event) && sum_live(&g) && list_live(&g) &&
                 sort(g.groups.items, g.groups.count);
  if (is_good) {
    *out = (tsr_mosaic_groups){g.groups.items, g.groups.count, g.rest, g.events};
  } else {
    TSR__VECTOR_FREE(&g.groups);
    tsr__free(g.events);
  }
  TSR__VECTOR_FREE(&g.places);
  tsr__intern_release(&g.keys);
  tsr__buffer_release(&g.text);
  tsr__free(g.group_of);
  return is_good ? 0 : tsr__fail_memory(error);
}
