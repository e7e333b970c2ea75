/* shares.c - summing a live set by stack. See shares.h. */
#include "questions/shared/shares.h"

#include <assert.h>

#include "base/checked.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"
#include "base/vector.h"
#include "questions/shared/names.h"

/* Largest first; equal ones by allocations, then in the order of first appearance in the file. */
static int compare_shares(const void *a, const void *b) {
  const tsr_stack_share *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  if (x->allocations != y->allocations) return x->allocations < y->allocations ? 1 : -1;
  if (x->stack != y->stack) return x->stack > y->stack ? 1 : -1;
  return (x->older_allocations == 0) - (y->older_allocations == 0);
}

/* A live set on its way. */
typedef struct summing {
  const tsr__timeline *timeline;
  const tsr__live_set *live;
  const tsr__categories *categories; /* or NULL */
  tsr__map share_of;                 /* key_of -> index of its share */
  TSR__VECTOR(tsr_stack_share) shares;
} summing;

static uint32_t stack_of(const summing *s, size_t i) {
  uint32_t stack = tsr__timeline_stack(s->timeline, s->live->items[i]);
  return tsr_snapshot_stack(s->timeline->snapshot, stack).depth ? stack : TSR_NONE;
}

static bool is_older(const summing *s, size_t i) {
  return s->live->items[i] < s->timeline->initial.count;
}

/* Memory without a stack is two shares: what the recording saw being made, and what is older. */
static uint64_t key_of(const summing *s, size_t i) {
  uint32_t stack = stack_of(s, i);
  return (uint64_t)stack + (stack == TSR_NONE && is_older(s, i));
}

static tsr_category kind_of(const summing *s, size_t i) {
  return s->categories ? (tsr_category)s->categories->category[s->live->items[i]]
                       : TSR_CATEGORY_UNKNOWN;
}

/* One share for each stack that holds something, and two for what has none. False when out of
 * memory. */
static bool sum_by_stack(summing *s) {
  for (size_t i = 0; i < s->live->count; i++) {
    uint32_t stack = stack_of(s, i);
    bool is_new = false;
    const uint64_t *index = tsr__map_put(&s->share_of, key_of(s, i), s->shares.count, &is_new);
    if (!index || (is_new && !TSR__VECTOR_PUSH(&s->shares, (tsr_stack_share){.stack = stack})))
      return false;
    assert(*index < s->shares.count && s->shares.items[*index].stack == stack);
    tsr_stack_share *share = &s->shares.items[*index];
    uint64_t bytes = tsr__timeline_requested(s->timeline, s->live->items[i]);
    uint64_t *of_kind = &share->category_bytes[kind_of(s, i)];
    share->bytes = tsr__sum_u64(share->bytes, bytes);
    *of_kind = tsr__sum_u64(*of_kind, bytes);
    share->category_allocations[kind_of(s, i)]++;
    if (is_older(s, i)) {
      share->older_bytes = tsr__sum_u64(share->older_bytes, bytes);
      share->older_allocations++;
    }
    share->allocations++;
  }
  return true;
}

/* The kind of most bytes, and why: as its largest allocation has it. */
static bool choose_kinds(summing *s) {
  uint64_t *largest = TSR__NEW_ARRAY(uint64_t, s->shares.count);
  if (!largest) return false;
  for (size_t i = 0; i < s->shares.count; i++) {
    tsr_stack_share *share = &s->shares.items[i];
    for (int kind = 0; kind < TSR_CATEGORY_COUNT; kind++)
      if (share->category_bytes[kind] > share->category_bytes[share->category])
        share->category = (tsr_category)kind;
  }
  for (size_t i = 0; s->categories && i < s->live->count; i++) {
    uint32_t allocation = s->live->items[i];
    size_t index = (size_t)*tsr__map_find(&s->share_of, key_of(s, i));
    tsr_stack_share *share = &s->shares.items[index];
    assert(share->category_allocations[kind_of(s, i)]);
    uint64_t bytes = tsr__timeline_requested(s->timeline, allocation);
    if (kind_of(s, i) != share->category || bytes < largest[index]) continue;
    if (bytes == largest[index] && bytes) continue;
    largest[index] = bytes;
    share->phase = (tsr_phase)s->categories->phase[allocation];
    share->evidence = (tsr_evidence)s->categories->evidence[allocation];
  }
  tsr__free(largest);
  return true;
}

