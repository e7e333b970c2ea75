/* view_groups.c - which group is each allocation in? One function a grouping, one row in a table.
 *
 * A grouping gives every allocation a key; keys become groups in the order in which they appear.
 * What `tessera profile` divides by too comes of attribution/grouping.h, so that they agree. Names are
 * the snapshot's strings or are spelled here. Past TSR_VIEW_GROUPS_MAX the keys share the last group. A
 * grouping that puts everything into one group is left out, but for the category and the user's rules. */
#include "answers/view_groups.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"

enum { NAME_BYTES = 64 };

/* Groups that attribution/grouping.h does not have: what was there before the recording, and what is
 * not told apart. */
#define GROUP_OLDER  UINT32_MAX
#define GROUP_OTHERS (UINT32_MAX - 1)

/* The span an address was in, found by address. */
typedef struct place {
  uint64_t address, size_bytes;
  uint32_t birth, span;
} place;

typedef struct maker {
  const tsr__timeline *timeline;
  const tsr__view_shared *shared;
  const tsr__kinds *kinds;
  tsr_view_grouping *out;
  uint64_t keys[TSR_VIEW_GROUPS_MAX];
  uint8_t last; /* group of the last key asked for */
  bool is_bare; /* nothing has a group but that of having none */
  place *places;
  size_t place_count;
} maker;

/* The group of a key; a new one gets the name `text`, or an empty one to be spelled. */
static uint8_t group_of(maker *m, uint64_t key, tsr_text text) {
  tsr_view_grouping *out = m->out;
  if (out->count && m->keys[m->last] == key) return m->last;
  for (size_t i = 0; i < out->count; i++)
    if (m->keys[i] == key) return m->last = (uint8_t)i;
  if (out->count == TSR_VIEW_GROUPS_MAX) return TSR_VIEW_GROUPS_MAX - 1;
  if (out->count == TSR_VIEW_GROUPS_MAX - 1) text = (tsr_text){"(others)", 8};
  m->keys[out->count] = key;
  out->names[out->count] = text;
  m->last = (uint8_t)out->count++;
  return m->last;
}

static tsr_text text_of(const char *string) {
  return (tsr_text){string, strlen(string)};
}

/* Give a group that has no name yet the text in `spelled`. */
static char *spell(tsr_view_grouping *out, size_t group) {
  return out->spelled + group * NAME_BYTES;
}

static void spell_done(tsr_view_grouping *out, size_t group) {
  if (!out->names[group].data) out->names[group] = text_of(spell(out, group));
}

/* ---- category ---- */

static bool by_category(maker *m) {
  for (int i = 0; i < TSR_KIND_COUNT; i++)
    (void)group_of(m, (uint64_t)i, text_of(tsr_kind_name((tsr_kind)i)));
  memcpy(m->out->group, m->kinds->kind, m->timeline->birth.count);
  return true;
}

/* ---- where the memory is ---- */

static int compare_places(const void *a, const void *b) {
  const place *x = a, *y = b;
  if (x->address != y->address) return x->address < y->address ? -1 : 1;
  return (x->birth + 1 > y->birth + 1) - (x->birth + 1 < y->birth + 1); /* TSR_NONE is first */
}

static bool find_places(maker *m) {
  const tsr__timeline *t = m->timeline;
  m->places = TSR__NEW_ARRAY(place, t->spans.count);
  if (!m->places) return false;
  for (size_t i = 0; i < t->spans.count; i++) {
    const tsr__span *span = &t->spans.items[i];
    m->places[i] = (place){span->address, span->size_bytes, span->birth, (uint32_t)i};
  }
  m->place_count = t->spans.count;
  if (m->place_count) qsort(m->places, m->place_count, sizeof *m->places, compare_places);
  return true;
}

/* The span around an address that was the last to begin there by `birth`, or NULL. */
static const tsr__span *span_around(const maker *m, uint64_t address, uint32_t birth) {
  size_t low = 0, high = m->place_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const place *p = &m->places[middle];
    bool is_before = p->address < address || (p->address == address && p->birth + 1 <= birth + 1);
    if (is_before)
      low = middle + 1;
    else
      high = middle;
  }
  for (size_t tries = 0; low && tries < 8; low--, tries++) {
    const place *p = &m->places[low - 1];
    if (address - p->address < p->size_bytes && p->birth + 1 <= birth + 1)
      return &m->timeline->spans.items[p->span];
  }
  return NULL;
}

