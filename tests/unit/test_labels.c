/* Tests of attribution/labels.h: what stacks are called, and rows of one table, on frames made by hand. */
#include "attribution/labels.h"

#include <string.h>

#include "columns/builder.h"
#include "test_support.h"

#define SITE     "/opt/lib/python3.11/site-packages/"
#define COMPILED "/tmp/torchinductor_me/hw/chwq7ux2iggyu22lv3vwzoxwfp5jw7w3gandpny7kmdlqdksiuib.py"
#define MOVED    "/var/cache/hw/chwq7ux2iggyu22lv3vwzoxwfp5jw7w3gandpny7kmdlqdksiuib.py"

/* Frames that many stacks share, as one line each: name, file, line. */
typedef struct made_frame {
  const char *name, *file;
  uint64_t line;
} made_frame;

#define ALLOCATOR                                                                           \
  {"torch::unwind::unwind()", "??", 0},                                                     \
      {"c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned)", \
       "CUDACachingAllocator.cpp", 0},                                                      \
  {                                                                                         \
    "at::TensorBase at::detail::_empty_strided_generic<c10::ArrayRef<long> >(long)", "", 0  \
  }
#define OP(name) \
  { "at::_ops::" name "::call(at::Tensor const&)", "??", 0 }
#define INTERPRETER                                                        \
  {"_PyEval_EvalFrameDefault", "??", 0}, {"PyNumber_Multiply", "??", 0}, { \
    "cfunction_call", "/src/cpython/Objects/methodobject.c", 537           \
  }
#define STEP \
  { "step", "/home/me/optimizer.py", 78 }
#define MAIN \
  { "main", "/home/me/train.py", 9 }
#define START               \
  {"_start", "??", 0}, {    \
    "Py_BytesMain", "??", 0 \
  }

enum { MOST_FRAMES = 16 };

typedef struct made_stack {
  made_frame frames[MOST_FRAMES];
} made_stack;

static tsr_snapshot *snapshot_of(const made_stack *stacks, size_t count) {
  tsr__builder b;
  assert_true(tsr__builder_init(&b, NULL));
  tsr__builder_record(&b, "recorded");
  for (size_t i = 0; i < count; i++) {
    uint32_t frames[MOST_FRAMES], depth = 0;
    for (const made_frame *f = stacks[i].frames; depth < MOST_FRAMES && f->name; f++)
      frames[depth++] = tsr__builder_frame(&b, (tsr_frame){.name = tsr__builder_text(&b, f->name),
                                                           .file = tsr__builder_text(&b, f->file),
                                                           .line = f->line});
    assert_int_equal(tsr__builder_stack(&b, frames, depth), i);
  }
  tsr_snapshot *snapshot = NULL;
  assert_int_equal(tsr__builder_finish(&b, &snapshot, NULL), 0);
  tsr__builder_release(&b);
  return snapshot;
}

static void assert_name(tsr_text name, const char *expected) {
  if (name.size_bytes != strlen(expected) || memcmp(name.data, expected, name.size_bytes) != 0)
    fail_msg("'%.*s' is not '%s'", (int)name.size_bytes, name.data, expected);
}

static void assert_label(const made_stack *stack, tsr__label_kind kind, const char *expected) {
  tsr_snapshot *snapshot = snapshot_of(stack, 1);
  tsr__namer namer;
  tsr__buffer text = {0};
  assert_int_equal(tsr__namer_init(&namer, snapshot, NULL, NULL), 0);
  tsr__namer_append(&namer, kind, 0, &text);
  assert_false(text.failed);
  assert_name((tsr_text){text.data, text.size}, expected);
  tsr__buffer_release(&text);
  tsr__namer_release(&namer);
  tsr_snapshot_free(snapshot);
}

