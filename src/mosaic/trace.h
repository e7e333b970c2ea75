/* trace.h - a trace as Mosaic reads it, from which its answers are computed.
 *
 * Usage starts at 0; `alloc` adds the event's size, `free_completed` of a live address subtracts
 * the size in the free event itself. No other action counts. An event without an address (out of
 * memory) is skipped. */
#ifndef TSR_MOSAIC_TRACE_H
#define TSR_MOSAIC_TRACE_H

#include "base/buffer.h"
#include "base/map.h"
#include "base/vector.h"
#include "columns/tables.h"
#include "tessera/unstable/mosaic.h"

typedef struct tsr__mosaic_trace {
  const tsr_snapshot *snapshot; /* not owned */
  uint32_t device;              /* TSR_NONE: no device has a trace */
  tsr_events events;
  uint64_t first_row; /* of the snapshot's event table */
} tsr__mosaic_trace;

/* The trace of a device, which may be empty. */
tsr__mosaic_trace tsr__mosaic_trace_of(const tsr_snapshot *snapshot, uint32_t device);
/* The trace of the first device that has one. */
tsr__mosaic_trace tsr__mosaic_trace_first(const tsr_snapshot *snapshot);

/* Whether Mosaic sees the event. */
bool tsr__mosaic_counts(const tsr__mosaic_trace *trace, uint64_t event);

/* Usage while events are processed. The caller chooses the value of an address in `live`; a live
 * address that is allocated again keeps its value. */
typedef struct tsr__mosaic_count {
  int64_t bytes; /* negative if frees are larger than their allocs; saturates */
  tsr__map live;
} tsr__mosaic_count;

/* Process an event. An address that becomes live gets `value`. False if out of memory. */
bool tsr__mosaic_count_event(tsr__mosaic_count *count, const tsr__mosaic_trace *trace,
                             uint64_t event, uint64_t value);

/* Whether the event is the one that a moment refers to, given the number of earlier frees of the
 * moment's address. */
bool tsr__mosaic_is_moment(const tsr__mosaic_trace *trace, uint64_t event,
                           const tsr_mosaic_moment *moment, uint64_t version);

/* What is live after an event (-1: nothing), grouped by the text of files and lines. */
int tsr__mosaic_groups_at(const tsr__mosaic_trace *trace, int64_t event, tsr_mosaic_groups *out,
                          tsr_error *error);

/* The text by which stacks are grouped: for each frame, innermost first, the file name and the
 * line, without separators. */
void tsr__mosaic_key(tsr__buffer *out, const tsr_snapshot *snapshot, uint32_t stack);

#endif
