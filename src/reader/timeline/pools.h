/* pools.h - the pool that each allocation's memory is of, and what private pools keep.
 *
 * A private pool (of CUDA graphs, or a MemPool) keeps the memory that it once took for as long as it
 * has users, whether blocks of it are live or not: empty_cache() does not release it, and a request
 * outside the pool cannot use it. So what a pool costs is not what is live in it but the most that
 * it ever took, its high-water mark. Blocks never move between pools or streams, so each pool is
 * counted per stream. Rules: CUDACachingAllocator.cpp, MemoryViz.js ("incl. Private Pools"). */
#ifndef TSR_TIMELINE_POOLS_H
#define TSR_TIMELINE_POOLS_H

#include "timeline/timeline.h"

/* One private pool on one stream, at an event. Bytes: active <= reserved <= high water, unless the
 * file contradicts itself. */
typedef struct tsr__pool_use {
  uint32_t pool, stream;     /* ids of the snapshot */
  uint64_t active_bytes;     /* of live blocks */
  uint64_t reserved_bytes;   /* of its segments */
  uint64_t high_water_bytes; /* the most that was reserved, up to that event */
} tsr__pool_use;

/* From this event on (-1: before the first) the high-water mark of uses[use] is `bytes`. */
typedef struct tsr__pool_step {
  int64_t event;
  uint32_t use;
  uint64_t bytes;
} tsr__pool_step;

typedef struct tsr__pool_uses {
  TSR__VECTOR(tsr__pool_use) uses;   /* by pool, then by stream: their numbers, not their ids */
  TSR__VECTOR(tsr__pool_step) steps; /* by event; the marks only rise */
} tsr__pool_uses;

/* The private pools that had memory at an event or before; none in most files. `live` is the live set
 * there; with NULL, active_bytes are 0. Time is O(spans log spans + live log spans). `out` is
 * released by tsr__pool_uses_release, also when zeroed. Fails with TSR_ERROR_MEMORY. */
int tsr__timeline_pools(const tsr__timeline *timeline, int64_t event, const tsr__live_set *live,
                        tsr__pool_uses *out, tsr_error *error);
void tsr__pool_uses_release(tsr__pool_uses *uses);
/* The use of a pool and stream, or TSR_NONE. O(log uses). */
uint32_t tsr__pool_uses_find(const tsr__pool_uses *uses, const tsr__timeline *timeline,
                             uint32_t pool, uint32_t stream);

/* "pool (0, 1)", with its stream if the pool has several uses; zero-terminated. */
enum { TSR__POOL_NAME_BYTES = 80 };
void tsr__pool_use_name(const tsr__pool_uses *uses, const tsr__timeline *timeline, uint32_t use,
                        char out[TSR__POOL_NAME_BYTES]);

/* Whether a pool id is of a private pool; TSR_NONE is not. */
bool tsr__pool_is_private(const tsr_snapshot *snapshot, uint32_t pool);

/* The span that each allocation's memory was in when it was allocated, or TSR_NONE: by allocation, for
 * the caller to free. Time is O((spans + allocations) log spans). NULL if out of memory. */
uint32_t *tsr__timeline_spans_of(const tsr__timeline *timeline);

/* The pool of an allocation: as its event records it, or else that of the span around it; TSR_NONE if
 * neither is known. `spans_of` is as above. */
uint32_t tsr__pool_of(const tsr__timeline *timeline, const uint32_t *spans_of, uint32_t allocation);
/* The stream of its memory: of the span around it, or else of its event; TSR_NONE likewise. */
uint32_t tsr__stream_of(const tsr__timeline *timeline, const uint32_t *spans_of,
                        uint32_t allocation);

#endif
