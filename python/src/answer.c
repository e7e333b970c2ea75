/* answer.c - asking the library's questions, and the type Answer.
 *
 * The questions are the registry's (tessera/registry.h): this file names none of them, so that a new one
 * can be asked from Python without a line here. Keyword arguments become parameters by their names, in
 * options.c, and the library checks them.
 *
 * An Answer keeps the value: the same one is decoded as JSON and printed as text, so both equal
 * what the command prints.
 */
#include "core.h"

#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/fleet.h>
#include <tessera/unstable/params.h>

typedef struct core_answer {
  PyObject_HEAD tsr_answer *value;
  core_owner *owners[TSR_QUESTION_SUBJECTS]; /* what the value borrows from */
} core_answer;

/* ---- the registry ---- */

PyObject *core_questions(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  PyObject *list = PyList_New(0);
  for (size_t i = 0; list && i < tsr_question_count(); i++) {
    PyObject *name = PyUnicode_FromString(tsr_question_at(i)->name);
    if (!name || PyList_Append(list, name)) Py_CLEAR(list);
    Py_XDECREF(name);
  }
  return list;
}

static const tsr_question *find_question(const char *name) {
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  const tsr_question *question = tsr_question_find(name);
  if (question) return question;
  PyOS_snprintf(error.message, sizeof error.message,
                "this build of tessera has no question '%.60s'", name);
  core_raise(TSR_ERROR_UNSUPPORTED, &error, NULL);
  return NULL;
}

PyObject *core_groupings(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  return core_words(tsr_page_groupings);
}

/* (name, help, choices) of a parameter. */
static bool add_parameter(PyObject *list, const tsr_parameter *row) {
  PyObject *choices = core_words(row->choices);
  char help[TSR_PARAMETER_HELP_BYTES];
  PyObject *one = choices ? Py_BuildValue("(ssO)", row->name,
                                          tsr_parameter_help(row, help, sizeof help), choices)
                          : NULL;
  bool ok = one && PyList_Append(list, one) == 0;
  Py_XDECREF(choices);
  Py_XDECREF(one);
  return ok;
}

/* question(name): (summary, how many snapshots, [parameter, ...]). */
PyObject *core_question(PyObject *Py_UNUSED(module), PyObject *name) {
  PyObject *bytes = PyUnicode_AsUTF8String(name);
  const tsr_question *question = bytes ? find_question(PyBytes_AsString(bytes)) : NULL;
  Py_XDECREF(bytes);
  PyObject *list = question ? PyList_New(0) : NULL;
  const tsr_parameter *row;
  for (size_t i = 0; list && (row = tsr_question_parameter(question, i)); i++) {
    if (!(row->hidden_from & TSR_INTERFACE_PYTHON) && !add_parameter(list, row)) Py_CLEAR(list);
  }
  PyObject *out =
      list ? Py_BuildValue("(snO)", question->summary, (Py_ssize_t)question->subject_count, list)
           : NULL;
  Py_XDECREF(list);
  return out;
}

/* ---- asking ---- */

/* A question being asked. */
typedef struct core_request {
  const tsr_question *question;
  tsr_subject subjects[TSR_QUESTION_SUBJECTS];
  size_t subject_count;
  tsr_params *params;
  tsr_query query;
  uint32_t *devices; /* what the query points into */
  tsr_answer *value;
  tsr_error error;
} core_request;

/* A snapshot more than the question's own is that of the parameter which can name one. What is no snapshot is one subject. */
static bool set_other(core_request *asked) {
  const tsr_question *question = asked->question;
  size_t own = question->subject_count ? question->subject_count : 1;
  if (asked->subject_count <= own) return true;
  const tsr_parameter *row;
  for (size_t i = 0; (row = tsr_question_parameter(question, i)); i++) {
    const char *name = asked->subjects[asked->subject_count - 1].name;
    if (row->kind != TSR_PARAMETER_SNAPSHOT) continue;
    int status = tsr_params_set_path(asked->params, row->name, name, &asked->error);
    if (status) core_raise(status, &asked->error, NULL);
    return status == 0;
  }
  PyErr_Format(core_usage_error(), "'%s' is asked of one snapshot", question->name);
  return false;
}

/* Without the interpreter's lock; `owners` stay alive, even if another thread closes them during
 * the call. */
static int compute(core_request *asked, PyObject *options) {
  int status;
  asked->error = (tsr_error){.offset = TSR_OFFSET_NONE};
  if (!core_option_query(options, &asked->query, &asked->devices)) return 1;
  if (tsr_question_params(asked->question, TSR_INTERFACE_PYTHON, &asked->params, &asked->error)) {
    PyErr_NoMemory();
    return 1;
  }
  if (!core_option_params(options, asked->question, asked->params) || !set_other(asked)) return 1;
  core_call now = {.progress = NULL};
  asked->query.progress = core_call_continues;
  asked->query.progress_context = &now;
  now.thread = PyEval_SaveThread();
  status = tsr_ask(asked->question, asked->subjects, asked->subject_count, asked->params,
                   &asked->query, &asked->value, &asked->error);
  PyEval_RestoreThread(now.thread);
  if (!PyErr_Occurred()) return status;
  tsr_answer_free(asked->value); /* Ctrl-C, perhaps at the very end */
  asked->value = NULL;
  return 1;
}

