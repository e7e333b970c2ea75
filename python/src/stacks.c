/* stacks.c - stacks and their frames as columns, to be joined with tables that have ids of stacks. */
#include "core.h"

#include <string.h>

/* Blocks of columns that are being filled. */
typedef struct column_row {
  const char *name;
  char format;
  core_absent absent;
} column_row;

static bool make_blocks(const column_row *rows, size_t columns, size_t count, core_block **blocks) {
  bool ok = true;
  for (size_t i = 0; i < columns; i++) {
    blocks[i] = core_block_new(count, core_format_size(rows[i].format));
    ok = ok && blocks[i];
  }
  return ok;
}

/* Takes the blocks, also when it fails. */
static PyObject *dict_of(const column_row *rows, size_t columns, size_t count, core_block **blocks,
                         int status, const tsr_error *error) {
  PyObject *dict = status ? core_raise(status, error, NULL) : PyDict_New();
  for (size_t i = 0; i < columns; i++) {
    if (dict) {
      PyObject *column = core_column_of(blocks[i], count, rows[i].format, rows[i].absent);
      if (!core_put(dict, rows[i].name, column)) Py_CLEAR(dict);
    } else if (blocks[i]) {
      core_owner_drop(&blocks[i]->owner);
    }
  }
  return dict;
}

static uint32_t *ids(core_block *block) {
  return (uint32_t *)(void *)block->data;
}

/* ---- stacks: a row each ---- */

enum { STACK, DEPTH, NAME, FILE_NAME, LINE, PLACE, STACK_COLUMNS };
static const column_row stack_rows[STACK_COLUMNS] = {
    {"stack", 'I', CORE_ABSENT_NONE}, {"depth", 'I', CORE_ABSENT_NONE},
    {"name", 'I', CORE_ABSENT_MAX},   {"file", 'I', CORE_ABSENT_MAX},
    {"line", 'Q', CORE_ABSENT_MAX},   {"place", 'I', CORE_ABSENT_NONE}};

static int fill_stacks(core_file *file, uint32_t count, core_block **blocks, tsr_text *places,
                       tsr_error *error) {
  int status = 0;
  for (uint32_t i = 0; !status && i < count; i++) {
    tsr_stack_place place;
    status = tsr_stack_place_find(file->study, i, &place, error);
    if (status) break;
    bool has_frame = place.frame != TSR_NONE;
    tsr_frame frame =
        has_frame ? tsr_snapshot_frame(file->snapshot, place.frame) : (tsr_frame){0, 0, 0};
    ids(blocks[STACK])[i] = i;
    ids(blocks[DEPTH])[i] = tsr_snapshot_stack(file->snapshot, i).depth;
    ids(blocks[NAME])[i] = has_frame ? frame.name : TSR_NONE;
    ids(blocks[FILE_NAME])[i] = has_frame ? frame.file : TSR_NONE;
    ((uint64_t *)(void *)blocks[LINE]->data)[i] = has_frame ? frame.line : TSR_LINE_UNKNOWN;
    ids(blocks[PLACE])[i] = place.number;
    places[place.number] = place.text;
  }
  return status;
}

/* The texts of places by number; one that no stack has is empty. */
static PyObject *place_names(const tsr_text *places, size_t count) {
  PyObject *list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; i++) {
    PyObject *text = core_text(places[i].data ? places[i] : (tsr_text){"", 0});
    if (!text || PyList_SetItem(list, (Py_ssize_t)i, text)) Py_CLEAR(list);
  }
  return list;
}

/* stacks(): (columns, names of places). */
PyObject *core_stacks(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  core_file *file = core_open_file(self);
  if (!file) return NULL;
  uint32_t count = tsr_snapshot_stack_count(file->snapshot);
  core_block *blocks[STACK_COLUMNS];
  tsr_text *places = core_zeroed((size_t)count + 1, sizeof *places);
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  int status = TSR_ERROR_MEMORY;
  core_owner_take(&file->owner);
  Py_BEGIN_ALLOW_THREADS;
  if (make_blocks(stack_rows, STACK_COLUMNS, count, blocks) && places)
    status = fill_stacks(file, count, blocks, places, &error);
  Py_END_ALLOW_THREADS;
  PyObject *dict = dict_of(stack_rows, STACK_COLUMNS, count, blocks, status, &error);
  PyObject *names = dict && places ? place_names(places, (size_t)count + 1) : NULL;
  PyObject *pair = names ? PyTuple_Pack(2, dict, names) : NULL;
  core_owner_drop(&file->owner); /* the texts are its study's */
  PyMem_Free(places);
  Py_XDECREF(dict);
  Py_XDECREF(names);
  return pair;
}

/* ---- frames: a row for each frame of each stack ---- */

enum { FRAME_COLUMNS = 5 };
static const column_row frame_rows[FRAME_COLUMNS] = {{"stack", 'I', CORE_ABSENT_NONE},
                                                     {"depth", 'I', CORE_ABSENT_NONE},
                                                     {"name", 'I', CORE_ABSENT_MAX},
                                                     {"file", 'I', CORE_ABSENT_MAX},
                                                     {"line", 'Q', CORE_ABSENT_MAX}};

static size_t count_frames(const tsr_snapshot *snapshot) {
  size_t count = 0;
  for (uint32_t i = 0; i < tsr_snapshot_stack_count(snapshot); i++)
    count += tsr_snapshot_stack(snapshot, i).depth;
  return count;
}

static void fill_frames(const tsr_snapshot *snapshot, core_block **blocks) {
  size_t row = 0;
  for (uint32_t i = 0; i < tsr_snapshot_stack_count(snapshot); i++) {
    tsr_stack stack = tsr_snapshot_stack(snapshot, i);
    for (uint32_t depth = 0; depth < stack.depth; depth++, row++) {
      tsr_frame frame = tsr_snapshot_frame(snapshot, stack.frames[depth]);
      ids(blocks[STACK])[row] = i;
      ids(blocks[DEPTH])[row] = depth;
      ids(blocks[NAME])[row] = frame.name;
      ids(blocks[FILE_NAME])[row] = frame.file;
      ((uint64_t *)(void *)blocks[LINE]->data)[row] = frame.line;
    }
  }
}

/* frames(): a dict of columns, innermost frame of a stack first. */
PyObject *core_frames(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  core_file *file = core_open_file(self);
  if (!file) return NULL;
  core_block *blocks[FRAME_COLUMNS];
  size_t count;
  bool ok;
  core_owner_take(&file->owner);
  Py_BEGIN_ALLOW_THREADS;
  count = count_frames(file->snapshot);
  ok = make_blocks(frame_rows, FRAME_COLUMNS, count, blocks);
  if (ok) fill_frames(file->snapshot, blocks);
  Py_END_ALLOW_THREADS;
  core_owner_drop(&file->owner);
  return dict_of(frame_rows, FRAME_COLUMNS, count, blocks, ok ? 0 : TSR_ERROR_MEMORY, NULL);
}
