/* tables.c - arrays of a snapshot: events, segments, blocks, allocations, and totals over time.
 *
 * Events, segments and blocks are columns of the snapshot, exposed without a copy. A column that has
 * one value throughout has no array; one is made when it is requested. Allocations and totals are
 * computed, into arrays of their own.
 */
#include "core.h"

#include <string.h>

/* Put a column, or NULL with an exception, into a dict; takes it. */
static bool put(PyObject *dict, const char *name, PyObject *column) {
  bool ok = column && PyDict_SetItemString(dict, name, column) == 0;
  Py_XDECREF(column);
  return ok;
}

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
    [TSR_COLUMN_ID] = {'I', CORE_ABSENT_ID},    [TSR_COLUMN_TIME] = {'q', CORE_ABSENT_TIME}};

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
    ok = put(dict, *name, column_of(file, &column));
  }
  return finish(dict, ok);
}

PyObject *core_segments(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  return table_of(self, TSR_TABLE_SEGMENTS);
}

PyObject *core_blocks(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  return table_of(self, TSR_TABLE_BLOCKS);
}

/* ---- allocations ---- */

enum { LIFE_COLUMNS = 8 };
static const struct {
  const char *name;
  char format;
  core_absent absent;
} life_columns[LIFE_COLUMNS] = {
    {"birth", 'q', CORE_ABSENT_NONE},       {"death", 'q', CORE_ABSENT_NONE},
    {"address", 'Q', CORE_ABSENT_NONE},     {"requested_bytes", 'Q', CORE_ABSENT_NONE},
    {"block_bytes", 'Q', CORE_ABSENT_NONE}, {"stack", 'I', CORE_ABSENT_ID},
    {"stream", 'I', CORE_ABSENT_ID},        {"category", 'B', CORE_ABSENT_NONE},
};

static void copy_lives(const tsr_lives *lives, size_t count, core_block **blocks) {
  for (size_t i = 0; i < count; i++) {
    tsr_life life = tsr_lives_at(lives, 0, i);
    ((int64_t *)(void *)blocks[0]->data)[i] = life.birth;
    ((int64_t *)(void *)blocks[1]->data)[i] = life.death;
    ((uint64_t *)(void *)blocks[2]->data)[i] = life.address;
    ((uint64_t *)(void *)blocks[3]->data)[i] = life.requested_bytes;
    ((uint64_t *)(void *)blocks[4]->data)[i] = life.block_bytes;
    ((uint32_t *)(void *)blocks[5]->data)[i] = life.stack;
    ((uint32_t *)(void *)blocks[6]->data)[i] = life.stream;
    blocks[7]->data[i] = (unsigned char)life.category;
  }
}

/* allocations(device): a dict of columns, a row an allocation. */
PyObject *core_allocations(PyObject *self, PyObject *arguments) {
  core_file *file = core_open_file(self);
  unsigned int device;
  if (!file || !PyArg_ParseTuple(arguments, "I", &device)) return NULL;
  core_block *blocks[LIFE_COLUMNS] = {NULL};
  tsr_lives *lives = NULL;
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  size_t count = 0;
  int status;
  core_owner_take(&file->owner);
  Py_BEGIN_ALLOW_THREADS;
  status = tsr_lives_compute(file->study, &(tsr_query){.devices = &device, .device_count = 1},
                             &lives, &error);
  if (!status) {
    count = tsr_lives_count(lives, 0);
    for (size_t i = 0; i < LIFE_COLUMNS; i++) {
      blocks[i] = core_block_new(count, core_format_size(life_columns[i].format));
      if (!blocks[i]) status = TSR_ERROR_MEMORY;
    }
  }
  if (!status) copy_lives(lives, count, blocks);
  tsr_lives_free(lives);
  Py_END_ALLOW_THREADS;
  core_owner_drop(&file->owner);
  PyObject *dict = status ? core_raise(status, &error, NULL) : PyDict_New();
  bool ok = dict != NULL;
  for (size_t i = 0; i < LIFE_COLUMNS; i++) {
    if (ok)
      ok = put(dict, life_columns[i].name,
               core_column_of(blocks[i], count, life_columns[i].format, life_columns[i].absent));
    else if (blocks[i])
      core_owner_drop(&blocks[i]->owner);
  }
  return dict ? finish(dict, ok) : NULL;
}

/* ---- totals after each event ---- */

typedef struct course {
  core_block *blocks[4];
  uint64_t count, next;
} course;

static int note_turn(void *context, const tsr_turn *turn) {
  course *all = context;
  const uint64_t totals[4] = {turn->totals.requested_bytes, turn->totals.allocated_bytes,
                              turn->totals.active_bytes, turn->totals.reserved_bytes};
  if (all->next == all->count) return 0;
  for (size_t i = 0; i < 4; i++) ((uint64_t *)(void *)all->blocks[i]->data)[all->next] = totals[i];
  all->next++;
  return 0;
}

static int walk(core_file *file, uint32_t device, course *all, tsr_error *error) {
  tsr_lives *lives = NULL;
  int status = tsr_lives_compute(file->study, &(tsr_query){.devices = &device, .device_count = 1},
                                 &lives, error);
  all->count = tsr_snapshot_events(file->snapshot, device).count + 1;
  for (size_t i = 0; !status && i < 4; i++)
    if (!(all->blocks[i] = core_block_new(all->count, sizeof(uint64_t)))) status = TSR_ERROR_MEMORY;
  if (!status) status = tsr_lives_walk(lives, 0, note_turn, all, error);
  tsr_lives_free(lives);
  return status;
}

/* totals(device): a dict of columns; row 0 is the state before the first event. */
PyObject *core_totals(PyObject *self, PyObject *arguments) {
  static const char *const names[] = {"requested_bytes", "allocated_bytes", "active_bytes",
                                      "reserved_bytes"};
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
  for (size_t i = 0; i < 4; i++) {
    if (ok)
      ok = put(dict, names[i], core_column_of(all.blocks[i], all.next, 'Q', CORE_ABSENT_NONE));
    else if (all.blocks[i])
      core_owner_drop(&all.blocks[i]->owner);
  }
  return dict ? finish(dict, ok) : NULL;
}
