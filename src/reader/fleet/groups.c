/* groups.c - which ranks are equals.
 *
 * With a mesh, those at the same place of its pipeline: they run the same layers. Ranks that differ in other axes do the same work on
 * other data, or on another part of it.
 *
 * Without one, ranks with as much memory for parameters are alike: it depends on the layers and on nothing that varies. Stages with the
 * same layers still differ in how many micro-batches are in flight; so a cluster is divided where the numbers of their activations form
 * clear steps. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/sort.h"
#include "fleet/fleet.h"

/* How far equals may be from each other: padding of shards; and from where on numbers of activations are steps. */
#define SAME_PARAMETERS 1.01
#define STEP_OF_COUNTS  1.12
/* A cluster of fewer is not divided off by counts. */
enum { LEAST_PIECE = 3 };

static bool is_pipeline(const char *name) {
  return !strcmp(name, "pp") || !strncmp(name, "pipe", 4) || !strcmp(name, "stage");
}

static int64_t stage_of(const tsr__member *member) {
  for (size_t i = 0; i < member->place.axis_count; i++)
    if (is_pipeline(member->place.axes[i].name)) return member->place.axes[i].at;
  return -1;
}

/* ---- Likeness ---- */

/* A member, while it is sorted. */
typedef struct item {
  size_t member;
  double parameters, count;
  int64_t rank;
} item;

