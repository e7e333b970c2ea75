/* shares.c - summing a live set by stack. See shares.h. */
#include "answers/shares.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/memory.h"

/* Largest first; equal ones by allocations, then in the order of first appearance in the file. */
static int compare_shares(const void *a, const void *b) {
  const tsr_stack_share *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  if (x->allocations != y->allocations) return x->allocations < y->allocations ? 1 : -1;
  return (x->stack > y->stack) - (x->stack < y->stack);
}

/* Shares by stack id, the one without a stack last; then only those that hold something. */
static size_t sum_by_stack(const tsr__timeline *timeline, const tsr__live_set *live,
                           tsr_stack_share *shares, uint32_t stack_count) {
  for (size_t i = 0; i < live->count; i++) {
    uint32_t stack = tsr__timeline_stack(timeline, live->items[i]);
    bool has_frames = tsr_snapshot_stack(timeline->snapshot, stack).depth > 0;
    tsr_stack_share *share = &shares[has_frames ? stack : stack_count];
    share->stack = has_frames ? stack : TSR_NONE;
    share->bytes = tsr__sum_u64(share->bytes, tsr__timeline_requested(timeline, live->items[i]));
    share->allocations++;
  }
  size_t count = 0;
  for (size_t i = 0; i <= stack_count; i++)
    if (shares[i].allocations) shares[count++] = shares[i];
  qsort(shares, count, sizeof *shares, compare_shares);
  return count;
}

int tsr__shares_of(const tsr__timeline *timeline, const tsr__live_set *live,
                   const tsr__categories *categories, size_t top, tsr__shares *out,
                   tsr_error *error) {
  uint32_t stack_count = tsr_snapshot_stack_count(timeline->snapshot);
  tsr__shares shares = {.items = TSR__NEW_ARRAY(tsr_stack_share, (size_t)stack_count + 1)};
  if (!shares.items) return tsr__fail_memory(error);
  shares.count = sum_by_stack(timeline, live, shares.items, stack_count);
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
