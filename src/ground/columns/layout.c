/* layout.c - the end of building: every table in its final order. See builder.h.
 *
 * A trace is normally one run of rows, because PyTorch writes one device after the other. A file
 * that interleaves traces, or names one event twice, leaves a trace in several runs; these are put
 * in order by one pass that rebuilds the columns.
 *
 * Segments and annotations that the top of the file lists come first in their tables, rows that only
 * other values name after them (pinned host memory has segments too). Values that name a row by its
 * number are renumbered; extras are not, since they stand under the row's origin. */
#include "columns/builder.h"

#include <string.h>

#include "base/sort.h"

/* ---- extras ---- */

static void sort_extras(tsr_snapshot *snapshot) {
  tsr__extra *extras = snapshot->extras.items;
  for (size_t i = 1; i < snapshot->extras.count; i++)
    if (tsr__extras_compare(&extras[i - 1], &extras[i]) > 0) {
      tsr__sort(extras, snapshot->extras.count, sizeof *extras, tsr__extras_compare);
      return;
    }
}

/* ---- first the rows that the top lists ---- */

/* Row numbers of a table, in a new order. */
typedef TSR__VECTOR(uint32_t) row_order;

/* The rows of a table in their new order, and what becomes of the values that name them. A row that
 * is listed twice is copied: a segment may be named from two places of a pickle. */
static bool order_rows(tsr_snapshot *s, tsr__tag tag, const uint32_t *listed, size_t listed_count,
                       size_t table_count, row_order *order) {
  uint32_t *moved = TSR__NEW_ARRAY(uint32_t, table_count);
  if (!moved || !TSR__VECTOR_RESERVE(order, listed_count + table_count)) {
    tsr__free(moved);
    return false;
  }
  for (size_t i = 0; i < table_count; i++) moved[i] = TSR_NONE;
  for (size_t i = 0; i < listed_count; i++) {
    assert(listed[i] < table_count && order->items);
    moved[listed[i]] = (uint32_t)i;
    order->items[order->count++] = listed[i];
  }
  for (size_t i = 0; i < table_count; i++) {
    if (moved[i] != TSR_NONE) continue;
    moved[i] = (uint32_t)order->count;
    order->items[order->count++] = (uint32_t)i;
  }
  assert(order->count >= table_count);
  for (size_t i = 0; i < s->loose_values.count; i++)
    if (s->loose_values.items[i].tag == (uint32_t)tag)
      s->loose_values.items[i].id = moved[s->loose_values.items[i].id];
  for (size_t i = 0; i < s->extras.count; i++)
    if (s->extras.items[i].value.tag == (uint32_t)tag)
      s->extras.items[i].value.id = moved[s->extras.items[i].value.id];
  tsr__free(moved);
  return true;
}

/* Put a vector's items into that order; it has room for as many again. */
#define REORDER(vector, order)                                                          \
  do {                                                                                  \
    size_t old_ = (vector)->count, count_ = (order)->count;                             \
    assert((vector)->capacity - old_ >= count_);                                        \
    for (size_t i_ = 0; i_ < count_; i_++)                                              \
      (vector)->items[old_ + i_] = (vector)->items[(order)->items[i_]];                 \
    memmove((vector)->items, (vector)->items + old_, count_ * sizeof *(vector)->items); \
    (vector)->count = count_;                                                           \
  } while (0)

static bool is_identity(const uint32_t *rows, size_t count, size_t table_count) {
  if (count != table_count) return false;
  for (size_t i = 0; i < count; i++)
    if (rows[i] != i) return false;
  return true;
}

static bool order_listed(tsr__builder *b, const uint32_t *rows, size_t count) {
  tsr_snapshot *s = b->snapshot;
  row_order order = {0};
  if (is_identity(rows, count, s->segments.count)) return true;
  bool ok = order_rows(s, TSR__SEGMENT, rows, count, s->segments.count, &order) &&
            TSR__VECTOR_RESERVE(&s->segments, order.count) &&
            TSR__VECTOR_RESERVE(&s->segments_more, order.count);
  if (ok) {
    REORDER(&s->segments, &order);
    REORDER(&s->segments_more, &order);
  }
  TSR__VECTOR_FREE(&order);
  return ok;
}

bool tsr__builder_list_segments(tsr__builder *b, const uint32_t *rows, size_t count,
                                size_t host_count) {
  tsr_snapshot *s = b->snapshot;
  assert(!b->is_laid_out && s->segments.count == s->segments_more.count && host_count <= count);
  bool ok = order_listed(b, rows, count);
  s->segment_count = count;
  s->listed_segment_count = count - host_count;
  b->has_read_host = true;
  b->has_failed = b->has_failed || !ok;
  return ok;
}

