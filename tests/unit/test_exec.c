/* Tests of what runs and what draws a schedule: the dry executor on several devices and streams, and the
 * tracer's stacks. test_engine.c has whole simulations. */
#include "exec/dry.h"
#include "graph/op.h"
#include "test_support.h"
#include "torch/torch.h"

#define KIB (UINT64_C(1) << 10)

/* ---- the dry executor ---- */

/* A tensor of whole kilobytes on a device and stream. */
static tsr__tensor_id tensor_on(tsr__tape *tape, uint16_t device, uint16_t stream, uint64_t kib) {
  tsr__tensor_id tensor =
      tsr__tensor_new(tape, TSR__KERNEL_ZEROS, TSR__DTYPE_BOOL, TSR__SHAPE(kib * KIB));
  assert_int_not_equal(tensor, 0);
  tsr__slot *slot = &tape->schedule.slots.items[tsr__tensor_at(tape, tensor)->slot];
  slot->device = device;
  slot->stream = stream;
  return tensor;
}

typedef struct seen {
  uint64_t allocations[2][3]; /* by device and stream */
  uint64_t phases, ends, fails_at, events;
} seen;

static bool see_event(void *context, uint32_t device, uint32_t slot,
                      const tsr_allocator_event *event) {
  seen *s = context;
  assert_true(device < 2 && slot > 0 && event->stream < 3);
  if (event->action == TSR_ACTION_ALLOC) s->allocations[device][event->stream]++;
  return ++s->events != s->fails_at;
}

static bool see_phase(void *context, tsr__phase_kind phase, uint64_t step, bool is_start) {
  (void)phase;
  (void)is_start;
  assert_true(step >= 1);
  ((seen *)context)->phases++;
  return true;
}

static int see_end(void *context, uint32_t device, const tsr_allocator *allocator,
                   tsr_error *error) {
  (void)error;
  assert_non_null(allocator);
  assert_int_equal(device, ((seen *)context)->ends++);
  return 0;
}

/* Device 0: a, then b on another stream while a is there; device 1: c alone, and a parameter. */
static tsr__schedule make_two_devices(void) {
  tsr__tape recorder, *tape = &recorder;
  tsr__schedule schedule;
  assert_true(tsr__tape_init(tape, &tsr__book_torch, NULL));
  tsr__tensor_id parameter =
      tsr__tensor_declare(tape, TSR__DTYPE_F32, TSR__SHAPE(256), TSR_CATEGORY_PARAMETER);
  tape->schedule.slots.items[tsr__tensor_at(tape, parameter)->slot].device = 1;
  tsr__tape_begin(tape, TSR__PHASE_STEP);
  tsr__tensor_id a = tensor_on(tape, 0, 0, 4);
  tsr__tape_begin(tape, TSR__PHASE_FORWARD);
  tsr__tensor_id b = tensor_on(tape, 0, 2, 8);
  tsr__tensor_release(tape, a);
  tsr__tape_end(tape, TSR__PHASE_FORWARD);
  tsr__tensor_id c = tensor_on(tape, 1, 0, 16);
  tsr__tensor_release(tape, b);
  tsr__tensor_release(tape, c);
  tsr__tape_end(tape, TSR__PHASE_STEP);
  assert_int_equal(tsr__tape_finish(tape, &schedule), 0);
  tsr__tape_release(tape);
  return schedule;
}

