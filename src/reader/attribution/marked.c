/* marked.c - see marked.h.
 *
 * PyTorch itself annotates Optimizer.step#NAME.step, Optimizer.zero_grad#NAME.zero_grad and, under
 * its profiler, ProfilerStep#N; people write forward and backward in many spellings. */
#include "attribution/marked.h"

#include <assert.h>
#include <string.h>

#include "base/map.h"
#include "base/sort.h"

static bool holds(tsr_text text, const char *word) {
  size_t size = strlen(word);
  for (size_t at = 0; size <= text.size_bytes && at <= text.size_bytes - size; at++) {
    size_t i = 0;
    while (i < size) {
      char c = text.data[at + i];
      if ((c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c) != word[i]) break;
      i++;
    }
    if (i == size) return true;
  }
  return false;
}

static bool begins(tsr_text text, const char *word) {
  size_t size = strlen(word);
  return text.size_bytes >= size && !memcmp(text.data, word, size);
}

/* The phase or step that a name means; false for all other names. */
static bool read_name(tsr_text name, tsr__marked *range) {
  range->is_step = begins(name, "ProfilerStep");
  range->is_optimizer_step = begins(name, "Optimizer.step");
  range->phase = TSR_PHASE_UNKNOWN;
  if (range->is_step) return true;
  if (holds(name, "zero_grad"))
    range->phase = TSR_PHASE_ZERO_GRAD;
  else if (range->is_optimizer_step || holds(name, "optimizer"))
    range->phase = TSR_PHASE_OPTIMIZER;
  else if (holds(name, "backward"))
    range->phase = TSR_PHASE_BACKWARD;
  else if (holds(name, "forward"))
    range->phase = TSR_PHASE_FORWARD;
  return range->phase != TSR_PHASE_UNKNOWN;
}

/* The first event at or after a time; `count` if all are before. */
static uint64_t event_at(const tsr_events *events, int64_t time_us) {
  uint64_t low = 0, high = events->count;
  assert(high && events->time_us[0] <= events->time_us[high - 1]);
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (events->time_us[middle] < time_us)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool times_ascend(const tsr_events *events) {
  for (uint64_t i = 1; i < events->count; i++)
    if (events->time_us[i] < events->time_us[i - 1]) return false;
  return events->count && events->time_us[0] != TSR_TIME_NONE;
}

static int compare_ranges(const void *a, const void *b) {
  const tsr__marked *x = a, *y = b;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return (x->last < y->last) - (x->last > y->last);
}

/* Close the range of a name that has been open since `start_us`. */
static bool add_range(const tsr_events *events, tsr__marked range, int64_t start_us, int64_t end_us,
                      tsr__marked_ranges *out) {
  uint64_t first = event_at(events, start_us);
  uint64_t past = end_us == INT64_MAX ? events->count : event_at(events, end_us + 1);
  if (first >= past) return true;
  range.first = (uint32_t)first;
  range.last = (uint32_t)(past - 1);
  assert(range.first <= range.last && range.last < events->count);
  return TSR__VECTOR_PUSH(out, range);
}

static bool means_training(uint8_t phase) {
  return phase == TSR_PHASE_ZERO_GRAD || phase == TSR_PHASE_OPTIMIZER ||
         phase == TSR_PHASE_BACKWARD;
}

static bool pair_up(const tsr_snapshot *snapshot, const tsr_events *events, tsr__map *open,
                    tsr__marks_read *out) {
  size_t count;
  const tsr_annotation *annotations = tsr_snapshot_annotations(snapshot, &count);
  for (size_t i = 0; i < count; i++) {
    const tsr_annotation *a = &annotations[i];
    tsr__marked range = {.name = a->name};
    if (a->time_us == TSR_TIME_NONE || (!a->is_start && !a->is_end) ||
        !read_name(tsr_snapshot_string(snapshot, a->name), &range))
      continue;
    out->shows_training |= means_training(range.phase);
    if (a->is_start) {
      /* 0 marks a closed one; the doubled START of a range changes nothing */
      uint64_t *since = tsr__map_put(open, a->name, 0, NULL);
      if (!since) return false;
      if (!*since) *since = (uint64_t)i + 1;
      continue;
    }
    uint64_t *since = tsr__map_find(open, a->name);
    if (!since || !*since) continue;
    assert(*since <= i && annotations[*since - 1].is_start);
    int64_t start_us = annotations[*since - 1].time_us;
    *since = 0;
    if (!add_range(events, range, start_us, a->time_us, &out->ranges)) return false;
  }
  return true;
}

/* Steps that are still open at the end. Other ranges without an END are a slip of the program more often than
 * not, and would cover all that follows. */
static bool add_open(const tsr_snapshot *snapshot, const tsr_events *events, tsr__map *open,
                     tsr__marked_ranges *out) {
  size_t count;
  const tsr_annotation *annotations = tsr_snapshot_annotations(snapshot, &count);
  for (size_t i = 0; i < count; i++) {
    const tsr_annotation *a = &annotations[i];
    tsr__marked range = {.name = a->name, .is_open = true};
    const uint64_t *since = a->is_start ? tsr__map_find(open, a->name) : NULL;
    if (!since || *since != i + 1 || a->time_us == TSR_TIME_NONE) continue;
    if (!read_name(tsr_snapshot_string(snapshot, a->name), &range) || !range.is_step) continue;
    if (!add_range(events, range, a->time_us, INT64_MAX, out)) return false;
  }
  return true;
}

/* An open step ends where the next one begins. `ranges` are sorted. */
static void end_open(tsr__marked_ranges *ranges) {
  uint32_t next = UINT32_MAX; /* the first event of the step after */
  for (size_t i = ranges->count; i-- > 0;) {
    tsr__marked *range = &ranges->items[i];
    if (!range->is_step) continue;
    if (range->is_open && next <= range->last && next > range->first) range->last = next - 1;
    next = range->first;
  }
}

int tsr__marked_compute(const tsr_snapshot *snapshot, const tsr_events *events,
                        tsr__marks_read *out, tsr_error *error) {
  size_t count;
  tsr__map open = {0};
  tsr__marks_read read = {0};
  tsr_snapshot_annotations(snapshot, &count);
  bool ok =
      !count || !times_ascend(events) ||
      (pair_up(snapshot, events, &open, &read) && add_open(snapshot, events, &open, &read.ranges));
  tsr__map_release(&open);
  if (!ok) {
    TSR__VECTOR_FREE(&read.ranges);
    return tsr__fail_memory(error);
  }
  tsr__marked_ranges *ranges = &read.ranges;
  tsr__sort(ranges->items, ranges->count, sizeof *ranges->items, compare_ranges);
  end_open(ranges);
  *out = read;
  return 0;
}
