/* limits.c - budgets for the ranks of a job: each for the worst rank, or for the widest group of equals. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "fleet/fleet.h"

const char *tsr_rank_rule_name(tsr_rank_rule rule) {
  static const char *const names[TSR_RANK_RULE_COUNT] = {"max-peak", "max-category", "max-reserved",
                                                         "max-spread"};
  return (unsigned)rule < TSR_RANK_RULE_COUNT ? names[rule] : "unknown";
}

const char *tsr_rank_doubt_name(tsr_rank_doubt doubt) {
  static const char *const names[TSR_RANK_DOUBT_COUNT] = {"certain", "broken",        "missing",
                                                          "partial", "out-of-memory", "unknown"};
  return (unsigned)doubt < TSR_RANK_DOUBT_COUNT ? names[doubt] : "certain";
}

/* What a member holds at most. Without a history that is only what it holds at its end, unless the sidecar has PyTorch's own count. */
static uint64_t measure(const tsr__member *member, const tsr_rank_limit *limit) {
  const tsr__sketch_device *d = &member->sketch;
  switch (limit->rule) {
  case TSR_RANK_MAX_CATEGORY: return d->category_highs[limit->category];
  case TSR_RANK_MAX_RESERVED: return d->peak_reserved_bytes;
  default:
    return d->event_count <= 1 && d->known_peak_bytes > d->peak_bytes ? d->known_peak_bytes
                                                                      : d->peak_bytes;
  }
}

/* The stack that holds most at a member's peak, and what. */
static void name_stack(const tsr__member *member, tsr_rank_check *out) {
  bool is_category = out->limit.rule == TSR_RANK_MAX_CATEGORY;
  for (size_t i = 0; i < member->sketch.shares.count; i++) {
    const tsr__sketch_share *share = &member->sketch.shares.items[i];
    if (share->stack == TSR_NONE || (is_category && share->category != out->limit.category))
      continue;
    out->stack = share->stack; /* the largest is first */
    out->stack_bytes = share->bytes;
    return;
  }
}

static bool check_ranks(const tsr__fleet *fleet, tsr_rank_check *out) {
  out->failed = TSR__NEW_ARRAY(int64_t, fleet->members.count);
  if (!out->failed) return false;
  for (size_t i = 0; i < fleet->members.count; i++) {
    const tsr__member *m = &fleet->members.items[i];
    uint64_t bytes = measure(m, &out->limit);
    if (!i || bytes > out->bytes) {
      out->bytes = bytes;
      out->row = i;
    }
    bool is_known = out->failed_count && out->failed[out->failed_count - 1] == m->rank;
    if (bytes > out->limit.bytes && !is_known) out->failed[out->failed_count++] = m->rank;
  }
  if (out->limit.rule != TSR_RANK_MAX_RESERVED) name_stack(&fleet->members.items[out->row], out);
  return true;
}

/* The rows of a group with its lowest and highest peak. */
static void find_ends(const tsr__fleet *fleet, size_t group, size_t *low, size_t *high) {
  const tsr__member *members = fleet->members.items;
  size_t first = fleet->group_first.items[group], end = fleet->group_first.items[group + 1];
  *low = *high = fleet->by_group.items[first];
  for (size_t i = first; i < end; i++) {
    size_t at = fleet->by_group.items[i];
    if (members[at].sketch.peak_bytes < members[*low].sketch.peak_bytes) *low = at;
    if (members[at].sketch.peak_bytes > members[*high].sketch.peak_bytes) *high = at;
  }
}

static void check_spread(const tsr__fleet *fleet, const tsr_ranks *ranks, tsr_rank_check *out) {
  bool is_first = true;
  for (size_t i = 0; i < ranks->group_count; i++) {
    size_t low, high;
    if (!ranks->groups[i].rank_count) continue;
    find_ends(fleet, i, &low, &high);
    if (!tsr__is_compared(&fleet->members.items[high])) continue;
    uint64_t bytes =
        fleet->members.items[high].sketch.peak_bytes - fleet->members.items[low].sketch.peak_bytes;
    out->failed_count += bytes > out->limit.bytes;
    if (!is_first && bytes <= out->bytes) continue;
    is_first = false;
    out->bytes = bytes;
    out->row = high;
    out->low_row = low;
  }
}

/* ---- What nobody can be sure of ---- */

/* Whether the category is within its budget only because most of a rank's memory has no category. */
static bool hides_category(const tsr__member *member, const tsr_fleet_options *options) {
  uint64_t unknown = member->category_bytes[TSR_CATEGORY_UNKNOWN];
  if (unknown <= member->sketch.peak_bytes / 2) return false;
  for (size_t i = 0; i < options->limit_count; i++) {
    const tsr_rank_limit *limit = &options->limits[i];
    if (limit->rule == TSR_RANK_MAX_CATEGORY && limit->category != TSR_CATEGORY_UNKNOWN &&
        member->sketch.category_highs[TSR_CATEGORY_UNKNOWN] > limit->bytes)
      return true;
  }
  return false;
}

static void find_doubt(const tsr__fleet *fleet, const tsr_fleet_options *options, tsr_ranks *out) {
  size_t counts[TSR_RANK_DOUBT_COUNT] = {0};
  if (!options->allows_missing) {
    counts[TSR_RANK_BROKEN] = out->broken_count;
    counts[TSR_RANK_MISSING] =
        out->missing_part_count ? out->missing_part_count : out->missing_count;
  }
  for (size_t i = 0; i < fleet->members.count; i++) {
    const tsr__member *m = &fleet->members.items[i];
    counts[TSR_RANK_PARTIAL] += m->is_partial && !m->is_other;
    counts[TSR_RANK_OUT_OF_MEMORY] += out->rows[i].is_out_of_memory;
    counts[TSR_RANK_UNKNOWN] += hides_category(m, options);
  }
  for (int i = TSR_RANK_CERTAIN + 1; i < TSR_RANK_DOUBT_COUNT; i++) {
    if (!counts[i]) continue;
    out->doubt = (tsr_rank_doubt)i;
    out->doubt_count = counts[i];
    return;
  }
}

int tsr__fleet_check(const tsr__fleet *fleet, const tsr_fleet_options *options, tsr_ranks *out,
                     tsr_error *error) {
  if (!options->limit_count) return 0;
  assert(out->row_count == fleet->members.count);
  out->checks = TSR__NEW_ARRAY(tsr_rank_check, options->limit_count);
  if (!out->checks) return tsr__fail_memory(error);
  for (size_t i = 0; i < options->limit_count && fleet->members.count; i++) {
    tsr_rank_check *check = &out->checks[out->check_count++];
    *check = (tsr_rank_check){.limit = options->limits[i], .stack = TSR_NONE};
    if (check->limit.rule == TSR_RANK_MAX_SPREAD)
      check_spread(fleet, out, check);
    else if (!check_ranks(fleet, check))
      return tsr__fail_memory(error);
    check->is_passed = check->bytes <= check->limit.bytes;
    out->failed_count += !check->is_passed;
  }
  find_doubt(fleet, options, out);
  return 0;
}
