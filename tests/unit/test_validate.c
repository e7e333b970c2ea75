/* Tests of the validator: small programs that are right, and each of its rules broken once. */
#include <string.h>

#include "graph/op.h"
#include "graph/validate.h"
#include "test_support.h"

/* x and y are parameters, of 12 elements; runs:
 *
 *   0  sum = x + y          (3, 4)
 *   1  mask and dropped of sum, at random
 *   2  x += dropped
 *   3  product = x y^T      (3, 3)
 *   4  y += product's mean, repeated */
typedef struct bench {
  tsr__tape tape;
  tsr__schedule schedule; /* once it is finished: see made() */
  tsr__tensor_id x, y, sum, dropped, mask, product, mean;
} bench;

static tsr__tensor_id make(bench *b, tsr__kernel_use use, tsr__shape shape) {
  use.op = TSR_NONE;
  return tsr__tape_run_new(&b->tape, &use, TSR__DTYPE_F32, tsr__layout_dense(shape));
}

static void note(bench *b, tsr__kernel_use use) {
  use.op = TSR_NONE;
  tsr__tape_run(&b->tape, &use);
}

static void open_bench(bench *b) {
  tsr__tape *t = &b->tape;
  b->schedule = (tsr__schedule){.flops = 0};
  tsr__shape shape = TSR__SHAPE(3, 4);
  assert_true(tsr__tape_init(t, &tsr__book_torch, NULL));
  b->x = tsr__tensor_declare(t, TSR__DTYPE_F32, shape, TSR_CATEGORY_PARAMETER);
  b->y = tsr__tensor_declare(t, TSR__DTYPE_F32, shape, TSR_CATEGORY_PARAMETER);
  b->sum = make(b, (tsr__kernel_use){.kernel = TSR__KERNEL_ADD, .reads = {b->x, b->y}}, shape);
  b->dropped = tsr__tensor_new(t, TSR__KERNEL_DROPOUT, TSR__DTYPE_F32, shape);
  b->mask = tsr__tensor_new(t, TSR__KERNEL_DROPOUT, TSR__DTYPE_BOOL, shape);
  note(b, (tsr__kernel_use){.kernel = TSR__KERNEL_DROPOUT,
                            .reads = {b->sum},
                            .writes = {b->dropped, b->mask},
                            .scalars = {{TSR__SCALAR_NUMBER, 0.1}},
                            .draw = 1});
  tsr__tensor_release(t, b->sum);
  note(b,
       (tsr__kernel_use){.kernel = TSR__KERNEL_ADD, .reads = {b->x, b->dropped}, .writes = {b->x}});
  tsr__tensor_release(t, b->mask);
  tsr__tensor_release(t, b->dropped);
  b->product =
      make(b, (tsr__kernel_use){.kernel = TSR__KERNEL_MM, .reads = {b->x, b->y}, .transposed = 2},
           TSR__SHAPE(3, 3));
  b->mean =
      make(b, (tsr__kernel_use){.kernel = TSR__KERNEL_MEAN, .reads = {b->product}}, TSR__SHAPE(1));
  note(b, (tsr__kernel_use){.kernel = TSR__KERNEL_ADD, .reads = {b->y, b->mean}, .writes = {b->y}});
  tsr__tensor_release(t, b->mean);
  tsr__tensor_release(t, b->product);
}

/* What was recorded, to be broken. Nothing can be recorded any more. */
static tsr__schedule *made(bench *b) {
  if (!b->schedule.slots.count) assert_int_equal(tsr__tape_finish(&b->tape, &b->schedule), 0);
  return &b->schedule;
}

static void close_bench(bench *b, tsr__violation_rule rule, const char *text) {
  tsr__violation violation;
  int status = tsr__schedule_validate(made(b), &violation);
  if (violation.rule != rule || !strstr(violation.text, text))
    fail_msg("rule %d, \"%s\"; expected rule %d, \"%s\"", violation.rule, violation.text, rule,
             text);
  assert_int_equal(status, rule == TSR__VIOLATION_NONE ? 0 : TSR_ERROR_ARGUMENT);
  tsr__tape_release(&b->tape);
  tsr__schedule_release(&b->schedule);
}

