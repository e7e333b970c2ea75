/* write.c - snapshots written out: whole, in part, or in the formats of other programs. */
#include "core.h"

#include "core/output.h"
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

bool core_sink_init(core_sink *sink, PyObject *target) {
  char *path = NULL;
  *sink = (core_sink){0};
  if (target == Py_None) return true;
  if (PyBytes_AsStringAndSize(target, &path, NULL)) return false;
  sink->path = target;
  sink->output = calloc(1, sizeof *sink->output);
  if (sink->output) sink->output->path = path;
  return sink->output || PyErr_NoMemory();
}

int core_sink_write(void *context, const char *data, size_t size_bytes) {
  core_sink *sink = context;
  if (!sink->output || sink->gathers) return keep_in_memory(sink, data, size_bytes);
  return cli_output_write(sink->output, data, size_bytes);
}

/* The command gives way to a signal that would end it. Here the signal's handler, if there is one,
 * decides; the file starts again if it does not raise. A timer may send signals all the time, so
 * from then on everything is written at once. */
static bool is_interrupted(core_sink *sink) {
  if (!sink->output || sink->output->error_number != EINTR || PyErr_CheckSignals()) return false;
  *sink->output = (cli_output){.path = sink->output->path};
  return true;
}

bool core_sink_restarts(core_sink *sink, int status) {
  if (status != TSR_ERROR_WRITE || !is_interrupted(sink)) return false;
  sink->gathers = true;
  return true;
}

static int write_gathered(core_sink *sink) {
  int status;
  do {
    Py_BEGIN_ALLOW_THREADS;
    status = cli_output_write(sink->output, sink->data ? sink->data : "", sink->size_bytes);
    Py_END_ALLOW_THREADS;
  } while (status && is_interrupted(sink));
  return status ? TSR_ERROR_WRITE : 0;
}

/* Put the file in its place, also an empty one; if the writing failed, forget it. */
static int finish_file(cli_output *output, int status) {
  if (status)
    cli_output_abandon(output);
  else if (!cli_output_stream(output) || cli_output_finish(output))
    return TSR_ERROR_WRITE;
  return status;
}

PyObject *core_sink_finish(core_sink *sink, int status, const tsr_error *error) {
  PyObject *result = NULL;
  int error_number = sink->error_number;
  if (!status && sink->gathers) status = write_gathered(sink);
  if (sink->output) {
    /* What is abandoned has a number of its own. */
    int failed = sink->output->error_number;
    Py_BEGIN_ALLOW_THREADS;
    status = finish_file(sink->output, status);
    Py_END_ALLOW_THREADS;
    error_number = failed ? failed : sink->output->error_number;
  }
  if (PyErr_Occurred()) {
    ;
  } else if (status == TSR_ERROR_WRITE && error_number == ENOMEM) {
    PyErr_NoMemory();
  } else if (status == TSR_ERROR_WRITE && error_number) {
    errno = error_number;
    PyErr_SetFromErrno(PyExc_OSError);
  } else if (status) {
    core_raise(status, error, NULL);
  } else if (!sink->output) {
    result = PyBytes_FromStringAndSize(sink->data ? sink->data : "", (Py_ssize_t)sink->size_bytes);
  } else {
    Py_INCREF(Py_None);
    result = Py_None;
  }
  free(sink->output);
  free(sink->data);
  *sink = (core_sink){0};
  return result;
}

/* ---- exports ---- */

static bool read_weigh(PyObject *options, tsr_weigh_options *out) {
  bool has_window, has_moment;
  if (!core_option_window(options, &out->window, &has_window) ||
      !core_option_where(options, &out->where, &has_moment))
    return false;
  out->what = has_window ? TSR_WEIGH_WINDOW : has_moment ? TSR_WEIGH_MOMENT : TSR_WEIGH_PEAK;
  return true;
}

/* Whether the library writes it: tables are the command's. */
static bool is_here(const tsr_format *format) {
  return format && format->content != TSR_FORMAT_TABLES;
}

/* formats(): [(name, [ending, ...], whether it is the snapshot itself), ...]. */
PyObject *core_formats(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  PyObject *list = PyList_New(0);
  const tsr_format *format;
  for (size_t i = 0; list && (format = tsr_format_at(i)) != NULL; i++) {
    const char *endings[TSR_FORMAT_ENDINGS + 1] = {NULL};
    if (!is_here(format)) continue;
    memcpy(endings, format->endings, sizeof format->endings);
    PyObject *words = core_words(endings);
    PyObject *is_whole = PyBool_FromLong(format->content == TSR_FORMAT_SNAPSHOT);
    PyObject *row = words ? Py_BuildValue("(sOO)", format->name, words, is_whole) : NULL;
    if (!row || PyList_Append(list, row)) Py_CLEAR(list);
    Py_XDECREF(words);
    Py_XDECREF(is_whole);
    Py_XDECREF(row);
  }
  return list;
}

/* format_for(path): the name of a format, or None if the path has another's ending. */
PyObject *core_format_for(PyObject *Py_UNUSED(module), PyObject *path) {
  const char *ending, *text = PyBytes_AsString(path);
  const tsr_format *format = text ? tsr_format_for(text, &ending) : NULL;
  if (!text) return NULL;
  return Py_BuildValue("z", is_here(format) ? format->name : NULL);
}

/* export(format, options, path or None): bytes for None. */
PyObject *core_export(PyObject *self, PyObject *arguments) {
  core_file *file = core_open_file(self);
  tsr_format_options how = {0};
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  core_sink sink;
  const char *name;
  PyObject *options, *target;
  uint32_t *devices = NULL;
  if (!file || !PyArg_ParseTuple(arguments, "sO!O", &name, &PyDict_Type, &options, &target))
    return NULL;
  const tsr_format *format = tsr_format_named(name);
  if (!format) return PyErr_Format(core_argument_error(), "no such format: '%s'", name);
  if (!core_option_query(options, &how.query, &devices) ||
      !core_option_flag(options, "full_stacks", &how.report.full_stacks) ||
      !read_weigh(options, &how.weigh) || !core_sink_init(&sink, target)) {
    PyMem_Free(devices);
    return NULL;
  }
  int status;
  core_owner_take(&file->owner);
  do {
    Py_BEGIN_ALLOW_THREADS;
    status =
        tsr_format_write(format, file->study, file->name, &how, core_sink_write, &sink, &error);
    Py_END_ALLOW_THREADS;
  } while (core_sink_restarts(&sink, status));
  core_owner_drop(&file->owner);
  PyMem_Free(devices);
  return core_sink_finish(&sink, status, &error);
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
