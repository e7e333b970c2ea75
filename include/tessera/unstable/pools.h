/* tessera/unstable/pools.h - which pools is reserved memory in, and which blocks keep it there?
 *
 * PyTorch has two pools of blocks for each stream, of small and of large requests, and two more for each CUDA graph
 * or MemPool. A free block serves only requests for its own pool, so memory is lost in three ways:
 *
 *   pinned      free, in a segment (of expandable memory: a page) in which a block is live
 *   releasable  whole segments or pages that are free: empty_cache() and PyTorch's own retry give them back
 *   kept        free, in a private pool, which gives nothing back as long as it has users
 *
 * Reserved memory is what these hold and what is in use. The answer is about one moment: where memory ran out for
 * good; or else where most is reserved; or after an event of the caller's choice. Ends of steps, and the worst moment
 * of each phase, are measured in the same way.
 */
#ifndef TESSERA_UNSTABLE_POOLS_H
#define TESSERA_UNSTABLE_POOLS_H

#include "tessera/unstable/answers.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_pools_options {
  bool has_event; /* false: choose the moment, as above */
  int64_t event;  /* -1: before the first; INT64_MAX: the last */
} tsr_pools_options;

/* Who a pool is of. */
typedef enum tsr_pools_kind {
  TSR_POOLS_DEFAULT,
  TSR_POOLS_GRAPH, /* CUDA graphs: by its id, or because a stack in it shows a capture */
  TSR_POOLS_HANDLE, /* a MemPool, or torch.cuda.graph_pool_handle(): the file does not tell them apart */
  TSR_POOLS_KIND_COUNT
} tsr_pools_kind;

/* "default", "graph", "handle"; static text, never NULL. */
const char *tsr_pools_kind_name(tsr_pools_kind kind);

/* Reserved memory, which the other four add up to. */
typedef struct tsr_pools_sums {
  uint64_t reserved_bytes, used_bytes, pinned_bytes, releasable_bytes, kept_bytes;
} tsr_pools_sums;

/* A pool of blocks: those of one id, one stream, and one size class. */
typedef struct tsr_pools_pool {
  tsr_pool pool;
  uint64_t stream; /* handle */
  bool is_large;
  tsr_pools_kind kind;
  tsr_pools_sums
      at; /* at the moment; kept_bytes is 0 unless it is private, the two before it if it is */
  uint64_t segments;                             /* then */
  uint64_t end_reserved_bytes, end_used_bytes;   /* after the last event */
  uint64_t most_reserved_bytes, most_used_bytes; /* in the whole trace, each at its own moment */
  int64_t most_reserved_event; /* the first at which most is reserved; -1: before the first event */
  /* Of its first allocation in the trace, or without one of its largest block from before that has a stack;
   * TSR_NONE: not recorded. */
  uint32_t stack;
} tsr_pools_pool;

/* Live blocks of one stack in one pool that are in units which are free in part. */
typedef struct tsr_pools_holder {
  size_t pool;    /* index in the device's pools */
  uint32_t stack; /* or TSR_NONE: not recorded */
  /* Units in which nothing else is live: how many, their bytes and what is free of that, and the blocks. */
  uint64_t segments, segment_bytes, free_bytes;
  uint64_t blocks, block_bytes;
  uint64_t shared_segments,
      shared_free_bytes; /* units in which blocks of other stacks are live, too */
} tsr_pools_holder;

/* A unit that is pinned. */
typedef struct tsr_pools_segment {
  uint64_t address, size_bytes, free_bytes;
  size_t pool;
  bool is_page;            /* of expandable memory */
  uint64_t blocks, stacks; /* that are live in it: how many blocks, of how many stacks */
  uint64_t block_bytes;    /* of these blocks, also what lies outside a page */
  uint32_t stack;          /* of its largest block, or TSR_NONE */
} tsr_pools_segment;

/* Another moment. */
typedef struct tsr_pools_moment {
  bool is_step_end; /* false: where most of what is reserved was free in a phase */
  uint64_t step;    /* of a step's end: its number, from 1, as `steps` has it */
  tsr_phase phase;  /* of the event */
  int64_t event, time_us;
  tsr_pools_sums sums;
  tsr_pools_sums *pools; /* the same by pool, in the order of the device's pools */
  tsr_pools_holder
      holder; /* of a default pool, that alone keeps most free memory pinned; free_bytes 0: none does */
} tsr_pools_moment;

/* The trace with other pools, on the model of the allocator. */
typedef struct tsr_pools_trial {
  bool is_shared; /* all private pools are one; false: some of them are left out */
  bool is_all;    /* of the latter: all are */
  tsr_pool pool;  /* otherwise, the one that is */
  bool
      is_least; /* it is a graph's: its replays would also allocate, which the trace does not show */
  uint64_t peak_reserved_bytes;
  bool is_given_up; /* as in tsr_whatif_run */
} tsr_pools_trial;

typedef enum tsr_pools_reason {
  TSR_POOLS_AT_PEAK, /* where most is reserved */
  TSR_POOLS_AT_OUT_OF_MEMORY,
  TSR_POOLS_AT_EVENT, /* as the options ask */
  TSR_POOLS_REASON_COUNT
} tsr_pools_reason;

/* "peak", "out_of_memory", "event"; static text, never NULL. */
const char *tsr_pools_reason_name(tsr_pools_reason reason);

typedef struct tsr_pools_device {
  uint32_t device;
  uint64_t event_count;
  bool has_history, is_partial; /* as in tsr_peak_device */
  tsr_pools_reason reason;
  tsr_moment moment;
  tsr_pools_sums sums;
  /* The card's memory, by the sidecar; 0: not known. More can be reserved: managed memory, which a MemPool can have
   * (torch.cuda._use_uvm), is paged to the host. */
  uint64_t card_bytes;
  uint64_t releasable_segments; /* counted as segments or ranges that are entirely free */
  tsr_pools_pool *pools;        /* default first, then by id, stream and size */
  size_t pool_count;
  tsr_pools_holder *holders; /* most free memory that they alone keep first */
  size_t holder_count;
  uint64_t omitted_holders, omitted_holder_bytes; /* by tsr_query.top; their free_bytes */
  tsr_pools_segment *segments;                    /* most free first */
  size_t segment_count;
  uint64_t omitted_segments, omitted_segment_bytes;
  tsr_pools_moment *moments; /* phases in the order of tsr_phase, then ends of steps */
  size_t moment_count;
  tsr_steps_unit unit; /* what steps are */
  uint64_t
      omitted_ends; /* ends of steps that were not measured: with many steps, some are, evenly chosen */
  uint64_t recorded_peak_reserved_bytes; /* what trials are compared with */
  tsr_pools_trial
      *trials; /* if the trace has private pools, and its reserved memory can be repeated */
  size_t trial_count;
  tsr_warning *warnings;
  size_t warning_count;
} tsr_pools_device;

typedef struct tsr_pools {
  tsr_pools_device *devices;
  size_t device_count;
  bool leaves_host; /* the snapshot has pinned host memory too, which has no pools of this kind */
} tsr_pools;

/* Describe each GPU that the query selects. Time is that of a few replays: one more for each trial. Fails with
 * TSR_ERROR_MEMORY or _ARGUMENT; the latter also for an event that no device has. */
int tsr_pools_compute(tsr_study *study, const tsr_pools_options *options, const tsr_query *query,
                      tsr_pools **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_pools_free(tsr_pools *pools);

#ifdef __cplusplus
}
#endif
#endif
