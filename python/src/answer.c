/* answer.c - the questions that Python may ask, and the type Answer that holds what came back.
 *
 * A question is a row of `questions`: how its options are read, how it is computed, how it is
 * reported, how it is released. Most are made by a macro from the names that the library gives to
 * the parts of every answer, tsr_NAME_compute, tsr_report_NAME and tsr_NAME_free:
 *
 *   PLAIN(leaks)             no options but devices and top
 *   WITH_OPTIONS(stages)     a tsr_stages_options, filled by a read_stages
 *
 * An Answer keeps the struct: the same value is decoded as JSON and printed as text, and so says
 * what the command says.
 */
#include "core.h"

#include <string.h>

/* A question being asked: the files, and the options as the library takes them. */
typedef struct core_request {
  core_file *files[2]; /* the second: of questions about two, else NULL */
  tsr_query query;
  tsr_profile_options profile;
  tsr_stages_options stages;
  tsr_whatif_options whatif;
  tsr_why_options why;
  tsr_check_options check;
  tsr_at_where at;
  tsr_source_file source;
  tsr_error error;
  /* What the options point into. */
  PyObject *keep;
  uint32_t *devices;
  const char **texts;
  tsr_rules *rules;
  tsr_allocator_settings *settings;
  tsr_check_limit *limits;
  tsr_lock *lock;
} core_request;

/* A row of the table. */
typedef struct question {
  core_face face;
  bool is_about_two;
  bool (*read)(core_request *request, PyObject *options); /* false with an exception; or NULL */
  int (*compute)(core_request *request, void **out);
} question;

typedef struct core_answer {
  PyObject_HEAD const core_face *face;
  core_file *files[2];
  void *value;
} core_answer;

/* ---- options of their own ---- */

static bool read_at(core_request *request, PyObject *options) {
  bool is_given;
  if (!core_option_where(options, &request->at, &is_given)) return false;
  if (!is_given) PyErr_SetString(PyExc_TypeError, "say which moment: event, time_us or allocation");
  return is_given;
}

static bool read_stages(core_request *request, PyObject *options) {
  size_t count = 0;
  if (!core_option_texts(options, "match", request->keep, &request->texts, &count)) return false;
  request->stages = (tsr_stages_options){.matches = request->texts, .match_count = count};
  return true;
}

static bool read_profile(core_request *request, PyObject *options) {
  tsr_profile_options *how = &request->profile;
  uint64_t by = 0, moments = 0;
  if (!core_option_count(options, "by", &by) || !core_option_count(options, "moments", &moments) ||
      !core_option_flag(options, "ordered", &how->is_ordered) ||
      !core_option_count(options, "first_event", &how->first_event) ||
      !core_option_count(options, "event_count", &how->event_count) ||
      !core_option_rules(options, request->keep, &request->rules))
    return false;
  how->by = (tsr_profile_by)by;
  how->moment_count = (size_t)moments;
  how->rules = request->rules;
  return true;
}

/* `settings`, a list of texts. */
static bool read_settings(core_request *request, PyObject *options, size_t *count) {
  *count = 0;
  if (!core_option_texts(options, "settings", request->keep, &request->texts, count)) return false;
  request->settings = core_zeroed(*count + 1, sizeof *request->settings);
  if (!request->settings) {
    PyErr_NoMemory();
    return false;
  }
  for (size_t i = 0; i < *count; i++) {
    int status =
        tsr_allocator_settings_parse(request->texts[i], &request->settings[i], &request->error);
    if (!status) continue;
    core_raise(status, &request->error, NULL);
    return false;
  }
  return true;
}

static bool read_whatif(core_request *request, PyObject *options) {
  tsr_whatif_options *how = &request->whatif;
  if (!core_option_count(options, "capacity_bytes", &how->capacity_bytes) ||
      !read_settings(request, options, &how->setting_count))
    return false;
  how->settings = request->settings;
  return true;
}

static bool read_why(core_request *request, PyObject *options) {
  tsr_why_options *how = &request->why;
  long long event = -1;
  if (!core_option_integer(options, "event", &event) ||
      !core_option_count(options, "capacity_bytes", &how->capacity_bytes) ||
      !read_settings(request, options, &how->setting_count))
    return false;
  how->event = event;
  how->settings = request->settings;
  return true;
}

