/* outliers.c - which ranks differ from their equals, and why.
 *
 * What one kind of memory takes - a stack's, a category's, all of it - is a number for each rank of a group. Equals spread: sequences
 * have different lengths, experts different loads. A rank stands apart if the gap to the next is large for the spread of all others
 * (gaps.h). So memory that is equal everywhere, such as an optimizer's state, shows every difference, and memory that varies shows
 * large ones.
 *
 * The cause is read off what the excess consists of. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "attribution/frames.h"
#include "base/checked.h"
#include "base/format.h"
#include "base/sort.h"
#include "fleet/fleet.h"
#include "fleet/gaps.h"

/* What an outlier has beyond its equals is at least the group's peak divided by this. */
/* What varies among equals must differ by more to be worth a word. */
enum { LEAST_PART = 100, LEAST_VARYING_PART = 20 };

/* What a member held of one kind at most. */
typedef struct entry {
  uint64_t key; /* stack << 8, and without a stack the category */
  uint64_t bytes, count;
  size_t position; /* in the group */
  uint8_t category;
} entry;

/* What a member has beyond its equals, by cause. */
typedef struct excess {
  uint64_t bytes; /* of all stacks where it stands apart */
  uint64_t exact; /* of these, where all others are equal */
  uint64_t by_category[TSR_CATEGORY_COUNT];
  uint64_t alone;        /* of stacks that hardly anyone else has */
  uint64_t experts;      /* of stacks in a layer of experts */
  uint64_t larger, more; /* as many tensors but larger; more tensors of the same size */
  uint64_t larger_from;  /* what the larger ones are for the median */
  size_t larger_stacks;
  bool is_by_category; /* stacks say little: the above is by category */
  uint64_t peak;       /* of the peak */
  uint64_t kept;       /* kept from step to step */
  uint64_t most_bytes;
  uint32_t most_stack;
} excess;

typedef struct judging {
  const tsr__fleet *fleet;
  const size_t *members; /* of the group */
  size_t count;
  excess *of; /* by position */
  uint64_t median_peak;
  bool *is_expert; /* by stack of the fleet */
} judging;

static const tsr__member *member_at(const judging *j, size_t position) {
  return &j->fleet->members.items[j->members[position]];
}

/* ---- Gaps ---- */

static size_t apart(const judging *j, const uint64_t *values, size_t listed, bool *is_exact) {
  return tsr__apart(values, listed, j->count, tsr__most_apart(j->count), is_exact);
}

static uint64_t median_of(const judging *j, const uint64_t *values, size_t listed) {
  size_t at = j->count / 2; /* from the largest: the lower one of two */
  return at < listed ? values[at] : 0;
}

/* ---- By stack ---- */

static int compare_entries(const void *a, const void *b) {
  const entry *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return (x->position > y->position) - (x->position < y->position);
}

static void note(judging *j, const entry *e, uint64_t median, uint64_t median_count, bool is_alone,
                 bool is_exact) {
  excess *of = &j->of[e->position];
  uint64_t bytes = e->bytes - median;
  uint32_t stack = (uint32_t)(e->key >> 8);
  of->bytes = tsr__sum_u64(of->bytes, bytes);
  if (is_exact) of->exact = tsr__sum_u64(of->exact, bytes);
  of->by_category[e->category] += bytes;
  if (is_alone) of->alone += bytes;
  if (stack != TSR_NONE && j->is_expert[stack]) of->experts += bytes;
  bool has_more = e->count > median_count + median_count / 10;
  if (median && has_more) of->more += bytes;
  if (median && !has_more) of->larger += bytes;
  of->larger_stacks += median && !has_more;
  if (median && !has_more) of->larger_from = tsr__sum_u64(of->larger_from, median);
  if (stack == TSR_NONE || bytes <= of->most_bytes) return;
  of->most_bytes = bytes;
  of->most_stack = stack;
}

/* How many of a run have the largest count, if all others have one smaller count; 0 if they do not. Numbers of tensors do not vary as
 * their sizes do. */
