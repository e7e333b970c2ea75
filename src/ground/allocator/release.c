/* release.c - returning cached memory to the driver.
 *
 * Three ways, in the order in which a starved request tries them: segments that lay unused for long
 * (garbage collection, only near a memory limit), oversize segments of the request's own stream
 * (only where max_split_size is set), and all there is (also empty_cache). A plain segment goes
 * when one free block is all of it; of an expandable one whole granules go.
 *
 * PyTorch walks its sets, which are ordered by stream handle first; the heap's are ordered by
 * stream index, so a walk over a whole set here goes stream by stream, by handle. Walks hold the
 * next block before they release one: releasing removes only the block itself, and what unmapping
 * leaves of one is smaller than it, so comes earlier in the set.
 *
 * From garbage_collect_cached_blocks, release_available_cached_blocks, release_cached_blocks and
 * release_blocks in c10/cuda/CUDACachingAllocator.cpp. */
#include <assert.h>

#include "allocator/allocator.h"

/* release_block: a plain segment, entirely free, back to the driver. */
static void release_segment(tsr_allocator *a, uint32_t block) {
  uint32_t segment = tsr__block_of(a, block)->segment;
  const tsr__heap_segment *s = tsr__segment_of(a, segment);
  tsr__address_range what = {s->address, s->size_bytes};
  assert(tsr__is_whole(a, block) && !s->is_expandable);
  tsr__emit(a, TSR_ACTION_SEGMENT_FREE, segment, what, s->owner);
  assert(a->now.reserved_bytes >= what.size_bytes);
  a->now.reserved_bytes -= what.size_bytes;
  tsr__address_drop(a, what.address);
  tsr__heap_remove_segment(&a->heap, segment);
}

/* A walk over a set in PyTorch's order. */
typedef struct walk {
  const tsr__free_set *set;
  const tsr__stream_rank *ranks;
  size_t rank;
  uint32_t next; /* of the stream at `rank`, or TSR_NONE */
} walk;

static uint32_t of_stream(tsr_allocator *a, uint32_t block, uint32_t stream) {
  if (block == TSR_NONE) return TSR_NONE;
  return tsr__segment_of(a, tsr__block_of(a, block)->segment)->stream == stream ? block : TSR_NONE;
}

static walk walk_begin(tsr_allocator *a, uint32_t pool, bool is_large) {
  walk w = {.set = tsr__heap_free_set(&a->heap, pool, is_large),
            .ranks = tsr__streams_by_handle(a),
            .rank = SIZE_MAX,
            .next = TSR_NONE};
  return w;
}

/* The next block, or TSR_NONE at the end. */
static uint32_t walk_next(tsr_allocator *a, walk *w) {
  while (w->next == TSR_NONE) {
    a->steps++;
    if (!w->set || ++w->rank >= a->ranks.count) return TSR_NONE;
    uint32_t stream = w->ranks[w->rank].stream;
    w->next = of_stream(a, tsr__heap_lower_bound(&a->heap, w->set, stream, 0), stream);
  }
  uint32_t block = w->next;
  a->steps++;
  w->next = of_stream(a, tsr__heap_successor(&a->heap, w->set, block), w->ranks[w->rank].stream);
  return block;
}

/* ---- garbage collection ---- */

/* Searches of its set since a block was cached. */
static uint64_t age_of(tsr_allocator *a, const tsr__free_set *set, uint32_t block) {
  return (uint32_t)(set->searches - tsr__block_of(a, block)->cached_at);
}

/* Release what is at least as old as the average. Returns the bytes released; the ages and their
 * count no longer include them. */
static uint64_t collect_older(tsr_allocator *a, uint64_t *total_age, uint64_t *count) {
  uint64_t released = 0;
  double threshold = (double)*total_age / (double)*count;
  walk w = walk_begin(a, 0, true);
  for (uint32_t block; (block = walk_next(a, &w)) != TSR_NONE;) {
    uint64_t age = age_of(a, w.set, block);
    if (!tsr__is_whole(a, block) || tsr__is_expandable(a, block) || (double)age < threshold)
      continue;
    released += tsr__block_of(a, block)->size_bytes;
    *total_age -= age;
    --*count;
    release_segment(a, block);
  }
  return released;
}

void tsr__collect_garbage(tsr_allocator *a) {
  uint64_t allowed = (uint64_t)(a->heap.settings.garbage_collection_threshold *
                                (double)a->options.memory_limit_bytes);
  if (a->now.reserved_bytes <= allowed) return;
  uint64_t target = a->now.reserved_bytes - allowed, released = 0, total_age = 0, count = 0;
  walk w = walk_begin(a, 0, true);
  for (uint32_t block; (block = walk_next(a, &w)) != TSR_NONE;) {
    if (!tsr__is_whole(a, block)) continue;
    total_age += age_of(a, w.set, block);
    count++;
  }
  while (released < target && count) {
    uint64_t more = collect_older(a, &total_age, &count);
    if (!more) return;
    released += more;
  }
}