/* Where a kind of instruction stands in the schedule for the n-th time. */
static size_t find(bench *b, tsr__instr_kind kind, size_t n) {
  for (size_t i = 0; i < made(b)->instrs.count; i++)
    if (made(b)->instrs.items[i].kind == kind && !n--) return i;
  fail_msg("no such instruction");
  return 0;
}

/* Take an instruction out. */
static void omit(bench *b, size_t i) {
  made(b)->instrs.items[i] = (tsr__instr){.kind = TSR__INSTR_BEGIN};
}

static tsr__tensor_id *operand(bench *b, size_t run, size_t i) {
  return &made(b)->operands.items[made(b)->runs.items[run].first_operand + i];
}

/* Some of a tensor, which may be gone by now. */
static tsr__tensor_id slice_of(bench *b, tsr__tensor_id tensor, uint32_t dim, uint64_t first,
                               uint64_t count) {
  tsr__step_tensor part = *tsr__schedule_tensor(made(b), tensor);
  part.layout = tsr__layout_slice(part.layout, dim, first, count);
  assert_true(TSR__VECTOR_PUSH(&made(b)->tensors, part));
  return (tsr__tensor_id)made(b)->tensors.count - 1;
}

static void right(void **state) {
  bench b;
  (void)state;
  open_bench(&b);
  close_bench(&b, TSR__VIOLATION_NONE, "");
}

static void memory(void **state) {
  bench b;
  (void)state;
  open_bench(&b); /* the sum is dropped before it is read */
  size_t drop = find(&b, TSR__INSTR_DROP, 0), run = find(&b, TSR__INSTR_RUN, 1);
  tsr__instr instr = made(&b)->instrs.items[drop];
  made(&b)->instrs.items[drop] = made(&b)->instrs.items[run];
  made(&b)->instrs.items[run] = instr;
  close_bench(&b, TSR__VIOLATION_ABSENT, "the memory of its operand 0 is not there");
  open_bench(&b); /* never allocated */
  omit(&b, find(&b, TSR__INSTR_NEW, 3));
  close_bench(&b, TSR__VIOLATION_ABSENT, "mm of no op: the memory of its result 0 is not there");
  open_bench(&b);
  made(&b)->tensors.items[b.sum].layout.offset = 1;
  close_bench(&b, TSR__VIOLATION_BOUNDS, "reaches element 12 of a storage of 12");
  open_bench(&b); /* a product onto its operand */
  *operand(&b, 3, 2) = b.x;
  made(&b)->tensors.items[b.product].layout = made(&b)->tensors.items[b.x].layout;
  close_bench(&b, TSR__VIOLATION_ALIAS, "its result 0 lies on its operand 0, which it may not");
  open_bench(&b); /* in place, but a row further on */
  *operand(&b, 2, 2) = slice_of(&b, b.x, 0, 1, 2);
  close_bench(&b, TSR__VIOLATION_ALIAS, "lies on its operand 0, but elsewhere");
  open_bench(&b);
  *operand(&b, 1, 2) = b.dropped;
  close_bench(&b, TSR__VIOLATION_ALIAS, "its results 0 and 1 overlap");
}

