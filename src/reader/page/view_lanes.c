/* view_lanes.c - times, segments, named ranges and marks of a trace, as a picture needs them.
 *
 * Annotations have times, events have numbers; a range begins at the first moment that is not
 * before its start. Starts and ends are matched by name, the last started first, because nested
 * calls end in that order. Times in a file may go backwards; a picture's axis must not, so each is at
 * least the previous one. */
#include "page/view_lanes.h"

#include <assert.h>

#include "base/memory.h"
#include "base/sort.h"

enum { MOST_TIMES = 1 << 18, MOST_SPANS = 1 << 18, MOST_RANGES = 1 << 16, MOST_MARKS = 4096 };

/* ---- times ---- */

bool tsr__view_times(const tsr__timeline *t, tsr_view_device *out) {
  uint64_t moments = t->events.count + 1;
  uint64_t step = (moments + MOST_TIMES - 1) / MOST_TIMES;
  bool has_times = false;
  for (uint64_t i = 0; !has_times && i < t->events.count; i++)
    has_times = t->events.time_us[i] != TSR_TIME_NONE;
  out->time_step = (uint32_t)step;
  if (!has_times) return true;
  size_t count = (size_t)((moments - 1 + step - 1) / step) + 1;
  out->times_us = TSR__NEW_ARRAY(int64_t, count);
  if (!out->times_us) return false;
  int64_t latest = TSR_TIME_NONE;
  for (size_t i = 0; i < count; i++) {
    uint64_t moment = i * step < moments ? i * step : moments - 1;
    int64_t time = t->events.time_us[moment ? moment - 1 : 0];
    if (time > latest) latest = time;
    out->times_us[i] = latest;
  }
  int64_t first = TSR_TIME_NONE; /* rows before the first known time */
  for (size_t i = 0; i < count && first == TSR_TIME_NONE; i++) first = out->times_us[i];
  for (size_t i = 0; i < count && out->times_us[i] == TSR_TIME_NONE; i++) out->times_us[i] = first;
  out->time_count = first == TSR_TIME_NONE ? 0 : count;
  return true;
}

uint32_t tsr__view_moment(const tsr_events *events, int64_t time) {
  uint64_t low = 0, high = events->count;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (events->time_us[middle] < time)
      low = middle + 1;
    else
      high = middle;
  }
  return (uint32_t)low + 1;
}

/* ---- segments ---- */

static int compare_spans(const void *a, const void *b) {
  const tsr_view_span *x = a, *y = b;
  return (x->size_bytes < y->size_bytes) - (x->size_bytes > y->size_bytes);
}

static int compare_births(const void *a, const void *b) {
  const tsr_view_span *x = a, *y = b;
  if (x->born != y->born) return x->born < y->born ? -1 : 1;
  return (x->address > y->address) - (x->address < y->address);
}

bool tsr__view_spans(const tsr__timeline *t, tsr_view_device *out) {
  uint32_t end = (uint32_t)t->events.count + 1;
  out->spans = TSR__NEW_ARRAY(tsr_view_span, t->spans.count);
  if (!out->spans) return false;
  for (size_t i = 0; i < t->spans.count; i++) {
    const tsr__span *span = &t->spans.items[i];
    if (span->birth != TSR_NONE && span->birth == span->death) continue; /* never there */
    out->spans[out->span_count++] =
        (tsr_view_span){.address = span->address,
                        .size_bytes = span->size_bytes,
                        .born = span->birth == TSR_NONE ? 0 : span->birth + 1,
                        .died = span->death == TSR_NONE ? end : span->death + 1,
                        .stream = span->stream,
                        .pool = span->pool,
                        .is_large = span->is_large,
                        .is_expandable = span->is_expandable};
    assert(out->spans[out->span_count - 1].born < out->spans[out->span_count - 1].died);
  }
  if (out->span_count > MOST_SPANS) {
    tsr__sort(out->spans, out->span_count, sizeof *out->spans, compare_spans);
    out->span_count = MOST_SPANS;
  }
  tsr__sort(out->spans, out->span_count, sizeof *out->spans, compare_births);
  return true;
}

/* ---- marks ---- */

bool tsr__view_marks(const tsr__timeline *t, tsr_view_device *out) {
  TSR__VECTOR(tsr_view_mark) marks = {0};
  bool ok = true;
  for (uint64_t i = 0; ok && i < t->events.count && marks.count < MOST_MARKS; i++) {
    uint8_t action = t->events.action[i];
    if (action == TSR_ACTION_OOM)
      ok = TSR__VECTOR_PUSH(&marks, (tsr_view_mark){(uint32_t)i + 1, TSR_ACTION_OOM,
                                                    t->events.size[i], t->events.addr[i]});
    else if (action == TSR_ACTION_SNAPSHOT)
      ok = TSR__VECTOR_PUSH(
          &marks, (tsr_view_mark){(uint32_t)i + 1, TSR_ACTION_SNAPSHOT, t->events.size[i], 0});
  }
  out->marks = marks.items;
  out->mark_count = marks.count;
  return ok;
}

