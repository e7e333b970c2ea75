/* arena.c - see arena.h. In builds with assertions each new block is filled with ones, which are NaN
 * as numbers of any type: a kernel that reads what nothing wrote does not go unnoticed. Large blocks
 * are left alone, because pages are taken when they are touched. */
#include "exec/arena.h"

#include <assert.h>
#include <string.h>

#include "base/os.h"
#include "tessera/types.h"

#ifndef NDEBUG
enum { FILLED_BYTES = 1 << 20 };
#endif

bool tsr__tensor_arena_init(tsr__tensor_arena *arena, uint64_t origin, uint64_t size_bytes) {
  assert(size_bytes);
  *arena = (tsr__tensor_arena){.origin = origin, .size_bytes = size_bytes};
  if (size_bytes > SIZE_MAX / 2) return false;
  arena->base = tsr__os_reserve((size_t)size_bytes);
  return arena->base != NULL;
}

void tsr__tensor_arena_release(tsr__tensor_arena *arena) {
  tsr__os_unreserve(arena->base, (size_t)arena->size_bytes);
  arena->base = NULL;
}

static bool is_inside(const tsr__tensor_arena *arena, uint64_t address, uint64_t size_bytes) {
  return address >= arena->origin && size_bytes <= arena->size_bytes &&
         address - arena->origin <= arena->size_bytes - size_bytes;
}

static bool add_segment(tsr__tensor_arena *arena, uint64_t address, uint64_t size_bytes) {
  if (!is_inside(arena, address, size_bytes)) return false;
  arena->usable_bytes += size_bytes;
  if (arena->usable_bytes > arena->usable_peak_bytes)
    arena->usable_peak_bytes = arena->usable_bytes;
  return tsr__os_commit(arena->base, (size_t)(address - arena->origin), (size_t)size_bytes);
}

void tsr__tensor_arena_count(tsr__tensor_arena *arena, const tsr_allocator_event *event) {
  if (event->action == TSR_ACTION_ALLOC) {
    arena->block_bytes += event->size;
    if (arena->block_bytes > arena->block_peak_bytes) arena->block_peak_bytes = arena->block_bytes;
  } else if (event->action == TSR_ACTION_FREE_COMPLETED) {
    assert(arena->block_bytes >= event->size);
    arena->block_bytes -= event->size;
  }
}

static void fill_block(tsr__tensor_arena *arena, uint64_t address, uint64_t size_bytes) {
  assert(is_inside(arena, address, size_bytes));
#ifndef NDEBUG
  if (size_bytes <= FILLED_BYTES)
    memset(tsr__tensor_arena_at(arena, address), 0xff, (size_t)size_bytes);
#else
  (void)arena, (void)address, (void)size_bytes;
#endif
}

bool tsr__tensor_arena_event(tsr__tensor_arena *arena, const tsr_allocator_event *event) {
  tsr__tensor_arena_count(arena, event);
  switch (event->action) {
  case TSR_ACTION_SEGMENT_ALLOC:
  case TSR_ACTION_SEGMENT_MAP: return add_segment(arena, event->addr, event->size);
  case TSR_ACTION_SEGMENT_FREE:
  case TSR_ACTION_SEGMENT_UNMAP:
    assert(is_inside(arena, event->addr, event->size) && arena->usable_bytes >= event->size);
    arena->usable_bytes -= event->size;
    tsr__os_decommit(arena->base, (size_t)(event->addr - arena->origin), (size_t)event->size);
    break;
  case TSR_ACTION_ALLOC: fill_block(arena, event->addr, event->size); break;
  default: break;
  }
  return true;
}

void *tsr__tensor_arena_at(const tsr__tensor_arena *arena, uint64_t address) {
  assert(arena->base && is_inside(arena, address, 1));
  return arena->base + (address - arena->origin);
}
