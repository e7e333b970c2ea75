/* select.c - comparing columns, and choosing rows.
 *
 *   column == value ──► mask ──► mask & mask ──► column[mask]
 *
 * A mask is a column of booleans. Comparisons are exact, whatever the types of both sides. Rows
 * without a value are as in numpy and pandas: different from everything, and in no order.
 */
#include "core.h"

#include <stdlib.h>
#include <string.h>

enum { LESS = 1, EQUAL = 2, GREATER = 4, ANY = LESS | EQUAL | GREATER };

static int wanted_orders(int operation) {
  switch (operation) {
  case Py_LT: return LESS;
  case Py_LE: return LESS | EQUAL;
  case Py_EQ: return EQUAL;
  case Py_NE: return LESS | GREATER;
  case Py_GT: return GREATER;
  default: return GREATER | EQUAL;
  }
}

/* A number of 65 bits: where is_negative, `bits` are those of an int64_t. */
typedef struct number {
  bool is_negative;
  uint64_t bits;
} number;

static number number_at(const core_column *column, Py_ssize_t row) {
  uint64_t bits = core_column_at(column, row);
  return (number){column->format[0] == 'q' && (int64_t)bits < 0, bits};
}

static int order(number a, number b) {
  if (a.is_negative != b.is_negative) return a.is_negative ? LESS : GREATER;
  return a.bits < b.bits ? LESS : a.bits > b.bits ? GREATER : EQUAL;
}

static core_block *new_mask(Py_ssize_t count) {
  return core_block_new((size_t)count, 1);
}

static PyObject *mask_of(core_block *mask, Py_ssize_t count) {
  return core_column_of(mask, (size_t)count, '?', CORE_ABSENT_NONE);
}

/* ---- comparing ---- */

/* With one number; `fixed` is what all rows are to it if it is beyond every number, or 0. */
static PyObject *compare_number(const core_column *column, number value, int fixed, int operation) {
  int wanted = wanted_orders(operation);
  core_block *mask = new_mask(column->count);
  Py_BEGIN_ALLOW_THREADS;
  for (Py_ssize_t i = 0; mask && i < column->count; i++) {
    int found = fixed ? fixed : order(number_at(column, i), value);
    mask->data[i] = core_column_is_absent(column, i) ? operation == Py_NE : (found & wanted) != 0;
  }
  Py_END_ALLOW_THREADS;
  return mask_of(mask, column->count);
}

static PyObject *compare_columns(const core_column *a, const core_column *b, int operation) {
  int wanted = wanted_orders(operation);
  if (a->count != b->count) {
    PyErr_SetString(core_argument_error(), "columns of different lengths are compared");
    return NULL;
  }
  core_block *mask = new_mask(a->count);
  Py_BEGIN_ALLOW_THREADS;
  for (Py_ssize_t i = 0; mask && i < a->count; i++) {
    bool is_absent = core_column_is_absent(a, i) || core_column_is_absent(b, i);
    int found = order(number_at(a, i), number_at(b, i));
    mask->data[i] = is_absent ? operation == Py_NE : (found & wanted) != 0;
  }
  Py_END_ALLOW_THREADS;
  return mask_of(mask, a->count);
}

/* With a whole number of any size. */
static PyObject *compare_integer(const core_column *column, PyObject *integer, int operation) {
  int overflow = 0;
  long long narrow = PyLong_AsLongLongAndOverflow(integer, &overflow);
  if (narrow == -1 && PyErr_Occurred()) return NULL;
  number value = {narrow < 0, (uint64_t)narrow};
  if (overflow < 0) return compare_number(column, value, GREATER, operation);
  if (overflow > 0) {
    value = (number){false, PyLong_AsUnsignedLongLong(integer)};
    if (PyErr_Occurred()) {
      PyErr_Clear();
      return compare_number(column, value, LESS, operation);
    }
  }
  return compare_number(column, value, 0, operation);
}

