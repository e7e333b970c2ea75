/* column.c - the type Column: an array of numbers of a snapshot, as it is in memory.
 *
 * numpy.asarray(column), memoryview(column) and Arrow's interface take it without a copy. A column is
 * read only. It may be one field of an array of structs, and so have gaps between its items.
 *
 * The buffer protocol became part of the stable ABI in 3.11. Its slots and the layout of Py_buffer
 * are the same in 3.9 and 3.10, which change no more; they are declared here by other names, since
 * the headers hide them from an extension that is built for 3.9.
 */
#include "core.h"

#include <string.h>

enum { SLOT_GETBUFFER = 1, SLOT_RELEASEBUFFER = 2 };
enum { WANTS_WRITABLE = 0x1, WANTS_FORMAT = 0x4, WANTS_SHAPE = 0x8, WANTS_STRIDES = 0x18 };

typedef struct buffer_view {
  void *buf;
  PyObject *obj;
  Py_ssize_t len, itemsize;
  int readonly, ndim;
  char *format;
  Py_ssize_t *shape, *strides, *suboffsets;
  void *internal;
} buffer_view;

/* ---- the buffer protocol ---- */

static int get_buffer(PyObject *self, void *out, int flags) {
  core_column *column = (core_column *)self;
  buffer_view *view = out;
  bool has_gaps = column->stride != column->size && column->count > 1;
  const char *problem = NULL;
  if (flags & WANTS_WRITABLE) problem = "a column of a snapshot is read only";
  if (has_gaps && (flags & WANTS_STRIDES) != WANTS_STRIDES)
    problem = "this column has gaps between its items";
  view->obj = NULL;
  if (problem) {
    PyErr_SetString(PyExc_BufferError, problem);
    return -1;
  }
  *view =
      (buffer_view){.buf = (char *)(uintptr_t)column->data,
                    .obj = self,
                    .len = column->count * column->size,
                    .itemsize = column->size,
                    .readonly = 1,
                    .ndim = 1,
                    .format = flags & WANTS_FORMAT ? column->format : NULL,
                    .shape = flags & WANTS_SHAPE ? &column->count : NULL,
                    .strides = (flags & WANTS_STRIDES) == WANTS_STRIDES ? &column->stride : NULL};
  Py_INCREF(self);
  return 0;
}

/* ---- a sequence ---- */

static void dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  core_owner_drop(((core_column *)self)->owner);
  Py_XDECREF(((core_column *)self)->names);
  PyObject_Free(self);
  Py_DECREF(type);
}

static Py_ssize_t length(PyObject *self) {
  return ((core_column *)self)->count;
}

static PyObject *item(PyObject *self, Py_ssize_t row) {
  const core_column *column = (core_column *)self;
  if (row < 0 || row >= column->count) {
    PyErr_SetString(PyExc_IndexError, "no such row");
    return NULL;
  }
  uint64_t value = core_column_at(column, row);
  switch (column->format[0]) {
  case 'q': return PyLong_FromLongLong((long long)value);
  case '?': return PyBool_FromLong(value != 0);
  default: return PyLong_FromUnsignedLongLong(value);
  }
}

/* One row, or a column of some. */
static PyObject *subscript(PyObject *self, PyObject *key) {
  if (PyIndex_Check(key) && !PyObject_HasAttrString(key, "__len__")) {
    Py_ssize_t row = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (row == -1 && PyErr_Occurred()) return NULL;
    return item(self, row < 0 ? row + length(self) : row);
  }
  return core_column_part(self, key);
}

static PyObject *tolist(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  PyObject *view = PyMemoryView_FromObject(self);
  PyObject *list = view ? PyObject_CallMethod(view, "tolist", NULL) : NULL;
  Py_XDECREF(view);
  return list;
}

static const char *type_name(const core_column *column) {
  switch (column->format[0]) {
  case 'B': return "uint8";
  case 'I': return "uint32";
  case 'q': return "int64";
  case '?': return "bool";
  default: return "uint64";
  }
}

enum { SHOWN_ROWS = 8 };

static PyObject *repr(PyObject *self) {
  const core_column *column = (core_column *)self;
  PyObject *items = PyList_New(0);
  for (Py_ssize_t i = 0; items && i < column->count && i < SHOWN_ROWS; i++) {
    PyObject *value = NULL;
    if (core_column_is_absent(column, i)) {
      value = PyUnicode_FromString("None");
    } else if (column->names && core_column_at(column, i) < (uint64_t)PyList_Size(column->names)) {
      value = PyList_GetItem(column->names, (Py_ssize_t)core_column_at(column, i));
      Py_XINCREF(value);
    } else {
      PyObject *row = item(self, i);
      value = row ? PyObject_Str(row) : NULL;
      Py_XDECREF(row);
    }
    if (!value || PyList_Append(items, value)) Py_CLEAR(items);
    Py_XDECREF(value);
  }
  PyObject *comma = PyUnicode_FromString(", ");
  PyObject *joined = items && comma ? PyUnicode_Join(comma, items) : NULL;
  PyObject *text = NULL;
  if (joined)
    text =
        PyUnicode_FromFormat("<tessera column of %zd, %s: %U%s>", column->count, type_name(column),
                             joined, column->count > SHOWN_ROWS ? ", ..." : "");
  Py_XDECREF(items);
  Py_XDECREF(comma);
  Py_XDECREF(joined);
  return text;
}

