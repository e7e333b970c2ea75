/* places.h - the line of the program that a stack stands for. */
#ifndef TSR_ATTRIBUTION_PLACES_H
#define TSR_ATTRIBUTION_PLACES_H

#include "base/error.h"
#include "tessera/snapshot.h"

/* By stack id: the frame a person would look at, or TSR_NONE for a stack without frames. */
typedef struct tsr__places {
  uint32_t *stacks; /* frame id */
  uint32_t count;
} tsr__places;

/* Time is linear in distinct frames' text and distinct stacks' depth. `out` is released by
 * tsr__places_release, also when zeroed. Fails with TSR_ERROR_MEMORY. */
int tsr__places_compute(const tsr_snapshot *snapshot, tsr__places *out, tsr_error *error);
void tsr__places_release(tsr__places *places);

/* The place of a stack id; TSR_NONE has none. */
static inline uint32_t tsr__place_of(const tsr__places *places, uint32_t stack) {
  return stack < places->count ? places->stacks[stack] : TSR_NONE;
}

#endif
