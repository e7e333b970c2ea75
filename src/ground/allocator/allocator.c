/* allocator.c - malloc and free, as DeviceCachingAllocator in c10/cuda/CUDACachingAllocator.cpp.
 *
 * A request goes down a ladder until a rung holds a free block large enough:
 *
 *   complete the frees whose streams have finished        free_completed*
 *   best fit in the request's pool
 *   old segments back, if near the memory limit           segment_free*
 *   grow                                                  segment_alloc | segment_map*
 *   pools that help out when the driver has nothing left
 *   oversize segments back, and grow                      segment_free*, ...
 *   the whole cache back, and grow                        free_completed* segment_free*
 * segment_unmap* out of memory                                         oom
 *
 * The block is then split if what is left is worth keeping, and handed out: alloc. The heap
 * (heap.h) knows how to cut, join and find; here is what is done when, and what is recorded of it.
 *
 * Invariants between calls: reserved is the sum of mapped segments, active of the blocks taken or
 * waiting, allocated of those taken, requested of what was requested for the active ones; a waiting
 * block has uses, and no block has both uses and no state to wait in. What needs the process's
 * memory is requested before anything changes, rung by rung. */
#include <assert.h>

#include "allocator/allocator.h"
#include "base/options.h"
#include "tessera/unstable/allocator_state.h"

/* ---- events and totals ---- */

void tsr__emit(tsr_allocator *a, tsr_action action, uint32_t segment, tsr__address_range what,
               uint32_t owner) {
  if (!a->options.sink) return;
  const tsr__heap_segment *s = tsr__segment_of(a, segment);
  tsr_allocator_event event = {.addr = what.address,
                               .size = what.size_bytes,
                               .stream = a->streams.items[s->stream].handle,
                               .pool = a->pools.items[s->pool].id,
                               .owner = owner,
                               .cause = a->owner,
                               .action = (uint8_t)action};
  a->options.sink(a->options.sink_context, &event);
}

static void emit_block(tsr_allocator *a, tsr_action action, uint32_t block) {
  const tsr__heap_block *b = tsr__block_of(a, block);
  tsr__emit(a, action, b->segment, (tsr__address_range){b->address, b->requested_bytes}, b->owner);
}

static void emit_oom(tsr_allocator *a, const tsr__request *request) {
  a->oom_count++;
  if (!a->options.sink) return;
  uint64_t capacity = a->options.capacity_bytes, reserved = a->now.reserved_bytes;
  uint64_t device_free = capacity > reserved ? capacity - reserved : 0;
  tsr_allocator_event event = {.addr = device_free,
                               .size = request->rounded_bytes,
                               .stream = a->streams.items[request->stream].handle,
                               .pool = a->pools.items[request->pool].id,
                               .device_free = device_free,
                               .owner = a->owner,
                               .cause = a->owner,
                               .action = TSR_ACTION_OOM};
  a->options.sink(a->options.sink_context, &event);
}

/* The totals contain each other: see the head of this file. */
static void assert_totals(const tsr_allocator *a) {
  assert(a->now.allocated_bytes <= a->now.active_bytes);
  assert(a->now.requested_bytes <= a->now.active_bytes);
  assert(a->now.active_bytes <= a->now.reserved_bytes);
  assert(a->now.reserved_bytes <= a->peak.reserved_bytes);
  (void)a;
}

static void keep_peak(uint64_t now, uint64_t *peak) {
  if (now > *peak) *peak = now;
}

void tsr__count_reserved(tsr_allocator *a, uint64_t bytes) {
  assert(bytes <= UINT64_MAX - a->now.reserved_bytes);
  a->now.reserved_bytes += bytes;
  keep_peak(a->now.reserved_bytes, &a->peak.reserved_bytes);
}

bool tsr__device_has(const tsr_allocator *a, uint64_t bytes) {
  uint64_t capacity = a->options.capacity_bytes;
  return !capacity ||
         (a->now.reserved_bytes <= capacity && bytes <= capacity - a->now.reserved_bytes);
}

/* ---- life ---- */

uint32_t tsr__pool_index(tsr_allocator *a, tsr_pool pool) {
  bool is_new;
  if (!TSR__VECTOR_RESERVE(&a->pools, 1)) return TSR_NONE;
  uint64_t key[2] = {pool.first, pool.second};
  uint32_t index = tsr__intern_put(&a->pool_ids, key, sizeof key, &is_new);
  if (index == TSR__INTERN_FULL) return TSR_NONE;
  if (is_new) a->pools.items[a->pools.count++] = (tsr__pool_state){.id = pool};
  assert(index < a->pools.count && a->pools.count == a->pool_ids.count);
  return index;
}