/* The names of stacks as rows of one table. */
static void assert_rows(const made_stack *stacks, size_t count, const char *const *expected) {
  enum { MOST = 8 };
  tsr_snapshot *snapshot = snapshot_of(stacks, count);
  tsr__namer namer;
  tsr__named_row rows[MOST];
  tsr__row_names names;
  assert_true(count <= MOST);
  assert_int_equal(tsr__namer_init(&namer, snapshot, NULL, NULL), 0);
  for (uint32_t i = 0; i < count; i++) rows[i] = (tsr__named_row){&namer, i};
  assert_int_equal(tsr__row_names_compute(rows, count, &names, NULL), 0);
  for (size_t i = 0; i < count; i++) assert_name(tsr__row_name(&names, i), expected[i]);
  tsr__row_names_release(&names);
  tsr__namer_release(&namer);
  tsr_snapshot_free(snapshot);
}

/* ---- One stack ---- */

static void test_line_and_operation(void **state) {
  (void)state;
  made_stack cpp = {{ALLOCATOR, OP("mul_Tensor"), INTERPRETER, STEP, MAIN, START}};
  assert_label(&cpp, TSR__LABEL_STACK, "optimizer.py:78 step (aten::mul)");
  assert_label(&cpp, TSR__LABEL_LINE, "optimizer.py:78 step");
  assert_label(&cpp, TSR__LABEL_OP, "aten::mul");
  made_stack python = {{{"adam", SITE "torch/optim/adam.py", 3}, STEP, MAIN}};
  assert_label(&python, TSR__LABEL_STACK, "optimizer.py:78 step");
}

static void test_never_the_allocator_nor_the_interpreter(void **state) {
  (void)state;
  made_stack bare = {{ALLOCATOR, INTERPRETER, START}};
  made_stack kernel = {
      {ALLOCATOR, {"void at::cuda::workspace<float>(int)", "Blas.cpp", 3}, INTERPRETER, START}};
  made_stack started = {{ALLOCATOR, INTERPRETER, {"_run_code", "<frozen runpy>", 88}, START}};
  made_stack operator= {{ALLOCATOR, OP("sum_dim_IntList"), INTERPRETER, START}};
  for (int kind = TSR__LABEL_LINE; kind <= TSR__LABEL_STACK; kind++) {
    assert_label(&bare, (tsr__label_kind)kind, "(C++ alone)");
    assert_label(&kernel, (tsr__label_kind)kind, "at::cuda::workspace");
    assert_label(&started, (tsr__label_kind)kind, "(no line of the program)");
    assert_label(&operator,(tsr__label_kind) kind, "aten::sum");
  }
  assert_label(&bare, TSR__LABEL_OP, "(C++ alone)");
  assert_label(&kernel, TSR__LABEL_OP, "at::cuda::workspace");
}

static void test_autograd(void **state) {
  (void)state;
  made_stack node = {{ALLOCATOR,
                      OP("div_Tensor"),
                      {"torch::autograd::generated::DivBackward0::apply(int)", "Functions.cpp", 7},
                      {"torch::autograd::Engine::thread_main(int)", "engine.cpp", 7}}};
  assert_label(&node, TSR__LABEL_STACK, "aten::div in DivBackward0");
  assert_label(&node, TSR__LABEL_LINE, "DivBackward0 (autograd)");
}

