/* places.c - which segment, and which of its blocks, holds an address? See heap.h.
 *
 * What each segment covers is an ordered set of ranges, because segments come and go rarely. Blocks
 * come and go with every event, and a good trace hardly ever asks for an address inside one: they
 * are searched for along their segment. Only when that has taken more steps than an ordered set of
 * all blocks would, is one made, the insides, and kept from then on.
 *
 * Does not cut or join anything. */
#include <assert.h>

#include "allocator/heap.h"
#include "base/checked.h"

#define BLOCK(index)   (heap->blocks.items[index])
#define SEGMENT(index) (heap->segments.items[index])

/* Steps along blocks, some milliseconds of them, after which insides are made. */
enum { PATIENCE = 1 << 20 };

/* ---- segments ---- */

/* A broken file's segment may reach beyond the last address. */
static uint64_t end_of(const tsr__heap *heap, uint32_t segment) {
  return tsr__sum_u64(SEGMENT(segment).address, SEGMENT(segment).size_bytes);
}

bool tsr__heap_note_place(tsr__heap *heap, uint32_t segment) {
  tsr__heap_segment *s = &SEGMENT(segment);
  assert(segment < heap->segments.count && !s->is_gone);
  uint64_t end = end_of(heap, segment);
  if (s->place != TSR__RANGE_NONE)
    tsr__ranges_move(&heap->places, s->place, s->address, end);
  else
    s->place = tsr__ranges_add(&heap->places, 0, s->address, end, segment);
  return s->place != TSR__RANGE_NONE;
}

void tsr__heap_forget_place(tsr__heap *heap, uint32_t segment) {
  if (SEGMENT(segment).place != TSR__RANGE_NONE)
    tsr__ranges_remove(&heap->places, SEGMENT(segment).place);
  SEGMENT(segment).place = TSR__RANGE_NONE;
}

/* The segment of a place, or TSR_NONE. */
static uint32_t segment_of(const tsr__heap *heap, uint32_t place) {
  return place == TSR__RANGE_NONE ? TSR_NONE : tsr__ranges_get(&heap->places, place)->value;
}

uint32_t tsr__heap_segment_around(const tsr__heap *heap, uint64_t address) {
  return segment_of(heap, tsr__ranges_around(&heap->places, address));
}

static bool is_reservation(const tsr__heap *heap, uint32_t segment, const tsr__heap_segment *like) {
  if (segment == TSR_NONE) return false;
  const tsr__heap_segment *s = &SEGMENT(segment);
  return s->is_expandable && s->stream == like->stream && s->pool == like->pool &&
         s->is_large == like->is_large;
}

uint32_t tsr__heap_reservation(tsr__heap *heap, const tsr__heap_segment *like, uint64_t address,
                               uint64_t size_bytes) {
  uint32_t around = tsr__heap_segment_around(heap, address);
  if (is_reservation(heap, around, like)) return around;
  uint32_t before = segment_of(heap, tsr__ranges_last(&heap->places, 0, address));
  uint32_t after = segment_of(heap, tsr__ranges_first(&heap->places, 0, address));
  bool has_before = is_reservation(heap, before, like);
  bool has_after = is_reservation(heap, after, like);
  if (has_before && has_after) /* the nearer */
    has_before = tsr__drop_u64(address, end_of(heap, before)) <=
                 tsr__drop_u64(SEGMENT(after).address, address + size_bytes);
  if (has_before) return before;
  if (has_after) return after;
  return tsr__heap_add_reservation(heap, address, size_bytes, like);
}

/* ---- blocks ---- */

static bool holds(const tsr__heap *heap, uint32_t block, uint64_t address) {
  return address >= BLOCK(block).address &&
         address - BLOCK(block).address < BLOCK(block).size_bytes;
}

/* Make the insides of all segments, with room for those that a caller has prepared. Without memory
 * for them things go on as before. */
static void make_insides(tsr__heap *heap) {
  bool ok = tsr__ranges_reserve(&heap->insides, heap->blocks.count + TSR__HEAP_PREPARED);
  heap->steps = 0;
  for (uint32_t s = 0; ok && s < heap->segments.count; s++)
    for (uint32_t b = SEGMENT(s).is_gone ? TSR_NONE : SEGMENT(s).first; ok && b != TSR_NONE;
         b = BLOCK(b).next) {
      BLOCK(b).inside = tsr__ranges_add(&heap->insides, s, BLOCK(b).address, 0, b);
      ok = BLOCK(b).inside != TSR__RANGE_NONE;
    }
  heap->has_insides = ok;
  if (ok) return;
  tsr__ranges_release(&heap->insides);
  tsr__ranges_init(&heap->insides);
}

uint32_t tsr__heap_find_inside(tsr__heap *heap, uint32_t segment, uint64_t address) {
  uint32_t last = SEGMENT(segment).last, block = tsr__heap_find(heap, address);
  if (last != TSR_NONE && address >= BLOCK(last).address)
    return holds(heap, last, address) ? last : TSR_NONE;
  if (block != TSR_NONE && BLOCK(block).segment == segment) return block;
  if (!heap->has_insides && heap->steps > PATIENCE) make_insides(heap);
  if (heap->has_insides) {
    uint32_t inside = tsr__ranges_last(&heap->insides, segment, address);
    block = inside == TSR__RANGE_NONE ? TSR_NONE : tsr__ranges_get(&heap->insides, inside)->value;
    return block != TSR_NONE && holds(heap, block, address) ? block : TSR_NONE;
  }
  for (block = SEGMENT(segment).first; block != TSR_NONE; block = BLOCK(block).next) {
    heap->steps++;
    if (holds(heap, block, address)) return block;
  }
  return TSR_NONE;
}
