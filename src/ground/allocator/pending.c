/* pending.c - streams, and freed blocks that other streams may still use.
 *
 * A block used on a foreign stream may not be reused when it is freed: PyTorch records an event on
 * each such stream, and the block waits until all have passed. Each pair of block and stream is one
 * `use`. While the block is allocated its uses are a list under the block; once it is freed each of
 * them is also a member of one queue:
 *
 *   its stream's, oldest first - events of a stream pass in order, so only the front is looked at;
 *   `loose`, for a stream whose order is unknown, and from there `ready` once it has passed;
 *   `deferred`, while a CUDA graph is captured: then no event can be recorded yet.
 *
 * When a use leaves its queue because its event has passed, it leaves its block; with its last use
 * gone the block's free is complete. All memory is requested when a use is added, so freeing and
 * completing cannot fail. */
#include <assert.h>

#include "allocator/allocator.h"
#include "base/sort.h"
#include "tessera/unstable/allocator_state.h"

#define USE(index) (a->uses.items[index])

/* ---- streams ---- */

uint32_t tsr__stream_index(tsr_allocator *a, uint64_t handle) {
  if (a->streams.count && a->streams.items[0].handle == handle) return 0; /* the usual one */
  const uint64_t *found = tsr__map_find(&a->stream_ids, handle);
  if (found) return (uint32_t)*found;
  uint32_t index = (uint32_t)a->streams.count;
  if (a->streams.count >= TSR_NONE || !TSR__VECTOR_RESERVE(&a->streams, 1) ||
      !TSR__VECTOR_RESERVE(&a->ranks, 1) || !tsr__map_put(&a->stream_ids, handle, index, NULL))
    return TSR_NONE;
  a->streams.items[a->streams.count++] =
      (tsr__stream_state){.handle = handle, .queue = {TSR_NONE, TSR_NONE}};
  a->ranks.items[a->ranks.count++] = (tsr__stream_rank){handle, index};
  a->is_ranked = false;
  assert(a->ranks.count == a->streams.count && a->stream_ids.count <= a->streams.count);
  return index;
}

static int compare_ranks(const void *left, const void *right) {
  const tsr__stream_rank *a = left, *b = right;
  return (a->handle > b->handle) - (a->handle < b->handle);
}

const tsr__stream_rank *tsr__streams_by_handle(tsr_allocator *a) {
  if (!a->is_ranked && a->ranks.count)
    tsr__sort(a->ranks.items, a->ranks.count, sizeof *a->ranks.items, compare_ranks);
  a->is_ranked = true;
  return a->ranks.items;
}

/* ---- queues ---- */

static void queue_push(tsr_allocator *a, tsr__queue *queue, uint32_t use) {
  assert(use < a->uses.count && (queue->first == TSR_NONE) == (queue->last == TSR_NONE));
  USE(use).previous = queue->last;
  USE(use).next = TSR_NONE;
  if (queue->last == TSR_NONE)
    queue->first = use;
  else
    USE(queue->last).next = use;
  queue->last = use;
}

static void queue_remove(tsr_allocator *a, tsr__queue *queue, uint32_t use) {
  uint32_t previous = USE(use).previous, next = USE(use).next;
  assert(previous != TSR_NONE ? USE(previous).next == use : queue->first == use);
  assert(next != TSR_NONE ? USE(next).previous == use : queue->last == use);
  if (previous == TSR_NONE)
    queue->first = next;
  else
    USE(previous).next = next;
  if (next == TSR_NONE)
    queue->last = previous;
  else
    USE(next).previous = previous;
}

/* ---- uses ---- */

bool tsr__use_add(tsr_allocator *a, uint32_t block, uint32_t stream) {
  uint64_t *first = tsr__map_find(&a->used_by, block);
  for (uint32_t use = first ? (uint32_t)*first : TSR_NONE; use != TSR_NONE;
       use = USE(use).next_of_block)
    if (USE(use).stream == stream) return true;
  if (a->uses.count >= TSR_NONE || !TSR__VECTOR_RESERVE(&a->uses, 1) ||
      !(first = tsr__map_put(&a->used_by, block, TSR_NONE, NULL)))
    return false;
  uint32_t use = a->free_use;
  if (use == TSR_NONE)
    use = (uint32_t)a->uses.count++;
  else
    a->free_use = USE(use).next;
  USE(use) = (tsr__use){.block = block,
                        .stream = stream,
                        .next_of_block = (uint32_t)*first,
                        .previous = TSR_NONE,
                        .next = TSR_NONE,
                        .state = TSR__USE_LIVE};
  *first = use;
  return true;
}

