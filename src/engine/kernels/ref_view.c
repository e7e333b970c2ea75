/* ref_view.c - reads and writes elements of any type and layout as doubles. See reference.h. */
#include <assert.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/reference.h"

tsr__strided tsr__strided_with(const tsr__kernel_tensor *tensor, tsr__layout layout) {
  tsr__strided v = {.data = tensor->data, .dtype = tensor->dtype, .offset = layout.offset};
  uint32_t missing = TSR__SHAPE_RANK - layout.shape.rank;
  assert(tensor->data && layout.shape.rank <= TSR__SHAPE_RANK);
  for (uint32_t i = 0; i < TSR__SHAPE_RANK; i++) {
    v.dim[i] = i < missing ? 1 : layout.shape.dim[i - missing];
    v.stride[i] = i < missing || v.dim[i] == 1 ? 0 : layout.stride[i - missing];
  }
  return v;
}

tsr__strided tsr__strided_of(const tsr__kernel_tensor *tensor) {
  return tsr__strided_with(tensor, tensor->layout);
}

tsr__strided tsr__strided_repeated(const tsr__kernel_tensor *tensor, const tsr__strided *model) {
  tsr__strided v = tsr__strided_of(tensor);
  for (uint32_t i = 0; i < TSR__SHAPE_RANK; i++) {
    assert(v.dim[i] == model->dim[i] || v.dim[i] == 1);
    if (v.dim[i] == 1) v.stride[i] = 0;
    v.dim[i] = model->dim[i];
  }
  return v;
}

/* Join dimension `outer` and the next, if all views allow it. */
static void join(tsr__strided *views, const bool *is_there, uint32_t count, uint32_t outer) {
  const tsr__strided *model = views;
  while (!is_there[model - views]) model++;
  uint64_t size = model->dim[outer + 1], all = size * model->dim[outer];
  bool is_one = model->dim[outer] == 1;
  for (uint32_t i = 0; i < count; i++) {
    const uint64_t *stride = views[i].stride;
    if (is_there[i] && !is_one && size != 1 && stride[outer] != size * stride[outer + 1]) return;
  }
  for (uint32_t i = 0; i < count; i++) {
    tsr__strided *v = &views[i];
    if (!is_there[i]) continue;
    if (size == 1) v->stride[outer + 1] = v->stride[outer];
    v->dim[outer + 1] = all;
    for (uint32_t k = outer; k > 0; k--) {
      v->dim[k] = v->dim[k - 1];
      v->stride[k] = v->stride[k - 1];
    }
    v->dim[0] = 1;
    v->stride[0] = 0;
  }
}

void tsr__strided_join(tsr__strided *views, const bool *is_there, uint32_t count) {
  for (uint32_t round = 0; round < 3; round++)
    for (uint32_t outer = 3; outer-- > 0;) join(views, is_there, count, outer);
}

/* ---- loading and storing numbers ---- */

/* The case of a type, for contiguous elements and for others. */
#define CASE(name, type, convert)                                            \
  case name: {                                                               \
    const type *from = (const type *)v->data + at;                           \
    if (stride == 1)                                                         \
      for (size_t i = 0; i < count; i++) out[i] = convert(from[i]);          \
    else                                                                     \
      for (size_t i = 0; i < count; i++) out[i] = convert(from[i * stride]); \
    break;                                                                   \
  }

void tsr__strided_load(const tsr__strided *v, uint64_t at, uint64_t stride, size_t count,
                       double *out) {
  switch (v->dtype) {
    CASE(TSR__DTYPE_F32, float, (double))
    CASE(TSR__DTYPE_F64, double, (double))
    CASE(TSR__DTYPE_BF16, uint16_t, (double)tsr__bf16_to_float)
    CASE(TSR__DTYPE_F16, uint16_t, (double)tsr__f16_to_float)
    CASE(TSR__DTYPE_I64, int64_t, (double))
    CASE(TSR__DTYPE_BOOL, uint8_t, (double))
    CASE(TSR__DTYPE_I8, int8_t, (double))
  }
}
#undef CASE

#define CASE(name, type, convert)                                         \
  case name: {                                                            \
    type *to = (type *)v->data + at;                                      \
    if (stride == 1)                                                      \
      for (size_t i = 0; i < count; i++) to[i] = convert(in[i]);          \
    else                                                                  \
      for (size_t i = 0; i < count; i++) to[i * stride] = convert(in[i]); \
    break;                                                                \
  }
#define BF16(x) tsr__bf16_of_float((float)(x))
#define F16(x)  tsr__f16_of_float((float)(x))

void tsr__strided_store(const tsr__strided *v, uint64_t at, uint64_t stride, size_t count,
                        const double *in) {
  switch (v->dtype) {
    CASE(TSR__DTYPE_F32, float, (float))
    CASE(TSR__DTYPE_F64, double, (double))
    CASE(TSR__DTYPE_BF16, uint16_t, BF16)
    CASE(TSR__DTYPE_F16, uint16_t, F16)
    CASE(TSR__DTYPE_I64, int64_t, (int64_t))
    CASE(TSR__DTYPE_BOOL, uint8_t, 0 !=)
    CASE(TSR__DTYPE_I8, int8_t, (int8_t))
  }
}
#undef CASE

double tsr__strided_get(const tsr__strided *v, uint64_t at) {
  double number = 0; /* compilers do not see that one element is loaded */
  tsr__strided_load(v, at, 1, 1, &number);
  return number;
}

void tsr__strided_put(const tsr__strided *v, uint64_t at, double number) {
  tsr__strided_store(v, at, 1, 1, &number);
}

double tsr__number_of(const tsr__kernel_tensor *tensor) {
  tsr__strided v = tsr__strided_of(tensor);
  assert(tsr__strided_elements(&v));
  return tsr__strided_get(&v, v.offset);
}

void tsr__put_number(const tsr__kernel_tensor *tensor, double number) {
  tsr__strided v = tsr__strided_of(tensor);
  assert(tsr__strided_elements(&v));
  tsr__strided_put(&v, v.offset, number);
}
