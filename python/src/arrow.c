/* arrow.c - the type Table: named columns that Arrow's consumers take through PyCapsules; and one column.
 *
 * https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html: __arrow_c_schema__,
 * __arrow_c_array__ and __arrow_c_stream__ of a table, which is one struct array, and its schema. A
 * column without gaps and of a type that Arrow has is not copied; only a bitmap is made for absent
 * items, and texts of dictionaries are copied.
 *
 *   struct ── child 0: uint64 ──► buffers {validity bitmap or NULL, the column's memory}
 *          └─ child 1: uint32 ──► the same, and `dictionary`: utf8 {NULL, offsets, bytes}
 *
 * Every array keeps what it points into by uses of core_owner, and is released from any thread.
 */
#include "core.h"

#include <stdlib.h>
#include <string.h>

/* The structs and names of Arrow's C data interface, whose layout is fixed. */
struct ArrowSchema {
  const char *format, *name, *metadata;
  int64_t flags, n_children;
  struct ArrowSchema **children, *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};
struct ArrowArray {
  int64_t length, null_count, offset, n_buffers, n_children;
  const void **buffers;
  struct ArrowArray **children, *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};
enum { FLAG_NULLABLE = 2 };

/* One column as described to Arrow. */
typedef struct field {
  char *name, *format;
  core_owner *data_owner, *bitmap_owner, *texts_owner;
  const void *data, *bitmap;
  int64_t count, null_count;
  const void *offsets, *texts; /* of the dictionary, where texts_owner is there */
  int64_t text_count;
} field;

/* The fields of a table; shared by every array made of it. */
typedef struct fields {
  core_owner owner;
  size_t count;
  field items[];
} fields;

typedef struct core_table {
  PyObject_HEAD fields *fields;
} core_table;

static void end_fields(core_owner *owner) {
  fields *all = (fields *)owner;
  for (size_t i = 0; i < all->count; i++) {
    core_owner_drop(all->items[i].data_owner);
    core_owner_drop(all->items[i].bitmap_owner);
    core_owner_drop(all->items[i].texts_owner);
    free(all->items[i].name);
    free(all->items[i].format);
  }
  free(all);
}

/* ---- schema ---- */

static void release_schema(struct ArrowSchema *schema) {
  for (int64_t i = 0; i < schema->n_children; i++) {
    struct ArrowSchema *child = schema->children[i];
    if (child && child->release) child->release(child);
    free(child);
  }
  if (schema->dictionary && schema->dictionary->release)
    schema->dictionary->release(schema->dictionary);
  free(schema->dictionary);
  free(schema->children);
  free((char *)(uintptr_t)schema->name);
  free((char *)(uintptr_t)schema->format);
  schema->release = NULL;
}

static bool describe(struct ArrowSchema *schema, const char *name, const char *format) {
  *schema = (struct ArrowSchema){.name = strdup(name),
                                 .format = strdup(format),
                                 .flags = FLAG_NULLABLE,
                                 .release = release_schema};
  return schema->name && schema->format;
}

static bool describe_field(struct ArrowSchema *schema, const field *one) {
  if (!describe(schema, one->name, one->format)) return false;
  if (!one->texts_owner) return true;
  schema->dictionary = calloc(1, sizeof *schema->dictionary);
  return schema->dictionary && describe(schema->dictionary, "", "u");
}

static bool make_schema(const fields *all, struct ArrowSchema *out) {
  if (!describe(out, "", "+s")) return false;
  out->flags = 0;
  out->children = calloc(all->count + 1, sizeof(void *));
  if (!out->children) return false;
  for (size_t i = 0; i < all->count; i++) {
    out->children[i] = calloc(1, sizeof **out->children);
    out->n_children = (int64_t)i + 1;
    if (!out->children[i] || !describe_field(out->children[i], &all->items[i])) return false;
  }
  return true;
}

/* ---- array ---- */

static void release_array(struct ArrowArray *array) {
  for (int64_t i = 0; i < array->n_children; i++) {
    struct ArrowArray *child = array->children[i];
    if (child && child->release) child->release(child);
    free(child);
  }
  if (array->dictionary && array->dictionary->release)
    array->dictionary->release(array->dictionary);
  free(array->dictionary);
  free(array->children);
  free((void *)array->buffers);
  core_owner_drop(array->private_data);
  array->release = NULL;
}

