/* view_groups.c - which group is each allocation in? One function per grouping, one row in a table.
 *
 * A grouping gives every allocation a key; keys become groups in the order in which they appear.
 * What `tessera profile` divides by too comes of study/grouping.h, so that they agree. Names are
 * the snapshot's strings or are spelled here. Past TSR_VIEW_GROUPS_MAX the keys share the last group. A
 * grouping that puts everything into one group is left out, but for the category and the user's rules. */
#include "page/view_groups.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/sort.h"
#include "timeline/pools.h"

enum { NAME_BYTES = TSR__POOL_NAME_BYTES };

#define BY_STREAM "stream" /* a grouping of pages alone, as those by function and size */

/* In the order in which messages list them; the page has a key for each (viewer/src). */
const char *const tsr_page_groupings[] = {
    TSR_BY_CATEGORY, TSR_BY_ANNOTATION,   TSR_BY_COMPILE_CONTEXT,
    TSR_BY_RULES,    TSR_BY_OP,           TSR_BY_MODULE,
    TSR_BY_LINE,     TSR_BY_METADATA,     BY_STREAM,
    TSR_BY_POOL,     TSR_BY_STACK,        "function",
    "size",          TSR_BY_METADATA_KEY, NULL};

/* Groups that study/grouping.h does not have: what was there before the recording, and what is not
 * distinguished. */
#define GROUP_OLDER  UINT32_MAX
#define GROUP_OTHERS (UINT32_MAX - 1)

typedef struct maker {
  const tsr__timeline *timeline;
  const tsr__view_shared *shared;
  const tsr__categories *kinds;
  tsr_view_grouping *out;
  uint64_t keys[TSR_VIEW_GROUPS_MAX];
  uint8_t last;       /* group of the last key looked up */
  bool is_bare;       /* every allocation is in the group for those without one */
  uint32_t *spans_of; /* by allocation, see timeline/pools.h */
  tsr__pool_uses pools;
  tsr_view_device *device;
} maker;

/* The group of a key; a new one gets the name `text`, or an empty name to be filled in later. */
static uint8_t group_of(maker *m, uint64_t key, tsr_text text) {
  tsr_view_grouping *out = m->out;
  if (out->count && m->keys[m->last] == key) return m->last;
  for (size_t i = 0; i < out->count; i++)
    if (m->keys[i] == key) return m->last = (uint8_t)i;
  if (out->count == TSR_VIEW_GROUPS_MAX) return TSR_VIEW_GROUPS_MAX - 1;
  if (out->count == TSR_VIEW_GROUPS_MAX - 1) text = (tsr_text){"(others)", 8};
  assert(out->count < TSR_VIEW_GROUPS_MAX);
  m->keys[out->count] = key;
  out->names[out->count] = text;
  m->last = (uint8_t)out->count++;
  return m->last;
}

static tsr_text text_of(const char *string) {
  return (tsr_text){string, strlen(string)};
}

/* Name a group that has no name yet with the text in `spelled`. */
static char *spell(tsr_view_grouping *out, size_t group) {
  return out->spelled + group * NAME_BYTES;
}

static void spell_done(tsr_view_grouping *out, size_t group) {
  if (!out->names[group].data) out->names[group] = text_of(spell(out, group));
}

/* ---- category ---- */

static bool by_category(maker *m) {
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++)
    (void)group_of(m, (uint64_t)i, text_of(tsr_category_name((tsr_category)i)));
  assert(m->kinds->count == m->timeline->birth.count && m->out->count == TSR_CATEGORY_COUNT);
  memcpy(m->out->group, m->kinds->category, m->timeline->birth.count);
  return true;
}

/* ---- where the memory is ---- */

static bool by_stream(maker *m) {
  const tsr__timeline *t = m->timeline;
  for (size_t a = 0; a < t->birth.count; a++) {
    uint32_t birth = t->birth.items[a];
    uint32_t stream = birth != TSR_NONE ? tsr_id_at(t->events.stream, birth)
                                        : tsr__stream_of(t, m->spans_of, (uint32_t)a);
    m->out->group[a] = group_of(m, stream, (tsr_text){0});
  }
  for (size_t i = 0; i < m->out->count; i++) {
    uint64_t handle = tsr_snapshot_stream(t->snapshot, (uint32_t)m->keys[i]);
    if (m->keys[i] == TSR_NONE)
      snprintf(spell(m->out, i), NAME_BYTES, "stream unknown");
    else if (!handle)
      snprintf(spell(m->out, i), NAME_BYTES, "default stream");
    else
      snprintf(spell(m->out, i), NAME_BYTES, "stream 0x%" PRIx64, handle);
    spell_done(m->out, i);
  }
  return true;
}

