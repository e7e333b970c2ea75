/* Tests of answers/steps.c and leaks.c, on training runs of a known number of steps. */
#include "tessera/unstable/steps.h"

#include <stdio.h>
#include <string.h>

#include "study_support.h"
#include "training_trace.h"

/* ---- steps ---- */

typedef struct found {
  tsr_snapshot *snapshot;
  tsr_steps *steps;
  const tsr_steps_device *device;
} found;

static found find(const training *run) {
  found f = {.snapshot = training_snapshot(run)};
  assert_int_equal(tsr_steps_compute(test_study(f.snapshot), NULL, &f.steps, NULL), 0);
  assert_int_equal(f.steps->device_count, 1);
  f.device = f.steps->devices;
  return f;
}

static void end(found *f) {
  tsr_steps_free(f->steps);
  tsr_snapshot_free(f->snapshot);
}

/* Annotated runs: each annotation must agree, and the totals with each other. */
static void check_annotated(training run, tsr_steps_basis basis) {
  run.annotates = true;
  found f = find(&run);
  assert_int_equal(f.device->basis, basis);
  assert_int_equal(f.device->whole_count, run.steps);
  assert_int_equal(f.device->annotation_count, 2);
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(f.device->annotations[i].ranges, run.steps);
    assert_int_equal(f.device->annotations[i].matched, run.steps);
  }
  for (size_t i = 1; i < f.device->step_count; i++) {
    const tsr_step *before = &f.device->steps[i - 1], *step = &f.device->steps[i];
    assert_int_equal(step->first_event, before->last_event + 1);
    assert_int_equal(step->start_bytes, before->end_bytes);
    assert_true(step->peak_bytes >= step->start_bytes && step->peak_bytes >= step->end_bytes);
  }
  end(&f);
}

static void by_phases(void **state) {
  (void)state;
  check_annotated((training){.layers = 4, .steps = 5}, TSR_STEPS_PHASES);
  check_annotated((training){.layers = 4, .steps = 5, .checkpoint = true}, TSR_STEPS_PHASES);
  check_annotated((training){.layers = 4, .steps = 5, .adds_up = true}, TSR_STEPS_PHASES);
  check_annotated((training){.layers = 4, .steps = 5, .python_only = true}, TSR_STEPS_PHASES);
  check_annotated((training){.layers = 4, .steps = 5, .varies = true}, TSR_STEPS_PHASES);
  check_annotated((training){.layers = 4, .steps = 1}, TSR_STEPS_PHASES);
}

/* The same without annotations, or with frames whose names are no evidence, or without frames. */
static void without_markers(void **state) {
  (void)state;
  training run = {.layers = 4, .steps = 7};
  found f = find(&run);
  assert_int_equal(f.device->whole_count, 7);
  assert_int_equal(f.device->annotation_count, 0);
  assert_int_equal(f.device->unit, TSR_STEPS_UNIT_STEP);
  end(&f);
  run.is_fused = true;
  f = find(&run);
  assert_int_equal(f.device->whole_count, 7);
  end(&f);
  run.is_anonymous = true;
  f = find(&run);
  assert_int_equal(f.device->basis, TSR_STEPS_SEQUENCE);
  assert_int_equal(f.device->unit, TSR_STEPS_UNIT_ITERATION); /* no frame shows a backward pass */
  assert_in_range(f.device->whole_count, 6, 7);
  end(&f);
  run.is_anonymous = false;
  run.has_no_frames = true;
  f = find(&run);
  assert_int_equal(f.device->basis, TSR_STEPS_SEQUENCE);
  assert_in_range(f.device->whole_count, 6, 7);
  end(&f);
}

/* The layers of one step repeat as well, and are no steps. */
static void layers_are_no_steps(void **state) {
  (void)state;
  found f = find(&(training){.layers = 16, .steps = 1, .is_anonymous = true});
  assert_int_equal(f.device->basis, TSR_STEPS_NONE);
  assert_int_equal(f.device->step_count, 0);
  end(&f);
}

static void cut_steps(void **state) {
  (void)state;
  for (uint32_t cut = 40; cut < 200; cut += 13) {
    found f = find(&(training){.layers = 4, .steps = 6, .cut_events = cut});
    assert_in_range(f.device->whole_count, 3, 6);
    assert_true(f.device->steps[f.device->step_count - 1].is_whole);
    end(&f);
  }
}

static void folding(void **state) {
  (void)state;
  found f = find(&(training){.layers = 4, .steps = 6});
  const tsr_steps_device *d = f.device;
  assert_true(d->steady_count >= 3 && d->steady_count <= 5);
  assert_false(d->steps[0].is_steady);
  assert_true(d->steps[5].is_steady);
  assert_int_equal(d->main_loop->steady_peak_bytes, d->steps[5].peak_bytes);
  uint64_t highest = 0;
  for (size_t i = 0; i < d->phase_count; i++) {
    assert_int_equal(d->phases[i].steps, d->steady_count);
    if (d->phases[i].peak_bytes > highest) highest = d->phases[i].peak_bytes;
  }
  assert_int_equal(highest, d->main_loop->steady_peak_bytes);
  end(&f);
}

