/* tessera/allocator.h - a model of PyTorch's CUDA caching allocator, exact to the byte.
 *
 * Given the same requests in the same order, it places every block where PyTorch would, asks the
 * driver for the same segments, and records the same events. It holds no memory of any device:
 * addresses are numbers. `whatif` replays a trace through it, and a simulated training
 * step allocates from it.
 *
 * The rules are those of c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig; if
 * releases differ, a setting selects the rule.
 *
 *   tsr_allocator_options options = {.capacity_bytes = 80ull << 30};
 *   tsr_allocator *allocator;
 *   int status = tsr_allocator_new(&options, &allocator, NULL);
 *   uint64_t address;
 *   status = tsr_allocator_malloc(allocator, 1000, 0, (tsr_pool){0, 0}, &address);
 *   status = tsr_allocator_free(allocator, address);
 *
 * and finally tsr_allocator_destroy.
 *
 * Threads: only one thread may use an allocator at a time. n in costs is the number of blocks and
 * segments. Sizes and addresses are bytes; streams are raw handles, 0 the default stream.
 */
#ifndef TESSERA_ALLOCATOR_H
#define TESSERA_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/options.h"
#include "tessera/status.h"
#include "tessera/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_ROUNDUP_SLOTS 16

/* Which of several free blocks of equal size is chosen. */
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
  /* expandable_segments_reserve, from PyTorch 2.15: the addresses that an expandable segment takes,
   * which no request can exceed; as bytes, or as a fraction of the device. Both 0: 9/8 of the device. */
  uint64_t expandable_reserve_bytes;
  double expandable_reserve_fraction;
  uint64_t reserved[6]; /* for later versions: 0, so that this struct keeps its size */
} tsr_allocator_settings;

/* Read PYTORCH_CUDA_ALLOC_CONF, e.g. "expandable_segments:True,max_split_size_mb:128". Keys that
 * `conf` does not contain keep PyTorch's default; NULL and "" contain none. Keys that do not affect
 * where blocks are placed are checked for syntax and otherwise ignored; so is
 * expandable_segments_reserve_by_class, since nothing records the class of a stream. In a list of
 * roundup_power2_divisions `>` fills the slots after the last key, as newer releases do (older
 * ones also filled that key's own slot). Fails with TSR_ERROR_ARGUMENT, naming the key, for what
 * PyTorch would reject, and with TSR_ERROR_UNSUPPORTED for backend:cudaMallocAsync, which keeps no
 * blocks. Linear in `conf`. */
int tsr_allocator_settings_parse(const char *conf, tsr_allocator_settings *out, tsr_error *error);

/* Enough for any text below, including its zero. */
#define TSR_ALLOCATOR_SETTINGS_TEXT_BYTES 512

/* The settings in the syntax of PYTORCH_CUDA_ALLOC_CONF: keys in a fixed order, defaults omitted,
 * sizes in whole MiB; "" if all are default. tie_break and rounding_extra_bytes have no such syntax
 * and are omitted. Fills `text` and returns it. */
const char *tsr_allocator_settings_text(const tsr_allocator_settings *settings,
                                        char text[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES]);

/* ---- The allocator ---- */

typedef struct tsr_allocator tsr_allocator;

/* What PyTorch would have recorded. `addr` and `size` as in a snapshot's events: for TSR_ACTION_OOM the
 * driver's free bytes and the rounded request. */
typedef struct tsr_allocator_event {
  uint64_t addr, size;
  uint64_t stream; /* raw handle */
  tsr_pool pool;
  uint64_t
      device_free; /* TSR_ACTION_OOM: bytes the driver had free; 0 when capacity is unlimited */
  uint32_t owner;  /* of the block, for alloc and free events: see tsr_allocator_set_owner */
  uint32_t cause;  /* the owner set when it happened, that is, of the caller */
  uint8_t action;  /* tsr_action */
} tsr_allocator_event;

/* Called with each event, in PyTorch's order, during a call below. It must not call the
 * allocator. */
typedef void tsr_allocator_sink(void *context, const tsr_allocator_event *event);

/* Choose the address of a new segment (or of the address range of an expandable one). Return 0 to
 * let the model choose; the model also chooses if the address is not a multiple of 512 or the range
 * overlaps existing memory. It must not call the allocator. */
typedef uint64_t tsr_allocator_place(void *context, uint64_t size_bytes);

