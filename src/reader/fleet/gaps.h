/* gaps.h - numbers that stand apart from others, and sorted ones. */
#ifndef TSR_FLEET_GAPS_H
#define TSR_FLEET_GAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fewer than this many equals say nothing. */
enum { TSR__LEAST_EQUALS = 3 };

/* At most how many of `count` can stand apart. */
static inline size_t tsr__most_apart(size_t count) {
  return 1 + count / 16;
}

/* How many of `count` numbers, of which the `listed` first are given from the largest on and the others are 0, stand apart from all
 * that follow: at most `most`; 0 if none does. The gap to the next must be larger than the spread of all others, times a factor that
 * is larger for few different values, or twice as large as values that are near each other. `*is_exact`: all others are equal. */
size_t tsr__apart(const uint64_t *values, size_t listed, size_t count, size_t most, bool *is_exact);

/* Ascending, in place. None is NaN. */
void tsr__sort_reals(double *values, size_t count);

#endif