bool tsr__builder_list_annotations(tsr__builder *b, const uint32_t *rows, size_t count) {
  tsr_snapshot *s = b->snapshot;
  row_order order = {0};
  assert(!b->is_laid_out && s->annotations.count == s->annotations_more.count);
  s->annotation_count = count;
  if (is_identity(rows, count, s->annotations.count)) return true;
  bool ok = order_rows(s, TSR__ANNOTATION, rows, count, s->annotations.count, &order) &&
            TSR__VECTOR_RESERVE(&s->annotations, order.count) &&
            TSR__VECTOR_RESERVE(&s->annotations_more, order.count);
  if (ok) {
    REORDER(&s->annotations, &order);
    REORDER(&s->annotations_more, &order);
  }
  TSR__VECTOR_FREE(&order);
  b->has_failed = b->has_failed || !ok;
  return ok;
}

/* ---- traces in several runs ---- */

/* The event table on its way into another order. */
typedef struct rebuild {
  tsr_snapshot *snapshot;
  tsr__event_table events;        /* the new table */
  TSR__VECTOR(tsr__extra) extras; /* of its rows */
  uint32_t *moved;                /* by old row: a new row, or TSR_NONE */
  size_t most_extras;
} rebuild;

static bool copy_event(rebuild *r, uint64_t row) {
  tsr__event event = tsr__event_at(&r->snapshot->events, row);
  size_t count;
  const tsr__extra *extras = tsr__extras_of(r->snapshot, TSR__EVENT, row, row, &count);
  for (size_t i = 0; i < count; i++) {
    tsr__extra extra = extras[i];
    extra.row = r->events.count;
    if (r->extras.count >= r->most_extras)
      r->snapshot->tally[TSR__WARN_VALUES_DROPPED]++;
    else if (!TSR__VECTOR_PUSH(&r->extras, extra))
      return false;
  }
  r->moved[row] = (uint32_t)r->events.count;
  return r->events.count < TSR_NONE && tsr__events_push(&r->events, &event);
}

static bool copy_trace(rebuild *r, tsr__trace *trace) {
  uint64_t first = r->events.count;
  for (size_t i = 0; i < trace->runs.count; i++)
    for (uint64_t k = 0; k < trace->runs.items[i].count; k++)
      if (!copy_event(r, trace->runs.items[i].first + k)) return false;
  if (!trace->runs.count) return true;
  trace->runs.items[0] = (tsr__rows){first, r->events.count - first};
  trace->runs.count = 1;
  return true;
}

/* A kept value may name an event, one that is in no trace among them. */
static bool copy_named(rebuild *r, tsr__value *value) {
  if (value->tag != TSR__EVENT) return true;
  if (r->moved[value->id] == TSR_NONE && !copy_event(r, value->id)) return false;
  value->id = r->moved[value->id];
  return true;
}

static bool copy_all(rebuild *r) {
  tsr_snapshot *s = r->snapshot;
  for (size_t i = 0; i < s->traces.count; i++)
    if (!copy_trace(r, &s->traces.items[i])) return false;
  for (size_t i = 0; i < s->loose_values.count; i++)
    if (!copy_named(r, &s->loose_values.items[i])) return false;
  for (size_t i = 0; i < s->extras.count; i++) {
    tsr__extra extra = s->extras.items[i];
    if (extra.table != TSR__EVENT && !TSR__VECTOR_PUSH(&r->extras, extra)) return false;
  }
  /* Copying an event may add extras after the one that names it. */
  for (size_t i = 0; i < r->extras.count; i++) {
    tsr__value value = r->extras.items[i].value;
    if (!copy_named(r, &value)) return false;
    r->extras.items[i].value = value;
  }
  return true;
}

/* Copy every trace's runs, in order, into a fresh table, so that each is one run. */
static bool rebuild_events(tsr_snapshot *snapshot, const tsr_limits *limits) {
  /* An event with many extras may be named many times. */
  rebuild r = {.snapshot = snapshot, .most_extras = snapshot->extras.count + limits->loose_values};
  r.moved = tsr__realloc(NULL, (size_t)snapshot->events.count, sizeof *r.moved);
  if (!r.moved) return false;
  for (uint64_t row = 0; row < snapshot->events.count; row++) r.moved[row] = TSR_NONE;
  bool ok = copy_all(&r);
  tsr__free(r.moved);
  if (!ok) {
    tsr__events_release(&r.events);
    TSR__VECTOR_FREE(&r.extras);
    return false;
  }
  tsr__events_release(&snapshot->events);
  snapshot->events = r.events;
  TSR__VECTOR_FREE(&snapshot->extras);
  snapshot->extras.items = r.extras.items;
  snapshot->extras.count = r.extras.count;
  snapshot->extras.capacity = r.extras.capacity;
  sort_extras(snapshot);
  return true;
}

