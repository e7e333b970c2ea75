/* replay.c - forward through the trace, event by event. See timeline.h.
 *
 * Each alloc is cut from the free block at its address by PyTorch's own rule, which gives the
 * block's true size; each free returns it and joins neighbours. Nothing is searched for: the trace
 * contains every block's address. Only where placement is to be checked are free blocks kept in
 * order as well, and the model asked where it would have put the block.
 *
 * The replay itself cannot be shared among threads: where a block is cut depends on every event before.
 * But the system clears each page of the tables when it is first written to, and that another thread
 * can have done in advance: how long the tables will be is known from the number of allocs.
 *
 * Checkpoints (the live set) are taken so far apart that they cost less than the events
 * between them: a query then replays at most that many events from the nearest one. */
#include <assert.h>
#include <stdatomic.h>

#include "base/checked.h"
#include "base/sort.h"
#include "columns/tables.h"
#include "timeline/timeline.h"

enum { CHECKPOINT_EVENTS = 8192 };

/* Free blocks that may be looked at to check where blocks were placed. Of real traces it takes few;
 * a made one may have every alloc look at all. */
#define PLACEMENT_CANDIDATES (UINT64_C(1) << 24)

/* Memory whose pool the file contains. */
typedef struct pool_range {
  uint64_t address, size_bytes;
  uint32_t pool;
} pool_range;

typedef struct replay {
  tsr__timeline *t;
  tsr__heap heap;
  tsr__map loose;   /* address -> allocation, of those in no segment */
  tsr__map wait_of; /* allocation -> its wait, while it waits */
  tsr__map span_of; /* start of a segment -> its span, while it lives */
  uint32_t live_count;
  uint32_t fresh; /* segment that the last segment_alloc made and no alloc has used, or TSR_NONE */
  tsr__ranges mapped;            /* spans of expandable memory that are there, by index */
  TSR__VECTOR(pool_range) pools; /* of the device's final segments, by address */
  tsr__map last_free; /* address -> last event that releases a segment there; if pools differ */
  tsr_totals now;
  uint64_t recorded_bytes;         /* counted from zero, see record_alloc */
  TSR__VECTOR(uint64_t) live_bits; /* a bit an allocation: is it live? */
  uint64_t next_checkpoint;
  size_t next_mark;    /* of reserved memory, of a flat device */
  uint64_t hint_event; /* the free_completed right after a free_requested, and what it frees */
  uint32_t hint_allocation, hint_block;
  bool checks_placement;
  bool
      has_wished; /* the next alloc may be inside a free block: the allocator was asked for an address */
  bool is_out_of_memory; /* cutting a block has failed: no block is not the same as no memory */
} replay;

/* ---- live allocations ---- */

static bool set_live(replay *r, uint32_t allocation) {
  size_t word = allocation / 64;
  while (r->live_bits.count <= word)
    if (!TSR__VECTOR_PUSH(&r->live_bits, 0)) return false;
  assert(!(r->live_bits.items[word] >> allocation % 64 & 1));
  r->live_bits.items[word] |= UINT64_C(1) << allocation % 64;
  r->live_count++;
  return true;
}

static void set_dead(replay *r, uint32_t allocation, uint64_t event) {
  assert(allocation < r->t->birth.count && r->live_count);
  assert(r->live_bits.items[allocation / 64] >> allocation % 64 & 1);
  assert(r->t->death.items[allocation] == TSR_NONE);
  r->live_bits.items[allocation / 64] &= ~(UINT64_C(1) << allocation % 64);
  r->live_count--;
  r->t->death.items[allocation] = (uint32_t)event;
}

static bool checkpoint(replay *r, int64_t event) {
  tsr__timeline *t = r->t;
  tsr__checkpoint point = {event, t->live_ids.count, 0};
  if (!TSR__VECTOR_RESERVE(&t->live_ids, r->live_count)) return false;
  for (size_t word = 0; word < r->live_bits.count; word++) {
    /* Words are full or nearly empty, as allocations made together mostly die together. */
    for (uint64_t id = word * 64, bits = r->live_bits.items[word]; bits; id++, bits >>= 1)
      if (bits & 1) t->live_ids.items[t->live_ids.count++] = (uint32_t)id;
  }
  point.live_count = t->live_ids.count - point.first_live;
  assert(point.live_count == r->live_count);
  assert(!t->checkpoints.count || t->checkpoints.items[t->checkpoints.count - 1].event < event);
  uint64_t distance = r->live_count > CHECKPOINT_EVENTS ? r->live_count : CHECKPOINT_EVENTS;
  if (r->live_bits.count > distance) distance = r->live_bits.count;
  r->next_checkpoint = (uint64_t)(event + 1) + distance;
  return TSR__VECTOR_PUSH(&t->checkpoints, point);
}

static uint32_t new_allocation(replay *r, uint64_t event, uint64_t block_bytes) {
  tsr__timeline *t = r->t;
  uint32_t allocation = (uint32_t)t->birth.count;
  if (allocation == TSR_NONE || !TSR__VECTOR_PUSH(&t->birth, (uint32_t)event) ||
      !TSR__VECTOR_PUSH(&t->death, TSR_NONE) || !TSR__VECTOR_PUSH(&t->block_bytes, block_bytes) ||
      !set_live(r, allocation))
    return TSR_NONE;
  assert(event < t->events.count && t->birth.count == t->death.count &&
         t->birth.count == t->block_bytes.count);
  t->allocation_of[event] = allocation;
  uint64_t requested = t->events.size[event];
  r->now.requested_bytes = tsr__sum_u64(r->now.requested_bytes, requested);
  r->now.allocated_bytes = tsr__sum_u64(r->now.allocated_bytes, block_bytes);
  r->now.active_bytes = tsr__sum_u64(r->now.active_bytes, block_bytes);
  return allocation;
}