int tsr_allocator_new(const tsr_allocator_options *options, tsr_allocator **out, tsr_error *error) {
  tsr_allocator_options how;
  int status = tsr__options_read(options, &how, sizeof how, error);
  if (status == 0) status = tsr__settings_check(&how.settings, error);
  if (status < 0) return status;
  tsr_allocator *a = TSR__NEW(tsr_allocator);
  if (!a) return tsr__fail_memory(error);
  a->options = how;
  tsr__heap_init(&a->heap, &how.settings, true);
  tsr__ranges_init(&a->ranges);
  tsr__intern_init(&a->pool_ids);
  a->free_use = a->owner = a->seed_segment = a->seed_block = TSR_NONE;
  a->deferred = a->loose = a->ready = (tsr__queue){TSR_NONE, TSR_NONE};
  if (tsr__pool_index(a, (tsr_pool){0, 0}) == TSR_NONE) {
    tsr_allocator_destroy(a);
    return tsr__fail_memory(error);
  }
  *out = a;
  return TSR_OK;
}

void tsr_allocator_destroy(tsr_allocator *a) {
  if (!a) return;
  tsr__heap_release(&a->heap);
  tsr__intern_release(&a->pool_ids);
  tsr__map_release(&a->stream_ids);
  tsr__map_release(&a->used_by);
  TSR__VECTOR_FREE(&a->streams);
  TSR__VECTOR_FREE(&a->ranks);
  TSR__VECTOR_FREE(&a->pools);
  TSR__VECTOR_FREE(&a->uses);
  tsr__ranges_release(&a->ranges);
  tsr__free(a);
}

void tsr_allocator_set_memory_limit(tsr_allocator *a, uint64_t bytes) {
  a->options.memory_limit_bytes = bytes;
}

int tsr_allocator_set_settings(tsr_allocator *a, const tsr_allocator_settings *settings,
                               tsr_error *error) {
  int status = tsr__settings_check(settings, error);
  if (status < 0) return status;
  if (settings->tie_break != a->heap.settings.tie_break)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "the tie-break cannot change: the cached blocks are ordered by it");
  a->heap.settings = a->options.settings = *settings;
  return TSR_OK;
}

void tsr_allocator_set_owner(tsr_allocator *a, uint32_t owner) {
  a->owner = owner;
}

/* ---- malloc ---- */

/* Are free blocks aged? Only where garbage is collected. */
static bool has_ages(const tsr_allocator *a) {
  return a->options.memory_limit_bytes && a->heap.settings.garbage_collection_threshold > 0;
}

/* get_free_block: a cached block for the request, from one pool. TSR_NONE when it has none. */
static uint32_t search(tsr_allocator *a, const tsr__request *request, uint32_t pool) {
  if (has_ages(a)) tsr__heap_count_search(&a->heap, pool, request->is_large);
  return tsr__heap_best_fit(&a->heap, pool, request->is_large, request->stream,
                            request->rounded_bytes);
}

/* alloc_block: memory from the driver. 0 and `*block`, or TSR_ALLOCATOR_OUT_OF_DEVICE, or
 * TSR_ERROR_MEMORY. The limit looks at the segment's size even where pages are mapped instead. */
static int grow(tsr_allocator *a, const tsr__request *request, uint32_t *block) {
  uint64_t limit = a->options.memory_limit_bytes, size_bytes = request->segment_bytes;
  if (limit && (size_bytes > limit || a->now.reserved_bytes > limit - size_bytes))
    return TSR_ALLOCATOR_OUT_OF_DEVICE;
  if (a->heap.settings.expandable_segments) return tsr__grow_expandable(a, request, block);
  if (!tsr__device_has(a, size_bytes)) return TSR_ALLOCATOR_OUT_OF_DEVICE;
  bool is_memory;
  uint64_t address = tsr__address_choose(a, size_bytes, &is_memory);
  if (!address) return is_memory ? TSR_ERROR_MEMORY : TSR_ALLOCATOR_OUT_OF_DEVICE;
  tsr__heap_segment like = {.stream = request->stream,
                            .pool = request->pool,
                            .owner = a->owner,
                            .is_large = request->is_large};
  uint32_t segment = tsr__heap_add_segment(&a->heap, address, size_bytes, &like);
  if (segment == TSR_NONE) return TSR_ERROR_MEMORY;
  tsr__address_take(a, (tsr__address_range){address, size_bytes});
  tsr__count_reserved(a, size_bytes);
  tsr__emit(a, TSR_ACTION_SEGMENT_ALLOC, segment, (tsr__address_range){address, size_bytes},
            a->owner);
  *block = tsr__segment_of(a, segment)->first;
  return TSR_OK;
}

