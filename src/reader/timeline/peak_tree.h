/* peak_tree.h - the highest moment of any range of a trace.
 *
 *   tsr__peak_tree tree = {0};
 *   tsr__peak_tree_init(&tree, series, count);      once, O(count)
 *   tsr__peak_tree_highest(&tree, 3, 900);          each, O(log count)
 */
#ifndef TSR_TIMELINE_PEAK_TREE_H
#define TSR_TIMELINE_PEAK_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "tessera/types.h"
#include "tessera/unstable/timeline.h"

enum { TSR__PEAK_TREE_FAN = 16, TSR__PEAK_TREE_LEVELS = 16 };

/* Level k + 1 has one entry for each TSR__PEAK_TREE_FAN of level k: the first place of the largest.
 * Level 0 is the series itself. */
typedef struct tsr__peak_tree {
  const tsr_totals *series; /* not owned */
  size_t count;
  uint32_t *places;                    /* all levels but 0, one after the other */
  size_t begin[TSR__PEAK_TREE_LEVELS]; /* where level k begins in places */
  size_t size[TSR__PEAK_TREE_LEVELS];  /* entries of level k */
  size_t level_count;
} tsr__peak_tree;

/* Prepare for a series of `count` totals, at least one and fewer than TSR_NONE, which must outlive
 * it. Memory is a fifteenth of four bytes an entry. False when out of memory. */
bool tsr__peak_tree_init(tsr__peak_tree *tree, const tsr_totals *series, size_t count);
void tsr__peak_tree_release(tsr__peak_tree *tree);

/* The first place from `first` to `last`, both included, at which most is allocated.
 * first <= last < count. */
size_t tsr__peak_tree_highest(const tsr__peak_tree *tree, size_t first, size_t last);

#endif
