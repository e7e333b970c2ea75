/* recorded_run.c - what a recorded run shows next to its prediction: the time of its steps, and allocations that are not
 * predicted.
 *
 *   recorded snapshot ──► steps, phases, by the times of events ──► seconds
 *                    └──► its last step, against the predicted one, allocation by allocation ──► bytes without an explanation
 *
 * Times of events are the times at which the host requested memory. Between two steps, their difference is the time
 * of a step, if the program waits for the device at some point in each step; for phases it is only an indication. */
#include "ask/recorded.h"

#include <assert.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/sort.h"
#include "base/vector.h"
#include "tessera/unstable/allocations.h"
#include "tessera/unstable/columns.h"
#include "tessera/unstable/params.h"
#include "tessera/unstable/steps.h"

/* ---- what was measured ---- */

typedef TSR__VECTOR(double) seconds_list;

static int compare_seconds(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static double median(seconds_list *list) {
  if (!list->count) return 0;
  tsr__sort(list->items, list->count, sizeof *list->items, compare_seconds);
  return list->items[list->count / 2];
}

/* In the order of tsr_calibration.phases, or their number for what is in none. */
static size_t place_of(tsr_phase phase) {
  if (phase == TSR_PHASE_FORWARD) return 0;
  if (phase == TSR_PHASE_BACKWARD || phase == TSR_PHASE_RECOMPUTE) return 1;
  return phase == TSR_PHASE_OPTIMIZER ? 2 : TSR_CALIBRATION_PHASES;
}

/* When each phase of a step first allocated; TSR_TIME_NONE if it did not. */
static void find_begins(const tsr_lives *lives, const tsr_events *events, const tsr_step *step,
                        int64_t begins[TSR_CALIBRATION_PHASES]) {
  for (size_t i = 0; i < TSR_CALIBRATION_PHASES; i++) begins[i] = TSR_TIME_NONE;
  for (size_t i = 0; i < tsr_lives_count(lives, 0); i++) {
    tsr_life life = tsr_lives_at(lives, 0, i);
    size_t place = place_of(life.phase);
    if (life.birth < (int64_t)step->first_event || life.birth > (int64_t)step->last_event) continue;
    if (place == TSR_CALIBRATION_PHASES || begins[place] != TSR_TIME_NONE) continue;
    assert((uint64_t)life.birth < events->count);
    begins[place] = events->time_us[life.birth];
  }
}

/* From the first allocation of one phase to that of the next, or to the end. */
static bool add_phases(const tsr_step *step, const int64_t begins[TSR_CALIBRATION_PHASES],
                       seconds_list lists[TSR_CALIBRATION_PHASES]) {
  bool ok = true;
  for (size_t i = 0; ok && i < TSR_CALIBRATION_PHASES; i++) {
    int64_t end = step->last_time_us;
    for (size_t k = TSR_CALIBRATION_PHASES; k-- > i + 1;)
      if (begins[k] != TSR_TIME_NONE) end = begins[k];
    if (begins[i] == TSR_TIME_NONE || end == TSR_TIME_NONE || end < begins[i]) continue;
    ok = TSR__VECTOR_PUSH(&lists[i], (double)(end - begins[i]) * 1e-6);
  }
  return ok;
}

static int measure_phases(tsr_study *study, const tsr_steps_device *steps, tsr_calibration *out,
                          tsr_error *error) {
  tsr_lives *lives = NULL;
  seconds_list lists[TSR_CALIBRATION_PHASES] = {{0}};
  tsr_query query = {.struct_bytes = sizeof query, .devices = &steps->device, .device_count = 1};
  int status = tsr_lives_compute(study, &query, &lives, error);
  if (status) return status;
  tsr_events events = tsr_snapshot_events(tsr_study_snapshot(study), steps->device);
  bool ok = true;
  for (size_t i = 0; ok && i < steps->step_count; i++) {
    int64_t begins[TSR_CALIBRATION_PHASES];
    if (!steps->steps[i].is_steady || !steps->loops[steps->steps[i].loop].is_main) continue;
    out->steps++;
    find_begins(lives, &events, &steps->steps[i], begins);
    ok = add_phases(&steps->steps[i], begins, lists);
  }
  for (size_t i = 0; i < TSR_CALIBRATION_PHASES; i++) {
    out->phases[i].measured_s = median(&lists[i]);
    TSR__VECTOR_FREE(&lists[i]);
  }
  tsr_lives_free(lives);
  return ok ? 0 : tsr__fail_memory(error);
}

static int measure_time(tsr_study *study, tsr_calibration *out, tsr_error *error) {
  tsr_steps *steps = NULL;
  int status = tsr_steps_compute(study, NULL, &steps, error);
  if (status) return status;
  const tsr_steps_device *device = steps->device_count ? &steps->devices[0] : NULL;
  bool has_time = device && device->main_loop && device->main_loop->step_time_us != TSR_TIME_NONE &&
                  device->main_loop->step_time_us > 0;
  if (has_time) {
    out->measured_s = (double)device->main_loop->step_time_us * 1e-6;
    status = measure_phases(study, device, out, error);
  }
  tsr_steps_free(steps);
  return status;
}

/* ---- what is not predicted ---- */

static int name_change(tsr_study *study, const tsr_allocation_change *change, uint64_t bytes,
                       tsr_unexplained *out, tsr_error *error) {
  tsr_stack_place place;
  int status = tsr_stack_place_find(study, change->sides[1].stack, &place, error);
  if (status) return status;
  *out = (tsr_unexplained){.category = change->category, .count = change->count, .bytes = bytes};
  (void)snprintf(out->place, sizeof out->place, "%.*s", (int)place.text.size_bytes,
                 place.text.data);
  return 0;
}

/* Allocations that the recorded run has at its peak and the predicted run lacks, the largest first. */
static int list_unexplained(tsr_study *study, const tsr_alignment *aligned, tsr_calibration *out,
                            tsr_error *error) {
  out->recorded_peak_bytes = aligned->sides[1].peak_allocated_bytes;
  out->predicted_peak_bytes = aligned->sides[0].peak_allocated_bytes;
  for (size_t i = 0; i < aligned->change_count; i++) {
    const tsr_allocation_change *change = &aligned->changes[i];
    uint64_t more = tsr__drop_u64(change->sides[1].peak_bytes, change->sides[0].peak_bytes);
    assert(change->count && change->category < TSR_CATEGORY_COUNT);
    bool counts =
        change->status == TSR_ALLOCATION_ADDED || change->status == TSR_ALLOCATION_RESIZED;
    if (!counts || !more) continue;
    out->unexplained_bytes = tsr__sum_u64(out->unexplained_bytes, more);
    out->unexplained_allocations += change->count;
    if (out->row_count == TSR_CALIBRATION_ROWS) continue;
    int status = name_change(study, change, more, &out->rows[out->row_count], error);
    if (status) return status;
    out->row_count++;
  }
  return 0;
}

/* In parts of the recorded run: allocations of another size, and of the peak what it lacks. More is another run. */
enum { MOST_RESIZED = 10, MOST_MISSING = 10 };

/* Another batch or sequence shows in allocations that are predicted with another size, and in a peak that is predicted too high.
 * Allocations that only the recorded run has are no sign of it. */
static int check_sizes(const tsr_alignment *aligned, tsr_error *error) {
  const tsr_aligned_side *recorded = &aligned->sides[1], *predicted = &aligned->sides[0];
  uint64_t resized = aligned->counts[TSR_ALLOCATION_RESIZED];
  uint64_t most =
      tsr__sum_u64(recorded->peak_allocated_bytes, recorded->peak_allocated_bytes / MOST_MISSING);
  char sizes[2][32];
  if (resized <= recorded->allocations / MOST_RESIZED && predicted->peak_allocated_bytes <= most)
    return 0;
  return tsr__fail(
      error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
      "the recorded run has other sizes: %llu of the %llu allocations of its last step differ, and "
      "its peak is %s where %s is predicted. Give the batch, sequence and options that it had",
      (unsigned long long)resized, (unsigned long long)recorded->allocations,
      tsr_size_text(recorded->peak_allocated_bytes, sizes[0], sizeof sizes[0]),
      tsr_size_text(predicted->peak_allocated_bytes, sizes[1], sizeof sizes[1]));
}

static int compare(tsr_study *recorded, const tsr_snapshot *predicted, tsr_calibration *out,
                   tsr_error *error) {
  tsr_study *study = NULL;
  tsr_diff *diff = NULL;
  int status = tsr_study_new(predicted, &study, error);
  if (status == 0)
    status = tsr_diff_compute(study, recorded, TSR_DIFF_BY_ALLOCATION, NULL, &diff, error);
  const tsr_alignment *aligned =
      status == 0 && diff->device_count ? diff->devices[0].alignment : NULL;
  if (status == 0 && !aligned)
    status = tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "the recorded snapshot has no trace of the device that is predicted");
  else if (status == 0 && aligned->same < aligned->sides[1].allocations / 2)
    status = tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "the recorded run is of something else: %llu of the %llu allocations of its "
                       "last step are predicted",
                       (unsigned long long)aligned->same,
                       (unsigned long long)aligned->sides[1].allocations);
  assert(status || aligned);
  if (status == 0) status = check_sizes(aligned, error);
  if (status == 0) status = list_unexplained(recorded, aligned, out, error);
  tsr_diff_free(diff);
  tsr_study_free(study);
  return status;
}

int tsr__recorded_run_of_study(tsr_study *recorded, const tsr_snapshot *predicted,
                               tsr_calibration *out, tsr_error *error) {
  int status = measure_time(recorded, out, error);
  return status ? status : compare(recorded, predicted, out, error);
}
