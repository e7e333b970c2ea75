/* places.c - see places.h.
 *
 * The program's own innermost frame is the place. Where a stack has none, the next kind of frame
 * speaks for it (frames.h): a library, torch's Python, C++. A thread of autograd's has C++ alone,
 * whose innermost frames are the allocator's and the same for everything: there the node that it
 * runs (`MmBackward0::apply`, `AccumulateGrad`) is the place. */
#include "attribution/places.h"

#include "attribution/frames.h"
#include "base/memory.h"

/* What a frame is: its tsr__origin, and whether it names a node of autograd. */
enum { NODE = 128 };

static uint32_t place_of(tsr_stack stack, const uint8_t *origins) {
  uint32_t place = TSR_NONE;
  unsigned best = TSR__ORIGIN_COUNT;
  bool is_at_node = false;
  for (uint32_t i = 0; i < stack.depth; i++) {
    unsigned told = origins[stack.frames[i]], origin = told & ~(unsigned)NODE;
    bool is_first_node =
        (told & NODE) && origin == TSR__ORIGIN_NATIVE && best == TSR__ORIGIN_NATIVE && !is_at_node;
    if (origin >= best && !is_first_node) continue;
    place = stack.frames[i];
    best = origin;
    is_at_node = told & NODE;
  }
  return place;
}

int tsr__places_compute(const tsr_snapshot *snapshot, tsr__places *out, tsr_error *error) {
  uint32_t frame_count = tsr_snapshot_frame_count(snapshot);
  tsr__places places = {.count = tsr_snapshot_stack_count(snapshot)};
  uint8_t *origins = TSR__NEW_ARRAY(uint8_t, frame_count);
  places.stacks = TSR__NEW_ARRAY(uint32_t, places.count);
  if (!origins || !places.stacks) {
    tsr__free(origins);
    tsr__places_release(&places);
    return tsr__fail_memory(error);
  }
  for (uint32_t i = 0; i < frame_count; i++) {
    tsr_frame frame = tsr_snapshot_frame(snapshot, i);
    tsr_text name = tsr_snapshot_string(snapshot, frame.name);
    tsr__origin origin = tsr__frame_origin(name, tsr_snapshot_string(snapshot, frame.file));
    bool is_node;
    (void)tsr__frame_title(name, &is_node);
    origins[i] = (uint8_t)(origin | (is_node ? NODE : 0));
  }
  for (uint32_t i = 0; i < places.count; i++)
    places.stacks[i] = place_of(tsr_snapshot_stack(snapshot, i), origins);
  tsr__free(origins);
  *out = places;
  return 0;
}

void tsr__places_release(tsr__places *places) {
  tsr__free(places->stacks);
  *places = (tsr__places){0};
}
