/* allocator.h - the insides of the allocator model, shared by its files: allocator.c (malloc and
 * free), pending.c (streams and events), expandable.c, release.c, addresses.c, state.c.
 *
 * Blocks, segments, streams and pools are 32-bit indices; the heap (heap.h) holds the first two. */
#ifndef TSR_ALLOCATOR_ALLOCATOR_H
#define TSR_ALLOCATOR_ALLOCATOR_H

#include <assert.h>

#include "allocator/heap.h"
#include "base/error.h"
#include "base/intern.h"
#include "tessera/unstable/allocator_state.h"

/* A doubly linked list of uses. */
typedef struct tsr__queue {
  uint32_t first, last; /* or TSR_NONE */
} tsr__queue;

typedef enum tsr__use_state {
  TSR__USE_LIVE,     /* the block is allocated */
  TSR__USE_DEFERRED, /* freed during a capture: its event is recorded after it */
  TSR__USE_QUEUED,   /* its event is in its stream's queue */
  TSR__USE_LOOSE,    /* its event is on a stream of unknown order */
  TSR__USE_READY     /* a loose one that has finished */
} tsr__use_state;

/* One block's use on one foreign stream: PyTorch's stream_uses and, once freed, its event. */
typedef struct tsr__use {
  uint64_t number; /* of the event, counted on its stream */
  uint32_t block, stream;
  uint32_t next_of_block;
  uint32_t previous, next; /* in a queue; `next` links the reusable ones too */
  uint8_t state;           /* tsr__use_state */
} tsr__use;

/* Invariant: the queue holds the events numbered from some number on to recorded - 1, in order;
 * those below `finished` have finished. */
typedef struct tsr__stream_state {
  uint64_t handle;
  tsr__queue queue;
  uint64_t recorded, finished;
} tsr__stream_state;

typedef struct tsr__stream_rank {
  uint64_t handle;
  uint32_t stream;
} tsr__stream_rank;

typedef struct tsr__pool_state {
  tsr_pool id;
  uint64_t use_count;
  uint32_t flags;   /* TSR_POOL_ */
  bool is_freeable; /* begun, and ended as often */
} tsr__pool_state;

/* Addresses that the model did not choose: a plain segment's, or the span of a reservation. */
typedef struct tsr__address_range {
  uint64_t address, size_bytes;
} tsr__address_range;

struct tsr_allocator {
  tsr__heap heap; /* with the settings; its streams and pools are indices below */
  tsr_allocator_options options;
  tsr_allocator_totals now, peak;
  uint64_t retry_count, oom_count;
  uint32_t owner, capture_count;
  bool has_started; /* no more seeds */

  TSR__VECTOR(tsr__stream_state) streams; /* in order of appearance */
  tsr__map stream_ids;                    /* handle -> index */
  TSR__VECTOR(tsr__stream_rank) ranks;    /* streams by handle, once sorted */
  bool is_ranked;

  TSR__VECTOR(tsr__pool_state) pools; /* 0 is the default pool */
  tsr__intern pool_ids;               /* tsr_pool -> index */

  TSR__VECTOR(tsr__use) uses;
  uint32_t free_use;                 /* reusable, linked by `next` */
  tsr__map used_by;                  /* block -> its first use; only for blocks that have one */
  tsr__queue deferred, loose, ready; /* of uses in those states */
  bool has_finished;                 /* a poll may find something */

  tsr__ranges ranges;    /* addresses that the model did not choose, not overlapping */
  uint64_t next_address; /* the model's own addresses end here */
  uint64_t own_choice;   /* its last choice, 0 when the caller chose */

  /* Steps of searches that are as long as what they search, other than the heap's own: a caller
   * that runs untrusted input may have to stop. See tsr__allocator_steps. */
  uint64_t steps;

  uint32_t seed_segment, seed_block; /* where the next seeded block is expected, or TSR_NONE */
};

/* One malloc on its way. */
typedef struct tsr__request {
  uint64_t bytes, rounded_bytes, segment_bytes;
  uint32_t stream, pool;
  bool is_large;
} tsr__request;

static inline tsr__heap_block *tsr__block_of(tsr_allocator *a, uint32_t block) {
  return &a->heap.blocks.items[block];
}

static inline tsr__heap_segment *tsr__segment_of(tsr_allocator *a, uint32_t segment) {
  return &a->heap.segments.items[segment];
}

/* A block that fills its plain segment. */
static inline bool tsr__is_whole(const tsr_allocator *a, uint32_t block) {
  const tsr__heap_block *b = &a->heap.blocks.items[block];
  return b->previous == TSR_NONE && b->next == TSR_NONE;
}

static inline bool tsr__is_expandable(const tsr_allocator *a, uint32_t block) {
  return a->heap.segments.items[a->heap.blocks.items[block].segment].is_expandable;
}

/* What searches have cost so far that PyTorch does, too, by going through all there is. */
static inline uint64_t tsr__allocator_steps(const tsr_allocator *a) {
  return a->steps + a->heap.candidates;
}

