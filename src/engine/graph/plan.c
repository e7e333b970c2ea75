/* plan.c - plans as arrays of choices. See plan.h. */
#include "graph/plan.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"

bool tsr__plan_init(tsr__plan *plan, uint64_t block_count) {
  *plan = (tsr__plan){.block_count = block_count};
  plan->blocks = TSR__NEW_ARRAY(tsr__plan_block, block_count);
  return plan->blocks || !block_count;
}

void tsr__plan_release(tsr__plan *plan) {
  tsr__free(plan->blocks);
  TSR__VECTOR_FREE(&plan->saved);
  *plan = (tsr__plan){0};
}

bool tsr__plan_copy(tsr__plan *plan, const tsr__plan *from) {
  if (!tsr__plan_init(plan, from->block_count)) return false;
  if (from->block_count)
    memcpy(plan->blocks, from->blocks, (size_t)from->block_count * sizeof *from->blocks);
  for (size_t i = 0; i < from->saved.count; i++)
    if (!tsr__plan_choose_saved(plan, from->saved.items[i])) return false;
  return true;
}

bool tsr__plan_choose_saved(tsr__plan *plan, tsr__plan_saved saved) {
  assert(saved.first <= saved.end && saved.end <= plan->block_count);
  assert(saved.place < TSR__PLACED_COUNT);
  return TSR__VECTOR_PUSH(&plan->saved, saved);
}

tsr__plan_place tsr__plan_place_of(const tsr__plan *plan, uint64_t block, uint8_t op,
                                   uint8_t number, uint32_t index) {
  for (size_t i = plan->saved.count; i-- > 0;) {
    const tsr__plan_saved *s = &plan->saved.items[i];
    if (block < s->first || block >= s->end) continue;
    if (s->op != TSR__PLAN_ANY && s->op != op) continue;
    if (s->number != TSR__PLAN_ANY && s->number != number) continue;
    if (s->index == TSR__PLAN_ANY || s->index == index) return (tsr__plan_place)s->place;
  }
  return TSR__PLACED_KEEP;
}

#ifndef NDEBUG
static bool is_sound(const tsr__plan *plan) {
  for (uint64_t i = 0; i < plan->block_count; i++) {
    const tsr__plan_block *block = &plan->blocks[i];
    bool is_run = block->choice == TSR__PLAN_RECOMPUTE_RUN;
    bool follows = i && plan->blocks[i - 1].choice == TSR__PLAN_RECOMPUTE_RUN;
    if (block->choice >= TSR__PLAN_CHOICE_COUNT || (block->begins_run && !is_run)) return false;
    if (is_run && !follows && !block->begins_run) return false;
  }
  return true;
}
#endif

/* A run that was cut in two begins again at `block`. */
static void begin_run(tsr__plan *plan, uint64_t block) {
  if (block < plan->block_count && plan->blocks[block].choice == TSR__PLAN_RECOMPUTE_RUN)
    plan->blocks[block].begins_run = true;
  assert(is_sound(plan));
}

void tsr__plan_choose(tsr__plan *plan, uint64_t first, uint64_t end, tsr__plan_choice choice) {
  assert(first <= end && end <= plan->block_count);
  assert(choice < TSR__PLAN_CHOICE_COUNT && choice != TSR__PLAN_RECOMPUTE_RUN);
  for (uint64_t i = first; i < end; i++)
    plan->blocks[i] = (tsr__plan_block){(uint8_t)choice, false};
  begin_run(plan, end);
}

void tsr__plan_choose_runs(tsr__plan *plan, uint64_t first, uint64_t end, uint64_t length) {
  assert(first <= end && end <= plan->block_count && length);
  for (uint64_t i = first; i < end; i++)
    plan->blocks[i] = (tsr__plan_block){TSR__PLAN_RECOMPUTE_RUN, (i - first) % length == 0};
  begin_run(plan, end);
}

bool tsr__plan_has(const tsr__plan *plan, tsr__plan_choice choice) {
  for (uint64_t i = 0; i < plan->block_count; i++)
    if (plan->blocks[i].choice == choice) return true;
  return false;
}

uint64_t tsr__plan_segment_end(const tsr__plan *plan, uint64_t first) {
  assert(first < plan->block_count);
  uint64_t end = first + 1;
  if (plan->blocks[first].choice != TSR__PLAN_RECOMPUTE_RUN) return end;
  assert(plan->blocks[first].begins_run);
  while (end < plan->block_count && plan->blocks[end].choice == TSR__PLAN_RECOMPUTE_RUN &&
         !plan->blocks[end].begins_run)
    end++;
  return end;
}
