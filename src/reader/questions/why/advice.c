/* advice.c - what would let the run finish. See outlook.h.
 *
 * Memory at a failure is of two sorts: what the model needs whatever the batch (parameters, gradients,
 * optimizer state, buffers), and what grows with the batch. An earlier step shows both at its peak.
 * In a first step the rest is estimated, on the careful side:
 *
 *   gradients           as large as the parameters
 *   optimizer state     twice the parameters, as Adam has it; once more while its step runs. After a whole
 *                       step of the optimizer, what it has
 *   loss                by the sizes of the embedding and of hidden states
 *   backward            something more; without an idea of the loss, twice the forward
 *
 * A change is called enough only if its estimate leaves as much of the memory free as fragmentation took at the
 * failure, and a twentieth at least. */
#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "questions/why/outlook.h"

/* Bytes of the estimate. */
typedef struct needs {
  double parameters, gradients, states, other; /* whatever the batch; now */
  double fixed;                                /* whatever the batch, at the peak */
  double update;                               /* what the optimizer's step takes beyond it */
  double scaling;                              /* with the batch, at the peak */
  double peak;                                 /* allocated at the peak, as far as known */
  double capacity;                             /* less what fragmentation may take */
  bool is_peak_known;
} needs;

static void sort_categories(const tsr_why_device *d, needs *n) {
  for (size_t i = 0; i < d->category_count; i++) {
    double bytes = (double)d->categories[i].block_bytes;
    switch (d->categories[i].category) {
    case TSR_CATEGORY_PARAMETER: n->parameters += bytes; break;
    case TSR_CATEGORY_GRADIENT: n->gradients += bytes; break;
    case TSR_CATEGORY_OPTIMIZER_STATE: n->states += bytes; break;
    case TSR_CATEGORY_BUFFER:
    case TSR_CATEGORY_CAST:
    case TSR_CATEGORY_WORKSPACE:
    case TSR_CATEGORY_COMMUNICATION: n->other += bytes; break;
    default: break;
    }
  }
}

static double at_least(double bytes, double floor) {
  return bytes > floor ? bytes : floor;
}

/* How much larger the peak may be than what is known, for the part that grows with the batch. */
static double margin_of(const tsr_why_outlook *outlook, bool is_peak_known, bool is_loss_known,
                        bool trains) {
  if (is_peak_known) return 1.05;
  if (!trains) return 1.25;
  switch (outlook->phase) {
  case TSR_PHASE_BACKWARD:
  case TSR_PHASE_RECOMPUTE: return 1.4;
  case TSR_PHASE_OPTIMIZER: return 1.1;
  default: return is_loss_known ? 1.15 : 3;
  }
}

static void estimate(const tsr_why_device *d, uint64_t highest, const tsr__why_program *program,
                     bool trains, needs *n) {
  const tsr_why_outlook *outlook = &d->outlook;
  uint64_t asked = tsr__sum_u64(d->moment.totals.allocated_bytes, d->request_bytes);
  double there = (double)d->trial_capacity_bytes;
  double lost =
      d->request_reason == TSR_WHY_FRAGMENTED ? (double)d->free[TSR_WHY_CACHE_OWN].bytes : 0;
  *n = (needs){.capacity = at_least(there - at_least(lost, there / 20), 0)};
  sort_categories(d, n);
  n->is_peak_known = outlook->basis == TSR_WHY_BASIS_STEP &&
                     (!trains || program->has_optimizer || program->has_whole_step);
  n->peak = outlook->basis ? (double)outlook->peak_bytes : (double)asked;
  double now = n->parameters + n->gradients + n->states + n->other;
  if (outlook->phase == TSR_PHASE_OPTIMIZER && !n->is_peak_known) {
    n->peak = (double)highest;
    now = n->parameters + n->other;
  } else if (outlook->phase == TSR_PHASE_OPTIMIZER) {
    n->peak = (double)program->work_peak_bytes;
  }
  bool is_forward = outlook->phase == TSR_PHASE_FORWARD || outlook->phase == TSR_PHASE_UNKNOWN;
  double loss = trains && is_forward && !n->is_peak_known ? (double)program->loss_bytes : 0;
  n->scaling = at_least(n->peak - now, 0) + loss;
  n->scaling *= margin_of(outlook, n->is_peak_known, loss > 0, trains);
  n->fixed = now;
  if (!trains) return;
  bool is_known = program->has_optimizer || program->has_whole_step;
  double trained = is_known && n->states > 0 ? n->states / 2 : n->parameters;
  n->fixed = n->parameters + n->other + at_least(n->gradients, trained);
  n->fixed += is_known ? n->states : at_least(n->states, 2 * n->parameters);
  n->update = is_known ? at_least((double)program->update_peak_bytes - n->fixed, 0) : n->parameters;
}

/* ---- The changes ---- */

static void add(tsr_why_device *d, tsr_why_advice advice) {
  assert(d->advice_count < TSR_WHY_CHANGE_COUNT);
  size_t i = d->advice_count++;
  for (; advice.is_enough && i > 0 && !d->advice[i - 1].is_enough; i--)
    d->advice[i] = d->advice[i - 1];
  d->advice[i] = advice;
}