/* ---- What the program named ---- */

/* Give each share its names, `top` at most; to be called while shares are in the order of share_of. */
static bool name_shares(summing *s, const tsr__names *names, size_t top, tsr_named **out) {
  tsr__name_sums sums;
  if (!names || !tsr__names_any(names)) return true;
  tsr__name_sums_init(&sums);
  tsr_name_range *ranges = TSR__NEW_ARRAY(tsr_name_range, s->shares.count);
  bool ok = ranges != NULL;
  for (size_t i = 0; ok && i < s->live->count; i++) {
    uint32_t share = (uint32_t)*tsr__map_find(&s->share_of, key_of(s, i));
    ok = tsr__name_sums_add(&sums, share, names, s->live->items[i]);
  }
  ok = ok && !tsr__name_sums_take(&sums, top, s->shares.count, ranges, out, NULL);
  for (size_t i = 0; ok && i < s->shares.count; i++) s->shares.items[i].names = ranges[i];
  tsr__free(ranges);
  tsr__name_sums_release(&sums);
  return ok;
}

/* Whatever is live is in one share, and in one category of it. */
static void check_sums(const summing *s) {
#ifndef NDEBUG
  uint64_t allocations = 0;
  for (size_t i = 0; i < s->shares.count; i++) {
    const tsr_stack_share *share = &s->shares.items[i];
    uint64_t of_kinds = 0;
    for (int kind = 0; kind < TSR_CATEGORY_COUNT; kind++)
      of_kinds += share->category_allocations[kind];
    assert(share->allocations && of_kinds == share->allocations);
    assert(share->older_allocations <= share->allocations && share->older_bytes <= share->bytes);
    allocations += share->allocations;
  }
  assert(allocations == s->live->count);
#else
  (void)s;
#endif
}

static void cut(tsr__shares *shares, size_t top) {
  if (!top || shares->count <= top) return;
  for (size_t i = top; i < shares->count; i++)
    shares->omitted_bytes = tsr__sum_u64(shares->omitted_bytes, shares->items[i].bytes);
  shares->omitted_stacks = shares->count - top;
  shares->count = top;
}

int tsr__shares_of(const tsr__timeline *timeline, const tsr__live_set *live,
                   const tsr__categories *categories, const tsr__names *names, size_t top,
                   tsr__shares *out, tsr_error *error) {
  assert(!categories || categories->count == timeline->birth.count);
  summing s = {.timeline = timeline, .live = live, .categories = categories};
  tsr_named *named = NULL;
  bool ok = sum_by_stack(&s) && choose_kinds(&s) && name_shares(&s, names, top, &named);
  tsr__map_release(&s.share_of);
  if (!ok) {
    TSR__VECTOR_FREE(&s.shares);
    tsr__free(named);
    return tsr__fail_memory(error);
  }
  check_sums(&s);
  tsr__sort(s.shares.items, s.shares.count, sizeof *s.shares.items, compare_shares);
  *out = (tsr__shares){.items = s.shares.items, .count = s.shares.count, .names = named};
  cut(out, top);
  return 0;
}

tsr_warning *tsr__copy_warnings(const tsr__timeline *timeline, size_t *count) {
  tsr_warning *warnings = TSR__NEW_ARRAY(tsr_warning, TSR__MISFIT_COUNT);
  *count = warnings ? tsr__timeline_warnings(timeline, warnings) : 0;
  return warnings;
}