/* `limits`: a list of (rule, kind, bytes). */
static bool read_limits(core_request *request, PyObject *options) {
  PyObject *list = PyDict_GetItemString(options, "limits");
  if (!list) return true;
  Py_ssize_t count = PyList_Size(list);
  if (count < 0) return false;
  request->limits = core_zeroed((size_t)count + 1, sizeof *request->limits);
  if (!request->limits) return PyErr_NoMemory() != NULL;
  for (Py_ssize_t i = 0; i < count; i++) {
    int rule, kind;
    unsigned long long bytes;
    if (!PyArg_ParseTuple(PyList_GetItem(list, i), "iiK", &rule, &kind, &bytes)) return false;
    request->limits[i] = (tsr_check_limit){(tsr_check_rule)rule, (tsr_kind)kind, bytes};
  }
  request->check.limits = request->limits;
  request->check.limit_count = (size_t)count;
  return true;
}

static bool read_check(core_request *request, PyObject *options) {
  tsr_check_options *how = &request->check;
  const char *lock = NULL;
  size_t size_bytes = 0;
  uint64_t millionths = 0;
  if (!read_limits(request, options) ||
      !core_option_text(options, "lock", request->keep, &lock, &size_bytes) ||
      !core_option_flag(options, "causes", &how->wants_causes) ||
      !core_option_count(options, "tolerance_bytes", &how->tolerance_bytes) ||
      !core_option_count(options, "tolerance_millionths", &millionths))
    return false;
  how->tolerance_millionths = (uint32_t)millionths;
  int status = lock ? tsr_lock_parse(lock, size_bytes, &request->lock, &request->error) : 0;
  if (status) core_raise(status, &request->error, NULL);
  how->lock = request->lock;
  return status == 0;
}

static bool read_source(core_request *request, PyObject *options) {
  return core_option_text(options, "path", request->keep, &request->source.path, NULL) &&
         core_option_text(options, "text", request->keep, &request->source.text,
                          &request->source.size_bytes);
}

/* ---- what the library gives each question ---- */

#define REPORT_AND_FREE(NAME)                                                               \
  static int print_##NAME(core_report *how, const void *answer) {                           \
    return tsr_report_##NAME(how->inputs, answer, how->options, core_sink_write, how->sink, \
                             &how->error);                                                  \
  }                                                                                         \
  static void free_##NAME(void *answer) {                                                   \
    tsr_##NAME##_free(answer);                                                              \
  }
#define PLAIN(NAME)                                                                           \
  static int compute_##NAME(core_request *asked, void **out) {                                \
    return tsr_##NAME##_compute(asked->files[0]->snapshot, &asked->query, (tsr_##NAME **)out, \
                                &asked->error);                                               \
  }                                                                                           \
  REPORT_AND_FREE(NAME)
#define WITH_OPTIONS(NAME)                                                              \
  static int compute_##NAME(core_request *asked, void **out) {                          \
    return tsr_##NAME##_compute(asked->files[0]->snapshot, &asked->NAME, &asked->query, \
                                (tsr_##NAME **)out, &asked->error);                     \
  }                                                                                     \
  REPORT_AND_FREE(NAME)

PLAIN(info)
PLAIN(peak)
PLAIN(steps)
PLAIN(leaks)
WITH_OPTIONS(at)
WITH_OPTIONS(profile)
WITH_OPTIONS(stages)
WITH_OPTIONS(whatif)
WITH_OPTIONS(why)
WITH_OPTIONS(source)

/* Also in the forms of its own; what lies behind them is a lock. */
enum { FORM_LOCK = TSR_CHECK_MARKDOWN + 1 };

static int compute_check(core_request *asked, void **out) {
  return tsr_check_compute(asked->files[0]->snapshot, &asked->check, &asked->query,
                           (tsr_check **)out, &asked->error);
}
static int form_check(core_report *how, const void *answer, int form, const char *root) {
  tsr_check_face face = {.format = (tsr_check_format)form, .root = root};
  if (form == FORM_LOCK) return tsr_lock_write(answer, core_sink_write, how->sink, &how->error);
  return tsr_report_check(how->inputs, answer, &face, how->options, core_sink_write, how->sink,
                          &how->error);
}
static int print_check(core_report *how, const void *answer) {
  bool is_json = how->options->format == TSR_REPORT_JSON;
  return form_check(how, answer, is_json ? TSR_CHECK_JSON : TSR_CHECK_TEXT, NULL);
}
static void free_check(void *answer) {
  tsr_check_free(answer);
}