/* Pools that lend their cache when the driver has nothing left. */
static uint32_t search_helpers(tsr_allocator *a, const tsr__request *request) {
  uint32_t block = TSR_NONE;
  a->steps += a->pools.count;
  for (uint32_t pool = 1; pool < a->pools.count && block == TSR_NONE; pool++)
    if (a->pools.items[pool].flags & TSR_POOL_USE_ON_OOM) block = search(a, request, pool);
  return block;
}

/* Down the ladder (see above): 0 and `*block`, or TSR_ALLOCATOR_OUT_OF_DEVICE, or TSR_ERROR_MEMORY.
 */
static int find_block(tsr_allocator *a, const tsr__request *request, uint32_t *block) {
  if ((*block = search(a, request, request->pool)) != TSR_NONE) return TSR_OK;
  if (has_ages(a)) tsr__collect_garbage(a);
  int status = grow(a, request, block);
  if (status != TSR_ALLOCATOR_OUT_OF_DEVICE) return status;
  if ((*block = search_helpers(a, request)) != TSR_NONE) return TSR_OK;
  if (tsr__release_oversize(a, request)) {
    status = grow(a, request, block);
    if (status != TSR_ALLOCATOR_OUT_OF_DEVICE) return status;
  }
  if (a->capture_count) return TSR_ALLOCATOR_OUT_OF_DEVICE;
  status = tsr__release_cached(a);
  if (status < 0) return status;
  a->retry_count++;
  return grow(a, request, block);
}

/* alloc_found_block: cut the block to size and mark it taken. */
static int hand_out(tsr_allocator *a, const tsr__request *request, uint32_t block,
                    uint64_t *address) {
  const tsr__heap_segment *segment = tsr__segment_of(a, tsr__block_of(a, block)->segment);
  bool may_split = !(a->pools.items[segment->pool].flags & TSR_POOL_NO_SPLIT);
  uint64_t size_bytes = tsr__block_of(a, block)->size_bytes;
  assert(size_bytes >= request->rounded_bytes && segment->stream == request->stream);
  if (may_split &&
      tsr__should_split(&a->heap.settings, segment->is_large, a->heap.settings.expandable_segments,
                        size_bytes, request->rounded_bytes))
    size_bytes = request->rounded_bytes;
  block = tsr__heap_take(&a->heap, block, size_bytes, request->bytes);
  if (block == TSR_NONE) return TSR_ERROR_MEMORY;
  tsr__block_of(a, block)->owner = a->owner;
  a->now.requested_bytes += request->bytes;
  a->now.allocated_bytes += size_bytes;
  a->now.active_bytes += size_bytes;
  keep_peak(a->now.requested_bytes, &a->peak.requested_bytes);
  keep_peak(a->now.allocated_bytes, &a->peak.allocated_bytes);
  keep_peak(a->now.active_bytes, &a->peak.active_bytes);
  assert_totals(a);
  emit_block(a, TSR_ACTION_ALLOC, block);
  *address = tsr__block_of(a, block)->address;
  return TSR_OK;
}

int tsr_allocator_malloc(tsr_allocator *a, uint64_t request_bytes, uint64_t stream, tsr_pool pool,
                         uint64_t *address) {
  if (!request_bytes) {
    *address = 0;
    return TSR_OK;
  }
  if (!a->has_started && !tsr__start(a)) return TSR_ERROR_MEMORY;
  tsr__request request = {.bytes = request_bytes};
  request.rounded_bytes = tsr__round_request(&a->heap.settings, request_bytes);
  request.segment_bytes = tsr__segment_size(&a->heap.settings, request.rounded_bytes);
  request.is_large = tsr__is_large(request.rounded_bytes);
  assert(request.rounded_bytes >= request_bytes || request.rounded_bytes > INT64_MAX ||
         request_bytes > INT64_MAX);
  request.stream = tsr__stream_index(a, stream);
  request.pool = pool.first || pool.second ? tsr__pool_index(a, pool) : 0;
  if (request.stream == TSR_NONE || request.pool == TSR_NONE) return TSR_ERROR_MEMORY;
  if (!a->capture_count) tsr__poll(a);
  uint32_t block;
  int status = find_block(a, &request, &block);
  if (status == TSR_ALLOCATOR_OUT_OF_DEVICE) emit_oom(a, &request);
  return status == TSR_OK ? hand_out(a, &request, block, address) : status;
}

/* ---- free ---- */

