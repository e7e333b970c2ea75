/* owner.c - memory that outlives the Python object it came from.
 *
 *   Snapshot ──┐
 *   Answer   ──┼──► core_file (the open snapshot)        Column ──► core_block (its own array)
 *   Column   ──┤                                          Arrow array ──┘
 *   Arrow array┘
 *
 * An array that numpy or Arrow took from a snapshot stays valid when the snapshot is closed: each
 * keeps a use count. Arrow's consumers release from any thread, so the count is atomic and needs no
 * lock.
 */
#include "core.h"

#include <stdlib.h>
#include <string.h>

void *core_zeroed(size_t count, size_t size_bytes) {
  if (size_bytes && count > PY_SSIZE_T_MAX / size_bytes) return NULL;
  void *memory = PyMem_Malloc(count * size_bytes);
  if (memory) memset(memory, 0, count * size_bytes);
  return memory;
}

core_owner *core_owner_take(core_owner *owner) {
  atomic_fetch_add(&owner->uses, 1);
  return owner;
}

void core_owner_drop(core_owner *owner) {
  if (owner && atomic_fetch_sub(&owner->uses, 1) == 1) owner->end(owner);
}

static void end_file(core_owner *owner) {
  core_file *file = (core_file *)owner;
  tsr_study_free(file->study);
  tsr_snapshot_free(file->snapshot);
  free(file->name);
  free(file);
}

core_file *core_file_new(tsr_snapshot *snapshot, const char *name) {
  core_file *file = calloc(1, sizeof *file);
  char *copy = strdup(name);
  tsr_study *study = NULL;
  if (!file || !copy || (snapshot && tsr_study_new(snapshot, &study, NULL))) {
    free(file);
    free(copy);
    tsr_snapshot_free(snapshot);
    PyErr_NoMemory();
    return NULL;
  }
  *file = (core_file){
      .owner = {.uses = 1, .end = end_file}, .snapshot = snapshot, .study = study, .name = copy};
  return file;
}

static void end_block(core_owner *owner) {
  free(owner);
}

core_block *core_block_new(size_t count, size_t size) {
  if (count > (SIZE_MAX / 2 - sizeof(core_block)) / size) return NULL;
  core_block *block = calloc(1, sizeof *block + count * size);
  if (block) {
    atomic_init(&block->owner.uses, 1);
    block->owner.end = end_block;
  }
  return block;
}

/* ---- the file of a Snapshot ---- */

core_file *core_open_file(PyObject *self) {
  core_file *file = ((core_snapshot *)self)->file;
  if (!file) PyErr_SetString(core_argument_error(), "the snapshot is closed");
  return file;
}

PyObject *core_snapshot_new(core_file *file) {
  if (!file) return NULL;
  core_snapshot *self = PyObject_New(core_snapshot, (PyTypeObject *)core.snapshot);
  if (!self) {
    core_owner_drop(&file->owner);
    return NULL;
  }
  self->file = file;
  return (PyObject *)self;
}
