/* tessera/allocator.h - a model of PyTorch's CUDA caching allocator, exact to the byte.
 *
 * Given the same requests in the same order, it places every block where PyTorch would, asks the
 * driver for the same segments, and records the same events. It holds no memory of any device:
 * addresses are numbers. It is what `whatif` replays a trace through, and what a simulated training
 * step allocates from.
 *
 * The rules are those of c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig; where
 * releases differ, a setting says which.
 *
 *   tsr_allocator_options options = {.capacity_bytes = 80ull << 30};
 *   tsr_allocator *allocator;
 *   int status = tsr_allocator_new(&options, &allocator, NULL);
 *   uint64_t address;
 *   status = tsr_allocator_malloc(allocator, 1000, 0, (tsr_pool){0, 0}, &address);
 *   status = tsr_allocator_free(allocator, address);
 *
 * and, at last, tsr_allocator_destroy.
 *
 * Threads: one allocator is one thread's at a time. Costs are in the number n of blocks and
 * segments. Sizes and addresses are bytes; streams are raw handles, 0 the default stream.
 */
#ifndef TESSERA_ALLOCATOR_H
#define TESSERA_ALLOCATOR_H

#include "tessera/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_ROUNDUP_SLOTS 16

/* How free blocks of equal size are told apart when one is to be chosen. */
typedef enum tsr_tie_break {
  TSR_TIE_ADDRESS, /* the lowest address: every release up to 2.11 or so */
  TSR_TIE_SEGMENT  /* the oldest segment, then the lowest address: from May 2026 */
} tsr_tie_break;

/* PyTorch's settings. A zeroed struct is PyTorch's default. */
typedef struct tsr_allocator_settings {
  /* roundup_power2_divisions: slot i serves requests from 2^i MiB (slot 0 from 0); 0 or 1 = off. */
  uint32_t roundup_divisions[TSR_ROUNDUP_SLOTS];
  uint64_t max_split_bytes;              /* 0 = unlimited */
  uint64_t max_non_split_rounding_bytes; /* 0 = 20 MiB */
  double garbage_collection_threshold;   /* 0 = off */
  bool expandable_segments;
  tsr_tie_break tie_break;
  uint64_t large_segment_bytes;  /* 0 = 20 MiB */
  uint64_t rounding_extra_bytes; /* added before rounding; 32 on Ascend */
} tsr_allocator_settings;

/* Read PYTORCH_CUDA_ALLOC_CONF, e.g. "expandable_segments:True,max_split_size_mb:128". What `conf`
 * does not name keeps PyTorch's default; NULL and "" name nothing. Keys that do not change where
 * blocks are placed are checked for their form and otherwise ignored. In a list of
 * roundup_power2_divisions `>` fills the slots after the last key, as newer releases do (older
 * ones filled that key's own slot too). Fails with TSR_ERROR_ARGUMENT for what PyTorch would
 * refuse, naming it, and with TSR_ERROR_UNSUPPORTED for backend:cudaMallocAsync, which keeps no
 * blocks. Linear in `conf`. */
int tsr_allocator_settings_parse(const char *conf, tsr_allocator_settings *out, tsr_error *error);

/* Room for any text below, with its zero. */
#define TSR_ALLOCATOR_SETTINGS_TEXT_BYTES 512

/* The settings as PYTORCH_CUDA_ALLOC_CONF would say them: keys in a fixed order, defaults left out,
 * sizes in whole MiB; "" when all is default. tie_break and rounding_extra_bytes are not PyTorch's
 * to say. Fills `text` and answers it. */
const char *tsr_allocator_settings_text(const tsr_allocator_settings *settings,
                                        char text[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES]);

/* ---- The allocator ---- */

typedef struct tsr_allocator tsr_allocator;

/* What PyTorch would have recorded. `addr` and `size` as in tsr_events: for TSR_ACTION_OOM the
 * driver's free bytes and the rounded request. */
typedef struct tsr_allocator_event {
  uint64_t addr, size;
  uint64_t stream; /* raw handle */
  tsr_pool pool;
  uint64_t
      device_free; /* TSR_ACTION_OOM: bytes the driver had free; 0 when capacity is unlimited */
  uint32_t owner;  /* of the block, for alloc and free events: see tsr_allocator_set_owner */
  uint32_t cause;  /* the owner set when it happened: whose call it was */
  uint8_t action;  /* tsr_action */
} tsr_allocator_event;

