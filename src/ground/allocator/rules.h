/* rules.h - the arithmetic of PyTorch's caching allocator: how sizes are rounded, which pool serves
 * them, how large a segment is requested, and when a block is split.
 *
 * From c10/cuda/CUDACachingAllocator.cpp (round_size, get_allocation_size, should_split) and
 * c10/core/AllocatorConfig (roundup_power2_divisions). Sizes are bytes. */
#ifndef TSR_ALLOCATOR_RULES_H
#define TSR_ALLOCATOR_RULES_H

#include "tessera/allocator.h"

#define TSR__MIN_BLOCK     UINT64_C(512)       /* unit and minimum of rounding */
#define TSR__SMALL_MAX     (UINT64_C(1) << 20) /* rounded sizes up to this come from the small pool */
#define TSR__SMALL_SEGMENT (UINT64_C(2) << 20)  /* of the small pool */
#define TSR__LARGE_MIN     (UINT64_C(10) << 20) /* from here segments are made to measure */
#define TSR__LARGE_ROUND   (UINT64_C(2) << 20)  /* in multiples of this */
#define TSR__LARGE_SEGMENT (UINT64_C(20) << 20)

/* The size of the block that serves a request; saturates for absurd requests. */
uint64_t tsr__round_request(const tsr_allocator_settings *settings, uint64_t request_bytes);

/* The same by the allocator of pinned host memory (ATen/core/CachingHostAllocator.h): the next power of
 * two, for requests up to `round_max_bytes`. */
uint64_t tsr__round_host_request(uint64_t round_max_bytes, uint64_t request_bytes);

/* Does the large pool serve this rounded size? */
static inline bool tsr__is_large(uint64_t rounded_bytes) {
  return rounded_bytes > TSR__SMALL_MAX;
}

/* The segment asked of the driver when no cached block serves a rounded size. */
uint64_t tsr__segment_size(const tsr_allocator_settings *settings, uint64_t rounded_bytes);

/* Whether the part of a free block of `block_bytes` beyond `rounded_bytes` is split off.
 * `is_expandable`: the mode is on (which segment the block is in does not matter); if a trace's
 * mode is unknown, pass that of the block's segment. */
static inline bool tsr__should_split(const tsr_allocator_settings *settings, bool is_large,
                                     bool is_expandable, uint64_t block_bytes,
                                     uint64_t rounded_bytes) {
  uint64_t rest = block_bytes - rounded_bytes;
  if (!is_large || is_expandable) return rest >= TSR__MIN_BLOCK;
  uint64_t limit = settings->max_split_bytes ? settings->max_split_bytes : UINT64_MAX;
  return rounded_bytes < limit && rest > TSR__SMALL_MAX;
}

/* The most that stays with a block of a plain segment of the large pool, not split off. */
static inline uint64_t tsr__largest_rest(const tsr_allocator_settings *settings,
                                         uint64_t rounded_bytes) {
  uint64_t slack = settings->max_non_split_rounding_bytes ? settings->max_non_split_rounding_bytes
                                                          : TSR__LARGE_SEGMENT;
  bool is_oversize = settings->max_split_bytes && rounded_bytes >= settings->max_split_bytes;
  return is_oversize ? slack - 1 : TSR__SMALL_MAX;
}

/* May a free block of `block_bytes`, the best fit, serve `rounded_bytes` at all? Blocks above
 * max_split_size are for requests above it, and not for much smaller ones. */
static inline bool tsr__may_serve(const tsr_allocator_settings *settings, uint64_t block_bytes,
                                  uint64_t rounded_bytes) {
  uint64_t limit = settings->max_split_bytes ? settings->max_split_bytes : UINT64_MAX;
  uint64_t slack = settings->max_non_split_rounding_bytes ? settings->max_non_split_rounding_bytes
                                                          : TSR__LARGE_SEGMENT;
  if (rounded_bytes < limit) return block_bytes < limit || limit == UINT64_MAX;
  return block_bytes - rounded_bytes < slack;
}

#endif