static void release_request(core_request *asked) {
  tsr_params_free(asked->params);
  PyMem_Free(asked->devices);
}

/* Takes the value, also when it fails, and a use of each owner. */
static PyObject *answer_new(tsr_answer *value, core_owner *first, core_owner *second) {
  core_answer *answer = PyObject_New(core_answer, (PyTypeObject *)core.answer);
  if (!answer) {
    tsr_answer_free(value);
    return NULL;
  }
  answer->value = value;
  answer->owners[0] = first ? core_owner_take(first) : NULL;
  answer->owners[1] = second ? core_owner_take(second) : NULL;
  return (PyObject *)answer;
}

/* ask(question, options, other): the Answer. */
PyObject *core_ask(PyObject *self, PyObject *arguments) {
  const char *name;
  PyObject *options, *other = NULL, *answer = NULL;
  core_file *files[2] = {core_open_file(self), NULL};
  core_request asked = {.question = NULL};
  if (!files[0] || !PyArg_ParseTuple(arguments, "sO!|O!", &name, &PyDict_Type, &options,
                                     (PyTypeObject *)core.snapshot, &other))
    return NULL;
  asked.question = find_question(name);
  if (!asked.question) return NULL;
  if (other && !(files[1] = core_open_file(other))) return NULL;
  if (asked.question->subject_count == 2 && !other)
    return PyErr_Format(core_usage_error(), "'%s' needs two snapshots", name);
  for (; asked.subject_count < 2 && files[asked.subject_count]; asked.subject_count++) {
    core_file *file = files[asked.subject_count];
    asked.subjects[asked.subject_count] = (tsr_subject){file->study, file->name};
    core_owner_take(&file->owner);
  }
  int status = compute(&asked, options);
  if (status == 0)
    answer = answer_new(asked.value, &files[0]->owner, files[1] ? &files[1]->owner : NULL);
  else if (status < 0)
    core_raise(status, &asked.error, files[0]->name);
  for (size_t i = 0; i < 2 && files[i]; i++) core_owner_drop(&files[i]->owner);
  release_request(&asked);
  return answer;
}

/* ---- answers that make their own snapshot ---- */

/* The Answer and the Snapshot share the value through one core_file. */
typedef struct made_file {
  core_file file; /* its snapshot is the value's */
  tsr_answer *value;
} made_file;

static void end_made(core_owner *owner) {
  made_file *made = (made_file *)(void *)owner;
  tsr_study_free(made->file.study);
  tsr_answer_free(made->value);
  free(made->file.name);
  free(made);
}

/* Takes the value, also when it fails. */
static made_file *hold(tsr_answer *value, const char *name) {
  const tsr_snapshot *snapshot = tsr_answer_snapshot(value);
  made_file *made = calloc(1, sizeof *made);
  char *copy = strdup(name);
  tsr_study *study = NULL;
  if (!made || !copy || tsr_study_new(snapshot, &study, NULL)) {
    free(made);
    free(copy);
    tsr_answer_free(value);
    PyErr_NoMemory();
    return NULL;
  }
  /* Nobody changes or frees it through the file: `end` is not that of other files. */
  *made = (made_file){.file = {.owner = {.uses = 1, .end = end_made},
                               .snapshot = (tsr_snapshot *)(uintptr_t)snapshot,
                               .study = study,
                               .name = copy},
                      .value = value};
  return made;
}

static PyObject *pair_of(tsr_answer *value, const char *name) {
  made_file *made = hold(value, name);
  if (!made) return NULL;
  core_answer *answer = PyObject_New(core_answer, (PyTypeObject *)core.answer);
  if (answer) {
    answer->value = value;
    answer->owners[0] = core_owner_take(&made->file.owner);
    answer->owners[1] = NULL;
  }
  PyObject *snapshot = core_snapshot_new(&made->file); /* takes the use that hold() made */
  PyObject *pair = answer && snapshot ? PyTuple_Pack(2, (PyObject *)answer, snapshot) : NULL;
  Py_XDECREF((PyObject *)answer);
  Py_XDECREF(snapshot);
  return pair;
}

/* ask(question, options, name, recorded): (Answer, Snapshot) of a question that reads no snapshot of its own; `name` is the
 * answer's name for its subject, and `recorded` the snapshot of a parameter. None for a question that makes no snapshot. */
