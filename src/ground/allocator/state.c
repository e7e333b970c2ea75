/* state.c - the allocator's state, in and out: seeds before the first request, and a walk over
 * segments and blocks as a snapshot lists them.
 *
 * A snapshot shows an expandable segment as its contiguous mapped runs; the heap holds one
 * reservation, whose gaps are unmapped blocks. Going out, runs are cut at the gaps. Coming in, runs
 * of one stream, pool and class join one reservation as long as nothing else was seeded between
 * them; how far its addresses reach beyond the last run is decided when the first request ends the
 * seeds, because only then is known what is after it.
 *
 * Addresses of seeds are noted as ranges (addresses.c), a reservation as its span: no later segment
 * can overlap them. */
#include <assert.h>

#include "allocator/allocator.h"
#include "base/sort.h"
#include "tessera/unstable/allocator_state.h"

/* ---- seeds ---- */

static int refuse(tsr_error *error, const char *why) {
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "%s", why);
}

/* The reservation that a run continues: one with the same stream, pool and class and nothing
 * between. `*span` is its range. TSR_NONE when the run begins a new one. */
static uint32_t continued(tsr_allocator *a, const tsr__heap_segment *like, uint64_t address) {
  uint32_t segment = a->seed_segment; /* seeds come by address: no other can be the neighbour */
  if (segment == TSR_NONE) return TSR_NONE;
  const tsr__heap_segment *s = tsr__segment_of(a, segment);
  bool is_same = s->is_expandable && s->stream == like->stream && s->pool == like->pool &&
                 s->is_large == like->is_large && s->address < address;
  if (!is_same) return TSR_NONE;
  uint64_t end = s->address + s->size_bytes;
  return tsr__address_is_taken(a, (tsr__address_range){end, address - end}) ? TSR_NONE : segment;
}

/* Add a run to a reservation. Returns the reservation, or TSR_NONE when out of memory. */
static uint32_t seed_run(tsr_allocator *a, const tsr__heap_segment *like, tsr__address_range run) {
  uint32_t segment = continued(a, like, run.address);
  bool is_new = segment == TSR_NONE;
  if (is_new) {
    if (!tsr__address_note(a, run)) return TSR_NONE;
    segment = tsr__heap_add_reservation(&a->heap, run.address, run.size_bytes, like);
    if (segment == TSR_NONE) {
      tsr__address_drop(a, run.address);
      return TSR_NONE;
    }
  }
  if (!tsr__heap_map(&a->heap, segment, run.address, run.size_bytes)) {
    if (is_new) tsr__address_drop(a, run.address);
    if (is_new) tsr__heap_remove_segment(&a->heap, segment);
    return TSR_NONE;
  }
  const tsr__heap_segment *s = tsr__segment_of(a, segment);
  tsr__address_resize(a, (tsr__address_range){s->address, s->size_bytes});
  return segment;
}

static uint32_t seed_plain(tsr_allocator *a, const tsr__heap_segment *like,
                           tsr__address_range range) {
  if (!tsr__address_note(a, range)) return TSR_NONE;
  uint32_t segment = tsr__heap_add_segment(&a->heap, range.address, range.size_bytes, like);
  if (segment == TSR_NONE) tsr__address_drop(a, range.address);
  return segment;
}

int tsr_allocator_seed_segment(tsr_allocator *a, const tsr_allocator_segment *seed,
                               tsr_error *error) {
  tsr__address_range range = {seed->address, seed->total_bytes};
  if (a->has_started) return refuse(error, "a segment is seeded after the first request");
  if (!range.address || !range.size_bytes || range.size_bytes > INT64_MAX ||
      range.address > UINT64_MAX - range.size_bytes)
    return refuse(error, "a seeded segment is empty or has no possible address");
  if (tsr__address_is_taken(a, range)) return refuse(error, "seeded segments overlap");
  tsr__heap_segment like = {.stream = tsr__stream_index(a, seed->stream),
                            .pool = tsr__pool_index(a, seed->pool),
                            .owner = seed->owner,
                            .is_large = seed->is_large};
  if (like.stream == TSR_NONE || like.pool == TSR_NONE) return tsr__fail_memory(error);
  uint32_t segment = seed->is_expandable ? seed_run(a, &like, range) : seed_plain(a, &like, range);
  if (segment == TSR_NONE) return tsr__fail_memory(error);
  a->seed_segment = segment;
  a->seed_block = tsr__heap_find_inside(&a->heap, segment, range.address);
  tsr__count_reserved(a, range.size_bytes);
  return TSR_OK;
}

