/* arena.h - real memory at the addresses of the allocator model.
 *
 * Addresses are reserved once. A segment that the model gets from the driver is made usable, at the same offset from
 * the first; one that it returns is given back to the system. So a run occupies exactly what the model predicts, and
 * the processor stops a kernel that reads or writes outside of its segments:
 *
 *   model     origin  | segment |     gap     | segment |            LIMIT
 *   process   base    | usable  |   no access | usable  |  no access  end
 *
 * An allocator keeps segments whose blocks are free, and a process keeps pages that it has touched. With
 * tsr__tensor_arena_keep, pages that no block uses are given back when those touched would be more than the run needs
 * at its peak: what the process occupies is then what its tensors do, not what the allocator keeps. This costs the
 * time to touch the pages again, but only in runs whose segments have that much free memory.
 *
 * Blocks and segments are counted from the events as well: an account of what was used that does not
 * depend on the model's own totals. */
#ifndef TSR_EXEC_ARENA_H
#define TSR_EXEC_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/allocator.h"

typedef struct tsr__tensor_arena {
  char *base;
  uint64_t origin; /* the address that `base` stands for */
  uint64_t size_bytes;
  uint64_t usable_bytes, usable_peak_bytes; /* of segments */
  uint64_t block_bytes, block_peak_bytes;   /* requested */
  /* By chunk of CHUNK_BYTES, if pages are given back: blocks that use it, and TOUCHED since it was last given back. */
  uint16_t *chunks;
  uint64_t chunk_count;
  uint64_t touched, idle; /* chunks: touched; of these, used by no block */
  uint64_t most_touched;
} tsr__tensor_arena;

/* Reserve room for addresses from `origin` on. False if the system has none. */
bool tsr__tensor_arena_init(tsr__tensor_arena *arena, uint64_t origin, uint64_t size_bytes);
/* Give pages back rather than occupy more than `most_bytes`, as far as blocks allow. Before the first event. False
 * when out of memory. */
bool tsr__tensor_arena_keep(tsr__tensor_arena *arena, uint64_t most_bytes);
/* A zeroed arena is fine. */
void tsr__tensor_arena_release(tsr__tensor_arena *arena);
/* Follow the allocator. False if the system refuses memory, or a segment is beyond the reservation. */
bool tsr__tensor_arena_event(tsr__tensor_arena *arena, const tsr_allocator_event *event);
/* Only count the segments and blocks of an event, for tensors that are not in memory. */
void tsr__tensor_arena_account(tsr__tensor_arena *arena, const tsr_allocator_event *event);
/* Only count the blocks of an event, if the allocator model does not decide the addresses. */
void tsr__tensor_arena_count(tsr__tensor_arena *arena, const tsr_allocator_event *event);
/* The real address of an address of the model. */
void *tsr__tensor_arena_at(const tsr__tensor_arena *arena, uint64_t address);

#endif