static int compare_parameters(const void *a, const void *b) {
  const item *x = a, *y = b;
  if (x->parameters != y->parameters) return x->parameters < y->parameters ? -1 : 1;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

static int compare_counts(const void *a, const void *b) {
  const item *x = a, *y = b;
  if (x->count != y->count) return x->count < y->count ? -1 : 1;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Where a run of sorted items ends that begins at `first`. */
static size_t run_end(const item *items, size_t first, size_t count, bool by_counts) {
  size_t end = first + 1;
  for (; end < count; end++) {
    double a = by_counts ? items[end - 1].count : items[end - 1].parameters;
    double b = by_counts ? items[end].count : items[end].parameters;
    if (b > a * (by_counts ? STEP_OF_COUNTS : SAME_PARAMETERS)) break;
  }
  return end;
}

/* The piece of enough members whose counts are nearest to those of the items from `first` to `end`; `end` of no such piece is 0. */
static size_t nearest_piece(const item *items, size_t count, size_t first, size_t end) {
  double least = INFINITY;
  size_t found = count;
  for (size_t i = 0; i < count;) {
    size_t piece_end = run_end(items, i, count, true);
    double off = i < first ? items[first].count / fmax(items[piece_end - 1].count, 1)
                           : items[i].count / fmax(items[end - 1].count, 1);
    if (piece_end - i >= LEAST_PIECE && off < least) {
      least = off;
      found = i;
    }
    i = piece_end;
  }
  return found;
}

/* Number the pieces of a cluster; one if its counts form no clear steps. The few that are in no piece of their own belong to the nearest. */
static size_t number_pieces(tsr__fleet *fleet, item *items, size_t count, size_t next) {
  size_t single = 0;
  tsr__sort(items, count, sizeof *items, compare_counts);
  for (size_t i = 0; i < count;) {
    size_t end = run_end(items, i, count, true);
    if (end - i < LEAST_PIECE) single += end - i;
    i = end;
  }
  bool is_clear = single <= 1 + count / 16 && single < count;
  for (size_t i = 0; i < count;) {
    size_t end = is_clear ? run_end(items, i, count, true) : count;
    bool is_piece = !is_clear || end - i >= LEAST_PIECE;
    for (size_t k = i; is_piece && k < end; k++) fleet->members.items[items[k].member].group = next;
    next += is_piece;
    i = end;
  }
  for (size_t i = 0; is_clear && i < count;) {
    size_t end = run_end(items, i, count, true);
    size_t piece = end - i < LEAST_PIECE ? nearest_piece(items, count, i, end) : count;
    for (size_t k = i; piece < count && k < end; k++)
      fleet->members.items[items[k].member].group = fleet->members.items[items[piece].member].group;
    i = end;
  }
  return next;
}

/* Where nine of ten are alike the rest are no stages, but equals that something has happened to. */
static void join_rest(tsr__fleet *fleet, const item *items, size_t count) {
  size_t sizes_of_first = 0;
  for (size_t i = 0; i < count; i++) {
    size_t alike = 0, group = fleet->members.items[items[i].member].group;
    for (size_t k = 0; k < count; k++)
      alike += fleet->members.items[items[k].member].group == group;
    if (alike * 10 >= count * 9 && count - alike <= 1 + count / 16 && count >= 4) {
      for (size_t k = 0; k < count; k++) fleet->members.items[items[k].member].group = group;
      return;
    }
    if (++sizes_of_first == 16) return; /* such a group is found at once, if there is one */
  }
}

/* What the member holds of a stack for parameters. */
static uint64_t parameters_of(const tsr__member *m, uint32_t stack) {
  for (size_t i = 0; i < m->sketch.highs.count; i++)
    if (m->sketch.highs.items[i].stack == stack) return m->sketch.highs.items[i].bytes;
  return 0;
}

/* Whether a member has all parameters of another, whatever else it has. */
static bool has_parameters(const tsr__member *m, const tsr__member *of) {
  size_t seen = 0;
  for (size_t i = 0; i < of->sketch.highs.count; i++) {
    const tsr__sketch_share *high = &of->sketch.highs.items[i];
    if (high->category != TSR_CATEGORY_PARAMETER || high->stack == TSR_NONE) continue;
    uint64_t bytes = parameters_of(m, high->stack);
    if (bytes < high->bytes || (double)bytes > (double)high->bytes * SAME_PARAMETERS) return false;
    seen++;
  }
  return seen != 0;
}

/* A rank that is like no other, but has all that a group has: something was added to it. Of several groups the one with as many
 * activations. */
static void join_single(tsr__fleet *fleet, const item *items, size_t count, const size_t *sizes,
                        const size_t *firsts, size_t groups) {
  for (size_t i = 0; i < count; i++) {
    tsr__member *m = &fleet->members.items[items[i].member];
    size_t into = m->group;
    double least = INFINITY;
    for (size_t g = 0; sizes[m->group] == 1 && g < groups; g++) {
      const item *first = &items[firsts[g]];
      double off = fabs(first->count - items[i].count);
      if (sizes[g] < LEAST_PIECE || off >= least ||
          !has_parameters(m, &fleet->members.items[first->member]))
        continue;
      least = off;
      into = g;
    }
    m->group = into;
  }
}

static bool group_alike(tsr__fleet *fleet, item *items, size_t count, size_t *next) {
  tsr__sort(items, count, sizeof *items, compare_parameters);
  for (size_t i = 0; i < count;) {
    size_t end = run_end(items, i, count, false);
    *next = number_pieces(fleet, items + i, end - i, *next);
    i = end;
  }
  size_t *sizes = TSR__NEW_ARRAY(size_t, *next), *firsts = TSR__NEW_ARRAY(size_t, *next);
  bool ok = sizes && firsts;
  for (size_t i = 0; ok && i < count; i++) {
    size_t group = fleet->members.items[items[i].member].group;
    if (!sizes[group]++) firsts[group] = i;
  }
  if (ok) join_single(fleet, items, count, sizes, firsts, *next);
  if (ok) join_rest(fleet, items, count);
  tsr__free(sizes);
  tsr__free(firsts);
  return ok;
}

/* Members that are grouped by themselves. */
typedef enum kind { EQUALS, PARTIAL, OTHERS, KINDS } kind;

static kind kind_of(const tsr__member *m) {
  return m->is_other ? OTHERS : m->is_partial ? PARTIAL : EQUALS;
}

static bool group_all(tsr__fleet *fleet, kind which, size_t *next) {
  size_t count = 0;
  item *items = TSR__NEW_ARRAY(item, fleet->members.count);
  for (size_t i = 0; items && i < fleet->members.count; i++) {
    const tsr__member *m = &fleet->members.items[i];
    if (kind_of(m) != which) continue;
    items[count++] = (item){i, (double)m->category_bytes[TSR_CATEGORY_PARAMETER],
                            (double)m->live_count, m->rank};
  }
  bool ok = items && (!count || which != EQUALS || group_alike(fleet, items, count, next));
  for (size_t i = 0; items && which != EQUALS && i < count; i++)
    fleet->members.items[items[i].member].group = *next;
  if (items && which != EQUALS && count) ++*next;
  tsr__free(items);
  return ok;
}

/* ---- Any ---- */

static void group_by_stage(tsr__fleet *fleet, size_t *next) {
  int64_t most = -1;
  for (size_t i = 0; i < fleet->members.count; i++) {
    int64_t stage = stage_of(&fleet->members.items[i]);
    if (stage > most) most = stage;
  }
  for (size_t i = 0; i < fleet->members.count; i++) {
    tsr__member *m = &fleet->members.items[i];
    m->group = (size_t)((kind_of(m) == EQUALS ? stage_of(m) : most + (int64_t)kind_of(m)) + 1);
  }
  *next = (size_t)(most + 1 + KINDS);
}

static bool has_mesh(const tsr__fleet *fleet) {
  for (size_t i = 0; i < fleet->members.count; i++)
    if (!fleet->members.items[i].place.axis_count) return false;
  return fleet->members.count != 0;
}

typedef struct by_peak {
  uint64_t bytes;
  int64_t rank;
} by_peak;

static int compare_peaks(const void *a, const void *b) {
  const by_peak *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

static void name_group(const tsr__fleet *fleet, const tsr__member *first, size_t groups,
                       tsr_rank_group *group) {
  int64_t stage = stage_of(first);
  if (kind_of(first) == PARTIAL)
    (void)snprintf(group->name, sizeof group->name, "cut off");
  else if (kind_of(first) == OTHERS)
    (void)snprintf(group->name, sizeof group->name, "other devices");
  else if (fleet->mesh_source != TSR_MESH_FROM_LIKENESS && stage >= 0)
    (void)snprintf(group->name, sizeof group->name, "pp %" PRId64, stage);
  else if (groups == 1 || fleet->mesh_source != TSR_MESH_FROM_LIKENESS)
    (void)snprintf(group->name, sizeof group->name, "all");
  else
    (void)snprintf(group->name, sizeof group->name, "like rank %" PRId64, first->rank);
}

static bool fill_group(const tsr__fleet *fleet, size_t number, size_t groups,
                       tsr_rank_group *group) {
  const size_t *members = fleet->by_group.items + fleet->group_first.items[number];
  size_t count = fleet->group_first.items[number + 1] - fleet->group_first.items[number];
  by_peak *peaks = TSR__NEW_ARRAY(by_peak, count);
  group->ranks = TSR__NEW_ARRAY(int64_t, count);
  if (!peaks || !group->ranks) {
    tsr__free(peaks);
    return false;
  }
  assert(count);
  for (size_t i = 0; i < count; i++) {
    const tsr__member *m = &fleet->members.items[members[i]];
    group->ranks[i] = m->rank;
    peaks[i] = (by_peak){m->sketch.peak_bytes, m->rank};
  }
  tsr__sort(peaks, count, sizeof *peaks, compare_peaks);
  group->rank_count = count;
  group->min_bytes = peaks[0].bytes;
  group->max_bytes = peaks[count - 1].bytes;
  group->median_bytes = peaks[(count - 1) / 2].bytes;
  group->median_rank = peaks[(count - 1) / 2].rank;
  name_group(fleet, &fleet->members.items[members[0]], groups, group);
  tsr__free(peaks);
  return true;
}

/* Give groups the order of the lowest ranks in them, and list their members. */
static bool list_groups(tsr__fleet *fleet, size_t next, size_t *count) {
  size_t members = fleet->members.count;
  size_t *new_of = TSR__NEW_ARRAY(size_t, next + 1);
  bool ok = new_of && TSR__VECTOR_RESERVE(&fleet->by_group, members) &&
            TSR__VECTOR_RESERVE(&fleet->group_first, next + 2);
  *count = 0;
  for (size_t i = 0; ok && i < members; i++) {
    tsr__member *m = &fleet->members.items[i];
    assert(m->group <= next);
    if (!new_of[m->group]) new_of[m->group] = ++*count;
    m->group = new_of[m->group] - 1;
  }
  tsr__free(new_of);
  if (!ok) return false;
  size_t *first = fleet->group_first.items; /* counting sort, which keeps the order of ranks */
  fleet->group_first.count = *count + 1;
  fleet->by_group.count = members;
  for (size_t i = 0; i <= *count; i++) first[i] = 0;
  for (size_t i = 0; i < members; i++) first[fleet->members.items[i].group + 1]++;
  for (size_t i = 0; i < *count; i++) first[i + 1] += first[i];
  for (size_t i = 0; i < members; i++)
    fleet->by_group.items[first[fleet->members.items[i].group]++] = i;
  for (size_t i = *count; i > 0; i--) first[i] = first[i - 1];
  first[0] = 0;
  return true;
}

int tsr__fleet_group(tsr__fleet *fleet, tsr_ranks *out, tsr_error *error) {
  size_t next = 0, count = 0;
  bool ok = true;
  if (fleet->mesh_source != TSR_MESH_GIVEN)
    fleet->mesh_source = !has_mesh(fleet)                              ? TSR_MESH_FROM_LIKENESS
                         : fleet->rank_source == TSR_RANK_FROM_SIDECAR ? TSR_MESH_FROM_SIDECAR
                                                                       : TSR_MESH_FROM_NAME;
  if (fleet->mesh_source != TSR_MESH_FROM_LIKENESS)
    group_by_stage(fleet, &next);
  else
    ok = group_all(fleet, EQUALS, &next) && group_all(fleet, PARTIAL, &next) &&
         group_all(fleet, OTHERS, &next);
  ok = ok && list_groups(fleet, next, &count);
  out->groups = ok ? TSR__NEW_ARRAY(tsr_rank_group, count) : NULL;
  ok = ok && out->groups;
  for (size_t i = 0; ok && i < count; i++) {
    out->group_count = i + 1;
    ok = fill_group(fleet, i, count, &out->groups[i]);
  }
  return ok ? 0 : tsr__fail_memory(error);
}
