/* tables.c - adding rows to the columnar snapshot, and laying it out once all are in. See tables.h.
 *
 * A trace is normally one run of rows, because PyTorch writes one device after the other. A file
 * that interleaves traces, or names one event twice, leaves a trace in several runs; these are put
 * in order by one pass that rebuilds the columns. */
#include "snapshot/tables.h"

#include <stdlib.h>
#include <string.h>

#include "base/decimal.h"

tsr_snapshot *tsr__snapshot_new(void) {
  tsr_snapshot *snapshot = TSR__NEW(tsr_snapshot);
  if (!snapshot) return NULL;
  tsr__intern_init(&snapshot->strings);
  tsr__intern_init(&snapshot->frames);
  tsr__intern_init(&snapshot->stacks);
  tsr__intern_init(&snapshot->frame_extras);
  tsr__intern_init(&snapshot->orders);
  tsr__intern_init(&snapshot->pools);
  tsr__intern_init(&snapshot->streams);
  for (int name = 0; name < TSR__NAME_COUNT; name++) {
    const char *text = tsr__name_text((tsr__name)name);
    if (tsr__snapshot_string_id(snapshot, text, strlen(text)) != (uint32_t)name) goto out;
  }
  if (tsr__snapshot_stream_id(snapshot, 0) != 0) goto out;
  return snapshot;
out:
  tsr_snapshot_free(snapshot);
  return NULL;
}

static void events_release(tsr__event_table *events) {
  tsr__id_column *columns[] = {&events->stream,   &events->pool,     &events->context,
                               &events->metadata, &events->category, &events->shape};
  for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) tsr__free(columns[i]->values);
  tsr__free(events->action);
  tsr__free(events->addr);
  tsr__free(events->size);
  tsr__free(events->time_us);
  tsr__free(events->stack);
  *events = (tsr__event_table){0};
}

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
  events_release(&snapshot->events);
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
  TSR__VECTOR_FREE(&snapshot->devices);
  TSR__VECTOR_FREE(&snapshot->segments_by_device);
  tsr__free(snapshot);
}

/* ---- ids ---- */

uint32_t tsr__snapshot_string_id(tsr_snapshot *snapshot, const void *data, size_t size_bytes) {
  return tsr__intern_put(&snapshot->strings, data, size_bytes, NULL);
}

int tsr__snapshot_big(tsr_snapshot *snapshot, const char *text, size_t size_bytes, tsr__value *out,
                      tsr_error *error) {
  *out = tsr__value_id(TSR__BIG, TSR_NONE);
  if (!size_bytes || size_bytes - (*text == '-') > TSR__DECIMAL_DIGITS) {
    tsr__tally(snapshot, TSR__WARN_VALUES_UNREADABLE);
    return 0;
  }
  out->id = tsr__snapshot_string_id(snapshot, text, size_bytes);
  return out->id == TSR_NONE ? tsr__fail_memory(error) : 0;
}

uint32_t tsr__snapshot_frame_id(tsr_snapshot *snapshot, const tsr__frame_key *frame) {
  return tsr__intern_put(&snapshot->frames, frame, sizeof *frame, NULL);
}

uint32_t tsr__snapshot_stack_id(tsr_snapshot *snapshot, const uint32_t *frames, uint32_t depth) {
  return tsr__intern_put(&snapshot->stacks, frames, depth * sizeof *frames, NULL);
}

uint32_t tsr__snapshot_frame_extras_id(tsr_snapshot *snapshot, const tsr__value *pairs,
                                       size_t value_count) {
  return tsr__intern_put(&snapshot->frame_extras, pairs, value_count * sizeof *pairs, NULL);
}

uint32_t tsr__snapshot_pool_id(tsr_snapshot *snapshot, uint64_t first, uint64_t second) {
  tsr_pool pool = {first, second};
  return tsr__intern_put(&snapshot->pools, &pool, sizeof pool, NULL);
}

uint32_t tsr__snapshot_stream_id(tsr_snapshot *snapshot, uint64_t handle) {
  return tsr__intern_put(&snapshot->streams, &handle, sizeof handle, NULL);
}

uint8_t tsr__snapshot_action(tsr_snapshot *snapshot, uint32_t string) {
  if (string >= TSR__FIRST_ACTION && string <= TSR__LAST_ACTION)
    return (uint8_t)(string - TSR__FIRST_ACTION);
  for (size_t i = 0; i < snapshot->actions.count; i++)
    if (snapshot->actions.items[i] == string) return (uint8_t)(TSR_ACTION_KNOWN_COUNT + i);
  if (snapshot->actions.count >= UINT8_MAX - TSR_ACTION_KNOWN_COUNT ||
      !TSR__VECTOR_PUSH(&snapshot->actions, string))
    return TSR_ACTION_MISSING;
  return (uint8_t)(TSR_ACTION_KNOWN_COUNT + snapshot->actions.count - 1);
}

/* ---- events ---- */

/* Resize the array whose pointer, of whatever type, is at `place`. */
static bool grow(void *place, uint64_t capacity, size_t item_size) {
  void *items;
  memcpy(&items, place, sizeof items);
  void *larger = tsr__realloc(items, (size_t)capacity, item_size);
  if (larger) memcpy(place, &larger, sizeof larger);
  return larger != NULL;
}

static bool grow_ids(tsr__id_column *column, uint64_t capacity) {
  return !column->values || grow(&column->values, capacity, sizeof *column->values);
}

