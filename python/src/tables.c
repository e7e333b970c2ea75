/* tables.c - arrays of a snapshot: events, segments, blocks, allocations, and totals over time.
 *
 * Events, segments and blocks are columns of the snapshot, exposed without a copy. A column that has
 * one value throughout has no array; one is made when it is requested. Allocations and totals are
 * computed, into arrays of their own.
 */
#include "core.h"

#include <assert.h>
#include <string.h>

static PyObject *finish(PyObject *dict, bool ok) {
  if (ok) return dict;
  Py_DECREF(dict);
  return NULL;
}

/* ---- events, segments, blocks: columns of the snapshot ---- */

static const struct {
  char format;
  core_absent absent;
} types[] = {
    [TSR_COLUMN_U8] = {'B', CORE_ABSENT_NONE},  [TSR_COLUMN_U32] = {'I', CORE_ABSENT_NONE},
    [TSR_COLUMN_U64] = {'Q', CORE_ABSENT_NONE}, [TSR_COLUMN_BOOL] = {'?', CORE_ABSENT_NONE},
    [TSR_COLUMN_ID] = {'I', CORE_ABSENT_MAX},   [TSR_COLUMN_TIME] = {'q', CORE_ABSENT_TIME}};

/* Python's buffers can have a stride of 0, but not every consumer expects it: such a column is
 * written out, in an array of its own. */
static PyObject *written_out(const tsr_column_view *column) {
  char format = types[column->type].format;
  size_t size = core_format_size(format);
  core_block *block = core_block_new(column->count, size);
  for (uint64_t i = 0; block && i < column->count; i++)
    memcpy(block->data + i * size, column->data, size);
  return core_column_of(block, column->count, format, types[column->type].absent);
}

static PyObject *column_of(core_file *file, const tsr_column_view *column) {
  if (column->count && !column->stride_bytes) return written_out(column);
  return core_column_new(&file->owner, column->data, column->count, column->stride_bytes,
                         types[column->type].format, types[column->type].absent);
}

/* events(device, name): one column of the device's trace. */
PyObject *core_events(PyObject *self, PyObject *arguments) {
  core_file *file = core_open_file(self);
  unsigned int device;
  const char *name;
  tsr_column_view column;
  if (!file || !PyArg_ParseTuple(arguments, "Is", &device, &name)) return NULL;
  if (tsr_snapshot_column(file->snapshot, TSR_TABLE_EVENTS, device, name, &column, NULL))
    return PyErr_Format(PyExc_AttributeError, "no such column: %s", name);
  return column_of(file, &column);
}

/* All columns of a table, as a dict. */
static PyObject *table_of(PyObject *self, tsr_table table) {
  core_file *file = core_open_file(self);
  PyObject *dict = file ? PyDict_New() : NULL;
  if (!dict) return NULL;
  bool ok = true;
  for (const char *const *name = tsr_table_columns(table); ok && *name; name++) {
    tsr_column_view column;
    if (tsr_snapshot_column(file->snapshot, table, 0, *name, &column, NULL)) continue;
    ok = core_put(dict, *name, column_of(file, &column));
  }
  return finish(dict, ok);
}

PyObject *core_segments(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  return table_of(self, TSR_TABLE_SEGMENTS);
}

/* The device of each block, which is its segment's; NULL with an exception. */
static PyObject *block_devices(const core_file *file) {
  size_t segment_count, count;
  const tsr_segment *segments = tsr_snapshot_segments(file->snapshot, &segment_count);
  (void)tsr_snapshot_blocks(file->snapshot, &count);
  core_block *block = core_block_new(count, core_format_size('I'));
  for (size_t i = 0; block && i < segment_count; i++)
    for (uint64_t k = 0; k < segments[i].block_count; k++) {
      assert(segments[i].first_block + k < count);
      ((uint32_t *)(void *)block->data)[segments[i].first_block + k] = segments[i].device;
    }
  return core_column_of(block, count, 'I', CORE_ABSENT_NONE);
}