static void devices_and_streams(void **state) {
  tsr__schedule schedule = make_two_devices();
  tsr__dry_device devices[2];
  uint64_t steps_done = 0;
  seen s = {0};
  tsr__dry_observer observer = {
      .context = &s, .phase = see_phase, .event = see_event, .end = see_end};
  tsr__dry_options options = {.steps = 3, .device_count = 2, .observer = &observer};
  (void)state;
  assert_int_equal(tsr__dry_run(&schedule, &options, devices, &steps_done, NULL), 0);
  assert_int_equal(steps_done, 3);
  assert_int_equal(devices[0].start.totals.allocated_bytes, 0);
  assert_int_equal(devices[1].start.totals.allocated_bytes, KIB);
  assert_int_equal(devices[0].peak.totals.allocated_bytes, 12 * KIB);
  assert_int_equal(devices[0].peak.phase, TSR__PHASE_FORWARD);
  assert_int_equal(devices[0].peak.step, 1);
  assert_int_equal(devices[0].peak.category_bytes[TSR_CATEGORY_TEMPORARY], 12 * KIB);
  assert_int_equal(devices[1].peak.totals.allocated_bytes, 17 * KIB);
  assert_int_equal(devices[1].peak.phase, TSR__PHASE_STEP);
  assert_int_equal(devices[1].phases[TSR__PHASE_FORWARD].step, 0); /* nothing there */
  assert_int_equal(s.allocations[0][0], 3);
  assert_int_equal(s.allocations[0][2], 3);
  assert_int_equal(s.allocations[1][0], 3);
  assert_int_equal(s.phases, 3 * 4);
  assert_int_equal(s.ends, 2);
  assert_int_equal(s.events, devices[0].event_count + devices[1].event_count);
  /* Streams do not share blocks: another stream's small buffer is another segment. */
  assert_int_equal(devices[0].peak_reserved_bytes, 2 * 2048 * KIB);
  /* Without an observer the numbers are the same. */
  tsr__dry_device again[2];
  options.observer = NULL;
  assert_int_equal(tsr__dry_run(&schedule, &options, again, &steps_done, NULL), 0);
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(again[i].peak.event_count, devices[i].peak.event_count);
    assert_memory_equal(&again[i].peak.totals, &devices[i].peak.totals,
                        sizeof again[i].peak.totals);
  }
  tsr__schedule_release(&schedule);
}

static void runs_end_early(void **state) {
  tsr__schedule schedule = make_two_devices();
  tsr__dry_device devices[2];
  uint64_t steps_done = 0;
  seen s = {.fails_at = 5};
  tsr__dry_observer observer = {.context = &s, .event = see_event};
  tsr__dry_options options = {.device_count = 2, .observer = &observer};
  (void)state;
  assert_int_equal(tsr__dry_run(&schedule, &options, devices, &steps_done, NULL), TSR_ERROR_MEMORY);
  assert_int_equal(s.events, 5);
  assert_int_equal(steps_done, 0);
  /* One small segment fits; the other stream's does not. */
  options.observer = NULL;
  options.capacity_bytes = 3 * 1024 * KIB;
  assert_int_equal(tsr__dry_run(&schedule, &options, devices, &steps_done, NULL), 0);
  assert_int_equal(steps_done, 0);
  assert_true(devices[0].is_out_of_memory);
  assert_false(devices[1].is_out_of_memory);
  assert_int_equal(devices[0].oom_request_bytes, 8 * KIB);
  assert_int_equal(devices[0].out_of_memory.totals.allocated_bytes, 4 * KIB);
  tsr__schedule_release(&schedule);
}

/* ---- the tracer ---- */

typedef struct tracing {
  tsr_model *model;
  tsr__tracer *tracer;
} tracing;

static tracing trace(const char *name) {
  tracing t;
  assert_int_equal(tsr_model_named(name, &t.model, NULL), 0);
  t.tracer = tsr__torch_new(t.model);
  assert_non_null(t.tracer);
  return t;
}

static void end_trace(tracing *t) {
  tsr__torch_free(t->tracer);
  tsr_model_free(t->model);
}

/* The innermost frame of the program, below the free's own. */
static tsr__trace_frame here(const tracing *t, size_t *depth) {
  tsr__trace_frame frame, unused;
  uint32_t stack;
  assert_true(t->tracer->stack(t->tracer, TSR__KERNEL_NONE, &stack));
  stack = t->tracer->labels.parent(t->tracer->labels.context, stack, &frame);
  assert_non_null(strstr(frame.name, "DeviceCachingAllocator::free"));
  assert_int_not_equal(stack, TSR_NONE);
  stack = t->tracer->labels.parent(t->tracer->labels.context, stack, &frame);
  for (*depth = 1; stack != TSR_NONE; ++*depth)
    stack = t->tracer->labels.parent(t->tracer->labels.context, stack, &unused);
  return frame;
}