/* ---- allocator.c ---- */

/* Send an event about a range of a segment's memory; `owner`: of the block. */
void tsr__emit(tsr_allocator *a, tsr_action action, uint32_t segment, tsr__address_range what,
               uint32_t owner);
/* A free is complete: free_completed, and the block joins its free neighbours. */
void tsr__finish_free(tsr_allocator *a, uint32_t block);
/* Reserved bytes grow; keeps the peak. */
void tsr__count_reserved(tsr_allocator *a, uint64_t bytes);
/* Could the driver hand out so much more? */
bool tsr__device_has(const tsr_allocator *a, uint64_t bytes);
/* A pool's index, added if new; TSR_NONE when out of memory. */
uint32_t tsr__pool_index(tsr_allocator *a, tsr_pool pool);

/* ---- pending.c: which streams still use freed blocks ---- */

/* A stream's index, added if new; TSR_NONE when out of memory. */
uint32_t tsr__stream_index(tsr_allocator *a, uint64_t handle);
/* The streams in the order of their handles, which is the order of PyTorch's sets; as many as there
 * are streams. Valid until a stream is added. */
const tsr__stream_rank *tsr__streams_by_handle(tsr_allocator *a);
/* Note a use on a foreign stream (TSR_NONE: of unknown order). False when out of memory. */
bool tsr__use_add(tsr_allocator *a, uint32_t block, uint32_t stream);
/* Does the block have uses? O(1). */
static inline bool tsr__is_used(tsr_allocator *a, uint32_t block) {
  return a->used_by.count && tsr__map_find(&a->used_by, block);
}
/* The block was freed: it waits, and an event is recorded for each of its uses. */
void tsr__wait_for_uses(tsr_allocator *a, uint32_t block);
/* Complete the frees whose events have finished, as every malloc does first. */
void tsr__poll(tsr_allocator *a);
/* Wait for all events, and complete all frees. */
void tsr__synchronize(tsr_allocator *a);

/* ---- expandable.c ---- */

/* Grow an expandable segment until a free block of the rounded size exists: 0 and `*block`, or
 * TSR_ALLOCATOR_OUT_OF_DEVICE, or TSR_ERROR_MEMORY. */
int tsr__grow_expandable(tsr_allocator *a, const tsr__request *request, uint32_t *block);
/* Unmap the whole granules inside a free block; a reservation that nothing is mapped in goes away.
 * 0 or TSR_ERROR_MEMORY. */
int tsr__shrink_expandable(tsr_allocator *a, uint32_t block);
/* Bytes mapped at a time. */
uint64_t tsr__granule(const tsr_allocator *a, bool is_large);
/* Addresses reserved for a new expandable segment that must hold `bytes`; 0 when none can. */
uint64_t tsr__reservation_bytes(const tsr_allocator *a, bool is_large, uint64_t bytes);

/* ---- release.c ---- */

/* Give old unused segments back once the limit's threshold is passed
 * (garbage_collect_cached_blocks). */
void tsr__collect_garbage(tsr_allocator *a);
/* Give oversize segments back for one request (release_available_cached_blocks). False when that
 * does not help. */
bool tsr__release_oversize(tsr_allocator *a, const tsr__request *request);
/* Release what a trace released at an address: the plain segment there, if it is entirely free, or
 * the granules of the free expandable block that holds it. TSR_ERROR_ARGUMENT if nothing there can
 * be released, or TSR_ERROR_MEMORY. */
int tsr__release_at(tsr_allocator *a, uint64_t address);
/* Release all that is cached (release_cached_blocks): 0 or TSR_ERROR_MEMORY. */
int tsr__release_cached(tsr_allocator *a);

/* ---- addresses.c ---- */

/* An address for a new segment; 0 when no room is left, or no memory (then `*is_memory`). Nothing
 * is noted until tsr__address_take, which cannot fail directly after. */
uint64_t tsr__address_choose(tsr_allocator *a, uint64_t size_bytes, bool *is_memory);
void tsr__address_take(tsr_allocator *a, tsr__address_range range);
/* The segment that began here is gone. */
void tsr__address_drop(tsr_allocator *a, uint64_t address);
/* Note addresses that a seed takes. False when out of memory. */
bool tsr__address_note(tsr_allocator *a, tsr__address_range range);
/* The range noted at this address has another size now. */
void tsr__address_resize(tsr_allocator *a, tsr__address_range range);
/* Is any of the range taken? */
bool tsr__address_is_taken(const tsr_allocator *a, tsr__address_range range);
/* The first noted address at or after this one, or UINT64_MAX. */
uint64_t tsr__address_next(const tsr_allocator *a, uint64_t address);

/* ---- settings.c ---- */

/* TSR_ERROR_ARGUMENT for settings that no release would accept. */
int tsr__settings_check(const tsr_allocator_settings *settings, tsr_error *error);

/* ---- state.c ---- */

/* The first request ends the seeds. False when out of memory. */
bool tsr__start(tsr_allocator *a);

#endif
