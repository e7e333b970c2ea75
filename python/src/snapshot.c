/* snapshot.c - the type Snapshot: an open file, what it holds, and what its ids mean. */
#include "core.h"

static void drop_file(core_snapshot *self) {
  core_file *file = self->file;
  self->file = NULL;
  if (file) core_owner_drop(&file->owner);
}

static void dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  drop_file((core_snapshot *)self);
  PyObject_Free(self);
  Py_DECREF(type);
}

static PyObject *close_file(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  drop_file((core_snapshot *)self);
  Py_RETURN_NONE;
}

/* ---- what the file is ---- */

/* (format, bytes of the input, the name it was given). */
static PyObject *input(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  const core_file *file = core_open_file(self);
  if (!file) return NULL;
  return Py_BuildValue("sKs", tsr_snapshot_format(file->snapshot),
                       (unsigned long long)tsr_snapshot_input_bytes(file->snapshot), file->name);
}

/* The path of the sidecar that was read, in bytes, or None. */
static PyObject *sidecar(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  const core_file *file = core_open_file(self);
  if (!file) return NULL;
  return Py_BuildValue("y", tsr_snapshot_sidecar(file->snapshot));
}

static PyObject *devices(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  const core_file *file = core_open_file(self);
  size_t count;
  if (!file) return NULL;
  const uint32_t *numbers = tsr_snapshot_devices(file->snapshot, &count);
  PyObject *list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; i++)
    if (PyList_SetItem(list, (Py_ssize_t)i, PyLong_FromUnsignedLong(numbers[i]))) Py_CLEAR(list);
  return list;
}

static PyObject *event_count(PyObject *self, PyObject *argument) {
  const core_file *file = core_open_file(self);
  unsigned long device = file ? PyLong_AsUnsignedLong(argument) : 0;
  if (!file || PyErr_Occurred()) return NULL;
  tsr_events events = {0};
  if (device < TSR_NONE) events = tsr_snapshot_events(file->snapshot, (uint32_t)device);
  return PyLong_FromUnsignedLongLong(events.count);
}

static PyObject *warnings(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  const core_file *file = core_open_file(self);
  size_t count;
  if (!file) return NULL;
  const tsr_warning *rows = tsr_snapshot_warnings(file->snapshot, &count);
  PyObject *list = PyList_New(0);
  for (size_t i = 0; list && i < count; i++) {
    PyObject *row =
        Py_BuildValue("sKs", rows[i].code, (unsigned long long)rows[i].count, rows[i].message);
    if (!row || PyList_Append(list, row)) Py_CLEAR(list);
    Py_XDECREF(row);
  }
  return list;
}

/* ---- what ids mean ---- */

static PyObject *text_or_none(const tsr_snapshot *snapshot, uint32_t id) {
  if (id == TSR_NONE) Py_RETURN_NONE;
  return core_text(tsr_snapshot_string(snapshot, id));
}

/* (name, file, line): the line is None where unknown, or with `is_raw` the file's own number. */
static PyObject *frame_tuple(const tsr_snapshot *snapshot, uint32_t id, bool is_raw) {
  tsr_frame frame = tsr_snapshot_frame(snapshot, id);
  bool is_unknown = frame.line == TSR_LINE_UNKNOWN;
  PyObject *line = Py_None;
  if (is_unknown && !is_raw)
    Py_INCREF(line);
  else if (is_unknown && tsr_snapshot_has_negative_line(snapshot, id))
    line = PyLong_FromLong(-1);
  else
    line = PyLong_FromUnsignedLongLong(frame.line);
  return Py_BuildValue("(NNN)", text_or_none(snapshot, frame.name),
                       text_or_none(snapshot, frame.file), line);
}

/* stack(id, raw): its frames, innermost first. */
static PyObject *stack(PyObject *self, PyObject *arguments) {
  const core_file *file = core_open_file(self);
  unsigned int id;
  int is_raw;
  if (!file || !PyArg_ParseTuple(arguments, "Ip", &id, &is_raw)) return NULL;
  if (id >= tsr_snapshot_stack_count(file->snapshot)) {
    PyErr_SetString(PyExc_IndexError, "no such stack");
    return NULL;
  }
  tsr_stack frames = tsr_snapshot_stack(file->snapshot, id);
  PyObject *list = PyList_New((Py_ssize_t)frames.depth);
  for (uint32_t i = 0; list && i < frames.depth; i++) {
    PyObject *frame = frame_tuple(file->snapshot, frames.frames[i], is_raw);
    if (!frame || PyList_SetItem(list, (Py_ssize_t)i, frame)) Py_CLEAR(list);
  }
  return list;
}

static PyObject *string(PyObject *self, PyObject *argument) {
  const core_file *file = core_open_file(self);
  unsigned long id = file ? PyLong_AsUnsignedLong(argument) : 0;
  if (!file || PyErr_Occurred()) return NULL;
  if (id >= tsr_snapshot_string_count(file->snapshot)) {
    PyErr_SetString(PyExc_IndexError, "no such string");
    return NULL;
  }
  return core_text(tsr_snapshot_string(file->snapshot, (uint32_t)id));
}

static PyObject *pool(PyObject *self, PyObject *argument) {
  const core_file *file = core_open_file(self);
  unsigned long id = file ? PyLong_AsUnsignedLong(argument) : 0;
  if (!file || PyErr_Occurred()) return NULL;
  tsr_pool found = tsr_snapshot_pool(file->snapshot, id < TSR_NONE ? (uint32_t)id : TSR_NONE);
  return Py_BuildValue("KK", (unsigned long long)found.first, (unsigned long long)found.second);
}