static size_t apart_by_count(const judging *j, const entry *run, size_t listed, uint64_t *most,
                             uint64_t *next) {
  size_t with_most = 0;
  *most = 0;
  *next = listed < j->count ? 0 : UINT64_MAX;
  for (size_t i = 0; i < listed; i++) *most = run[i].count > *most ? run[i].count : *most;
  for (size_t i = 0; i < listed; i++) {
    with_most += run[i].count == *most;
    if (run[i].count == *most) continue;
    if (*next != UINT64_MAX && run[i].count != *next) return 0;
    *next = run[i].count;
  }
  bool is_clear =
      with_most <= tsr__most_apart(j->count) && j->count - with_most >= TSR__LEAST_EQUALS - 1;
  return is_clear ? with_most : 0;
}

/* One kind: a run of entries, largest first. */
static void judge_kind(judging *j, const entry *run, size_t listed, uint64_t *values) {
  for (size_t i = 0; i < listed; i++) values[i] = run[i].bytes;
  bool is_exact = false;
  size_t count = apart(j, values, listed, &is_exact);
  uint64_t median = median_of(j, values, listed), most, next;
  uint64_t median_count = j->count / 2 < listed ? run[j->count / 2].count : 0;
  for (size_t i = 0; i < count; i++)
    note(j, &run[i], median, median_count, listed <= tsr__most_apart(j->count), is_exact);
  size_t by_count = median ? apart_by_count(j, run, listed, &most, &next) : 0;
  for (size_t i = 0; by_count && i < listed; i++) {
    if (run[i].count != most || (i < count && is_exact)) continue;
    if (i < count) { /* known already, but not as exact */
      j->of[run[i].position].exact += run[i].bytes - median;
      continue;
    }
    uint64_t share = run[i].bytes / most * (most - next);
    if (run[i].bytes > median && run[i].bytes - median < share) share = run[i].bytes - median;
    if (run[i].bytes > median) note(j, &run[i], run[i].bytes - share, median_count, false, true);
  }
}

static bool judge_stacks(judging *j, uint64_t *values) {
  TSR__VECTOR(entry) entries = {0};
  bool ok = true;
  for (size_t i = 0; ok && i < j->count; i++) {
    const tsr__sketch_shares *shares = &member_at(j, i)->sketch.highs;
    for (size_t k = 0; ok && k < shares->count; k++) {
      const tsr__sketch_share *s = &shares->items[k];
      uint64_t key = (uint64_t)s->stack << 8 | (s->stack == TSR_NONE ? s->category : 0);
      entry e = {key, s->bytes, s->count, i, s->category};
      ok = TSR__VECTOR_PUSH(&entries, e);
    }
  }
  if (ok && entries.count) tsr__sort(entries.items, entries.count, sizeof(entry), compare_entries);
  for (size_t i = 0; ok && i < entries.count;) {
    size_t end = i + 1; /* a sketch that lies may have a kind twice */
    while (end < entries.count && entries.items[end].key == entries.items[i].key) end++;
    judge_kind(j, entries.items + i, end - i < j->count ? end - i : j->count, values);
    i = end;
  }
  TSR__VECTOR_FREE(&entries);
  return ok;
}

/* ---- Of the whole, and from step to step ---- */

typedef struct ranked {
  uint64_t bytes;
  size_t position;
} ranked;

static int compare_ranked(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return (x->position > y->position) - (x->position < y->position);
}

typedef uint64_t value_fn(const tsr__member *member);

static uint64_t peak_value(const tsr__member *member) {
  return member->sketch.peak_bytes;
}

/* What stays of each step, of stacks that leave something in a third of them or more: a cache that is filled once is no leak. */
static uint64_t kept_value(const tsr__member *member) {
  uint64_t sum = 0;
  for (size_t i = 0; i < member->sketch.kept.count; i++) {
    const tsr__sketch_share *kept = &member->sketch.kept.items[i];
    bool is_once = kept->count < 2 || kept->count * 3 < member->sketch.kept_steps;
    if (!is_once) sum = tsr__sum_u64(sum, kept->bytes);
  }
  return member->sketch.kept_steps ? sum / member->sketch.kept_steps : 0;
}