/* The default is PyTorch's allocator on a device of unlimited size (tessera/options.h). */
typedef struct tsr_allocator_options {
  size_t struct_bytes;
  tsr_allocator_settings settings;
  uint64_t capacity_bytes;     /* device memory the driver can provide; 0 = unlimited */
  uint64_t memory_limit_bytes; /* from set_per_process_memory_fraction; 0 = none */
  tsr_allocator_sink *sink;    /* or NULL */
  void *sink_context;
  tsr_allocator_place *segment_address; /* NULL: 2 MiB aligned, from 0x7f0000000000 upward, never
                                           the same address twice */
  void *segment_address_context;
} tsr_allocator_options;

/* Create an allocator without segments. The caller owns `*out` and passes it to
 * tsr_allocator_destroy. `options` is copied; NULL selects all defaults. Fails with
 * TSR_ERROR_ARGUMENT (invalid settings) or TSR_ERROR_MEMORY. */
int tsr_allocator_new(const tsr_allocator_options *options, tsr_allocator **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_allocator_destroy(tsr_allocator *allocator);

/* Set a tag (a stack id, for example) that blocks, segments and events created from now on carry.
 * TSR_NONE at first. */
void tsr_allocator_set_owner(tsr_allocator *allocator, uint32_t owner);

/* tsr_allocator_malloc returns this if the device is out of memory, which is a result, not an error. */
#define TSR_ALLOCATOR_OUT_OF_DEVICE 1

/* Allocate `request_bytes` for a stream, from the default pool (0, 0) or a private one, which is
 * created on first use. A request of 0 changes nothing and yields address 0, as in PyTorch.
 * Returns 0 and `*address`; or TSR_ALLOCATOR_OUT_OF_DEVICE, after the oom event, once everything
 * PyTorch would try has failed; or TSR_ERROR_MEMORY, in which case segments that the call had already
 * released stay released. O(log n) from the cache; growth and release are linear in what they touch. */
int tsr_allocator_malloc(tsr_allocator *allocator, uint64_t request_bytes, uint64_t stream,
                         tsr_pool pool, uint64_t *address);

/* Free the block at `address`; 0 does nothing. A block that other streams used (see below)
 * waits for them; any other is free at once. TSR_ERROR_ARGUMENT if no allocated block starts
 * there. O(log n). */
int tsr_allocator_free(tsr_allocator *allocator, uint64_t address);

/* A stream whose order is unknown: its events finish one by one. */
#define TSR_STREAM_UNKNOWN UINT64_MAX

/* The allocated block at `address` is used on another stream (Tensor.record_stream); its own stream
 * is ignored. When the block is freed, an event is recorded on each such stream, and the block waits
 * for all of them. TSR_ERROR_ARGUMENT if no allocated block starts there, or TSR_ERROR_MEMORY. O(the
 * block's streams). */
int tsr_allocator_record_stream(tsr_allocator *allocator, uint64_t address, uint64_t stream);

/* Report that all events recorded so far on a stream have finished; for TSR_STREAM_UNKNOWN this does
 * nothing. Their blocks become free during the next malloc: stream by stream (in the order of first
 * use; PyTorch's order is that of a hash table), oldest first. O(1). */
void tsr_allocator_complete_stream(tsr_allocator *allocator, uint64_t stream);
/* torch.cuda.empty_cache: wait for all events, then release every entirely free cached segment
 * to the driver, and entire free granules of expandable ones; private pools only after they have
 * ended. TSR_ERROR_MEMORY if the process runs out of memory half way. O(n log n). */
int tsr_allocator_empty_cache(tsr_allocator *allocator);

/* ---- Private pools: CUDA graphs and MemPools ---- */

/* Add or remove a user of a private pool. A pool whose last user has gone releases its memory when
 * caches are emptied; a pool that was never begun keeps it. TSR_ERROR_ARGUMENT for the default
 * pool or an end without a begin, or TSR_ERROR_MEMORY. */
int tsr_allocator_pool_begin(tsr_allocator *allocator, tsr_pool pool);
int tsr_allocator_pool_end(tsr_allocator *allocator, tsr_pool pool);

/* ---- State ---- */

/* Counted as in torch.cuda.memory_stats: allocated falls when a block is freed, active and requested
 * when that free completes. */
typedef struct tsr_allocator_totals {
  uint64_t requested_bytes, allocated_bytes, active_bytes, reserved_bytes;
} tsr_allocator_totals;

/* The totals now, and the maximum of each so far. O(1). */
tsr_allocator_totals tsr_allocator_now(const tsr_allocator *allocator);
tsr_allocator_totals tsr_allocator_peak(const tsr_allocator *allocator);
#ifdef __cplusplus
}
#endif
#endif