static bool fill(struct ArrowArray *array, fields *all, int64_t length, int64_t buffer_count) {
  *array = (struct ArrowArray){.length = length,
                               .n_buffers = buffer_count,
                               .buffers = calloc((size_t)buffer_count, sizeof(void *)),
                               .private_data = core_owner_take(&all->owner),
                               .release = release_array};
  return array->buffers != NULL;
}

static bool fill_field(struct ArrowArray *array, fields *all, const field *one) {
  if (!fill(array, all, one->count, 2)) return false;
  array->null_count = one->null_count;
  array->buffers[0] = one->bitmap;
  array->buffers[1] = one->data;
  if (!one->texts_owner) return true;
  array->dictionary = calloc(1, sizeof *array->dictionary);
  if (!array->dictionary || !fill(array->dictionary, all, one->text_count, 3)) return false;
  array->dictionary->buffers[1] = one->offsets;
  array->dictionary->buffers[2] = one->texts;
  return true;
}

static bool make_array(fields *all, struct ArrowArray *out) {
  if (!fill(out, all, all->count ? all->items[0].count : 0, 1)) return false;
  out->children = calloc(all->count + 1, sizeof(void *));
  if (!out->children) return false;
  for (size_t i = 0; i < all->count; i++) {
    out->children[i] = calloc(1, sizeof **out->children);
    out->n_children = (int64_t)i + 1;
    if (!out->children[i] || !fill_field(out->children[i], all, &all->items[i])) return false;
  }
  return true;
}

/* ---- stream: the schema, the array once, the end ---- */

typedef struct stream_state {
  fields *fields;
  bool is_done;
} stream_state;

enum { OUT_OF_MEMORY = 12 }; /* ENOMEM */

static int stream_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
  const stream_state *state = stream->private_data;
  if (make_schema(state->fields, out)) return 0;
  out->release(out);
  return OUT_OF_MEMORY;
}

static int stream_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
  stream_state *state = stream->private_data;
  *out = (struct ArrowArray){0};
  if (state->is_done) return 0;
  state->is_done = true;
  if (make_array(state->fields, out)) return 0;
  out->release(out);
  return OUT_OF_MEMORY;
}

static const char *stream_error(struct ArrowArrayStream *stream) {
  (void)stream;
  return "out of memory";
}

static void stream_release(struct ArrowArrayStream *stream) {
  stream_state *state = stream->private_data;
  core_owner_drop(&state->fields->owner);
  free(state);
  stream->release = NULL;
}

/* ---- capsules ---- */

static void end_schema(PyObject *capsule) {
  struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");
  if (schema->release) schema->release(schema);
  free(schema);
}

static void end_array(PyObject *capsule) {
  struct ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
  if (array->release) array->release(array);
  free(array);
}

static void end_stream(PyObject *capsule) {
  struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");
  if (stream->release) stream->release(stream);
  free(stream);
}

/* Of a table, or of its only column by itself. */
static PyObject *schema_capsule(fields *all, bool is_column) {
  struct ArrowSchema *schema = calloc(1, sizeof *schema);
  if (!schema) return PyErr_NoMemory();
  PyObject *capsule = NULL;
  if (is_column ? describe_field(schema, &all->items[0]) : make_schema(all, schema))
    capsule = PyCapsule_New(schema, "arrow_schema", end_schema);
  else
    PyErr_NoMemory();
  if (!capsule) {
    release_schema(schema);
    free(schema);
  }
  return capsule;
}

static PyObject *array_capsule(fields *all, bool is_column) {
  struct ArrowArray *array = calloc(1, sizeof *array);
  if (!array) return PyErr_NoMemory();
  PyObject *capsule = NULL;
  if (is_column ? fill_field(array, all, &all->items[0]) : make_array(all, array))
    capsule = PyCapsule_New(array, "arrow_array", end_array);
  else
    PyErr_NoMemory();
  if (!capsule) {
    release_array(array);
    free(array);
  }
  return capsule;
}

static PyObject *pair_of(fields *all, bool is_column) {
  PyObject *schema = schema_capsule(all, is_column);
  PyObject *array = schema ? array_capsule(all, is_column) : NULL;
  PyObject *pair = array ? PyTuple_Pack(2, schema, array) : NULL;
  Py_XDECREF(schema);
  Py_XDECREF(array);
  return pair;
}

static PyObject *arrow_schema(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  return schema_capsule(((core_table *)self)->fields, false);
}

static PyObject *arrow_array(PyObject *self, PyObject *Py_UNUSED(requested)) {
  return pair_of(((core_table *)self)->fields, false);
}

