/* ranges.c - a treap of ranges. See ranges.h.
 *
 * Files determine the ranges and their order, so a list or an unbalanced tree could be made slow
 * on purpose. The tree is ordered as in ranges.h, with the index as the last
 * criterion, and is a heap by priority: a hash of the index and a seed that no file can know. So its
 * depth is that of a random tree, some 50 for a million ranges, and recursion is safe.
 *
 * Each item stores the furthest end below it, so a search for a range around an address skips a whole
 * subtree that ends before the address. */
#include "base/ranges.h"

#include <assert.h>

#include "base/hash.h"

#define ITEM(index) (ranges->items.items[index])

void tsr__ranges_init(tsr__ranges *ranges) {
  *ranges = (tsr__ranges){
      .root = TSR__RANGE_NONE, .reusable = TSR__RANGE_NONE, .seed = tsr__hash_seed(ranges)};
}

void tsr__ranges_release(tsr__ranges *ranges) {
  TSR__VECTOR_FREE(&ranges->items);
}

/* ---- the tree ---- */

static bool comes_before(const tsr__ranges *ranges, uint32_t a, uint32_t b) {
  const tsr__ranges_item *x = &ITEM(a), *y = &ITEM(b);
  if (x->group != y->group) return x->group < y->group;
  if (x->begin != y->begin) return x->begin < y->begin;
  if (x->end != y->end) return x->end < y->end;
  return a < b;
}

static bool has_priority(const tsr__ranges *ranges, uint32_t a, uint32_t b) {
  uint64_t x = tsr__hash_u64(a ^ ranges->seed), y = tsr__hash_u64(b ^ ranges->seed);
  return x > y;
}

static uint64_t furthest_below(const tsr__ranges *ranges, uint32_t index) {
  uint64_t furthest = ITEM(index).end;
  uint32_t left = ITEM(index).left, right = ITEM(index).right;
  if (left != TSR__RANGE_NONE && ITEM(left).furthest > furthest) furthest = ITEM(left).furthest;
  if (right != TSR__RANGE_NONE && ITEM(right).furthest > furthest) furthest = ITEM(right).furthest;
  return furthest;
}

/* Split a tree into what comes before `index` and what comes after. */
static void split(tsr__ranges *ranges, uint32_t root, uint32_t index, uint32_t *before,
                  uint32_t *after) {
  uint32_t part;
  if (root == TSR__RANGE_NONE) {
    *before = *after = TSR__RANGE_NONE;
    return;
  }
  if (comes_before(ranges, root, index)) {
    split(ranges, ITEM(root).right, index, &part, after);
    ITEM(root).right = part;
    *before = root;
  } else {
    split(ranges, ITEM(root).left, index, before, &part);
    ITEM(root).left = part;
    *after = root;
  }
  ITEM(root).furthest = furthest_below(ranges, root);
}

static uint32_t join(tsr__ranges *ranges, uint32_t before, uint32_t after) {
  if (before == TSR__RANGE_NONE) return after;
  if (after == TSR__RANGE_NONE) return before;
  uint32_t root = has_priority(ranges, before, after) ? before : after;
  if (root == before)
    ITEM(root).right = join(ranges, ITEM(root).right, after);
  else
    ITEM(root).left = join(ranges, before, ITEM(root).left);
  ITEM(root).furthest = furthest_below(ranges, root);
  return root;
}

static uint32_t insert(tsr__ranges *ranges, uint32_t root, uint32_t index) {
  if (root == TSR__RANGE_NONE || has_priority(ranges, index, root)) {
    uint32_t before, after;
    split(ranges, root, index, &before, &after);
    ITEM(index).left = before;
    ITEM(index).right = after;
    root = index;
  } else if (comes_before(ranges, index, root)) {
    ITEM(root).left = insert(ranges, ITEM(root).left, index);
  } else {
    ITEM(root).right = insert(ranges, ITEM(root).right, index);
  }
  ITEM(root).furthest = furthest_below(ranges, root);
  return root;
}

static uint32_t detach(tsr__ranges *ranges, uint32_t root, uint32_t index) {
  if (root == index) return join(ranges, ITEM(index).left, ITEM(index).right);
  if (comes_before(ranges, index, root))
    ITEM(root).left = detach(ranges, ITEM(root).left, index);
  else
    ITEM(root).right = detach(ranges, ITEM(root).right, index);
  ITEM(root).furthest = furthest_below(ranges, root);
  return root;
}

/* ---- changes ---- */

bool tsr__ranges_reserve(tsr__ranges *ranges, size_t count) {
  return ranges->items.count < TSR__RANGE_NONE - count &&
         TSR__VECTOR_RESERVE(&ranges->items, count);
}

uint32_t tsr__ranges_add(tsr__ranges *ranges, uint64_t group, uint64_t begin, uint64_t end,
                         uint32_t value) {
  uint32_t index = ranges->reusable;
  if (index != TSR__RANGE_NONE) {
    ranges->reusable = ITEM(index).left;
  } else {
    if (!tsr__ranges_reserve(ranges, 1)) return TSR__RANGE_NONE;
    index = (uint32_t)ranges->items.count++;
  }
  ITEM(index) = (tsr__ranges_item){.group = group, .begin = begin, .end = end, .value = value};
  assert(begin <= end || !end);
  ranges->root = insert(ranges, ranges->root, index);
  ranges->count++;
  return index;
}