/* Keys: of the default pool its id times two, plus 1 for large blocks; of private pools this bit and the
 * number of the use (timeline/pools.h), whatever the size, because what a pool keeps is not distinguished
 * by size. */
#define PRIVATE (UINT64_C(1) << 40)

static uint64_t pool_key(const maker *m, uint32_t a) {
  const tsr__timeline *t = m->timeline;
  uint32_t pool = tsr__pool_of(t, m->spans_of, a), span = m->spans_of[a];
  uint32_t use = tsr__pool_uses_find(&m->pools, t, pool, tsr__stream_of(t, m->spans_of, a));
  if (use != TSR_NONE) return PRIVATE | use;
  bool is_large = span != TSR_NONE ? t->spans.items[span].is_large
                                   : t->block_bytes.items[a] > (UINT64_C(1) << 20);
  return (uint64_t)pool << 1 | is_large;
}

typedef struct ranked_use {
  uint64_t bytes;
  uint32_t use;
} ranked_use;

static int compare_ranked(const void *a, const void *b) {
  const ranked_use *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return (x->use > y->use) - (x->use < y->use);
}

/* A group for each private pool, also where no block of it is live in the trace, those that keep
 * most first; past the last group they share it. Then what each group's pools have taken. */
static bool add_pools(maker *m) {
  size_t count = m->pools.uses.count, steps = m->pools.steps.count;
  tsr_view_device *d = m->device;
  ranked_use *order = TSR__NEW_ARRAY(ranked_use, count);
  uint64_t *bytes_of = TSR__NEW_ARRAY(uint64_t, count), sums[TSR_VIEW_GROUPS_MAX] = {0};
  uint8_t *group_of_use = TSR__NEW_ARRAY(uint8_t, count);
  d->pool_marks = TSR__NEW_ARRAY(tsr_view_pool_mark, steps);
  bool ok = order && bytes_of && group_of_use && d->pool_marks;
  for (uint32_t i = 0; ok && i < count; i++)
    order[i] = (ranked_use){m->pools.uses.items[i].high_water_bytes, i};
  if (ok && count) tsr__sort(order, count, sizeof *order, compare_ranked);
  for (size_t i = 0; ok && i < count; i++)
    group_of_use[order[i].use] = group_of(m, PRIVATE | order[i].use, (tsr_text){0});
  for (size_t i = 0; ok && i < steps; i++) {
    const tsr__pool_step *step = &m->pools.steps.items[i];
    uint8_t group = group_of_use[step->use];
    assert(step->bytes > bytes_of[step->use] && step->event >= -1);
    sums[group] = tsr__sum_u64(sums[group], step->bytes - bytes_of[step->use]);
    bytes_of[step->use] = step->bytes;
    d->pool_marks[i] = (tsr_view_pool_mark){(uint32_t)(step->event + 1), group, sums[group]};
  }
  if (ok) d->pool_mark_count = steps;
  tsr__free(order);
  tsr__free(bytes_of);
  tsr__free(group_of_use);
  return ok;
}

static void name_pool(maker *m, size_t group) {
  uint64_t key = m->keys[group];
  uint32_t id = (uint32_t)(key >> 1);
  char name[TSR__POOL_NAME_BYTES];
  if (key & PRIVATE) {
    tsr__pool_use_name(&m->pools, m->timeline, (uint32_t)(key & ~PRIVATE), name);
    snprintf(spell(m->out, group), NAME_BYTES, "%s", name);
  } else {
    snprintf(spell(m->out, group), NAME_BYTES, id == TSR_NONE ? "%s blocks" : "default pool, %s",
             key & 1 ? "large" : "small");
  }
  spell_done(m->out, group);
}

