/* event_table.c - the columns of events: room, rows, release. See event_table.h.
 *
 * Columns grow together and by the same factor, so that a row fits into all of them or into none.
 * If one of them cannot grow, those before it keep their larger array, and `capacity`, which counts
 * for all, stays what it was. */
#include "columns/event_table.h"

#include <string.h>

void tsr__events_release(tsr__event_table *events) {
  tsr__id_vector *columns[] = {&events->stream,   &events->pool,     &events->context,
                               &events->metadata, &events->category, &events->shape};
  for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) tsr__free(columns[i]->values);
  tsr__free(events->action);
  tsr__free(events->addr);
  tsr__free(events->size);
  tsr__free(events->time_us);
  tsr__free(events->stack);
  *events = (tsr__event_table){0};
}

/* Resize the array whose pointer, of whatever type, is at `place`. */
static bool grow(void *place, uint64_t capacity, size_t item_size) {
  void *items;
  memcpy(&items, place, sizeof items);
  void *larger = tsr__realloc(items, (size_t)capacity, item_size);
  if (larger) memcpy(place, &larger, sizeof larger);
  return larger != NULL;
}

static bool grow_ids(tsr__id_vector *column, uint64_t capacity) {
  return !column->values || grow(&column->values, capacity, sizeof *column->values);
}

bool tsr__events_resize(tsr__event_table *t, uint64_t capacity) {
  assert(capacity >= t->capacity);
  if (capacity > SIZE_MAX / 16) return false;
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

bool tsr__events_reserve(tsr__event_table *t, uint64_t extra) {
  if (extra <= t->capacity - t->count) return true;
  if (t->count > SIZE_MAX / 16 - extra) return false;
  return tsr__events_resize(t, tsr__vector_growth((size_t)t->capacity, (size_t)(t->count + extra)));
}

size_t tsr__events_regions(const tsr__event_table *t, uint64_t first, uint64_t count,
                           tsr__region *out) {
  enum { IDS = 6 };
  const tsr__id_vector *ids[IDS] = {&t->stream,   &t->pool,     &t->context,
                                    &t->metadata, &t->category, &t->shape};
  assert(first <= t->capacity && count <= t->capacity - first);
  size_t regions = 0;
#define REGION(column) \
  (out[regions++] = (tsr__region){(column) + first, (size_t)count * sizeof *(column)})
  REGION(t->action);
  REGION(t->addr);
  REGION(t->size);
  REGION(t->time_us);
  REGION(t->stack);
  for (size_t i = 0; i < IDS; i++)
    if (ids[i]->values) REGION(ids[i]->values);
#undef REGION
  assert(regions <= TSR__REGIONS_MAX);
  return regions;
}

bool tsr__id_vector_spread(tsr__id_vector *column, uint64_t row, uint64_t capacity) {
  assert(!column->values && row < capacity);
  uint32_t *values = tsr__realloc(NULL, (size_t)capacity, sizeof *values);
  if (!values) return false;
  for (uint64_t i = 0; i < row; i++) values[i] = column->uniform;
  column->values = values;
  return true;
}

tsr__event tsr__event_at(const tsr__event_table *t, uint64_t row) {
  assert(row < t->count);
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
