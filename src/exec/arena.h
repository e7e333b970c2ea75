/* arena.h - real memory at the addresses of the allocator model.
 *
 * Addresses are reserved once. A segment that the model gets from the driver is made usable, at the
 * same offset from the first; one that it returns is given back to the system. So what a run occupies
 * is what the model says, and a kernel that leaves its segments is stopped by the processor:
 *
 *   model     origin  | segment |     gap     | segment |            LIMIT
 *   process   base    | usable  |   no access | usable  |  no access  end
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
} tsr__tensor_arena;

/* Reserve room for addresses from `origin` on. False if the system has none. */
bool tsr__tensor_arena_init(tsr__tensor_arena *arena, uint64_t origin, uint64_t size_bytes);
/* A zeroed arena is fine. */
void tsr__tensor_arena_release(tsr__tensor_arena *arena);
/* Follow the allocator. False if the system refuses memory, or a segment is beyond the reservation. */
bool tsr__tensor_arena_event(tsr__tensor_arena *arena, const tsr_allocator_event *event);
/* Count the segments and blocks of an event, and nothing more: what is not in memory. */
void tsr__tensor_arena_account(tsr__tensor_arena *arena, const tsr_allocator_event *event);
/* Count the blocks of an event, and nothing more: where the model only keeps the books. */
void tsr__tensor_arena_count(tsr__tensor_arena *arena, const tsr_allocator_event *event);
/* Where an address of the model is. */
void *tsr__tensor_arena_at(const tsr__tensor_arena *arena, uint64_t address);

#endif