/* ---- alloc ---- */

/* Where would the model have put it? `block` is the free block at its address. */
static void check_placement(replay *r, uint64_t event, uint32_t block, uint64_t rounded) {
  const tsr__heap_block *b = &r->heap.blocks.items[block];
  const tsr__heap_segment *segment = &r->heap.segments.items[b->segment];
  assert(b->use == TSR__BLOCK_FREE);
  tsr_replay_check *check = &r->t->check;
  if (b->segment == r->fresh) {
    check->segments_new++;
    check->segments_matched += segment->size_bytes == tsr__segment_size(&r->t->settings, rounded);
    return;
  }
  bool is_large = tsr__is_large(rounded);
  uint32_t stream = tsr_id_at(r->t->events.stream, event);
  check->reused++;
  check->reused_matched +=
      tsr__heap_best_fit(&r->heap, segment->pool, is_large, stream, rounded) == block;
}

/* An alloc that no free block explains: it counts, but has no place in the heap. */
static bool alloc_loose(replay *r, uint64_t event, uint64_t rounded) {
  uint32_t allocation = new_allocation(r, event, rounded);
  uint64_t *place = allocation == TSR_NONE
                        ? NULL
                        : tsr__map_put(&r->loose, r->t->events.addr[event], allocation, NULL);
  if (place) *place = allocation;
  return place != NULL;
}

/* Is the front of a free block, up to an alloc, what was not split off the block before it? That
 * happens to blocks from before the window: free memory after them hid it (see start.c). */
static bool is_unsplit(const replay *r, const tsr__heap_block *block, uint64_t bytes) {
  const tsr__heap_segment *segment = &r->heap.segments.items[block->segment];
  if (!segment->is_large || segment->is_expandable || block->previous == TSR_NONE) return false;
  uint32_t owner = r->heap.blocks.items[block->previous].owner;
  if (owner >= r->t->initial.count || r->t->initial.items[owner].unsplit_bytes) return false;
  return bytes <= tsr__largest_rest(&r->t->settings, r->t->block_bytes.items[owner]);
}

/* The part of a free block from an address on. */
static uint32_t cut_before(replay *r, uint32_t block, uint64_t address) {
  const tsr__heap_block *b = &r->heap.blocks.items[block];
  uint64_t before = address - b->address;
  assert(before && before < b->size_bytes);
  return tsr__heap_cut(&r->heap, block, before);
}

/* An alloc inside a free block: the part from there on. */
static uint32_t cut_inside(replay *r, uint32_t block, uint64_t address) {
  const tsr__heap_block *b = &r->heap.blocks.items[block];
  uint64_t before = address - b->address;
  assert(before && before < b->size_bytes);
  if (is_unsplit(r, b, before)) {
    uint32_t previous = b->previous;
    r->t->initial.items[r->heap.blocks.items[previous].owner].unsplit_bytes = before;
    return tsr__heap_widen(&r->heap, previous, before);
  }
  r->t->misfits[TSR__MISFIT_ALLOC_INSIDE]++;
  return cut_before(r, block, address);
}

/* The free block to cut an alloc from; TSR_NONE if no free block is at its address. */
static uint32_t block_at(replay *r, uint64_t address) {
  uint32_t block = tsr__heap_find(&r->heap, address);
  if (block != TSR_NONE)
    return r->heap.blocks.items[block].use == TSR__BLOCK_FREE ? block : TSR_NONE;
  uint32_t segment = tsr__heap_segment_around(&r->heap, address);
  if (segment != TSR_NONE) block = tsr__heap_find_inside(&r->heap, segment, address);
  if (block == TSR_NONE || r->heap.blocks.items[block].use != TSR__BLOCK_FREE) return TSR_NONE;
  /* It starts there, but is not found by its start: a segment on top of its own has come and gone. */
  if (r->heap.blocks.items[block].address == address) return TSR_NONE;
  block = r->has_wished ? cut_before(r, block, address) : cut_inside(r, block, address);
  r->is_out_of_memory = block == TSR_NONE;
  return block;
}

static void record_alloc(replay *r, uint64_t event);
static bool finish_live(replay *r, uint64_t event, uint64_t address);