/* The best trial, if it serves the request and is not known to fail right after it. */
static void advise_settings(tsr_why_device *d, const tsr__why_program *program) {
  const tsr_why_trial *best = d->trials, *recorded = d->trials;
  for (size_t i = 0; i < d->trial_count; i++)
    if (d->trials[i].is_recorded) recorded = &d->trials[i];
  /* Of those that do, what PyTorch recommends. */
  for (size_t i = 0; i < d->trial_count && d->trials[i].is_rest_served; i++) {
    const tsr_allocator_settings expandable = {.expandable_segments = true,
                                               .tie_break = d->trials[i].settings.tie_break};
    char x[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES], y[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES];
    (void)tsr_allocator_settings_text(&expandable, x);
    if (!strcmp(x, tsr_allocator_settings_text(&d->trials[i].settings, y))) best = &d->trials[i];
  }
  if (!d->trial_count || !best->fits || best->is_recorded) return;
  if (recorded->failed_event != d->moment.event) return; /* the model is off */
  if (best->is_rest_known && !best->is_rest_served) return;
  bool is_step = d->outlook.basis == TSR_WHY_BASIS_STEP && best->is_rest_served &&
                 (!program->has_backward || program->has_optimizer);
  /* Steps are alike, but not to the byte. */
  bool leaves_room =
      (double)d->outlook.peak_bytes <= (1 - 1.0 / 32) * (double)d->trial_capacity_bytes;
  add(d, (tsr_why_advice){.change = TSR_WHY_CHANGE_SETTINGS,
                          .is_enough = is_step && !d->outlook.step_growth_bytes && leaves_room,
                          .settings = best->settings,
                          .peak_bytes = d->outlook.peak_bytes});
}

/* Of a program that trains: whether its optimizer was not seen. */
static bool is_adam_assumed(const tsr_why_device *d, const tsr__why_program *program) {
  return !program->has_optimizer && !program->has_whole_step &&
         d->outlook.basis != TSR_WHY_BASIS_STATES;
}

static void advise_batch(tsr_why_device *d, const needs *n, const tsr__why_program *program,
                         bool trains) {
  tsr_why_advice advice = {.change = TSR_WHY_CHANGE_BATCH};
  /* While the optimizer runs, the batch's memory is free, and what its step makes is not. */
  if (n->parameters > 0 && n->fixed + n->update > (double)d->trial_capacity_bytes) {
    add(d, (tsr_why_advice){.change = TSR_WHY_CHANGE_MODEL,
                            .peak_bytes = (uint64_t)n->fixed,
                            .update_bytes = (uint64_t)n->update,
                            .is_adam_assumed = trains && is_adam_assumed(d, program)});
    return;
  }
  if (n->scaling < (n->fixed + n->scaling) / 8) return; /* it is the model */
  if (n->parameters <= 0) {
    add(d, advice);
    return;
  }
  double factor = (n->capacity - n->fixed) / n->scaling;
  if (factor < 0.01) return;
  if (factor > 0.9) factor = 0.9;
  advice.batch_percent = (uint32_t)(factor * 100);
  advice.is_adam_assumed = trains && is_adam_assumed(d, program);
  advice.is_enough = !d->outlook.step_growth_bytes && n->fixed + n->update <= n->capacity;
  advice.peak_bytes = (uint64_t)(n->fixed + n->scaling * advice.batch_percent / 100);
  add(d, advice);
}

/* A checkpointed block keeps its input, about an eighth of what it keeps otherwise, and one block at a
 * time is whole again. */
static void advise_checkpoint(tsr_why_device *d, const needs *n, const tsr__why_program *program) {
  double block = (double)program->blocks.bytes, kept = block * (double)program->blocks.count;
  if (program->has_recompute || kept < n->peak / 4 || program->blocks.count < 3) return;
  double peak = n->fixed + n->scaling - kept + kept / 8 + 1.5 * block;
  if (peak < n->fixed || peak > n->fixed + n->scaling) return;
  bool is_enough = peak <= n->capacity && n->fixed + n->update <= n->capacity;
  add(d, (tsr_why_advice){.change = TSR_WHY_CHANGE_CHECKPOINT,
                          .is_enough = is_enough && !d->outlook.step_growth_bytes,
                          .peak_bytes = n->is_peak_known || is_enough ? (uint64_t)peak : 0});
}

/* The most allocated before the failure. */
static uint64_t highest_before(const tsr__timeline *t, const tsr_why_device *d) {
  uint64_t now = d->moment.totals.allocated_bytes;
  bool is_before = t->allocated_event < d->moment.event;
  return is_before && t->maxima.allocated_bytes > now ? t->maxima.allocated_bytes : now;
}

int tsr__why_advise(tsr_study *study, const tsr__timeline *timeline, tsr_why_device *device,
                    tsr_error *error) {
  tsr__why_program program;
  needs n;
  if (device->outside_cause_count) add(device, (tsr_why_advice){.change = TSR_WHY_CHANGE_OUTSIDE});
  int status = tsr__why_program_of(study, timeline, device, &program, error);
  if (status) return status;
  advise_settings(device, &program);
  if (device->ooms[device->chosen].is_recovered) return 0;
  if (device->outlook.step_growth_bytes)
    add(device, (tsr_why_advice){.change = TSR_WHY_CHANGE_GROWTH});
  /* A first forward may be that of a training run; one that is repeated without a backward is not. */
  const tsr_why_outlook *outlook = &device->outlook;
  bool iterates = outlook->unit == TSR_STEPS_UNIT_ITERATION && outlook->step > 1;
  for (size_t i = 0; i < device->finding_count; i++)
    iterates |= device->findings[i].rule == TSR_FINDING_NO_GRAD;
  bool may_train = !iterates && (outlook->block_count || !outlook->blocks_begun);
  bool trains = program.has_backward || may_train;
  estimate(device, highest_before(timeline, device), &program, trains, &n);
  advise_batch(device, &n, &program, trains);
  if (trains) advise_checkpoint(device, &n, &program);
  return 0;
}
