/* tessera/unstable/allocator_state.h - what a replay asks of an allocator besides tessera/allocator.h: to begin in a
 * state, to change settings on the way, to show what it holds. */
#ifndef TESSERA_UNSTABLE_ALLOCATOR_STATE_H
#define TESSERA_UNSTABLE_ALLOCATOR_STATE_H

#include "tessera/allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Changes ---- */

/* From now on the process may reserve at most `bytes` (0 = no limit). Nothing is released. */
void tsr_allocator_set_memory_limit(tsr_allocator *allocator, uint64_t bytes);

/* Change the settings between two calls, as torch.cuda.memory._set_allocator_settings does.
 * TSR_ERROR_ARGUMENT if they are invalid or change the tie-break. */
int tsr_allocator_set_settings(tsr_allocator *allocator, const tsr_allocator_settings *settings,
                               tsr_error *error);

/* Report that the events that the block at `address` waits for have finished, and so have all earlier
 * events of their streams. TSR_ERROR_ARGUMENT if no block there waits for events. */
int tsr_allocator_complete_block(tsr_allocator *allocator, uint64_t address);

/* Number of times that growth was retried after emptying the cache, and that this failed too. */
uint64_t tsr_allocator_retry_count(const tsr_allocator *allocator);
uint64_t tsr_allocator_oom_count(const tsr_allocator *allocator);

/* ---- Pools ---- */

#define TSR_POOL_NO_SPLIT   1u /* its blocks are never split */
#define TSR_POOL_USE_ON_OOM 2u /* searched, for any request, when the driver has nothing left */

/* Set a private pool's TSR_POOL_ flags. TSR_ERROR_ARGUMENT for the default pool, or
 * TSR_ERROR_MEMORY. */
int tsr_allocator_pool_flags(tsr_allocator *allocator, tsr_pool pool, uint32_t flags);

/* Begin and end the capture of a CUDA graph: during it, stream events are neither recorded nor checked,
 * and the default pool's cache is not emptied. Captures nest; an end without a begin does nothing. */
void tsr_allocator_capture_begin(tsr_allocator *allocator);
void tsr_allocator_capture_end(tsr_allocator *allocator);

/* ---- State ---- */

/* A segment, or one contiguous mapped part of an expandable one, as a snapshot lists it. */
typedef struct tsr_allocator_segment {
  uint64_t address, total_bytes;
  uint64_t allocated_bytes, active_bytes, requested_bytes; /* of its blocks; ignored in a seed */
  uint64_t stream;
  tsr_pool pool;
  uint32_t owner;
  bool is_large, is_expandable;
} tsr_allocator_segment;

typedef struct tsr_allocator_block {
  uint64_t address, size_bytes;
  uint64_t requested_bytes; /* 0 for inactive blocks */
  uint32_t owner;
  uint8_t state; /* tsr_block_state */
} tsr_allocator_block;

/* Receives each segment, followed by its blocks. Either may be NULL. */
typedef struct tsr_allocator_visitor {
  void (*segment)(void *context, const tsr_allocator_segment *segment);
  void (*block)(void *context, const tsr_allocator_block *block);
  void *context;
} tsr_allocator_visitor;

/* Visit all segments and blocks by address, like `segments` of a snapshot. TSR_ERROR_MEMORY. O(n log
 * n). */
int tsr_allocator_visit(const tsr_allocator *allocator, const tsr_allocator_visitor *visitor,
                        tsr_error *error);

/* ---- Starting from a state ---- */

/* Before any other call: add an entirely free segment, and then its blocks, which must be inside the
 * segment seeded last; segments and blocks in ascending order of
 * addresses. Blocks that wait for a stream (TSR_BLOCK_PENDING_FREE) wait for TSR_STREAM_UNKNOWN.
 * Inactive blocks may be omitted. This causes no events. TSR_ERROR_ARGUMENT if it overlaps,
 * does not fit or comes too late, or TSR_ERROR_MEMORY; then nothing changes. O(log n) in that
 * order.
 *
 * A snapshot does not contain the address range of an expandable segment: it is assumed to begin
 * with its first mapped part and to be as long as PyTorch would have reserved for `capacity_bytes`,
 * but not to reach into another segment. */
int tsr_allocator_seed_segment(tsr_allocator *allocator, const tsr_allocator_segment *seed,
                               tsr_error *error);
int tsr_allocator_seed_block(tsr_allocator *allocator, const tsr_allocator_block *seed,
                             tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
