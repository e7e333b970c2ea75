/* tessera/unstable/timeline.h - what the replay of a trace yields: totals, moments, fragmentation.
 *
 * All are plain values in bytes. */
#ifndef TESSERA_UNSTABLE_TIMELINE_H
#define TESSERA_UNSTABLE_TIMELINE_H

#include <stdint.h>

#include "tessera/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* PyTorch's four totals. */
typedef struct tsr_totals {
  uint64_t requested_bytes; /* bytes that the program asked for, of active blocks */
  uint64_t allocated_bytes; /* blocks that serve them, rounding included */
  uint64_t active_bytes;    /* allocated plus blocks waiting for another stream */
  uint64_t reserved_bytes;  /* segments */
} tsr_totals;

/* How well the replay of a trace agrees with the file, that is, how far its numbers can be trusted.
 * For traces of PyTorch's default configuration both numbers of every pair are equal. */
typedef struct tsr_replay_check {
  uint64_t reused,
      reused_matched; /* allocs from cached memory; of these, those placed as in the model */
  uint64_t segments_new,
      segments_matched; /* allocs from a new segment; of these, those with its size */
  uint64_t final_blocks, final_matched; /* live blocks at the end; of these, those in the replay */
} tsr_replay_check;

/* The exact state after an event. */
typedef struct tsr_moment {
  int64_t event;   /* index in the device's trace; -1: before the first */
  int64_t time_us; /* of the event, or TSR_TIME_NONE */
  tsr_totals totals;
} tsr_moment;

/* Reserved memory that holds no requested byte, by cause. Requested bytes and the parts, except
 * waiting_bytes and largest_free_bytes, add up to reserved bytes. */
typedef struct tsr_fragmentation {
  uint64_t rounding_bytes;     /* requests rounded up */
  uint64_t unsplit_bytes;      /* rest of a block that PyTorch does not split off */
  uint64_t waiting_bytes;      /* freed blocks that another stream may still use */
  uint64_t free_block_bytes;   /* free blocks in segments that are in use */
  uint64_t free_segment_bytes; /* entirely free segments: what empty_cache() releases */
  uint64_t largest_free_bytes; /* the largest free block: larger requests need a new segment */
} tsr_fragmentation;

/* A private pool (of CUDA graphs, or a MemPool) on one stream, at a moment. It keeps the memory that it
 * once took for as long as it has users: empty_cache() does not release it, and requests outside the
 * pool cannot use it. */
typedef struct tsr_private_pool {
  tsr_pool pool;
  uint64_t stream;           /* handle */
  uint64_t active_bytes;     /* of live blocks */
  uint64_t reserved_bytes;   /* of its segments */
  uint64_t high_water_bytes; /* the most that was reserved, up to that moment */
} tsr_private_pool;

/* Totals of the trace alone, counted from zero at its first event: `alloc` adds,
 * `free_completed` of an address allocated in the trace subtracts. These are Mosaic's numbers. */
typedef struct tsr_recorded {
  int64_t peak_event;          /* first event at which the total is largest; -1 if none allocates */
  int64_t peak_time_us;        /* its time, or TSR_TIME_NONE */
  uint64_t dynamic_peak_bytes; /* total at that event */
  uint64_t static_bytes;  /* allocated blocks whose address is in no alloc or free of the trace */
  uint64_t overall_bytes; /* the sum of both */
} tsr_recorded;

#ifdef __cplusplus
}
#endif
#endif
