/* shares.c - summing a live set by stack. See shares.h. */
#include "answers/shares.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/vector.h"

/* Largest first; equal ones by allocations, then in the order of first appearance in the file. */
static int compare_shares(const void *a, const void *b) {
  const tsr_stack_share *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  if (x->allocations != y->allocations) return x->allocations < y->allocations ? 1 : -1;
  return (x->stack > y->stack) - (x->stack < y->stack);
}

typedef TSR__VECTOR(tsr_stack_share) share_list;

/* One share for each stack that holds something, and one for what has none. False when out of
 * memory. */
static bool sum_by_stack(const tsr__timeline *timeline, const tsr__live_set *live,
                         share_list *shares) {
  tsr__map share_of = {0};
  bool ok = true;
  for (size_t i = 0; ok && i < live->count; i++) {
    uint32_t stack = tsr__timeline_stack(timeline, live->items[i]);
    if (!tsr_snapshot_stack(timeline->snapshot, stack).depth) stack = TSR_NONE;
    bool is_new = false;
    const uint64_t *index = tsr__map_put(&share_of, stack, shares->count, &is_new);
    ok = index && (!is_new || TSR__VECTOR_PUSH(shares, (tsr_stack_share){.stack = stack}));
    if (!ok || !shares->items) break;
    tsr_stack_share *share = &shares->items[*index];
    share->bytes = tsr__sum_u64(share->bytes, tsr__timeline_requested(timeline, live->items[i]));
    share->allocations++;
  }
  tsr__map_release(&share_of);
  if (ok && shares->count)
    qsort(shares->items, shares->count, sizeof *shares->items, compare_shares);
  return ok;
}

int tsr__shares_of(const tsr__timeline *timeline, const tsr__live_set *live,
                   const tsr__categories *categories, size_t top, tsr__shares *out,
                   tsr_error *error) {
  share_list list = {0};
  if (!sum_by_stack(timeline, live, &list)) {
    TSR__VECTOR_FREE(&list);
    return tsr__fail_memory(error);
  }
  tsr__shares shares = {.items = list.items, .count = list.count};
  if (top && shares.count > top) {
    for (size_t i = top; i < shares.count; i++)
      shares.omitted_bytes = tsr__sum_u64(shares.omitted_bytes, shares.items[i].bytes);
    shares.omitted_stacks = shares.count - top;
    shares.count = top;
  }
  for (size_t i = 0; i < shares.count; i++)
    shares.items[i].category = tsr__category_of(categories, shares.items[i].stack);
  *out = shares;
  return 0;
}

tsr_warning *tsr__copy_warnings(const tsr__timeline *timeline, size_t *count) {
  tsr_warning *warnings = TSR__NEW_ARRAY(tsr_warning, TSR__MISFIT_COUNT);
  *count = warnings ? tsr__timeline_warnings(timeline, warnings) : 0;
  return warnings;
}