/* With a float: x > 2.5 if and only if x > 2, and x < 2.5 if and only if x <= 2. */
static PyObject *compare_float(const core_column *column, double value, int operation) {
  static const double beyond = 1e20;
  const number none = {false, 0};
  if (value != value) {
    core_block *mask = new_mask(column->count);
    if (mask) memset(mask->data, operation == Py_NE, (size_t)column->count);
    return mask_of(mask, column->count);
  }
  if (value > beyond) return compare_number(column, none, LESS, operation);
  if (value < -beyond) return compare_number(column, none, GREATER, operation);
  PyObject *whole = PyLong_FromDouble(value); /* towards 0 */
  if (!whole) return NULL;
  double rest = value - PyLong_AsDouble(whole);
  if (rest != 0 && (operation == Py_EQ || operation == Py_NE)) {
    Py_DECREF(whole);
    return compare_number(column, none, LESS, operation);
  }
  if (rest > 0) operation = operation == Py_LT ? Py_LE : operation == Py_GE ? Py_GT : operation;
  if (rest < 0) operation = operation == Py_LE ? Py_LT : operation == Py_GT ? Py_GE : operation;
  PyObject *mask = compare_integer(column, whole, operation);
  Py_DECREF(whole);
  return mask;
}

/* With a text, of which the column has codes. */
static PyObject *compare_text(const core_column *column, PyObject *text, int operation) {
  if (!column->names || (operation != Py_EQ && operation != Py_NE)) {
    PyErr_SetString(core_usage_error(), column->names
                                            ? "texts are compared with == and != alone"
                                            : "a column of numbers, compared with a text");
    return NULL;
  }
  Py_ssize_t count = PyList_Size(column->names);
  for (Py_ssize_t i = 0; i < count; i++) {
    int same = PyUnicode_Compare(PyList_GetItem(column->names, i), text);
    if (same == -1 && PyErr_Occurred()) return NULL;
    if (same == 0) return compare_number(column, (number){false, (uint64_t)i}, 0, operation);
  }
  return compare_number(column, (number){false, 0}, LESS, operation);
}

PyObject *core_column_compare(PyObject *self, PyObject *other, int operation) {
  const core_column *column = (core_column *)self;
  if (Py_TYPE(other) == (PyTypeObject *)core.column)
    return compare_columns(column, (core_column *)other, operation);
  if (PyUnicode_Check(other)) return compare_text(column, other, operation);
  if (PyFloat_Check(other)) return compare_float(column, PyFloat_AsDouble(other), operation);
  if (PyIndex_Check(other) && !PyObject_HasAttrString(other, "__len__")) {
    PyObject *integer = PyNumber_Index(other);
    PyObject *mask = integer ? compare_integer(column, integer, operation) : NULL;
    Py_XDECREF(integer);
    return mask;
  }
  /* Arrays compare themselves with a column, as with any buffer. */
  if (PyObject_HasAttrString(other, "__array__")) Py_RETURN_NOTIMPLEMENTED;
  return PyErr_Format(core_usage_error(), "a column is compared with a number, a text or a column");
}

PyObject *core_column_is_null(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  const core_column *column = (core_column *)self;
  core_block *mask = new_mask(column->count);
  for (Py_ssize_t i = 0; mask && i < column->count; i++)
    mask->data[i] = core_column_is_absent(column, i);
  return mask_of(mask, column->count);
}

/* ---- masks ---- */

static const core_column *as_mask(PyObject *object) {
  const core_column *column = (core_column *)object;
  bool is_one = Py_TYPE(object) == (PyTypeObject *)core.column && column->format[0] == '?';
  return is_one ? column : NULL;
}

static PyObject *combine(PyObject *left, PyObject *right, char operation) {
  const core_column *a = as_mask(left), *b = as_mask(right);
  if (!a || !b) Py_RETURN_NOTIMPLEMENTED;
  if (a->count != b->count) {
    PyErr_SetString(core_argument_error(), "masks of different lengths are combined");
    return NULL;
  }
  core_block *mask = new_mask(a->count);
  for (Py_ssize_t i = 0; mask && i < a->count; i++) {
    bool x = core_column_at(a, i) != 0, y = core_column_at(b, i) != 0;
    mask->data[i] = operation == '&' ? x && y : operation == '|' ? x || y : x != y;
  }
  return mask_of(mask, a->count);
}

PyObject *core_column_and(PyObject *left, PyObject *right) {
  return combine(left, right, '&');
}

PyObject *core_column_or(PyObject *left, PyObject *right) {
  return combine(left, right, '|');
}

PyObject *core_column_xor(PyObject *left, PyObject *right) {
  return combine(left, right, '^');
}