static bool by_pool(maker *m) {
  const tsr__timeline *t = m->timeline;
  /* The default pool's groups come first, so that they are not what shares the last one. */
  for (size_t a = 0; a < t->birth.count; a++) {
    uint64_t key = pool_key(m, (uint32_t)a);
    if (!(key & PRIVATE)) m->out->group[a] = group_of(m, key, (tsr_text){0});
  }
  if (m->pools.uses.count && !add_pools(m)) return false;
  for (size_t a = 0; m->pools.uses.count && a < t->birth.count; a++) {
    uint64_t key = pool_key(m, (uint32_t)a);
    if (key & PRIVATE) m->out->group[a] = group_of(m, key, (tsr_text){0});
  }
  for (size_t i = 0; i < m->out->count; i++) name_pool(m, i);
  return true;
}

/* ---- what the program recorded about itself ---- */

/* What to call a group of study/grouping.h that stands for having none, by tsr_profile_by; its
 * own name there is empty, or what PyTorch writes. */
static tsr_text none_of(tsr_profile_by by, tsr_text name) {
  bool is_none = !name.size_bytes || (name.size_bytes == 3 && memcmp(name.data, "N/A", 3) == 0);
  if (by == TSR_PROFILE_BY_ANNOTATION && !name.size_bytes) return text_of("(outside annotations)");
  if (by == TSR_PROFILE_BY_COMPILE_CONTEXT && is_none) return text_of("(no compiled region)");
  static const char *const unsaid[] = {TSR__NO_METADATA, TSR__OTHER_METADATA, TSR__LABEL_BEFORE};
  for (size_t i = 0; by == TSR_PROFILE_BY_METADATA && i < sizeof unsaid / sizeof *unsaid; i++)
    if (name.size_bytes == strlen(unsaid[i]) && !memcmp(name.data, unsaid[i], name.size_bytes))
      return name;
  return (tsr_text){0};
}

/* Copy a name that does not outlive the grouping it comes from. */
static bool keep_names(tsr_view_grouping *out) {
  size_t size = 0;
  for (size_t i = 0; i < out->count; i++) size += out->names[i].size_bytes;
  char *texts = TSR__NEW_ARRAY(char, size);
  if (!texts) return false;
  tsr__free(out->spelled);
  out->spelled = texts;
  for (size_t i = 0; i < out->count; i++) {
    memcpy(texts, out->names[i].data, out->names[i].size_bytes);
    out->names[i].data = texts;
    texts += out->names[i].size_bytes;
  }
  return true;
}

typedef struct weighed {
  double weight; /* bytes times lifetime */
  uint32_t group;
} weighed;

static int by_weight(const void *a, const void *b) {
  const weighed *x = a, *y = b;
  if (x->weight != y->weight) return x->weight < y->weight ? 1 : -1;
  return (x->group > y->group) - (x->group < y->group);
}

/* If there are more groups than a view can show, move the allocations of those that hold least to
 * GROUP_OTHERS. `of` is by allocation. */
static bool merge_least(const tsr__timeline *t, uint32_t *of, uint32_t count) {
  enum { KEPT = TSR_VIEW_GROUPS_MAX - 2 }; /* leaves room for GROUP_OTHERS and older memory */
  if (count <= KEPT) return true;
  weighed *order = TSR__NEW_ARRAY(weighed, count);
  bool *is_kept = TSR__NEW_ARRAY(bool, count);
  bool ok = order && is_kept;
  for (uint32_t g = 0; ok && g < count; g++) order[g].group = g;
  for (uint32_t a = 0; ok && a < t->birth.count; a++) {
    if (of[a] == GROUP_OLDER) continue;
    assert(of[a] < count);
    double end = t->death.items[a] == TSR_NONE ? (double)t->events.count : t->death.items[a];
    double begin = t->birth.items[a] == TSR_NONE ? 0 : t->birth.items[a];
    order[of[a]].weight += (double)tsr__timeline_requested(t, a) * (end - begin + 1);
  }
  if (ok) tsr__sort(order, count, sizeof *order, by_weight);
  for (uint32_t i = 0; ok && i < KEPT; i++) is_kept[order[i].group] = true;
  for (size_t a = 0; ok && a < t->birth.count; a++)
    if (of[a] != GROUP_OLDER && !is_kept[of[a]]) of[a] = GROUP_OTHERS;
  tsr__free(order);
  tsr__free(is_kept);
  return ok;
}

