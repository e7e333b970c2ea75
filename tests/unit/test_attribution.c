/* Tests of attribution/: on training runs with known allocations (training_trace.h), ninety-nine
 * bytes in a hundred must have the right category after every event; and the marks of frames. */
#include "attribution/category.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "training_trace.h"

typedef struct subject {
  tsr_snapshot *snapshot;
  tsr__roles roles;
  tsr__timeline timeline;
  tsr__phases phases;
  tsr__categories kinds;
} subject;

static subject begin(const training *run) {
  subject s = {.snapshot = training_snapshot(run)};
  assert_int_equal(tsr__roles_compute(s.snapshot, &s.roles, NULL), 0);
  assert_int_equal(tsr__timeline_compute(s.snapshot, 0, false, NULL, &s.timeline, NULL), 0);
  assert_int_equal(tsr__phases_compute(s.snapshot, &s.roles, &s.timeline.events, &s.phases, NULL),
                   0);
  assert_int_equal(
      tsr__categories_compute(&s.timeline, &s.roles, &s.phases, NULL, NULL, &s.kinds, NULL), 0);
  return s;
}

static void end(subject *s) {
  tsr__categories_release(&s->kinds);
  tsr__phases_release(&s->phases);
  tsr__timeline_release(&s->timeline);
  tsr__roles_release(&s->roles);
  tsr_snapshot_free(s->snapshot);
}

static bool is_true(const subject *s, uint32_t allocation) {
  uint32_t birth = s->timeline.birth.items[allocation];
  tsr_text truth = tsr_snapshot_string(s->snapshot, tsr_id_at(s->timeline.events.category, birth));
  const char *said = tsr_category_name((tsr_category)s->kinds.category[allocation]);
  return truth.size_bytes == strlen(said) && !memcmp(truth.data, said, truth.size_bytes);
}

/* After every event, of what the recording saw being made. Returns the share in a million. */
static uint64_t worst_error(const subject *s) {
  uint64_t live = 0, wrong = 0, worst = 0;
  for (uint32_t e = 0; e < s->timeline.events.count; e++) {
    uint32_t a = s->timeline.allocation_of[e];
    if (a == TSR_NONE || a < s->timeline.initial.count) continue;
    uint64_t size = tsr__timeline_requested(&s->timeline, a), lie = is_true(s, a) ? 0 : size;
    if (s->timeline.birth.items[a] == e) {
      live += size;
      wrong += lie;
    } else if (s->timeline.death.items[a] == e) {
      live -= size;
      wrong -= lie;
    }
    if (live && wrong * 1000000 / live > worst) worst = wrong * 1000000 / live;
  }
  return worst;
}

/* Bytes of a kind before the first event, or after the last. */
static uint64_t bytes_of(const subject *s, tsr_category kind, bool at_start) {
  uint64_t bytes = 0;
  for (uint32_t a = 0; a < s->kinds.count; a++) {
    bool is_there =
        at_start ? a < s->timeline.initial.count : s->timeline.death.items[a] == TSR_NONE;
    if (is_there && s->kinds.category[a] == kind) bytes += tsr__timeline_requested(&s->timeline, a);
  }
  return bytes;
}

static void check(const training *run) {
  subject s = begin(run);
  uint64_t worst = worst_error(&s);
  if (worst > 10000) fail_msg("%" PRIu64 " bytes in a million are wrong", worst);
  end(&s);
}

static void every_feature(void **state) {
  (void)state;
  check(&(training){.layers = 6, .steps = 3});
  check(&(training){.layers = 6, .steps = 1});
  check(&(training){.layers = 6, .steps = 3, .checkpoint = true});
  check(&(training){.layers = 6, .steps = 3, .autocast = true});
  check(&(training){.layers = 6, .steps = 3, .autocast = true, .checkpoint = true});
  check(&(training){.layers = 6, .steps = 3, .is_fused = true, .annotates = true});
  check(&(training){.layers = 6, .steps = 4, .adds_up = true});
  check(&(training){.layers = 6, .steps = 3, .varies = true, .noise = 3});
}

static void python_frames_only(void **state) {
  (void)state;
  check(&(training){.layers = 6, .steps = 3, .python_only = true});
  check(&(training){.layers = 6, .steps = 3, .python_only = true, .checkpoint = true});
  check(&(training){.layers = 6, .steps = 3, .python_only = true, .autocast = true});
}

