/* mosaic.c - Mosaic's questions (tessera/unstable/mosaic.h), for the package that replaces
 * Mosaic's.
 *
 * What each hands over: the answer as plain tuples, and the lines that Mosaic logs.
 */
#include "core.h"

/* The rows of the events that made the members of a group. */
static PyObject *member_list(const tsr_mosaic_groups *groups, const tsr_mosaic_group *group) {
  size_t count = groups->events ? group->allocations : 0;
  PyObject *list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; i++) {
    PyObject *row = PyLong_FromUnsignedLongLong(groups->events[group->first + i]);
    if (!row || PyList_SetItem(list, (Py_ssize_t)i, row)) Py_CLEAR(list);
  }
  return list;
}

/* [(bytes, allocations, stack, [event])], in their order; what has no stack last, as that of stack
 * None. */
static PyObject *group_list(const tsr_mosaic_groups *groups) {
  PyObject *list = PyList_New((Py_ssize_t)groups->count + 1);
  for (size_t i = 0; list && i <= groups->count; i++) {
    bool is_rest = i == groups->count;
    const tsr_mosaic_group *group = is_rest ? &groups->rest : &groups->items[i];
    PyObject *stack =
        is_rest ? (Py_INCREF(Py_None), Py_None) : PyLong_FromUnsignedLong(group->stack);
    PyObject *row =
        Py_BuildValue("KKNN", (unsigned long long)group->bytes,
                      (unsigned long long)group->allocations, stack, member_list(groups, group));
    if (!row || PyList_SetItem(list, (Py_ssize_t)i, row)) Py_CLEAR(list);
  }
  return list;
}

static PyObject *device_or_none(uint32_t device) {
  if (device == TSR_NONE) Py_RETURN_NONE;
  return PyLong_FromUnsignedLong(device);
}

static bool read_moment(PyObject *tuple, tsr_mosaic_moment *out) {
  unsigned long long address, version;
  int action;
  if (!PyArg_ParseTuple(tuple, "KKi", &address, &version, &action)) return false;
  *out = (tsr_mosaic_moment){address, version, (tsr_action)action};
  return true;
}

static bool read_time(PyObject *value, bool *has, int64_t *out) {
  *has = value != Py_None;
  if (*has) *out = PyLong_AsLongLong(value);
  return !PyErr_Occurred();
}

/* mosaic_peak(first_us, last_us, stop): (device, event, version, bytes, static bytes, groups, log);
 * `stop` is (address, version, action), and each may be None. */
PyObject *core_mosaic_peak(PyObject *self, PyObject *arguments) {
  core_file *file = core_open_file(self);
  PyObject *first, *last, *stop, *result = NULL;
  tsr_mosaic_window window = {0};
  tsr_mosaic_peak *peak = NULL;
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  core_sink sink = {0};
  int status;
  if (!file || !PyArg_ParseTuple(arguments, "OOO", &first, &last, &stop) ||
      !read_time(first, &window.has_first, &window.first_us) ||
      !read_time(last, &window.has_last, &window.last_us))
    return NULL;
  window.has_stop = stop != Py_None;
  if (window.has_stop && !read_moment(stop, &window.stop)) return NULL;
  core_owner_take(&file->owner);
  Py_BEGIN_ALLOW_THREADS;
  status = tsr_mosaic_peak_compute(file->study, &window, &peak, &error);
  if (!status) status = tsr_mosaic_log_peak(file->snapshot, peak, core_sink_write, &sink, &error);
  Py_END_ALLOW_THREADS;
  PyObject *log = core_sink_finish(&sink, status, &error);
  if (log)
    result = Py_BuildValue("(NLKKKNO)", device_or_none(peak->device), (long long)peak->event,
                           (unsigned long long)peak->version, (unsigned long long)peak->bytes,
                           (unsigned long long)peak->static_bytes, group_list(&peak->groups), log);
  Py_XDECREF(log);
  tsr_mosaic_peak_free(peak);
  core_owner_drop(&file->owner);
  return result;
}

/* mosaic_usage((address, version, action)): (device, event, bytes, groups, log); event -1: no device
 * has it. */
PyObject *core_mosaic_usage(PyObject *self, PyObject *arguments) {
  core_file *file = core_open_file(self);
  PyObject *result = NULL;
  tsr_mosaic_moment moment;
  tsr_mosaic_usage *usage = NULL;
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  core_sink sink = {0};
  int status;
  if (!file || !read_moment(arguments, &moment)) return NULL;
  core_owner_take(&file->owner);
  Py_BEGIN_ALLOW_THREADS;
  status = tsr_mosaic_usage_compute(file->study, &moment, &usage, &error);
  if (!status) status = tsr_mosaic_log_usage(file->snapshot, usage, core_sink_write, &sink, &error);
  Py_END_ALLOW_THREADS;
  PyObject *log = core_sink_finish(&sink, status, &error);
  if (log)
    result = Py_BuildValue("(NLLNO)", device_or_none(usage->device), (long long)usage->event,
                           (long long)usage->bytes, group_list(&usage->groups), log);
  Py_XDECREF(log);
  tsr_mosaic_usage_free(usage);
  core_owner_drop(&file->owner);
  return result;
}

static PyObject *stage_list(const tsr_mosaic_stages *stages) {
  PyObject *list = PyList_New((Py_ssize_t)stages->count);
  for (size_t i = 0; list && i < stages->count; i++) {
    const tsr_mosaic_stage *stage = &stages->items[i];
    PyObject *row = Py_BuildValue("nKL", (Py_ssize_t)stage->annotation,
                                  (unsigned long long)stage->repeat, (long long)stage->bytes);
    if (!row || PyList_SetItem(list, (Py_ssize_t)i, row)) Py_CLEAR(list);
  }
  return list;
}

/* mosaic_stages({"texts": [...]}): ([(annotation, repeat, bytes)], log). */
PyObject *core_mosaic_stages(PyObject *self, PyObject *arguments) {
  core_file *file = core_open_file(self);
  PyObject *options, *result = NULL, *log = NULL, *keep = NULL;
  const char **texts = NULL;
  size_t count = 0;
  tsr_mosaic_stages *stages = NULL;
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  core_sink sink = {0};
  int status;
  if (!file || !PyArg_ParseTuple(arguments, "O!", &PyDict_Type, &options) ||
      !(keep = PyList_New(0)))
    return NULL;
  if (core_option_texts(options, "texts", keep, &texts, &count)) {
    core_owner_take(&file->owner);
    Py_BEGIN_ALLOW_THREADS;
    status = tsr_mosaic_stages_compute(file->study, texts, count, &stages, &error);
    if (!status) status = tsr_mosaic_log_stages(stages, core_sink_write, &sink, &error);
    Py_END_ALLOW_THREADS;
    core_owner_drop(&file->owner);
    log = core_sink_finish(&sink, status, &error);
  }
  if (log) result = Py_BuildValue("(NO)", stage_list(stages), log);
  Py_XDECREF(log);
  Py_DECREF(keep);
  PyMem_Free(texts);
  tsr_mosaic_stages_free(stages);
  return result;
}
