/* tessera/allocator.h - a model of PyTorch's CUDA caching allocator, exact to the byte.
 *
 * Given the same requests in the same order, it places every block where PyTorch would, asks the
 * driver for the same segments, and records the same events. It holds no memory of any device:
 * addresses are numbers. It is what `whatif` replays a trace through, and what a simulated training
 * step allocates from.
 *
 * The rules are those of c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig; where
 * releases differ, a setting says which.
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

#ifdef __cplusplus
}
#endif
#endif
