/* start.c - what was there before the first event. See timeline.h.
 *
 * An address's first event in the window decides: a free says that it was live before, an alloc
 * that it was not; an address without events was live if it is among the final blocks. Segments
 * likewise. Expandable memory is undone step by step from the end, because its ranges grow and
 * shrink.
 *
 * The size of a block that is freed inside the window is not written anywhere. It is the rounded
 * request, plus what PyTorch did not split off: in the large pool, outside expandable segments, no
 * free block is ever as small as 1 MiB, so a gap up to that behind a block belongs to it. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "snapshot/tables.h"
#include "timeline/timeline.h"

typedef struct starter {
  tsr__timeline *t;
  tsr__heap *heap;
  tsr__map *loose;
  tsr__map first_event;            /* address -> first alloc or free event + 1 */
  tsr__map first_segment_event;    /* segment address -> event + 1 */
  TSR__VECTOR(tsr__initial) found; /* freed in the window first, then those of final blocks */
  size_t freed_count;
  TSR__VECTOR(uint64_t) known_bytes; /* of the found: size of the final block, 0 where unknown */
  TSR__VECTOR(tsr__span) ranges;     /* expandable memory before the window */
  tsr__map told_bytes;               /* address -> size, of blocks that a trimmed file tells */
  bool has_requests;                 /* the trace records free_requested at all */
} starter;

/* ---- settings ---- */

static uint64_t bytes_setting(const tsr_snapshot *snapshot, const char *key) {
  double value;
  return tsr_snapshot_setting(snapshot, key, NULL, &value) && value > 0 ? (uint64_t)value : 0;
}

/* Ascend adds 32 bytes to a request before rounding it; nothing in the file says so but its blocks.
 */
static uint64_t rounding_extra(const tsr_snapshot *snapshot, uint32_t device,
                               const tsr_allocator_settings *settings) {
  tsr_allocator_settings with_extra = *settings;
  size_t segment_count, block_count, plain = 0, extra = 0;
  const tsr_segment *segments = tsr_snapshot_segments(snapshot, &segment_count);
  const tsr_block *blocks = tsr_snapshot_blocks(snapshot, &block_count);
  with_extra.rounding_extra_bytes = 32;
  for (size_t s = 0; s < segment_count; s++)
    for (uint64_t b = 0; segments[s].device == device && b < segments[s].block_count; b++) {
      const tsr_block *block = &blocks[segments[s].first_block + b];
      if (block->state != TSR_BLOCK_ALLOCATED) continue;
      plain += tsr__round_request(settings, block->requested_bytes) == block->size_bytes;
      extra += tsr__round_request(&with_extra, block->requested_bytes) == block->size_bytes;
    }
  return extra > plain ? 32 : 0;
}

void tsr__timeline_settings(const tsr_snapshot *snapshot, uint32_t device,
                            tsr_allocator_settings *settings) {
  static const char *const slots[TSR_ROUNDUP_SLOTS] = {
      "1",   "2",   "4",    "8",    "16",   "32",   "64",    "128",
      "256", "512", "1024", "2048", "4096", "8192", "16384", "32768"};
  double value;
  *settings = (tsr_allocator_settings){0};
  settings->max_split_bytes = bytes_setting(snapshot, "max_split_size");
  settings->max_non_split_rounding_bytes = bytes_setting(snapshot, "max_non_split_rounding_size");
  if (tsr_snapshot_setting(snapshot, "garbage_collection_threshold", NULL, &value))
    settings->garbage_collection_threshold = value;
  if (tsr_snapshot_setting(snapshot, "expandable_segments", NULL, &value))
    settings->expandable_segments = value != 0;
  for (int i = 0; i < TSR_ROUNDUP_SLOTS; i++)
    if (tsr_snapshot_setting(snapshot, "roundup_power2_divisions", slots[i], &value) && value > 0 &&
        value < 1e6)
      settings->roundup_divisions[i] = (uint32_t)value;
  settings->rounding_extra_bytes = rounding_extra(snapshot, device, settings);
}

