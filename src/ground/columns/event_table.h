/* event_table.h - growing the columns of events. For the builder alone: see builder.h.
 *
 * Columns of ids are one number as long as every row holds the same, and spread into an array at the
 * first row that differs. Most snapshots have one stream, one pool and one compile context. */
#ifndef TSR_COLUMNS_EVENT_TABLE_H
#define TSR_COLUMNS_EVENT_TABLE_H

#include <assert.h>

#include "columns/tables.h"
#include "io/source.h"

/* Make room for `extra` more events. False when out of memory; rows are unchanged then. */
bool tsr__events_reserve(tsr__event_table *events, uint64_t extra);
/* Make room for `capacity` events in all and no more, which is at least as many as fit already. Fails as above. */
bool tsr__events_resize(tsr__event_table *events, uint64_t capacity);
void tsr__events_release(tsr__event_table *events);
/* Give a column that was uniform so far an array: its first `row` values set, room for
 * `capacity`. */
bool tsr__id_vector_spread(tsr__id_vector *column, uint64_t row, uint64_t capacity);

/* Where `count` rows from `first` on lie, or will lie: a region for each column, into `out`, which has
 * room for TSR__REGIONS_MAX. Returns how many. The table has that capacity. */
size_t tsr__events_regions(const tsr__event_table *t, uint64_t first, uint64_t count,
                           tsr__region *out);

/* Set a column at the newest row. */
static inline bool tsr__id_vector_set(tsr__id_vector *column, uint64_t row, uint64_t capacity,
                                      uint32_t value) {
  assert(row < capacity);
  if (column->values) {
    column->values[row] = value;
    return true;
  }
  if (row == 0) column->uniform = value;
  if (column->uniform == value) return true;
  if (!tsr__id_vector_spread(column, row, capacity)) return false;
  column->values[row] = value;
  return true;
}

/* Add a row. False when out of memory; no row is added then. Inline, with the columns spelled out:
 * this is the reader's inner loop. */
static inline bool tsr__events_push(tsr__event_table *t, const tsr__event *event) {
  if (t->count == t->capacity && !tsr__events_reserve(t, 1)) return false;
  uint64_t row = t->count;
  t->action[row] = event->action;
  t->addr[row] = event->addr;
  t->size[row] = event->size;
  t->time_us[row] = event->time_us;
  t->stack[row] = event->stack;
  if (!tsr__id_vector_set(&t->stream, row, t->capacity, event->stream) ||
      !tsr__id_vector_set(&t->pool, row, t->capacity, event->pool) ||
      !tsr__id_vector_set(&t->context, row, t->capacity, event->context) ||
      !tsr__id_vector_set(&t->metadata, row, t->capacity, event->metadata) ||
      !tsr__id_vector_set(&t->category, row, t->capacity, event->category) ||
      !tsr__id_vector_set(&t->shape, row, t->capacity, event->shape))
    return false;
  t->count++;
  return true;
}

/* Append a row of the event table to a trace. */
static inline bool tsr__trace_append(tsr__trace *trace, uint64_t row) {
  if (trace->runs.count) {
    tsr__rows *last = &trace->runs.items[trace->runs.count - 1];
    if (last->first + last->count == row) {
      last->count++;
      return true;
    }
  }
  return TSR__VECTOR_PUSH(&trace->runs, (tsr__rows){row, 1});
}

#endif