static bool apply_alloc(replay *r, uint64_t event) {
  const tsr_events *events = &r->t->events;
  uint64_t address = events->addr[event], request = events->size[event];
  uint64_t rounded = tsr__timeline_round(r->t, request);
  record_alloc(r, event);
  uint32_t block = tsr__heap_find(&r->heap, address);
  if (block == TSR_NONE || r->heap.blocks.items[block].use != TSR__BLOCK_FREE || r->loose.count) {
    uint64_t inside_count = r->t->misfits[TSR__MISFIT_ALLOC_INSIDE];
    bool was_live = finish_live(r, event, address);
    block = block_at(r, address);
    if (was_live) {
      r->t->misfits[TSR__MISFIT_ALLOC_LIVE]++;
      r->t->misfits[TSR__MISFIT_ALLOC_INSIDE] = inside_count; /* of the memory just freed */
    }
  }
  if (r->is_out_of_memory) return false;
  if (block == TSR_NONE) {
    r->t->misfits[TSR__MISFIT_ALLOC_OUTSIDE] += !r->t->flat;
    return alloc_loose(r, event, rounded);
  }
  if (r->checks_placement && !r->has_wished && r->heap.candidates < PLACEMENT_CANDIDATES)
    check_placement(r, event, block, rounded);
  const tsr__heap_block *b = &r->heap.blocks.items[block];
  const tsr__heap_segment *segment = &r->heap.segments.items[b->segment];
  uint64_t size = b->size_bytes;
  bool is_host = r->t->host_round_max_bytes; /* never splits */
  if ((is_host ? request : rounded) > size)
    r->t->misfits[TSR__MISFIT_ALLOC_TOO_LONG]++;
  else if (!is_host && tsr__should_split(&r->t->settings, segment->is_large, segment->is_expandable,
                                         size, rounded))
    size = rounded;
  if (b->segment == r->fresh) r->fresh = TSR_NONE;
  block = tsr__heap_take(&r->heap, block, size, request);
  if (block == TSR_NONE) return false;
  r->heap.blocks.items[block].owner = new_allocation(r, event, size);
  return r->heap.blocks.items[block].owner != TSR_NONE;
}

/* ---- free ---- */

/* The allocation that is live at an address, TSR_NONE if none; `*block` is its block, or TSR_NONE.
 */
static uint32_t live_at(replay *r, uint64_t address, uint32_t *block) {
  *block = tsr__heap_find(&r->heap, address);
  if (*block != TSR_NONE) {
    const tsr__heap_block *b = &r->heap.blocks.items[*block];
    if (b->use == TSR__BLOCK_TAKEN || b->use == TSR__BLOCK_WAITING) return b->owner;
    *block = TSR_NONE;
  }
  const uint64_t *loose = r->loose.count ? tsr__map_find(&r->loose, address) : NULL;
  return loose ? (uint32_t)*loose : TSR_NONE;
}

/* The trace's own count from zero (tsr_recorded): frees of what it did not see allocated change
 * nothing. */
static void record_free(replay *r, uint64_t event, uint32_t allocation) {
  if (allocation == TSR_NONE || r->t->birth.items[allocation] == TSR_NONE)
    r->t->frees_without_alloc++;
  else
    r->recorded_bytes = tsr__drop_u64(r->recorded_bytes, r->t->events.size[event]);
}

static void record_alloc(replay *r, uint64_t event) {
  tsr_recorded *recorded = &r->t->recorded;
  r->recorded_bytes = tsr__sum_u64(r->recorded_bytes, r->t->events.size[event]);
  if (r->recorded_bytes <= recorded->dynamic_peak_bytes) return;
  recorded->dynamic_peak_bytes = r->recorded_bytes;
  recorded->peak_event = (int64_t)event;
}

/* Is the free that is requested at this event completed by the next? */
static bool is_immediate(const replay *r, uint64_t event) {
  const tsr_events *events = &r->t->events;
  return event + 1 < events->count && events->action[event + 1] == TSR_ACTION_FREE_COMPLETED &&
         events->addr[event + 1] == events->addr[event];
}

static bool begin_wait(replay *r, uint32_t allocation, uint32_t event) {
  return TSR__VECTOR_PUSH(&r->t->waits, (tsr__wait){allocation, event, TSR_NONE}) &&
         tsr__map_put(&r->wait_of, allocation, r->t->waits.count - 1, NULL);
}

/* The program gave an allocation back; its memory may have to wait. What has no place in the heap
 * does not. False when out of memory. */
static bool request_free(replay *r, uint64_t event, uint32_t allocation, uint32_t block) {
  if (block == TSR_NONE || r->heap.blocks.items[block].use == TSR__BLOCK_WAITING) return true;
  r->heap.blocks.items[block].use = TSR__BLOCK_WAITING;
  uint64_t size = r->t->block_bytes.items[allocation];
  r->now.allocated_bytes = tsr__drop_u64(r->now.allocated_bytes, size);
  return is_immediate(r, event) || begin_wait(r, allocation, (uint32_t)event);
}

/* Does a live allocation wait for another stream? For one without a block, nothing else records
 * it. */
static bool is_waiting(replay *r, uint32_t allocation, uint32_t block) {
  if (block != TSR_NONE) return r->heap.blocks.items[block].use == TSR__BLOCK_WAITING;
  return r->wait_of.count && tsr__map_find(&r->wait_of, allocation);
}

static void complete_free(replay *r, uint64_t event, uint32_t allocation, uint32_t block) {
  uint64_t size = r->t->block_bytes.items[allocation];
  uint64_t requested = tsr__timeline_requested(r->t, allocation);
  bool was_waiting = is_waiting(r, allocation, block);
  if (!was_waiting) r->now.allocated_bytes = tsr__drop_u64(r->now.allocated_bytes, size);
  r->now.active_bytes = tsr__drop_u64(r->now.active_bytes, size);
  r->now.requested_bytes = tsr__drop_u64(r->now.requested_bytes, requested);
  if (was_waiting && r->wait_of.count) {
    const uint64_t *wait = tsr__map_find(&r->wait_of, allocation);
    if (wait) r->t->waits.items[*wait].until = (uint32_t)event;
    tsr__map_remove(&r->wait_of, allocation);
  }
  set_dead(r, allocation, event);
  if (block != TSR_NONE)
    (void)tsr__heap_give_back(&r->heap, block, TSR__BLOCK_FREE);
  else
    tsr__map_remove(&r->loose, r->t->events.addr[event]);
}