/* ---- numpy ---- */

static PyObject *to_numpy(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  PyObject *numpy = PyImport_ImportModule("numpy");
  PyObject *array = numpy ? PyObject_CallMethod(numpy, "asarray", "O", self) : NULL;
  Py_XDECREF(numpy);
  return array;
}

/* __array__(dtype=None, copy=None): for those who do not know that numpy takes a column as it is. */
static PyObject *as_array(PyObject *self, PyObject *arguments, PyObject *keywords) {
  static char dtype_name[] = "dtype", copy_name[] = "copy";
  static char *names[] = {dtype_name, copy_name, NULL};
  PyObject *type = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|OO", names, &type, &copy)) return NULL;
  PyObject *array = to_numpy(self, NULL);
  if (array && type != Py_None) {
    PyObject *converted = PyObject_CallMethod(array, "astype", "O", type);
    Py_DECREF(array);
    return converted;
  }
  if (array && copy == Py_True) {
    PyObject *copied = PyObject_CallMethod(array, "copy", NULL);
    Py_DECREF(array);
    return copied;
  }
  return array;
}

static PyObject *get_dtype(PyObject *self, void *Py_UNUSED(closure)) {
  PyObject *numpy = PyImport_ImportModule("numpy");
  PyObject *type =
      numpy ? PyObject_CallMethod(numpy, "dtype", "s", type_name((core_column *)self)) : NULL;
  Py_XDECREF(numpy);
  return type;
}

static PyObject *get_names(PyObject *self, void *Py_UNUSED(closure)) {
  PyObject *names = ((core_column *)self)->names;
  if (!names) Py_RETURN_NONE;
  return PyList_GetSlice(names, 0, PyList_Size(names));
}

/* named(names): the same items, as codes of texts. */
static PyObject *named(PyObject *self, PyObject *names) {
  const core_column *column = (core_column *)self;
  if (!PyList_Check(names)) return PyErr_Format(PyExc_TypeError, "a list of str");
  PyObject *copy = core_column_new(column->owner, column->data, (size_t)column->count,
                                   (size_t)column->stride, column->format[0], column->absent);
  if (copy) ((core_column *)copy)->names = PyList_GetSlice(names, 0, PyList_Size(names));
  if (copy && !((core_column *)copy)->names) Py_CLEAR(copy);
  return copy;
}

/* ---- numbers of a whole column ---- */

/* Whether a column has numbers, and not codes of texts; else an exception. */
static bool has_numbers(const core_column *column, const char *what) {
  if (!column->names) return true;
  PyErr_Format(core_usage_error(), "texts have no %s", what);
  return false;
}

/* numpy.sum(column) and others pass axis, dtype and out, which have to be None. */
static bool has_defaults(PyObject *arguments, PyObject *keywords) {
  static char axis_name[] = "axis", dtype_name[] = "dtype", out_name[] = "out";
  static char *names[] = {axis_name, dtype_name, out_name, NULL};
  PyObject *axis = Py_None, *dtype = Py_None, *out = Py_None;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|OOO", names, &axis, &dtype, &out))
    return false;
  if (axis == Py_None && dtype == Py_None && out == Py_None) return true;
  PyErr_SetString(core_usage_error(), "a column takes no axis, dtype or out: use to_numpy()");
  return false;
}

/* The sum of the rows that have a value, however large. */
static PyObject *sum(PyObject *self, PyObject *arguments, PyObject *keywords) {
  const core_column *column = (core_column *)self;
  if (!has_defaults(arguments, keywords)) return NULL;
  uint64_t low = 0; /* the low half of a number of 128 bits, */
  int64_t high = 0; /* and the high one */
  if (!has_numbers(column, "sum")) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  for (Py_ssize_t i = 0; i < column->count; i++) {
    uint64_t value = core_column_at(column, i);
    if (core_column_is_absent(column, i)) continue;
    low += value;
    high += low < value;
    if (column->format[0] == 'q' && value >> 63) high--; /* the sign */
  }
  Py_END_ALLOW_THREADS;
  PyObject *upper = PyLong_FromLongLong(high), *bits = PyLong_FromLong(64);
  PyObject *shifted = upper && bits ? PyNumber_Lshift(upper, bits) : NULL;
  PyObject *lower = shifted ? PyLong_FromUnsignedLongLong(low) : NULL;
  PyObject *total = lower ? PyNumber_Add(shifted, lower) : NULL;
  Py_XDECREF(upper);
  Py_XDECREF(bits);
  Py_XDECREF(shifted);
  Py_XDECREF(lower);
  return total;
}

