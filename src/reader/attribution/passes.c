/* passes.c - forward passes, and where a run ran out of memory. See cycle.h.
 *
 *   forward | backward | optimizer | forward | backward        a pass begins with the first forward
 *   pass 1 .......................  pass 2 ..........          after a backward or an optimizer's step
 *
 * A request that failed is an event of its phase like one that was served, so a pass may begin with it. */
#include <assert.h>

#include "attribution/cycle.h"
#include "base/checked.h"
#include "base/memory.h"

/* ---- Passes ---- */

static bool begins_pass(uint8_t phase) {
  return phase == TSR_PHASE_FORWARD || phase == TSR_PHASE_DATA;
}

static bool ends_pass(uint8_t phase) {
  return phase == TSR_PHASE_BACKWARD || phase == TSR_PHASE_OPTIMIZER;
}

static bool find_by_phases(const tsr__phases *phases, tsr__cycle *out) {
  bool is_open = false;
  for (size_t i = 0; i < phases->runs.count; i++) {
    const tsr__phase_run *run = &phases->runs.items[i];
    if (ends_pass(run->phase)) is_open = false;
    if (is_open || !begins_pass(run->phase)) continue;
    if (!TSR__VECTOR_PUSH(&out->passes, run->first)) return false;
    is_open = true;
  }
  return true;
}

bool tsr__passes_find(const tsr__phases *phases, tsr__cycle *out) {
  assert(!out->passes.count);
  if (tsr__phases_train(phases) || !out->steps.count) return find_by_phases(phases, out);
  for (size_t i = 0; i < out->steps.count; i++)
    if (!TSR__VECTOR_PUSH(&out->passes, out->steps.items[i].first)) return false;
  return true;
}

size_t tsr__cycle_passes_by(const tsr__cycle *cycle, uint32_t event) {
  size_t low = 0, high = cycle->passes.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (cycle->passes.items[middle] <= event)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* ---- Failures ---- */

static void reverse(tsr__cycle *out) {
  for (size_t i = 0, k = out->failures.count; i + 1 < k; i++) {
    tsr__failure swapped = out->failures.items[i];
    out->failures.items[i] = out->failures.items[--k];
    out->failures.items[k] = swapped;
  }
}

/* From the end, so that later successes are known. */
bool tsr__failures_find(const tsr__timeline *timeline, const tsr__phases *phases, tsr__cycle *out) {
  const tsr_events *events = &timeline->events;
  if (tsr__next_action(events, TSR_ACTION_OOM, 0) == events->count) return true;
  uint32_t stack_count = tsr_snapshot_stack_count(timeline->snapshot);
  bool *is_served = TSR__NEW_ARRAY(bool, stack_count);
  uint64_t served = 0; /* up to the next failure */
  bool ok = is_served != NULL;
  for (uint64_t i = events->count; ok && i-- > 0;) {
    uint32_t stack = events->stack[i];
    bool has_frames = stack < stack_count && tsr_snapshot_stack(timeline->snapshot, stack).depth;
    if (events->action[i] == TSR_ACTION_ALLOC) {
      if (has_frames) is_served[stack] = true;
      served = tsr__sum_u64(served, events->size[i]);
    } else if (events->action[i] == TSR_ACTION_OOM) {
      bool is_as_much = served && tsr__sum_u64(served, TSR__MIN_BLOCK - 1) >= events->size[i];
      tsr__failure failure = {.event = (uint32_t)i,
                              .is_recovered = (has_frames && is_served[stack]) || is_as_much,
                              .phase = (uint8_t)tsr__phases_at(phases, (uint32_t)i)};
      ok = TSR__VECTOR_PUSH(&out->failures, failure);
      served = 0;
    }
  }
  tsr__free(is_served);
  reverse(out);
  return ok;
}

void tsr__failures_place(const tsr__timeline *timeline, const tsr__roles *roles,
                         tsr__cycle *cycle) {
  size_t step = 0;
  for (size_t i = 0; i < cycle->failures.count; i++) {
    tsr__failure *failure = &cycle->failures.items[i];
    while (step < cycle->steps.count && cycle->steps.items[step].last < failure->event) step++;
    bool is_in = step < cycle->steps.count && cycle->steps.items[step].first <= failure->event;
    failure->pass = (uint32_t)tsr__cycle_passes_by(cycle, failure->event);
    bool is_certain = !cycle->counts_backwards || failure->pass <= 1;
    failure->step = is_in && is_certain ? (uint32_t)step + 1 : 0;
    /* Its neighbours give a request its phase if its stack does not; outside the loop they do not. */
    uint32_t stack = timeline->events.stack[failure->event];
    bool is_outside = cycle->basis == TSR_STEPS_LOOP && !is_in;
    if (is_outside) failure->phase = tsr__role_of(roles, stack).phase;
  }
}

const tsr__failure *tsr__cycle_stop(const tsr__cycle *cycle) {
  for (size_t i = cycle->failures.count; i-- > 0;)
    if (!cycle->failures.items[i].is_recovered) return &cycle->failures.items[i];
  return NULL;
}

tsr_step_stop tsr__cycle_stop_of(const tsr__failure *failure) {
  if (!failure) return (tsr_step_stop){.event = -1};
  return (tsr_step_stop){.event = failure->event,
                         .phase = (tsr_phase)failure->phase,
                         .step = failure->step,
                         .pass = failure->pass};
}