/* Equal functions of several nodes are one function with one of their names; ::apply has the right one. */
static void test_autograd_of_folded_functions(void **state) {
  (void)state;
#define FOLDED \
  {"torch::autograd::generated::SubBackward0_apply_functional(int)", "Functions.cpp", 3}
#define APPLY(type) \
  { "torch::autograd::" type "::apply(std::vector<at::Tensor>&&)", "Functions.cpp", 7 }
  made_stack with_op = {{ALLOCATOR, OP("neg"), FOLDED, APPLY("generated::AddBackward0"), START}};
  assert_label(&with_op, TSR__LABEL_STACK, "aten::neg in AddBackward0");
  assert_label(&with_op, TSR__LABEL_OP, "aten::neg in AddBackward0");
  assert_label(&with_op, TSR__LABEL_LINE, "AddBackward0 (autograd)");
  made_stack alone = {{ALLOCATOR, FOLDED, APPLY("generated::AddBackward0"), START}};
  assert_label(&alone, TSR__LABEL_STACK, "AddBackward0 (autograd)");
  made_stack own = {{ALLOCATOR, APPLY("CppNode<(anonymous namespace)::MyScale>"), START}};
  assert_label(&own, TSR__LABEL_LINE, "MyScale (autograd)");
  made_stack kernel = {
      {ALLOCATOR, {"void at::native::LayerNormBackwardKernelImpl<float>(int)", "a.cu", 7}, START}};
  assert_label(&kernel, TSR__LABEL_LINE, "at::native::LayerNormBackwardKernelImpl");
#undef FOLDED
#undef APPLY
}

/* A module is named by its forward, not by what decorates it, and by who calls it, not by what passes the call on. */
static void test_modules(void **state) {
  (void)state;
#define CALLED {"_call_impl", SITE "torch/nn/modules/module.py", 1790}
#define LAYER  SITE "transformers/models/llama/modeling_llama.py"
  made_stack plain = {{ALLOCATOR, {"forward", "/home/me/model.py", 41}, CALLED, MAIN}};
  assert_label(&plain, TSR__LABEL_MODULE, "model.py forward at train.py:9");
  made_stack decorated = {{ALLOCATOR,
                           OP("mm"),
                           {"rotate", LAYER, 12},
                           {"forward", LAYER, 41},
                           {"wrapped_func", SITE "transformers/utils/deprecation.py", 172},
                           CALLED,
                           {"__call__", SITE "transformers/modeling_layers.py", 94},
                           {"forward", LAYER, 395},
                           CALLED,
                           MAIN}};
  assert_label(&decorated, TSR__LABEL_MODULE, "modeling_llama.py forward at modeling_llama.py:395");
  made_stack other = {{ALLOCATOR,
                       {"route", "/home/me/model.py", 41},
                       CALLED,
                       {"forward", LAYER, 12},
                       CALLED,
                       MAIN}};
  assert_label(&other, TSR__LABEL_MODULE, "model.py route at modeling_llama.py:12");
  made_stack sequence = {{ALLOCATOR,
                          {"forward", SITE "torch/nn/modules/linear.py", 125},
                          CALLED,
                          {"forward", SITE "torch/nn/modules/container.py", 250},
                          CALLED,
                          {"forward", "/home/me/model.py", 41},
                          CALLED,
                          MAIN}};
  assert_label(&sequence, TSR__LABEL_MODULE, "nn.linear at model.py:41");
#undef CALLED
#undef LAYER
}

static void test_generated_code(void **state) {
  (void)state;
  static const char *const files[] = {COMPILED, MOVED, "/home/me/.triton/cache/ab/launcher.py"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    made_stack stack = {{ALLOCATOR,
                         {"call", files[i], 53},
                         {"run", SITE "torch/_inductor/utils.py", 3220},
                         {"forward", "/home/me/model.py", 41},
                         MAIN}};
    assert_label(&stack, TSR__LABEL_STACK, "model.py:41 forward (torch.compile buffer)");
    assert_label(&stack, TSR__LABEL_LINE, "model.py:41 forward");
    assert_label(&stack, TSR__LABEL_OP, "torch.compile buffer");
  }
  made_stack traced = {{ALLOCATOR,
                        OP("addmm"),
                        {"forward", "<eval_with_key>.3", 7},
                        {"_call_impl", SITE "torch/nn/modules/module.py", 1790},
                        {"forward", "/home/me/model.py", 41},
                        {"_call_impl", SITE "torch/nn/modules/module.py", 1790},
                        MAIN}};
  assert_label(&traced, TSR__LABEL_STACK, "model.py:41 forward (aten::addmm)");
  assert_label(&traced, TSR__LABEL_MODULE, "model.py forward at train.py:9");
  made_stack alone = {{ALLOCATOR,
                       {"call", COMPILED, 53},
                       {"run", SITE "torch/_inductor/utils.py", 3220},
                       {"backward", SITE "torch/_functorch/aot_autograd.py", 9}}};
  assert_label(&alone, TSR__LABEL_LINE, "(backward)");
  assert_label(&alone, TSR__LABEL_STACK, "(backward) (torch.compile buffer)");
  made_stack command = {{{"main", "<string>", 4}, {"<module>", "<string>", 9}}};
  assert_label(&command, TSR__LABEL_STACK, "<string>:4 main"); /* all that there is */
}

