/* findings_stale.c - memory of a step that is no longer of use while the next one runs forward.
 *
 *   step k                                        step k + 1
 *   | forward        backward         optimizer | forward          backward ...
 *     outputs ---------------------------------------------- x     made again: reassigned here
 *                    gradients ----------------------------- x     zero_grad() comes as late as this
 *                                               |<-- of no use -->|
 *
 * From the end of the optimizer's step to the next backward pass nothing reads the gradients, and from the
 * end of a step on nothing reads what its forward made and its backward has been through. What the peak
 * would be without such memory is found by going through the trace once more: another moment may be the
 * highest then.
 *
 * A recording that begins late shows no step before its first. Gradients from before it are those of one, if they
 * are alive in a forward pass before the first backward pass, unless gradients accumulate: then that backward pass
 * adds to them. */
#include <stdlib.h>

#include "base/checked.h"
#include "base/memory.h"
#include "study/finder.h"
#include "timeline/sweep.h"

/* A part of the trace in which memory older than it is of no use: events first .. end - 1. */
typedef struct lull {
  uint32_t first, end;
  uint32_t before; /* the first event of the step before it */
  uint32_t last;   /* the last event of the step that it begins */
  uint32_t after;  /* the end of the backward pass that begins at `end` */
  bool is_late;    /* the step before it is older than the recording */
} lull;

typedef struct lulls {
  lull *items;
  size_t count;
} lulls;

/* Whether the ends of steps are those of the optimizer's work. */
static bool has_training_steps(const tsr__cycle *cycle) {
  bool is_sure = cycle->basis == TSR_STEPS_PHASES || cycle->basis == TSR_STEPS_ANNOTATIONS;
  return is_sure && cycle->unit == TSR_STEPS_UNIT_STEP && !cycle->counts_backwards;
}

static bool is_backward(const tsr__phase_run *run) {
  return run->phase == TSR_PHASE_BACKWARD || run->phase == TSR_PHASE_RECOMPUTE;
}

/* The first event from `event` on that is in a backward pass, or in none; or the number of events. */
static uint32_t next_turn(const tsr__finder *f, uint32_t event, bool of_backward) {
  const tsr__phases *phases = f->phases;
  const tsr__phase_run *at = tsr__phases_run_at(phases, event);
  if (at && is_backward(at) == of_backward) return event;
  for (size_t i = at ? (size_t)(at - phases->runs.items) : 0; i < phases->runs.count; i++) {
    const tsr__phase_run *run = &phases->runs.items[i];
    if (run->first >= event && is_backward(run) == of_backward) return run->first;
  }
  return (uint32_t)f->t->events.count;
}

/* The first event of the next backward pass after `event`. */
static uint32_t next_backward(const tsr__finder *f, uint32_t event) {
  return next_turn(f, event, true);
}

/* The end of the last optimizer's step before event `end`; 0 if absent. */
static uint32_t end_of_optimizer(const tsr__finder *f, uint32_t end) {
  uint32_t found = 0;
  for (size_t i = 0; i < f->phases->runs.count && f->phases->runs.items[i].first < end; i++)
    if (f->phases->runs.items[i].phase == TSR_PHASE_OPTIMIZER)
      found = f->phases->runs.items[i].last_alloc + 1;
  return found;
}

/* What comes before the first backward pass, or the end of the first step. */
static void list_first(const tsr__finder *f, lulls *out) {
  const tsr__cycle_steps *steps = &f->cycle->steps;
  uint32_t end = next_backward(f, 0);
  if (steps->count && has_training_steps(f->cycle) && end > steps->items[0].last)
    end = steps->items[0].last + 1;
  uint32_t first = end_of_optimizer(f, end);
  if (first < end)
    out->items[out->count++] = (lull){first, end, first, end - 1, next_turn(f, end, false), true};
}

/* The end of what the optimizer does in a step, after which it may still evaluate, log or save; of a step without that,
 * its end. */
static uint32_t end_of_work(const tsr__finder *f, const tsr__cycle_step *step) {
  const tsr__phases *phases = f->phases;
  const tsr__phase_run *at = tsr__phases_run_at(phases, step->last);
  for (size_t i = at ? (size_t)(at - phases->runs.items) + 1 : 0; i-- > 0;) {
    const tsr__phase_run *run = &phases->runs.items[i];
    if (run->first < step->first || is_backward(run)) break;
    if (run->phase == TSR_PHASE_OPTIMIZER && run->last_alloc < step->last)
      return run->last_alloc + 1;
  }
  return step->last + 1;
}