/* End what is still live at an address that is allocated again. */
static bool finish_live(replay *r, uint64_t event, uint64_t address) {
  uint32_t block, allocation = live_at(r, address, &block);
  if (allocation == TSR_NONE) return false;
  complete_free(r, event, allocation, block);
  return true;
}

/* What a free is of. Mostly free_completed follows free_requested at once, and what the one found
 * the other need not look up. */
static uint32_t freed_at(replay *r, uint64_t event, uint32_t *block) {
  if (r->hint_event != event) return live_at(r, r->t->events.addr[event], block);
  *block = r->hint_block;
  return r->hint_allocation;
}

static bool apply_free(replay *r, uint64_t event, tsr_action action) {
  uint32_t block, allocation = freed_at(r, event, &block);
  if (action != TSR_ACTION_FREE_REQUESTED) record_free(r, event, allocation);
  if (allocation == TSR_NONE) {
    r->t->misfits[TSR__MISFIT_FREE_UNKNOWN]++;
    return true;
  }
  r->t->allocation_of[event] = allocation;
  if (action != TSR_ACTION_FREE_REQUESTED) {
    complete_free(r, event, allocation, block);
    return true;
  }
  if (is_immediate(r, event)) {
    r->hint_event = event + 1;
    r->hint_allocation = allocation;
    r->hint_block = block;
  }
  return request_free(r, event, allocation, block);
}

/* ---- annotate ---- */

/* What is live at an address or, if it points into memory, around it. */
static uint32_t live_around(replay *r, uint64_t address) {
  uint32_t block, allocation = live_at(r, address, &block);
  if (allocation != TSR_NONE) return allocation;
  uint32_t segment = tsr__heap_segment_around(&r->heap, address);
  if (segment == TSR_NONE) return TSR_NONE;
  block = tsr__heap_find_inside(&r->heap, segment, address);
  if (block == TSR_NONE) return TSR_NONE;
  const tsr__heap_block *b = &r->heap.blocks.items[block];
  bool is_live = b->use == TSR__BLOCK_TAKEN || b->use == TSR__BLOCK_WAITING;
  return is_live ? b->owner : TSR_NONE;
}

static bool apply_annotate(replay *r, uint64_t event) {
  uint32_t allocation = live_around(r, r->t->events.addr[event]);
  if (allocation == TSR_NONE) {
    r->t->misfits[TSR__MISFIT_ANNOTATE]++;
    return true;
  }
  assert(allocation < r->t->birth.count);
  return TSR__VECTOR_PUSH(&r->t->notes, (tsr__note){(uint32_t)event, allocation});
}

/* ---- segments ---- */

static int compare_ranges(const void *a, const void *b) {
  const pool_range *x = a, *y = b;
  return (x->address > y->address) - (x->address < y->address);
}

static bool note_frees(replay *r) {
  const tsr_events *events = &r->t->events;
  for (uint64_t i = tsr__next_action(events, TSR_ACTION_SEGMENT_FREE, 0); i < events->count;
       i = tsr__next_action(events, TSR_ACTION_SEGMENT_FREE, i + 1)) {
    uint64_t *last = tsr__map_put(&r->last_free, events->addr[i], i, NULL);
    if (!last) return false;
    *last = i;
  }
  return true;
}

static bool note_pools(replay *r) {
  size_t count;
  const uint32_t *rows = tsr__snapshot_segments_of(r->t->snapshot, r->t->device, &count);
  r->t->default_pool = r->t->snapshot->default_pool;
  for (size_t i = 0; i < count; i++) {
    const tsr_segment *segment = &r->t->snapshot->segments.items[rows[i]];
    pool_range range = {segment->address, segment->total_bytes, segment->pool};
    if (segment->pool != TSR_NONE && !TSR__VECTOR_PUSH(&r->pools, range)) return false;
  }
  tsr__sort(r->pools.items, r->pools.count, sizeof *r->pools.items, compare_ranges);
  bool differ = false;
  for (size_t i = 0; i < r->pools.count; i++)
    differ |= r->pools.items[i].pool != r->t->default_pool;
  return !differ || note_frees(r);
}

/* The driver hands out addresses again: a segment that was released later is not the final one there. */
static bool is_released_later(replay *r, uint64_t event) {
  if (r->t->events.action[event] != TSR_ACTION_SEGMENT_ALLOC) return false;
  const uint64_t *last = tsr__map_find(&r->last_free, r->t->events.addr[event]);
  return last && *last > event;
}

/* The pool of new memory: the event's, or that of the final segment around its address; TSR_NONE if
 * neither is recorded. */
static uint32_t recorded_pool(replay *r, uint64_t event) {
  uint32_t pool = tsr_id_at(r->t->events.pool, event);
  uint64_t address = r->t->events.addr[event];
  size_t low = 0, high = r->pools.count;
  if (pool != TSR_NONE) return pool;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (r->pools.items[middle].address <= address)
      low = middle + 1;
    else
      high = middle;
  }
  const pool_range *around = low ? &r->pools.items[low - 1] : NULL;
  bool is_inside = around && address - around->address < around->size_bytes;
  return is_inside && !is_released_later(r, event) ? around->pool : TSR_NONE;
}

/* New memory belongs to the default pool unless the trace shows otherwise. */
static uint32_t pool_of(replay *r, uint64_t event) {
  uint32_t pool = recorded_pool(r, event);
  return pool == TSR_NONE ? r->t->default_pool : pool;
}

