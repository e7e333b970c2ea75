/* coverage.h - which elements of a storage have been written.
 *
 * A storage may have 2^40 elements and be written in slices of views: too many for a bit per element or for a list of
 * all pieces. But views repeat: every third of a packed (batch, rows, 3 * width) tensor is the same piece again and
 * again. A set is therefore a period, which divides the storage, and the pieces within one period:
 *
 *   keys in (4, 512, 3 * 768)        period 2304, [768, 1536)
 *   rows 64 to 128 of (4, 512, 768)  period 393216, [49152, 98304)
 *
 * Sets of different periods are brought to one of them by repeating pieces. */
#ifndef TSR_GRAPH_COVERAGE_H
#define TSR_GRAPH_COVERAGE_H

#include "base/vector.h"
#include "kernels/layout.h"

typedef struct tsr__piece {
  uint64_t first, end;
} tsr__piece;

/* Pieces are sorted, do not touch, and are within the period. A zeroed set with `elements` is
 * empty. */
typedef struct tsr__coverage {
  uint64_t elements; /* of the storage */
  uint64_t period;   /* 0: empty */
  TSR__VECTOR(tsr__piece) pieces;
} tsr__coverage;

void tsr__coverage_release(tsr__coverage *coverage);
/* These three return false when out of memory, or of a set of more than 2^20 pieces. */
/* Add the elements of a layout. */
bool tsr__coverage_add(tsr__coverage *coverage, const tsr__layout *layout);
/* Whether all elements of a layout are in the set. */
bool tsr__coverage_has(const tsr__coverage *coverage, const tsr__layout *layout, bool *has);
/* Whether two layouts of one storage have an element in common. */
bool tsr__coverage_overlap(uint64_t elements, const tsr__layout *a, const tsr__layout *b,
                           bool *overlaps);
bool tsr__coverage_is_full(const tsr__coverage *coverage);
static inline bool tsr__coverage_is_empty(const tsr__coverage *coverage) {
  return coverage->period == 0;
}
/* The first element that is not in the set; `elements` if it is full. */
uint64_t tsr__coverage_first_gap(const tsr__coverage *coverage);

#endif