/* From the end of the optimizer's work in each step to the next backward pass. */
static bool list_lulls(const tsr__finder *f, lulls *out) {
  const tsr__cycle_steps *steps = &f->cycle->steps;
  uint32_t events = (uint32_t)f->t->events.count;
  out->items = TSR__NEW_ARRAY(lull, steps->count + 2);
  if (!out->items) return false;
  list_first(f, out);
  if (!steps->count || !has_training_steps(f->cycle)) return true;
  for (size_t i = 1; i < steps->count; i++) {
    const tsr__cycle_step *step = &steps->items[i], *before = &steps->items[i - 1];
    uint32_t first = end_of_work(f, before), end = next_backward(f, first);
    if (end > step->last) end = step->last + 1;
    out->items[out->count++] =
        (lull){first, end, before->first, step->last, next_turn(f, end, false), false};
  }
  const tsr__cycle_step *last = &steps->items[steps->count - 1];
  uint32_t past = end_of_work(f, last);
  uint32_t end = past < events ? next_backward(f, past) : past;
  if (past < events)
    out->items[out->count++] =
        (lull){past, end, last->first, events - 1, next_turn(f, end, false), false};
  return true;
}

/* The one that the peak is in, or NULL. */
static const lull *lull_at_peak(const tsr__finder *f, const lulls *list) {
  int64_t peak = f->t->allocated_event;
  for (size_t i = 0; i < list->count; i++)
    if (peak >= (int64_t)list->items[i].first && peak < (int64_t)list->items[i].end) {
      const lull *in = &list->items[i];
      bool is_forward = tsr__phases_at(f->phases, (uint32_t)peak) == TSR_PHASE_FORWARD;
      return in->is_late && !is_forward ? NULL : in;
    }
  return NULL;
}

/* Whether an allocation is of no use in a lull. */
typedef bool is_stale_fn(const tsr__finder *f, const lull *in, uint32_t allocation);

/* Whether the step that a gradient from before the recording is of has ended: it is freed before the first backward
 * pass, an optimizer's step is before that, or the recording ends first. Otherwise gradients may accumulate. */
static bool is_of_past_step(const tsr__finder *f, const lull *in, uint32_t allocation) {
  return f->t->birth.items[allocation] == TSR_NONE &&
         (in->first || in->end == f->t->events.count || f->t->death.items[allocation] <= in->end);
}

/* Gradients that are older than the lull. The flat buffers of DDP and others are no one's to drop. */
static bool is_stale_gradient(const tsr__finder *f, const lull *in, uint32_t allocation) {
  uint32_t birth = f->t->birth.items[allocation];
  return f->category[allocation] == TSR_CATEGORY_GRADIENT &&
         f->evidence[allocation] != TSR_EVIDENCE_GRADIENT_BUFFER &&
         f->evidence[allocation] != TSR_EVIDENCE_FLATTENED &&
         (in->is_late ? is_of_past_step(f, in, allocation)
                      : birth == TSR_NONE || birth < in->first);
}

/* What the step before made in its forward, and a variable holds until it is assigned again. What lives
 * longer is kept on purpose, or leaks. Batches are no output: the next one may be fetched ahead. */
static bool is_stale_output(const tsr__finder *f, const lull *in, uint32_t allocation) {
  uint32_t birth = f->t->birth.items[allocation], death = f->t->death.items[allocation];
  tsr_category category = (tsr_category)f->category[allocation];
  bool is_output = category == TSR_CATEGORY_ACTIVATION || category == TSR_CATEGORY_KV_CACHE;
  if (in->is_late || !is_output || birth == TSR_NONE || birth < in->before || birth >= in->first)
    return false;
  if (tsr__phases_at(f->phases, birth) != TSR_PHASE_FORWARD) return false;
  if (next_backward(f, birth) >= in->first) return false;      /* its backward is yet to come */
  if (death == TSR_NONE) return in->end == f->t->events.count; /* the recording ends first */
  return death <= in->last;
}

/* Until when an allocation is of no use. A gradient that is zeroed and kept would be made again where its first
 * backward pass made it. */
static uint32_t useless_until(const tsr__finder *f, const lull *in, uint32_t allocation) {
  uint32_t birth = f->t->birth.items[allocation], death = f->t->death.items[allocation];
  if (death <= in->end) return death;
  const tsr__phase_run *run = birth == TSR_NONE ? NULL : tsr__phases_run_at(f->phases, birth);
  if (!run || !is_backward(run)) return in->end;
  uint64_t end = next_turn(f, birth, false), at = birth - run->first, length = end - run->first;
  uint64_t until = in->end + (uint64_t)(in->after - in->end) * at / (length ? length : 1);
  return (uint32_t)(until < death ? until : death);
}