/* The smallest or largest value; an exception if no row has one. */
static PyObject *extreme(PyObject *self, bool is_largest) {
  const core_column *column = (core_column *)self;
  Py_ssize_t found = -1;
  bool is_signed = column->format[0] == 'q';
  if (!has_numbers(column, is_largest ? "largest" : "smallest")) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  for (Py_ssize_t i = 0; i < column->count; i++) {
    if (core_column_is_absent(column, i)) continue;
    uint64_t value = core_column_at(column, i),
             best = found < 0 ? 0 : core_column_at(column, found);
    bool is_less = is_signed ? (int64_t)value < (int64_t)best : value < best;
    if (found < 0 || (is_largest ? !is_less && value != best : is_less)) found = i;
  }
  Py_END_ALLOW_THREADS;
  if (found >= 0) return item(self, found);
  PyErr_SetString(core_argument_error(), "the column has no values");
  return NULL;
}

static PyObject *smallest(PyObject *self, PyObject *arguments, PyObject *keywords) {
  return has_defaults(arguments, keywords) ? extreme(self, false) : NULL;
}

static PyObject *largest(PyObject *self, PyObject *arguments, PyObject *keywords) {
  return has_defaults(arguments, keywords) ? extreme(self, true) : NULL;
}

/* Arithmetic is the package's: numpy's, on arrays of the same numbers. */
static PyObject *calculate(const char *operation, PyObject *left, PyObject *right) {
  if (!core.calculator) Py_RETURN_NOTIMPLEMENTED;
  return PyObject_CallFunction(core.calculator, "sOO", operation, left, right);
}

#define ARITHMETIC(name, operation)                        \
  static PyObject *name(PyObject *left, PyObject *right) { \
    return calculate(operation, left, right);              \
  }
ARITHMETIC(add, "add")
ARITHMETIC(subtract, "sub")
ARITHMETIC(multiply, "mul")
ARITHMETIC(divide, "truediv")
ARITHMETIC(floor_divide, "floordiv")
ARITHMETIC(remain, "mod")

/* ---- new columns from old ones ---- */

/* lookup(values): a column of values[id] for each id of this one, absent if absent. */
static PyObject *lookup(PyObject *self, PyObject *values) {
  const core_column *column = (core_column *)self;
  Py_ssize_t known = PySequence_Size(values);
  uint64_t *table = known < 0 ? NULL : core_zeroed((size_t)known + 1, sizeof *table);
  if (!table) return known < 0 ? NULL : PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < known && !PyErr_Occurred(); i++) {
    PyObject *value = PySequence_GetItem(values, i);
    if (value) table[i] = PyLong_AsUnsignedLongLong(value);
    Py_XDECREF(value);
  }
  core_block *block = PyErr_Occurred() ? NULL : core_block_new((size_t)column->count, 8);
  Py_BEGIN_ALLOW_THREADS;
  for (Py_ssize_t i = 0; block && i < column->count; i++) {
    uint64_t id = core_column_at(column, i);
    ((uint64_t *)(void *)block->data)[i] = id < (uint64_t)known ? table[id] : UINT64_MAX;
  }
  Py_END_ALLOW_THREADS;
  PyMem_Free(table);
  if (PyErr_Occurred()) return NULL;
  return core_column_of(block, (size_t)column->count, 'Q', CORE_ABSENT_MAX);
}

/* Number the distinct ids of a column, those below `limit`, in the order in which they occur. */
static uint32_t number_ids(const core_column *column, size_t limit, uint32_t *numbers,
                           uint32_t *codes, uint32_t *distinct) {
  uint32_t count = 0;
  for (Py_ssize_t i = 0; i < column->count; i++) {
    uint64_t id = core_column_at(column, i);
    codes[i] = UINT32_MAX;
    if (id >= limit) continue;
    if (!numbers[id]) {
      distinct[count] = (uint32_t)id;
      numbers[id] = ++count;
    }
    codes[i] = numbers[id] - 1;
  }
  return count;
}