static void flow(void **state) {
  bench b;
  (void)state;
  open_bench(&b);
  omit(&b, find(&b, TSR__INSTR_RUN, 0));
  close_bench(&b, TSR__VIOLATION_UNWRITTEN, "dropout of no op: it reads its operand 0");
  open_bench(&b); /* half of it */
  *operand(&b, 0, 2) = slice_of(&b, b.sum, 1, 0, 2);
  *operand(&b, 0, 0) = *operand(&b, 0, 1) = slice_of(&b, b.x, 1, 0, 2);
  close_bench(&b, TSR__VIOLATION_UNWRITTEN, "first unwritten element is 2");
  open_bench(&b);
  tsr__tensor_id never = tsr__tensor_new(&b.tape, TSR__KERNEL_ZEROS, TSR__DTYPE_F32, TSR__SHAPE(5));
  tsr__tensor_release(&b.tape, never);
  close_bench(&b, TSR__VIOLATION_PARTIAL, "of 20 bytes goes before all of it is written");
  open_bench(&b);
  tsr__tensor_id unread =
      make(&b, (tsr__kernel_use){.kernel = TSR__KERNEL_NEG, .reads = {b.x}}, TSR__SHAPE(3, 4));
  tsr__tensor_release(&b.tape, unread);
  close_bench(&b, TSR__VIOLATION_UNUSED, "neg of no op: nobody reads what it writes");
  open_bench(&b); /* state that every step would zero again */
  tsr__layout scalar = tsr__layout_dense(TSR__SCALAR);
  tsr__tensor_id once =
      tsr__tensor_make(&b.tape, TSR__INSTR_NEW_ONCE, TSR__KERNEL_ZEROS, TSR__DTYPE_F32, &scalar);
  note(&b, (tsr__kernel_use){.kernel = TSR__KERNEL_ZEROS, .writes = {once}});
  close_bench(&b, TSR__VIOLATION_ONCE, "stays from the first step");
}

static void kernels(void **state) {
  bench b;
  (void)state;
  open_bench(&b);
  *operand(&b, 1, 0) = 0;
  close_bench(&b, TSR__VIOLATION_READS, "number 0 of its operands is missing: it needs 1");
  open_bench(&b);
  made(&b)->runs.items[4].kernel = TSR__KERNEL_ARANGE;
  close_bench(&b, TSR__VIOLATION_READS, "it has 1 operands, and takes 0 at most");
  open_bench(&b);
  *operand(&b, 1, 2) = 0;
  close_bench(&b, TSR__VIOLATION_WRITES, "number 1 of its results is missing: it needs 2");
  open_bench(&b);
  made(&b)->runs.items[0].write_count = 0;
  made(&b)->runs.items[0].scratch_count = 1;
  close_bench(&b, TSR__VIOLATION_WRITES, "number 0 of its results");
  open_bench(&b);
  made(&b)->runs.items[1].write_count = 1;
  made(&b)->runs.items[1].scratch_count = 1;
  made(&b)->runs.items[1].kernel = TSR__KERNEL_NEG;
  close_bench(&b, TSR__VIOLATION_SCRATCH, "it has 1 tensors of scratch memory, and takes 0");
  open_bench(&b);
  made(&b)->runs.items[1].scalar_count = 0;
  close_bench(&b, TSR__VIOLATION_SCALARS, "it has 0 numbers, and needs 1 to 1 with 1 operands");
  open_bench(&b); /* the sum with a number that is not given */
  made(&b)->runs.items[2].read_count = 1;
  *operand(&b, 2, 1) = b.x;
  close_bench(&b, TSR__VIOLATION_SCALARS, "it has 0 numbers, and needs 1 to 2 with 1 operands");
  open_bench(&b);
  made(&b)->runs.items[1].draw = 0;
  close_bench(&b, TSR__VIOLATION_RANDOM, "it draws random numbers, and has no key");
  open_bench(&b);
  made(&b)->runs.items[0].draw = 7;
  close_bench(&b, TSR__VIOLATION_RANDOM, "it has a key, and draws no random numbers");
  open_bench(&b);
  made(&b)->runs.items[3].transposed = 0;
  close_bench(&b, TSR__VIOLATION_SHAPE, "shapes do not fit: (3, 4) (3, 4) to (3, 3)");
}

/* ---- the table's own lists, broken ---- */

