/* options.c - values out of the dict of keyword arguments that the Python half passes on.
 *
 * The Python half has named and typed them; here they become the structs of the C interface.
 */
#include "core.h"

#include <string.h>
#include <tessera/unstable/params.h>

/* A borrowed value, or NULL where it is absent or None. */
static PyObject *find(PyObject *options, const char *key) {
  PyObject *value = PyDict_GetItemString(options, key);
  return value == Py_None ? NULL : value;
}

bool core_option_integer(PyObject *options, const char *key, long long *out) {
  PyObject *value = find(options, key);
  if (!value) return true;
  PyObject *number = PyNumber_Index(value);
  if (!number) return false;
  *out = PyLong_AsLongLong(number);
  Py_DECREF(number);
  return !PyErr_Occurred();
}

bool core_option_count(PyObject *options, const char *key, uint64_t *out) {
  PyObject *value = find(options, key);
  if (!value) return true;
  PyObject *number = PyNumber_Index(value);
  if (!number) return false;
  unsigned long long count = PyLong_AsUnsignedLongLong(number);
  Py_DECREF(number);
  if (PyErr_Occurred()) {
    PyErr_Format(core_argument_error(), "%s must be from 0 to 2**64 - 1", key);
    return false;
  }
  *out = count;
  return true;
}

bool core_option_flag(PyObject *options, const char *key, bool *out) {
  PyObject *value = find(options, key);
  if (!value) return true;
  int truth = PyObject_IsTrue(value);
  *out = truth > 0;
  return truth >= 0;
}

/* UTF-8 of a str; bytes as they are. */
static bool text_of(PyObject *value, const char *key, PyObject *keep, const char **out,
                    size_t *size_bytes) {
  PyObject *bytes = NULL;
  char *data;
  Py_ssize_t size;
  if (PyUnicode_Check(value)) {
    bytes = PyUnicode_AsEncodedString(value, "utf-8", "surrogatepass");
  } else if (PyBytes_Check(value)) {
    Py_INCREF(value);
    bytes = value;
  } else {
    PyErr_Format(core_usage_error(), "%s must be a str", key);
  }
  bool ok =
      bytes && PyBytes_AsStringAndSize(bytes, &data, &size) == 0 && PyList_Append(keep, bytes) == 0;
  Py_XDECREF(bytes);
  if (!ok) return false;
  *out = data;
  if (size_bytes) {
    *size_bytes = (size_t)size;
  } else if (strlen(data) != (size_t)size) {
    PyErr_Format(core_argument_error(), "%s contains a zero byte", key);
    return false;
  }
  return true;
}

bool core_option_text(PyObject *options, const char *key, PyObject *keep, const char **out,
                      size_t *size_bytes) {
  PyObject *value = find(options, key);
  return !value || text_of(value, key, keep, out, size_bytes);
}

bool core_option_texts(PyObject *options, const char *key, PyObject *keep, const char ***out,
                       size_t *count) {
  PyObject *value = find(options, key);
  if (!value) return true;
  Py_ssize_t size = PySequence_Size(value);
  if (size < 0) return false;
  const char **texts = core_zeroed((size_t)size + 1, sizeof *texts);
  bool ok = texts != NULL;
  if (!ok) PyErr_NoMemory();
  for (Py_ssize_t i = 0; ok && i < size; i++) {
    PyObject *item = PySequence_GetItem(value, i);
    ok = item && text_of(item, key, keep, &texts[i], NULL);
    Py_XDECREF(item);
  }
  if (!ok) {
    PyMem_Free(texts);
    return false;
  }
  *out = texts;
  *count = (size_t)size;
  return true;
}

static bool device_of(PyObject *item, uint32_t *out) {
  PyObject *number = item ? PyNumber_Index(item) : NULL;
  if (!number) return false;
  unsigned long value = PyLong_AsUnsignedLong(number);
  Py_DECREF(number);
  if (PyErr_Occurred() || value >= UINT32_MAX) {
    PyErr_SetString(core_argument_error(), "a device must be a non-negative integer");
    return false;
  }
  *out = (uint32_t)value;
  return true;
}

bool core_option_query(PyObject *options, tsr_query *query, uint32_t **devices) {
  uint64_t top = 0;
  PyObject *value = find(options, "devices");
  *query = (tsr_query){0};
  *devices = NULL;
  if (!core_option_count(options, "top", &top)) return false;
  query->top = top > SIZE_MAX ? SIZE_MAX : (size_t)top;
  if (!value) return true;
  Py_ssize_t size = PySequence_Size(value);
  if (size < 0) return false;
  uint32_t *numbers = core_zeroed((size_t)size + 1, sizeof *numbers);
  if (!numbers) {
    PyErr_NoMemory();
    return false;
  }
  for (Py_ssize_t i = 0; i < size; i++) {
    PyObject *item = PySequence_GetItem(value, i);
    bool ok = device_of(item, &numbers[i]);
    Py_XDECREF(item);
    if (ok) continue;
    PyMem_Free(numbers);
    return false;
  }
  query->devices = *devices = numbers;
  query->device_count = (size_t)size;
  return true;
}

