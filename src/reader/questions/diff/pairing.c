/* pairing.c - pairs of allocations: see pairing.h.
 *
 * Sequences are compared by keys, which are numbers: equal keys may be paired. The longest common subsequence is found
 * by the greedy algorithm of Myers (An O(ND) Difference Algorithm, 1986): how far one gets along each diagonal with d
 * differences, for d = 0, 1, 2, ... The rows are kept, to walk back:
 *
 *   rows   d = 0: [k=0]   d = 1: [k=-1, unused, k=1]   d = 2: ...    row d begins at d * d
 *
 * Two allocations of different keys never become a pair in that step; a hash that coincides would pair two of 2^64. */
#include "questions/diff/pairing.h"

#include <assert.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/vector.h"

/* More differences than this between two ranges, and their order is not looked at: 16 MiB of rows. */
enum { MOST_DIFFERENCES = 2000 };

typedef uint64_t key_fn(const tsr__pairing_item *item);

typedef struct sequence {
  tsr__pairing_item *items;
  uint32_t *index; /* into items: of what is compared */
  uint64_t *keys;  /* of each */
  uint32_t count;
} sequence;

/* What one stage pairs. */
typedef struct stage {
  key_fn *key;
  tsr__pairing_how how;
} stage;

static uint64_t by_stack_and_size(const tsr__pairing_item *item) {
  return tsr__mix(((uint64_t)item->place << 1) | item->is_older, item->size);
}

static uint64_t by_category_and_size(const tsr__pairing_item *item) {
  return tsr__mix(((uint64_t)item->category << 1) | item->is_older, item->size);
}

/* Without a stack, the category is all that is known. */
static uint64_t place_of(const tsr__pairing_item *item) {
  return item->has_place ? item->place : tsr__mix(UINT64_MAX, item->category);
}

/* What one side's step makes may be there before the other's: an optimizer's state. */
static uint64_t by_place_and_size_ever(const tsr__pairing_item *item) {
  return tsr__mix(place_of(item), item->size);
}

static uint64_t by_place_and_size(const tsr__pairing_item *item) {
  return tsr__mix(by_place_and_size_ever(item), item->is_older);
}

static uint64_t by_category_and_size_ever(const tsr__pairing_item *item) {
  return tsr__mix(item->category, item->size);
}

/* A name tells more than a category, and that more than a size: parameters and workspaces can be equally large. */
static uint64_t by_owner_and_size(const tsr__pairing_item *item) {
  uint64_t owner = item->owner ? item->owner : place_of(item);
  return tsr__mix(owner, tsr__mix(item->owner != 0, item->size));
}

/* Inferred categories can be wrong on one side. */
static uint64_t by_size(const tsr__pairing_item *item) {
  return tsr__mix(0, item->size);
}

static uint64_t by_stack_and_size_ever(const tsr__pairing_item *item) {
  return tsr__mix(item->place, item->size);
}

static uint64_t by_place(const tsr__pairing_item *item) {
  return tsr__mix(place_of(item), item->is_older);
}

static void pair_up(const sequence *a, uint32_t i, const sequence *b, uint32_t k,
                    tsr__pairing_how how) {
  tsr__pairing_item *x = &a->items[a->index[i]], *y = &b->items[b->index[k]];
  assert(x->how == TSR__PAIRING_NONE && y->how == TSR__PAIRING_NONE && how != TSR__PAIRING_NONE);
  x->how = y->how = (uint8_t)how;
  x->mate = b->index[k];
  y->mate = a->index[i];
}

/* ---- Longest common subsequence ---- */

typedef TSR__VECTOR(uint32_t) reach; /* of all rows: how far along the first sequence */

static size_t row_of(uint32_t d) {
  return (size_t)d * d;
}

/* How far one gets on diagonal k with d differences: from a neighbour of the row before, by one step. `k` counts from -d. */
static uint32_t step_to(const reach *rows, uint32_t d, int64_t k) {
  if (!d) return 0;
  const uint32_t *before = rows->items + row_of(d - 1);
  int64_t middle = (int64_t)d - 1;
  bool goes_down =
      k == -(int64_t)d || (k != (int64_t)d && before[k - 1 + middle] < before[k + 1 + middle]);
  return goes_down ? before[k + 1 + middle] : before[k - 1 + middle] + 1;
}

