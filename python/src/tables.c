/* tables.c - arrays of a snapshot: events, segments, blocks, allocations, and the course of totals.
 *
 * Events are columns in the library already, segments and blocks are rows of structs: both are shown
 * as they lie. Columns of ids that have one value throughout have no array; one is made when it is
 * asked for. Allocations and totals are computed, into arrays of their own.
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

/* ---- events ---- */

static PyObject *id_column(core_file *file, tsr_id_column ids, uint64_t count) {
  if (ids.values)
    return core_column_new(&file->owner, ids.values, count, sizeof(uint32_t), 'I', CORE_ABSENT_ID);
  core_block *block = core_block_new(count, sizeof(uint32_t));
  for (uint64_t i = 0; block && i < count; i++) ((uint32_t *)(void *)block->data)[i] = ids.uniform;
  return core_column_of(block, count, 'I', CORE_ABSENT_ID);
}

/* events(device, name): one column of the device's trace. */
PyObject *core_events(PyObject *self, PyObject *arguments) {
  core_file *file = core_open_file(self);
  unsigned int device;
  const char *name;
  if (!file || !PyArg_ParseTuple(arguments, "Is", &device, &name)) return NULL;
  tsr_events events = tsr_snapshot_events(file->snapshot, device);
  core_owner *owner = &file->owner;
  const struct {
    const char *name;
    const void *data;
    char format;
    core_absent absent;
  } arrays[] = {{"action", events.action, 'B', CORE_ABSENT_NONE},
                {"addr", events.addr, 'Q', CORE_ABSENT_NONE},
                {"size", events.size, 'Q', CORE_ABSENT_NONE},
                {"time_us", events.time_us, 'q', CORE_ABSENT_TIME},
                {"stack", events.stack, 'I', CORE_ABSENT_ID}};
  const struct {
    const char *name;
    tsr_id_column ids;
  } columns[] = {{"stream", events.stream},
                 {"pool", events.pool},
                 {"context", events.context},
                 {"metadata", events.metadata},
                 {"category", events.category}};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
    if (strcmp(name, arrays[i].name) == 0)
      return core_column_new(owner, arrays[i].data, events.count,
                             core_format_size(arrays[i].format), arrays[i].format,
                             arrays[i].absent);
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
    if (strcmp(name, columns[i].name) == 0) return id_column(file, columns[i].ids, events.count);
  return PyErr_Format(PyExc_AttributeError, "no such column: %s", name);
}

/* ---- segments and blocks ---- */

typedef struct member {
  const char *name;
  size_t offset;
  char format;
  core_absent absent;
} member;

static PyObject *members(PyObject *self, const void *rows, size_t count, size_t row_bytes,
                         const member *list, size_t member_count) {
  core_file *file = core_open_file(self);
  PyObject *dict = PyDict_New();
  if (!dict) return NULL;
  bool ok = true;
  for (size_t i = 0; ok && i < member_count; i++) {
    const char *first = rows ? (const char *)rows + list[i].offset : NULL;
    ok =
        put(dict, list[i].name,
            core_column_new(&file->owner, first, count, row_bytes, list[i].format, list[i].absent));
  }
  return finish(dict, ok);
}

#define SEGMENT(field, format) \
  { #field, offsetof(tsr_segment, field), format, CORE_ABSENT_NONE }
#define BLOCK(field, format) \
  { #field, offsetof(tsr_block, field), format, CORE_ABSENT_NONE }

PyObject *core_segments(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  static const member list[] = {
      SEGMENT(device, 'I'),
      SEGMENT(address, 'Q'),
      SEGMENT(total_bytes, 'Q'),
      SEGMENT(allocated_bytes, 'Q'),
      SEGMENT(active_bytes, 'Q'),
      SEGMENT(requested_bytes, 'Q'),
      SEGMENT(stream, 'Q'),
      SEGMENT(first_block, 'Q'),
      SEGMENT(block_count, 'Q'),
      {"stack", offsetof(tsr_segment, stack), 'I', CORE_ABSENT_ID},
      {"pool", offsetof(tsr_segment, pool), 'I', CORE_ABSENT_ID},
      SEGMENT(is_large, '?'),
      SEGMENT(is_expandable, '?'),
  };
  const core_file *file = core_open_file(self);
  size_t count;
  if (!file) return NULL;
  const tsr_segment *rows = tsr_snapshot_segments(file->snapshot, &count);
  return members(self, rows, count, sizeof *rows, list, sizeof list / sizeof *list);
}

PyObject *core_blocks(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  static const member list[] = {
      BLOCK(address, 'Q'),         BLOCK(size_bytes, 'Q'),
      BLOCK(requested_bytes, 'Q'), {"stack", offsetof(tsr_block, stack), 'I', CORE_ABSENT_ID},
      BLOCK(state, 'B'),
  };
  const core_file *file = core_open_file(self);
  size_t count;
  if (!file) return NULL;
  const tsr_block *rows = tsr_snapshot_blocks(file->snapshot, &count);
  return members(self, rows, count, sizeof *rows, list, sizeof list / sizeof *list);
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
    tsr_life life = tsr_lives_at(lives, i);
    ((int64_t *)(void *)blocks[0]->data)[i] = life.birth;
    ((int64_t *)(void *)blocks[1]->data)[i] = life.death;
    ((uint64_t *)(void *)blocks[2]->data)[i] = life.address;
    ((uint64_t *)(void *)blocks[3]->data)[i] = life.requested_bytes;
    ((uint64_t *)(void *)blocks[4]->data)[i] = life.block_bytes;
    ((uint32_t *)(void *)blocks[5]->data)[i] = life.stack;
    ((uint32_t *)(void *)blocks[6]->data)[i] = life.stream;
    blocks[7]->data[i] = (unsigned char)life.kind;
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
  status = tsr_lives_compute(file->snapshot, device, &lives, &error);
  if (!status) {
    count = tsr_lives_count(lives);
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
  int status = tsr_lives_compute(file->snapshot, device, &lives, error);
  all->count = tsr_snapshot_events(file->snapshot, device).count + 1;
  for (size_t i = 0; !status && i < 4; i++)
    if (!(all->blocks[i] = core_block_new(all->count, sizeof(uint64_t)))) status = TSR_ERROR_MEMORY;
  if (!status) status = tsr_lives_walk(lives, note_turn, all, error);
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
