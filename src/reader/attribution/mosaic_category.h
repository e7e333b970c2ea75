/* mosaic_category.h - Mosaic's category of a stack, from the names in it. */
#ifndef TSR_ATTRIBUTION_MOSAIC_CATEGORY_H
#define TSR_ATTRIBUTION_MOSAIC_CATEGORY_H

#include "base/error.h"
#include "tessera/unstable/attribution.h"
#include "tessera/unstable/columns.h"

/* The category of every stack, computed once per stack and frame, however many events share them.
 * Invariant: stacks[id] < TSR_MOSAIC_CATEGORY_COUNT for every stack id of the snapshot. */
typedef struct tsr__mosaic_categories {
  uint8_t *stacks; /* tsr_mosaic_category by stack id */
  uint32_t count;
} tsr__mosaic_categories;

/* Time is linear in distinct frames' text and distinct stacks' depth. Fails with TSR_ERROR_MEMORY.
 */
int tsr__mosaic_categories_compute(const tsr_snapshot *snapshot, tsr__mosaic_categories *out,
                                   tsr_error *error);
void tsr__mosaic_categories_release(tsr__mosaic_categories *categories);

/* The category of a stack id; TSR_NONE is unknown. */
static inline tsr_mosaic_category tsr__mosaic_category_of(const tsr__mosaic_categories *categories,
                                                          uint32_t stack) {
  return stack < categories->count ? (tsr_mosaic_category)categories->stacks[stack]
                                   : TSR_MOSAIC_CATEGORY_UNKNOWN;
}

#endif