/* Call `found` of each that stands apart, with what it has beyond the median. */
static void judge_value(judging *j, value_fn *value, ranked *order, uint64_t *values,
                        void (*found)(excess *of, uint64_t bytes, bool is_exact)) {
  for (size_t i = 0; i < j->count; i++) order[i] = (ranked){value(member_at(j, i)), i};
  tsr__sort(order, j->count, sizeof *order, compare_ranked);
  for (size_t i = 0; i < j->count; i++) values[i] = order[i].bytes;
  bool is_exact = false;
  size_t count = apart(j, values, j->count, &is_exact);
  uint64_t median = median_of(j, values, j->count);
  for (size_t i = 0; i < count; i++)
    found(&j->of[order[i].position], order[i].bytes - median, is_exact);
}

static void found_peak(excess *of, uint64_t bytes, bool is_exact) {
  of->peak = bytes;
  if (is_exact && bytes > of->exact) of->exact = bytes;
}

static void found_kept(excess *of, uint64_t bytes, bool is_exact) {
  (void)is_exact;
  of->kept = bytes;
}

/* ---- Causes ---- */

static bool has_word(tsr_text text, const char *word) {
  size_t length = strlen(word);
  for (size_t i = 0; i + length <= text.size_bytes; i++) {
    size_t k = 0;
    while (k < length && (text.data[i + k] | 32) == word[k]) k++;
    if (k == length) return true;
  }
  return false;
}

/* Whether a stack is in a layer of experts, by the names of its functions and files. */
static bool is_expert_stack(const tsr_snapshot *stacks, uint32_t stack) {
  tsr_stack s = tsr_snapshot_stack(stacks, stack);
  for (uint32_t i = 0; i < s.depth; i++) {
    tsr_frame frame = tsr_snapshot_frame(stacks, s.frames[i]);
    tsr_text name = tsr_snapshot_string(stacks, frame.name);
    tsr_text file = tsr_snapshot_string(stacks, frame.file);
    if (has_word(name, "expert") || has_word(file, "expert") || has_word(name, "moe")) return true;
  }
  return false;
}

static uint64_t activations_of(const tsr__member *m) {
  return m->category_bytes[TSR_CATEGORY_ACTIVATION] + m->category_bytes[TSR_CATEGORY_RECOMPUTED];
}

static double ratio(uint64_t a, uint64_t b) {
  return b ? (double)a / (double)b : 0;
}

static void say_twice(const char *what, double times, char text[200]) {
  if (times > 1.9 && times < 2.1)
    (void)snprintf(text, 200, "%s twice", what);
  else if (times >= 1.05)
    (void)snprintf(text, 200, "%.2g times as much memory for %s", times, what);
  else
    (void)snprintf(text, 200, "memory for %s that its equals do not have", what);
}

/* Where stacks say little, as memory without stacks does: what differs from the median rank, by category, in their place. */
static void look_at_categories(excess *of, const tsr__member *m, const tsr__member *median) {
  of->bytes = of->alone = of->experts = of->more = of->larger = 0;
  of->is_by_category = true;
  of->larger_from = activations_of(median);
  for (int c = 0; c < TSR_CATEGORY_COUNT; c++) {
    of->by_category[c] = tsr__drop_u64(m->category_bytes[c], median->category_bytes[c]);
    of->bytes = tsr__sum_u64(of->bytes, of->by_category[c]);
  }
  uint64_t activations = of->by_category[TSR_CATEGORY_ACTIVATION];
  *(m->live_count > median->live_count + median->live_count / 10 ? &of->more : &of->larger) =
      activations;
}

