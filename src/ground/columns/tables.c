/* tables.c - finding things in the columns of a snapshot, and releasing it. See tables.h. */
#include "columns/tables.h"

#include <assert.h>

#include "columns/event_table.h"

void tsr_snapshot_free(tsr_snapshot *snapshot) {
  if (!snapshot) return;
  tsr__intern_release(&snapshot->strings);
  tsr__intern_release(&snapshot->frames);
  tsr__intern_release(&snapshot->stacks);
  tsr__intern_release(&snapshot->frame_extras);
  tsr__intern_release(&snapshot->orders);
  tsr__intern_release(&snapshot->pools);
  tsr__intern_release(&snapshot->streams);
  TSR__VECTOR_FREE(&snapshot->actions);
  tsr__events_release(&snapshot->events);
  for (size_t i = 0; i < snapshot->traces.count; i++)
    TSR__VECTOR_FREE(&snapshot->traces.items[i].runs);
  TSR__VECTOR_FREE(&snapshot->traces);
  TSR__VECTOR_FREE(&snapshot->device_traces);
  TSR__VECTOR_FREE(&snapshot->segments);
  TSR__VECTOR_FREE(&snapshot->segments_more);
  TSR__VECTOR_FREE(&snapshot->blocks);
  TSR__VECTOR_FREE(&snapshot->blocks_more);
  TSR__VECTOR_FREE(&snapshot->annotations);
  TSR__VECTOR_FREE(&snapshot->annotations_more);
  TSR__VECTOR_FREE(&snapshot->history);
  TSR__VECTOR_FREE(&snapshot->extras);
  TSR__VECTOR_FREE(&snapshot->loose);
  TSR__VECTOR_FREE(&snapshot->loose_values);
  tsr__sidecar_release(&snapshot->sidecar);
  TSR__VECTOR_FREE(&snapshot->flat);
  TSR__VECTOR_FREE(&snapshot->reserved_marks);
  TSR__VECTOR_FREE(&snapshot->devices);
  TSR__VECTOR_FREE(&snapshot->segments_by_device);
  tsr__free(snapshot);
}

void tsr__sidecar_release(tsr__sidecar *sidecar) {
  TSR__VECTOR_FREE(&sidecar->tensors);
  TSR__VECTOR_FREE(&sidecar->cards);
  tsr__arena_release(&sidecar->texts);
  *sidecar = (tsr__sidecar){0};
}

/* ---- extras ---- */

static int compare_u64(uint64_t a, uint64_t b) {
  return (a > b) - (a < b);
}

int tsr__extras_compare(const void *a, const void *b) {
  const tsr__extra *x = a, *y = b;
  int by_table = compare_u64(x->table, y->table), by_row = compare_u64(x->row, y->row);
  return by_table ? by_table : by_row ? by_row : compare_u64(x->key, y->key);
}

/* Index of the first extra that is not before `row` of `table`. */
static size_t extras_from(const tsr_snapshot *snapshot, uint32_t table, uint64_t row) {
  tsr__extra wanted = {.table = table, .row = row, .key = 0};
  size_t low = 0, high = snapshot->extras.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (tsr__extras_compare(&snapshot->extras.items[middle], &wanted) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

const tsr__extra *tsr__extras_of(const tsr_snapshot *snapshot, uint32_t table, uint64_t first,
                                 uint64_t last, size_t *count) {
  *count = 0;
  if (!snapshot->extras.count) return NULL;
  size_t from = extras_from(snapshot, table, first);
  size_t to = last == UINT64_MAX ? extras_from(snapshot, table + 1, 0)
                                 : extras_from(snapshot, table, last + 1);
  assert(from <= to && to <= snapshot->extras.count);
  *count = to - from;
  return snapshot->extras.items + from;
}

tsr_text tsr__snapshot_plan_hash(const tsr_snapshot *snapshot) {
  size_t count;
  const tsr__extra *extras = tsr__extras_of(snapshot, TSR__NULL, 0, UINT64_MAX, &count);
  for (size_t i = 0; i < count; i++)
    if (extras[i].key == TSR__NAME_PLAN && extras[i].value.tag == TSR__STRING)
      return tsr_snapshot_string(snapshot, extras[i].value.id);
  return (tsr_text){"", 0};
}

/* The first place among segments_by_device whose device is not below this one. */
static size_t first_segment_of(const tsr_snapshot *snapshot, uint64_t device) {
  size_t low = 0, high = snapshot->segments_by_device.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (snapshot->segments.items[snapshot->segments_by_device.items[middle]].device < device)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

const uint32_t *tsr__snapshot_segments_of(const tsr_snapshot *snapshot, uint32_t device,
                                          size_t *count) {
  size_t first = first_segment_of(snapshot, device);
  *count = first_segment_of(snapshot, (uint64_t)device + 1) - first;
  return *count ? snapshot->segments_by_device.items + first : NULL;
}
