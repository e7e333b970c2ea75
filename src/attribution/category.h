/* category.h - what kind of memory a stack makes, by the names in it: Mosaic's rules. */
#ifndef TSR_ATTRIBUTION_CATEGORY_H
#define TSR_ATTRIBUTION_CATEGORY_H

#include "base/error.h"
#include "tessera/answers.h"

/* The category of every stack, looked up once a stack and a frame, however many events share them.
 * Invariant: stacks[id] < TSR_CATEGORY_COUNT for every stack id of the snapshot. */
typedef struct tsr__categories {
  uint8_t *stacks; /* tsr_category by stack id */
  uint32_t count;
} tsr__categories;

/* Time is linear in distinct frames' text and distinct stacks' depth. Fails with TSR_ERROR_MEMORY.
 */
int tsr__categories_compute(const tsr_snapshot *snapshot, tsr__categories *out, tsr_error *error);
void tsr__categories_release(tsr__categories *categories);

/* The category of a stack id; TSR_NONE is unknown. */
static inline tsr_category tsr__category_of(const tsr__categories *categories, uint32_t stack) {
  return stack < categories->count ? (tsr_category)categories->stacks[stack] : TSR_CATEGORY_UNKNOWN;
}

#endif
