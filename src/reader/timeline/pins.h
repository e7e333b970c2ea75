/* pins.h - which blocks keep which free memory from being released.
 *
 * PyTorch gives memory back in units: whole plain segments, and whole pages of expandable memory. A unit in which
 * some memory is free and some block is live is pinned: the free part cannot be released, and requests that are
 * too large for it cannot use it.
 *
 *   plain segment       [ block | free ........................ ]      one unit, pinned
 *   expandable range    [ ... block | free |  free  | free | block ]
 *                         |    page        |  page  |     page   |     two pinned, and one between that is not
 */
#ifndef TSR_TIMELINE_PINS_H
#define TSR_TIMELINE_PINS_H

#include "timeline/timeline.h"

/* A unit with a free part and live blocks. */
typedef struct tsr__pinned_unit {
  uint64_t address, size_bytes;
  uint64_t free_bytes;         /* not 0 */
  uint32_t span;               /* of the timeline, that it is in or is */
  uint32_t first, block_count; /* of `blocks`, at least one */
} tsr__pinned_unit;

/* The free memory of a span that is there and has some. */
typedef struct tsr__span_room {
  uint32_t span;
  uint64_t pinned_bytes; /* in units that are pinned */
  uint64_t whole_bytes;  /* in units that are entirely free: what can be released */
} tsr__span_room;

typedef struct tsr__pins {
  TSR__VECTOR(tsr__pinned_unit) pins; /* by address */
  TSR__VECTOR(uint32_t)
  blocks; /* allocations by pin, then by address; one that two pages share is of both */
  TSR__VECTOR(tsr__span_room) rooms; /* by address of the span */
} tsr__pins;

/* The pins at an event, of whose live set `live` is. The free memory is that of tsr__timeline_gaps. Time is that of
 * sorting the live set and the spans. `out` is released by tsr__pins_release, also when zeroed. Fails with
 * TSR_ERROR_MEMORY. */
int tsr__timeline_pins(const tsr__timeline *timeline, int64_t event, const tsr__live_set *live,
                       tsr__pins *out, tsr_error *error);
void tsr__pins_release(tsr__pins *pins);

#endif
