/* common.c - what all other files call: errors, texts, lists, long calls. It calls none of them. */
#include "core.h"

core_types core;

/* ---- errors and texts ---- */

PyObject *core_usage_error(void) {
  return core.usage_error ? core.usage_error : PyExc_TypeError;
}

PyObject *core_argument_error(void) {
  return core.argument_error ? core.argument_error : PyExc_ValueError;
}

PyObject *core_raise(int status, const tsr_error *error, const char *path) {
  if (PyErr_Occurred()) return NULL;
  if (status == TSR_ERROR_MEMORY) return PyErr_NoMemory();
  const char *message =
      error && error->message[0] ? error->message : tsr_status_text((tsr_status)status);
  long long offset = error && error->offset != TSR_OFFSET_NONE ? (long long)error->offset : -1;
  PyObject *exception = core.make_error ? PyObject_CallFunction(core.make_error, "iLsz", status,
                                                                offset, message, path)
                                        : NULL;
  if (exception)
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
  else if (!PyErr_Occurred())
    PyErr_SetString(PyExc_RuntimeError, message);
  Py_XDECREF(exception);
  return NULL;
}

PyObject *core_text(tsr_text text) {
  PyObject *decoded = PyUnicode_DecodeUTF8(text.data, (Py_ssize_t)text.size_bytes, "surrogatepass");
  if (decoded) return decoded;
  PyErr_Clear();
  return PyUnicode_DecodeUTF8(text.data, (Py_ssize_t)text.size_bytes, "replace");
}

PyObject *core_words(const char *const *words) {
  PyObject *list = PyList_New(0);
  for (; list && words && *words; words++) {
    PyObject *word = PyUnicode_FromString(*words);
    if (!word || PyList_Append(list, word)) Py_CLEAR(list);
    Py_XDECREF(word);
  }
  return list;
}

bool core_put(PyObject *dict, const char *name, PyObject *object) {
  bool ok = object && PyDict_SetItemString(dict, name, object) == 0;
  Py_XDECREF(object);
  return ok;
}

PyObject *core_refuse_new(PyTypeObject *Py_UNUSED(type), PyObject *Py_UNUSED(arguments),
                          PyObject *Py_UNUSED(keywords)) {
  PyErr_SetString(PyExc_TypeError, "created only by tessera.open()");
  return NULL;
}

/* ---- long calls ---- */

bool core_call_continues(void *context, uint64_t done_units, uint64_t total_units) {
  core_call *now = context;
  PyEval_RestoreThread(now->thread);
  bool is_wanted = PyErr_CheckSignals() == 0;
  if (is_wanted && now->progress) {
    PyObject *answer = PyObject_CallFunction(now->progress, "KK", (unsigned long long)done_units,
                                             (unsigned long long)total_units);
    is_wanted = answer != NULL;
    Py_XDECREF(answer);
  }
  now->thread = PyEval_SaveThread();
  return is_wanted;
}
