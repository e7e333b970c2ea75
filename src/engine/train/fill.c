/* fill.c - see fill.h. Numbers are computed as doubles, a piece at a time, and rounded once. Each depends only on its
 * index, so threads can share the pieces of a tensor. */
#include "train/fill.h"

#include <assert.h>

#include "base/pool.h"
#include "kernels/random.h"

enum { PIECE = 1024, TASK = 64 * PIECE };

static double uniform_part(double uniform, double bound) {
  return (2 * uniform - 1) * bound;
}

/* Make some elements of an initial tensor, in the order of its shape. */
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

typedef struct filling {
  tsr__kernel_tensor to;
  const tsr__initial_value *initial;
  uint64_t key, total;
} filling;

/* Fill one piece, rounded to the tensor's type. */
static void fill_piece(const filling *f, uint64_t first, size_t count) {
  double numbers[PIECE];
  make_initial(&f->to, f->initial, f->key, first, count, numbers);
  tsr__kernel_tensor from = {
      .data = numbers, .dtype = TSR__DTYPE_F64, .layout = tsr__layout_dense(TSR__SHAPE(count))};
  tsr__kernel_args copy = {.reads = {from}, .writes = {f->to}};
  copy.writes[0].layout = tsr__layout_dense(TSR__SHAPE(count));
  copy.writes[0].layout.offset = f->to.layout.offset + first;
  tsr__kernel_row_of(TSR__KERNEL_TO_COPY)->reference(&copy);
}

static int fill_task(void *context, size_t index, tsr_error *error) {
  const filling *f = context;
  uint64_t first = (uint64_t)index * TASK, end = f->total - first < TASK ? f->total : first + TASK;
  (void)error;
  for (; first < end; first += PIECE)
    fill_piece(f, first, end - first < PIECE ? (size_t)(end - first) : PIECE);
  return 0;
}

void tsr__fill(const tsr__executor *executor, tsr__tensor_id tensor,
               const tsr__initial_value *initial, uint64_t key) {
  tsr__kernel_tensor to = tsr__executor_tensor(executor, tensor);
  tsr__fill_tensor(&to, tsr__executor_pool(executor), initial, key);
}

void tsr__fill_tensor(const tsr__kernel_tensor *to, struct tsr__thread_pool *pool,
                      const tsr__initial_value *initial, uint64_t key) {
  filling f = {.to = *to, .initial = initial, .key = key};
  tsr_error error;
  f.total = tsr__shape_elements(f.to.layout.shape);
  assert(f.to.data && tsr__layout_is_dense(f.to.layout));
  int status = tsr__thread_pool_each(pool, NULL, (size_t)((f.total + TASK - 1) / TASK), fill_task,
                                     &f, &error);
  assert(status == 0); /* tasks do not fail, and nothing cancels them */
  (void)status;
}