static tsr_rank_cause explain(const judging *j, size_t position, uint64_t bytes,
                              const tsr__member *median, char text[200]) {
  excess *of = &j->of[position];
  const tsr__member *m = member_at(j, position);
  /* Memory that nobody else has says what it is, however little it is of a peak that varies. */
  uint64_t above = tsr__drop_u64(m->sketch.peak_bytes, median->sketch.peak_bytes);
  if (bytes < above && of->alone < of->bytes / 2) bytes = above;
  if (of->bytes < bytes / 2) look_at_categories(of, m, median);
  uint64_t most = of->bytes - of->bytes / 5 * 2 + 1; /* more than three fifths */
  uint64_t activations =
      of->by_category[TSR_CATEGORY_ACTIVATION] + of->by_category[TSR_CATEGORY_RECOMPUTED];
  double times = 1 + ratio(of->larger, of->larger_from);
  char size[TSR__FORMAT_BYTES];
  if (of->kept) {
    (void)snprintf(text, 200, "a leak: %s more in each step", tsr__format_size(of->kept, size));
    return TSR_CAUSE_LEAK;
  }
  if (of->by_category[TSR_CATEGORY_OPTIMIZER_STATE] >= most) {
    say_twice("the optimizer's state",
              ratio(m->category_bytes[TSR_CATEGORY_OPTIMIZER_STATE],
                    median->category_bytes[TSR_CATEGORY_OPTIMIZER_STATE]),
              text);
    return TSR_CAUSE_OPTIMIZER;
  }
  if (of->by_category[TSR_CATEGORY_PARAMETER] >= most) {
    say_twice("parameters",
              ratio(m->category_bytes[TSR_CATEGORY_PARAMETER],
                    median->category_bytes[TSR_CATEGORY_PARAMETER]),
              text);
    return TSR_CAUSE_PARAMETERS;
  }
  if (of->alone >= most) {
    (void)snprintf(text, 200, "%s", m->rank ? "work that no equal does" : "rank 0's extra work");
    return TSR_CAUSE_EXTRA_WORK;
  }
  if (of->more >= most) {
    (void)snprintf(text, 200, "micro-batches in flight: %.2g times as many tensors",
                   ratio(m->live_count, median->live_count));
    return TSR_CAUSE_IN_FLIGHT;
  }
  if (of->experts >= most) {
    (void)snprintf(text, 200, "one expert's load");
    return TSR_CAUSE_EXPERT;
  }
  bool is_everywhere = of->is_by_category || of->larger_stacks > 1;
  if (is_everywhere && of->larger >= most && activations >= most && times >= 1.05) {
    (void)snprintf(text, 200, "longer sequences: tensors %.2g times as large", times);
    return TSR_CAUSE_SEQUENCE;
  }
  (void)snprintf(text, 200, "nothing shows why");
  return TSR_CAUSE_UNKNOWN;
}

const char *tsr_rank_cause_name(tsr_rank_cause cause) {
  switch (cause) {
  case TSR_CAUSE_OTHER_DEVICE: return "other_device";
  case TSR_CAUSE_LEAK: return "leak";
  case TSR_CAUSE_OPTIMIZER: return "optimizer_state";
  case TSR_CAUSE_PARAMETERS: return "parameters";
  case TSR_CAUSE_EXTRA_WORK: return "extra_work";
  case TSR_CAUSE_EXPERT: return "expert_load";
  case TSR_CAUSE_IN_FLIGHT: return "in_flight";
  case TSR_CAUSE_SEQUENCE: return "longer_sequences";
  case TSR_CAUSE_UNKNOWN:
  case TSR_CAUSE_COUNT: break;
  }
  return "unknown";
}

/* ---- Changes ---- */

static int compare_keys(const void *a, const void *b) {
  const tsr_rank_change *x = a, *y = b;
  if (x->stack != y->stack) return x->stack < y->stack ? -1 : 1;
  return (x->category > y->category) - (x->category < y->category);
}

static uint64_t size_of(int64_t delta) {
  return delta < 0 ? 0 - (uint64_t)delta : (uint64_t)delta;
}

static int compare_changes(const void *a, const void *b) {
  const tsr_rank_change *x = a, *y = b;
  uint64_t p = size_of(x->delta_bytes), q = size_of(y->delta_bytes);
  if (p != q) return p < q ? 1 : -1;
  return compare_keys(a, b);
}

