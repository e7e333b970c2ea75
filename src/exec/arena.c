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

static bool is_segment(const tsr_allocator_event *event, bool is_new) {
  return is_new
             ? event->action == TSR_ACTION_SEGMENT_ALLOC || event->action == TSR_ACTION_SEGMENT_MAP
             : event->action == TSR_ACTION_SEGMENT_FREE ||
                   event->action == TSR_ACTION_SEGMENT_UNMAP;
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

void tsr__tensor_arena_account(tsr__tensor_arena *arena, const tsr_allocator_event *event) {
  tsr__tensor_arena_count(arena, event);
  if (is_segment(event, true)) {
    arena->usable_bytes += event->size;
    if (arena->usable_bytes > arena->usable_peak_bytes)
      arena->usable_peak_bytes = arena->usable_bytes;
  } else if (is_segment(event, false)) {
    assert(arena->usable_bytes >= event->size);
    arena->usable_bytes -= event->size;
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
  bool is_new = is_segment(event, true);
  if (is_new && !is_inside(arena, event->addr, event->size)) return false;
  tsr__tensor_arena_account(arena, event);
  size_t offset = (size_t)(event->addr - arena->origin);
  if (is_new) return tsr__os_commit(arena->base, offset, (size_t)event->size);
  if (is_segment(event, false)) {
    assert(is_inside(arena, event->addr, event->size));
    tsr__os_decommit(arena->base, offset, (size_t)event->size);
  } else if (event->action == TSR_ACTION_ALLOC) {
    fill_block(arena, event->addr, event->size);
  }
  return true;
}

void *tsr__tensor_arena_at(const tsr__tensor_arena *arena, uint64_t address) {
  assert(arena->base && is_inside(arena, address, 1));
  return arena->base + (address - arena->origin);
}