PyObject *core_ask_alone(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *name, *subject;
  PyObject *options, *recorded = NULL, *result = NULL;
  core_file *file = NULL;
  core_request asked = {.subject_count = 1};
  if (!PyArg_ParseTuple(arguments, "sO!s|O!", &name, &PyDict_Type, &options, &subject,
                        (PyTypeObject *)core.snapshot, &recorded))
    return NULL;
  asked.question = find_question(name);
  if (!asked.question) return NULL;
  if (asked.question->subject_count)
    return PyErr_Format(core_usage_error(), "'%s' is asked of a snapshot", name);
  if (recorded && !(file = core_open_file(recorded))) return NULL;
  asked.subjects[0].name = subject;
  if (file) asked.subjects[asked.subject_count++] = (tsr_subject){file->study, file->name};
  if (file) core_owner_take(&file->owner);
  int status = compute(&asked, options);
  if (status == 0 && tsr_answer_snapshot(asked.value)) {
    result = pair_of(asked.value, subject);
  } else if (status == 0) {
    PyObject *answer = answer_new(asked.value, file ? &file->owner : NULL, NULL);
    result = answer ? Py_BuildValue("(NO)", answer, Py_None) : NULL;
  } else if (status < 0) {
    core_raise(status, &asked.error, NULL);
  }
  if (file) core_owner_drop(&file->owner);
  release_request(&asked);
  return result;
}

/* ---- the type Answer ---- */

static void dealloc(PyObject *self) {
  core_answer *answer = (core_answer *)self;
  PyTypeObject *type = Py_TYPE(self);
  /* A value that made its snapshot is its owner's to end. */
  if (!tsr_answer_snapshot(answer->value)) tsr_answer_free(answer->value);
  for (size_t i = 0; i < TSR_QUESTION_SUBJECTS; i++) core_owner_drop(answer->owners[i]);
  PyObject_Free(self);
  Py_DECREF(type);
}

/* As text or JSON, or in the form of that name. */
static PyObject *print(const core_answer *answer, const tsr_report_options *options,
                       const char *form, const char *root) {
  core_sink sink = {0};
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = form ? tsr_answer_write_form(answer->value, form, root, options, core_sink_write, &sink,
                                        &error)
                : tsr_answer_write(answer->value, options, core_sink_write, &sink, &error);
  Py_END_ALLOW_THREADS;
  if (status != TSR_ERROR_ARGUMENT) return core_sink_finish(&sink, status, &error);
  PyErr_SetString(core_usage_error(), error.message);
  return NULL;
}

static PyObject *json(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  const core_answer *answer = (core_answer *)self;
  tsr_report_options options = {.format = TSR_REPORT_JSON};
  return print(answer, &options, NULL, NULL);
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
  return print(answer, &options, NULL, NULL);
}

/* verdict(): the lines of the verdict. */
static PyObject *verdict(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  const core_answer *answer = (core_answer *)self;
  tsr_report_options options = {.format = TSR_REPORT_VERDICT, .quiet = true};
  return print(answer, &options, NULL, NULL);
}

/* form(name, root): in a form that other programs read. */
static PyObject *form(PyObject *self, PyObject *arguments) {
  const core_answer *answer = (core_answer *)self;
  const char *name, *root;
  tsr_report_options options = {0};
  if (!PyArg_ParseTuple(arguments, "sz", &name, &root)) return NULL;
  return print(answer, &options, name, root);
}

/* view(name, path or None): as a page, bytes for None. */
static PyObject *view(PyObject *self, PyObject *arguments) {
  const core_answer *answer = (core_answer *)self;
  const char *name;
  PyObject *target;
  core_sink sink = {0};
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  int status;
  if (strcmp(tsr_answer_question(answer->value)->name, "ranks") != 0) {
    PyErr_SetString(core_usage_error(), "only the answer of ranks() has a page");
    return NULL;
  }
  if (!PyArg_ParseTuple(arguments, "sO", &name, &target) || !core_sink_init(&sink, target))
    return NULL;
  do {
    Py_BEGIN_ALLOW_THREADS;
    status = tsr_ranks_page(tsr_answer_value(answer->value), name, core_sink_write, &sink, &error);
    Py_END_ALLOW_THREADS;
  } while (core_sink_restarts(&sink, status));
  return core_sink_finish(&sink, status, &error);
}

static PyMethodDef methods[] = {
    {"form", form, METH_VARARGS, "The answer in a form of its own, in bytes."},
    {"json", json, METH_NOARGS, "The answer as JSON, in bytes."},
    {"text", text, METH_VARARGS, "The answer as text, in bytes."},
    {"verdict", verdict, METH_NOARGS, "Its verdict, a line each, in bytes."},
    {"view", view, METH_VARARGS, "The answer as a page, in bytes or written to a path."},
    {NULL, NULL, 0, NULL},
};

bool core_answer_ready(PyObject *module) {
  static char doc[] = "An answer in the library's memory.";
  static PyType_Slot slots[] = {
      {Py_tp_doc, doc},
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