/* ---- oversize segments ---- */

/* From the largest block below the bound downwards, until `bytes` are released or blocks are no
 * longer oversize. */
static bool release_largest(tsr_allocator *a, const tsr__request *request, uint64_t bytes) {
  const tsr__free_set *set = tsr__heap_free_set(&a->heap, request->pool, request->is_large);
  uint64_t released = 0;
  uint32_t block = tsr__heap_last_before(&a->heap, set, request->stream, bytes);
  while (released < bytes && (block = of_stream(a, block, request->stream)) != TSR_NONE &&
         tsr__block_of(a, block)->size_bytes >= a->heap.settings.max_split_bytes) {
    uint32_t before = tsr__heap_predecessor(&a->heap, set, block);
    a->steps++;
    if (!tsr__is_expandable(a, block) && tsr__is_whole(a, block)) {
      released += tsr__block_of(a, block)->size_bytes;
      release_segment(a, block);
    }
    block = before;
  }
  return released >= bytes;
}

bool tsr__release_oversize(tsr_allocator *a, const tsr__request *request) {
  uint64_t oversize = a->heap.settings.max_split_bytes;
  if (!oversize) return false;
  uint64_t bytes = request->rounded_bytes < oversize ? oversize : request->rounded_bytes;
  const tsr__free_set *set = tsr__heap_free_set(&a->heap, request->pool, request->is_large);
  uint32_t block =
      of_stream(a, tsr__heap_lower_bound(&a->heap, set, request->stream, bytes), request->stream);
  if (block == TSR_NONE || tsr__is_expandable(a, block)) return release_largest(a, request, bytes);
  /* Only a large_segment_size above max_split_size makes oversize parts; they stay. */
  if (!tsr__is_whole(a, block)) return false;
  release_segment(a, block);
  return true;
}

/* ---- everything ---- */

/* release_blocks: first the plain segments of a set, then what can be unmapped. */
static int release_set(tsr_allocator *a, uint32_t pool, bool is_large) {
  bool has_expandable = false;
  uint32_t block;
  walk w = walk_begin(a, pool, is_large);
  while ((block = walk_next(a, &w)) != TSR_NONE) {
    if (tsr__is_expandable(a, block))
      has_expandable = true;
    else if (tsr__is_whole(a, block))
      release_segment(a, block);
  }
  if (!has_expandable) return TSR_OK;
  w = walk_begin(a, pool, is_large);
  while ((block = walk_next(a, &w)) != TSR_NONE) {
    if (!tsr__is_expandable(a, block)) continue;
    int status = tsr__shrink_expandable(a, block);
    if (status < 0) return status;
  }
  return TSR_OK;
}

int tsr__release_cached(tsr_allocator *a) {
  int status = TSR_OK;
  if (!a->capture_count) {
    tsr__synchronize(a);
    status = release_set(a, 0, true);
    if (status == TSR_OK) status = release_set(a, 0, false);
  }
  a->steps += a->pools.count;
  for (uint32_t pool = 1; status == TSR_OK && pool < a->pools.count; pool++) {
    if (!a->pools.items[pool].is_freeable) continue;
    status = release_set(a, pool, false);
    if (status == TSR_OK) status = release_set(a, pool, true);
  }
  return status;
}

/* ---- as recorded ---- */

/* The free block of an expandable segment that holds an address, or TSR_NONE. */
static uint32_t expandable_at(tsr_allocator *a, uint64_t address) {
  uint32_t segment = tsr__heap_segment_around(&a->heap, address);
  if (segment == TSR_NONE || !tsr__segment_of(a, segment)->is_expandable) return TSR_NONE;
  uint32_t block = tsr__heap_find_inside(&a->heap, segment, address);
  return tsr__block_of(a, block)->use == TSR__BLOCK_FREE ? block : TSR_NONE;
}

int tsr__release_at(tsr_allocator *a, uint64_t address) {
  if (!a->has_started && !tsr__start(a)) return TSR_ERROR_MEMORY;
  const uint64_t *segment = tsr__map_find(&a->heap.segment_at, address);
  if (!segment) {
    uint32_t inside = expandable_at(a, address);
    return inside == TSR_NONE ? TSR_ERROR_ARGUMENT : tsr__shrink_expandable(a, inside);
  }
  uint32_t block = tsr__segment_of(a, (uint32_t)*segment)->first;
  if (!tsr__is_whole(a, block) || tsr__block_of(a, block)->use != TSR__BLOCK_FREE)
    return TSR_ERROR_ARGUMENT;
  release_segment(a, block);
  return TSR_OK;
}
