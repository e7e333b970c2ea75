/* view.c - snapshots as one HTML page that shows them.
 *
 * The page has a bound on its size: where what is told of each allocation does not fit, fewer are told
 * one by one, until it does. What it is drawn from is computed and freed without the lock.
 */
#include "core.h"

enum { MOST_ALLOCATIONS = 1500000, FEWEST_ALLOCATIONS = 1000 };

typedef struct pages {
  Py_ssize_t count;
  core_file **files;
  tsr_view **views;
  tsr_page_input *inputs;
  tsr_query query;
  tsr_page_options how;
  core_sink sink;
  tsr_error error;
} pages;

static int write_with(pages *p, uint64_t most) {
  tsr_view_options options = {.most_allocations = most};
  int status = 0;
  for (Py_ssize_t i = 0; !status && i < p->count; i++) {
    tsr_view_free(p->views[i]);
    p->views[i] = NULL;
    status = tsr_view_compute(p->files[i]->snapshot, &options, &p->query, &p->views[i], &p->error);
    p->inputs[i] = (tsr_page_input){{p->files[i]->name, p->files[i]->snapshot}, p->views[i]};
  }
  if (status) return status;
  return tsr_report_page(p->inputs, (size_t)p->count, &p->how, core_sink_write, &p->sink, &p->error);
}

static int write_page(pages *p, uint64_t most) {
  size_t devices = 0;
  int status;
  for (Py_ssize_t i = 0; i < p->count; i++) {
    size_t count;
    (void)tsr_snapshot_devices(p->files[i]->snapshot, &count);
    devices += count;
  }
  if (devices) most = (most + devices - 1) / devices;
  do {
    status = write_with(p, most);
    most /= 2;
  } while (status == TSR_ERROR_LIMIT && most >= FEWEST_ALLOCATIONS);
  return status;
}

/* The files of the page: this snapshot, then the others. */
static bool take_files(pages *p, PyObject *self, PyObject *others) {
  p->count = 1 + PyList_Size(others);
  p->files = PyMem_Calloc((size_t)p->count, sizeof *p->files);
  p->views = PyMem_Calloc((size_t)p->count, sizeof *p->views);
  p->inputs = PyMem_Calloc((size_t)p->count, sizeof *p->inputs);
  if (!p->files || !p->views || !p->inputs) return PyErr_NoMemory() != NULL;
  for (Py_ssize_t i = 0; i < p->count; i++) {
    PyObject *snapshot = i ? PyList_GetItem(others, i - 1) : self;
    if (Py_TYPE(snapshot) != (PyTypeObject *)core.snapshot) {
      PyErr_SetString(PyExc_TypeError, "a page is of snapshots");
      return false;
    }
    core_file *file = core_open_file(snapshot);
    if (!file) return false;
    p->files[i] = (core_file *)core_owner_take(&file->owner);
  }
  return true;
}

static void release(pages *p) {
  for (Py_ssize_t i = 0; i < p->count; i++) {
    if (p->views) tsr_view_free(p->views[i]);
    if (p->files && p->files[i]) core_owner_drop(&p->files[i]->owner);
  }
  PyMem_Free(p->files);
  PyMem_Free(p->views);
  PyMem_Free(p->inputs);
}

/* view(others, options, handle): bytes where the handle is -1, else None. */
PyObject *core_view(PyObject *self, PyObject *arguments) {
  pages p = {.error = {.offset = TSR_OFFSET_NONE}};
  PyObject *others, *options, *result = NULL, *keep = PyList_New(0);
  uint32_t *devices = NULL;
  uint64_t most = MOST_ALLOCATIONS;
  int status;
  if (keep &&
      PyArg_ParseTuple(arguments, "O!O!i", &PyList_Type, &others, &PyDict_Type, &options,
                       &p.sink.handle) &&
      core_option_query(options, &p.query, &devices) &&
      core_option_text(options, "by", keep, &p.how.by, NULL) &&
      core_option_count(options, "capacity_bytes", &p.how.capacity_bytes) &&
      core_option_count(options, "blocks", &most) && take_files(&p, self, others)) {
    Py_BEGIN_ALLOW_THREADS;
    status = write_page(&p, most);
    Py_END_ALLOW_THREADS;
    result = core_sink_finish(&p.sink, status, &p.error);
  }
  release(&p);
  PyMem_Free(devices);
  Py_XDECREF(keep);
  return result;
}