/* A span of expandable memory is there: the last of the spans, or one from before the window. */
static bool note_mapped(replay *r, size_t index) {
  const tsr__span *span = &r->t->spans.items[index];
  r->now.reserved_bytes = tsr__sum_u64(r->now.reserved_bytes, span->size_bytes);
  return index < TSR__RANGE_NONE &&
         tsr__ranges_add(&r->mapped, 0, span->address, span->address + span->size_bytes,
                         (uint32_t)index) != TSR__RANGE_NONE;
}

static bool push_mapped(replay *r, const tsr__span *span) {
  return TSR__VECTOR_PUSH(&r->t->spans, *span) && note_mapped(r, r->t->spans.count - 1);
}

/* End the spans, or the parts of spans, that a range covers; what is left of one is born again, as
 * its own span. `*ended` is how many bytes they were. Spans of expandable memory do not overlap, so
 * all but two of them are gone then for good. */
static bool cut_spans(replay *r, uint64_t event, uint64_t address, uint64_t end, uint64_t *ended) {
  *ended = 0;
  for (bool is_done = false; !is_done;) {
    uint32_t range = tsr__ranges_ending_after(&r->mapped, address);
    if (range == TSR__RANGE_NONE || tsr__ranges_get(&r->mapped, range)->begin >= end) break;
    is_done = tsr__ranges_get(&r->mapped, range)->end >= end;
    uint32_t index = tsr__ranges_get(&r->mapped, range)->value;
    tsr__span front = r->t->spans.items[index], back = front;
    uint64_t begin = front.address, span_end = begin + front.size_bytes;
    r->t->spans.items[index].death = (uint32_t)event;
    r->now.reserved_bytes = tsr__drop_u64(r->now.reserved_bytes, front.size_bytes);
    tsr__ranges_remove(&r->mapped, range);
    front.birth = back.birth = (uint32_t)event;
    front.size_bytes = address > begin ? address - begin : 0;
    back.address = end;
    back.size_bytes = span_end > end ? span_end - end : 0;
    *ended += span_end - begin - front.size_bytes - back.size_bytes;
    if ((front.size_bytes && !push_mapped(r, &front)) ||
        (back.size_bytes && !push_mapped(r, &back)))
      return false;
  }
  return true;
}

/* The span that ends where a range of expandable memory begins, or begins where it ends, or NULL. A
 * range of addresses that is mapped without a gap is of one reservation. */
static const tsr__span *neighbour(const replay *r, uint64_t address, uint64_t end, bool is_before) {
  uint32_t range = is_before
                       ? address ? tsr__ranges_around(&r->mapped, address - 1) : TSR__RANGE_NONE
                       : tsr__ranges_first(&r->mapped, 0, end);
  if (range == TSR__RANGE_NONE) return NULL;
  const tsr__ranges_item *item = tsr__ranges_get(&r->mapped, range);
  bool touches = is_before ? item->end == address : item->begin == end;
  assert(item->value < r->t->spans.count && r->t->spans.items[item->value].is_expandable);
  return touches ? &r->t->spans.items[item->value] : NULL;
}

static bool is_of_reservation(const tsr__span *span, const tsr__heap_segment *like) {
  return span->stream == like->stream && span->pool == like->pool &&
         span->is_large == like->is_large;
}

/* Newly mapped memory that continues other memory of its stream is of the same reservation, and so of
 * its pool and class: the class is otherwise guessed from the size, and older files do not record the
 * pool. */
static void follow_neighbour(replay *r, uint64_t event, tsr__heap_segment *like) {
  uint64_t begin = r->t->events.addr[event], end = begin + r->t->events.size[event];
  uint32_t pool = recorded_pool(r, event);
  for (int side = 0; side < 2; side++) {
    const tsr__span *span = neighbour(r, begin, end, side == 0);
    if (!span || span->stream != like->stream || (pool != TSR_NONE && span->pool != pool)) continue;
    like->pool = span->pool;
    like->is_large = span->is_large;
    return;
  }
}

/* New memory of a reservation joins the spans that it touches: they end with this event, and one span
 * of all of them begins. At most one span is added. */
static bool add_mapped(replay *r, uint64_t event, const tsr__heap_segment *like) {
  const tsr_events *events = &r->t->events;
  uint64_t begin = events->addr[event], end = begin + events->size[event];
  for (int side = 0; side < 2; side++) {
    const tsr__span *span = neighbour(r, begin, end, side == 0);
    if (!span || !is_of_reservation(span, like)) continue;
    uint64_t span_begin = span->address, span_end = span->address + span->size_bytes, ended;
    if (!cut_spans(r, event, span_begin, span_end, &ended)) return false;
    assert(ended == span_end - span_begin);
    if (side == 0)
      begin = span_begin;
    else
      end = span_end;
  }
  return push_mapped(r, &(tsr__span){.address = begin,
                                     .size_bytes = end - begin,
                                     .birth = (uint32_t)event,
                                     .death = TSR_NONE,
                                     .stream = like->stream,
                                     .pool = like->pool,
                                     .is_large = like->is_large,
                                     .is_expandable = true});
}

static bool add_span(replay *r, uint64_t event, const tsr__heap_segment *like) {
  const tsr_events *events = &r->t->events;
  tsr__span span = {.address = events->addr[event],
                    .size_bytes = events->size[event],
                    .birth = (uint32_t)event,
                    .death = TSR_NONE,
                    .stream = like->stream,
                    .pool = like->pool,
                    .is_large = like->is_large};
  if (!TSR__VECTOR_PUSH(&r->t->spans, span)) return false;
  uint64_t *place = tsr__map_put(&r->span_of, span.address, r->t->spans.count - 1, NULL);
  if (place) *place = r->t->spans.count - 1;
  return place != NULL;
}