PyObject *core_blocks(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  PyObject *dict = table_of(self, TSR_TABLE_BLOCKS);
  if (dict && !core_put(dict, "device", block_devices(core_open_file(self)))) Py_CLEAR(dict);
  return dict;
}

/* ---- allocations ---- */

enum { LIFE_COLUMNS = 11 };
static const struct {
  const char *name;
  char format;
  core_absent absent;
} life_columns[LIFE_COLUMNS] = {
    {"device", 'I', CORE_ABSENT_NONE},
    {"birth_event", 'q', CORE_ABSENT_NONE},
    {"birth_time_us", 'q', CORE_ABSENT_TIME},
    {"death_event", 'q', CORE_ABSENT_NONE},
    {"death_time_us", 'q', CORE_ABSENT_TIME},
    {"address", 'Q', CORE_ABSENT_NONE},
    {"requested_bytes", 'Q', CORE_ABSENT_NONE},
    {"size_bytes", 'Q', CORE_ABSENT_NONE},
    {"stack", 'I', CORE_ABSENT_MAX},
    {"stream", 'Q', CORE_ABSENT_MAX},
    {"category", 'B', CORE_ABSENT_NONE},
};

/* The allocations of one or more devices, as columns. */
typedef struct life_table {
  core_block *blocks[LIFE_COLUMNS];
  size_t count;
} life_table;

static int64_t time_of(const tsr_events *events, int64_t event) {
  return event >= 0 && (uint64_t)event < events->count ? events->time_us[event] : TSR_TIME_NONE;
}

/* Of one device, from row `row` on. */
static void copy_lives(const core_file *file, const tsr_lives *lives, size_t place,
                       const life_table *table, size_t row) {
  uint32_t device = tsr_lives_device(lives, place);
  tsr_events events = tsr_snapshot_events(file->snapshot, device);
  size_t count = tsr_lives_count(lives, place);
  assert(row + count <= table->count);
  for (size_t i = 0; i < count; i++, row++) {
    tsr_life life = tsr_lives_at(lives, place, i);
    const uint64_t values[LIFE_COLUMNS] = {
        device,
        (uint64_t)life.birth,
        (uint64_t)time_of(&events, life.birth),
        (uint64_t)life.death,
        (uint64_t)time_of(&events, life.death),
        life.address,
        life.requested_bytes,
        life.block_bytes,
        life.stack,
        life.stream == TSR_NONE ? UINT64_MAX : tsr_snapshot_stream(file->snapshot, life.stream),
        (uint64_t)life.category};
    for (size_t c = 0; c < LIFE_COLUMNS; c++) {
      unsigned char *data = table->blocks[c]->data;
      switch (core_format_size(life_columns[c].format)) {
      case 1: data[row] = (unsigned char)values[c]; break;
      case 4: ((uint32_t *)(void *)data)[row] = (uint32_t)values[c]; break;
      default: ((uint64_t *)(void *)data)[row] = values[c]; break;
      }
    }
  }
}

static int fill_lives(core_file *file, const tsr_query *query, life_table *table,
                      tsr_error *error) {
  tsr_lives *lives = NULL;
  int status = tsr_lives_compute(file->study, query, &lives, error);
  if (status) return status;
  size_t places = tsr_lives_device_count(lives), row = 0;
  for (size_t i = 0; i < places; i++) table->count += tsr_lives_count(lives, i);
  for (size_t c = 0; c < LIFE_COLUMNS; c++) {
    table->blocks[c] = core_block_new(table->count, core_format_size(life_columns[c].format));
    if (!table->blocks[c]) status = TSR_ERROR_MEMORY;
  }
  for (size_t i = 0; !status && i < places; row += tsr_lives_count(lives, i++))
    copy_lives(file, lives, i, table, row);
  tsr_lives_free(lives);
  return status;
}

