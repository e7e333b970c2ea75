/* expandable.c - segments that grow in place.
 *
 * With expandable_segments:True PyTorch reserves a range of addresses, larger than the device, for
 * each stream, pool and size class, and maps memory into it granule by granule:
 *
 *   reservation  [ taken | free | taken | free | unmapped | free | unmapped ............... ]
 *                ^ granules are counted from here         growth starts at the lowest place that
 *                                                         is wide enough: at this free block, say
 *
 * A place is a run of free and unmapped blocks that begins with an unmapped one, or with the free
 * block directly before one. Its unmapped ranges are mapped one by one, each at most as far as the
 * request still needs, in whole granules; what was mapped stays mapped if the device gives out half
 * way. A granule either is entirely mapped or is not.
 *
 * A request never spans reservations, so one that is larger than expandable_segments_reserve fails, however
 * much memory is free.
 *
 * From find_expandable_block, map_block, try_allocate_expandable_block and unmap_block in
 * c10/cuda/CUDACachingAllocator.cpp. Does not decide when to grow or shrink. */
#include <assert.h>

#include "allocator/allocator.h"
#include "base/checked.h"

/* A device of unlimited memory is taken to have so much, for the size of a reservation; and the
 * largest device is. */
#define NOMINAL_DEVICE (UINT64_C(1) << 40)
#define LARGEST_DEVICE (UINT64_C(1) << 50)

uint64_t tsr__granule(const tsr_allocator *a, bool is_large) {
  if (!is_large) return TSR__SMALL_SEGMENT;
  uint64_t large = a->heap.settings.large_segment_bytes;
  return large ? large : TSR__LARGE_SEGMENT;
}

/* `bytes` is far from the largest number. */
static uint64_t granules(uint64_t bytes, uint64_t granule) {
  return (bytes + granule - 1) / granule * granule;
}

/* What expandable_segments_reserve asks for; 0 if nothing, or for a part of a device of unknown size. */
static uint64_t asked_reserve(const tsr_allocator *a, uint64_t capacity) {
  const tsr_allocator_settings *settings = &a->heap.settings;
  if (settings->expandable_reserve_bytes) return settings->expandable_reserve_bytes;
  if (!capacity || !(settings->expandable_reserve_fraction > 0)) return 0;
  if (capacity > LARGEST_DEVICE) capacity = LARGEST_DEVICE;
  uint64_t bytes = (uint64_t)(settings->expandable_reserve_fraction * (double)capacity);
  return bytes ? bytes : 1;
}

uint64_t tsr__reservation_bytes(const tsr_allocator *a, bool is_large, uint64_t bytes) {
  uint64_t capacity = a->options.capacity_bytes, granule = tsr__granule(a, is_large);
  uint64_t device = !capacity                   ? NOMINAL_DEVICE
                    : capacity > LARGEST_DEVICE ? LARGEST_DEVICE
                                                : capacity;
  if (bytes > LARGEST_DEVICE || (bytes > device && capacity)) return 0;
  if (bytes > device) device = bytes;
  uint64_t most = granules(device + device / 8, granule);
  uint64_t reserve = granules(asked_reserve(a, capacity), granule);
  if (!reserve || reserve > most) return most;
  return bytes > reserve ? 0 : reserve;
}

/* How far the run of free and unmapped blocks from `block` on reaches, up to `enough` bytes; where
 * it stopped is `*end`. */
static uint64_t room_from(tsr_allocator *a, uint32_t block, uint64_t enough, uint64_t *end) {
  uint64_t bytes = 0;
  for (; block != TSR_NONE && bytes < enough; block = tsr__block_of(a, block)->next) {
    const tsr__heap_block *b = tsr__block_of(a, block);
    a->steps++;
    if (b->use != TSR__BLOCK_FREE && b->use != TSR__BLOCK_UNMAPPED) break;
    bytes += b->size_bytes;
    *end = b->address + b->size_bytes;
  }
  return bytes;
}

/* The first block of the lowest place that is wide enough, or TSR_NONE. Every block is looked at
 * once: where one run was too short, a later start in it is shorter. */
static uint32_t find_place(tsr_allocator *a, const tsr__request *request) {
  const tsr__free_set *set = tsr__heap_unmapped_set(&a->heap, request->pool, request->is_large);
  uint64_t seen = 0;
  for (uint32_t block = tsr__heap_lower_bound(&a->heap, set, request->stream, 0); block != TSR_NONE;
       block = tsr__heap_successor(&a->heap, set, block)) {
    const tsr__heap_block *b = tsr__block_of(a, block);
    a->steps++;
    if (tsr__segment_of(a, b->segment)->stream != request->stream) break;
    if (b->address < seen) continue;
    uint32_t first = block, previous = b->previous;
    if (previous != TSR_NONE && tsr__block_of(a, previous)->use == TSR__BLOCK_FREE)
      first = previous;
    if (room_from(a, first, request->rounded_bytes, &seen) >= request->rounded_bytes) return first;
  }
  return TSR_NONE;
}

