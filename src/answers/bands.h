/* bands.h - live memory as bands upon each other, in the order in which it was taken.
 *
 * An allocation joins the topmost band if that has its group, else begins a new band on top. A band
 * ends when its last allocation is freed; neighbours of one group that then meet become one, the
 * upper part of the lower.
 *
 * Taking and freeing cost O(log bands) on average, memory is that of the most bands at one time. */
#ifndef TSR_ANSWERS_BANDS_H
#define TSR_ANSWERS_BANDS_H

#include "base/error.h"
#include "base/vector.h"
#include "tessera/snapshot.h"

typedef struct tsr__band {
  uint32_t group;
  uint32_t below, above; /* neighbours, or TSR_NONE */
  uint32_t mark;         /* the reader's; TSR_NONE in a new band */
  uint64_t bytes, peak_bytes, allocations;
  int64_t birth_event;
  /* What makes merging cheap, see bands.c. */
  uint32_t parent, next_part, last_part;
} tsr__band;

/* A band has ended at this event, or become part of the one below it. */
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

/* Take memory: the ticket to free it with, or TSR_NONE when out of memory. */
uint32_t tsr__bands_take(tsr__bands *bands, uint32_t group, uint64_t bytes, int64_t event);
/* Free what was taken with this ticket, once. */
void tsr__bands_free(tsr__bands *bands, uint32_t ticket, uint64_t bytes, int64_t event);
void tsr__bands_release(tsr__bands *bands);

#endif