/* ---- who was there ---- */

static bool note_event(starter *s, uint64_t i) {
  const tsr_events *events = &s->t->events;
  bool added;
  switch (events->action[i]) {
  case TSR_ACTION_FREE_REQUESTED: s->has_requests = true; break;
  case TSR_ACTION_ALLOC:
  case TSR_ACTION_FREE_COMPLETED:
  case TSR_ACTION_FREE: break;
  case TSR_ACTION_SEGMENT_ALLOC:
  case TSR_ACTION_SEGMENT_FREE:
    return tsr__map_put(&s->first_segment_event, events->addr[i], i + 1, NULL) != NULL;
  default: return true;
  }
  if (!tsr__map_put(&s->first_event, events->addr[i], i + 1, &added)) return false;
  if (!added || events->action[i] == TSR_ACTION_ALLOC) return true;
  tsr__initial initial = {.address = events->addr[i],
                          .requested_bytes = events->size[i],
                          .stack = TSR_NONE,
                          .is_waiting = events->action[i] == TSR_ACTION_FREE_COMPLETED};
  const uint64_t *told = tsr__map_find(&s->told_bytes, initial.address);
  return TSR__VECTOR_PUSH(&s->found, initial) &&
         TSR__VECTOR_PUSH(&s->known_bytes, told ? *told : 0);
}

static bool note_told(starter *s) {
  size_t count;
  const tsr__value *told = tsr__snapshot_initial_blocks(s->t->snapshot, s->t->device, &count);
  for (size_t i = 0; i + 1 < count; i += 2)
    if (told[i].tag == TSR__INT && told[i + 1].tag == TSR__INT &&
        !tsr__map_put(&s->told_bytes, told[i].u, told[i + 1].u, NULL))
      return false;
  return true;
}

/* Final blocks that no event mentions were there all along. */
static bool note_blocks(starter *s) {
  size_t segment_count, block_count;
  const tsr_segment *segments = tsr_snapshot_segments(s->t->snapshot, &segment_count);
  const tsr_block *blocks = tsr_snapshot_blocks(s->t->snapshot, &block_count);
  for (size_t k = 0; k < segment_count; k++)
    for (uint64_t b = 0; segments[k].device == s->t->device && b < segments[k].block_count; b++) {
      const tsr_block *block = &blocks[segments[k].first_block + b];
      if (block->state != TSR_BLOCK_ALLOCATED && block->state != TSR_BLOCK_PENDING_FREE) continue;
      if (tsr__map_find(&s->first_event, block->address)) continue;
      tsr__initial initial = {.address = block->address,
                              .requested_bytes = block->requested_bytes,
                              .stack = block->stack,
                              .is_waiting = block->state == TSR_BLOCK_PENDING_FREE};
      if (!TSR__VECTOR_PUSH(&s->found, initial) ||
          !TSR__VECTOR_PUSH(&s->known_bytes, block->size_bytes))
        return false;
    }
  return true;
}

/* ---- segments before the window ---- */

static uint32_t default_pool(const tsr__timeline *t) {
  size_t count;
  const tsr_segment *segments = tsr_snapshot_segments(t->snapshot, &count);
  for (size_t i = 0; i < count; i++) {
    tsr_pool pool = tsr_snapshot_pool(t->snapshot, segments[i].pool);
    if (segments[i].pool != TSR_NONE && !pool.first && !pool.second) return segments[i].pool;
  }
  return TSR_NONE;
}

static bool add_span(starter *s, const tsr__span *span) {
  tsr__heap_segment like = {.stream = span->stream, .pool = span->pool, .is_large = span->is_large};
  if (tsr__map_find(&s->heap->segment_at, span->address)) {
    s->t->misfits[TSR__MISFIT_SEGMENT]++;
    return true;
  }
  return tsr__heap_add_segment(s->heap, span->address, span->size_bytes, &like) != TSR_NONE &&
         TSR__VECTOR_PUSH(&s->t->spans, *span);
}