/* factorize(limit): (column of codes, list of the distinct ids they stand for), ids below limit. */
static PyObject *factorize(PyObject *self, PyObject *argument) {
  const core_column *column = (core_column *)self;
  size_t limit = PyLong_AsSize_t(argument);
  if (PyErr_Occurred()) return NULL;
  uint32_t *numbers = core_zeroed(limit + 1, sizeof *numbers);
  uint32_t *distinct = core_zeroed(limit + 1, sizeof *distinct), count = 0;
  core_block *block = core_block_new((size_t)column->count, sizeof(uint32_t));
  PyObject *ids = NULL, *codes = NULL;
  if (numbers && distinct && block) {
    Py_BEGIN_ALLOW_THREADS;
    count = number_ids(column, limit, numbers, (uint32_t *)(void *)block->data, distinct);
    Py_END_ALLOW_THREADS;
    ids = PyList_New((Py_ssize_t)count);
    codes = core_column_of(block, (size_t)column->count, 'I', CORE_ABSENT_MAX);
    for (uint32_t i = 0; ids && i < count; i++) {
      PyObject *id = PyLong_FromUnsignedLong(distinct[i]);
      if (!id || PyList_SetItem(ids, (Py_ssize_t)i, id)) Py_CLEAR(ids);
    }
  } else {
    if (block) core_owner_drop(&block->owner);
    PyErr_NoMemory();
  }
  PyMem_Free(numbers);
  PyMem_Free(distinct);
  PyObject *pair = ids && codes ? PyTuple_Pack(2, codes, ids) : NULL;
  Py_XDECREF(ids);
  Py_XDECREF(codes);
  return pair;
}

static PyMethodDef methods[] = {
    {"tolist", tolist, METH_NOARGS, "All items as a list of int."},
    {"to_numpy", to_numpy, METH_NOARGS, "A numpy array of the same memory, read only."},
    {"sum", (PyCFunction)(void (*)(void))sum, METH_VARARGS | METH_KEYWORDS,
     "The sum of the rows that have a value."},
    {"min", (PyCFunction)(void (*)(void))smallest, METH_VARARGS | METH_KEYWORDS,
     "The smallest value."},
    {"max", (PyCFunction)(void (*)(void))largest, METH_VARARGS | METH_KEYWORDS,
     "The largest value."},
    {"is_null", core_column_is_null, METH_NOARGS, "A mask of the rows that have no value."},
    {"__array__", (PyCFunction)(void (*)(void))as_array, METH_VARARGS | METH_KEYWORDS,
     "A numpy array."},
    {"__arrow_c_schema__", core_column_arrow_schema, METH_NOARGS, "Arrow's PyCapsule interface."},
    {"__arrow_c_array__", (PyCFunction)(void (*)(void))core_column_arrow_array,
     METH_VARARGS | METH_KEYWORDS, "Arrow's PyCapsule interface."},
    {"_lookup", lookup, METH_O, "A column of values[id]."},
    {"_factorize", factorize, METH_O, "(codes, distinct ids)."},
    {"_named", named, METH_O, "The same, as codes of a list of texts."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
    {"dtype", get_dtype, NULL, "The numpy type of an item.", NULL},
    {"names", get_names, NULL, "The texts that the items are codes of; None for numbers.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

bool core_column_ready(PyObject *module) {
  static char doc[] = "An array of a snapshot, read only. numpy.asarray() and memoryview() take it "
                      "as it is in memory. "
                      "Comparing it gives a mask, and column[mask] the rows that the mask selects; "
                      "a slice is a view.";
  static PyType_Slot slots[] = {
      {Py_tp_new, (void *)core_refuse_new},
      {Py_tp_dealloc, (void *)dealloc},
      {Py_tp_repr, (void *)repr},
      {Py_tp_hash, (void *)PyObject_HashNotImplemented},
      {Py_tp_richcompare, (void *)core_column_compare},
      {Py_tp_iter, (void *)PySeqIter_New},
      {Py_tp_methods, methods},
      {Py_tp_getset, attributes},
      {Py_tp_doc, doc},
      {Py_sq_length, (void *)length},
      {Py_sq_item, (void *)item},
      {Py_mp_length, (void *)length},
      {Py_mp_subscript, (void *)subscript},
      {Py_nb_bool, (void *)core_column_truth},
      {Py_nb_add, (void *)add},
      {Py_nb_subtract, (void *)subtract},
      {Py_nb_multiply, (void *)multiply},
      {Py_nb_true_divide, (void *)divide},
      {Py_nb_floor_divide, (void *)floor_divide},
      {Py_nb_remainder, (void *)remain},
      {Py_nb_and, (void *)core_column_and},
      {Py_nb_or, (void *)core_column_or},
      {Py_nb_xor, (void *)core_column_xor},
      {Py_nb_invert, (void *)core_column_invert},
      {SLOT_GETBUFFER, (void *)get_buffer},
      {0, NULL},
  };
  static PyType_Spec spec = {.name = "tessera._core.Column",
                             .basicsize = sizeof(core_column),
                             .flags = Py_TPFLAGS_DEFAULT,
                             .slots = slots};
  core.column = PyType_FromSpec(&spec);
  if (!core.column) return false;
  Py_INCREF(core.column);
  return PyModule_AddObject(module, "Column", core.column) == 0;
}