static PyObject *arrow_stream(PyObject *self, PyObject *Py_UNUSED(requested)) {
  fields *all = ((core_table *)self)->fields;
  struct ArrowArrayStream *stream = calloc(1, sizeof *stream);
  stream_state *state = calloc(1, sizeof *state);
  PyObject *capsule = NULL;
  if (stream && state)
    capsule = PyCapsule_New(stream, "arrow_array_stream", end_stream);
  else
    PyErr_NoMemory();
  if (!capsule || !stream || !state) {
    free(stream);
    free(state);
    return NULL;
  }
  state->fields = all;
  core_owner_take(&all->owner);
  *stream = (struct ArrowArrayStream){.get_schema = stream_schema,
                                      .get_next = stream_next,
                                      .get_last_error = stream_error,
                                      .release = stream_release,
                                      .private_data = state};
  return capsule;
}

/* ---- making a table: Table([(name, column, format, texts or None), ...]) ---- */

/* A bitmap of the items that are there; none is made where all are. */
static bool mark_absent(field *one, const core_column *column) {
  core_block *bits = NULL;
  unsigned char *bytes = NULL;
  for (Py_ssize_t i = 0; column->absent != CORE_ABSENT_NONE && i < column->count; i++) {
    if (!core_column_is_absent(column, i)) continue;
    if (!bits) {
      size_t size = (size_t)column->count / 8 + 1;
      bits = core_block_new(size, 1);
      if (!bits) return false;
      bytes = bits->data;
      memset(bytes, 0xff, size);
    }
    bytes[i / 8] &= (unsigned char)~(1u << (i % 8));
    one->null_count++;
  }
  if (bits) one->bitmap_owner = &bits->owner;
  one->bitmap = bytes;
  return true;
}

/* Arrow has booleans as bits, and no gaps. */
static bool place_data(field *one, const core_column *column) {
  one->count = column->count;
  if (column->format[0] != '?' && (column->stride == column->size || column->count < 2)) {
    one->data_owner = core_owner_take(column->owner);
    one->data = column->data;
    return true;
  }
  core_block *block = core_block_new((size_t)column->count + 8, (size_t)column->size);
  if (!block) return false;
  for (Py_ssize_t i = 0; i < column->count; i++) {
    const char *from = column->data + i * column->stride;
    if (column->format[0] == '?')
      block->data[i / 8] |= (unsigned char)((*from != 0) << (i % 8));
    else
      memcpy(block->data + i * column->size, from, (size_t)column->size);
  }
  one->data_owner = &block->owner;
  one->data = block->data;
  return true;
}

/* The texts of a dictionary: offsets, then the bytes of all. Sets an exception where it fails. */
static bool place_texts(field *one, PyObject *texts) {
  Py_ssize_t count = PyList_Size(texts), total = 0;
  for (Py_ssize_t i = 0; i < count; i++) total += PyBytes_Size(PyList_GetItem(texts, i));
  if (PyErr_Occurred()) return false;
  size_t offset_bytes = ((size_t)count + 1) * sizeof(int32_t);
  core_block *block =
      total < INT32_MAX ? core_block_new(offset_bytes + (size_t)total + 1, 1) : NULL;
  if (!block) {
    PyErr_NoMemory();
    return false;
  }
  int32_t *offsets = (int32_t *)(void *)block->data;
  char *bytes = (char *)block->data + offset_bytes;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *text = PyList_GetItem(texts, i);
    Py_ssize_t size = PyBytes_Size(text);
    memcpy(bytes + offsets[i], PyBytes_AsString(text), (size_t)size);
    offsets[i + 1] = offsets[i] + (int32_t)size;
  }
  one->texts_owner = &block->owner;
  one->offsets = offsets;
  one->texts = bytes;
  one->text_count = count;
  return true;
}

static bool read_field(field *one, PyObject *item) {
  const char *name, *format;
  PyObject *column, *texts;
  if (!PyTuple_Check(item)) {
    PyErr_SetString(PyExc_TypeError, "a field is a tuple of four");
    return false;
  }
  if (!PyArg_ParseTuple(item, "sO!sO", &name, (PyTypeObject *)core.column, &column, &format,
                        &texts))
    return false;
  one->name = strdup(name);
  one->format = strdup(format);
  bool ok = one->name && one->format && place_data(one, (core_column *)column) &&
            mark_absent(one, (core_column *)column);
  if (!ok) PyErr_NoMemory();
  return ok && (texts == Py_None || place_texts(one, texts));
}

/* ---- a column by itself ---- */

