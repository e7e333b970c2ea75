/* range.c - the highest moment of any stretch: a tree whose nodes have sixteen children.
 *
 *   level 2   |              3               |  ...     of each 256 totals the first highest
 *   level 1   |  3  | 17 | 40 |  ...               of each 16
 *   series     9 9 8 12 4 ...
 *
 * A stretch is taken from both ends: what does not fill a node is looked at one by one, the rest is
 * left to the next level, where it is a sixteenth as long. So a question costs at most 30 looks a
 * level, and the levels are few. */
#include "timeline/range.h"

#include <assert.h>

#include "base/memory.h"

/* The place that entry `i` of a level stands for. */
static size_t place_of(const tsr__range *range, size_t level, size_t i) {
  return level ? range->places[range->begin[level] + i] : i;
}

/* The better of two places: the higher, then the earlier. */
static size_t better(const tsr__range *range, size_t a, size_t b) {
  uint64_t x = range->series[a].allocated_bytes, y = range->series[b].allocated_bytes;
  if (x != y) return x > y ? a : b;
  return a < b ? a : b;
}

bool tsr__range_init(tsr__range *range, const tsr_totals *series, size_t count) {
  tsr__range made = {.series = series, .count = count, .level_count = 1};
  size_t total = 0;
  assert(count && count < TSR_NONE);
  made.size[0] = count;
  while (made.size[made.level_count - 1] > TSR__RANGE_FAN) {
    size_t below = made.size[made.level_count - 1];
    made.begin[made.level_count] = total;
    made.size[made.level_count] = (below + TSR__RANGE_FAN - 1) / TSR__RANGE_FAN;
    total += made.size[made.level_count++];
  }
  made.places = TSR__NEW_ARRAY(uint32_t, total);
  if (!made.places) return false;
  for (size_t level = 1; level < made.level_count; level++)
    for (size_t i = 0; i < made.size[level - 1]; i++) {
      uint32_t *best = &made.places[made.begin[level] + i / TSR__RANGE_FAN];
      size_t place = place_of(&made, level - 1, i);
      *best = (uint32_t)(i % TSR__RANGE_FAN ? better(&made, *best, place) : place);
    }
  *range = made;
  return true;
}

void tsr__range_release(tsr__range *range) {
  tsr__free(range->places);
  *range = (tsr__range){0};
}

size_t tsr__range_highest(const tsr__range *range, size_t first, size_t last) {
  size_t best = first, level = 0, end = last + 1;
  assert(first <= last && last < range->count);
  while (first < end) {
    bool is_last_level = level + 1 == range->level_count;
    while (first < end && (is_last_level || first % TSR__RANGE_FAN))
      best = better(range, best, place_of(range, level, first++));
    while (first < end && end % TSR__RANGE_FAN)
      best = better(range, best, place_of(range, level, --end));
    first /= TSR__RANGE_FAN;
    end /= TSR__RANGE_FAN;
    level++;
  }
  return best;
}