/* insert_events: the use's event is recorded on its stream, after what is there. */
static void record_event(tsr_allocator *a, uint32_t use) {
  if (USE(use).stream == TSR_NONE) {
    USE(use).state = TSR__USE_LOOSE;
    queue_push(a, &a->loose, use);
    return;
  }
  tsr__stream_state *stream = &a->streams.items[USE(use).stream];
  assert(stream->finished <= stream->recorded);
  USE(use).state = TSR__USE_QUEUED;
  USE(use).number = stream->recorded++;
  queue_push(a, &stream->queue, use);
}

void tsr__wait_for_uses(tsr_allocator *a, uint32_t block) {
  tsr__block_of(a, block)->use = TSR__BLOCK_WAITING;
  uint32_t use = (uint32_t)*tsr__map_find(&a->used_by, block);
  for (; use != TSR_NONE; use = USE(use).next_of_block) {
    assert(USE(use).state == TSR__USE_LIVE && USE(use).block == block);
    if (a->capture_count) {
      USE(use).state = TSR__USE_DEFERRED;
      queue_push(a, &a->deferred, use);
    } else {
      record_event(a, use);
    }
  }
}

/* A use, in no queue any more, is over; with the last one its block is free. */
static void end_use(tsr_allocator *a, uint32_t use) {
  uint32_t block = USE(use).block;
  uint64_t *first = tsr__map_find(&a->used_by, block);
  assert(first && tsr__block_of(a, block)->use == TSR__BLOCK_WAITING);
  if (*first == use) {
    *first = USE(use).next_of_block;
  } else {
    uint32_t before = (uint32_t)*first;
    while (USE(before).next_of_block != use) before = USE(before).next_of_block;
    USE(before).next_of_block = USE(use).next_of_block;
  }
  USE(use).next = a->free_use;
  a->free_use = use;
  if (*first != TSR_NONE) return;
  tsr__map_remove(&a->used_by, block);
  tsr__finish_free(a, block);
}

/* ---- completion ---- */

/* The events of frees during a capture are recorded when it is over. */
static void record_deferred(tsr_allocator *a) {
  for (uint32_t use; (use = a->deferred.first) != TSR_NONE;) {
    queue_remove(a, &a->deferred, use);
    record_event(a, use);
  }
}

/* End the uses at the front of a queue: those numbered below `finished`, or all. */
static void drain(tsr_allocator *a, tsr__queue *queue, uint64_t finished) {
  for (uint32_t use; (use = queue->first) != TSR_NONE && USE(use).number < finished;) {
    queue_remove(a, queue, use);
    end_use(a, use);
  }
}

void tsr__poll(tsr_allocator *a) {
  record_deferred(a);
  if (!a->has_finished) return;
  a->has_finished = false;
  a->steps += a->streams.count;
  for (size_t i = 0; i < a->streams.count; i++)
    drain(a, &a->streams.items[i].queue, a->streams.items[i].finished);
  drain(a, &a->ready, UINT64_MAX);
}

void tsr__synchronize(tsr_allocator *a) {
  record_deferred(a);
  a->has_finished = false;
  a->steps += a->streams.count;
  for (size_t i = 0; i < a->streams.count; i++) {
    a->streams.items[i].finished = a->streams.items[i].recorded;
    drain(a, &a->streams.items[i].queue, UINT64_MAX);
  }
  drain(a, &a->ready, UINT64_MAX);
  drain(a, &a->loose, UINT64_MAX);
}

void tsr_allocator_complete_stream(tsr_allocator *a, uint64_t stream) {
  const uint64_t *index = tsr__map_find(&a->stream_ids, stream);
  if (!index) return;
  a->streams.items[*index].finished = a->streams.items[*index].recorded;
  a->has_finished = true;
}

int tsr_allocator_complete_block(tsr_allocator *a, uint64_t address) {
  uint32_t block = tsr__heap_find(&a->heap, address);
  if (block == TSR_NONE || tsr__block_of(a, block)->use != TSR__BLOCK_WAITING)
    return TSR_ERROR_ARGUMENT;
  uint32_t use = (uint32_t)*tsr__map_find(&a->used_by, block);
  for (; use != TSR_NONE; use = USE(use).next_of_block) {
    if (USE(use).state == TSR__USE_DEFERRED) return TSR_ERROR_ARGUMENT;
    if (USE(use).state == TSR__USE_LOOSE) {
      queue_remove(a, &a->loose, use);
      USE(use).state = TSR__USE_READY;
      queue_push(a, &a->ready, use);
    }
    if (USE(use).state != TSR__USE_QUEUED) continue;
    tsr__stream_state *stream = &a->streams.items[USE(use).stream];
    if (stream->finished <= USE(use).number) stream->finished = USE(use).number + 1;
  }
  a->has_finished = true;
  return TSR_OK;
}
