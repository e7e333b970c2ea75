/* places.h - the program line that represents a stack. */
#ifndef TSR_ATTRIBUTION_PLACES_H
#define TSR_ATTRIBUTION_PLACES_H

#include "base/error.h"
#include "base/vector.h"
#include "tessera/unstable/columns.h"

/* Where a person would look. */
typedef struct tsr__place {
  uint32_t frame; /* the program's own, or the one that represents it; TSR_NONE: no frames */
  uint32_t layer; /* the innermost frame of a library that it called, or TSR_NONE */
} tsr__place;

/* The rank of every frame (attribution/frames.h), by frame id; NULL when out of memory. The caller frees
 * it. Linear in the frames' text. */
uint8_t *tsr__frame_ranks(const tsr_snapshot *snapshot);
/* The place of one stack. Linear in its depth. */
tsr__place tsr__place_in(tsr_stack stack, const uint8_t *ranks);

/* Distinct places, the first for no stack, and the place of each stack. */
typedef struct tsr__places {
  uint32_t *stacks; /* by stack id: index in `items` */
  uint32_t stack_count;
  TSR__VECTOR(tsr__place) items;
} tsr__places;

/* Time is linear in distinct frames' text and distinct stacks' depth. `out` is released by
 * tsr__places_release, also when zeroed. Fails with TSR_ERROR_MEMORY. */
int tsr__places_compute(const tsr_snapshot *snapshot, tsr__places *out, tsr_error *error);
void tsr__places_release(tsr__places *places);

/* The index of a stack's place; 0 if it has none. */
static inline uint32_t tsr__place_of(const tsr__places *places, uint32_t stack) {
  return stack < places->stack_count ? places->stacks[stack] : 0;
}

#endif