/* The free block of the segment seeded last that holds a range, or TSR_NONE. */
static uint32_t free_block_around(tsr_allocator *a, tsr__address_range range) {
  if (a->seed_segment == TSR_NONE || !range.size_bytes) return TSR_NONE;
  uint32_t block = a->seed_block;
  if (block == TSR_NONE || range.address < tsr__block_of(a, block)->address ||
      range.address - tsr__block_of(a, block)->address >= tsr__block_of(a, block)->size_bytes)
    block = tsr__heap_find_inside(&a->heap, a->seed_segment, range.address);
  if (block == TSR_NONE) return TSR_NONE;
  const tsr__heap_block *b = tsr__block_of(a, block);
  uint64_t room = b->size_bytes - (range.address - b->address);
  return b->use == TSR__BLOCK_FREE && range.size_bytes <= room ? block : TSR_NONE;
}

/* Take a range out of a free block. TSR_NONE when out of memory; the block is as before then. */
static uint32_t take_range(tsr_allocator *a, uint32_t block, tsr__address_range range,
                           uint64_t requested_bytes) {
  assert(range.size_bytes && requested_bytes <= range.size_bytes);
  uint64_t before = range.address - tsr__block_of(a, block)->address;
  if (before && (block = tsr__heap_cut(&a->heap, block, before)) == TSR_NONE) return TSR_NONE;
  uint32_t taken = tsr__heap_take(&a->heap, block, range.size_bytes, requested_bytes);
  if (taken != TSR_NONE) return taken;
  (void)tsr__heap_give_back(&a->heap, block, TSR__BLOCK_FREE);
  return TSR_NONE;
}

int tsr_allocator_seed_block(tsr_allocator *a, const tsr_allocator_block *seed, tsr_error *error) {
  tsr__address_range range = {seed->address, seed->size_bytes};
  if (a->has_started) return refuse(error, "a block is seeded after the first request");
  uint32_t block = free_block_around(a, range);
  if (block == TSR_NONE || seed->requested_bytes > seed->size_bytes)
    return refuse(error, "a seeded block does not fit into the last seeded segment");
  if (seed->state == TSR_BLOCK_INACTIVE) return TSR_OK;
  if (seed->state != TSR_BLOCK_ALLOCATED && seed->state != TSR_BLOCK_PENDING_FREE)
    return refuse(error, "a seeded block is in no known state");
  block = take_range(a, block, range, seed->requested_bytes);
  if (block == TSR_NONE) return tsr__fail_memory(error);
  if (seed->state == TSR_BLOCK_PENDING_FREE && !tsr__use_add(a, block, TSR_NONE)) {
    a->seed_block = tsr__heap_give_back(&a->heap, block, TSR__BLOCK_FREE);
    return tsr__fail_memory(error);
  }
  tsr__block_of(a, block)->owner = seed->owner;
  if (seed->state == TSR_BLOCK_PENDING_FREE)
    tsr__wait_for_uses(a, block);
  else
    a->now.allocated_bytes += range.size_bytes;
  a->now.active_bytes += range.size_bytes;
  a->now.requested_bytes += seed->requested_bytes;
  a->peak = a->now; /* seeds only add */
  assert(a->now.allocated_bytes <= a->now.active_bytes);
  assert(a->now.active_bytes <= a->now.reserved_bytes);
  a->seed_block = tsr__block_of(a, block)->next;
  return TSR_OK;
}