static void add_change(tsr_rank_outlier *out, const tsr__sketch_share *share, bool is_median) {
  tsr_rank_change *c = &out->changes[out->change_count++];
  *c = (tsr_rank_change){.category = (tsr_category)share->category, .stack = share->stack};
  *(is_median ? &c->median_bytes : &c->bytes) = share->bytes;
}

/* Join the entries of one kind, drop those that do not differ, and keep the largest: the others become one. */
static void fold_changes(tsr_rank_outlier *out, int64_t rest, size_t top) {
  size_t kept = 0;
  tsr_rank_change *items = out->changes;
  tsr__sort(items, out->change_count, sizeof *items, compare_keys);
  for (size_t i = 0; i < out->change_count; i++) {
    if (kept && !compare_keys(&items[kept - 1], &items[i])) {
      items[kept - 1].bytes += items[i].bytes;
      items[kept - 1].median_bytes += items[i].median_bytes;
    } else {
      items[kept++] = items[i];
    }
  }
  size_t differ = 0;
  uint64_t more = 0;
  for (size_t i = 0; i < kept; i++) {
    items[i].delta_bytes = (int64_t)(items[i].bytes - items[i].median_bytes);
    if (items[i].delta_bytes > 0) more = tsr__sum_u64(more, (uint64_t)items[i].delta_bytes);
    if (items[i].delta_bytes) items[differ++] = items[i];
  }
  tsr__sort(items, differ, sizeof *items, compare_changes);
  /* Highs of several stacks need not be at the same moment: no more than what is there at the peak. */
  if (out->excess_bytes > more) out->excess_bytes = more;
  size_t shown = top && differ > top ? top : differ;
  uint64_t others = (uint64_t)rest;
  for (size_t i = shown; i < differ; i++) others += (uint64_t)items[i].delta_bytes;
  out->others = differ - shown;
  out->change_count = shown;
  if (!others && !out->others) return;
  out->others += rest != 0;
  items[out->change_count++] = (tsr_rank_change){
      .delta_bytes = (int64_t)others, .stack = TSR_NONE, .category = TSR_CATEGORY_UNKNOWN};
}

static bool list_changes(const tsr__member *m, const tsr__member *median, size_t top,
                         tsr_rank_outlier *out) {
  size_t most = m->sketch.shares.count + (median ? median->sketch.shares.count : 0) + 1;
  uint64_t rest = (uint64_t)m->sketch.rest_bytes;
  out->changes = TSR__NEW_ARRAY(tsr_rank_change, most);
  if (!out->changes) return false;
  for (size_t i = 0; i < m->sketch.shares.count; i++)
    add_change(out, &m->sketch.shares.items[i], false);
  for (size_t i = 0; median && i < median->sketch.shares.count; i++)
    add_change(out, &median->sketch.shares.items[i], true);
  if (median) rest -= (uint64_t)median->sketch.rest_bytes;
  fold_changes(out, (int64_t)rest, top);
  return true;
}

/* ---- A group ---- */

typedef TSR__VECTOR(tsr_rank_outlier) outlier_list;

static bool push(outlier_list *list, const tsr_rank_outlier *outlier) {
  if (TSR__VECTOR_PUSH(list, *outlier)) return true;
  tsr__free(outlier->changes);
  return false;
}

static uint32_t largest_kept(const tsr__member *m) {
  return m->sketch.kept.count ? m->sketch.kept.items[0].stack : TSR_NONE;
}

/* Where most of what it has more was allocated, by the changes. */
static uint32_t largest_change(const tsr_rank_outlier *out) {
  for (size_t i = 0; i < out->change_count; i++)
    if (out->changes[i].delta_bytes > 0 && out->changes[i].stack != TSR_NONE)
      return out->changes[i].stack;
  return TSR_NONE;
}