/* ---- ranges ---- */

typedef TSR__VECTOR(tsr_view_range) ranges;

/* Annotations of the device, or of all devices if the file has only one GPU's memory. Of pinned host
 * memory they name no device. */
static bool is_of(const tsr__timeline *t, const tsr_annotation *annotation) {
  size_t count;
  (void)tsr_snapshot_gpus(t->snapshot, &count);
  return count <= 1 || t->device >= TSR_DEVICE_CPU || annotation->device == t->device;
}

static bool add_annotations(const tsr__timeline *t, ranges *out) {
  size_t count;
  const tsr_annotation *annotations = tsr_snapshot_annotations(t->snapshot, &count);
  TSR__VECTOR(uint32_t) open = {0};
  uint32_t end = (uint32_t)t->events.count + 1;
  bool ok = true;
  for (size_t i = 0; ok && i < count && out->count < MOST_RANGES; i++) {
    const tsr_annotation *a = &annotations[i];
    if (!is_of(t, a) || a->time_us == TSR_TIME_NONE) continue;
    uint32_t moment = tsr__view_moment(&t->events, a->time_us);
    if (a->is_start) {
      tsr_view_range range = {TSR_VIEW_ANNOTATION, true, a->name, moment, end};
      ok = TSR__VECTOR_PUSH(out, range) && TSR__VECTOR_PUSH(&open, (uint32_t)out->count - 1);
    } else if (a->is_end) {
      size_t k = open.count;
      while (k && out->items[open.items[k - 1]].name != a->name) k--;
      if (!k) continue;
      out->items[open.items[k - 1]].died = moment;
      for (; k < open.count; k++) open.items[k - 1] = open.items[k];
      open.count--;
    }
  }
  TSR__VECTOR_FREE(&open);
  return ok;
}

/* Consecutive events with the same metadata. */
static bool add_metadata(const tsr__timeline *t, ranges *out) {
  tsr_id_column column = t->events.metadata;
  uint32_t current = TSR_NONE, seen = TSR_NONE;
  size_t first = out->count;
  if (!column.values && column.uniform == TSR_NONE) return true;
  for (uint64_t i = 0; i < t->events.count; i++) {
    uint32_t name = tsr_id_at(column, i);
    if (name == seen) continue;
    seen = name;
    if (current != TSR_NONE) out->items[out->count - 1].died = (uint32_t)i + 1;
    current = name;
    if (!tsr_snapshot_string(t->snapshot, name).size_bytes) current = TSR_NONE;
    if (current == TSR_NONE) continue;
    if (out->count - first >= MOST_RANGES) return true;
    tsr_view_range range = {TSR_VIEW_METADATA, true, name, (uint32_t)i + 1,
                            (uint32_t)t->events.count + 1};
    if (!TSR__VECTOR_PUSH(out, range)) return false;
  }
  return true;
}

/* Steps and phases include their events: from after the first one to after the last. */
static bool add_steps(const tsr__cycle *cycle, ranges *out) {
  bool ok = true;
  for (size_t i = 0; ok && i < cycle->steps.count && i < MOST_RANGES; i++) {
    const tsr__cycle_step *step = &cycle->steps.items[i];
    ok = TSR__VECTOR_PUSH(out, (tsr_view_range){TSR_VIEW_STEP, step->is_whole, (uint32_t)i + 1,
                                                step->first + 1, step->last + 2});
  }
  return ok;
}

static bool add_phases(const tsr__timeline *t, const tsr__phases *phases, ranges *out) {
  bool ok = true;
  for (size_t i = 0; ok && i < phases->runs.count && i < MOST_RANGES; i++) {
    const tsr__phase_run *run = &phases->runs.items[i];
    bool is_last = i + 1 == phases->runs.count;
    uint32_t end = is_last ? (uint32_t)t->events.count : phases->runs.items[i + 1].first;
    assert(run->first < end && end <= t->events.count);
    ok = TSR__VECTOR_PUSH(
        out, (tsr_view_range){TSR_VIEW_PHASE, run->is_known, run->phase, run->first + 1, end + 1});
  }
  return ok;
}

/* By kind, then by beginning, outer ones first. */
static int compare_ranges(const void *a, const void *b) {
  const tsr_view_range *x = a, *y = b;
  if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
  if (x->born != y->born) return x->born < y->born ? -1 : 1;
  return (x->died < y->died) - (x->died > y->died);
}

bool tsr__view_ranges(const tsr__timeline *t, const tsr__phases *phases, const tsr__cycle *cycle,
                      tsr_view_device *out) {
  ranges all = {0};
  bool ok = !t->events.count || (add_annotations(t, &all) && add_metadata(t, &all) &&
                                 add_steps(cycle, &all) && add_phases(t, phases, &all));
  out->ranges = all.items;
  out->range_count = all.count;
  tsr__sort(all.items, all.count, sizeof *all.items, compare_ranges);
  return ok;
}
