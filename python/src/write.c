/* write.c - snapshots written out: whole, in part, or in the formats of other programs. */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the sink ---- */

static int keep_in_memory(core_sink *sink, const char *data, size_t size_bytes) {
  if (size_bytes > sink->room_bytes - sink->size_bytes) {
    size_t room = sink->room_bytes ? sink->room_bytes : 65536;
    while (room - sink->size_bytes < size_bytes) {
      if (room > SIZE_MAX / 2) return 1;
      room *= 2;
    }
    char *larger = realloc(sink->data, room);
    if (!larger) {
      sink->error_number = ENOMEM;
      return 1;
    }
    sink->data = larger;
    sink->room_bytes = room;
  }
  memcpy(sink->data + sink->size_bytes, data, size_bytes);
  sink->size_bytes += size_bytes;
  return 0;
}

int core_sink_write(void *context, const char *data, size_t size_bytes) {
  core_sink *sink = context;
  if (sink->handle < 0) return keep_in_memory(sink, data, size_bytes);
  while (size_bytes) {
    ssize_t count = write(sink->handle, data, size_bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      sink->error_number = errno;
      return 1;
    }
    data += count;
    size_bytes -= (size_t)count;
  }
  return 0;
}

PyObject *core_sink_finish(core_sink *sink, int status, const tsr_error *error) {
  PyObject *result = NULL;
  if (status == TSR_ERROR_WRITE && sink->error_number == ENOMEM) {
    PyErr_NoMemory();
  } else if (status == TSR_ERROR_WRITE && sink->error_number) {
    errno = sink->error_number;
    PyErr_SetFromErrno(PyExc_OSError);
  } else if (status) {
    core_raise(status, error, NULL);
  } else if (sink->handle < 0) {
    result = PyBytes_FromStringAndSize(sink->data ? sink->data : "", (Py_ssize_t)sink->size_bytes);
  } else {
    Py_INCREF(Py_None);
    result = Py_None;
  }
  free(sink->data);
  return result;
}

/* ---- exports ---- */

typedef struct export_request {
  core_file *file;
  tsr_query query;
  tsr_weigh_options weigh;
  tsr_report_options report;
  core_sink sink;
  tsr_error error;
} export_request;

typedef int export_fn(export_request *request, int variant);

static int export_whole(export_request *request, int variant) {
  return tsr_snapshot_export(request->file->snapshot, (tsr_export_format)variant, core_sink_write,
                             &request->sink, &request->error);
}

static int export_stacks(export_request *request, int variant) {
  tsr_report_input input = {.path = request->file->name, .snapshot = request->file->snapshot};
  tsr_weights *weights = NULL;
  int status = tsr_weights_compute(request->file->study, &request->weigh, &request->query, &weights,
                                   &request->error);
  if (!status)
    status = tsr_report_weights(&input, weights, (tsr_stacks_format)variant, &request->report,
                                core_sink_write, &request->sink, &request->error);
  tsr_weights_free(weights);
  return status;
}

static int export_lives(export_request *request, int variant) {
  tsr_report_input input = {.path = request->file->name, .snapshot = request->file->snapshot};
  tsr_lives *lives = NULL;
  int status = tsr_lives_compute(request->file->study, &request->query, &lives, &request->error);
  if (!status)
    status = tsr_report_lives(&input, lives, (tsr_lives_format)variant, &request->report,
                              core_sink_write, &request->sink, &request->error);
  tsr_lives_free(lives);
  return status;
}

static const struct {
  const char *name;
  export_fn *run;
  int variant;
} formats[] = {
    {"pickle", export_whole, TSR_EXPORT_PICKLE},
    {"json", export_whole, TSR_EXPORT_JSON},
    {"python-json", export_whole, TSR_EXPORT_PYTHON_JSON},
    {"folded", export_stacks, TSR_STACKS_FOLDED},
    {"speedscope", export_stacks, TSR_STACKS_SPEEDSCOPE},
    {"pprof", export_stacks, TSR_STACKS_PPROF},
    {"csv", export_lives, TSR_LIVES_CSV},
    {"perfetto", export_lives, TSR_LIVES_PERFETTO},
};

static bool read_weigh(PyObject *options, tsr_weigh_options *out) {
  bool has_window, has_moment;
  if (!core_option_window(options, &out->window, &has_window) ||
      !core_option_where(options, &out->where, &has_moment))
    return false;
  out->what = has_window ? TSR_WEIGH_WINDOW : has_moment ? TSR_WEIGH_MOMENT : TSR_WEIGH_PEAK;
  return true;
}

/* export(format, options, handle): bytes where the handle is -1, else None. */
PyObject *core_export(PyObject *self, PyObject *arguments) {
  export_request request = {.file = core_open_file(self), .error = {.offset = TSR_OFFSET_NONE}};
  const char *format;
  PyObject *options;
  uint32_t *devices = NULL;
  size_t row = 0;
  int status;
  if (!request.file ||
      !PyArg_ParseTuple(arguments, "sO!i", &format, &PyDict_Type, &options, &request.sink.handle))
    return NULL;
  while (row < sizeof formats / sizeof *formats && strcmp(formats[row].name, format) != 0) row++;
  if (row == sizeof formats / sizeof *formats)
    return PyErr_Format(PyExc_ValueError, "no such format: '%s'", format);
  if (!core_option_query(options, &request.query, &devices) ||
      !core_option_flag(options, "full_stacks", &request.report.full_stacks) ||
      !read_weigh(options, &request.weigh)) {
    PyMem_Free(devices);
    return NULL;
  }
  core_owner_take(&request.file->owner);
  Py_BEGIN_ALLOW_THREADS;
  status = formats[row].run(&request, formats[row].variant);
  Py_END_ALLOW_THREADS;
  core_owner_drop(&request.file->owner);
  PyMem_Free(devices);
  return core_sink_finish(&request.sink, status, &request.error);
}

/* trim(options): a Snapshot of the window alone. */
PyObject *core_trim(PyObject *self, PyObject *arguments) {
  core_file *file = core_open_file(self);
  PyObject *options;
  tsr_window window;
  tsr_query query;
  tsr_snapshot *part = NULL;
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  uint32_t *devices = NULL;
  bool is_given;
  int status;
  if (!file || !PyArg_ParseTuple(arguments, "O!", &PyDict_Type, &options) ||
      !core_option_window(options, &window, &is_given) ||
      !core_option_query(options, &query, &devices))
    return NULL;
  core_owner_take(&file->owner);
  Py_BEGIN_ALLOW_THREADS;
  status = tsr_snapshot_trim(file->study, &window, &query, &part, &error);
  Py_END_ALLOW_THREADS;
  PyMem_Free(devices);
  PyObject *trimmed = status ? core_raise(status, &error, file->name)
                             : core_snapshot_new(core_file_new(part, file->name));
  core_owner_drop(&file->owner);
  return trimmed;
}