bool tsr__events_reserve(tsr__event_table *t, uint64_t extra) {
  if (extra <= t->capacity - t->count) return true;
  if (t->count > SIZE_MAX / 16 - extra) return false;
  uint64_t capacity = tsr__vector_growth((size_t)t->capacity, (size_t)(t->count + extra));
  if (!grow(&t->action, capacity, sizeof *t->action) ||
      !grow(&t->addr, capacity, sizeof *t->addr) || !grow(&t->size, capacity, sizeof *t->size) ||
      !grow(&t->time_us, capacity, sizeof *t->time_us) ||
      !grow(&t->stack, capacity, sizeof *t->stack) || !grow_ids(&t->stream, capacity) ||
      !grow_ids(&t->pool, capacity) || !grow_ids(&t->context, capacity) ||
      !grow_ids(&t->metadata, capacity) || !grow_ids(&t->category, capacity) ||
      !grow_ids(&t->shape, capacity))
    return false;
  t->capacity = capacity;
  return true;
}

bool tsr__id_column_spread(tsr__id_column *column, uint64_t row, uint64_t capacity) {
  uint32_t *values = tsr__realloc(NULL, (size_t)capacity, sizeof *values);
  if (!values) return false;
  for (uint64_t i = 0; i < row; i++) values[i] = column->uniform;
  column->values = values;
  return true;
}

tsr__event tsr__event_at(const tsr__event_table *t, uint64_t row) {
#define AT(column) (t->column.values ? t->column.values[row] : t->column.uniform)
  return (tsr__event){.addr = t->addr[row],
                      .size = t->size[row],
                      .time_us = t->time_us[row],
                      .stack = t->stack[row],
                      .stream = AT(stream),
                      .pool = AT(pool),
                      .context = AT(context),
                      .metadata = AT(metadata),
                      .category = AT(category),
                      .shape = AT(shape),
                      .action = t->action[row]};
#undef AT
}

/* ---- extras ---- */

static int compare_u64(uint64_t a, uint64_t b) {
  return (a > b) - (a < b);
}

static int compare_extras(const void *a, const void *b) {
  const tsr__extra *x = a, *y = b;
  int by_table = compare_u64(x->table, y->table), by_row = compare_u64(x->row, y->row);
  return by_table ? by_table : by_row ? by_row : compare_u64(x->key, y->key);
}

static void sort_extras(tsr_snapshot *snapshot) {
  tsr__extra *extras = snapshot->extras.items;
  for (size_t i = 1; i < snapshot->extras.count; i++)
    if (compare_extras(&extras[i - 1], &extras[i]) > 0) {
      qsort(extras, snapshot->extras.count, sizeof *extras, compare_extras);
      return;
    }
}

/* Index of the first extra that is not before `row` of `table`. */
static size_t extras_from(const tsr_snapshot *snapshot, uint32_t table, uint64_t row) {
  tsr__extra wanted = {.table = table, .row = row, .key = 0};
  size_t low = 0, high = snapshot->extras.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (compare_extras(&snapshot->extras.items[middle], &wanted) < 0)
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
  *count = to - from;
  return snapshot->extras.items + from;
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
      tsr__tally(r->snapshot, TSR__WARN_VALUES_DROPPED);
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
  /* Copying an event may add extras behind the one that names it. */
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
    events_release(&r.events);
    TSR__VECTOR_FREE(&r.extras);
    return false;
  }
  events_release(&snapshot->events);
  snapshot->events = r.events;
  TSR__VECTOR_FREE(&snapshot->extras);
  snapshot->extras.items = r.extras.items;
  snapshot->extras.count = r.extras.count;
  snapshot->extras.capacity = r.extras.capacity;
  sort_extras(snapshot);
  return true;
}

/* ---- the end of reading ---- */

static int lay_out_traces(tsr_snapshot *snapshot, const uint32_t *order, uint32_t order_count,
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
  qsort(devices, snapshot->devices.count, sizeof *devices, compare_ids);
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
  if (count) qsort(order, count, sizeof *order, compare_device_segments);
  for (size_t i = 0; i < count; i++) snapshot->segments_by_device.items[i] = order[i].row;
  snapshot->segments_by_device.count = count;
  tsr__free(order);
  return 0;
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

static void check_times(tsr_snapshot *snapshot) {
  const int64_t *time = snapshot->events.time_us;
  for (size_t i = 0; i < snapshot->device_traces.count; i++) {
    tsr__device_trace trace = snapshot->device_traces.items[i];
    for (uint64_t row = trace.first + 1; row < trace.first + trace.count; row++)
      if (time[row] < time[row - 1] && time[row] != TSR_TIME_NONE)
        tsr__tally(snapshot, TSR__WARN_TIME_BACKWARDS);
  }
}

int tsr__snapshot_finish(tsr_snapshot *snapshot, const uint32_t *order, uint32_t order_count,
                         const tsr_limits *limits, tsr_error *error) {
  sort_extras(snapshot);
  if (lay_out_traces(snapshot, order, order_count, limits) || order_segments(snapshot))
    return tsr__fail_memory(error);
  int status = list_devices(snapshot, limits, error);
  if (status) return status;
  snapshot->trace_count = order_count;
  check_times(snapshot);
  tsr__snapshot_warn(snapshot);
  return 0;
}