/* ---- leaks ---- */

static tsr_leaks *leaks_of(const training *run, tsr_snapshot **snapshot) {
  tsr_leaks *leaks;
  *snapshot = training_snapshot(run);
  assert_int_equal(tsr_leaks_compute(test_study(*snapshot), NULL, &leaks, NULL), 0);
  assert_int_equal(leaks->device_count, 1);
  return leaks;
}

static void check_healthy(const training *run) {
  tsr_snapshot *snapshot;
  tsr_leaks *leaks = leaks_of(run, &snapshot);
  assert_true(leaks->devices[0].is_answered);
  assert_int_equal(leaks->devices[0].leak_count, 0);
  assert_int_equal(leaks->devices[0].bytes_per_step, 0);
  tsr_leaks_free(leaks);
  tsr_snapshot_free(snapshot);
}

static void healthy_runs(void **state) {
  (void)state;
  check_healthy(&(training){.layers = 4, .steps = 8});
  check_healthy(&(training){.layers = 4, .steps = 3});
  check_healthy(&(training){.layers = 4, .steps = 8, .replaces = true});
  check_healthy(&(training){.layers = 4, .steps = 8, .adds_up = true, .autocast = true});
  check_healthy(&(training){.layers = 4, .steps = 12, .varies = true});
  check_healthy(&(training){.layers = 4, .steps = 8, .has_no_frames = true});
  check_healthy(&(training){.layers = 4, .steps = 20, .cache_steps = 1});
  check_healthy(&(training){.layers = 4, .steps = 20, .cache_steps = 5});
}

/* One leak, and no other. */
static tsr_leak only_leak(const training *run) {
  tsr_snapshot *snapshot;
  tsr_leaks *leaks = leaks_of(run, &snapshot);
  assert_int_equal(leaks->devices[0].leak_count, 1);
  tsr_leak leak = leaks->devices[0].leaks[0];
  assert_int_equal(leaks->devices[0].bytes_per_step, leak.bytes_per_step);
  tsr_frame frame = {0};
  if (leak.stack != TSR_NONE) {
    tsr_stack stack = tsr_snapshot_stack(snapshot, leak.stack);
    frame = tsr_snapshot_frame(snapshot, stack.frames[1]);
    tsr_text name = tsr_snapshot_string(snapshot, frame.name);
    if (!run->is_anonymous) assert_memory_equal(name.data, "log", 3);
  }
  tsr_leaks_free(leaks);
  tsr_snapshot_free(snapshot);
  return leak;
}

/* A KiB a step among thousands of allocations. */
static void planted_leaks(void **state) {
  (void)state;
  tsr_leak leak = only_leak(&(training){.layers = 8, .steps = 40, .noise = 20, .leak_bytes = 1024});
  assert_int_equal(leak.bytes_per_step, 1024);
  assert_int_equal(leak.allocations, 40);
  assert_int_equal(leak.bytes, 40 * 1024);
  assert_int_equal(leak.since_step, 1);
  leak = only_leak(&(training){.layers = 4, .steps = 20, .leak_bytes = 1024, .leak_from = 9});
  assert_int_equal(leak.since_step, 10);
  assert_int_equal(leak.allocations, 11);
  leak = only_leak(&(training){.layers = 4, .steps = 40, .leak_bytes = 4096, .leak_every = 4});
  assert_int_equal(leak.bytes_per_step, 1024);
  assert_int_equal(leak.growing_steps, 10);
  leak = only_leak(&(training){.layers = 4,
                               .steps = 20,
                               .leak_bytes = 1024,
                               .varies = true,
                               .cache_steps = 3,
                               .replaces = true});
  assert_int_equal(leak.bytes_per_step, 1024);
  leak = only_leak(&(training){.layers = 4, .steps = 20, .leak_bytes = 1024, .is_anonymous = true});
  assert_int_equal(leak.bytes_per_step, 1024);
  leak =
      only_leak(&(training){.layers = 4, .steps = 20, .leak_bytes = 1024, .has_no_frames = true});
  assert_int_equal(leak.bytes_per_step, 1024);
  assert_int_equal(leak.stack, TSR_NONE);
}

static void too_few_steps(void **state) {
  (void)state;
  tsr_snapshot *snapshot;
  tsr_leaks *leaks = leaks_of(&(training){.layers = 4, .steps = 2, .leak_bytes = 1024}, &snapshot);
  assert_false(leaks->devices[0].is_answered);
  assert_int_equal(leaks->devices[0].leak_count, 0);
  tsr_leaks_free(leaks);
  tsr_snapshot_free(snapshot);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(by_phases),
      cmocka_unit_test(without_markers),
      cmocka_unit_test(layers_are_no_steps),
      cmocka_unit_test(cut_steps),
      cmocka_unit_test(folding),
      cmocka_unit_test(healthy_runs),
      cmocka_unit_test(planted_leaks),
      cmocka_unit_test(too_few_steps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
