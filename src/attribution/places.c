/* places.c - see places.h.
 *
 * The program's own innermost frame is the place. If a stack has none, a frame of the next origin
 * represents it (frames.h): a library, torch's Python, C++. If the program called a library, that
 * library's innermost frame identifies the layer. Autograd's threads have C++ frames only, whose innermost
 * frames are the allocator's and always the same: there the node that it runs
 * (`MmBackward0::apply`, `AccumulateGrad`) is the place, or else the outermost operator
 * (`at::_ops::sum_dim_IntList::call`). */
#include "attribution/places.h"

#include <assert.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "tessera/unstable/frames.h"

/* A frame's tsr_origin, and how informative it is if all frames are C++. */
enum { OPERATOR = 64, NODE = 128, TELLING = OPERATOR | NODE };

static tsr__place place_in(tsr_stack stack, const uint8_t *origins) {
  tsr__place place = {TSR_NONE, TSR_NONE};
  uint32_t library = TSR_NONE;
  unsigned best = TSR_ORIGIN_COUNT, best_telling = 0;
  for (uint32_t i = 0; i < stack.depth; i++) {
    unsigned told = origins[stack.frames[i]];
    unsigned origin = told & ~(unsigned)TELLING, telling = told & TELLING;
    bool is_native = origin == TSR_ORIGIN_NATIVE && best == TSR_ORIGIN_NATIVE;
    bool tells_more = telling > best_telling || (telling == OPERATOR && best_telling == OPERATOR);
    if (origin == TSR_ORIGIN_LIBRARY && library == TSR_NONE) library = stack.frames[i];
    if (origin >= best && !(is_native && tells_more)) continue;
    /* Checkpointing calls the engine from torch's Python: a node inside it is more informative. */
    if (origin == TSR_ORIGIN_TORCH && best_telling == NODE) continue;
    assert(origin < TSR_ORIGIN_COUNT);
    place.frame = stack.frames[i];
    best = origin;
    best_telling = telling;
    if (origin == TSR_ORIGIN_USER) break; /* what is outside it does not matter */
  }
  if (best == TSR_ORIGIN_USER) place.layer = library;
  return place;
}

static bool is_operator(tsr_text name) {
  static const char room[] = "at::_ops::";
  size_t size = sizeof room - 1;
  return name.size_bytes > size && memcmp(name.data, room, size) == 0;
}

static uint8_t *judge_frames(const tsr_snapshot *snapshot) {
  uint32_t count = tsr_snapshot_frame_count(snapshot);
  uint8_t *origins = TSR__NEW_ARRAY(uint8_t, count);
  for (uint32_t i = 0; origins && i < count; i++) {
    tsr_frame frame = tsr_snapshot_frame(snapshot, i);
    tsr_text name = tsr_snapshot_string(snapshot, frame.name);
    bool is_node;
    (void)tsr_frame_title(name, &is_node);
    tsr_origin origin = tsr_frame_origin(name, tsr_snapshot_string(snapshot, frame.file));
    origins[i] = (uint8_t)(origin | (is_node ? NODE : is_operator(name) ? OPERATOR : 0));
  }
  return origins;
}

static bool collect(const tsr_snapshot *snapshot, const uint8_t *origins, tsr__places *places) {
  tsr__map index_of = {0};
  bool ok = TSR__VECTOR_PUSH(&places->items, (tsr__place){TSR_NONE, TSR_NONE}) &&
            tsr__map_put(&index_of, UINT64_MAX, 0, NULL);
  for (uint32_t i = 0; ok && i < places->stack_count; i++) {
    tsr__place place = place_in(tsr_snapshot_stack(snapshot, i), origins);
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
  uint8_t *origins = judge_frames(snapshot);
  places.stacks = TSR__NEW_ARRAY(uint32_t, places.stack_count);
  bool ok = origins && places.stacks && collect(snapshot, origins, &places);
  tsr__free(origins);
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