static bool apply_segment_alloc(replay *r, uint64_t event) {
  uint64_t address = r->t->events.addr[event], size = r->t->events.size[event];
  if (!size || address > UINT64_MAX - size || tsr__map_find(&r->heap.segment_at, address)) {
    r->t->misfits[TSR__MISFIT_SEGMENT]++;
    return true;
  }
  tsr__heap_segment like = {.stream = tsr_id_at(r->t->events.stream, event),
                            .pool = pool_of(r, event),
                            .is_large = r->t->host_round_max_bytes || size != TSR__SMALL_SEGMENT};
  r->fresh = tsr__heap_add_segment(&r->heap, address, size, &like);
  r->now.reserved_bytes = tsr__sum_u64(r->now.reserved_bytes, size);
  return r->fresh != TSR_NONE && add_span(r, event, &like);
}

/* Blocks that live in a segment which goes away go on without a place. */
static bool turn_out(replay *r, uint32_t segment) {
  for (uint32_t b = r->heap.segments.items[segment].first; b != TSR_NONE;
       b = r->heap.blocks.items[b].next) {
    const tsr__heap_block *block = &r->heap.blocks.items[b];
    if (block->use == TSR__BLOCK_FREE || block->use == TSR__BLOCK_UNMAPPED) continue;
    r->t->misfits[TSR__MISFIT_SEGMENT]++;
    if (!tsr__map_put(&r->loose, block->address, block->owner, NULL)) return false;
  }
  return true;
}

static bool apply_segment_free(replay *r, uint64_t event) {
  uint64_t address = r->t->events.addr[event];
  const uint64_t *segment = tsr__map_find(&r->heap.segment_at, address);
  const uint64_t *span = tsr__map_find(&r->span_of, address);
  if (!segment) {
    r->t->misfits[TSR__MISFIT_SEGMENT]++;
    return true;
  }
  uint32_t index = (uint32_t)*segment;
  uint64_t size = r->heap.segments.items[index].size_bytes;
  r->now.reserved_bytes = tsr__drop_u64(r->now.reserved_bytes, size);
  if (span) r->t->spans.items[*span].death = (uint32_t)event;
  tsr__map_remove(&r->span_of, address);
  if (!turn_out(r, index)) return false;
  if (r->fresh == index) r->fresh = TSR_NONE;
  tsr__heap_remove_segment(&r->heap, index);
  return true;
}

static bool apply_map(replay *r, uint64_t event) {
  uint64_t address = r->t->events.addr[event], size = r->t->events.size[event];
  if (!size || address > UINT64_MAX - size) {
    r->t->misfits[TSR__MISFIT_SEGMENT]++;
    return true;
  }
  tsr__heap_segment like = {.stream = tsr_id_at(r->t->events.stream, event),
                            .pool = pool_of(r, event),
                            .is_large =
                                size != TSR__SMALL_SEGMENT}; /* unless it follows a neighbour */
  follow_neighbour(r, event, &like);
  uint32_t reservation = tsr__heap_reservation(&r->heap, &like, address, size);
  uint64_t ended;
  if (reservation == TSR_NONE || !tsr__heap_map(&r->heap, reservation, address, size) ||
      !cut_spans(r, event, address, address + size, &ended))
    return false;
  if (ended) r->t->misfits[TSR__MISFIT_SEGMENT]++; /* it was mapped already */
  return add_mapped(r, event, &like);
}

static bool apply_unmap(replay *r, uint64_t event) {
  uint64_t address = r->t->events.addr[event], size = r->t->events.size[event];
  if (!size || address > UINT64_MAX - size) return true;
  uint32_t segment = tsr__heap_segment_around(&r->heap, address);
  uint64_t unmapped = 0, ended;
  if (segment != TSR_NONE && r->heap.segments.items[segment].is_expandable) {
    unmapped = tsr__heap_unmap(&r->heap, segment, address, size);
    if (unmapped == UINT64_MAX) return false;
    const tsr__heap_block *first = &r->heap.blocks.items[r->heap.segments.items[segment].first];
    if (first->use == TSR__BLOCK_UNMAPPED && first->next == TSR_NONE)
      tsr__heap_remove_segment(&r->heap, segment); /* as PyTorch does */
  }
  if (!cut_spans(r, event, address, address + size, &ended)) return false;
  if (unmapped != size || ended != size) r->t->misfits[TSR__MISFIT_SEGMENT]++;
  return true;
}

/* ---- the whole ---- */

static bool apply(replay *r, uint64_t event) {
  r->t->allocation_of[event] = TSR_NONE;
  switch (r->t->events.action[event]) {
  case TSR_ACTION_ALLOC: {
    bool ok = apply_alloc(r, event);
    r->has_wished = false;
    return ok;
  }
  case TSR_ACTION_INTERNAL: r->has_wished = true; return true;
  case TSR_ACTION_FREE_REQUESTED:
  case TSR_ACTION_FREE_COMPLETED:
  case TSR_ACTION_FREE: return apply_free(r, event, (tsr_action)r->t->events.action[event]);
  case TSR_ACTION_SEGMENT_ALLOC: return apply_segment_alloc(r, event);
  case TSR_ACTION_SEGMENT_FREE: return apply_segment_free(r, event);
  case TSR_ACTION_SEGMENT_MAP: return apply_map(r, event);
  case TSR_ACTION_SEGMENT_UNMAP: return apply_unmap(r, event);
  case TSR_ACTION_ANNOTATE: return apply_annotate(r, event);
  default: return true;
  }
}