static bool add_final_segments(starter *s) {
  size_t count;
  const tsr_segment *segments = tsr_snapshot_segments(s->t->snapshot, &count);
  for (size_t i = 0; i < count; i++) {
    const tsr_segment *segment = &segments[i];
    if (segment->device != s->t->device || !segment->total_bytes) continue;
    tsr__span span = {.address = segment->address,
                      .size_bytes = segment->total_bytes,
                      .birth = TSR_NONE,
                      .death = TSR_NONE,
                      .stream = tsr_snapshot_find_stream(s->t->snapshot, segment->stream),
                      .pool = segment->pool,
                      .is_large = segment->is_large,
                      .is_expandable = segment->is_expandable};
    if (segment->is_expandable) {
      if (!TSR__VECTOR_PUSH(&s->ranges, span)) return false;
    } else if (!tsr__map_find(&s->first_segment_event, segment->address)) {
      if (!add_span(s, &span)) return false;
    }
  }
  return true;
}

/* A segment whose first event is its end was there before; of a segment that the driver took back
 * only its size tells the pool: the small pool's are 2 MiB, and no others. */
static bool add_freed_segments(starter *s) {
  const tsr_events *events = &s->t->events;
  uint32_t pool = default_pool(s->t);
  for (uint64_t i = 0; i < events->count; i++) {
    if (events->action[i] != TSR_ACTION_SEGMENT_FREE || !events->size[i]) continue;
    if (*tsr__map_find(&s->first_segment_event, events->addr[i]) != i + 1) continue;
    uint32_t its_pool = tsr_id_at(events->pool, i);
    tsr__span span = {.address = events->addr[i],
                      .size_bytes = events->size[i],
                      .birth = TSR_NONE,
                      .death = TSR_NONE,
                      .stream = tsr_id_at(events->stream, i),
                      .pool = its_pool == TSR_NONE ? pool : its_pool,
                      .is_large = events->size[i] != TSR__SMALL_SEGMENT};
    if (!add_span(s, &span)) return false;
  }
  return true;
}

/* ---- expandable memory, undone from the end ---- */

static bool range_add(starter *s, tsr__span range) {
  for (size_t i = 0; i < s->ranges.count; i++) {
    tsr__span *old = &s->ranges.items[i];
    if (old->stream != range.stream || old->is_large != range.is_large) continue;
    if (old->address + old->size_bytes == range.address) {
      old->size_bytes += range.size_bytes;
      return true;
    }
    if (range.address + range.size_bytes == old->address) {
      old->address = range.address;
      old->size_bytes += range.size_bytes;
      return true;
    }
  }
  return TSR__VECTOR_PUSH(&s->ranges, range);
}

static bool range_remove(starter *s, uint64_t address, uint64_t size_bytes) {
  for (size_t i = 0; i < s->ranges.count; i++) {
    tsr__span *range = &s->ranges.items[i];
    uint64_t end = range->address + range->size_bytes;
    if (address < range->address || address >= end) continue;
    if (size_bytes > end - address) size_bytes = end - address;
    tsr__span behind = *range;
    behind.address = address + size_bytes;
    behind.size_bytes = end - behind.address;
    range->size_bytes = address - range->address;
    return !behind.size_bytes || TSR__VECTOR_PUSH(&s->ranges, behind);
  }
  s->t->misfits[TSR__MISFIT_SEGMENT]++;
  return true;
}

static bool undo_ranges(starter *s) {
  const tsr_events *events = &s->t->events;
  uint32_t pool = default_pool(s->t);
  for (uint64_t i = events->count; i--;) {
    bool ok = true;
    if (!events->size[i] || events->addr[i] > UINT64_MAX - events->size[i]) continue;
    if (events->action[i] == TSR_ACTION_SEGMENT_MAP)
      ok = range_remove(s, events->addr[i], events->size[i]);
    if (events->action[i] == TSR_ACTION_SEGMENT_UNMAP)
      ok = range_add(s, (tsr__span){.address = events->addr[i],
                                    .size_bytes = events->size[i],
                                    .birth = TSR_NONE,
                                    .death = TSR_NONE,
                                    .stream = tsr_id_at(events->stream, i),
                                    .pool = pool,
                                    .is_large = events->size[i] % TSR__LARGE_SEGMENT == 0,
                                    .is_expandable = true});
    if (!ok) return false;
  }
  return true;
}