PyObject *core_column_invert(PyObject *self) {
  const core_column *column = as_mask(self);
  if (!column) return PyErr_Format(core_usage_error(), "~ is for masks");
  core_block *mask = new_mask(column->count);
  for (Py_ssize_t i = 0; mask && i < column->count; i++)
    mask->data[i] = core_column_at(column, i) == 0;
  return mask_of(mask, column->count);
}

int core_column_truth(PyObject *self) {
  (void)self;
  PyErr_SetString(
      core_argument_error(),
      "a column is neither true nor false: combine masks with &, | and ~, and use any(), "
      "all() or len()");
  return -1;
}

/* ---- rows ---- */

/* Sets IndexError where it returns false. */
static bool put_row(int64_t *rows, Py_ssize_t *used, int64_t row, Py_ssize_t count) {
  if (row < 0) row += count;
  if (row < 0 || row >= count) {
    PyErr_SetString(PyExc_IndexError, "no such row");
    return false;
  }
  rows[(*used)++] = row;
  return true;
}

/* Of a mask or a column of numbers of rows. */
static PyObject *rows_of_column(const core_column *key, Py_ssize_t count) {
  bool is_mask = key->format[0] == '?';
  if (is_mask && key->count != count)
    return PyErr_Format(PyExc_IndexError, "a mask of %zd rows for a column of %zd", key->count,
                        count);
  core_block *block = core_block_new((size_t)key->count, sizeof(int64_t));
  Py_ssize_t used = 0;
  if (!block) return PyErr_NoMemory();
  int64_t *rows = (int64_t *)(void *)block->data;
  for (Py_ssize_t i = 0; i < key->count; i++) {
    uint64_t value = core_column_at(key, i);
    if (is_mask && value) rows[used++] = i;
    bool is_far = key->format[0] != 'q' && value > INT64_MAX;
    if (is_mask || put_row(rows, &used, is_far ? INT64_MAX : (int64_t)value, count)) continue;
    core_owner_drop(&block->owner);
    return NULL;
  }
  return core_column_of(block, (size_t)used, 'q', CORE_ABSENT_NONE);
}

/* Of a list of booleans or of numbers. */
static PyObject *rows_of_list(PyObject *list, Py_ssize_t count) {
  Py_ssize_t length = PyList_Size(list), used = 0;
  bool is_mask = length > 0;
  for (Py_ssize_t i = 0; i < length && is_mask; i++)
    is_mask = PyBool_Check(PyList_GetItem(list, i));
  if (is_mask && length != count)
    return PyErr_Format(PyExc_IndexError, "a mask of %zd rows for a column of %zd", length, count);
  core_block *block = core_block_new((size_t)length, sizeof(int64_t));
  if (!block) return PyErr_NoMemory();
  int64_t *rows = (int64_t *)(void *)block->data;
  bool ok = true;
  for (Py_ssize_t i = 0; ok && i < length; i++) {
    PyObject *item = PyList_GetItem(list, i);
    if (is_mask) {
      if (item == Py_True) rows[used++] = i;
      continue;
    }
    Py_ssize_t row = PyNumber_AsSsize_t(item, PyExc_IndexError);
    ok = !PyErr_Occurred() && put_row(rows, &used, row, count);
  }
  if (ok) return core_column_of(block, (size_t)used, 'q', CORE_ABSENT_NONE);
  core_owner_drop(&block->owner);
  return NULL;
}

/* The bytes of a buffer as a column of its own; NULL without an exception where columns have no such type. */
static PyObject *column_of_buffer(PyObject *key) {
  PyObject *view = PyMemoryView_FromObject(key), *result = NULL;
  if (!view) {
    PyErr_Clear();
    return NULL;
  }
  PyObject *bytes = PyObject_CallMethod(view, "tobytes", NULL);
  PyObject *format = PyObject_GetAttrString(view, "format");
  char *data = NULL;
  Py_ssize_t size_bytes = 0;
  if (bytes && format && !PyBytes_AsStringAndSize(bytes, &data, &size_bytes)) {
    /* "l" and "L" are numpy's 64 bits where C's long has them. */
    char type = PyUnicode_CompareWithASCIIString(format, "?") == 0                             ? '?'
                : PyUnicode_CompareWithASCIIString(format, sizeof(long) == 8 ? "l" : "q") == 0 ? 'q'
                                                                                               : 0;
    size_t item_bytes = type ? core_format_size(type) : 1;
    core_block *block = type ? core_block_new((size_t)size_bytes / item_bytes, item_bytes) : NULL;
    if (block) {
      memcpy(block->data, data, (size_t)size_bytes);
      result = core_column_of(block, (size_t)size_bytes / item_bytes, type, CORE_ABSENT_NONE);
    }
  }
  Py_XDECREF(bytes);
  Py_XDECREF(format);
  Py_DECREF(view);
  PyErr_Clear();
  return result;
}