static void note_maxima(replay *r, int64_t event) {
  tsr__timeline *t = r->t;
  if (r->now.requested_bytes > t->maxima.requested_bytes) {
    t->maxima.requested_bytes = r->now.requested_bytes;
    t->requested_event = event;
  }
  if (r->now.allocated_bytes > t->maxima.allocated_bytes) {
    t->maxima.allocated_bytes = r->now.allocated_bytes;
    t->allocated_event = event;
    t->at_peak = r->now;
  }
  if (r->now.active_bytes > t->maxima.active_bytes) {
    t->maxima.active_bytes = r->now.active_bytes;
    t->active_event = event;
  }
  if (r->now.reserved_bytes > t->maxima.reserved_bytes) {
    t->maxima.reserved_bytes = r->now.reserved_bytes;
    t->reserved_event = event;
  }
}

/* What is reserved after an event, if a flat device's file has it. */
static void follow_marks(replay *r, int64_t event) {
  const tsr__flat_device *flat = r->t->flat;
  const tsr__reserved_mark *marks = r->t->snapshot->reserved_marks.items + flat->first_mark;
  while (r->next_mark < flat->mark_count && marks[r->next_mark].event <= event)
    r->now.reserved_bytes = marks[r->next_mark++].bytes;
}

/* Totals and live set as tsr__timeline_start left them. */
static bool begin(replay *r) {
  tsr__timeline *t = r->t;
  for (size_t i = 0; i < t->initial.count; i++) {
    if (!TSR__VECTOR_PUSH(&t->birth, TSR_NONE) || !TSR__VECTOR_PUSH(&t->death, TSR_NONE) ||
        !set_live(r, (uint32_t)i))
      return false;
    uint64_t size = t->block_bytes.items[i];
    r->now.requested_bytes =
        tsr__sum_u64(r->now.requested_bytes, t->initial.items[i].requested_bytes);
    r->now.active_bytes = tsr__sum_u64(r->now.active_bytes, size);
    if (!t->initial.items[i].is_waiting)
      r->now.allocated_bytes = tsr__sum_u64(r->now.allocated_bytes, size);
    else if (!begin_wait(r, (uint32_t)i, TSR_NONE))
      return false;
  }
  for (size_t i = 0; i < t->spans.count; i++) {
    if (t->spans.items[i].is_expandable) {
      if (!note_mapped(r, i)) return false;
      continue;
    }
    r->now.reserved_bytes = tsr__sum_u64(r->now.reserved_bytes, t->spans.items[i].size_bytes);
    if (!tsr__map_put(&r->span_of, t->spans.items[i].address, i, NULL)) return false;
  }
  if (t->flat) follow_marks(r, -1);
  t->start = t->maxima = t->at_peak = r->now;
  t->requested_event = t->allocated_event = t->active_event = t->reserved_event = -1;
  return checkpoint(r, -1);
}

/* Do the blocks at the end of the replay have the places and sizes that the file says? */
static void compare_final(replay *r) {
  size_t count;
  if (r->t->flat) return; /* the file does not say */
  const tsr_snapshot *snapshot = r->t->snapshot;
  const uint32_t *rows = tsr__snapshot_segments_of(snapshot, r->t->device, &count);
  tsr_replay_check *check = &r->t->check;
  for (size_t s = 0; s < count; s++) {
    const tsr_segment *segment = &snapshot->segments.items[rows[s]];
    for (uint64_t b = 0; b < segment->block_count; b++) {
      const tsr_block *block = &snapshot->blocks.items[segment->first_block + b];
      if (block->state != TSR_BLOCK_ALLOCATED && block->state != TSR_BLOCK_PENDING_FREE) continue;
      uint32_t found, allocation = live_at(r, block->address, &found);
      check->final_blocks++;
      check->final_matched +=
          allocation != TSR_NONE && r->t->block_bytes.items[allocation] == block->size_bytes;
    }
  }
  r->t->misfits[TSR__MISFIT_FINAL] = check->final_blocks - check->final_matched;
  if (r->live_count > check->final_blocks)
    r->t->misfits[TSR__MISFIT_FINAL] += r->live_count - check->final_blocks;
}

/* ---- memory for what the replay will write ---- */

/* Bytes of a table that are made ready at a time: few enough that no table waits for another. */
enum { READY_BYTES = 1 << 20, READY_TABLES = 4 };

/* A thread goes through the tables, each from its beginning, until it is through or the replay is. */
typedef struct readier {
  tsr__task task;
  tsr__group group;
  struct {
    unsigned char *data;
    size_t size_bytes;
  } tables[READY_TABLES];
  atomic_bool is_over; /* the replay needs nothing any more */
} readier;

static int make_ready(void *context, tsr_error *error) {
  readier *ahead = context;
  size_t longest = 0;
  (void)error;
  for (size_t i = 0; i < READY_TABLES; i++)
    if (ahead->tables[i].size_bytes > longest) longest = ahead->tables[i].size_bytes;
  for (size_t at = 0; at < longest; at += READY_BYTES)
    for (size_t i = 0; i < READY_TABLES; i++) {
      size_t size = ahead->tables[i].size_bytes;
      if (atomic_load_explicit(&ahead->is_over, memory_order_relaxed)) return 0;
      if (at >= size) continue;
      tsr__os_populate(ahead->tables[i].data + at,
                       size - at < READY_BYTES ? size - at : READY_BYTES);
    }
  return 0;
}