/* Let a seeded reservation reach as far as it would have, and can. */
static bool extend_reservation(tsr_allocator *a, uint32_t segment) {
  const tsr__heap_segment *s = tsr__segment_of(a, segment);
  uint64_t granule = tsr__granule(a, s->is_large), base = s->address;
  uint64_t bytes = tsr__reservation_bytes(a, s->is_large, 0);
  uint64_t room = tsr__address_next(a, base + s->size_bytes) - base;
  if (bytes > room) bytes = room / granule * granule;
  if (bytes > UINT64_MAX - base || bytes <= s->size_bytes) return true;
  if (!tsr__heap_reserve(&a->heap, segment, base, bytes)) return false;
  tsr__address_resize(a, (tsr__address_range){base, bytes});
  return true;
}

bool tsr__start(tsr_allocator *a) {
  for (uint32_t i = 0; i < a->heap.segments.count; i++) {
    const tsr__heap_segment *s = tsr__segment_of(a, i);
    if (s->is_expandable && !s->is_gone && !extend_reservation(a, i)) return false;
  }
  a->has_started = true;
  return true;
}

/* ---- the way out ---- */

typedef struct place {
  uint64_t address;
  uint32_t segment;
} place;

static int compare_places(const void *left, const void *right) {
  const place *a = left, *b = right;
  return (a->address > b->address) - (a->address < b->address);
}

static uint8_t state_of(const tsr__heap_block *block) {
  switch ((tsr__block_use)block->use) {
  case TSR__BLOCK_TAKEN: return TSR_BLOCK_ALLOCATED;
  case TSR__BLOCK_WAITING: return TSR_BLOCK_PENDING_FREE;
  case TSR__BLOCK_FREE: return TSR_BLOCK_INACTIVE;
  case TSR__BLOCK_UNMAPPED: break;
  }
  return TSR_BLOCK_UNKNOWN;
}

/* The run of mapped blocks that begins with `first`: what it holds. Returns the block after it. */
static uint32_t sum_run(const tsr_allocator *a, uint32_t first, tsr_allocator_segment *run) {
  uint32_t block = first;
  for (; block != TSR_NONE; block = a->heap.blocks.items[block].next) {
    const tsr__heap_block *b = &a->heap.blocks.items[block];
    if (b->use == TSR__BLOCK_UNMAPPED) break;
    run->total_bytes += b->size_bytes;
    run->allocated_bytes += b->use == TSR__BLOCK_TAKEN ? b->size_bytes : 0;
    run->active_bytes += b->use != TSR__BLOCK_FREE ? b->size_bytes : 0;
    run->requested_bytes += b->requested_bytes;
  }
  return block;
}

static void visit_segment(const tsr_allocator *a, const tsr__heap_segment *s,
                          const tsr_allocator_visitor *visitor) {
  for (uint32_t block = s->first; block != TSR_NONE;) {
    const tsr__heap_block *b = &a->heap.blocks.items[block];
    tsr_allocator_segment run = {.address = b->address,
                                 .stream = a->streams.items[s->stream].handle,
                                 .pool = a->pools.items[s->pool].id,
                                 .owner = s->owner,
                                 .is_large = s->is_large,
                                 .is_expandable = s->is_expandable};
    uint32_t end = sum_run(a, block, &run);
    if (end == block) { /* unmapped */
      block = b->next;
      continue;
    }
    if (visitor->segment) visitor->segment(visitor->context, &run);
    for (; block != end; block = b->next) {
      b = &a->heap.blocks.items[block];
      tsr_allocator_block out = {.address = b->address,
                                 .size_bytes = b->size_bytes,
                                 .requested_bytes = b->requested_bytes,
                                 .owner = b->owner,
                                 .state = state_of(b)};
      if (visitor->block) visitor->block(visitor->context, &out);
    }
  }
}

int tsr_allocator_visit(const tsr_allocator *a, const tsr_allocator_visitor *visitor,
                        tsr_error *error) {
  size_t count = 0;
  place *places = TSR__NEW_ARRAY(place, a->heap.segments.count);
  if (!places) return tsr__fail_memory(error);
  for (uint32_t i = 0; i < a->heap.segments.count; i++)
    if (!a->heap.segments.items[i].is_gone)
      places[count++] = (place){a->heap.segments.items[i].address, i};
  tsr__sort(places, count, sizeof *places, compare_places);
  for (size_t i = 0; i < count; i++)
    visit_segment(a, &a->heap.segments.items[places[i].segment], visitor);
  tsr__free(places);
  return TSR_OK;
}