/* Called with each event, in PyTorch's order, while a call below is under way. It may not call the
 * allocator. */
typedef void tsr_allocator_sink(void *context, const tsr_allocator_event *event);

/* Choose the address of a new segment (or of the address range of an expandable one). Answer 0 to
 * let the model choose; so it does, too, when the range is not a multiple of 512 or overlaps what
 * is there. It may not call the allocator. */
typedef uint64_t tsr_allocator_place(void *context, uint64_t size_bytes);

/* A zeroed struct is PyTorch's default allocator on a device without end. */
typedef struct tsr_allocator_options {
  tsr_allocator_settings settings;
  uint64_t capacity_bytes;     /* device memory the driver can hand out; 0 = unlimited */
  uint64_t memory_limit_bytes; /* of set_per_process_memory_fraction; 0 = none */
  tsr_allocator_sink *sink;    /* or NULL */
  void *sink_context;
  tsr_allocator_place *segment_address; /* NULL: 2 MiB aligned, from 0x7f0000000000 upward, never
                                           the same address twice */
  void *segment_address_context;
} tsr_allocator_options;

/* A new allocator without segments; `*out` is the caller's, for tsr_allocator_destroy. `options` is
 * copied; NULL is all default. Fails with TSR_ERROR_ARGUMENT (settings that make no sense) or
 * TSR_ERROR_MEMORY. */
