/* Products of matrices by oneDNN: as own kernels compute them, for any number of threads, and when it is
 * chosen. Skipped if it is not installed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "kernels/fast.h"
#include "kernels/half.h"
#include "kernels/library.h"
#include "kernels/random.h"
#include "test_support.h"
#include "train/products.h"

/* (rows, depth) by (depth, columns). */
typedef struct problem {
  uint64_t rows, depth, columns;
  bool is_transposed[2];
  tsr__dtype a, b, to;
  bool adds;
} problem;

static const problem problems[] = {
    {300, 70, 90, {false, false}, TSR__DTYPE_F32, TSR__DTYPE_F32, TSR__DTYPE_F32, false},
    {300, 70, 600, {false, true}, TSR__DTYPE_F32, TSR__DTYPE_F32, TSR__DTYPE_F32, true},
    {130, 600, 300, {true, false}, TSR__DTYPE_F32, TSR__DTYPE_F32, TSR__DTYPE_F32, true},
    {1, 64, 257, {false, true}, TSR__DTYPE_F32, TSR__DTYPE_F32, TSR__DTYPE_F32, false},
    {300, 70, 600, {false, false}, TSR__DTYPE_F32, TSR__DTYPE_F32, TSR__DTYPE_BF16, true},
    {300, 70, 300, {false, true}, TSR__DTYPE_BF16, TSR__DTYPE_BF16, TSR__DTYPE_BF16, false},
    {130, 300, 600, {true, false}, TSR__DTYPE_BF16, TSR__DTYPE_BF16, TSR__DTYPE_F32, true},
    {300, 600, 300, {false, true}, TSR__DTYPE_BF16, TSR__DTYPE_F32, TSR__DTYPE_F32, false},
    {300, 600, 520, {false, false}, TSR__DTYPE_BF16, TSR__DTYPE_F32, TSR__DTYPE_BF16, false},
};
enum { PROBLEMS = sizeof problems / sizeof *problems, PITCH_MORE = 24 };

/* Random numbers with the bits of bf16, in rows with room after them. */
static tsr__kernel_tensor make(tsr__dtype dtype, uint64_t rows, uint64_t columns, uint64_t key) {
  uint64_t pitch = columns + PITCH_MORE, count = rows * pitch;
  tsr__kernel_tensor t = {.data = calloc(count, tsr__dtype_bytes(dtype)), .dtype = dtype};
  t.layout = tsr__layout_slice(tsr__layout_dense(TSR__SHAPE(rows, pitch)), 1, 0, columns);
  assert_non_null(t.data);
  for (uint64_t i = 0; i < count; i++) {
    double number;
    tsr__random_normal(key, i, 1, &number);
    uint16_t half = tsr__bf16_of_float((float)number);
    if (dtype == TSR__DTYPE_F32)
      ((float *)t.data)[i] = tsr__bf16_to_float(half);
    else
      ((uint16_t *)t.data)[i] = half;
  }
  return t;
}

static tsr__kernel_args args_of(const problem *p) {
  const bool *is_across = p->is_transposed;
  tsr__kernel_args args = {.is_transposed = {is_across[0], is_across[1]}};
  args.reads[0] =
      make(p->a, is_across[0] ? p->depth : p->rows, is_across[0] ? p->rows : p->depth, 1);
  args.reads[1] =
      make(p->b, is_across[1] ? p->columns : p->depth, is_across[1] ? p->depth : p->columns, 2);
  args.writes[0] = make(p->to, p->rows, p->columns, 3);
  if (p->adds) args.reads[2] = make(TSR__DTYPE_F32, p->rows, p->columns, 4);
  return args;
}

static void release(tsr__kernel_args *args) {
  for (size_t i = 0; i < 3; i++) free(args->reads[i].data);
  free(args->writes[0].data);
}

static size_t size_of(const tsr__kernel_args *args) {
  const tsr__kernel_tensor *t = &args->writes[0];
  return (size_t)(t->layout.shape.dim[0] * t->layout.stride[0] * tsr__dtype_bytes(t->dtype));
}

static double number_at(const tsr__kernel_tensor *t, uint64_t row, uint64_t column) {
  uint64_t at = row * t->layout.stride[0] + column;
  return t->dtype == TSR__DTYPE_F32 ? (double)((float *)t->data)[at]
                                    : (double)tsr__bf16_to_float(((uint16_t *)t->data)[at]);
}

static void compare(const problem *p, const tsr__kernel_tensor *got,
                    const tsr__kernel_tensor *expected, const char *name) {
  double allowed = p->to == TSR__DTYPE_F32 ? 1e-5 : 1.0 / 128;
  for (uint64_t i = 0; i < p->rows; i++)
    for (uint64_t j = 0; j < p->columns + PITCH_MORE; j++) {
      double x = number_at(got, i, j), y = number_at(expected, i, j);
      double most = j < p->columns ? allowed * (fabs(y) + sqrt((double)p->depth)) : 0;
      if (!(fabs(x - y) <= most))
        fail_msg("%s: %zu: (%d, %d): %g, not %g", name, (size_t)(p - problems), (int)i, (int)j, x,
                 y);
    }
}

static void try_problem(tsr__library *library, const problem *p) {
  tsr__kernel_args expected = args_of(p), one = args_of(p);
  tsr__kernel_fn *multiply = tsr__kernel_fast(TSR__KERNEL_MM, tsr__isa_best());
  multiply(&expected);
  one.library = library;
  multiply(&one);
  compare(p, &one.writes[0], &expected.writes[0], tsr__library_name(library));
  for (unsigned threads = 2; threads < 4; threads++) {
    tsr__kernel_args many = args_of(p);
    many.library = library;
    many.pool = tsr__thread_pool_new(threads);
    multiply(&many);
    assert_memory_equal(many.writes[0].data, one.writes[0].data, size_of(&one));
    tsr__thread_pool_free(many.pool);
    release(&many);
  }
  release(&one);
  release(&expected);
}

static void library_products(void **state) {
  (void)state;
  tsr__library *library;
  tsr_error error = {0};
  int status = tsr__library_open(&library, &error);
  if (status) {
    assert_int_equal(status, TSR_ERROR_UNSUPPORTED);
    print_message("skipped: %s\n", error.message);
    return;
  }
  for (size_t i = 0; i < PROBLEMS; i++) try_problem(library, &problems[i]);
  tsr__library_free(library);
}

static void choice(void **state) {
  tsr__products_question q = {.is_possible = true, .width = 64, .flops = UINT64_MAX};
  tsr__products p;
  tsr_error error = {0};
  (void)state;
  assert_int_equal(tsr__products_choose(&q, &p, &error), 0);
  assert_true(p.chosen != TSR_TRAIN_PRODUCTS_AUTO && strstr(p.text, "GFLOP/s"));
  assert_true((p.chosen == TSR_TRAIN_PRODUCTS_OWN) == (p.library == NULL));
  tsr__products_release(&p);
  q.flops = 1000; /* too short to be measured */
  assert_int_equal(tsr__products_choose(&q, &p, &error), 0);
  assert_true(p.chosen == TSR_TRAIN_PRODUCTS_OWN && !p.library && !*p.text);
  q.wanted = TSR_TRAIN_PRODUCTS_ONEDNN;
  q.is_possible = false;
  assert_int_equal(tsr__products_choose(&q, &p, &error), TSR_ERROR_UNSUPPORTED);
  assert_string_equal(error.message, "oneDNN does not multiply numbers of this type");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(library_products), cmocka_unit_test(choice)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