PyObject *core_rows(PyObject *key, Py_ssize_t count) {
  if (Py_TYPE(key) == (PyTypeObject *)core.column) return rows_of_column((core_column *)key, count);
  if (PyUnicode_Check(key) || PyBytes_Check(key) || !PyObject_HasAttrString(key, "__iter__"))
    return PyErr_Format(core_usage_error(),
                        "rows are chosen by a number, a slice, a mask or a list");
  PyObject *column = column_of_buffer(key);
  if (column) {
    PyObject *rows = rows_of_column((core_column *)column, count);
    Py_DECREF(column);
    return rows;
  }
  /* Other arrays give a list of their own. */
  bool has_list = PyObject_HasAttrString(key, "tolist");
  PyObject *list = has_list ? PyObject_CallMethod(key, "tolist", NULL) : PySequence_List(key);
  PyObject *rows = NULL;
  if (list && PyList_Check(list))
    rows = rows_of_list(list, count);
  else if (list)
    PyErr_SetString(core_usage_error(), "rows are chosen by a number, a slice, a mask or a list");
  Py_XDECREF(list);
  return rows;
}

/* Those rows, copied. */
static PyObject *gather(const core_column *column, const core_column *rows) {
  core_block *block = core_block_new((size_t)rows->count, (size_t)column->size);
  Py_BEGIN_ALLOW_THREADS;
  for (Py_ssize_t i = 0; block && i < rows->count; i++)
    memcpy(block->data + i * column->size,
           column->data + (Py_ssize_t)core_column_at(rows, i) * column->stride,
           (size_t)column->size);
  Py_END_ALLOW_THREADS;
  return core_column_of(block, (size_t)rows->count, column->format[0], column->absent);
}

/* A view: it shares the memory. */
static PyObject *slice(const core_column *column, PyObject *key) {
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(key, &start, &stop, &step) < 0) return NULL;
  Py_ssize_t count = PySlice_AdjustIndices(column->count, &start, &stop, step);
  PyObject *part =
      core_column_new(column->owner, column->data + (count ? start * column->stride : 0),
                      (size_t)count, 0, column->format[0], column->absent);
  if (part) ((core_column *)part)->stride = step * column->stride;
  return part;
}

PyObject *core_column_part(PyObject *self, PyObject *key) {
  const core_column *column = (core_column *)self;
  PyObject *part = NULL;
  if (PySlice_Check(key)) {
    part = slice(column, key);
  } else {
    PyObject *rows = core_rows(key, column->count);
    if (rows) part = gather(column, (core_column *)rows);
    Py_XDECREF(rows);
  }
  if (part && column->names) {
    Py_INCREF(column->names);
    ((core_column *)part)->names = column->names;
  }
  return part;
}

/* rows(key, count): the numbers of the rows that a key other than a slice chooses, as a column. */
PyObject *core_chosen_rows(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *key;
  Py_ssize_t count;
  if (!PyArg_ParseTuple(arguments, "On", &key, &count)) return NULL;
  return core_rows(key, count);
}

/* range(first, count): a column of first, first + 1, ... */
PyObject *core_range(PyObject *Py_UNUSED(module), PyObject *arguments) {
  long long first;
  Py_ssize_t count;
  if (!PyArg_ParseTuple(arguments, "Ln", &first, &count)) return NULL;
  core_block *block = core_block_new((size_t)count, sizeof(int64_t));
  for (Py_ssize_t i = 0; block && i < count; i++) ((int64_t *)(void *)block->data)[i] = first + i;
  return core_column_of(block, (size_t)count, 'q', CORE_ABSENT_NONE);
}