int tsr_allocator_new(const tsr_allocator_options *options, tsr_allocator **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_allocator_destroy(tsr_allocator *allocator);

/* What tsr_allocator_malloc answers when the device is out of memory: not an error, an answer. */
#define TSR_ALLOCATOR_OUT_OF_DEVICE 1

/* Allocate `request_bytes` for a stream, from the default pool (0, 0) or a private one, which comes
 * into being by being named. A request of 0 touches nothing and answers address 0, as PyTorch does.
 * Answers 0 and `*address`, or TSR_ALLOCATOR_OUT_OF_DEVICE after the oom event, when everything
 * PyTorch would try has been tried, or TSR_ERROR_MEMORY, after which what the call had already
 * released stays released. O(log n) from the cache; growth and release cost what they touch. */
int tsr_allocator_malloc(tsr_allocator *allocator, uint64_t request_bytes, uint64_t stream,
                         tsr_pool pool, uint64_t *address);

/* Give back the block at `address`; 0 does nothing. A block that other streams used (see below)
 * waits for them; any other is free at once. TSR_ERROR_ARGUMENT when no allocated block starts
 * there. O(log n). */
int tsr_allocator_free(tsr_allocator *allocator, uint64_t address);

/* Streams whose order is not known: events of theirs finish one by one. */
#define TSR_STREAM_UNKNOWN UINT64_MAX

/* The allocated block at `address` is used on another stream (Tensor.record_stream); its own stream
 * is ignored. When it is freed, an event is recorded on each such stream, and it waits for them
 * all. TSR_ERROR_ARGUMENT when no allocated block starts there, or TSR_ERROR_MEMORY. O(the block's
 * streams). */
int tsr_allocator_record_stream(tsr_allocator *allocator, uint64_t address, uint64_t stream);

/* The events that a stream's frees have recorded so far have finished; for TSR_STREAM_UNKNOWN,
 * nothing. The blocks are free when the next malloc looks: stream by stream (in the order in which
 * the allocator first heard of them; PyTorch's is that of a hash table), oldest first. O(1). */
void tsr_allocator_complete_stream(tsr_allocator *allocator, uint64_t stream);
/* The events that the block at `address` waits for have finished, and so has what their streams
 * had to do before them. TSR_ERROR_ARGUMENT when no block there waits for events. */
int tsr_allocator_complete_block(tsr_allocator *allocator, uint64_t address);

/* torch.cuda.empty_cache: wait for all events, then give every cached segment that is free as a
 * whole back to the driver, and whole granules of expandable ones; private pools only once they are
 * ended. TSR_ERROR_MEMORY when that runs out of the process's memory half way. O(n log n). */
int tsr_allocator_empty_cache(tsr_allocator *allocator);

/* From now on the process may reserve at most so many bytes (0 = no limit). Nothing is released. */
void tsr_allocator_set_memory_limit(tsr_allocator *allocator, uint64_t bytes);
/* Change the settings between two calls, as torch.cuda.memory._set_allocator_settings does.
 * TSR_ERROR_ARGUMENT for settings that make no sense or change the tie-break. */
int tsr_allocator_set_settings(tsr_allocator *allocator, const tsr_allocator_settings *settings,
                               tsr_error *error);
/* A tag of the caller's: blocks allocated and segments made from now on carry it, and so do events
 * (a stack, say). TSR_NONE at first. */
void tsr_allocator_set_owner(tsr_allocator *allocator, uint32_t owner);

/* ---- Private pools: CUDA graphs and MemPools ---- */

#define TSR_POOL_NO_SPLIT   1u /* its blocks are handed out whole */
#define TSR_POOL_USE_ON_OOM 2u /* searched, for any request, when the driver has nothing left */

/* One user more of a private pool, or one less; without users it gives its memory back when caches
 * are emptied. A pool that was never begun keeps its memory. TSR_ERROR_ARGUMENT for the default
 * pool or an end too many, or TSR_ERROR_MEMORY. */
int tsr_allocator_pool_begin(tsr_allocator *allocator, tsr_pool pool);
int tsr_allocator_pool_end(tsr_allocator *allocator, tsr_pool pool);
/* Set a private pool's TSR_POOL_ flags. TSR_ERROR_ARGUMENT for the default pool, or
 * TSR_ERROR_MEMORY. */
int tsr_allocator_pool_flags(tsr_allocator *allocator, tsr_pool pool, uint32_t flags);
/* A CUDA graph is being captured: events are neither recorded nor looked at, and the default pool's
 * cache is not emptied. Captures nest; an end without a begin does nothing. */
void tsr_allocator_capture_begin(tsr_allocator *allocator);
void tsr_allocator_capture_end(tsr_allocator *allocator);

/* ---- What there is ---- */

/* As torch.cuda.memory_stats counts: allocated falls when a block is freed, active and requested
 * when that free completes. */
typedef struct tsr_allocator_totals {
  uint64_t requested_bytes, allocated_bytes, active_bytes, reserved_bytes;
} tsr_allocator_totals;

/* The totals now, and the highest each has been. O(1). */
tsr_allocator_totals tsr_allocator_now(const tsr_allocator *allocator);
tsr_allocator_totals tsr_allocator_peak(const tsr_allocator *allocator);
/* How often growth was tried again after emptying the cache, and how often that failed too. */
uint64_t tsr_allocator_retry_count(const tsr_allocator *allocator);
uint64_t tsr_allocator_oom_count(const tsr_allocator *allocator);

/* A segment, or one contiguous mapped run of an expandable one, as a snapshot lists it. */
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

/* Visit all segments and blocks by address, as `segments` of a snapshot. TSR_ERROR_MEMORY. O(n log
 * n). */
int tsr_allocator_visit(const tsr_allocator *allocator, const tsr_allocator_visitor *visitor,
                        tsr_error *error);

/* ---- Starting from a state ---- */

/* Before anything else is asked of the allocator: add a segment, free as a whole, and then its
 * blocks, which must lie in the segment seeded last; segments and blocks in the order of their
 * addresses. Blocks that wait for a stream (TSR_BLOCK_PENDING_FREE) wait for TSR_STREAM_UNKNOWN.
 * Inactive blocks need not be named. No events come of it. TSR_ERROR_ARGUMENT for what overlaps,
 * does not fit or comes too late, or TSR_ERROR_MEMORY; nothing changes then. O(log n) in that
 * order.
 *
 * A snapshot does not say how far an expandable segment's addresses reach: they are taken to begin
 * with its first run and to reach as far as PyTorch would have reserved for `capacity_bytes`, but
 * not into another segment. */
int tsr_allocator_seed_segment(tsr_allocator *allocator, const tsr_allocator_segment *seed,
                               tsr_error *error);
int tsr_allocator_seed_block(tsr_allocator *allocator, const tsr_allocator_block *seed,
                             tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