bool core_option_where(PyObject *options, tsr_at_where *where, bool *is_given) {
  long long event = 0, time_us = 0, action = TSR_ACTION_ALLOC;
  uint64_t address = 0, version = 0;
  *is_given = true;
  *where = (tsr_at_where){.kind = TSR_AT_EVENT};
  if (!core_option_integer(options, "event", &event) ||
      !core_option_integer(options, "time_us", &time_us) ||
      !core_option_integer(options, "action", &action) ||
      !core_option_count(options, "address", &address) ||
      !core_option_count(options, "version", &version))
    return false;
  if (find(options, "event"))
    where->event = event;
  else if (find(options, "time_us"))
    *where = (tsr_at_where){.kind = TSR_AT_TIME, .time_us = time_us};
  else if (find(options, "address"))
    *where = (tsr_at_where){.kind = TSR_AT_ALLOCATION,
                            .address = address,
                            .version = version,
                            .action = (tsr_action)action};
  else
    *is_given = false;
  return true;
}

bool core_option_window(PyObject *options, tsr_window *window, bool *is_given) {
  PyObject *events = find(options, "events"), *times = find(options, "times");
  PyObject *pair = events ? events : times;
  *window = (tsr_window){.is_time = !events && times, .first = 0, .last = INT64_MAX};
  *is_given = pair != NULL;
  if (!pair) return true;
  if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
    PyErr_SetString(core_usage_error(), "a range must be a pair: (first, last)");
    return false;
  }
  for (Py_ssize_t i = 0; i < 2; i++) {
    PyObject *end = PyTuple_GetItem(pair, i);
    if (end == Py_None) continue;
    long long value = PyLong_AsLongLong(end);
    if (PyErr_Occurred()) return false;
    *(i ? &window->last : &window->first) = value;
  }
  return true;
}

/* ---- rules ---- */

static bool fail_rules(const tsr_rule_problem *problem, const tsr_error *error, int status) {
  tsr_error said = {.status = (tsr_status)status, .offset = error->offset};
  if (problem->message[0])
    PyOS_snprintf(said.message, sizeof said.message, "rule '%.80s': %s, at offset %zu",
                  problem->rule.name, problem->message, problem->offset_bytes);
  else
    said = *error;
  core_raise(status, &said, NULL);
  return false;
}

bool core_option_rules(PyObject *options, PyObject *keep, tsr_rules **out) {
  const char *text = NULL;
  size_t size_bytes = 0;
  bool is_lenient = false;
  if (!core_option_text(options, "rules", keep, &text, &size_bytes) ||
      !core_option_flag(options, "lenient", &is_lenient))
    return false;
  if (!text) return true;
  tsr_rule_problem problem = {0};
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  int status = tsr_rules_parse(text, size_bytes, is_lenient ? TSR_RULES_LENIENT : TSR_RULES_STRICT,
                               out, &problem, &error);
  bool ok = status == 0 || fail_rules(&problem, &error, status);
  tsr_rule_problem_release(&problem);
  return ok;
}

/* ---- parameters ---- */

static bool fail_type(const tsr_parameter *row, const char *type) {
  PyErr_Format(core_usage_error(), "%s must be %s", row->name, type);
  return false;
}

/* 0, or an exception for a setter that refused. */
static bool is_set(int status, const tsr_error *error) {
  if (status) core_raise(status, error, NULL);
  return status == 0;
}

/* An integer of any size, as digits; a number of bytes with its unit, which texts must have. */
static bool set_number(tsr_params *params, const tsr_parameter *row, PyObject *value,
                       tsr_error *error) {
  PyObject *number = PyNumber_Index(value);
  bool is_size = row->kind == TSR_PARAMETER_BYTES;
  PyObject *text = number ? PyUnicode_FromFormat(is_size ? "%SB" : "%S", number) : NULL;
  PyObject *bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
  bool ok = bytes && is_set(tsr_params_set_text(params, row->name, PyBytes_AsString(bytes),
                                                (size_t)PyBytes_Size(bytes), error),
                            error);
  Py_XDECREF(number);
  Py_XDECREF(text);
  Py_XDECREF(bytes);
  return ok;
}

static bool set_text(tsr_params *params, const tsr_parameter *row, PyObject *value, PyObject *keep,
                     tsr_error *error) {
  const char *text = NULL;
  size_t size_bytes = 0;
  return text_of(value, row->name, keep, &text, &size_bytes) &&
         is_set(tsr_params_set_text(params, row->name, text, size_bytes, error), error);
}

