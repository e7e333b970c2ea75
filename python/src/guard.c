/* guard.c - the functions of cuda_functions.c, for tessera/_fake_cuda.py. */
#include "core.h"

#include <stdint.h>

#include "cuda_functions.h"

PyObject *core_cuda_functions(PyObject *module, PyObject *nothing) {
  PyObject *out = PyDict_New();
  (void)module;
  (void)nothing;
  for (const cuda_function *row = tessera_cuda_functions; out && row->name; row++) {
    PyObject *address = PyLong_FromUnsignedLongLong((uintptr_t)row->function);
    if (!address || PyDict_SetItemString(out, row->name, address)) Py_CLEAR(out);
    Py_XDECREF(address);
  }
  return out;
}
