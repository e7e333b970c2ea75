/* arena.c - see arena.h. In builds with assertions each new block is filled with ones, which are NaN as numbers of
 * any type: so a kernel that reads memory that nothing wrote is noticed. Large blocks are not filled, because
 * touching their pages would occupy them. */
#include "exec/arena.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "base/os.h"
#include "tessera/types.h"

/* Chunks are large enough that few of them are shared by several blocks, and small compared with the memory that is
 * saved. Fewer than IDLE_MOST idle chunks are not worth a search. */
enum { CHUNK_BYTES = 1 << 16, TOUCHED = 1 << 15, IDLE_MOST = 64 };

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

bool tsr__tensor_arena_keep(tsr__tensor_arena *arena, uint64_t most_bytes) {
  assert(!arena->usable_bytes && !arena->chunks);
  arena->chunk_count = (arena->size_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
  arena->most_touched = most_bytes / CHUNK_BYTES;
  arena->chunks = TSR__NEW_ARRAY(uint16_t, (size_t)arena->chunk_count);
  return arena->chunks != NULL;
}

void tsr__tensor_arena_release(tsr__tensor_arena *arena) {
  tsr__free(arena->chunks);
  arena->chunks = NULL;
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

/* ---- pages that are given back ---- */

static bool is_idle(const tsr__tensor_arena *arena, uint64_t chunk) {
  return arena->chunks[chunk] == TOUCHED;
}

/* Give back the idle chunks before `end`, up to `most`. Returns how many. */
static uint64_t forget(tsr__tensor_arena *arena, uint64_t end, uint64_t most) {
  uint64_t first = end;
  while (first > 0 && end - first < most && is_idle(arena, first - 1)) arena->chunks[--first] = 0;
  if (end == first) return 0;
  tsr__os_forget(arena->base, (size_t)(first * CHUNK_BYTES), (size_t)((end - first) * CHUNK_BYTES));
  arena->touched -= end - first;
  arena->idle -= end - first;
  return end - first;
}

/* Release chunks from the end on. Steps use memory in the same order again and again, so releasing the chunks that
 * have been idle for longest would release all of them in each step, just before they are needed; a fixed order
 * always releases the same few. It releases a little more than necessary, so that searches are rare. */
static void forget_idle(tsr__tensor_arena *arena) {
  for (uint64_t at = arena->chunk_count, passed;
       at > 0 && arena->idle && arena->touched + IDLE_MOST > arena->most_touched; at -= passed) {
    passed = forget(arena, at, arena->touched + IDLE_MOST - arena->most_touched);
    if (!passed) passed = 1;
  }
}

/* Count a block that starts or stops using its chunks. */
static void use_chunks(tsr__tensor_arena *arena, const tsr_allocator_event *event, bool begins) {
  uint64_t offset = event->addr - arena->origin, first = offset / CHUNK_BYTES;
  uint64_t end = (offset + event->size + CHUNK_BYTES - 1) / CHUNK_BYTES;
  if (!arena->chunks || !event->size) return;
  for (uint64_t i = first; i < end; i++) {
    uint16_t *chunk = &arena->chunks[i];
    if (begins) {
      arena->idle -= *chunk == TOUCHED;
      arena->touched += *chunk == 0;
      *chunk = (uint16_t)((*chunk | TOUCHED) + 1);
    } else {
      assert(*chunk > TOUCHED);
      arena->idle += --*chunk == TOUCHED;
    }
  }
  if (begins && arena->touched > arena->most_touched && arena->idle > IDLE_MOST) forget_idle(arena);
}

/* The segment goes, and its pages with it. */
static void drop_chunks(tsr__tensor_arena *arena, const tsr_allocator_event *event) {
  uint64_t first = (event->addr - arena->origin) / CHUNK_BYTES;
  for (uint64_t i = first; arena->chunks && i < first + event->size / CHUNK_BYTES; i++) {
    arena->touched -= arena->chunks[i] != 0;
    arena->idle -= is_idle(arena, i);
    arena->chunks[i] = 0;
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
    drop_chunks(arena, event);
  } else if (event->action == TSR_ACTION_FREE_COMPLETED) {
    use_chunks(arena, event, false);
  } else if (event->action == TSR_ACTION_ALLOC) {
    use_chunks(arena, event, true);
    fill_block(arena, event->addr, event->size);
  }
  return true;
}

void *tsr__tensor_arena_at(const tsr__tensor_arena *arena, uint64_t address) {
  assert(arena->base && is_inside(arena, address, 1));
  return arena->base + (address - arena->origin);
}