/* A reservation for the request: 0 and its one, unmapped, block. */
static int reserve(tsr_allocator *a, const tsr__request *request, uint32_t *block) {
  uint64_t size_bytes = tsr__reservation_bytes(a, request->is_large, request->rounded_bytes);
  if (!size_bytes) return TSR_ALLOCATOR_OUT_OF_DEVICE;
  bool is_memory;
  uint64_t address = tsr__address_choose(a, size_bytes, &is_memory);
  if (!address) return is_memory ? TSR_ERROR_MEMORY : TSR_ALLOCATOR_OUT_OF_DEVICE;
  tsr__heap_segment like = {.stream = request->stream,
                            .pool = request->pool,
                            .owner = a->owner,
                            .is_large = request->is_large};
  uint32_t segment = tsr__heap_add_reservation(&a->heap, address, size_bytes, &like);
  if (segment == TSR_NONE) return TSR_ERROR_MEMORY;
  tsr__address_take(a, (tsr__address_range){address, size_bytes});
  *block = tsr__segment_of(a, segment)->first;
  return TSR_OK;
}

/* map_block: map the front of an unmapped block, at least `bytes` of it. `*block` becomes the free
 * block that it is part of then. The device gives all granules or none. */
static int map(tsr_allocator *a, uint32_t *block, uint64_t bytes) {
  const tsr__heap_block *b = tsr__block_of(a, *block);
  uint32_t segment = b->segment;
  uint64_t granule = tsr__granule(a, tsr__segment_of(a, segment)->is_large);
  tsr__address_range mapped = {b->address, b->size_bytes};
  /* A range that was seeded, or began under other settings, may end inside a granule. */
  if (bytes < mapped.size_bytes && granules(bytes, granule) < mapped.size_bytes)
    mapped.size_bytes = granules(bytes, granule);
  if (!tsr__device_has(a, mapped.size_bytes)) return TSR_ALLOCATOR_OUT_OF_DEVICE;
  uint32_t joined = tsr__heap_map_front(&a->heap, *block, mapped.size_bytes);
  if (joined == TSR_NONE) return TSR_ERROR_MEMORY;
  tsr__count_reserved(a, mapped.size_bytes);
  tsr__emit(a, TSR_ACTION_SEGMENT_MAP, segment, mapped, a->owner);
  *block = joined;
  return TSR_OK;
}

int tsr__grow_expandable(tsr_allocator *a, const tsr__request *request, uint32_t *block) {
  uint32_t at = find_place(a, request);
  int status = at == TSR_NONE ? reserve(a, request, &at) : TSR_OK;
  if (status == TSR_OK && tsr__block_of(a, at)->use == TSR__BLOCK_UNMAPPED)
    status = map(a, &at, request->rounded_bytes);
  while (status == TSR_OK && tsr__block_of(a, at)->size_bytes < request->rounded_bytes) {
    uint64_t missing = request->rounded_bytes - tsr__block_of(a, at)->size_bytes;
    at = tsr__block_of(a, at)->next; /* unmapped: free neighbours are joined */
    assert(at != TSR_NONE && tsr__block_of(a, at)->use == TSR__BLOCK_UNMAPPED);
    status = map(a, &at, missing);
  }
  if (status == TSR_OK) *block = at;
  return status;
}

int tsr__shrink_expandable(tsr_allocator *a, uint32_t block) {
  const tsr__heap_block *b = tsr__block_of(a, block);
  uint32_t segment = b->segment;
  uint64_t granule = tsr__granule(a, tsr__segment_of(a, segment)->is_large);
  uint64_t base = tsr__segment_of(a, segment)->address, offset = b->address - base;
  uint64_t begin = base + granules(offset, granule);
  uint64_t end = base + (offset + b->size_bytes) / granule * granule;
  if (begin >= end) return TSR_OK;
  assert(begin >= b->address && end <= b->address + b->size_bytes);
  if (tsr__heap_unmap_inside(&a->heap, block, begin, end) == TSR_NONE) return TSR_ERROR_MEMORY;
  assert(a->now.reserved_bytes >= end - begin);
  a->now.reserved_bytes -= end - begin;
  tsr__emit(a, TSR_ACTION_SEGMENT_UNMAP, segment, (tsr__address_range){begin, end - begin},
            tsr__segment_of(a, segment)->owner);
  uint32_t first = tsr__segment_of(a, segment)->first;
  if (tsr__is_whole(a, first) && tsr__block_of(a, first)->use == TSR__BLOCK_UNMAPPED) {
    tsr__address_drop(a, base);
    tsr__heap_remove_segment(&a->heap, segment);
  }
  return TSR_OK;
}
