/* places.c - see places.h.
 *
 * The program's own innermost frame is the place. Where a stack has none, the next kind of frame
 * speaks for it (frames.h): a library, torch's Python, C++. Where the program called a library, that
 * library's innermost frame tells the layer. A thread of autograd's has C++ alone, whose innermost
 * frames are the allocator's and the same for everything: there the node that it runs
 * (`MmBackward0::apply`, `AccumulateGrad`) is the place. */
#include "attribution/places.h"

#include "attribution/frames.h"
#include "base/map.h"
#include "base/memory.h"

/* What a frame is: its tsr__origin, and whether it names a node of autograd. */
enum { NODE = 128 };

static tsr__place place_in(tsr_stack stack, const uint8_t *origins) {
  tsr__place place = {TSR_NONE, TSR_NONE};
  uint32_t library = TSR_NONE;
  unsigned best = TSR__ORIGIN_COUNT;
  bool is_at_node = false;
  for (uint32_t i = 0; i < stack.depth; i++) {
    unsigned told = origins[stack.frames[i]], origin = told & ~(unsigned)NODE;
    bool is_native = origin == TSR__ORIGIN_NATIVE && best == TSR__ORIGIN_NATIVE;
    bool is_first_node = (told & NODE) && is_native && !is_at_node;
    if (origin == TSR__ORIGIN_LIBRARY && library == TSR_NONE) library = stack.frames[i];
    if (origin >= best && !is_first_node) continue;
    place.frame = stack.frames[i];
    best = origin;
    is_at_node = told & NODE;
    if (origin == TSR__ORIGIN_USER) break; /* what is outside it does not matter */
  }
  if (best == TSR__ORIGIN_USER) place.layer = library;
  return place;
}

static uint8_t *judge_frames(const tsr_snapshot *snapshot) {
  uint32_t count = tsr_snapshot_frame_count(snapshot);
  uint8_t *origins = TSR__NEW_ARRAY(uint8_t, count);
  for (uint32_t i = 0; origins && i < count; i++) {
    tsr_frame frame = tsr_snapshot_frame(snapshot, i);
    tsr_text name = tsr_snapshot_string(snapshot, frame.name);
    bool is_node;
    (void)tsr__frame_title(name, &is_node);
    tsr__origin origin = tsr__frame_origin(name, tsr_snapshot_string(snapshot, frame.file));
    origins[i] = (uint8_t)(origin | (is_node ? NODE : 0));
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
