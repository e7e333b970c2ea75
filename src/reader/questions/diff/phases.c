/* phases.c - the highest moment of each phase, and at which moments two runs are compared.
 *
 * A peak in backward has activations and no state of the optimizer's step, one in the optimizer's step the
 * contrary: row by row their difference would be that of the phases. Then the same phase of both is compared:
 * of the two phases with a peak the one in which more changed. */
#include "questions/diff/phases.h"

#include "questions/diff/diff.h"
#include "timeline/sweep.h"

/* Recomputation is work of the backward pass. */
static tsr_phase phase_of(const tsr__phases *phases, int64_t event) {
  tsr_phase phase = event < 0 ? TSR_PHASE_UNKNOWN : tsr__phases_at(phases, (uint32_t)event);
  return phase == TSR_PHASE_RECOMPUTE ? TSR_PHASE_BACKWARD : phase;
}

int tsr__diff_phases(tsr_study *study, tsr_diff_side *side, tsr_error *error) {
  const tsr__timeline *timeline;
  const tsr__phases *phases;
  const tsr__cycle *cycle = NULL;
  tsr__sweep sweep;
  size_t run = 0;
  for (int i = 0; i < TSR_PHASE_COUNT; i++) side->in_phase[i].event = -1;
  int status = tsr__study_timeline(study, side->device, &timeline, error);
  if (!status) status = tsr__study_phases(study, side->device, &phases, error);
  if (!status) status = tsr__study_cycle(study, side->device, &cycle, error);
  if (status) return status;
  tsr_step_stop stop = tsr__cycle_stop_of(tsr__cycle_stop(cycle));
  side->is_stopped = stop.event >= 0;
  side->stop_phase = stop.phase;
  side->phase = phase_of(phases, side->peak.event);
  status = tsr__sweep_begin(timeline, &sweep, error);
  if (status) return status;
  while (tsr__sweep_next(&sweep)) {
    while (run < phases->runs.count && phases->runs.items[run].first <= sweep.event) run++;
    if (!run) continue;
    tsr_phase phase = (tsr_phase)phases->runs.items[run - 1].phase;
    if (phase == TSR_PHASE_RECOMPUTE) phase = TSR_PHASE_BACKWARD;
    tsr_moment *most = &side->in_phase[phase];
    if (most->event >= 0 && sweep.totals.allocated_bytes <= most->totals.allocated_bytes) continue;
    *most = (tsr_moment){sweep.event, timeline->events.time_us[sweep.event], sweep.totals};
  }
  tsr__sweep_release(&sweep);
  return 0;
}

/* By how much the highest moments of a phase differ; 0 if a side does not have it. */
static uint64_t change_in(const tsr_diff_device *device, tsr_phase phase) {
  const tsr_moment *before = &device->old_side.in_phase[phase],
                   *after = &device->new_side.in_phase[phase];
  if (before->event < 0 || after->event < 0) return 0;
  int64_t delta = tsr__diff_delta(before->totals.allocated_bytes, after->totals.allocated_bytes);
  return delta < 0 ? (uint64_t)-delta : (uint64_t)delta;
}

static bool is_in_both(const tsr_diff_device *device, tsr_phase phase) {
  return phase != TSR_PHASE_UNKNOWN && device->old_side.in_phase[phase].event >= 0 &&
         device->new_side.in_phase[phase].event >= 0;
}

void tsr__diff_choose_moments(tsr_diff_device *device) {
  tsr_diff_side *before = &device->old_side, *after = &device->new_side;
  before->compared = before->peak;
  after->compared = after->peak;
  device->compared_phase = TSR_PHASE_UNKNOWN;
  if (!before->is_there || !after->is_there || before->phase == after->phase) return;
  if (before->phase == TSR_PHASE_UNKNOWN || after->phase == TSR_PHASE_UNKNOWN) return;
  tsr_phase phase = after->phase;
  if (!is_in_both(device, phase) || (is_in_both(device, before->phase) &&
                                     change_in(device, before->phase) > change_in(device, phase)))
    phase = before->phase;
  if (!is_in_both(device, phase)) return;
  device->compared_phase = phase;
  before->compared = before->in_phase[phase];
  after->compared = after->in_phase[phase];
}