/* A hash is needed, or the cache's folder: a program may begin with c. */
static void test_own_files_are_not_generated(void **state) {
  (void)state;
  static const char *const files[] = {
      "/home/me/hw/chwq7ux.py", "/home/me/calculations.py", "<ipython-input-3-abc>", "<stdin>",
      "/home/me/chwq7ux2iggyu22lv3vwzoxwfp5jw7w3gandpny7kmdlqdksiu_b.py"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    made_stack stack = {{{"f", files[i], 3}, MAIN}};
    tsr_snapshot *snapshot = snapshot_of(&stack, 1);
    tsr__namer namer;
    tsr__buffer text = {0};
    assert_int_equal(tsr__namer_init(&namer, snapshot, NULL, NULL), 0);
    tsr__namer_append(&namer, TSR__LABEL_LINE, 0, &text);
    assert_true(text.size > 3 && memcmp(text.data + text.size - 4, ":3 f", 4) == 0);
    tsr__buffer_release(&text);
    tsr__namer_release(&namer);
    tsr_snapshot_free(snapshot);
  }
}

/* ---- Rows ---- */

static void test_rows_differ_by_operation(void **state) {
  (void)state;
  const made_stack stacks[] = {{{ALLOCATOR, OP("mul_Tensor"), STEP, MAIN}},
                               {{ALLOCATOR, OP("sqrt"), STEP, MAIN}}};
  const char *const expected[] = {"optimizer.py:78 step (aten::mul)",
                                  "optimizer.py:78 step (aten::sqrt)"};
  assert_rows(stacks, 2, expected);
}

static void test_rows_differ_by_caller(void **state) {
  (void)state;
  made_frame layer = {"forward", "/home/me/model.py", 30};
  const made_stack stacks[] = {
      {{OP("mm"), layer, {"f", "/home/me/model.py", 50}, MAIN}},
      {{OP("mm"), layer, {"g", "/home/me/model.py", 60}, MAIN}},
      {{OP("mm"), layer, {"g", "/home/me/model.py", 60}, {"eval", "/home/me/train.py", 20}}},
      {{OP("mm"), {"h", "/home/me/model.py", 31}, MAIN}}};
  const char *const expected[] = {
      "model.py:30 forward (aten::mm), from model.py:50",
      "model.py:30 forward (aten::mm), from model.py:60, from train.py:9",
      "model.py:30 forward (aten::mm), from model.py:60, from train.py:20",
      "model.py:31 h (aten::mm)"};
  assert_rows(stacks, 4, expected);
}

static void test_rows_differ_by_what_they_called(void **state) {
  (void)state;
  const made_stack stacks[] = {{{{"zeros", SITE "torch/optim/adam.py", 3}, STEP, MAIN}},
                               {{{"zeros", SITE "torch/optim/adam.py", 4}, STEP, MAIN}},
                               {{{"zeros", SITE "torch/optim/adam.py", 4},
                                 {"init", SITE "torch/optim/o.py", 1},
                                 STEP,
                                 MAIN}}};
  const char *const expected[] = {"optimizer.py:78 step, via adam.py:3",
                                  "optimizer.py:78 step, via adam.py:4",
                                  "optimizer.py:78 step, via o.py:1"};
  assert_rows(stacks, 3, expected);
}