static void end_readying(readier *ahead) {
  tsr_error ignored;
  atomic_store_explicit(&ahead->is_over, true, memory_order_relaxed);
  (void)tsr__group_wait(&ahead->group, &ignored); /* cannot fail */
}

/* Give the tables their final length, so that they stay where they are. */
static bool begin_readying(replay *r, readier *ahead) {
  tsr__timeline *t = r->t;
  size_t allocs = 0;
  for (uint64_t i = 0; i < t->events.count; i++) allocs += t->events.action[i] == TSR_ACTION_ALLOC;
  if (!TSR__VECTOR_RESERVE(&t->birth, t->initial.count + allocs) ||
      !TSR__VECTOR_RESERVE(&t->death, t->initial.count + allocs) ||
      !TSR__VECTOR_RESERVE(&t->block_bytes, allocs))
    return false;
#define READY(table, items, count) \
  (ahead->tables[table].data = (void *)(items), ahead->tables[table].size_bytes = (count))
  READY(0, t->allocation_of, (size_t)t->events.count * sizeof *t->allocation_of);
  READY(1, t->birth.items, (t->initial.count + allocs) * sizeof *t->birth.items);
  READY(2, t->death.items, (t->initial.count + allocs) * sizeof *t->death.items);
  READY(3, t->block_bytes.items, (t->initial.count + allocs) * sizeof *t->block_bytes.items);
#undef READY
  tsr__group_submit(&ahead->group, &ahead->task, make_ready, ahead);
  return true;
}

static bool follow_trace(replay *r) {
  tsr__timeline *t = r->t;
  for (uint64_t event = 0; event < t->events.count; event++) {
    if (!apply(r, event)) return false;
    if (t->flat) follow_marks(r, (int64_t)event);
    note_maxima(r, (int64_t)event);
    if (event >= r->next_checkpoint && !checkpoint(r, (int64_t)event)) return false;
  }
  return true;
}

static bool run(replay *r, tsr__thread_pool *pool) {
  tsr__timeline *t = r->t;
  readier ahead = {.is_over = false};
  tsr__group_init(&ahead.group, pool, NULL);
  if (tsr__timeline_start(t, &r->heap, &r->loose, pool)) return false;
  bool ok = begin_readying(r, &ahead) && begin(r) && follow_trace(r);
  end_readying(&ahead); /* before anybody frees the tables */
  if (!ok) return false;
  assert((void *)t->birth.items == ahead.tables[1].data); /* nothing had to move */
  assert(t->birth.count >= t->initial.count && t->birth.count == t->death.count);
  assert(r->live_count <= t->birth.count);
  t->end = r->now;
  if (t->recorded.peak_event >= 0)
    t->recorded.peak_time_us = t->events.time_us[t->recorded.peak_event];
  t->recorded.overall_bytes =
      tsr__sum_u64(t->recorded.dynamic_peak_bytes, t->recorded.static_bytes);
  compare_final(r);
  return true;
}

int tsr__timeline_compute(const tsr_snapshot *snapshot, uint32_t device, bool checks_placement,
                          tsr__thread_pool *pool, tsr__timeline *out, tsr_error *error) {
  tsr__timeline timeline = {.snapshot = snapshot,
                            .events = tsr_snapshot_events(snapshot, device),
                            .device = device,
                            .recorded = {.peak_event = -1, .peak_time_us = TSR_TIME_NONE}};
  replay r = {.t = &timeline,
              .fresh = TSR_NONE,
              .hint_event = UINT64_MAX,
              .checks_placement = checks_placement && device < TSR_DEVICE_CPU &&
                                  !tsr__snapshot_flat(snapshot, device)};
  tsr__timeline_settings(snapshot, device, &timeline.settings);
  tsr__heap_init(&r.heap, &timeline.settings, r.checks_placement);
  tsr__ranges_init(&r.mapped);
  r.heap.has_open_ends = true;
  bool ok = timeline.events.count < TSR_NONE;
  timeline.allocation_of =
      ok ? tsr__realloc(NULL, (size_t)timeline.events.count, sizeof(uint32_t)) : NULL;
  ok = timeline.allocation_of && note_pools(&r) && run(&r, pool);
  tsr__heap_release(&r.heap);
  tsr__map_release(&r.loose);
  tsr__map_release(&r.span_of);
  tsr__map_release(&r.wait_of);
  tsr__map_release(&r.last_free);
  TSR__VECTOR_FREE(&r.live_bits);
  tsr__ranges_release(&r.mapped);
  TSR__VECTOR_FREE(&r.pools);
  if (ok)
    *out = timeline;
  else
    tsr__timeline_release(&timeline);
  return ok ? 0 : tsr__fail_memory(error);
}

void tsr__timeline_release(tsr__timeline *timeline) {
  TSR__VECTOR_FREE(&timeline->initial);
  TSR__VECTOR_FREE(&timeline->birth);
  TSR__VECTOR_FREE(&timeline->death);
  TSR__VECTOR_FREE(&timeline->block_bytes);
  tsr__free(timeline->allocation_of);
  TSR__VECTOR_FREE(&timeline->spans);
  TSR__VECTOR_FREE(&timeline->waits);
  TSR__VECTOR_FREE(&timeline->notes);
  TSR__VECTOR_FREE(&timeline->checkpoints);
  TSR__VECTOR_FREE(&timeline->live_ids);
  *timeline = (tsr__timeline){0};
}
