/* peak_tree.c - the highest moment of any range: a tree whose nodes have sixteen children.
 *
 *   level 2   |              3               |  ...     of each 256 totals the first highest
 *   level 1   |  3  | 17 | 40 |  ...               of each 16
 *   series     9 9 8 12 4 ...
 *
 * A range is taken from both ends: what does not fill a node is looked at one at a time, the rest
 * is left to the next level, where it is a sixteenth as long. So a question costs at most 30 looks
 * a level, and the levels are few. */
#include "timeline/peak_tree.h"

#include <assert.h>

#include "base/memory.h"
#include "tessera/types.h"

/* The place that entry `i` of a level stands for. */
static size_t place_of(const tsr__peak_tree *tree, size_t level, size_t i) {
  return level ? tree->places[tree->begin[level] + i] : i;
}

/* The better of two places: the higher, then the earlier. */
static size_t better(const tsr__peak_tree *tree, size_t a, size_t b) {
  uint64_t x = tree->series[a].allocated_bytes, y = tree->series[b].allocated_bytes;
  if (x != y) return x > y ? a : b;
  return a < b ? a : b;
}

bool tsr__peak_tree_init(tsr__peak_tree *tree, const tsr_totals *series, size_t count) {
  tsr__peak_tree made = {.series = series, .count = count, .level_count = 1};
  size_t total = 0;
  assert(count && count < TSR_NONE);
  made.size[0] = count;
  while (made.size[made.level_count - 1] > TSR__PEAK_TREE_FAN) {
    size_t below = made.size[made.level_count - 1];
    made.begin[made.level_count] = total;
    made.size[made.level_count] = (below + TSR__PEAK_TREE_FAN - 1) / TSR__PEAK_TREE_FAN;
    total += made.size[made.level_count++];
  }
  assert(made.level_count <= TSR__PEAK_TREE_LEVELS);
  made.places = TSR__NEW_ARRAY(uint32_t, total);
  if (!made.places) return false;
  for (size_t level = 1; level < made.level_count; level++)
    for (size_t i = 0; i < made.size[level - 1]; i++) {
      uint32_t *best = &made.places[made.begin[level] + i / TSR__PEAK_TREE_FAN];
      size_t place = place_of(&made, level - 1, i);
      *best = (uint32_t)(i % TSR__PEAK_TREE_FAN ? better(&made, *best, place) : place);
    }
  *tree = made;
  return true;
}

void tsr__peak_tree_release(tsr__peak_tree *tree) {
  tsr__free(tree->places);
  *tree = (tsr__peak_tree){0};
}

size_t tsr__peak_tree_highest(const tsr__peak_tree *tree, size_t first, size_t last) {
  size_t best = first, level = 0, end = last + 1;
  assert(first <= last && last < tree->count);
  while (first < end) {
    bool is_last_level = level + 1 == tree->level_count;
    while (first < end && (is_last_level || first % TSR__PEAK_TREE_FAN))
      best = better(tree, best, place_of(tree, level, first++));
    while (first < end && end % TSR__PEAK_TREE_FAN)
      best = better(tree, best, place_of(tree, level, --end));
    first /= TSR__PEAK_TREE_FAN;
    end /= TSR__PEAK_TREE_FAN;
    level++;
  }
  assert(best < tree->count);
  return best;
}
