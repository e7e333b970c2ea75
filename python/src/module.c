/* module.c - the module tessera._core: opens snapshots, makes exceptions, runs the command line.
 *
 * While a file is read the interpreter's lock is free; now and then it is taken for a moment, so
 * that Ctrl-C works as elsewhere in Python.
 */
#include "core.h"

#include "core/program.h"
#include <string.h>
#include <tessera/unstable/params.h>
#include <tessera/unstable/plans.h>
#include <tessera/unstable/runs.h>
#include <tessera/unstable/terminal.h>

/* A text as a terminal may have it: messages quote paths and names of files. */
static PyObject *terminal_clean(PyObject *Py_UNUSED(module), PyObject *text) {
  PyObject *bytes = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
  if (!bytes) return NULL;
  char *data = NULL;
  Py_ssize_t size = 0;
  PyObject *clean = NULL;
  char *copy = NULL;
  if (!PyBytes_AsStringAndSize(bytes, &data, &size)) {
    copy = PyMem_Malloc((size_t)size + 1);
    if (!copy) (void)PyErr_NoMemory();
  }
  if (copy) {
    memcpy(copy, data, (size_t)size);
    size_t used = tsr_terminal_clean(copy, (size_t)size, false);
    clean = PyUnicode_DecodeUTF8(copy, (Py_ssize_t)used, "strict");
  }
  PyMem_Free(copy);
  Py_DECREF(bytes);
  return clean;
}

static PyObject *set_error_maker(PyObject *Py_UNUSED(module), PyObject *maker) {
  PyObject *old = core.make_error;
  Py_INCREF(maker);
  core.make_error = maker;
  Py_XDECREF(old);
  Py_RETURN_NONE;
}

static PyObject *set_error_classes(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *usage, *argument;
  if (!PyArg_ParseTuple(arguments, "OO", &usage, &argument)) return NULL;
  PyObject *old[] = {core.usage_error, core.argument_error};
  Py_INCREF(usage);
  Py_INCREF(argument);
  core.usage_error = usage;
  core.argument_error = argument;
  Py_XDECREF(old[0]);
  Py_XDECREF(old[1]);
  Py_RETURN_NONE;
}

static PyObject *set_calculator(PyObject *Py_UNUSED(module), PyObject *calculator) {
  PyObject *old = core.calculator;
  Py_INCREF(calculator);
  core.calculator = calculator;
  Py_XDECREF(old);
  Py_RETURN_NONE;
}

/* ---- opening ---- */

/* From a file, or from memory where `path` is NULL. */
static PyObject *read_snapshot(const char *path, const char *data, Py_ssize_t size_bytes,
                               const char *name, const char *sidecar, PyObject *progress) {
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  tsr_snapshot *snapshot = NULL;
  core_call now = {.progress = progress == Py_None ? NULL : progress};
  tsr_open_options how = {
      .progress = core_call_continues, .progress_context = &now, .sidecar = sidecar};
  now.thread = PyEval_SaveThread();
  int status = path ? tsr_snapshot_open(path, &how, &snapshot, &error)
                    : tsr_snapshot_read(data, (size_t)size_bytes, &how, &snapshot, &error);
  PyEval_RestoreThread(now.thread);
  if (PyErr_Occurred()) {
    tsr_snapshot_free(snapshot);
    return NULL;
  }
  if (status) return core_raise(status, &error, name);
  return core_snapshot_new(core_file_new(snapshot, name));
}

/* A path as bytes; NULL for None. */
static bool path_of(PyObject *given, const char **out) {
  char *path = NULL;
  if (given != Py_None && PyBytes_AsStringAndSize(given, &path, NULL)) return false;
  *out = path;
  return true;
}

/* open(path as bytes, name, progress or None, sidecar as bytes or None). */
static PyObject *open_path(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *path, *name, *beside;
  PyObject *progress, *sidecar;
  if (!PyArg_ParseTuple(arguments, "ysOO", &path, &name, &progress, &sidecar) ||
      !path_of(sidecar, &beside))
    return NULL;
  return read_snapshot(path, NULL, 0, name, beside, progress);
}

