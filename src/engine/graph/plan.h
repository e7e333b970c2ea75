/* plan.h - what happens to each block of a model between its forward and its backward.
 *
 * A plan is a value: one choice per block. `simulate --checkpoint` has a few words for common plans;
 * a planner makes others. Blocks may be mixed freely: keep some, recompute others.
 *
 *   tsr__plan plan;
 *   if (!tsr__plan_init(&plan, 12)) out of memory;
 *   tsr__plan_choose(&plan, 0, 6, TSR__PLAN_RECOMPUTE);    the first half
 *   tsr__plan_release(&plan);
 *
 * A plan chooses what happens, not how: src/engine/ops/checkpoint.c implements recomputation, by running a
 * segment of the program again; src/engine/ops/saved.c what happens to single tensors that ops of a kept block
 * save. */
#ifndef TSR_GRAPH_PLAN_H
#define TSR_GRAPH_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vector.h"

typedef enum tsr__plan_choice {
  TSR__PLAN_KEEP,      /* all that backward needs */
  TSR__PLAN_RECOMPUTE, /* keep the block's input; its layer class runs it again */
  /* The same for several blocks as one: only the input of the first is kept. The program calls
   * torch.utils.checkpoint around them itself. */
  TSR__PLAN_RECOMPUTE_RUN,
  TSR__PLAN_RECOMPUTE_ATTENTION, /* keep all but what attention computes from q, k and v */
  TSR__PLAN_CHOICE_COUNT
} tsr__plan_choice;

typedef struct tsr__plan_block {
  uint8_t choice;  /* tsr__plan_choice */
  bool begins_run; /* of TSR__PLAN_RECOMPUTE_RUN: not recomputed together with the block before */
} tsr__plan_block;

/* Where a saved tensor is until backward; in the order of tsr_saved_place. */
typedef enum tsr__plan_place {
  TSR__PLACED_KEEP,
  TSR__PLACED_RECOMPUTE,
  TSR__PLACED_HOST,
  TSR__PLACED_DISK,
  TSR__PLACED_NARROW16,
  TSR__PLACED_NARROW8,
  TSR__PLACED_COUNT
} tsr__plan_place;

/* Any op, or any tensor that an op saves. */
enum { TSR__PLAN_ANY = UINT8_MAX };

/* Where what ops of some blocks save is until backward. */
typedef struct tsr__plan_saved {
  uint64_t first, end;
  uint8_t op;     /* tsr__op_kind, or TSR__PLAN_ANY */
  uint8_t number; /* which op of that kind in the block, from 0, or TSR__PLAN_ANY */
  uint8_t index;  /* which of the op's saved tensors, or TSR__PLAN_ANY */
  uint8_t place;  /* tsr__plan_place */
} tsr__plan_saved;

/* Invariants: the first block of a run of TSR__PLAN_RECOMPUTE_RUN begins one; no other choice does. */
typedef struct tsr__plan {
  tsr__plan_block *blocks; /* block_count of them; owned */
  uint64_t block_count;
  TSR__VECTOR(tsr__plan_saved)
  saved; /* the last one that applies counts; without one, it is kept */
} tsr__plan;

/* Keep everything. False when out of memory; the plan may be released either way. */
bool tsr__plan_init(tsr__plan *plan, uint64_t block_count);
/* A zeroed plan is fine. */
void tsr__plan_release(tsr__plan *plan);
/* A copy. False when out of memory. */
bool tsr__plan_copy(tsr__plan *plan, const tsr__plan *from);

/* Choose for blocks first to end - 1: any choice but TSR__PLAN_RECOMPUTE_RUN. */
void tsr__plan_choose(tsr__plan *plan, uint64_t first, uint64_t end, tsr__plan_choice choice);
/* Recompute blocks first to end - 1 in runs of `length`, the last of which may be shorter. */
void tsr__plan_choose_runs(tsr__plan *plan, uint64_t first, uint64_t end, uint64_t length);

/* Choose where saved tensors are. False when out of memory. */
bool tsr__plan_choose_saved(tsr__plan *plan, tsr__plan_saved saved);
/* Where the `index`-th tensor that the `number`-th op of its kind in `block` saves is. O(choices). */
tsr__plan_place tsr__plan_place_of(const tsr__plan *plan, uint64_t block, uint8_t op,
                                   uint8_t number, uint32_t index);

/* Whether any block has that choice. O(blocks). */
bool tsr__plan_has(const tsr__plan *plan, tsr__plan_choice choice);
/* The end of the segment that begins with block `first`: the blocks that are recomputed as one, or that
 * block alone. */
uint64_t tsr__plan_segment_end(const tsr__plan *plan, uint64_t first);

static inline tsr__plan_choice tsr__plan_choice_of(const tsr__plan *plan, uint64_t block) {
  return (tsr__plan_choice)plan->blocks[block].choice;
}

#endif