/* (path, contents) of a file that the Python half has read, or the contents alone. */
static bool set_file(tsr_params *params, const tsr_parameter *row, PyObject *value, PyObject *keep,
                     tsr_error *error) {
  const char *path = NULL, *text = NULL;
  size_t size_bytes = 0;
  if (!PyTuple_Check(value)) return set_text(params, row, value, keep, error);
  if (PyTuple_Size(value) != 2) return fail_type(row, "a pair: (path, contents)");
  if (!text_of(PyTuple_GetItem(value, 0), row->name, keep, &path, NULL) ||
      !text_of(PyTuple_GetItem(value, 1), row->name, keep, &text, &size_bytes))
    return false;
  int status = tsr_params_set_file(params, row->name, path, text, size_bytes, error);
  if (status) core_raise(status, error, path);
  return status == 0;
}

static bool set_texts(tsr_params *params, const tsr_parameter *row, PyObject *value, PyObject *keep,
                      tsr_error *error) {
  bool ok = true;
  if (PyUnicode_Check(value)) return set_text(params, row, value, keep, error);
  Py_ssize_t size = PySequence_Size(value);
  if (size < 0) return false;
  for (Py_ssize_t i = 0; ok && i < size; i++) {
    PyObject *item = PySequence_GetItem(value, i);
    ok = item && set_text(params, row, item, keep, error);
    Py_XDECREF(item);
  }
  return ok;
}

static bool set_value(tsr_params *params, const tsr_parameter *row, PyObject *options,
                      PyObject *value, PyObject *keep) {
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  tsr_rules *rules = NULL;
  int truth;
  switch (row->kind) {
  case TSR_PARAMETER_FLAG:
  case TSR_PARAMETER_TRUTH:
    truth = PyObject_IsTrue(value);
    return truth >= 0 && is_set(tsr_params_set_integer(params, row->name, truth, &error), &error);
  case TSR_PARAMETER_COUNT: return set_number(params, row, value, &error);
  case TSR_PARAMETER_INTEGER:
    return row->synonyms && PyUnicode_Check(value) ? set_text(params, row, value, keep, &error)
                                                   : set_number(params, row, value, &error);
  case TSR_PARAMETER_TIME:
  case TSR_PARAMETER_BYTES:
    return PyUnicode_Check(value) ? set_text(params, row, value, keep, &error)
                                  : set_number(params, row, value, &error);
  case TSR_PARAMETER_TEXTS:
  case TSR_PARAMETER_CHOICES:
  case TSR_PARAMETER_SETTINGS: return set_texts(params, row, value, keep, &error);
  case TSR_PARAMETER_OBJECT:
    if (row->type != &tsr_rules_type) return set_file(params, row, value, keep, &error);
    return core_option_rules(options, keep, &rules) &&
           is_set(tsr_params_set_object(params, row->name, &tsr_rules_type, rules, &error), &error);
  case TSR_PARAMETER_FILE: return set_file(params, row, value, keep, &error);
  case TSR_PARAMETER_PATH:
  case TSR_PARAMETER_SNAPSHOT:
  case TSR_PARAMETER_CHOICE:
  case TSR_PARAMETER_TEXT:
  case TSR_PARAMETER_DEVICES:
  case TSR_PARAMETER_SETTING: break;
  }
  return set_text(params, row, value, keep, &error);
}

/* size(value): bytes, of a number or a text such as '40GiB' as the library reads it; None of None. */
PyObject *core_size(PyObject *Py_UNUSED(module), PyObject *value) {
  static const char name[] = "capacity"; /* whose kind is BYTES, in the question "whatif" */
  const tsr_question *question = tsr_question_find("whatif");
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  tsr_params *params = NULL;
  PyObject *keep = PyList_New(0), *options = NULL, *out = NULL;
  if (value == Py_None) {
    Py_XDECREF(keep);
    Py_RETURN_NONE;
  }
  if (!keep || !question) goto done;
  if (tsr_question_params(question, TSR_INTERFACE_PYTHON, &params, &error)) {
    PyErr_NoMemory();
    goto done;
  }
  options = PyDict_New();
  if (options &&
      set_value(params, tsr_params_find(params, name, strlen(name)), options, value, keep))
    out = PyLong_FromUnsignedLongLong(tsr_params_count(params, name));
done:
  tsr_params_free(params);
  Py_XDECREF(options);
  Py_XDECREF(keep);
  return out;
}

/* Keys that are no parameters: those of every question, and how rules are read. */
static bool is_shared(const char *key) {
  return strcmp(key, "devices") == 0 || strcmp(key, "top") == 0 || strcmp(key, "lenient") == 0;
}

bool core_option_params(PyObject *options, const tsr_question *question, tsr_params *params) {
  PyObject *key, *value, *keep = PyList_New(0);
  Py_ssize_t at = 0;
  bool ok = keep != NULL;
  while (ok && PyDict_Next(options, &at, &key, &value)) {
    const char *name = NULL;
    if (!text_of(key, "a parameter", keep, &name, NULL)) break;
    if (is_shared(name) || value == Py_None) continue;
    const tsr_parameter *row = tsr_params_find(params, name, strlen(name));
    if (!row) PyErr_Format(core_usage_error(), "'%s' has no parameter '%s'", question->name, name);
    ok = row && set_value(params, row, options, value, keep);
  }
  Py_XDECREF(keep);
  return ok && !PyErr_Occurred();
}