static bool add_ranges(starter *s) {
  for (size_t i = 0; i < s->ranges.count; i++) {
    const tsr__span *range = &s->ranges.items[i];
    tsr__heap_segment like = {
        .stream = range->stream, .pool = range->pool, .is_large = range->is_large};
    if (!range->size_bytes) continue;
    uint32_t reservation = tsr__heap_reservation(s->heap, &like);
    if (reservation == TSR_NONE ||
        !tsr__heap_map(s->heap, reservation, range->address, range->size_bytes) ||
        !TSR__VECTOR_PUSH(&s->t->spans, *range))
      return false;
  }
  return true;
}

/* ---- placing what was live ---- */

static int compare_addresses(const void *a, const void *b) {
  const tsr__initial *x = *(const tsr__initial *const *)a, *y = *(const tsr__initial *const *)b;
  return (x->address > y->address) - (x->address < y->address);
}

static int compare_spans(const void *a, const void *b) {
  const tsr__span *x = a, *y = b;
  return (x->address > y->address) - (x->address < y->address);
}

/* The bytes an initial block counts with: those of the final block, or the rounded request. */
static uint64_t counted_bytes(const starter *s, size_t index) {
  uint64_t known = s->known_bytes.items[index];
  return known ? known : tsr__round_request(&s->t->settings, s->found.items[index].requested_bytes);
}

/* What lies behind a block of unknown size and must belong to it; `room` bytes lie before the next.
 */
static uint64_t unsplit_bytes(const starter *s, const tsr__span *span, size_t index, uint64_t size,
                              uint64_t room) {
  bool may_have = !s->known_bytes.items[index] && span->is_large && !span->is_expandable;
  return may_have && size < room && room - size <= TSR__SMALL_MAX ? room - size : 0;
}

/* Turn [address, + size) of free memory into a block owned by `allocation`. */
static bool place(starter *s, uint64_t address, uint64_t size, uint32_t allocation,
                  uint32_t *inside) {
  tsr__heap *heap = s->heap;
  uint32_t block = *inside;
  while (block != TSR_NONE &&
         heap->blocks.items[block].address + heap->blocks.items[block].size_bytes <= address)
    block = heap->blocks.items[block].next;
  const tsr__initial *initial = &s->t->initial.items[allocation];
  if (heap->blocks.items[block].address < address)
    block = tsr__heap_cut(heap, block, address - heap->blocks.items[block].address);
  if (block == TSR_NONE || !tsr__heap_take(heap, block, size, initial->requested_bytes))
    return false;
  heap->blocks.items[block].owner = allocation;
  if (initial->is_waiting) heap->blocks.items[block].use = TSR__BLOCK_WAITING;
  *inside = block;
  return true;
}

/* The block that holds the first byte of a span. */
static uint32_t first_block(const tsr__heap *heap, const tsr__span *span) {
  uint32_t block = tsr__heap_find((tsr__heap *)(uintptr_t)heap, span->address);
  for (uint32_t i = 0; block == TSR_NONE && i < heap->segments.count; i++) {
    const tsr__heap_segment *segment = &heap->segments.items[i];
    if (!segment->is_gone && segment->address <= span->address &&
        span->address - segment->address < segment->size_bytes)
      block = tsr__heap_find_inside(heap, i, span->address);
  }
  return block;
}

/* Add the found allocations of one span, ordered by address from `*next`, to the timeline and the
 * heap. */