static void test_rows_differ_by_number_at_last(void **state) {
  (void)state;
  const made_stack stacks[] = {{{ALLOCATOR, START}},
                               {{ALLOCATOR, START, {"clone", "??", 0}}},
                               {{{NULL, NULL, 0}}},
                               {{STEP}}};
  const char *const expected[] = {"(C++ alone) #0", "(C++ alone) #1", "(no stack recorded)",
                                  "optimizer.py:78 step"};
  assert_rows(stacks, 4, expected);
}

/* Rows of two snapshots: frames are compared by what they read, not by their numbers. */
static void test_rows_of_two_snapshots(void **state) {
  (void)state;
  const made_stack old = {{OP("mm"), STEP, MAIN}};
  const made_stack now = {{OP("mm"), STEP, {"eval", "/home/me/train.py", 20}, MAIN}};
  tsr_snapshot *snapshots[] = {snapshot_of(&old, 1), snapshot_of(&now, 1)};
  tsr__namer namers[2];
  tsr__named_row rows[2];
  tsr__row_names names;
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(tsr__namer_init(&namers[i], snapshots[i], NULL, NULL), 0);
    rows[i] = (tsr__named_row){&namers[i], 0};
  }
  assert_int_equal(tsr__row_names_compute(rows, 2, &names, NULL), 0);
  assert_name(tsr__row_name(&names, 0), "optimizer.py:78 step (aten::mm), from train.py:9");
  assert_name(tsr__row_name(&names, 1), "optimizer.py:78 step (aten::mm), from train.py:20");
  tsr__row_names_release(&names);
  for (size_t i = 0; i < 2; i++) {
    tsr__namer_release(&namers[i]);
    tsr_snapshot_free(snapshots[i]);
  }
}

/* Every stack of a snapshot has a name of its own, as a grouping needs. */
static void test_all_stacks(void **state) {
  (void)state;
  const made_stack stacks[] = {{{ALLOCATOR, START}},
                               {{ALLOCATOR, START, {"clone", "??", 0}}},
                               {{OP("mm"), STEP}},
                               {{OP("mm"), STEP, MAIN}}};
  tsr_snapshot *snapshot = snapshot_of(stacks, 4);
  tsr__roles roles;
  tsr__labels labels;
  assert_int_equal(tsr__roles_compute(snapshot, &roles, NULL), 0);
  assert_int_equal(tsr__labels_compute(snapshot, &roles, TSR__LABEL_STACK, &labels, NULL), 0);
  assert_int_equal(labels.names.count, 5); /* and that of an absent stack */
  assert_name(tsr__label_name(&labels, tsr__label_of(&labels, 3)),
              "optimizer.py:78 step (aten::mm), from train.py:9");
  assert_name(tsr__label_name(&labels, tsr__label_of(&labels, TSR_NONE)), "(no stack recorded)");
  tsr__labels_release(&labels);
  tsr__roles_release(&roles);
  tsr_snapshot_free(snapshot);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_line_and_operation),
      cmocka_unit_test(test_never_the_allocator_nor_the_interpreter),
      cmocka_unit_test(test_autograd),
      cmocka_unit_test(test_autograd_of_folded_functions),
      cmocka_unit_test(test_modules),
      cmocka_unit_test(test_generated_code),
      cmocka_unit_test(test_own_files_are_not_generated),
      cmocka_unit_test(test_rows_differ_by_operation),
      cmocka_unit_test(test_rows_differ_by_caller),
      cmocka_unit_test(test_rows_differ_by_what_they_called),
      cmocka_unit_test(test_rows_differ_by_number_at_last),
      cmocka_unit_test(test_rows_of_two_snapshots),
      cmocka_unit_test(test_all_stacks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