/* What a member has beyond its equals, or 0 if that is not worth a word. */
static uint64_t judge_excess(excess *of, const tsr__member *m, uint64_t median_peak) {
  uint64_t steps = m->sketch.whole_steps ? m->sketch.whole_steps : 1;
  uint64_t kept = tsr__product_u64(of->kept, steps), least = median_peak / LEAST_PART;
  uint64_t exact = of->exact, all = of->bytes > of->peak ? of->bytes : of->peak;
  if (kept <= least) of->kept = kept = 0;
  if (all < exact) all = exact;
  if (kept) return kept > exact ? kept : exact;
  return exact > least || all > median_peak / LEAST_VARYING_PART ? all : 0;
}

/* The median of the group; for itself another one, whose peak is next below its own, or above. */
static const tsr__member *compared_with(const judging *j, int64_t median_rank,
                                        const tsr__member *m) {
  const tsr__member *below = NULL, *above = NULL;
  for (size_t i = 0; i < j->count; i++) {
    const tsr__member *other = member_at(j, i);
    uint64_t peak = other->sketch.peak_bytes;
    if (other == m) continue;
    if (other->rank == median_rank) return other;
    if (peak <= m->sketch.peak_bytes && (!below || peak > below->sketch.peak_bytes)) below = other;
    if (peak > m->sketch.peak_bytes && (!above || peak < above->sketch.peak_bytes)) above = other;
  }
  assert(below || above);
  return below ? below : above;
}

int tsr__fleet_difference(const tsr__fleet *fleet, const tsr_ranks *ranks, size_t row, size_t top,
                          tsr_rank_outlier *out, tsr_error *error) {
  const tsr__member *m = &fleet->members.items[row], *median = NULL;
  size_t first = fleet->group_first.items[m->group];
  judging j = {.fleet = fleet,
               .members = fleet->by_group.items + first,
               .count = fleet->group_first.items[m->group + 1] - first};
  *out = (tsr_rank_outlier){.row = row, .group = m->group, .compared_with = -1, .stack = TSR_NONE};
  if (m->is_other || j.count < 2) return 0;
  median = compared_with(&j, ranks->groups[m->group].median_rank, m);
  out->compared_with = median->rank;
  out->delta_bytes = (int64_t)(m->sketch.peak_bytes - median->sketch.peak_bytes);
  return list_changes(m, median, top, out) ? 0 : tsr__fail_memory(error);
}

static int compare_outliers(const void *a, const void *b) {
  const tsr_rank_outlier *x = a, *y = b;
  if (x->excess_bytes != y->excess_bytes) return x->excess_bytes < y->excess_bytes ? 1 : -1;
  return (x->row > y->row) - (x->row < y->row);
}

/* Of more than can stand apart in a group only those whose excess stands apart from the others': else equals are simply unlike. `values`
 * has room for all of the group. */
static bool take_apart(const judging *j, outlier_list *found, uint64_t *values,
                       outlier_list *list) {
  size_t most = tsr__most_apart(j->count), kept = found->count;
  bool ok = true, is_exact;
  if (found->count > most) {
    tsr__sort(found->items, found->count, sizeof *found->items, compare_outliers);
    for (size_t i = 0; i < found->count; i++) values[i] = found->items[i].excess_bytes;
    kept = tsr__apart(values, found->count, j->count, most, &is_exact);
  }
  for (size_t i = 0; i < found->count; i++) {
    if (ok && i < kept)
      ok = push(list, &found->items[i]);
    else
      tsr__free(found->items[i].changes);
  }
  TSR__VECTOR_FREE(found);
  return ok;
}

static bool list_group(judging *j, size_t group, const tsr_ranks *ranks, size_t top,
                       uint64_t *values, outlier_list *list) {
  bool ok = true;
  outlier_list found = {0};
  for (size_t i = 0; ok && i < j->count; i++) {
    excess *of = &j->of[i];
    const tsr__member *m = member_at(j, i);
    uint64_t bytes = judge_excess(of, m, j->median_peak);
    if (!bytes) continue;
    const tsr__member *median = compared_with(j, ranks->groups[group].median_rank, m);
    tsr_rank_outlier out = {.row = j->members[i],
                            .group = group,
                            .compared_with = median->rank,
                            .delta_bytes =
                                (int64_t)(m->sketch.peak_bytes - median->sketch.peak_bytes),
                            .excess_bytes = bytes,
                            .stack = of->kept ? largest_kept(m) : of->most_stack};
    out.cause = explain(j, i, bytes, median, out.cause_text);
    ok = list_changes(m, median, top, &out);
    if (ok && of->is_by_category && !of->kept) out.stack = largest_change(&out);
    bool is_at_peak = out.excess_bytes > j->median_peak / LEAST_PART;
    if (ok && is_at_peak)
      ok = push(&found, &out);
    else
      tsr__free(out.changes);
  }
  return take_apart(j, &found, values, list) && ok;
}