static bool fill_span(starter *s, const tsr__span *span, const tsr__initial **order, size_t count,
                      size_t *next) {
  uint64_t end = span->address + span->size_bytes;
  uint32_t inside = TSR_NONE;
  for (; *next < count && order[*next]->address < end; ++*next) {
    const tsr__initial *initial = order[*next];
    size_t index = (size_t)(initial - s->found.items);
    uint64_t limit =
        *next + 1 < count && order[*next + 1]->address < end ? order[*next + 1]->address : end;
    uint64_t room = limit - initial->address;
    uint64_t size = counted_bytes(s, index);
    if (!room) { /* two at one address: a broken file */
      s->t->misfits[TSR__MISFIT_ALLOC_LIVE]++;
      continue;
    }
    if (size > room) {
      s->t->misfits[TSR__MISFIT_ALLOC_TOO_LONG]++;
      size = room;
    }
    if (inside == TSR_NONE) inside = first_block(s->heap, span);
    uint32_t allocation = (uint32_t)s->t->initial.count;
    tsr__initial placed = *initial;
    placed.unsplit_bytes = unsplit_bytes(s, span, index, size, room);
    if (inside == TSR_NONE || !TSR__VECTOR_PUSH(&s->t->initial, placed) ||
        !TSR__VECTOR_PUSH(&s->t->block_bytes, size) ||
        !place(s, initial->address, size + placed.unsplit_bytes, allocation, &inside))
      return false;
  }
  return true;
}

/* What lies in no segment still counts, with its rounded size. */
static bool add_loose(starter *s, const tsr__initial *initial) {
  size_t index = (size_t)(initial - s->found.items);
  uint64_t size = counted_bytes(s, index);
  uint32_t allocation = (uint32_t)s->t->initial.count;
  return TSR__VECTOR_PUSH(&s->t->initial, *initial) && TSR__VECTOR_PUSH(&s->t->block_bytes, size) &&
         tsr__map_put(s->loose, initial->address, allocation, NULL);
}

static bool place_all(starter *s) {
  size_t count = s->found.count, next = 0;
  const tsr__initial **order = TSR__NEW_ARRAY(const tsr__initial *, count);
  if (!order) return false;
  for (size_t i = 0; i < count; i++) order[i] = &s->found.items[i];
  if (count) qsort(order, count, sizeof *order, compare_addresses);
  if (s->t->spans.count)
    qsort(s->t->spans.items, s->t->spans.count, sizeof *s->t->spans.items, compare_spans);
  bool ok = true;
  for (size_t i = 0; ok && i < s->t->spans.count; i++) {
    const tsr__span *span = &s->t->spans.items[i];
    while (ok && next < count && order[next]->address < span->address)
      ok = add_loose(s, order[next++]);
    if (ok) ok = fill_span(s, span, order, count, &next);
  }
  while (ok && next < count) ok = add_loose(s, order[next++]);
  tsr__free(order);
  return ok;
}

int tsr__timeline_start(tsr__timeline *timeline, tsr__heap *heap, tsr__map *loose) {
  starter s = {.t = timeline, .heap = heap, .loose = loose};
  bool ok = note_told(&s);
  for (uint64_t i = 0; ok && i < timeline->events.count; i++) ok = note_event(&s, i);
  s.freed_count = s.found.count;
  ok = ok && note_blocks(&s) && add_final_segments(&s) && add_freed_segments(&s) &&
       undo_ranges(&s) && add_ranges(&s);
  /* Without free_requested in the trace nothing tells a waiting block from a live one. */
  for (size_t i = 0; i < s.freed_count; i++)
    if (!s.has_requests) s.found.items[i].is_waiting = false;
  ok = ok && place_all(&s);
  tsr__map_release(&s.first_event);
  tsr__map_release(&s.first_segment_event);
  tsr__map_release(&s.told_bytes);
  TSR__VECTOR_FREE(&s.found);
  TSR__VECTOR_FREE(&s.known_bytes);
  TSR__VECTOR_FREE(&s.ranges);
  return ok ? 0 : TSR_ERROR_MEMORY;
}
