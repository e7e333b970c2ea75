/* bands.h - live memory as stacked bands, in the order of allocation.
 *
 * An allocation joins the topmost band if that has its group, otherwise it starts a new band on top. A
 * band ends when its last allocation is freed; if two bands of one group then become neighbours, the
 * upper one merges into the lower.
 *
 * Allocating and freeing cost O(log bands) on average; memory depends on the most bands at one time. */
#ifndef TSR_QUESTIONS_PROFILE_BANDS_H
#define TSR_QUESTIONS_PROFILE_BANDS_H

#include "base/error.h"
#include "base/vector.h"
#include "tessera/unstable/columns.h"

typedef struct tsr__band {
  uint32_t group;
  uint32_t below, above; /* neighbours, or TSR_NONE */
  uint32_t mark;         /* the reader's; TSR_NONE in a new band */
  uint64_t bytes, peak_bytes, allocations;
  int64_t birth_event;
  /* What makes merging cheap, see bands.c. */
  uint32_t parent, next_part, last_part;
} tsr__band;

/* A band has ended at this event, or merged into the one below it. */
typedef void tsr__band_end_fn(void *context, const tsr__band *band, int64_t event);

/* Zeroed, with `bottom`, `top` and `spare` TSR_NONE, is empty. Bands from `bottom` by `above`, or
 * from `top` by `below`, are those that there are. */
typedef struct tsr__bands {
  TSR__VECTOR(tsr__band) items;
  uint32_t bottom, top; /* or TSR_NONE */
  uint32_t spare;       /* first of the items that are free, by next_part */
  tsr__band_end_fn *on_end;
  void *context;
} tsr__bands;

#define TSR__BANDS_EMPTY ((tsr__bands){.bottom = TSR_NONE, .top = TSR_NONE, .spare = TSR_NONE})

/* Allocate: returns the ticket with which to free, or TSR_NONE if out of memory. */
uint32_t tsr__bands_take(tsr__bands *bands, uint32_t group, uint64_t bytes, int64_t event);
/* Free the allocation of this ticket, once. */
void tsr__bands_free(tsr__bands *bands, uint32_t ticket, uint64_t bytes, int64_t event);
void tsr__bands_release(tsr__bands *bands);

#endif
