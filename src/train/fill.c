/* fill.c - see fill.h. Numbers are made as doubles, some at a time, and rounded once. */
#include "train/fill.h"

#include <assert.h>

#include "kernels/random.h"

enum { PIECE = 1024 };

static double uniform_part(double uniform, double bound) {
  return (2 * uniform - 1) * bound;
}

/* Some elements of an initial tensor, in the order of its shape. */
static void make_initial(const tsr__kernel_tensor *t, const tsr__initial_value *initial,
                         uint64_t key, uint64_t first, size_t count, double *out) {
  uint64_t columns = tsr__shape_from_end(t->layout.shape, 0);
  tsr__initial_kind kind = initial->kind;
  double number = initial->number;
  if (kind == TSR__INITIAL_NORMAL) tsr__random_normal(key, first, count, out);
  if (kind == TSR__INITIAL_UNIFORM) tsr__random_uniform(key, first, count, out);
  for (size_t i = 0; i < count; i++) {
    uint64_t at = first + i;
    switch (kind) {
    case TSR__INITIAL_CONSTANT: out[i] = number; break;
    case TSR__INITIAL_NORMAL: out[i] *= number; break;
    case TSR__INITIAL_UNIFORM: out[i] = uniform_part(out[i], number); break;
    case TSR__INITIAL_CAUSAL: out[i] = at % columns <= at / columns; break;
    case TSR__INITIAL_ROTARY:
      out[i] = tsr__rotary_frequency(initial->rotary, initial->sequence, at);
      break;
    }
  }
}

void tsr__fill(const tsr__executor *executor, tsr__tensor_id tensor,
               const tsr__initial_value *initial, uint64_t key) {
  tsr__kernel_tensor to = tsr__executor_tensor(executor, tensor);
  uint64_t total = tsr__shape_elements(to.layout.shape);
  double numbers[PIECE];
  assert(to.data && tsr__layout_is_dense(to.layout));
  for (uint64_t first = 0; first < total;) {
    size_t count = total - first < PIECE ? (size_t)(total - first) : PIECE;
    make_initial(&to, initial, key, first, count, numbers);
    tsr__kernel_tensor from = {
        .data = numbers, .dtype = TSR__DTYPE_F64, .layout = tsr__layout_dense(TSR__SHAPE(count))};
    tsr__kernel_args copy = {.reads = {from}, .writes = {to}};
    copy.writes[0].layout = tsr__layout_dense(TSR__SHAPE(count));
    copy.writes[0].layout.offset = to.layout.offset + first;
    tsr__kernel_row_of(TSR__KERNEL_TO_COPY)->reference(&copy);
    first += count;
  }
}