/* ---- the end of reading ---- */

static int lay_out_traces(tsr_snapshot *snapshot, const uint32_t *order, size_t order_count,
                          const tsr_limits *limits) {
  for (size_t i = 0; i < snapshot->traces.count; i++)
    if (snapshot->traces.items[i].runs.count > 1) {
      if (!rebuild_events(snapshot, limits)) return TSR_ERROR_MEMORY;
      break;
    }
  for (uint32_t device = 0; device < order_count; device++) {
    if (order[device] == TSR_NONE) continue;
    const tsr__trace *trace = &snapshot->traces.items[order[device]];
    if (!trace->runs.count) continue;
    tsr__rows rows = trace->runs.items[0];
    if (!TSR__VECTOR_PUSH(&snapshot->device_traces,
                          (tsr__device_trace){device, rows.first, rows.count}))
      return TSR_ERROR_MEMORY;
  }
  const tsr__device_trace others[] = {{TSR_DEVICE_CPU, snapshot->cpu_trace, 0},
                                      {TSR_DEVICE_HOST, snapshot->host_trace, 0}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    if (others[i].first == TSR_NONE) continue;
    const tsr__trace *trace = &snapshot->traces.items[others[i].first];
    if (!trace->runs.count) continue;
    tsr__rows rows = trace->runs.items[0];
    if (!TSR__VECTOR_PUSH(&snapshot->device_traces,
                          (tsr__device_trace){others[i].device, rows.first, rows.count}))
      return TSR_ERROR_MEMORY;
  }
  return 0;
}

static int compare_ids(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static int list_devices(tsr_snapshot *snapshot, const tsr_limits *limits, tsr_error *error) {
  for (size_t i = 0; i < snapshot->device_traces.count; i++)
    if (!TSR__VECTOR_PUSH(&snapshot->devices, snapshot->device_traces.items[i].device))
      return tsr__fail_memory(error);
  uint32_t last = TSR_NONE;
  for (size_t i = 0; i < snapshot->segment_count; i++) {
    uint32_t device = snapshot->segments.items[i].device;
    if (device != last && !TSR__VECTOR_PUSH(&snapshot->devices, device))
      return tsr__fail_memory(error);
    last = device;
  }
  if (!snapshot->devices.count) return 0;
  uint32_t *devices = snapshot->devices.items;
  tsr__sort(devices, snapshot->devices.count, sizeof *devices, compare_ids);
  size_t kept = 1;
  for (size_t i = 1; i < snapshot->devices.count; i++)
    if (devices[i] != devices[kept - 1]) devices[kept++] = devices[i];
  snapshot->devices.count = kept;
  if (kept > limits->devices)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "%zu devices; the limit is %u (tsr_limits.devices)", kept,
                     (unsigned)limits->devices);
  return 0;
}

typedef struct device_segment {
  uint32_t device, row;
} device_segment;

static int compare_device_segments(const void *a, const void *b) {
  const device_segment *x = a, *y = b;
  if (x->device != y->device) return x->device < y->device ? -1 : 1;
  return (x->row > y->row) - (x->row < y->row);
}

/* A question is asked of each device, and a file may have thousands: none must look at the segments
 * of all. */
static int order_segments(tsr_snapshot *snapshot) {
  size_t count = snapshot->segment_count;
  device_segment *order = TSR__NEW_ARRAY(device_segment, count);
  snapshot->segments_by_device.count = 0;
  snapshot->default_pool = TSR_NONE;
  if (!order || !TSR__VECTOR_RESERVE(&snapshot->segments_by_device, count)) {
    tsr__free(order);
    return TSR_ERROR_MEMORY;
  }
  for (uint32_t row = 0; row < count; row++) {
    uint32_t pool = snapshot->segments.items[row].pool;
    tsr_pool id = tsr_snapshot_pool(snapshot, pool);
    order[row] = (device_segment){snapshot->segments.items[row].device, row};
    if (pool != TSR_NONE && !id.first && !id.second) snapshot->default_pool = pool;
  }
  tsr__sort(order, count, sizeof *order, compare_device_segments);
  for (size_t i = 0; i < count; i++) snapshot->segments_by_device.items[i] = order[i].row;
  snapshot->segments_by_device.count = count;
  tsr__free(order);
  return 0;
}

/* Count the events whose time is before that of the event before them. */
static void count_steps_back(tsr_snapshot *snapshot) {
  const int64_t *time = snapshot->events.time_us;
  for (size_t i = 0; i < snapshot->device_traces.count; i++) {
    tsr__device_trace trace = snapshot->device_traces.items[i];
    for (uint64_t row = trace.first + 1; row < trace.first + trace.count; row++)
      if (time[row] < time[row - 1] && time[row] != TSR_TIME_NONE)
        snapshot->tally[TSR__WARN_TIME_BACKWARDS]++;
  }
}