/* Count an allocation out of each lull in which it is of no use. `change`: by event, bytes. */
static void leave_out(const tsr__finder *f, const lulls *list, is_stale_fn *is_stale,
                      uint32_t allocation, int64_t *change) {
  uint32_t birth = f->t->birth.items[allocation], death = f->t->death.items[allocation];
  size_t low = 0, high = list->count;
  while (birth != TSR_NONE && low < high) {
    size_t middle = low + (high - low) / 2;
    if (list->items[middle].first <= birth)
      low = middle + 1;
    else
      high = middle;
  }
  for (size_t i = low; i < list->count && list->items[i].first < death; i++) {
    const lull *in = &list->items[i];
    if (!is_stale(f, in, allocation)) continue;
    int64_t bytes = (int64_t)f->t->block_bytes.items[allocation];
    change[in->first] += bytes;
    change[useless_until(f, in, allocation)] -= bytes;
  }
}

/* The peak if such memory were gone when it is of no use. */
static int peak_without(const tsr__finder *f, const lulls *list, is_stale_fn *is_stale,
                        uint64_t *out, tsr_error *error) {
  tsr__sweep sweep;
  int64_t stale = 0;
  uint64_t most = 0;
  int64_t *change = TSR__NEW_ARRAY(int64_t, f->t->events.count + 1);
  int status = change ? tsr__sweep_begin(f->t, &sweep, error) : tsr__fail_memory(error);
  for (uint32_t a = 0; !status && a < f->t->birth.count; a++)
    leave_out(f, list, is_stale, a, change);
  while (!status) {
    if (sweep.event >= 0) stale += change[sweep.event];
    uint64_t left = tsr__drop_u64(sweep.totals.allocated_bytes, stale > 0 ? (uint64_t)stale : 0);
    if (left > most) most = left;
    if (!tsr__sweep_next(&sweep)) break;
  }
  if (!status) tsr__sweep_release(&sweep);
  tsr__free(change);
  *out = most;
  return status;
}

static bool has_rule(const tsr__finder *f, tsr_finding_rule rule) {
  for (size_t i = 0; i < f->out->items.count; i++)
    if (f->out->items.items[i].rule == rule) return true;
  return false;
}

/* What of the live set at the peak is stale, as the finding of a rule; its saving is yet to be found. */
static bool gather(tsr__finder *f, const lull *in, is_stale_fn *is_stale, tsr_finding *finding) {
  uint64_t largest = 0;
  bool ok = true;
  for (size_t i = 0; ok && i < f->live.count; i++) {
    uint32_t a = f->live.items[i];
    if (!is_stale(f, in, a)) continue;
    uint64_t bytes = tsr__timeline_requested(f->t, a);
    finding->bytes = tsr__sum_u64(finding->bytes, bytes);
    finding->count++;
    ok = tsr__finder_note(f, finding->rule, a);
    if (bytes <= largest) continue;
    largest = bytes;
    finding->stack = tsr__timeline_stack(f->t, a);
  }
  return ok;
}

static bool find_stale(tsr__finder *f, tsr_finding_rule rule, is_stale_fn *is_stale,
                       tsr_error *error) {
  lulls list = {0};
  uint64_t left = 0;
  tsr_finding finding = {
      .rule = rule, .event = f->t->allocated_event, .frame = TSR_NONE, .stack = TSR_NONE};
  bool ok = list_lulls(f, &list);
  const lull *in = ok ? lull_at_peak(f, &list) : NULL;
  finding.is_before_recording = in && in->is_late;
  finding.has_backward = in && in->end < f->t->events.count;
  if (in) ok = gather(f, in, is_stale, &finding);
  bool is_found = ok && in && tsr__finder_is_worth_it(f, finding.bytes);
  if (is_found) ok = !peak_without(f, &list, is_stale, &left, error);
  tsr__free(list.items);
  finding.saved_bytes = tsr__drop_u64(f->peak_bytes, left);
  if (finding.saved_bytes > finding.bytes) finding.saved_bytes = finding.bytes;
  if (!ok || (is_found && tsr__finder_is_worth_it(f, finding.saved_bytes)))
    return ok && tsr__finder_add(f, finding);
  f->out->allocations[rule].count = 0;
  return true;
}

bool tsr__find_stale_gradients(tsr__finder *f, tsr_error *error) {
  if (has_rule(f, TSR_FINDING_OLD_GRADIENTS)) return true; /* which says more */
  return find_stale(f, TSR_FINDING_ZERO_GRAD, is_stale_gradient, error);
}

bool tsr__find_held_outputs(tsr__finder *f, tsr_error *error) {
  if (has_rule(f, TSR_FINDING_TWO_FORWARDS)) return true; /* which says more */
  return find_stale(f, TSR_FINDING_HELD_OUTPUTS, is_stale_output, error);
}