/* Fill rows until both ends are reached. False if out of memory; *d is UINT32_MAX if there are too many differences. */
static bool find_rows(const sequence *a, const sequence *b, reach *rows, uint32_t *d) {
  int64_t end = (int64_t)a->count - (int64_t)b->count;
  for (*d = 0; *d <= MOST_DIFFERENCES; ++*d) {
    if (!TSR__VECTOR_RESERVE(rows, 2 * (size_t)*d + 1)) return false;
    rows->count = row_of(*d + 1);
    for (int64_t k = -(int64_t)*d; k <= (int64_t)*d; k += 2) {
      uint32_t x = step_to(rows, *d, k);
      int64_t y = (int64_t)x - k;
      while (x < a->count && y >= 0 && y < b->count && a->keys[x] == b->keys[y]) x++, y++;
      rows->items[row_of(*d) + (size_t)(k + *d)] = x;
      if (k == end && x >= a->count) return true;
    }
  }
  *d = UINT32_MAX;
  return true;
}

/* From the ends back to the beginning; diagonal steps are pairs. */
static void walk_back(const sequence *a, const sequence *b, const reach *rows, uint32_t d,
                      tsr__pairing_how how) {
  int64_t x = a->count, y = b->count;
  for (;; d--) {
    int64_t k = x - y, from = step_to(rows, d, k);
    for (; x > from; x--, y--) pair_up(a, (uint32_t)x - 1, b, (uint32_t)y - 1, how);
    if (!d) break;
    const uint32_t *before = rows->items + row_of(d - 1);
    int64_t middle = (int64_t)d - 1;
    bool went_down =
        k == -(int64_t)d || (k != (int64_t)d && before[k - 1 + middle] < before[k + 1 + middle]);
    x = went_down ? before[k + 1 + middle] : before[k - 1 + middle];
    y = x - (went_down ? k + 1 : k - 1);
  }
  assert(x == 0 && y == 0);
}

static sequence part(const sequence *s, uint32_t first, uint32_t end) {
  assert(first <= end && end <= s->count);
  return (sequence){s->items, s->index + first, s->keys + first, end - first};
}

/* Pair in order. What both begin or end with costs nothing. */
static bool pair_in_order(const sequence *first, const sequence *second, tsr__pairing_how how) {
  sequence a = *first, b = *second;
  while (a.count && b.count && a.keys[0] == b.keys[0]) {
    pair_up(&a, 0, &b, 0, how);
    a = part(&a, 1, a.count);
    b = part(&b, 1, b.count);
  }
  while (a.count && b.count && a.keys[a.count - 1] == b.keys[b.count - 1]) {
    pair_up(&a, a.count - 1, &b, b.count - 1, how);
    a.count--;
    b.count--;
  }
  if (!a.count || !b.count) return true;
  reach rows = {0};
  uint32_t d;
  bool ok = find_rows(&a, &b, &rows, &d);
  if (ok && d != UINT32_MAX) walk_back(&a, &b, &rows, d, how);
  TSR__VECTOR_FREE(&rows);
  return ok;
}

/* ---- Stages ---- */

/* Items [first, end) of one side. */
typedef struct range {
  uint32_t first, end;
} range;

static range static_ones(const tsr__pairing_item *items, uint32_t count) {
  range all = {0, 0};
  while (all.end < count && items[all.end].is_static) all.end++;
  for (uint32_t i = 0; i < count; i++) {
    assert(items[i].is_static == (i < all.end));
    assert(items[i].is_older || !items[i].is_static);
  }
  return all;
}

/* Collect what has no pair yet and is in [first, end) of the items. */
static void collect(sequence *s, uint32_t first, uint32_t end, key_fn *key) {
  s->count = 0;
  for (uint32_t i = first; i < end; i++) {
    if (s->items[i].how != TSR__PAIRING_NONE) continue;
    s->index[s->count] = i;
    s->keys[s->count++] = key(&s->items[i]);
  }
}

/* Between two pairs of the first stage, or an end, nothing has crossed: pair there in order. */
static bool pair_gaps(sequence *a, range a_range, sequence *b, range b_range, const stage *how) {
  uint32_t from_a = a_range.first, from_b = b_range.first;
  for (uint32_t i = from_a; i <= a_range.end; i++) {
    bool is_end = i == a_range.end;
    if (!is_end && a->items[i].how != TSR__PAIRING_SAME) continue;
    uint32_t to_b = is_end ? b_range.end : a->items[i].mate;
    if (to_b < from_b) continue; /* a pair of an earlier gap */
    collect(a, from_a, i, how->key);
    collect(b, from_b, to_b, how->key);
    if (a->count && b->count && !pair_in_order(a, b, how->how)) return false;
    from_a = i + 1;
    from_b = to_b + 1;
  }
  return true;
}