void tsr__ranges_remove(tsr__ranges *ranges, uint32_t range) {
  assert(range < ranges->items.count && ranges->count);
  ranges->root = detach(ranges, ranges->root, range);
  ranges->count--;
  ITEM(range).left = ranges->reusable;
  ranges->reusable = range;
}

void tsr__ranges_move(tsr__ranges *ranges, uint32_t range, uint64_t begin, uint64_t end) {
  ranges->root = detach(ranges, ranges->root, range);
  ITEM(range).begin = begin;
  ITEM(range).end = end;
  ranges->root = insert(ranges, ranges->root, range);
}

/* ---- searches ---- */

uint32_t tsr__ranges_last(const tsr__ranges *ranges, uint64_t group, uint64_t address) {
  uint32_t found = TSR__RANGE_NONE, at = ranges->root;
  while (at != TSR__RANGE_NONE) {
    const tsr__ranges_item *item = &ITEM(at);
    bool is_before = item->group < group || (item->group == group && item->begin <= address);
    if (is_before) found = at;
    at = is_before ? item->right : item->left;
  }
  return found != TSR__RANGE_NONE && ITEM(found).group == group ? found : TSR__RANGE_NONE;
}

uint32_t tsr__ranges_first(const tsr__ranges *ranges, uint64_t group, uint64_t address) {
  uint32_t found = TSR__RANGE_NONE, at = ranges->root;
  while (at != TSR__RANGE_NONE) {
    const tsr__ranges_item *item = &ITEM(at);
    bool is_before = item->group < group || (item->group == group && item->begin < address);
    if (!is_before) found = at;
    at = is_before ? item->right : item->left;
  }
  return found != TSR__RANGE_NONE && ITEM(found).group == group ? found : TSR__RANGE_NONE;
}

/* In a subtree whose ranges all begin at or before the address, `furthest` leads straight to the
 * result; above it, the search follows a single path. */
static uint32_t around(const tsr__ranges *ranges, uint32_t root, uint64_t address) {
  while (root != TSR__RANGE_NONE && ITEM(root).furthest > address) {
    if (ITEM(root).begin <= address) {
      uint32_t found = around(ranges, ITEM(root).right, address);
      if (found != TSR__RANGE_NONE) return found;
      if (ITEM(root).end > address) return root;
    }
    root = ITEM(root).left;
  }
  return TSR__RANGE_NONE;
}

uint32_t tsr__ranges_around(const tsr__ranges *ranges, uint64_t address) {
  return around(ranges, ranges->root, address);
}

uint32_t tsr__ranges_overlap(const tsr__ranges *ranges, uint64_t begin, uint64_t end) {
  uint32_t at = ranges->root;
  while (at != TSR__RANGE_NONE) {
    uint32_t left = ITEM(at).left;
    /* If a range on the left ends after `begin`, it precedes all ranges here, so either it is the
     * result or none of these is. */
    if (left != TSR__RANGE_NONE && ITEM(left).furthest > begin) {
      at = left;
      continue;
    }
    if (ITEM(at).begin >= end) return TSR__RANGE_NONE;
    if (ITEM(at).end > begin) return at;
    at = ITEM(at).right;
  }
  return TSR__RANGE_NONE;
}

uint32_t tsr__ranges_ending_after(const tsr__ranges *ranges, uint64_t address) {
  uint32_t found = TSR__RANGE_NONE, at = ranges->root;
  while (at != TSR__RANGE_NONE) {
    const tsr__ranges_item *item = &ITEM(at);
    bool is_after = item->end > address;
    assert(found == TSR__RANGE_NONE || item->end <= ITEM(found).begin ||
           item->begin >= ITEM(found).end || item->begin == item->end);
    if (is_after) found = at;
    at = is_after ? item->left : item->right;
  }
  return found;
}

/* ---- checks ---- */

static size_t depth_below(const tsr__ranges *ranges, uint32_t root) {
  if (root == TSR__RANGE_NONE) return 0;
  size_t left = depth_below(ranges, ITEM(root).left);
  size_t right = depth_below(ranges, ITEM(root).right);
  return 1 + (left > right ? left : right);
}

size_t tsr__ranges_depth(const tsr__ranges *ranges) {
  return depth_below(ranges, ranges->root);
}

static size_t check_tree(const tsr__ranges *ranges, uint32_t root, const char **wrong) {
  if (root == TSR__RANGE_NONE) return 0;
  uint32_t left = ITEM(root).left, right = ITEM(root).right;
  if (left != TSR__RANGE_NONE && !comes_before(ranges, left, root)) *wrong = "out of order";
  if (right != TSR__RANGE_NONE && !comes_before(ranges, root, right)) *wrong = "out of order";
  if ((left != TSR__RANGE_NONE && has_priority(ranges, left, root)) ||
      (right != TSR__RANGE_NONE && has_priority(ranges, right, root)))
    *wrong = "a child has priority over its parent";
  if (ITEM(root).furthest != furthest_below(ranges, root)) *wrong = "a furthest end is wrong";
  return 1 + check_tree(ranges, left, wrong) + check_tree(ranges, right, wrong);
}

const char *tsr__ranges_check(const tsr__ranges *ranges) {
  const char *wrong = NULL;
  if (check_tree(ranges, ranges->root, &wrong) != ranges->count && !wrong)
    wrong = "the tree holds more or fewer than were added";
  return wrong;
}
