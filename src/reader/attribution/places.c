/* places.c - see places.h.
 *
 * The program's own innermost frame is the place. If a stack has none, a frame of the next rank
 * represents it (attribution/frames.h): a library, torch's Python, C++. If the program called a library,
 * that library's innermost frame identifies the layer. Autograd's threads have C++ frames only, whose
 * innermost frames are the allocator's and always the same: there the node that it runs
 * (`MmBackward0::apply`, `AccumulateGrad`) is the place, or else the outermost operator
 * (`at::_ops::sum_dim_IntList::call`). */
#include "attribution/places.h"

#include <assert.h>

#include "attribution/frames.h"
#include "base/map.h"
#include "base/memory.h"

tsr__place tsr__place_in(tsr_stack stack, const uint8_t *ranks) {
  tsr__place place = {TSR_NONE, TSR_NONE};
  uint32_t library = TSR_NONE;
  unsigned best = TSR__RANK_COUNT;
  for (uint32_t i = 0; i < stack.depth && best != TSR__RANK_USER; i++) {
    unsigned rank = ranks[stack.frames[i]];
    assert(rank < TSR__RANK_COUNT);
    if (rank == TSR__RANK_LIBRARY && library == TSR_NONE) library = stack.frames[i];
    /* An operator that calls others is the outermost of them. */
    bool is_outer_operator = rank == TSR__RANK_OPERATOR && best == TSR__RANK_OPERATOR;
    if (rank >= best && !is_outer_operator) continue;
    /* Checkpointing calls the engine from torch's Python: a node inside it is more informative. */
    if (rank == TSR__RANK_TORCH && best == TSR__RANK_NODE) continue;
    place.frame = stack.frames[i];
    best = rank;
  }
  assert((place.frame == TSR_NONE) == (stack.depth == 0));
  if (best == TSR__RANK_USER) place.layer = library;
  return place;
}

uint8_t *tsr__frame_ranks(const tsr_snapshot *snapshot) {
  uint32_t count = tsr_snapshot_frame_count(snapshot);
  uint8_t *ranks = TSR__NEW_ARRAY(uint8_t, count);
  for (uint32_t i = 0; ranks && i < count; i++) {
    tsr_frame frame = tsr_snapshot_frame(snapshot, i);
    ranks[i] = (uint8_t)tsr__frame_rank_of(tsr_snapshot_string(snapshot, frame.name),
                                           tsr_snapshot_string(snapshot, frame.file));
  }
  return ranks;
}

static bool collect(const tsr_snapshot *snapshot, const uint8_t *ranks, tsr__places *places) {
  tsr__map index_of = {0};
  bool ok = TSR__VECTOR_PUSH(&places->items, (tsr__place){TSR_NONE, TSR_NONE}) &&
            tsr__map_put(&index_of, UINT64_MAX, 0, NULL);
  for (uint32_t i = 0; ok && i < places->stack_count; i++) {
    tsr__place place = tsr__place_in(tsr_snapshot_stack(snapshot, i), ranks);
    bool is_new = false;
    const uint64_t *index = tsr__map_put(&index_of, (uint64_t)place.frame << 32 | place.layer,
                                         places->items.count, &is_new);
    ok = index && (!is_new || TSR__VECTOR_PUSH(&places->items, place));
    assert(!ok || *index < places->items.count);
    if (ok) places->stacks[i] = (uint32_t)*index;
  }
  tsr__map_release(&index_of);
  return ok;
}

int tsr__places_compute(const tsr_snapshot *snapshot, tsr__places *out, tsr_error *error) {
  tsr__places places = {.stack_count = tsr_snapshot_stack_count(snapshot)};
  uint8_t *ranks = tsr__frame_ranks(snapshot);
  places.stacks = TSR__NEW_ARRAY(uint32_t, places.stack_count);
  bool ok = ranks && places.stacks && collect(snapshot, ranks, &places);
  tsr__free(ranks);
  if (!ok) {
    tsr__places_release(&places);
    return tsr__fail_memory(error);
  }
  *out = places;
  return 0;
}

void tsr__places_release(tsr__places *places) {
  tsr__free(places->stacks);
  TSR__VECTOR_FREE(&places->items);
  *places = (tsr__places){0};
}
