/* columns.c - tables of a snapshot by the names of their columns.
 *
 * Events are held as columns, the other tables as rows of structs, whose members are columns with
 * a stride. A column of events that has one value throughout has no array: it is that value, with a
 * stride of 0. */
#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "columns/tables.h"

/* A column of events whose offset is that of an id vector is marked by `is_ids`; all other offsets of
 * events are those of pointers. In the other tables they are those of members of a row. */
typedef struct column_row {
  const char *name;
  size_t offset;
  tsr_column_type type;
  bool is_ids;
} column_row;

#define ARRAY(name, member, type) \
  { name, offsetof(tsr__event_table, member), TSR_COLUMN_##type, false }
#define IDS(name) \
  { #name, offsetof(tsr__event_table, name), TSR_COLUMN_ID, true }
static const column_row event_columns[] = {ARRAY("action", action, U8),
                                           ARRAY("address", addr, U64),
                                           ARRAY("size_bytes", size, U64),
                                           ARRAY("time_us", time_us, TIME),
                                           ARRAY("stack", stack, ID),
                                           IDS(stream),
                                           IDS(pool),
                                           IDS(context),
                                           IDS(metadata),
                                           IDS(category)};
#undef ARRAY
#undef IDS

#define SEGMENT(name, type) SEGMENT_AS(#name, name, type)
#define SEGMENT_AS(name, member, type) \
  { name, offsetof(tsr_segment, member), TSR_COLUMN_##type, false }
static const column_row segment_columns[] = {
    SEGMENT(device, U32),
    SEGMENT(address, U64),
    SEGMENT_AS("size_bytes", total_bytes, U64),
    SEGMENT(allocated_bytes, U64),
    SEGMENT(active_bytes, U64),
    SEGMENT(requested_bytes, U64),
    SEGMENT(stream, U64),
    SEGMENT(first_block, U64),
    SEGMENT(block_count, U64),
    SEGMENT(stack, ID),
    SEGMENT(pool, ID),
    SEGMENT(is_large, BOOL),
    SEGMENT(is_expandable, BOOL),
};
#undef SEGMENT
#undef SEGMENT_AS

#define BLOCK(name, type) \
  { #name, offsetof(tsr_block, name), TSR_COLUMN_##type, false }
static const column_row block_columns[] = {BLOCK(address, U64), BLOCK(size_bytes, U64),
                                           BLOCK(requested_bytes, U64), BLOCK(stack, ID),
                                           BLOCK(state, U8)};
#undef BLOCK

#define ANNOTATION(name, type) \
  { #name, offsetof(tsr_annotation, name), TSR_COLUMN_##type, false }
static const column_row annotation_columns[] = {
    ANNOTATION(time_us, TIME), ANNOTATION(name, ID),       ANNOTATION(stage, ID),
    ANNOTATION(device, U32),   ANNOTATION(is_start, BOOL), ANNOTATION(is_end, BOOL)};
#undef ANNOTATION

static const struct {
  const column_row *columns;
  size_t count;
} tables[TSR_TABLE_COUNT] = {
#define TABLE(rows) \
  { rows, sizeof(rows) / sizeof *(rows) }
    [TSR_TABLE_EVENTS] = TABLE(event_columns),
    [TSR_TABLE_SEGMENTS] = TABLE(segment_columns),
    [TSR_TABLE_BLOCKS] = TABLE(block_columns),
    [TSR_TABLE_ANNOTATIONS] = TABLE(annotation_columns),
#undef TABLE
};

static const size_t item_bytes[] = {[TSR_COLUMN_U8] = 1,  [TSR_COLUMN_U32] = 4,
                                    [TSR_COLUMN_U64] = 8, [TSR_COLUMN_BOOL] = sizeof(bool),
                                    [TSR_COLUMN_ID] = 4,  [TSR_COLUMN_TIME] = 8};
static_assert(sizeof(bool) == 1, "a column of type BOOL has one byte a row");

const char *const *tsr_table_columns(tsr_table table) {
  static const char *const names[TSR_TABLE_COUNT][16] = {
      [TSR_TABLE_EVENTS] = {"action", "address", "size_bytes", "time_us", "stack", "stream", "pool",
                            "context", "metadata", "category"},
      [TSR_TABLE_SEGMENTS] = {"device", "address", "size_bytes", "allocated_bytes", "active_bytes",
                              "requested_bytes", "stream", "first_block", "block_count", "stack",
                              "pool", "is_large", "is_expandable"},
      [TSR_TABLE_BLOCKS] = {"address", "size_bytes", "requested_bytes", "stack", "state"},
      [TSR_TABLE_ANNOTATIONS] = {"time_us", "name", "stage", "device", "is_start", "is_end"}};
  assert((unsigned)table < TSR_TABLE_COUNT);
  return names[table];
}

/* A column of a device's events. */
static tsr_column_view event_column(const tsr_snapshot *snapshot, uint32_t device,
                                    const column_row *row) {
  tsr_column_view column = {.stride_bytes = item_bytes[row->type], .type = row->type};
  const char *place = (const char *)&snapshot->events + row->offset;
  for (size_t i = 0; i < snapshot->device_traces.count; i++) {
    tsr__device_trace trace = snapshot->device_traces.items[i];
    if (trace.device != device || trace.count == 0) continue;
    const tsr__id_vector *ids = row->is_ids ? (const void *)place : NULL;
    const char *array = NULL;
    if (ids)
      array = (const char *)ids->values;
    else
      memcpy(&array, place, sizeof array);
    column.count = trace.count;
    if (array) {
      column.data = array + trace.first * column.stride_bytes;
    } else {
      assert(ids);
      column.data = &ids->uniform;
      column.stride_bytes = 0;
    }
    break;
  }
  return column;
}

static tsr_column_view member(const void *rows, size_t count, size_t row_bytes,
                              const column_row *row) {
  return (tsr_column_view){.data = count ? (const char *)rows + row->offset : NULL,
                           .count = count,
                           .stride_bytes = row_bytes,
                           .type = row->type};
}

static tsr_column_view column_of(const tsr_snapshot *s, tsr_table table, uint32_t device,
                                 const column_row *row) {
  switch (table) {
  case TSR_TABLE_SEGMENTS:
    return member(s->segments.items, s->segment_count, sizeof(tsr_segment), row);
  case TSR_TABLE_BLOCKS: return member(s->blocks.items, s->blocks.count, sizeof(tsr_block), row);
  case TSR_TABLE_ANNOTATIONS:
    return member(s->annotations.items, s->annotation_count, sizeof(tsr_annotation), row);
  case TSR_TABLE_EVENTS:
  case TSR_TABLE_COUNT: break;
  }
  return event_column(s, device, row);
}

int tsr_snapshot_column(const tsr_snapshot *snapshot, tsr_table table, uint32_t device,
                        const char *name, tsr_column_view *out, tsr_error *error) {
  /* A program of a later version may know a table that is not there yet. */
  size_t count = (unsigned)table < TSR_TABLE_COUNT ? tables[table].count : 0;
  for (size_t i = 0; i < count; i++) {
    const column_row *row = &tables[table].columns[i];
    assert(strcmp(row->name, tsr_table_columns(table)[i]) == 0);
    if (strcmp(row->name, name) != 0) continue;
    *out = column_of(snapshot, table, device, row);
    return 0;
  }
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "no such column: %s", name);
}

uint64_t tsr_column_at(const tsr_column_view *column, uint64_t row) {
  assert(row < column->count);
  const unsigned char *item = (const unsigned char *)column->data + row * column->stride_bytes;
  uint64_t wide;
  uint32_t narrow;
  switch (item_bytes[column->type]) {
  case 8: memcpy(&wide, item, sizeof wide); return wide;
  case 4: memcpy(&narrow, item, sizeof narrow); return narrow;
  default: return *item;
  }
}