/* read(bytes, name, progress or None, sidecar as bytes or None). */
static PyObject *read_bytes(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *bytes, *progress, *sidecar;
  const char *name, *beside;
  char *data;
  Py_ssize_t size_bytes;
  if (!PyArg_ParseTuple(arguments, "SsOO", &bytes, &name, &progress, &sidecar) ||
      !path_of(sidecar, &beside) || PyBytes_AsStringAndSize(bytes, &data, &size_bytes))
    return NULL;
  return read_snapshot(NULL, data, size_bytes, name, beside, progress);
}

/* ---- the command ---- */

/* command([bytes, ...]): run a command line, its program's name first; returns the exit status. */
static PyObject *command(PyObject *Py_UNUSED(module), PyObject *words) {
  if (!PyList_Check(words)) {
    PyErr_SetString(PyExc_TypeError, "a list of bytes");
    return NULL;
  }
  Py_ssize_t count = PyList_Size(words);
  char **line = core_zeroed((size_t)count + 1, sizeof *line);
  if (!line) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; i++) line[i] = PyBytes_AsString(PyList_GetItem(words, i));
  int status = 0;
  bool ok = !PyErr_Occurred();
  if (ok) {
    Py_BEGIN_ALLOW_THREADS;
    status = cli_program((int)count, line, false);
    Py_END_ALLOW_THREADS;
  }
  PyMem_Free(line);
  return ok ? PyLong_FromLong(status) : NULL;
}

static PyObject *version(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  return PyUnicode_FromString(tsr_version());
}

/* Names of categories, by tsr_category. */
static PyObject *categories(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  PyObject *list = PyList_New(TSR_CATEGORY_COUNT);
  for (int i = 0; list && i < TSR_CATEGORY_COUNT; i++) {
    PyObject *name = PyUnicode_FromString(tsr_category_name((tsr_category)i));
    if (!name || PyList_SetItem(list, i, name)) Py_CLEAR(list);
  }
  return list;
}

static PyObject *models(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  return core_words(tsr_model_names());
}

/* rules(text, lenient): [(name, pattern, description, priority)], in the order they are tried. */
static PyObject *parse_rules(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *text;
  Py_ssize_t size_bytes;
  int is_lenient;
  tsr_rules *rules = NULL;
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  if (!PyArg_ParseTuple(arguments, "s#p", &text, &size_bytes, &is_lenient)) return NULL;
  int status =
      tsr_rules_parse(text, (size_t)size_bytes, is_lenient ? TSR_RULES_LENIENT : TSR_RULES_STRICT,
                      &rules, NULL, &error);
  if (status) return core_raise(status, &error, NULL);
  PyObject *list = PyList_New(0);
  for (size_t i = 0; list && i < tsr_rules_count(rules); i++) {
    tsr_rule rule = tsr_rules_at(rules, i);
    PyObject *row =
        Py_BuildValue("sssL", rule.name, rule.pattern, rule.description, (long long)rule.priority);
    if (!row || PyList_Append(list, row)) Py_CLEAR(list);
    Py_XDECREF(row);
  }
  tsr_rules_free(rules);
  return list;
}

/* check_plan(text, name): None for a plan. */
static PyObject *check_plan(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *text, *name;
  Py_ssize_t size_bytes;
  tsr_run_plan *plan = NULL;
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  if (!PyArg_ParseTuple(arguments, "s#s", &text, &size_bytes, &name)) return NULL;
  int status = tsr_run_plan_parse(text, (size_t)size_bytes, &plan, &error);
  if (status) return core_raise(status, &error, name);
  tsr_run_plan_free(plan);
  Py_RETURN_NONE;
}

/* is_foreign(text): whether a description is of a model that is not built in. */
static PyObject *is_foreign(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *text;
  Py_ssize_t size_bytes;
  bool is_so = false;
  if (!PyArg_ParseTuple(arguments, "s#", &text, &size_bytes)) return NULL;
  if (tsr_model_is_foreign(text, (size_t)size_bytes, &is_so)) return PyErr_NoMemory();
  return PyBool_FromLong(is_so);
}