/* allocations(options): a dict of columns, a row an allocation; `devices` as in questions. */
PyObject *core_allocations(PyObject *self, PyObject *arguments) {
  core_file *file = core_open_file(self);
  PyObject *options;
  tsr_query query;
  uint32_t *devices = NULL;
  if (!file || !PyArg_ParseTuple(arguments, "O!", &PyDict_Type, &options) ||
      !core_option_query(options, &query, &devices))
    return NULL;
  life_table table = {.count = 0};
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  int status;
  core_owner_take(&file->owner);
  Py_BEGIN_ALLOW_THREADS;
  status = fill_lives(file, &query, &table, &error);
  Py_END_ALLOW_THREADS;
  core_owner_drop(&file->owner);
  PyMem_Free(devices);
  PyObject *dict = status ? core_raise(status, &error, NULL) : PyDict_New();
  bool ok = dict != NULL;
  for (size_t i = 0; i < LIFE_COLUMNS; i++) {
    if (ok)
      ok = core_put(dict, life_columns[i].name,
                    core_column_of(table.blocks[i], table.count, life_columns[i].format,
                                   life_columns[i].absent));
    else if (table.blocks[i])
      core_owner_drop(&table.blocks[i]->owner);
  }
  return dict ? finish(dict, ok) : NULL;
}

/* ---- totals after each event ---- */

enum { TOTAL_COLUMNS = 6 };

typedef struct course {
  core_block *blocks[TOTAL_COLUMNS];
  uint64_t count, next;
  tsr_events events;
} course;

static int note_turn(void *context, const tsr_turn *turn) {
  course *all = context;
  const uint64_t values[TOTAL_COLUMNS] = {
      (uint64_t)turn->event,        (uint64_t)time_of(&all->events, turn->event),
      turn->totals.requested_bytes, turn->totals.allocated_bytes,
      turn->totals.active_bytes,    turn->totals.reserved_bytes};
  if (all->next == all->count) return 0;
  for (size_t i = 0; i < TOTAL_COLUMNS; i++)
    ((uint64_t *)(void *)all->blocks[i]->data)[all->next] = values[i];
  all->next++;
  return 0;
}

static int walk(core_file *file, uint32_t device, course *all, tsr_error *error) {
  tsr_lives *lives = NULL;
  int status = tsr_lives_compute(file->study, &(tsr_query){.devices = &device, .device_count = 1},
                                 &lives, error);
  all->events = tsr_snapshot_events(file->snapshot, device);
  all->count = all->events.count + 1;
  for (size_t i = 0; !status && i < TOTAL_COLUMNS; i++)
    if (!(all->blocks[i] = core_block_new(all->count, sizeof(uint64_t)))) status = TSR_ERROR_MEMORY;
  if (!status) status = tsr_lives_walk(lives, 0, note_turn, all, error);
  tsr_lives_free(lives);
  return status;
}

/* totals(device): a dict of columns; row 0 is the state before the first event. */
PyObject *core_totals(PyObject *self, PyObject *arguments) {
  static const char *const names[TOTAL_COLUMNS] = {
      "event", "time_us", "requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes"};
  core_file *file = core_open_file(self);
  unsigned int device;
  if (!file || !PyArg_ParseTuple(arguments, "I", &device)) return NULL;
  course all = {.next = 0};
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  int status;
  core_owner_take(&file->owner);
  Py_BEGIN_ALLOW_THREADS;
  status = walk(file, device, &all, &error);
  Py_END_ALLOW_THREADS;
  core_owner_drop(&file->owner);
  PyObject *dict = status ? core_raise(status, &error, NULL) : PyDict_New();
  bool ok = dict != NULL;
  for (size_t i = 0; i < TOTAL_COLUMNS; i++) {
    core_absent absent = i == 1 ? CORE_ABSENT_TIME : CORE_ABSENT_NONE;
    if (ok)
      ok = core_put(dict, names[i],
                    core_column_of(all.blocks[i], all.next, i < 2 ? 'q' : 'Q', absent));
    else if (all.blocks[i])
      core_owner_drop(&all.blocks[i]->owner);
  }
  return dict ? finish(dict, ok) : NULL;
}
