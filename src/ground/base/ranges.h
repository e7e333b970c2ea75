/* ranges.h - an ordered set of address ranges: what is here, what comes next?
 *
 *   tsr__ranges ranges;
 *   tsr__ranges_init(&ranges);
 *   if (!tsr__ranges_add(&ranges, 0, begin, end, value)) out of memory;
 *   uint32_t range = tsr__ranges_around(&ranges, address);
 *   if (range != TSR__RANGE_NONE) tsr__ranges_get(&ranges, range)->value
 *   tsr__ranges_release(&ranges);
 *
 * Ranges are ordered by group, then by begin, then by end; they may overlap, and even be equal. A
 * range is identified by an index, which stays until it is removed and is then reused. Every operation
 * takes O(log n), whatever the ranges are. */
#ifndef TSR_BASE_RANGES_H
#define TSR_BASE_RANGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/vector.h"

#define TSR__RANGE_NONE UINT32_MAX

/* [begin, end) with the caller's value. */
typedef struct tsr__ranges_item {
  uint64_t group, begin, end;
  uint64_t furthest; /* the largest end in its subtree, including its own */
  uint32_t left, right;
  uint32_t value; /* the caller's */
} tsr__ranges_item;

typedef struct tsr__ranges {
  TSR__VECTOR(tsr__ranges_item) items;
  uint32_t root, reusable; /* or TSR__RANGE_NONE; reusable ones are linked by `left` */
  size_t count;
  uint64_t seed; /* of the shape of the tree */
} tsr__ranges;

void tsr__ranges_init(tsr__ranges *ranges);
/* Release the memory; init before the next use. */
void tsr__ranges_release(tsr__ranges *ranges);

/* Reserve room for `count` more, so that as many adds cannot fail. False if out of memory. */
bool tsr__ranges_reserve(tsr__ranges *ranges, size_t count);
/* Returns the range's index, or TSR__RANGE_NONE when out of memory. */
uint32_t tsr__ranges_add(tsr__ranges *ranges, uint64_t group, uint64_t begin, uint64_t end,
                         uint32_t value);
void tsr__ranges_remove(tsr__ranges *ranges, uint32_t range);
/* Give a range another begin and end; it keeps its index, group and value. */
void tsr__ranges_move(tsr__ranges *ranges, uint32_t range, uint64_t begin, uint64_t end);

static inline const tsr__ranges_item *tsr__ranges_get(const tsr__ranges *ranges, uint32_t range) {
  return &ranges->items.items[range];
}

/* The last range of a group that begins at or before an address; the first that begins at or after
 * it; TSR__RANGE_NONE if absent. */
uint32_t tsr__ranges_last(const tsr__ranges *ranges, uint64_t group, uint64_t address);
uint32_t tsr__ranges_first(const tsr__ranges *ranges, uint64_t group, uint64_t address);
/* Of the ranges that contain an address, the one that begins last; TSR__RANGE_NONE where none does.
 * Only where all ranges are of one group. */
uint32_t tsr__ranges_around(const tsr__ranges *ranges, uint64_t address);
/* The first range in order that contains any byte of [begin, end), which must not be empty. Only if all
 * ranges are of one group. */
uint32_t tsr__ranges_overlap(const tsr__ranges *ranges, uint64_t begin, uint64_t end);

/* Of ranges of one group that do not overlap one another: the first that ends after an address, which is the one
 * that contains it, or else the next one. One walk, at half the cost of tsr__ranges_overlap. */
uint32_t tsr__ranges_ending_after(const tsr__ranges *ranges, uint64_t address);

/* The longest walk from the root, for tests. O(n). */
size_t tsr__ranges_depth(const tsr__ranges *ranges);
/* Check every invariant, for tests: NULL, or a description of the violation. O(n). */
const char *tsr__ranges_check(const tsr__ranges *ranges);

#endif