/* model_config(name): the description of a model that is built in, as text. */
static PyObject *model_config(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *name;
  tsr_model *model = NULL;
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  if (!PyArg_ParseTuple(arguments, "s", &name)) return NULL;
  int status = tsr_model_named(name, &model, &error);
  if (status) return core_raise(status, &error, name);
  PyObject *text = PyUnicode_FromString(tsr_model_config(model));
  tsr_model_free(model);
  return text;
}

/* is_traced(name): whether a parameter is decided when a model is traced. */
static PyObject *is_traced(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *name;
  if (!PyArg_ParseTuple(arguments, "s", &name)) return NULL;
  return PyBool_FromLong(tsr_parameter_is_traced(name));
}

/* size_text(bytes): a size as reports print it. */
static PyObject *size_text(PyObject *Py_UNUSED(module), PyObject *bytes) {
  char text[32];
  unsigned long long size_bytes = PyLong_AsUnsignedLongLong(bytes);
  if (PyErr_Occurred()) return NULL;
  return PyUnicode_FromString(tsr_size_text(size_bytes, text, sizeof text));
}

static PyMethodDef functions[] = {
    {"open", open_path, METH_VARARGS, "Open the snapshot in a file."},
    {"read", read_bytes, METH_VARARGS, "Read a snapshot out of bytes."},
    {"formats", core_formats, METH_NOARGS, "Formats of export, by name, with their endings."},
    {"format_for", core_format_for, METH_O, "The format for a path, by its ending, or None."},
    {"groupings", core_groupings, METH_NOARGS, "What a page can open with."},
    {"questions", core_questions, METH_NOARGS, "What Snapshot.ask understands."},
    {"question", core_question, METH_O, "(summary, snapshots, [(name, help, choices), ...])."},
    {"command", command, METH_O, "Run a command line."},
    {"categories", categories, METH_NOARGS, "Names of categories, by code."},
    {"rules", parse_rules, METH_VARARGS, "[(name, pattern, description, priority)]."},
    {"check_plan", check_plan, METH_VARARGS, "Raises for what is no plan."},
    {"ask", core_ask_alone, METH_VARARGS,
     "(Answer, Snapshot or None) of a question about no snapshot."},
    {"cuda_functions", core_cuda_functions, METH_NOARGS, "Addresses of C functions, by name."},
    {"is_foreign", is_foreign, METH_VARARGS, "Whether a description's model is not built in."},
    {"is_traced", is_traced, METH_VARARGS, "Whether a trace decides a parameter."},
    {"model_config", model_config, METH_VARARGS, "The description of a model, by its name."},
    {"models", models, METH_NOARGS, "Names of models."},
    {"terminal_clean", terminal_clean, METH_O, "A text without characters that drive a terminal."},
    {"rows", core_chosen_rows, METH_VARARGS,
     "Numbers of the rows that a key chooses, as a column."},
    {"range", core_range, METH_VARARGS, "A column of a number and those after it."},
    {"size", core_size, METH_O, "Bytes, of a number or a text such as '40GiB'."},
    {"size_text", size_text, METH_O, "A size as reports print it."},
    {"version", version, METH_NOARGS, "The library's version."},
    {"set_error_maker", set_error_maker, METH_O, "Who makes exceptions."},
    {"set_calculator", set_calculator, METH_O, "Who calculates with columns."},
    {"set_error_classes", set_error_classes, METH_VARARGS,
     "Exceptions for wrong calls and for wrong values."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tessera._core",
    .m_doc = "What tessera's C library does, for the package around it.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) {
  PyObject *module = PyModule_Create(&definition);
  if (module && core_column_ready(module) && core_snapshot_ready(module) &&
      core_answer_ready(module) && core_table_ready(module))
    return module;
  Py_XDECREF(module);
  return NULL;
}