static void expect(const tracing *t, const char *name, uint32_t line, size_t depth) {
  size_t found;
  tsr__trace_frame frame = here(t, &found);
  assert_string_equal(frame.name, name);
  assert_int_equal(frame.line, line);
  assert_int_equal(found, depth);
}

/* A block's two additions stand on different lines; a second block starts at the top again. */
static void lines_follow_the_source(void **state) {
  tracing t = trace("gpt2");
  tsr__tracer *r = t.tracer;
  (void)state;
  r->enter(r, TSR__PLACE_MAIN);
  expect(&t, "<module>", 71, 1);
  r->enter(r, TSR__PLACE_BODY);
  expect(&t, "forward", 855, 4); /* through nn.Module.__call__ */
  for (int i = 0; i < 2; i++) {
    r->enter(r, TSR__PLACE_BLOCK);
    expect(&t, "forward", 412, 7);
    r->enter(r, TSR__PLACE_NORM_1);
    expect(&t, "layer_norm", 2901, 11);
    r->leave(r);
    r->begin_op(r, TSR__OP_ADD);
    expect(&t, "forward", 424, 7);
    r->enter(r, TSR__PLACE_NORM_2);
    r->leave(r);
    r->begin_op(r, TSR__OP_CAST); /* not listed: where the program is */
    expect(&t, "forward", 448, 7);
    r->begin_op(r, TSR__OP_ADD);
    expect(&t, "forward", 451, 7);
    r->leave(r);
    expect(&t, "forward", 925, 4);
  }
  r->enter(r, TSR__PLACE_LAST_NORM);
  r->leave(r);
  expect(&t, "forward", 951, 4);
  r->leave(r);
  expect(&t, "<module>", 71, 1);
  end_trace(&t);
}

static void threads_and_nodes(void **state) {
  tracing t = trace("gpt2");
  tsr__tracer *r = t.tracer;
  size_t depth;
  (void)state;
  r->enter(r, TSR__PLACE_MAIN);
  r->enter(r, TSR__PLACE_BACKWARD_THREAD);
  expect(&t, "torch::autograd::Engine::thread_main", 0, 6); /* its own stack */
  r->enter(r, TSR__PLACE_NODE);
  r->node(r, "MulBackward0");
  assert_non_null(strstr(here(&t, &depth).name, "generated::MulBackward0::apply"));
  assert_int_equal(depth, 8);
  r->node(r, "CheckpointFunctionBackward"); /* written in Python */
  assert_non_null(strstr(here(&t, &depth).name, "PyNode::apply"));
  assert_int_equal(depth, 8);
  r->leave(r);
  r->leave(r);
  expect(&t, "<module>", 71, 1);
  end_trace(&t);
}

/* Relatives share listings, with lines and their own file. */
static void classes_have_their_own_lines(void **state) {
  static const struct {
    const char *name, *file;
    uint32_t line;
  } rows[] = {{"llama-2-7b", "models/llama/modeling_llama.py", 292},
              {"mistral-7b", "models/mistral/modeling_mistral.py", 229},
              {"qwen2.5-7b", "models/qwen2/modeling_qwen2.py", 232}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    tracing t = trace(rows[i].name);
    size_t depth;
    t.tracer->enter(t.tracer, TSR__PLACE_BLOCK);
    tsr__trace_frame frame = here(&t, &depth);
    assert_int_equal(frame.line, rows[i].line);
    assert_non_null(strstr(frame.file, rows[i].file));
    t.tracer->leave(t.tracer);
    end_trace(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(devices_and_streams),          cmocka_unit_test(runs_end_early),
      cmocka_unit_test(lines_follow_the_source),      cmocka_unit_test(threads_and_nodes),
      cmocka_unit_test(classes_have_their_own_lines),
  };
  return cmocka_run_group_tests_name("exec", tests, NULL, NULL);
}