static const char *arrow_format(const core_column *column) {
  if (column->absent == CORE_ABSENT_TIME) return "tsu:UTC";
  switch (column->format[0]) {
  case 'B': return "C";
  case 'I': return "I";
  case 'q': return "l";
  case '?': return "b";
  default: return "L";
  }
}

/* The names of a column as a list of bytes, or None. */
static PyObject *texts_of(const core_column *column) {
  if (!column->names) Py_RETURN_NONE;
  Py_ssize_t count = PyList_Size(column->names);
  PyObject *texts = PyList_New(count);
  for (Py_ssize_t i = 0; texts && i < count; i++) {
    PyObject *text =
        PyUnicode_AsEncodedString(PyList_GetItem(column->names, i), "utf-8", "replace");
    if (!text || PyList_SetItem(texts, i, text)) Py_CLEAR(texts);
  }
  return texts;
}

static fields *fields_new(size_t count) {
  fields *all = calloc(1, sizeof *all + count * sizeof *all->items);
  if (!all) {
    PyErr_NoMemory();
    return NULL;
  }
  all->owner.end = end_fields;
  atomic_init(&all->owner.uses, 1);
  all->count = count;
  return all;
}

static fields *fields_of_column(PyObject *column) {
  PyObject *texts = texts_of((core_column *)column);
  PyObject *item =
      texts ? Py_BuildValue("(sOsO)", "", column, arrow_format((core_column *)column), texts)
            : NULL;
  fields *all = item ? fields_new(1) : NULL;
  if (all && !read_field(&all->items[0], item)) {
    core_owner_drop(&all->owner);
    all = NULL;
  }
  Py_XDECREF(texts);
  Py_XDECREF(item);
  return all;
}

PyObject *core_column_arrow_schema(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  fields *all = fields_of_column(self);
  PyObject *capsule = all ? schema_capsule(all, true) : NULL;
  if (all) core_owner_drop(&all->owner);
  return capsule;
}

PyObject *core_column_arrow_array(PyObject *self, PyObject *Py_UNUSED(requested),
                                  PyObject *Py_UNUSED(keywords)) {
  fields *all = fields_of_column(self);
  PyObject *pair = all ? pair_of(all, true) : NULL;
  if (all) core_owner_drop(&all->owner);
  return pair;
}

/* ---- a table ---- */

static PyObject *new_table(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(keywords)) {
  PyObject *items;
  if (!PyArg_ParseTuple(arguments, "O!", &PyList_Type, &items)) return NULL;
  size_t count = (size_t)PyList_Size(items);
  fields *all = fields_new(count);
  if (!all) return NULL;
  bool ok = true;
  for (size_t i = 0; ok && i < count; i++) {
    ok = read_field(&all->items[i], PyList_GetItem(items, (Py_ssize_t)i));
    if (ok && all->items[i].count != all->items[0].count) {
      PyErr_SetString(PyExc_ValueError, "the columns of a table have one length");
      ok = false;
    }
  }
  core_table *table = ok ? PyObject_New(core_table, type) : NULL;
  if (table)
    table->fields = all;
  else
    core_owner_drop(&all->owner);
  return (PyObject *)table;
}

static void dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  core_owner_drop(&((core_table *)self)->fields->owner);
  PyObject_Free(self);
  Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"__arrow_c_schema__", arrow_schema, METH_NOARGS, "Arrow's PyCapsule interface."},
    {"__arrow_c_array__", arrow_array, METH_VARARGS, "Arrow's PyCapsule interface."},
    {"__arrow_c_stream__", arrow_stream, METH_VARARGS, "Arrow's PyCapsule interface."},
    {NULL, NULL, 0, NULL},
};

bool core_table_ready(PyObject *module) {
  static char doc[] =
      "Columns for Arrow: (name, column, Arrow's format, texts of a dictionary or None).";
  static PyType_Slot slots[] = {
      {Py_tp_doc, doc},
      {Py_tp_new, (void *)new_table},
      {Py_tp_dealloc, (void *)dealloc},
      {Py_tp_methods, methods},
      {0, NULL},
  };
  static PyType_Spec spec = {.name = "tessera._core.Table",
                             .basicsize = sizeof(core_table),
                             .flags = Py_TPFLAGS_DEFAULT,
                             .slots = slots};
  core.table = PyType_FromSpec(&spec);
  if (!core.table) return false;
  Py_INCREF(core.table);
  return PyModule_AddObject(module, "Table", core.table) == 0;
}
