/* iterations.c - see iterations.h.
 *
 *   iteration 1            iteration 2            iteration 3, cut
 *   t  t  t  out           t  t  t  out           t  t
 *            |-- lives --------------|
 *
 * An allocation outlives its iteration if it is live after the last allocation in it. At the end of a recording
 * that cuts an iteration everything is live, and most of it would not be for long. */
#include "attribution/iterations.h"

#include <assert.h>

#include "base/memory.h"

#define NONE SIZE_MAX

static size_t iteration_of(const tsr__iterations *it, uint32_t event) {
  size_t low = 0, high = it->steps->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (it->steps->items[middle].last < event)
      low = middle + 1;
    else
      high = middle;
  }
  return low < it->steps->count && it->steps->items[low].first <= event ? low : NONE;
}

static bool is_live_after(const tsr__iterations *it, uint32_t allocation, uint32_t event) {
  return it->timeline->death.items[allocation] > event; /* TSR_NONE: never freed */
}

/* The stack's number in `made` and `kept`; the last is that of what has none. */
static uint32_t stack_of(const tsr__iterations *it, uint32_t allocation) {
  uint32_t stack = it->timeline->events.stack[it->timeline->birth.items[allocation]];
  return stack < it->stack_count ? stack : it->stack_count;
}

/* The events of the last allocations, and then what each stack does in whole iterations. */
static void learn(tsr__iterations *it) {
  const tsr__timeline *t = it->timeline;
  for (int round = 0; round < 2; round++)
    for (size_t i = t->initial.count; i < t->birth.count; i++) {
      size_t step = iteration_of(it, t->birth.items[i]);
      if (step == NONE) continue;
      if (!round) {
        it->last_alloc[step] = t->birth.items[i]; /* births ascend */
      } else if (it->steps->items[step].is_whole) {
        uint32_t stack = stack_of(it, (uint32_t)i);
        it->made[stack]++;
        it->kept[stack] += is_live_after(it, (uint32_t)i, it->last_alloc[step]);
      }
    }
}

bool tsr__iterations_find(const tsr__timeline *timeline, const tsr__cycle *cycle,
                          uint32_t stack_count, tsr__iterations *out) {
  *out = (tsr__iterations){.timeline = timeline, .stack_count = stack_count};
  if (!cycle || cycle->unit != TSR_STEPS_UNIT_ITERATION || cycle->steps.count < 2) return true;
  out->steps = &cycle->steps;
  out->last_alloc = TSR__NEW_ARRAY(uint32_t, cycle->steps.count);
  out->made = TSR__NEW_ARRAY(uint32_t, (size_t)stack_count + 1);
  out->kept = TSR__NEW_ARRAY(uint32_t, (size_t)stack_count + 1);
  if (!out->last_alloc || !out->made || !out->kept) {
    tsr__iterations_release(out);
    return false;
  }
  learn(out);
  return true;
}

void tsr__iterations_release(tsr__iterations *iterations) {
  tsr__free(iterations->last_alloc);
  tsr__free(iterations->made);
  tsr__free(iterations->kept);
  *iterations = (tsr__iterations){0};
}

bool tsr__outlives_iteration(const tsr__iterations *it, uint32_t allocation, uint32_t until,
                             bool *is_known) {
  uint32_t birth = it->timeline->birth.items[allocation];
  size_t step = it->steps ? iteration_of(it, birth) : NONE;
  *is_known = step != NONE;
  if (step == NONE) return false;
  assert(birth <= it->last_alloc[step]);
  uint32_t end = it->last_alloc[step] < until ? it->last_alloc[step] : until;
  bool is_kept = is_live_after(it, allocation, end);
  uint32_t stack = stack_of(it, allocation);
  if (!is_kept || it->steps->items[step].is_whole || !it->made[stack]) return is_kept;
  return it->kept[stack] * 2 > it->made[stack];
}
