/* items.c - the items of a Column: making one, and reading it. The type itself is in column.c, which knows what its methods
 * are made of: select.c and arrow.c, and these call the functions here. */
#include "core.h"

#include <string.h>

size_t core_format_size(char format) {
  switch (format) {
  case 'B':
  case '?': return 1;
  case 'I': return 4;
  default: return 8;
  }
}

PyObject *core_column_new(core_owner *owner, const void *data, size_t count, size_t stride,
                          char format, core_absent absent) {
  core_column *column = PyObject_New(core_column, (PyTypeObject *)core.column);
  if (!column) return NULL;
  column->owner = core_owner_take(owner);
  column->data = data ? data : "";
  column->count = (Py_ssize_t)count;
  column->stride = (Py_ssize_t)stride;
  column->size = (Py_ssize_t)core_format_size(format);
  column->format[0] = format;
  column->format[1] = '\0';
  column->absent = absent;
  column->names = NULL;
  return (PyObject *)column;
}

PyObject *core_column_of(core_block *block, size_t count, char format, core_absent absent) {
  if (!block) return PyErr_NoMemory();
  PyObject *column =
      core_column_new(&block->owner, block->data, count, core_format_size(format), format, absent);
  core_owner_drop(&block->owner);
  return column;
}

uint64_t core_column_at(const core_column *column, Py_ssize_t row) {
  const char *at = column->data + row * column->stride;
  uint64_t wide;
  uint32_t narrow;
  switch (column->size) {
  case 1: return *(const unsigned char *)at;
  case 4: memcpy(&narrow, at, sizeof narrow); return narrow;
  default: memcpy(&wide, at, sizeof wide); return wide;
  }
}

bool core_column_is_absent(const core_column *column, Py_ssize_t row) {
  if (column->absent == CORE_ABSENT_NONE) return false;
  uint64_t value = core_column_at(column, row);
  if (column->absent == CORE_ABSENT_TIME) return (int64_t)value == TSR_TIME_NONE;
  return value == (column->size == 1 ? UINT8_MAX : column->size == 4 ? UINT32_MAX : UINT64_MAX);
}