static bool judge_group(const tsr__fleet *fleet, size_t group, const tsr_ranks *ranks, size_t top,
                        bool *is_expert, outlier_list *list) {
  size_t first = fleet->group_first.items[group];
  judging j = {.fleet = fleet,
               .members = fleet->by_group.items + first,
               .count = fleet->group_first.items[group + 1] - first,
               .median_peak = ranks->groups[group].median_bytes,
               .is_expert = is_expert};
  if (j.count < TSR__LEAST_EQUALS) return true;
  j.of = TSR__NEW_ARRAY(excess, j.count);
  ranked *order = TSR__NEW_ARRAY(ranked, j.count);
  uint64_t *values = TSR__NEW_ARRAY(uint64_t, j.count);
  bool ok = j.of && order && values;
  for (size_t i = 0; ok && i < j.count; i++) j.of[i].most_stack = TSR_NONE;
  ok = ok && judge_stacks(&j, values);
  if (ok) judge_value(&j, peak_value, order, values, found_peak);
  if (ok) judge_value(&j, kept_value, order, values, found_kept);
  ok = ok && list_group(&j, group, ranks, top, values, list);
  tsr__free(j.of);
  tsr__free(order);
  tsr__free(values);
  return ok;
}

/* Memory on a device beside the rank's own, unless half of the ranks have such. */
static bool list_others(const tsr__fleet *fleet, size_t top, outlier_list *list) {
  size_t others = 0;
  for (size_t i = 0; i < fleet->members.count; i++) others += fleet->members.items[i].is_other;
  bool ok = true;
  if (others * 4 >= fleet->members.count) return true;
  for (size_t i = 0; ok && i < fleet->members.count; i++) {
    const tsr__member *m = &fleet->members.items[i];
    if (!m->is_other) continue;
    tsr_rank_outlier out = {.row = i,
                            .group = m->group,
                            .compared_with = -1,
                            .delta_bytes = (int64_t)m->sketch.peak_bytes,
                            .excess_bytes = m->sketch.peak_bytes,
                            .cause = TSR_CAUSE_OTHER_DEVICE,
                            .stack = m->sketch.shares.count ? m->sketch.shares.items[0].stack
                                                            : TSR_NONE};
    (void)snprintf(out.cause_text, sizeof out.cause_text, "another process's device, %" PRIu32,
                   m->sketch.device);
    ok = list_changes(m, NULL, top, &out) && push(list, &out);
  }
  return ok;
}

int tsr__fleet_compare(const tsr__fleet *fleet, size_t top, tsr_ranks *out, tsr_error *error) {
  uint32_t stacks = tsr_snapshot_stack_count(fleet->stacks);
  bool *is_expert = TSR__NEW_ARRAY(bool, stacks + 1);
  outlier_list list = {0};
  bool ok = is_expert != NULL;
  for (uint32_t i = 0; ok && i < stacks; i++) is_expert[i] = is_expert_stack(fleet->stacks, i);
  for (size_t i = 0; ok && i < out->group_count; i++)
    if (tsr__is_compared(&fleet->members.items[fleet->by_group.items[fleet->group_first.items[i]]]))
      ok = judge_group(fleet, i, out, top, is_expert, &list);
  ok = ok && list_others(fleet, top, &list);
  tsr__sort(list.items, list.count, sizeof *list.items, compare_outliers);
  tsr__free(is_expert);
  out->outliers = list.items;
  out->outlier_count = list.count;
  return ok ? 0 : tsr__fail_memory(error);
}