static PyObject *stream(PyObject *self, PyObject *argument) {
  const core_file *file = core_open_file(self);
  unsigned long id = file ? PyLong_AsUnsignedLong(argument) : 0;
  if (!file || PyErr_Occurred()) return NULL;
  return PyLong_FromUnsignedLongLong(
      tsr_snapshot_stream(file->snapshot, id < TSR_NONE ? (uint32_t)id : TSR_NONE));
}

/* (strings, frames, stacks): how many ids there are of each. */
static PyObject *counts(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  const core_file *file = core_open_file(self);
  if (!file) return NULL;
  return Py_BuildValue("III", tsr_snapshot_string_count(file->snapshot),
                       tsr_snapshot_frame_count(file->snapshot),
                       tsr_snapshot_stack_count(file->snapshot));
}

static PyObject *actions(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  const core_file *file = core_open_file(self);
  if (!file) return NULL;
  uint32_t count = tsr_snapshot_action_count(file->snapshot);
  PyObject *list = PyList_New((Py_ssize_t)count);
  for (uint32_t i = 0; list && i < count; i++) {
    PyObject *name = core_text(tsr_snapshot_action_name(file->snapshot, i));
    if (!name || PyList_SetItem(list, (Py_ssize_t)i, name)) Py_CLEAR(list);
  }
  return list;
}

/* A list of (name, stage, time_us, device). */
static PyObject *annotations(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  const core_file *file = core_open_file(self);
  size_t count;
  if (!file) return NULL;
  const tsr_annotation *rows = tsr_snapshot_annotations(file->snapshot, &count);
  PyObject *list = PyList_New(0);
  for (size_t i = 0; list && i < count; i++) {
    PyObject *time_us = rows[i].time_us == TSR_TIME_NONE ? (Py_INCREF(Py_None), Py_None)
                                                         : PyLong_FromLongLong(rows[i].time_us);
    PyObject *row =
        Py_BuildValue("(NNNI)", text_or_none(file->snapshot, rows[i].name),
                      text_or_none(file->snapshot, rows[i].stage), time_us, rows[i].device);
    if (!row || PyList_Append(list, row)) Py_CLEAR(list);
    Py_XDECREF(row);
  }
  return list;
}

static PyMethodDef methods[] = {
    {"close", close_file, METH_NOARGS, "Give the file up; arrays taken from it stay."},
    {"input", input, METH_NOARGS, "(format, bytes, name)."},
    {"sidecar", sidecar, METH_NOARGS, "The path of the sidecar, or None."},
    {"devices", devices, METH_NOARGS, "Devices with events or segments."},
    {"event_count", event_count, METH_O, "Events in a device's trace."},
    {"warnings", warnings, METH_NOARGS, "[(code, count, message)]."},
    {"stack", stack, METH_VARARGS, "Frames of a stack, innermost first."},
    {"string", string, METH_O, "A string by its id."},
    {"pool", pool, METH_O, "A pool's name by its id."},
    {"stream", stream, METH_O, "A stream's handle by its id."},
    {"counts", counts, METH_NOARGS, "(strings, frames, stacks)."},
    {"actions", actions, METH_NOARGS, "Names of action codes."},
    {"annotations", annotations, METH_NOARGS, "[(name, stage, time_us, device)]."},
    {"ask", core_ask, METH_VARARGS, "ask(question, options[, other snapshot])."},
    {"events", core_events, METH_VARARGS, "events(device, column)."},
    {"segments", core_segments, METH_NOARGS, "Columns of all segments."},
    {"blocks", core_blocks, METH_NOARGS, "Columns of all blocks."},
    {"allocations", core_allocations, METH_VARARGS, "Columns of a device's allocations."},
    {"stacks", core_stacks, METH_NOARGS, "Columns of stacks, and the names of their places."},
    {"frames", core_frames, METH_NOARGS, "Columns of the frames of all stacks."},
    {"totals", core_totals, METH_VARARGS, "Columns of totals after each event."},
    {"export", core_export, METH_VARARGS, "export(format, options, path or None)."},
    {"trim", core_trim, METH_VARARGS, "A Snapshot of a window."},
    {"view", core_view, METH_VARARGS, "view([more snapshots], options, path or None)."},
    {"mosaic_peak", core_mosaic_peak, METH_VARARGS, "Mosaic's peak."},
    {"mosaic_usage", core_mosaic_usage, METH_VARARGS, "Mosaic's usage at an event."},
    {"mosaic_stages", core_mosaic_stages, METH_VARARGS, "Mosaic's stages."},
    {NULL, NULL, 0, NULL},
};

bool core_snapshot_ready(PyObject *module) {
  static char doc[] = "A snapshot in the library's memory.";
  static PyType_Slot slots[] = {
      {Py_tp_doc, doc},
      {Py_tp_new, (void *)core_refuse_new},
      {Py_tp_dealloc, (void *)dealloc},
      {Py_tp_methods, methods},
      {0, NULL},
  };
  static PyType_Spec spec = {.name = "tessera._core.Snapshot",
                             .basicsize = sizeof(core_snapshot),
                             .flags = Py_TPFLAGS_DEFAULT,
                             .slots = slots};
  core.snapshot = PyType_FromSpec(&spec);
  if (!core.snapshot) return false;
  Py_INCREF(core.snapshot);
  return PyModule_AddObject(module, "Snapshot", core.snapshot) == 0;
}
