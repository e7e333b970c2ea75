/* timeline.h - the exact state of one device at every event of its trace.
 *
 * The trace contains what happened inside its window, the final segments what existed at the end.
 * Together they imply what existed before the first event, and from there the trace is replayed
 * through a heap that cuts and joins blocks as PyTorch does, so that the true size of every block
 * is known:
 *
 *   allocation    0 .. initial.count - 1: live before the window; then one for each alloc, in order
 *     birth       its event, or TSR_NONE: before the window
 *     death       event at which its memory became free, or TSR_NONE: live at the end
 *     block_bytes size of its block; before the window: at least, see start.c
 *
 * An allocation is live after event e when birth <= e < death (before the window counts as -1). Events
 * of a device are numbered from 0; "at event e" is the state after it, -1 the state before the first.
 *
 * What does not fit (an address outside every segment, a free of what is not live) is counted in
 * `misfits`, and the rest goes on; such allocations count with their rounded size.
 *
 * Rules: torch/utils/viz/MemoryViz.js (undoing a trace) and CUDACachingAllocator.cpp. */
#ifndef TSR_TIMELINE_TIMELINE_H
#define TSR_TIMELINE_TIMELINE_H

#include "allocator/heap.h"
#include "base/error.h"
#include "base/pool.h"
#include "base/vector.h"
#include "columns/tables.h"
#include "tessera/unstable/columns.h"
#include "tessera/unstable/timeline.h"

/* How a trace and its segments may disagree. */
typedef enum tsr__misfit {
  TSR__MISFIT_ALLOC_LIVE,     /* alloc of an address that is live already */
  TSR__MISFIT_ALLOC_OUTSIDE,  /* alloc outside every segment, or of memory in use */
  TSR__MISFIT_ALLOC_INSIDE,   /* alloc inside a free block, not at its start */
  TSR__MISFIT_ALLOC_TOO_LONG, /* alloc larger than the free block at its address */
  TSR__MISFIT_FREE_UNKNOWN,   /* free of what is not live */
  TSR__MISFIT_SEGMENT,        /* a segment event that contradicts the segments */
  TSR__MISFIT_FINAL,    /* live at the end of the trace, but not among the final blocks, or the
                        other way round */
  TSR__MISFIT_ANNOTATE, /* an annotation of what is not live */
  TSR__MISFIT_COUNT
} tsr__misfit;

/* An allocation from before the window. */
typedef struct tsr__initial {
  uint64_t address, requested_bytes;
  uint64_t unsplit_bytes; /* inferred: of its block beyond block_bytes; 0 if unknown */
  uint32_t stack;         /* of its block, if that lived to the end or is recorded; else TSR_NONE */
  bool is_waiting;        /* its free had been requested already */
} tsr__initial;

/* A range of reserved memory and when it was there: born and gone as allocations are. It is a segment
 * of cudaMalloc, or of expandable memory a range that is mapped without a gap: as PyTorch exports
 * segments, however many times it was extended. When such a range grows, shrinks or is split, its
 * span dies and others are born with the same event, so spans that are there at once never overlap,
 * and two of one reservation never touch. */
typedef struct tsr__span {
  uint64_t address, size_bytes;
  uint32_t birth, death;
  uint32_t stream, pool; /* ids of the snapshot */
  bool is_large, is_expandable;
} tsr__span;

/* An allocation whose memory had to wait for another stream: freed by the program at `from`
 * (TSR_NONE: before the window), free from `until` on (TSR_NONE: not before the end). */
typedef struct tsr__wait {
  uint32_t allocation, from, until;
} tsr__wait;

/* An `annotate` event, and the allocation that was live at its address. */
typedef struct tsr__note {
  uint32_t event, allocation;
} tsr__note;

/* The live set at one event, to start from when another is requested. */
typedef struct tsr__checkpoint {
  int64_t event;
  size_t first_live, live_count; /* of live_ids */
} tsr__checkpoint;

typedef struct tsr__timeline {
  const tsr_snapshot *snapshot; /* not owned */
  tsr_events events;
  uint32_t device;
  tsr_allocator_settings settings;
  /* Pinned host memory has another allocator: a block is a whole segment and is never split. Where no
   * segment is known, a request up to this size is rounded up to a power of two. 0 for GPUs. */
  uint64_t host_round_max_bytes;
  /* The file lists allocations and frees and nothing else (formats/flat.h): no address is in a segment, and
   * each size is that of the block. NULL for what is a snapshot. */
  const tsr__flat_device *flat;
  uint32_t default_pool; /* the snapshot's id of it, or TSR_NONE where no segment is of it */

  TSR__VECTOR(tsr__initial) initial;
  TSR__VECTOR(uint32_t) birth, death; /* by allocation */
  TSR__VECTOR(uint64_t) block_bytes;
  uint32_t *allocation_of; /* by event: the allocation it makes or frees, or TSR_NONE */
  TSR__VECTOR(tsr__span) spans;
  TSR__VECTOR(tsr__wait) waits; /* but not those that end with the event after their begin */
  TSR__VECTOR(tsr__note) notes; /* by event */

  tsr_totals start, end, maxima;
  int64_t requested_event, allocated_event, active_event, reserved_event; /* of the maxima */
  tsr_totals at_peak; /* the four totals at allocated_event */

  tsr_recorded recorded;        /* from the trace alone, counted from zero */
  uint64_t frees_without_alloc; /* free_completed of what the trace did not see allocated */

  TSR__VECTOR(tsr__checkpoint) checkpoints;
  TSR__VECTOR(uint32_t) live_ids;

  tsr_replay_check check; /* filled where placement was requested; final_* always */
  uint64_t misfits[TSR__MISFIT_COUNT];
} tsr__timeline;

