/* view.c - snapshots as one HTML page that shows them.
 *
 * The page's size is bounded: if it is too large, fewer allocations are listed individually, until
 * it fits. Its data is computed and freed without the interpreter's lock.
 */
#include "core.h"

#include <stdlib.h>

enum { MOST_ALLOCATIONS = 1500000, FEWEST_ALLOCATIONS = 1000 };

/* One file of the page. */
typedef struct leaf {
  core_file *file;
  tsr_view *view;
  tsr_view_cut *cuts; /* by device of the view */
} leaf;

typedef struct pages {
  size_t count;
  leaf *leaves;
  tsr_page_input *inputs;
  tsr_page *page;
  tsr_rules *rules;
  const char *key; /* of the metadata, or NULL */
  tsr_query query;
  tsr_page_options how;
  core_sink sink;
  tsr_error error;
} pages;

static void release_cuts(leaf *one) {
  for (size_t d = 0; one->cuts && d < one->view->device_count; d++)
    tsr_view_cut_release(&one->cuts[d]);
}

/* Views of all files; how many devices they have. */
static int view_all(pages *p, size_t *devices) {
  tsr_view_options how = {.rules = p->rules, .by = p->how.by, .key = p->key};
  for (size_t i = 0; i < p->count; i++) {
    leaf *one = &p->leaves[i];
    int status = tsr_view_compute(one->file->study, &how, &p->query, &one->view, &p->error);
    if (status) return status;
    *devices += one->view->device_count;
    one->cuts = calloc(one->view->device_count + 1, sizeof *one->cuts);
    if (!one->cuts) return TSR_ERROR_MEMORY;
    p->inputs[i] = (tsr_page_input){{one->file->name, one->file->snapshot}, one->view, one->cuts};
  }
  return 0;
}

static int cut_all(pages *p, uint64_t most) {
  tsr_view_stretch stretch = {.most_allocations = most};
  for (size_t i = 0; i < p->count; i++) {
    release_cuts(&p->leaves[i]);
    for (size_t d = 0; d < p->leaves[i].view->device_count; d++) {
      int status = tsr_view_cut_compute(&p->leaves[i].view->devices[d], &stretch,
                                        &p->leaves[i].cuts[d], &p->error);
      if (status) return status;
    }
  }
  return 0;
}

/* Half as many allocations until a cut lists fewer of them than before. */
static uint64_t fewer(const pages *p, uint64_t most) {
  uint64_t listed = 0;
  for (size_t i = 0; i < p->count; i++)
    for (size_t d = 0; d < p->leaves[i].view->device_count; d++)
      if (p->leaves[i].cuts[d].listed_count > listed) listed = p->leaves[i].cuts[d].listed_count;
  do most /= 2;
  while (most && most >= listed);
  return most;
}

static int write_page(pages *p, uint64_t most) {
  size_t devices = 0;
  if (p->page) return tsr_page_write(p->page, core_sink_write, &p->sink, &p->error);
  int status = view_all(p, &devices);
  if (status) return status;
  if (devices) most = (most + devices - 1) / devices;
  do {
    status = cut_all(p, most);
    if (!status) status = tsr_page_open(p->inputs, p->count, &p->how, &p->page, &p->error);
    if (status == TSR_ERROR_LIMIT) most = fewer(p, most);
  } while (status == TSR_ERROR_LIMIT && most >= FEWEST_ALLOCATIONS);
  return status ? status : tsr_page_write(p->page, core_sink_write, &p->sink, &p->error);
}

/* The files of the page: this snapshot, then the others. */
static bool take_files(pages *p, PyObject *self, PyObject *others) {
  size_t count = 1 + (size_t)PyList_Size(others);
  p->leaves = core_zeroed(count, sizeof *p->leaves);
  p->inputs = core_zeroed(count, sizeof *p->inputs);
  if (!p->leaves || !p->inputs) return PyErr_NoMemory() != NULL;
  for (; p->count < count; p->count++) {
    PyObject *snapshot = p->count ? PyList_GetItem(others, (Py_ssize_t)p->count - 1) : self;
    if (Py_TYPE(snapshot) != (PyTypeObject *)core.snapshot) {
      PyErr_SetString(core_usage_error(), "a page is of snapshots");
      return false;
    }
    core_file *file = core_open_file(snapshot);
    if (!file) return false;
    core_owner_take(&file->owner);
    p->leaves[p->count].file = file;
  }
  return true;
}

static void release(pages *p) {
  tsr_page_free(p->page);
  for (size_t i = 0; i < p->count; i++) {
    leaf *one = &p->leaves[i];
    release_cuts(one);
    free(one->cuts);
    tsr_view_free(one->view);
    core_owner_drop(&one->file->owner);
  }
  PyMem_Free(p->leaves);
  PyMem_Free(p->inputs);
  tsr_rules_free(p->rules);
}

static bool read_options(pages *p, PyObject *options, PyObject *keep, uint32_t **devices,
                         uint64_t *most) {
  return core_option_query(options, &p->query, devices) &&
         core_option_text(options, "by", keep, &p->how.by, NULL) &&
         core_option_text(options, "key", keep, &p->key, NULL) &&
         core_option_flag(options, "ordered", &p->how.is_ordered) &&
         core_option_count(options, "first_event", &p->how.first_event) &&
         core_option_count(options, "event_count", &p->how.event_count) &&
         core_option_count(options, "capacity_bytes", &p->how.capacity_bytes) &&
         core_option_count(options, "most_bytes", &p->how.most_bytes) &&
         core_option_count(options, "blocks", most) && core_option_rules(options, keep, &p->rules);
}

/* view(others, options, path or None): bytes for None. */
PyObject *core_view(PyObject *self, PyObject *arguments) {
  pages p = {.error = {.offset = TSR_OFFSET_NONE}};
  PyObject *others, *options, *target, *result = NULL, *keep = PyList_New(0);
  uint32_t *devices = NULL;
  uint64_t most = MOST_ALLOCATIONS;
  int status;
  if (keep &&
      PyArg_ParseTuple(arguments, "O!O!O", &PyList_Type, &others, &PyDict_Type, &options,
                       &target) &&
      read_options(&p, options, keep, &devices, &most) && take_files(&p, self, others) &&
      core_sink_init(&p.sink, target)) {
    do {
      Py_BEGIN_ALLOW_THREADS;
      status = write_page(&p, most);
      Py_END_ALLOW_THREADS;
    } while (core_sink_restarts(&p.sink, status));
    result = core_sink_finish(&p.sink, status, &p.error);
  }
  release(&p);
  PyMem_Free(devices);
  Py_XDECREF(keep);
  return result;
}
