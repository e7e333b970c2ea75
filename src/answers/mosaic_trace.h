/* mosaic_trace.h - a trace as Mosaic reads it: what its answers are made of.
 *
 * Usage starts at 0; `alloc` adds an event's size, `free_completed` of an address that is live takes
 * its own size off. Nothing else changes anything. An event without an address (out of memory) is
 * passed over. */
#ifndef TSR_ANSWERS_MOSAIC_TRACE_H
#define TSR_ANSWERS_MOSAIC_TRACE_H

#include "base/buffer.h"
#include "base/map.h"
#include "base/vector.h"
#include "snapshot/tables.h"
#include "tessera/mosaic.h"

typedef struct tsr__mosaic_trace {
  const tsr_snapshot *snapshot; /* not owned */
  uint32_t device;              /* TSR_NONE: no device has a trace */
  tsr_events events;
  uint64_t first_row; /* of the snapshot's event table */
} tsr__mosaic_trace;

/* The trace of a device, perhaps an empty one. */
tsr__mosaic_trace tsr__mosaic_trace_of(const tsr_snapshot *snapshot, uint32_t device);
/* That of the first device that has one. */
tsr__mosaic_trace tsr__mosaic_trace_first(const tsr_snapshot *snapshot);

/* Whether Mosaic sees the event. */
bool tsr__mosaic_counts(const tsr__mosaic_trace *trace, uint64_t event);

/* Usage while events go by. The value of an address in `live` is the caller's; a live address that
 * is allocated again keeps its. */
typedef struct tsr__mosaic_count {
  int64_t bytes; /* negative where frees are larger than their allocs; saturates */
  tsr__map live;
} tsr__mosaic_count;

/* Let an event go by. `value` is what an address that becomes live gets. False when out of memory.
 */
bool tsr__mosaic_count_event(tsr__mosaic_count *count, const tsr__mosaic_trace *trace,
                             uint64_t event, uint64_t value);

/* Whether the event is the one that a moment names, given how often the moment's address was freed
 * before. */
bool tsr__mosaic_is_moment(const tsr__mosaic_trace *trace, uint64_t event,
                           const tsr_mosaic_moment *moment, uint64_t version);

/* What is live after an event (-1: nothing), grouped by the text of files and lines. */
int tsr__mosaic_groups_at(const tsr__mosaic_trace *trace, int64_t event, tsr_mosaic_groups *out,
                          tsr_error *error);

/* The text by which stacks are grouped: for each frame, innermost first, the file's name and the
 * line, with nothing between. */
void tsr__mosaic_key(tsr__buffer *out, const tsr_snapshot *snapshot, uint32_t stack);

#endif
