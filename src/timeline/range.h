/* range.h - the highest moment of any stretch of a trace.
 *
 *   tsr__range ranges = {0};
 *   tsr__range_init(&ranges, series, count);      once, O(count)
 *   tsr__range_highest(&ranges, 3, 900);          each, O(log count)
 */
#ifndef TSR_TIMELINE_RANGE_H
#define TSR_TIMELINE_RANGE_H

#include <stdbool.h>
#include <stddef.h>

#include "tessera/answers.h"

enum { TSR__RANGE_FAN = 16, TSR__RANGE_LEVELS = 16 };

/* Level k + 1 has one entry for each TSR__RANGE_FAN of level k: the first place of the largest.
 * Level 0 is the series itself. */
typedef struct tsr__range {
  const tsr_totals *series; /* not owned */
  size_t count;
  uint32_t *places;                /* all levels but 0, one behind the other */
  size_t begin[TSR__RANGE_LEVELS]; /* where level k begins in places */
  size_t size[TSR__RANGE_LEVELS];  /* entries of level k */
  size_t level_count;
} tsr__range;

/* Prepare for a series of `count` totals, at least one and fewer than TSR_NONE, which must outlive
 * it. Memory is a fifteenth of four bytes an entry. False when out of memory. */
bool tsr__range_init(tsr__range *range, const tsr_totals *series, size_t count);
void tsr__range_release(tsr__range *range);

/* The first place from `first` to `last`, both included, at which most is allocated.
 * first <= last < count. */
size_t tsr__range_highest(const tsr__range *range, size_t first, size_t last);

#endif