/* The block in one use that starts at an address, or TSR_NONE. */
static uint32_t find(tsr_allocator *a, uint64_t address, tsr__block_use use) {
  uint32_t block = tsr__heap_find(&a->heap, address);
  return block != TSR_NONE && tsr__block_of(a, block)->use == use ? block : TSR_NONE;
}

void tsr__finish_free(tsr_allocator *a, uint32_t block) {
  const tsr__heap_block *b = tsr__block_of(a, block);
  emit_block(a, TSR_ACTION_FREE_COMPLETED, block);
  assert(b->use == TSR__BLOCK_TAKEN || b->use == TSR__BLOCK_WAITING);
  assert(a->now.active_bytes >= b->size_bytes && a->now.requested_bytes >= b->requested_bytes);
  a->now.active_bytes -= b->size_bytes;
  a->now.requested_bytes -= b->requested_bytes;
  (void)tsr__heap_give_back(&a->heap, block, TSR__BLOCK_FREE);
  assert_totals(a);
}

int tsr_allocator_free(tsr_allocator *a, uint64_t address) {
  if (!address) return TSR_OK;
  uint32_t block = find(a, address, TSR__BLOCK_TAKEN);
  if (block == TSR_NONE) return TSR_ERROR_ARGUMENT;
  if (!a->has_started && !tsr__start(a)) return TSR_ERROR_MEMORY;
  a->now.allocated_bytes -= tsr__block_of(a, block)->size_bytes;
  emit_block(a, TSR_ACTION_FREE_REQUESTED, block);
  if (tsr__is_used(a, block))
    tsr__wait_for_uses(a, block);
  else
    tsr__finish_free(a, block);
  return TSR_OK;
}

int tsr_allocator_record_stream(tsr_allocator *a, uint64_t address, uint64_t stream) {
  uint32_t block = find(a, address, TSR__BLOCK_TAKEN);
  if (block == TSR_NONE) return TSR_ERROR_ARGUMENT;
  uint32_t own = tsr__segment_of(a, tsr__block_of(a, block)->segment)->stream;
  if (a->streams.items[own].handle == stream) return TSR_OK;
  uint32_t index = TSR_NONE;
  if (stream != TSR_STREAM_UNKNOWN && (index = tsr__stream_index(a, stream)) == TSR_NONE)
    return TSR_ERROR_MEMORY;
  return tsr__use_add(a, block, index) ? TSR_OK : TSR_ERROR_MEMORY;
}

int tsr_allocator_empty_cache(tsr_allocator *a) {
  if (!a->has_started && !tsr__start(a)) return TSR_ERROR_MEMORY;
  return tsr__release_cached(a);
}

/* ---- private pools ---- */

int tsr_allocator_pool_begin(tsr_allocator *a, tsr_pool pool) {
  if (!pool.first && !pool.second) return TSR_ERROR_ARGUMENT;
  uint32_t index = tsr__pool_index(a, pool);
  if (index == TSR_NONE) return TSR_ERROR_MEMORY;
  a->pools.items[index].use_count++;
  a->pools.items[index].is_freeable = false;
  return TSR_OK;
}

int tsr_allocator_pool_end(tsr_allocator *a, tsr_pool pool) {
  if (!pool.first && !pool.second) return TSR_ERROR_ARGUMENT;
  uint32_t index = tsr__pool_index(a, pool);
  if (index == TSR_NONE) return TSR_ERROR_MEMORY;
  tsr__pool_state *state = &a->pools.items[index];
  if (!state->use_count) return TSR_ERROR_ARGUMENT;
  state->is_freeable = --state->use_count == 0;
  return TSR_OK;
}

int tsr_allocator_pool_flags(tsr_allocator *a, tsr_pool pool, uint32_t flags) {
  if (!pool.first && !pool.second) return TSR_ERROR_ARGUMENT;
  uint32_t index = tsr__pool_index(a, pool);
  if (index == TSR_NONE) return TSR_ERROR_MEMORY;
  a->pools.items[index].flags = flags;
  return TSR_OK;
}

void tsr_allocator_capture_begin(tsr_allocator *a) {
  a->capture_count++;
}

void tsr_allocator_capture_end(tsr_allocator *a) {
  if (a->capture_count) a->capture_count--;
}

/* ---- totals ---- */

tsr_allocator_totals tsr_allocator_now(const tsr_allocator *a) {
  return a->now;
}

tsr_allocator_totals tsr_allocator_peak(const tsr_allocator *a) {
  return a->peak;
}

uint64_t tsr_allocator_retry_count(const tsr_allocator *a) {
  return a->retry_count;
}

uint64_t tsr_allocator_oom_count(const tsr_allocator *a) {
  return a->oom_count;
}