static bool by_stream(maker *m) {
  const tsr__timeline *t = m->timeline;
  for (size_t a = 0; a < t->birth.count; a++) {
    uint32_t birth = t->birth.items[a], stream = TSR_NONE;
    if (birth != TSR_NONE) {
      stream = tsr_id_at(t->events.stream, birth);
    } else {
      const tsr__span *span = span_around(m, tsr__timeline_address(t, (uint32_t)a), birth);
      if (span) stream = span->stream;
    }
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

/* The pool's id, times two, and whether it is the part for large blocks. */
static uint64_t pool_key(const maker *m, uint32_t a) {
  const tsr__timeline *t = m->timeline;
  uint32_t birth = t->birth.items[a], pool = TSR_NONE;
  bool is_large = t->block_bytes.items[a] > (UINT64_C(1) << 20);
  if (birth != TSR_NONE) pool = tsr_id_at(t->events.pool, birth);
  if (pool == TSR_NONE) {
    const tsr__span *span = span_around(m, tsr__timeline_address(t, a), birth);
    if (span) pool = span->pool, is_large = span->is_large;
  }
  return (uint64_t)pool << 1 | is_large;
}

static bool by_pool(maker *m) {
  const tsr__timeline *t = m->timeline;
  for (size_t a = 0; a < t->birth.count; a++)
    m->out->group[a] = group_of(m, pool_key(m, (uint32_t)a), (tsr_text){0});
  for (size_t i = 0; i < m->out->count; i++) {
    uint32_t id = (uint32_t)(m->keys[i] >> 1);
    const char *size = m->keys[i] & 1 ? "large" : "small";
    tsr_pool pool = tsr_snapshot_pool(t->snapshot, id);
    if (id == TSR_NONE)
      snprintf(spell(m->out, i), NAME_BYTES, "%s blocks", size);
    else if (!pool.first && !pool.second)
      snprintf(spell(m->out, i), NAME_BYTES, "default pool, %s", size);
    else
      snprintf(spell(m->out, i), NAME_BYTES, "pool (%" PRIu64 ", %" PRIu64 "), %s", pool.first,
               pool.second, size);
    spell_done(m->out, i);
  }
  return true;
}

/* ---- what the program said it was doing ---- */

/* What to call a group of attribution/grouping.h that stands for having none, by tsr_profile_by; its
 * own name there is empty, or what PyTorch writes. */
static tsr_text none_of(tsr_profile_by by, tsr_text name) {
  bool is_none = !name.size_bytes || (name.size_bytes == 3 && memcmp(name.data, "N/A", 3) == 0);
  if (by == TSR_PROFILE_BY_ANNOTATION && !name.size_bytes) return text_of("(outside annotations)");
  if (by == TSR_PROFILE_BY_COMPILE_CONTEXT && is_none) return text_of("(no compiled region)");
  return (tsr_text){0};
}

/* Keep a name that does not outlive the grouping it is from. */
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
  double weight; /* bytes times how long */
  uint32_t group;
} weighed;

static int by_weight(const void *a, const void *b) {
  const weighed *x = a, *y = b;
  if (x->weight != y->weight) return x->weight < y->weight ? 1 : -1;
  return (x->group > y->group) - (x->group < y->group);
}

/* Of more groups than a view tells apart, those that hold least keep their allocations in
 * GROUP_OTHERS. `of` is by allocation. */
static bool merge_least(const tsr__timeline *t, uint32_t *of, uint32_t count) {
  enum { KEPT = TSR_VIEW_GROUPS_MAX - 2 }; /* room for the others, and for what is older */
  if (count <= KEPT) return true;
  weighed *order = TSR__NEW_ARRAY(weighed, count);
  bool *is_kept = TSR__NEW_ARRAY(bool, count);
  bool ok = order && is_kept;
  for (uint32_t g = 0; ok && g < count; g++) order[g].group = g;
  for (uint32_t a = 0; ok && a < t->birth.count; a++) {
    if (of[a] == GROUP_OLDER) continue;
    double end = t->death.items[a] == TSR_NONE ? (double)t->events.count : t->death.items[a];
    double begin = t->birth.items[a] == TSR_NONE ? 0 : t->birth.items[a];
    order[of[a]].weight += (double)tsr__timeline_requested(t, a) * (end - begin + 1);
  }
  if (ok) qsort(order, count, sizeof *order, by_weight);
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

/* The group that a reader knows a group of attribution/grouping.h by. */
static uint8_t name_group(maker *m, const tsr__grouping *grouping, uint32_t group) {
  if (group >= GROUP_OTHERS)
    return group_of(m, group,
                    text_of(group == GROUP_OLDER ? "(before the recording)" : "(others)"));
  tsr_text name = tsr__grouping_name(grouping, group), none = none_of(grouping->grouper->by, name);
  if (!none.data) m->is_bare = false;
  return group_of(m, group, none.data ? none : name);
}

/* Give each allocation the group in `of`. Neighbours share one mostly. */
static void name_groups(maker *m, const tsr__grouping *grouping, const uint32_t *of) {
  size_t count = m->timeline->birth.count;
  uint8_t known = 0;
  for (size_t a = 0; a < count; a++) {
    if (!a || of[a] != of[a - 1]) known = name_group(m, grouping, of[a]);
    m->out->group[a] = known;
  }
}

/* The groups that `tessera profile` divides memory into. What is older than the recording has a
 * stack at most, which only rules look at. */
static bool by_grouper(maker *m, const tsr__grouper *grouper) {
  const tsr__timeline *t = m->timeline;
  tsr__grouping grouping = {0};
  uint32_t *of = tsr__realloc(NULL, t->birth.count, sizeof *of);
  bool ok = of && !tsr__grouping_init(&grouping, grouper, t, NULL);
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

/* What is asked for by operation, module or line. */
static bool by_label(maker *m, tsr_profile_by by) {
  const tsr__grouper *labels = &m->shared->labels;
  return !labels->snapshot || labels->by != by || by_grouper(m, labels);
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
  const tsr__timeline *t = m->timeline;
  uint32_t before = TSR_NONE;
  bool is_none = true;
  for (size_t a = 0; a < t->birth.count; a++) {
    uint32_t birth = t->birth.items[a];
    uint32_t name = birth == TSR_NONE ? TSR_NONE : tsr_id_at(t->events.metadata, birth);
    if (name != before) is_none = !tsr_snapshot_string(t->snapshot, name).size_bytes;
    before = name;
    if (is_none) name = TSR_NONE;
    m->out->group[a] = group_of(m, name,
                                name == TSR_NONE ? text_of("(no metadata)")
                                                 : tsr_snapshot_string(t->snapshot, name));
  }
  return true;
}

/* ---- all of them ---- */

/* A grouping more is a row more. */
static const struct {
  const char *key, *title;
  bool (*make)(maker *);
} makers[] = {
    {"category", "category", by_category},
    {"annotation", "annotation", by_annotation},
    {"compile_context", "compiled region", by_context},
    {"rules", "rule", by_rules},
    {"op", "operation", by_op},
    {"module", "module", by_module},
    {"line", "line", by_line},
    {"metadata", "user metadata", by_metadata},
    {"stream", "stream", by_stream},
    {"pool", "pool", by_pool},
};
_Static_assert(sizeof makers / sizeof *makers <= TSR_VIEW_GROUPINGS_MAX, "room for all of them");

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

/* How many groups a grouping must have to say something; the user's own always does. */
static size_t least_of(size_t row) {
  return makers[row].make == by_category ? 0 : makers[row].make == by_rules ? 1 : 2;
}

int tsr__view_groupings(const tsr__timeline *timeline, const tsr__view_shared *shared,
                        const tsr__kinds *kinds, tsr_view_device *out, tsr_error *error) {
  maker m = {.timeline = timeline, .shared = shared, .kinds = kinds};
  bool ok = find_places(&m);
  for (size_t row = 0; ok && row < sizeof makers / sizeof *makers; row++) {
    tsr_view_grouping *grouping = &out->groupings[out->grouping_count];
    ok = make(&m, row, grouping);
    if (!ok || m.is_bare || grouping->count < least_of(row))
      tsr__view_grouping_release(grouping);
    else
      out->grouping_count++;
  }
  tsr__free(m.places);
  return ok ? 0 : tsr__fail_memory(error);
}

int tsr__view_shared_init(tsr__view_shared *shared, const tsr_snapshot *snapshot,
                          const tsr_view_options *options, tsr_error *error) {
  static const tsr_view_options plain = {.rules = NULL};
  if (!options) options = &plain;
  tsr_profile_by by = options->by;
  bool has_labels =
      by == TSR_PROFILE_BY_OP || by == TSR_PROFILE_BY_MODULE || by == TSR_PROFILE_BY_LINE;
  *shared = (tsr__view_shared){0};
  int status =
      tsr__grouper_init(&shared->annotations, snapshot, TSR_PROFILE_BY_ANNOTATION, NULL, error);
  if (!status)
    status =
        tsr__grouper_init(&shared->contexts, snapshot, TSR_PROFILE_BY_COMPILE_CONTEXT, NULL, error);
  if (!status && options->rules)
    status =
        tsr__grouper_init(&shared->rules, snapshot, TSR_PROFILE_BY_RULES, options->rules, error);
  if (!status && has_labels) status = tsr__grouper_init(&shared->labels, snapshot, by, NULL, error);
  return status;
}

void tsr__view_shared_release(tsr__view_shared *shared) {
  tsr__grouper_release(&shared->annotations);
  tsr__grouper_release(&shared->contexts);
  tsr__grouper_release(&shared->rules);
  tsr__grouper_release(&shared->labels);
}
