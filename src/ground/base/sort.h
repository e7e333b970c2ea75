/* sort.h - the library's only sort. It is stable: items that compare as equal keep their order. So an order never
 * depends on the C library, whose qsort may leave equal items in any order, and answers are the same on all systems.
 */
#ifndef TSR_BASE_SORT_H
#define TSR_BASE_SORT_H

#include <stddef.h>

/* Sort `count` items of `item_size` bytes by `compare`, which is qsort's. Items in order already take linear time, others
 * n log n. Uses memory for half of the items, or without it n log^2 n steps. `items` may be NULL if `count` is 0. */
void tsr__sort(void *items, size_t count, size_t item_size,
               int (*compare)(const void *left, const void *right));

#endif