/* ---- the end ---- */

/* The dict of what tsr__builder_initial_blocks was given, under its key. */
static bool push_initial(tsr__builder *b) {
  tsr_snapshot *s = b->snapshot;
  tsr__loose dict = {TSR__LOOSE_DICT, (uint32_t)b->initial.count, s->loose_values.count};
  if (!b->initial.count) return true;
  if (!TSR__VECTOR_RESERVE(&s->loose_values, b->initial.count) ||
      !TSR__VECTOR_PUSH(&s->loose, dict))
    return false;
  for (size_t i = 0; i < b->initial.count; i++)
    s->loose_values.items[s->loose_values.count++] = b->initial.items[i];
  return tsr__builder_set_value(b, TSR__NAME_INITIAL_BLOCKS,
                                tsr__value_id(TSR__LOOSE, (uint32_t)s->loose.count - 1));
}

/* A list of `count` consecutive rows, or of one trace, as a kept value. TSR__OPAQUE when out of
 * memory. */
static tsr__value list_of(tsr_snapshot *s, tsr__tag tag, size_t first, size_t count) {
  tsr__loose list = {TSR__LOOSE_LIST, (uint32_t)count, s->loose_values.count};
  if (!TSR__VECTOR_RESERVE(&s->loose_values, count + 1)) return tsr__value_plain(TSR__OPAQUE);
  for (size_t i = 0; i < count; i++)
    s->loose_values.items[s->loose_values.count++] = tsr__value_id(tag, (uint32_t)(first + i));
  if (!TSR__VECTOR_PUSH(&s->loose, list)) return tsr__value_plain(TSR__OPAQUE);
  return tsr__value_id(TSR__LOOSE, (uint32_t)s->loose.count - 1);
}

/* Segments that were recorded of TSR_DEVICE_HOST go after the others. */
static bool order_host(tsr__builder *b) {
  tsr_snapshot *s = b->snapshot;
  uint32_t *rows = TSR__NEW_ARRAY(uint32_t, s->segments.count);
  size_t kept = 0, host = s->listed_segment_count;
  if (!rows) return false;
  for (uint32_t row = 0; row < s->segments.count; row++)
    rows[s->segments.items[row].device == TSR_DEVICE_HOST ? host++ : kept++] = row;
  assert(kept == s->listed_segment_count && host == s->segments.count);
  bool ok = order_listed(b, rows, s->segments.count);
  tsr__free(rows);
  return ok;
}

/* What was recorded of TSR_DEVICE_HOST, under its two keys; what a file had is there already. */
static bool push_host(tsr__builder *b) {
  tsr_snapshot *s = b->snapshot;
  size_t count = s->segment_count - s->listed_segment_count;
  if (b->has_read_host || (!count && s->host_trace == TSR_NONE)) return true;
  if (count && !order_host(b)) return false;
  tsr__value segments = list_of(s, TSR__SEGMENT, s->listed_segment_count, count);
  tsr__value trace = s->host_trace == TSR_NONE ? list_of(s, TSR__TRACE, 0, 0)
                     : b->has_flat_host_traces ? tsr__value_id(TSR__TRACE, s->host_trace)
                                               : list_of(s, TSR__TRACE, s->host_trace, 1);
  return segments.tag != TSR__OPAQUE && trace.tag != TSR__OPAQUE &&
         tsr__builder_set_value(b, TSR__NAME_HOST_SEGMENTS, segments) &&
         tsr__builder_set_value(b, TSR__NAME_HOST_TRACES, trace);
}

int tsr__builder_lay_out(tsr__builder *b, tsr_error *error) {
  tsr_snapshot *s = b->snapshot;
  assert(!b->is_laid_out);
  if (b->has_failed || !push_initial(b) || !push_host(b)) return tsr__fail_memory(error);
  b->is_laid_out = true;
  sort_extras(s);
  if (lay_out_traces(s, b->trace_of.items, b->trace_of.count, &b->limits) || order_segments(s))
    return tsr__fail_memory(error);
  int status = list_devices(s, &b->limits, error);
  if (status) return status;
  s->trace_count = (uint32_t)b->trace_of.count;
  count_steps_back(s);
  return 0;
}

int tsr__builder_finish(tsr__builder *b, tsr_snapshot **out, tsr_error *error) {
  int status = 0;
  if (b->has_failed) return tsr__fail_memory(error);
  if (!b->is_laid_out) status = tsr__builder_lay_out(b, error);
  if (status) return status;
  tsr__snapshot_warn(b->snapshot);
  assert(!tsr__snapshot_check(b->snapshot));
  *out = b->snapshot;
  b->snapshot = NULL;
  return 0;
}