/* Forward and backward of one op on two parameters of (6, 8) and (8), or of `shape`. */
static void open_op(bench *b, tsr__op_kind kind, const tsr__op_attributes *attributes,
                    tsr__shape second) {
  tsr__tape *t = &b->tape;
  b->schedule = (tsr__schedule){.flops = 0};
  assert_true(tsr__tape_init(t, &tsr__book_torch, NULL));
  tsr__scope_enter(t, TSR__PLACE_NONE);
  b->x = tsr__tensor_declare(t, TSR__DTYPE_F32, TSR__SHAPE(6, 8), TSR_CATEGORY_PARAMETER);
  b->y = tsr__tensor_declare(t, TSR__DTYPE_F32, second, TSR_CATEGORY_PARAMETER);
  tsr__tensor_id labels = tsr__tensor_declare(t, TSR__DTYPE_I64, TSR__SHAPE(6), TSR_CATEGORY_INPUT);
  for (size_t i = 0; i < 2; i++)
    t->workspace[i] =
        tsr__tensor_declare(t, TSR__DTYPE_BOOL, TSR__SHAPE(1), TSR_CATEGORY_WORKSPACE);
  bool is_loss = kind == TSR__OP_CHUNKED_LOSS;
  tsr__tensor_id out = tsr__op_apply(t, kind, attributes, (tsr__tensor_id[]){b->x, b->y, labels},
                                     is_loss ? 3 : 2, NULL);
  tsr__tensor_id grad =
      make(b, (tsr__kernel_use){.kernel = TSR__KERNEL_ONES_LIKE}, tsr__tensor_shape(t, out));
  tsr__tape_backward(t, out, grad);
  for (size_t i = 0; i < t->schedule.parameters.count; i++) { /* what an optimizer would do */
    tsr__tensor_id parameter = t->schedule.parameters.items[i];
    tsr__tensor_id gradient = tsr__tensor_at(t, parameter)->grad;
    note(b, (tsr__kernel_use){
                .kernel = TSR__KERNEL_ADD, .reads = {parameter, gradient}, .writes = {parameter}});
    tsr__tensor_release(t, gradient);
  }
  (void)tsr__scope_leave(t, 0);
}

static size_t run_of(bench *b, tsr__kernel kernel, size_t n) {
  for (size_t i = 0; i < made(b)->runs.count; i++)
    if (made(b)->runs.items[i].kernel == kernel && !n--) return i;
  fail_msg("no such run");
  return 0;
}

static void omit_run(bench *b, size_t run) {
  for (size_t i = 0; i < made(b)->instrs.count; i++)
    if (made(b)->instrs.items[i].kind == TSR__INSTR_RUN && made(b)->instrs.items[i].subject == run)
      omit(b, i);
}

static void lists(void **state) {
  bench b;
  tsr__op_attributes norm = {.epsilon = 1e-6}, loss = {.chunk = 4};
  (void)state;
  open_op(&b, TSR__OP_RMS_NORM, &norm, TSR__SHAPE(8));
  close_bench(&b, TSR__VIOLATION_NONE, "");
  open_op(&b, TSR__OP_RMS_NORM, &norm, TSR__SHAPE(8)); /* without its weight */
  made(&b)->ops.items[0].saved[3] = 0;
  close_bench(&b, TSR__VIOLATION_UNSAVED,
              "mul of RMS norm, backward: its operand 1 is of forward, which did not save");
  open_op(&b, TSR__OP_RMS_NORM, &norm, TSR__SHAPE(8)); /* without epsilon */
  made(&b)->runs.items[run_of(&b, TSR__KERNEL_ADD, 0)].scalar_count = 0;
  close_bench(&b, TSR__VIOLATION_SCALARS, "add of RMS norm: it has 0 numbers");
  open_op(&b, TSR__OP_CHUNKED_LOSS, &loss, TSR__SHAPE(10, 8));
  close_bench(&b, TSR__VIOLATION_NONE, "");
  open_op(&b, TSR__OP_CHUNKED_LOSS, &loss,
          TSR__SHAPE(10, 8)); /* the last chunk's part of a gradient */
  omit_run(&b, run_of(&b, TSR__KERNEL_MM, 4));
  close_bench(&b, TSR__VIOLATION_UNWRITTEN, "first unwritten element is 32");
  open_op(&b, TSR__OP_CHUNKED_LOSS, &loss, TSR__SHAPE(10, 8)); /* no zeros to add to */
  omit_run(&b, run_of(&b, TSR__KERNEL_ZEROS_LIKE, 0));
  close_bench(&b, TSR__VIOLATION_UNWRITTEN, "mm of chunked loss: it reads its operand 2 before");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(right),   cmocka_unit_test(memory), cmocka_unit_test(flow),
      cmocka_unit_test(kernels), cmocka_unit_test(lists),
  };
  return cmocka_run_group_tests_name("validate", tests, NULL, NULL);
}