static uint32_t group_at(const tsr__timeline *t, const tsr__grouping *grouping, uint32_t a) {
  bool is_whole = tsr__grouping_is_whole(grouping->grouper->by);
  if (is_whole || t->birth.items[a] != TSR_NONE) return tsr__grouping_of(grouping, a);
  if (grouping->grouper->by != TSR_PROFILE_BY_RULES) return GROUP_OLDER;
  return tsr__grouping_of_stack(grouping, tsr__timeline_stack(t, a));
}

/* The group that a reader knows a group of study/grouping.h by. */
static uint8_t name_group(maker *m, const tsr__grouping *grouping, uint32_t group) {
  if (group >= GROUP_OTHERS)
    return group_of(m, group,
                    text_of(group == GROUP_OLDER ? "(before the recording)" : "(others)"));
  tsr_text name = tsr__grouping_name(grouping, group), none = none_of(grouping->grouper->by, name);
  if (!none.data) m->is_bare = false;
  return group_of(m, group, none.data ? none : name);
}

/* Give each allocation the group in `of`. Consecutive ones mostly have the same. */
static void name_groups(maker *m, const tsr__grouping *grouping, const uint32_t *of) {
  size_t count = m->timeline->birth.count;
  uint8_t known = 0;
  for (size_t a = 0; a < count; a++) {
    if (!a || of[a] != of[a - 1]) known = name_group(m, grouping, of[a]);
    m->out->group[a] = known;
  }
}

/* The groups of `tessera profile`. Memory from before the recording has at most a
 * stack, which only rules use. */
static bool by_grouper(maker *m, const tsr__grouper *grouper) {
  const tsr__timeline *t = m->timeline;
  tsr__grouping grouping = {0};
  uint32_t *of = tsr__realloc(NULL, t->birth.count, sizeof *of);
  bool ok = of && !tsr__grouping_init(&grouping, grouper, t->device, NULL);
  for (uint32_t a = 0; ok && a < t->birth.count; a++) of[a] = group_at(t, &grouping, a);
  if (ok) ok = merge_least(t, of, tsr__grouping_count(&grouping));
  if (ok) {
    name_groups(m, &grouping, of);
    ok = keep_names(m->out);
  }
  tsr__grouping_release(&grouping);
  tsr__free(of);
  return ok;
}

static bool by_annotation(maker *m) {
  m->is_bare = true;
  return by_grouper(m, &m->shared->annotations);
}

static bool by_context(maker *m) {
  m->is_bare = true;
  return by_grouper(m, &m->shared->contexts);
}

static bool by_rules(maker *m) {
  return !m->shared->rules.rules || by_grouper(m, &m->shared->rules);
}

/* The groupings that are only made if a page opens with them. */
static const tsr_profile_by optional[] = {TSR_PROFILE_BY_OP, TSR_PROFILE_BY_MODULE,
                                          TSR_PROFILE_BY_LINE};

static bool by_label(maker *m, tsr_profile_by by) {
  const tsr__grouper *labels = &m->shared->labels;
  return !labels->study || labels->by != by || by_grouper(m, labels);
}

static bool by_op(maker *m) {
  return by_label(m, TSR_PROFILE_BY_OP);
}
static bool by_module(maker *m) {
  return by_label(m, TSR_PROFILE_BY_MODULE);
}
static bool by_line(maker *m) {
  return by_label(m, TSR_PROFILE_BY_LINE);
}

static bool by_metadata(maker *m) {
  m->is_bare = true;
  return by_grouper(m, &m->shared->metadata);
}

/* ---- all of them ---- */

/* To add a grouping, add a row. */
static const struct {
  const char *key, *title;
  bool (*make)(maker *);
} makers[] = {
    {TSR_BY_CATEGORY, "category", by_category},
    {TSR_BY_ANNOTATION, "annotation", by_annotation},
    {TSR_BY_COMPILE_CONTEXT, "compiled region", by_context},
    {TSR_BY_RULES, "rule", by_rules},
    {TSR_BY_OP, "operation", by_op},
    {TSR_BY_MODULE, "module", by_module},
    {TSR_BY_LINE, "line", by_line},
    {TSR_BY_METADATA, "metadata", by_metadata},
    {BY_STREAM, "stream", by_stream},
    {TSR_BY_POOL, "pool", by_pool},
};
static_assert(sizeof makers / sizeof *makers <= TSR_VIEW_GROUPINGS_MAX, "room for all of them");