static int compute_diff(core_request *asked, void **out) {
  return tsr_diff_compute(asked->files[0]->snapshot, asked->files[1]->snapshot, TSR_DIFF_BY_STACK,
                          &asked->query, (tsr_diff **)out, &asked->error);
}
static int print_diff(core_report *how, const void *answer) {
  return tsr_report_diff(&how->inputs[0], &how->inputs[1], answer, how->options, core_sink_write,
                         how->sink, &how->error);
}
static void free_diff(void *answer) {
  tsr_diff_free(answer);
}

static int compute_comparison(core_request *asked, void **out) {
  return tsr_source_compare(asked->files[0]->snapshot, asked->files[1]->snapshot, &asked->source,
                            &asked->query, (tsr_source_comparison **)out, &asked->error);
}
static int print_comparison(core_report *how, const void *answer) {
  return tsr_report_source_comparison(&how->inputs[0], &how->inputs[1], answer, how->options,
                                      core_sink_write, how->sink, &how->error);
}
static void free_comparison(void *answer) {
  tsr_source_comparison_free(answer);
}

#define ROW(NAME, READ) \
  { .face = {#NAME, print_##NAME, NULL, free_##NAME}, .read = READ, .compute = compute_##NAME }

static const question questions[] = {
    ROW(info, NULL),
    ROW(peak, NULL),
    ROW(steps, NULL),
    ROW(leaks, NULL),
    ROW(at, read_at),
    ROW(stages, read_stages),
    ROW(whatif, read_whatif),
    ROW(why, read_why),
    ROW(source, read_source),
    ROW(profile, read_profile),
    {{"check", print_check, form_check, free_check}, false, read_check, compute_check},
    {{"diff", print_diff, NULL, free_diff}, true, NULL, compute_diff},
    {{"source_comparison", print_comparison, NULL, free_comparison},
     true,
     read_source,
     compute_comparison},
};
enum { QUESTIONS = sizeof questions / sizeof *questions };

PyObject *core_questions(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  PyObject *list = PyList_New(QUESTIONS);
  for (size_t i = 0; list && i < QUESTIONS; i++) {
    PyObject *name = PyUnicode_FromString(questions[i].face.name);
    if (!name || PyList_SetItem(list, (Py_ssize_t)i, name)) Py_CLEAR(list);
  }
  return list;
}

static const question *find_question(const char *name) {
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  for (size_t i = 0; i < QUESTIONS; i++)
    if (strcmp(questions[i].face.name, name) == 0) return &questions[i];
  PyOS_snprintf(error.message, sizeof error.message, "this build of tessera cannot answer '%.60s'",
                name);
  core_raise(TSR_ERROR_UNSUPPORTED, &error, NULL);
  return NULL;
}

/* ---- asking ---- */

static void release_request(core_request *asked) {
  Py_XDECREF(asked->keep);
  PyMem_Free(asked->devices);
  PyMem_Free(asked->texts);
  PyMem_Free(asked->settings);
  PyMem_Free(asked->limits);
  tsr_lock_free(asked->lock);
  tsr_rules_free(asked->rules);
}

PyObject *core_answer_new(const core_face *face, core_file *const files[2], void *value) {
  core_answer *answer = PyObject_New(core_answer, (PyTypeObject *)core.answer);
  if (!answer) {
    face->free(value);
    return NULL;
  }
  answer->face = face;
  answer->value = value;
  for (size_t i = 0; i < 2; i++) {
    answer->files[i] = files[i];
    if (files[i]) core_owner_take(&files[i]->owner);
  }
  return (PyObject *)answer;
}

/* Without the lock; the files are kept, whatever another thread closes meanwhile. */
static PyObject *compute(const question *asked, core_request *from) {
  void *value = NULL;
  int status;
  for (size_t i = 0; i < 2; i++)
    if (from->files[i]) core_owner_take(&from->files[i]->owner);
  Py_BEGIN_ALLOW_THREADS;
  status = asked->compute(from, &value);
  Py_END_ALLOW_THREADS;
  PyObject *answer = status ? core_raise(status, &from->error, from->files[0]->name)
                            : core_answer_new(&asked->face, from->files, value);
  for (size_t i = 0; i < 2; i++)
    if (from->files[i]) core_owner_drop(&from->files[i]->owner);
  return answer;
}

/* ask(question, options, other): the Answer. */
PyObject *core_ask(PyObject *self, PyObject *arguments) {
  const char *name;
  PyObject *options, *other = NULL, *answer = NULL;
  core_request asked = {.error = {.offset = TSR_OFFSET_NONE},
                        .files = {core_open_file(self), NULL}};
  if (!asked.files[0] || !PyArg_ParseTuple(arguments, "sO!|O!", &name, &PyDict_Type, &options,
                                           (PyTypeObject *)core.snapshot, &other))
    return NULL;
  const question *row = find_question(name);
  if (!row) return NULL;
  if (row->is_about_two) {
    if (!other) return PyErr_Format(PyExc_TypeError, "'%s' is asked of two snapshots", name);
    if (!(asked.files[1] = core_open_file(other))) return NULL;
  }
  asked.keep = PyList_New(0);
  if (asked.keep && core_option_query(options, &asked.query, &asked.devices) &&
      (!row->read || row->read(&asked, options)))
    answer = compute(row, &asked);
  release_request(&asked);
  return answer;
}

/* ---- the type Answer ---- */

static void dealloc(PyObject *self) {
  core_answer *answer = (core_answer *)self;
  PyTypeObject *type = Py_TYPE(self);
  answer->face->free(answer->value);
  for (size_t i = 0; i < 2; i++)
    if (answer->files[i]) core_owner_drop(&answer->files[i]->owner);
  PyObject_Free(self);
  Py_DECREF(type);
}

/* As it is printed, or in a form of its own, from 0 on. */
static PyObject *print(const core_answer *answer, const tsr_report_options *options, int form,
                       const char *root) {
  core_sink sink = {.handle = -1};
  core_report how = {.options = options, .sink = &sink, .error = {.offset = TSR_OFFSET_NONE}};
  int status;
  for (size_t i = 0; i < 2 && answer->files[i]; i++)
    how.inputs[i] =
        (tsr_report_input){.path = answer->files[i]->name, .snapshot = answer->files[i]->snapshot};
  Py_BEGIN_ALLOW_THREADS;
  status = form < 0 ? answer->face->print(&how, answer->value)
                    : answer->face->form(&how, answer->value, form, root);
  Py_END_ALLOW_THREADS;
  return core_sink_finish(&sink, status, &how.error);
}

static PyObject *json(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  const core_answer *answer = (core_answer *)self;
  tsr_report_options options = {.format = TSR_REPORT_JSON};
  return print(answer, &options, -1, NULL);
}

/* text(color, full_stacks, verbose, quiet, width): as the command prints it. */
static PyObject *text(PyObject *self, PyObject *arguments) {
  const core_answer *answer = (core_answer *)self;
  int color, full_stacks, verbose, quiet;
  unsigned int width;
  if (!PyArg_ParseTuple(arguments, "ppppI", &color, &full_stacks, &verbose, &quiet, &width))
    return NULL;
  tsr_report_options options = {.format = TSR_REPORT_TEXT,
                                .color = color,
                                .full_stacks = full_stacks,
                                .verbose = verbose,
                                .quiet = quiet,
                                .width = width};
  return print(answer, &options, -1, NULL);
}

/* form(number, root): a check in one of the forms that other programs read, or as a lock. */
static PyObject *form(PyObject *self, PyObject *arguments) {
  const core_answer *answer = (core_answer *)self;
  int number;
  const char *root;
  if (!PyArg_ParseTuple(arguments, "iz", &number, &root)) return NULL;
  tsr_report_options options = {0};
  if (answer->face->form && number >= 0 && number <= FORM_LOCK)
    return print(answer, &options, number, root);
  return PyErr_Format(PyExc_TypeError, "'%s' has no such form", answer->face->name);
}

static PyMethodDef methods[] = {
    {"form", form, METH_VARARGS, "A check in another form, in bytes."},
    {"json", json, METH_NOARGS, "The answer as JSON, in bytes."},
    {"text", text, METH_VARARGS, "The answer as text, in bytes."},
    {NULL, NULL, 0, NULL},
};

bool core_answer_ready(PyObject *module) {
  static PyType_Slot slots[] = {
      {Py_tp_new, (void *)core_refuse_new},
      {Py_tp_dealloc, (void *)dealloc},
      {Py_tp_methods, methods},
      {0, NULL},
  };
  static PyType_Spec spec = {.name = "tessera._core.Answer",
                             .basicsize = sizeof(core_answer),
                             .flags = Py_TPFLAGS_DEFAULT,
                             .slots = slots};
  core.answer = PyType_FromSpec(&spec);
  if (!core.answer) return false;
  Py_INCREF(core.answer);
  return PyModule_AddObject(module, "Answer", core.answer) == 0;
}