/* Replay a device. `checks_placement`: also ask the allocator model where each alloc should have
 * gone. Threads of `pool` (NULL: none) help with what does not depend on the order of events; the
 * result is the same without them. `out` is released by tsr__timeline_release, also when zeroed. Time is linear in events
 * (with placement: O(log free blocks) each), memory 28 bytes an allocation. Fails with
 * TSR_ERROR_MEMORY. */
int tsr__timeline_compute(const tsr_snapshot *snapshot, uint32_t device, bool checks_placement,
                          tsr__thread_pool *pool, tsr__timeline *out, tsr_error *error);
void tsr__timeline_release(tsr__timeline *timeline);

/* The first event from `from` on with this action; the number of events if absent. Linear, but far
 * faster than a loop over events: for actions that few events have. */
uint64_t tsr__next_action(const tsr_events *events, tsr_action action, uint64_t from);

/* Whether a trace is long enough to have a history: more than one event changes what is allocated. Otherwise a
 * snapshot shows one moment, and its largest figure is no peak. Linear, and mostly a few events. */
bool tsr__has_history(const tsr_events *events);

/* What is true of an allocation, whenever it was made. */
uint64_t tsr__timeline_requested(const tsr__timeline *timeline, uint32_t allocation);
uint64_t tsr__timeline_address(const tsr__timeline *timeline, uint32_t allocation);
uint32_t tsr__timeline_stack(const tsr__timeline *timeline, uint32_t allocation);

typedef TSR__VECTOR(uint32_t) tsr__live_set;
/* The allocations live at an event, in the order in which they were made. Time is linear in the
 * answer and independent of where in the trace the event is. `out` is the caller's to free. */
int tsr__timeline_live(const tsr__timeline *timeline, int64_t event, tsr__live_set *out,
                       tsr_error *error);
/* The totals at an event, of its live set. */
tsr_totals tsr__timeline_totals(const tsr__timeline *timeline, int64_t event,
                                const tsr__live_set *live);

/* An event at which most is reserved, -1 if that was before the first: the allocated peak if it is one; otherwise the
 * first, together with the allocation for which the memory was reserved. */
int64_t tsr__timeline_highest(const tsr__timeline *timeline);
/* Marks of reserved memory of a flat device: the last that is not after an event, or NULL. O(log marks). */
const tsr__reserved_mark *tsr__timeline_mark(const tsr__timeline *timeline, int64_t event);

/* A span that comes or goes. */
typedef struct tsr__span_change {
  int64_t event; /* -1 before the first; INT64_MAX for the end of a span that stays */
  uint32_t span;
  bool is_end;
} tsr__span_change;

/* Beginnings and ends of all spans, by event, and at one event ends first; two for each span. A span ends `lag` events after the one that
 * releases it: 1 for those to whom that event still refers to it. O(n log n) in spans. The caller frees it; NULL when
 * out of memory. */
tsr__span_change *tsr__timeline_span_changes(const tsr__timeline *timeline, int64_t lag);

/* Was this span there at an event? */
bool tsr__span_is_there(const tsr__span *span, int64_t event);

/* ---- between the files of the room ---- */

/* Fill settings, initial allocations and spans, and the heap as it was before the first event; a
 * block's owner is its allocation. Allocations outside every segment go to `loose` (address ->
 * allocation). */
int tsr__timeline_start(tsr__timeline *timeline, tsr__heap *heap, tsr__map *loose,
                        tsr__thread_pool *pool);

/* What of the reserved memory holds nothing at an event, by cause; `live` is its live set. Time is
 * that of sorting the live set and the spans. Fails with TSR_ERROR_MEMORY. */
int tsr__timeline_fragmentation(const tsr__timeline *timeline, int64_t event,
                                const tsr__live_set *live, tsr_fragmentation *out,
                                tsr_error *error);

/* A free range of reserved memory: one free block, or several of a broken file. */
typedef struct tsr__gap {
  uint64_t address, size_bytes;
  const tsr__span *span; /* that it is in */
  bool is_whole;         /* nothing else is in that segment */
} tsr__gap;

typedef void tsr__gap_fn(void *context, const tsr__gap *gap);

/* The same, and `gap` (where not NULL) is called with each free range, by address. */
int tsr__timeline_gaps(const tsr__timeline *timeline, int64_t event, const tsr__live_set *live,
                       tsr__gap_fn *gap, void *context, tsr_fragmentation *out, tsr_error *error);

/* The misfits as warnings: at most TSR__MISFIT_COUNT into `out`; returns how many. */
size_t tsr__timeline_warnings(const tsr__timeline *timeline, tsr_warning *out);

/* The rounded size of a request. */
uint64_t tsr__timeline_round(const tsr__timeline *timeline, uint64_t request_bytes);

/* Settings under which the snapshot was taken, as far as it contains them. */
void tsr__timeline_settings(const tsr_snapshot *snapshot, uint32_t device,
                            tsr_allocator_settings *settings);

#endif