void tsr__view_grouping_release(tsr_view_grouping *grouping) {
  tsr__free(grouping->names);
  tsr__free(grouping->group);
  tsr__free(grouping->spelled);
  *grouping = (tsr_view_grouping){0};
}

static bool make(maker *m, size_t row, tsr_view_grouping *out) {
  size_t allocations = m->timeline->birth.count;
  *out = (tsr_view_grouping){.key = makers[row].key, .title = makers[row].title};
  m->out = out;
  m->last = 0;
  m->is_bare = false;
  out->names = TSR__NEW_ARRAY(tsr_text, TSR_VIEW_GROUPS_MAX);
  out->spelled = TSR__NEW_ARRAY(char, (size_t)TSR_VIEW_GROUPS_MAX *NAME_BYTES);
  out->group = tsr__realloc(NULL, allocations, 1);
  return out->names && out->spelled && out->group && makers[row].make(m);
}

/* The number of groups a grouping must have to be useful; the user's rules are always shown, and
 * private pools for what they keep. */
static size_t least_of(const maker *m, size_t row) {
  if (makers[row].make == by_pool && m->pools.uses.count) return 1;
  return makers[row].make == by_category ? 0 : makers[row].make == by_rules ? 1 : 2;
}

int tsr__view_groupings(const tsr__timeline *timeline, const tsr__view_shared *shared,
                        const tsr__categories *kinds, tsr_view_device *out, tsr_error *error) {
  maker m = {.timeline = timeline, .shared = shared, .kinds = kinds, .device = out};
  int64_t last = (int64_t)timeline->events.count - 1;
  int status = tsr__timeline_pools(timeline, last, NULL, &m.pools, error);
  if (status) return status;
  m.spans_of = tsr__timeline_spans_of(timeline);
  bool ok = m.spans_of != NULL;
  for (size_t row = 0; ok && row < sizeof makers / sizeof *makers; row++) {
    assert(out->grouping_count < TSR_VIEW_GROUPINGS_MAX);
    tsr_view_grouping *grouping = &out->groupings[out->grouping_count];
    ok = make(&m, row, grouping);
    if (!ok || m.is_bare || grouping->count < least_of(&m, row))
      tsr__view_grouping_release(grouping);
    else
      out->grouping_count++;
  }
  tsr__free(m.spans_of);
  tsr__pool_uses_release(&m.pools);
  return ok ? 0 : tsr__fail_memory(error);
}

int tsr__view_shared_init(tsr__view_shared *shared, tsr_study *study,
                          const tsr_view_options *options, tsr_error *error) {
  static const tsr_view_options plain = {.rules = NULL};
  if (!options) options = &plain;
  *shared = (tsr__view_shared){0};
  int status =
      tsr__grouper_init(&shared->annotations, study, TSR_PROFILE_BY_ANNOTATION, NULL, error);
  if (!status)
    status =
        tsr__grouper_init(&shared->contexts, study, TSR_PROFILE_BY_COMPILE_CONTEXT, NULL, error);
  if (!status && options->rules)
    status = tsr__grouper_init(&shared->rules, study, TSR_PROFILE_BY_RULES, options->rules, error);
  if (!status) tsr__grouper_by_metadata(&shared->metadata, study, options->key);
  for (size_t i = 0; !status && options->by && i < sizeof optional / sizeof *optional; i++)
    if (!strcmp(options->by, tsr_profile_by_name(optional[i])))
      status = tsr__grouper_init(&shared->labels, study, optional[i], NULL, error);
  return status;
}

void tsr__view_shared_release(tsr__view_shared *shared) {
  tsr__grouper_release(&shared->annotations);
  tsr__grouper_release(&shared->contexts);
  tsr__grouper_release(&shared->rules);
  tsr__grouper_release(&shared->labels);
  tsr__grouper_release(&shared->metadata);
}