/* A step that assigns to p.data makes parameters where state is made. */
static void replaced_parameters(void **state) {
  (void)state;
  check(&(training){.layers = 6, .steps = 3, .replaces = true});
  subject s = begin(&(training){.layers = 6, .steps = 3, .replaces = true});
  uint64_t parameters = bytes_of(&s, TSR_CATEGORY_PARAMETER, false);
  assert_int_equal(bytes_of(&s, TSR_CATEGORY_OPTIMIZER_STATE, false), 2 * parameters);
  assert_int_equal(bytes_of(&s, TSR_CATEGORY_GRADIENT, false), parameters);
  end(&s);
}

/* Recording began after the first step, or in the middle of one: parameters, state and gradients
 * exist without a stack. */
static void memory_from_before(void **state) {
  (void)state;
  subject whole = begin(&(training){.layers = 6, .steps = 4});
  uint64_t parameters = bytes_of(&whole, TSR_CATEGORY_PARAMETER, false);
  uint32_t events = (uint32_t)whole.timeline.events.count;
  assert_int_equal(bytes_of(&whole, TSR_CATEGORY_PARAMETER, true), 0);
  end(&whole);
  for (uint32_t cut = events / 3; cut < events / 2; cut += 7) {
    subject s = begin(&(training){.layers = 6, .steps = 4, .cut_events = cut});
    assert_int_equal(bytes_of(&s, TSR_CATEGORY_PARAMETER, false), parameters);
    assert_int_equal(bytes_of(&s, TSR_CATEGORY_OPTIMIZER_STATE, false), 2 * parameters);
    assert_int_equal(bytes_of(&s, TSR_CATEGORY_GRADIENT, false), parameters);
    assert_int_equal(bytes_of(&s, TSR_CATEGORY_PARAMETER, true), parameters);
    assert_int_equal(bytes_of(&s, TSR_CATEGORY_OPTIMIZER_STATE, true), 2 * parameters);
    end(&s);
  }
}

/* Without evidence from frames and phases, nothing is claimed that may be wrong. */
static void nothing_to_go_by(void **state) {
  (void)state;
  subject s = begin(&(training){.layers = 6, .steps = 3, .has_no_frames = true});
  for (uint32_t a = 0; a < s.kinds.count; a++) {
    assert_int_equal(s.kinds.category[a], TSR_CATEGORY_UNKNOWN);
    assert_int_equal(tsr_evidence_confidence((tsr_evidence)s.kinds.evidence[a]),
                     TSR_CONFIDENCE_NONE);
  }
  end(&s);
}

static tsr__mark mark(const char *name, const char *file) {
  return tsr__mark_of((tsr_text){name, strlen(name)}, (tsr_text){file, strlen(file)});
}

static void frames(void **state) {
  (void)state;
  const char *windows = "C:\\env\\Lib\\site-packages\\torch\\optim\\adamw.py";
  assert_int_equal(mark("step", windows), TSR__MARK_OPTIMIZER);
  assert_int_equal(mark("_init_group", windows), TSR__MARK_STATE);
  assert_int_equal(mark("step", "/x/torch/optim/lr_scheduler.py"), TSR__MARK_PYTHON);
  assert_int_equal(mark("step", "/home/me/train.py"), TSR__MARK_PYTHON);
  assert_int_equal(mark("step", "/home/me/optimizer.py"), TSR__MARK_OPTIMIZER);
  assert_int_equal(mark("check_params_ok", "/home/me/train.py"), TSR__MARK_PYTHON);
  assert_int_equal(mark("forward", "<stdin>"), TSR__MARK_FORWARD);
  assert_int_equal(mark("unpack_hook", "/x/torch/utils/checkpoint.py"), TSR__MARK_RECOMPUTE);
  assert_int_equal(mark("forward", "/x/torch/utils/checkpoint.py"), TSR__MARK_FORWARD);
  assert_int_equal(mark("torch::autograd::Engine::thread_main(x)", "??"), TSR__MARK_ENGINE);
  assert_int_equal(mark("torch::optim::AdamW::step(x)", "adamw.cpp"), TSR__MARK_OPTIMIZER);
  assert_int_equal(mark("torch::autograd::PyNode::apply(x)", ""), TSR__MARK_PYTHON_NODE);
  assert_int_equal(mark("torch::optim::Optimizer::zero_grad(bool)", "??"), TSR__MARK_ZERO_GRAD);
  assert_int_equal(mark("", ""), TSR__MARK_NONE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_feature),       cmocka_unit_test(python_frames_only),
      cmocka_unit_test(replaced_parameters), cmocka_unit_test(memory_from_before),
      cmocka_unit_test(nothing_to_go_by),    cmocka_unit_test(frames),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