/* Pair whatever is left, first with first. */
static bool pair_any(sequence *a, range a_range, sequence *b, range b_range, const stage *how) {
  tsr__map first = {0}; /* key -> place in b, plus 1 */
  collect(a, a_range.first, a_range.end, how->key);
  collect(b, b_range.first, b_range.end, how->key);
  uint32_t *next = TSR__NEW_ARRAY(uint32_t, (size_t)b->count + 1);
  bool ok = next != NULL;
  for (uint32_t i = b->count; ok && i-- > 0;) {
    uint64_t *head = tsr__map_put(&first, b->keys[i], 0, NULL);
    ok = head != NULL;
    if (!ok) break;
    next[i] = (uint32_t)*head;
    *head = (uint64_t)i + 1;
  }
  for (uint32_t i = 0; ok && i < a->count; i++) {
    uint64_t *head = tsr__map_find(&first, a->keys[i]);
    if (!head || !*head) continue;
    uint32_t at = (uint32_t)*head - 1;
    *head = next[at];
    pair_up(a, i, b, at, how->how);
  }
  tsr__map_release(&first);
  tsr__free(next);
  return ok;
}

typedef bool pair_fn(sequence *a, range a_range, sequence *b, range b_range, const stage *how);

static bool pair_stages(const stage *stages, size_t count, pair_fn *pair, sequence sides[2],
                        const range ranges[2]) {
  bool ok = true;
  for (size_t i = 0; ok && i < count; i++)
    ok = pair(&sides[0], ranges[0], &sides[1], ranges[1], &stages[i]);
  return ok;
}

static bool pair_all(sequence sides[2], const uint32_t counts[2]) {
  static const stage fixed[] = {{by_owner_and_size, TSR__PAIRING_SAME},
                                {by_category_and_size, TSR__PAIRING_SAME}};
  static const stage in_order = {by_stack_and_size, TSR__PAIRING_SAME};
  static const stage gaps[] = {{by_place, TSR__PAIRING_RESIZED},
                               {by_category_and_size, TSR__PAIRING_SAME}};
  static const stage anywhere[] = {{by_place_and_size, TSR__PAIRING_MOVED},
                                   {by_category_and_size, TSR__PAIRING_MOVED},
                                   {by_place_and_size_ever, TSR__PAIRING_MOVED},
                                   {by_category_and_size_ever, TSR__PAIRING_MOVED}};
  static const stage fixed_size = {by_size, TSR__PAIRING_SAME};
  static const stage at_last[] = {{by_stack_and_size_ever, TSR__PAIRING_MOVED},
                                  {by_place, TSR__PAIRING_RESIZED}};
  range all[2], old[2], made[2];
  for (int k = 0; k < 2; k++) {
    all[k] = (range){0, counts[k]};
    old[k] = static_ones(sides[k].items, counts[k]);
    made[k] = (range){old[k].end, counts[k]};
    collect(&sides[k], made[k].first, made[k].end, in_order.key);
  }
  return pair_in_order(&sides[0], &sides[1], in_order.how) &&
         pair_stages(fixed, sizeof fixed / sizeof *fixed, pair_any, sides, old) &&
         pair_stages(gaps, sizeof gaps / sizeof *gaps, pair_gaps, sides, made) &&
         pair_stages(anywhere, sizeof anywhere / sizeof *anywhere, pair_any, sides, all) &&
         pair_stages(&fixed_size, 1, pair_any, sides, old) &&
         pair_stages(at_last, sizeof at_last / sizeof *at_last, pair_any, sides, all);
}

bool tsr__pairing_find(tsr__pairing_item *old_items, uint32_t old_count,
                       tsr__pairing_item *new_items, uint32_t new_count) {
  size_t most = (size_t)old_count + new_count + 1;
  uint32_t *index = TSR__NEW_ARRAY(uint32_t, most);
  uint64_t *keys = TSR__NEW_ARRAY(uint64_t, most);
  const uint32_t counts[2] = {old_count, new_count};
  sequence sides[2] = {{.items = old_items, .index = index, .keys = keys},
                       {.items = new_items,
                        .index = index ? index + old_count : NULL,
                        .keys = keys ? keys + old_count : NULL}};
  bool ok = index && keys && pair_all(sides, counts);
  tsr__free(index);
  tsr__free(keys);
  return ok;
}
