/* grouping.c - see grouping.h. Names are interned, so that what has one name is one group; tables
 * from category, rule, string, place or span to group make the question of every event a look-up. */
#include "study/grouping.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "timeline/pools.h"

bool tsr__grouping_is_whole(tsr_profile_by by) {
  return by == TSR_PROFILE_BY_CATEGORY || by == TSR_PROFILE_BY_OP || by == TSR_PROFILE_BY_MODULE ||
         by == TSR_PROFILE_BY_LINE || by == TSR_PROFILE_BY_STACK || by == TSR_PROFILE_BY_POOL ||
         by == TSR_PROFILE_BY_METADATA;
}

static tsr__label_kind place_of(tsr_profile_by by) {
  return by == TSR_PROFILE_BY_OP       ? TSR__LABEL_OP
         : by == TSR_PROFILE_BY_MODULE ? TSR__LABEL_MODULE
         : by == TSR_PROFILE_BY_LINE   ? TSR__LABEL_LINE
                                       : TSR__LABEL_STACK;
}

int tsr__grouper_init(tsr__grouper *grouper, tsr_study *study, tsr_profile_by by,
                      const tsr_rules *rules, tsr_error *error) {
  *grouper = (tsr__grouper){
      .study = study, .snapshot = tsr_study_snapshot(study), .rules = rules, .by = by};
  switch (by) {
  case TSR_PROFILE_BY_OP:
  case TSR_PROFILE_BY_MODULE:
  case TSR_PROFILE_BY_LINE:
  case TSR_PROFILE_BY_STACK: return tsr__study_labels(study, place_of(by), &grouper->places, error);
  case TSR_PROFILE_BY_MOSAIC_CATEGORY:
    return tsr__study_mosaic_categories(study, &grouper->categories, error);
  case TSR_PROFILE_BY_CATEGORY:
  case TSR_PROFILE_BY_ANNOTATION:
  case TSR_PROFILE_BY_COMPILE_CONTEXT:
  case TSR_PROFILE_BY_POOL:
  case TSR_PROFILE_BY_METADATA: return 0;
  case TSR_PROFILE_BY_RULES:
    if (rules) return tsr__rules_match(rules, grouper->snapshot, &grouper->rule_stacks, error);
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "grouping by rules needs rules");
  }
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "no such grouping");
}

void tsr__grouper_by_metadata(tsr__grouper *grouper, tsr_study *study, const char *key) {
  *grouper = (tsr__grouper){.study = study,
                            .snapshot = tsr_study_snapshot(study),
                            .by = TSR_PROFILE_BY_METADATA,
                            .key = key};
}

void tsr__grouper_release(tsr__grouper *grouper) {
  tsr__rule_stacks_release(&grouper->rule_stacks);
}

static bool put(tsr__grouping *g, const char *name, size_t size_bytes, uint32_t *group) {
  *group = tsr__intern_put(&g->names, name, size_bytes, NULL);
  return *group != TSR__INTERN_FULL;
}

static bool name_categories(tsr__grouping *g) {
  bool ok = (g->of_key = TSR__NEW_ARRAY(uint32_t, TSR_MOSAIC_CATEGORY_COUNT)) != NULL;
  for (uint32_t i = 0; ok && i < TSR_MOSAIC_CATEGORY_COUNT; i++) {
    const char *name = tsr_mosaic_category_name((tsr_mosaic_category)i);
    ok = put(g, name, strlen(name), &g->of_key[i]);
  }
  return ok;
}

static bool name_kinds(tsr__grouping *g) {
  bool ok = (g->of_key = TSR__NEW_ARRAY(uint32_t, TSR_CATEGORY_COUNT)) != NULL;
  for (uint32_t i = 0; ok && i < TSR_CATEGORY_COUNT; i++) {
    const char *name = tsr_category_name((tsr_category)i);
    ok = put(g, name, strlen(name), &g->of_key[i]);
  }
  return ok;
}

static bool name_places(tsr__grouping *g) {
  static const char before[] = TSR__LABEL_BEFORE;
  const tsr__labels *places = g->grouper->places;
  bool ok = (g->of_key = TSR__NEW_ARRAY(uint32_t, places->names.count)) != NULL &&
            put(g, before, sizeof before - 1, &g->before);
  for (uint32_t i = 0; ok && i < places->names.count; i++) {
    tsr_text name = tsr__label_name(places, i);
    ok = put(g, name.data, name.size_bytes, &g->of_key[i]);
  }
  return ok;
}

static bool name_rules(tsr__grouping *g) {
  static const char none[] = "unknown";
  size_t count = tsr_rules_count(g->grouper->rules);
  bool ok = (g->of_rule = TSR__NEW_ARRAY(uint32_t, count + 1)) != NULL;
  for (size_t i = 0; ok && i < count; i++) {
    const char *name = tsr_rules_at(g->grouper->rules, i).name;
    ok = put(g, name, strlen(name), &g->of_rule[i]);
  }
  return ok && put(g, none, sizeof none - 1, &g->of_rule[count]);
}

/* Group by string id, filled for the strings that are contexts; "N/A" is also what PyTorch writes
 * outside every compiled region. */
static bool name_contexts(tsr__grouping *g) {
  static const char none[] = "N/A";
  uint32_t string_count = tsr_snapshot_string_count(g->grouper->snapshot), group;
  if (!put(g, none, sizeof none - 1, &group)) return false;
  bool ok = (g->of_key = TSR__NEW_ARRAY(uint32_t, (size_t)string_count + 1)) != NULL;
  const tsr_events *events = &g->timeline->events;
  for (uint64_t i = 0; ok && i < events->count; i++) {
    uint32_t string = tsr_id_at(events->context, i);
    if (string >= string_count || g->of_key[string]) continue;
    tsr_text text = tsr_snapshot_string(g->grouper->snapshot, string);
    ok = put(g, text.data, text.size_bytes, &g->of_key[string]);
    if (!events->context.values) break; /* all are the same */
  }
  return ok;
}

static bool name_spans(tsr__grouping *g) {
  size_t count = g->annotations->spans.count;
  bool ok = (g->of_span = TSR__NEW_ARRAY(uint32_t, count)) != NULL;
  for (size_t i = 0; ok && i < count; i++) {
    tsr_text text = tsr_snapshot_string(g->grouper->snapshot, g->annotations->spans.items[i].name);
    ok = put(g, text.data, text.size_bytes, &g->of_span[i]);
  }
  return ok;
}

/* Group by allocation. Private pools have a group for each stream; memory of unknown pool is of the
 * default one, as in files from before there were others. */
static bool name_pools(tsr__grouping *g) {
  const tsr__timeline *t = g->timeline;
  static const char plain[] = "default pool";
  tsr__pool_uses uses;
  if (tsr__timeline_pools(t, (int64_t)t->events.count - 1, NULL, &uses, NULL)) return false;
  uint32_t *spans_of = uses.uses.count ? tsr__timeline_spans_of(t) : NULL, by_default = 0;
  uint32_t *of_use = TSR__NEW_ARRAY(uint32_t, uses.uses.count);
  g->of_allocation = TSR__NEW_ARRAY(uint32_t, t->birth.count);
  bool ok = of_use && g->of_allocation && (spans_of || !uses.uses.count) &&
            put(g, plain, sizeof plain - 1, &by_default);
  for (uint32_t i = 0; ok && i < uses.uses.count; i++) {
    char name[TSR__POOL_NAME_BYTES];
    tsr__pool_use_name(&uses, t, i, name);
    ok = put(g, name, strlen(name), &of_use[i]);
  }
  assert(!ok || by_default == 0); /* which new arrays hold */
  for (uint32_t a = 0; ok && spans_of && a < t->birth.count; a++) {
    uint32_t pool = tsr__pool_of(t, spans_of, a);
    uint32_t use = tsr__pool_uses_find(&uses, t, pool, tsr__stream_of(t, spans_of, a));
    if (use != TSR_NONE) g->of_allocation[a] = of_use[use];
  }
  tsr__free(spans_of);
  tsr__free(of_use);
  tsr__pool_uses_release(&uses);
  return ok;
}

/* ---- what the program said ---- */

#define NO_GROUP UINT32_MAX

/* The group of each remark: its text, or the value of the key; NO_GROUP without that. False when out of
 * memory. */
static bool name_remarks(tsr__grouping *g, const tsr__names *names, uint32_t *of_remark) {
  tsr__buffer value = {0};
  bool ok = true;
  for (size_t i = 0; ok && i < names->remarks.count; i++) {
    tsr_text text = names->remarks.items[i].text;
    bool is_there = true;
    of_remark[i] = NO_GROUP;
    value.size = 0;
    if (g->grouper->key)
      ok = tsr__remark_member(text, g->grouper->key, &value, &is_there);
    else
      tsr__buffer_append(&value, text.data, tsr__remark_cut(text).size_bytes);
    ok = ok && !value.failed;
    if (ok && is_there) ok = put(g, value.data ? value.data : "", value.size, &of_remark[i]);
  }
  tsr__buffer_release(&value);
  return ok;
}

/* The metadata comes before annotations, of which the last counts; with a key, the first of these
 * that has it. */
static uint32_t group_of_remarks(const tsr__names *names, const uint32_t *of_remark, uint32_t a,
                                 bool *is_silent) {
  size_t count;
  uint32_t own = tsr__names_metadata(names, a);
  const tsr__note_remark *notes = tsr__names_notes(names, a, &count);
  *is_silent = own == TSR_NONE && !count;
  if (own != TSR_NONE && of_remark[own] != NO_GROUP) return of_remark[own];
  for (size_t i = count; i--;)
    if (of_remark[notes[i].remark] != NO_GROUP) return of_remark[notes[i].remark];
  return NO_GROUP;
}

static bool name_metadata(tsr__grouping *g) {
  static const char before[] = TSR__LABEL_BEFORE, none[] = TSR__NO_METADATA,
                    other[] = TSR__OTHER_METADATA;
  uint32_t of_before, of_none, of_other = 0;
  const tsr__names *names = g->said;
  uint32_t *of_remark = TSR__NEW_ARRAY(uint32_t, names->remarks.count);
  g->of_allocation = TSR__NEW_ARRAY(uint32_t, g->timeline->birth.count);
  bool ok = of_remark && g->of_allocation && name_remarks(g, names, of_remark) &&
            put(g, before, sizeof before - 1, &of_before) &&
            put(g, none, sizeof none - 1, &of_none) && put(g, other, sizeof other - 1, &of_other);
  for (uint32_t a = 0; ok && a < g->timeline->birth.count; a++) {
    bool is_silent;
    uint32_t group = group_of_remarks(names, of_remark, a, &is_silent);
    bool is_older = a < g->timeline->initial.count;
    if (group == NO_GROUP) group = !is_silent ? of_other : is_older ? of_before : of_none;
    g->of_allocation[a] = group;
  }
  tsr__free(of_remark);
  return ok;
}

static int find_sources(tsr__grouping *g, uint32_t device, tsr_error *error) {
  tsr_study *study = g->grouper->study;
  int status = tsr__study_timeline(study, device, &g->timeline, error);
  if (!status && g->grouper->by == TSR_PROFILE_BY_CATEGORY)
    status = tsr__study_categories(study, device, &g->categories, error);
  if (!status && g->grouper->by == TSR_PROFILE_BY_ANNOTATION)
    status = tsr__study_annotations(study, device, &g->annotations, error);
  if (!status && g->grouper->by == TSR_PROFILE_BY_METADATA)
    status = tsr__study_names(study, device, &g->said, error);
  return status;
}

int tsr__grouping_init(tsr__grouping *out, const tsr__grouper *grouper, uint32_t device,
                       tsr_error *error) {
  *out = (tsr__grouping){.grouper = grouper};
  tsr__intern_init(&out->names);
  bool ok = false;
  int status = find_sources(out, device, error);
  if (status) return status;
  switch (grouper->by) {
  case TSR_PROFILE_BY_CATEGORY: ok = name_kinds(out); break;
  case TSR_PROFILE_BY_OP:
  case TSR_PROFILE_BY_MODULE:
  case TSR_PROFILE_BY_LINE:
  case TSR_PROFILE_BY_STACK: ok = name_places(out); break;
  case TSR_PROFILE_BY_MOSAIC_CATEGORY: ok = name_categories(out); break;
  case TSR_PROFILE_BY_RULES: ok = name_rules(out); break;
  case TSR_PROFILE_BY_COMPILE_CONTEXT: ok = name_contexts(out); break;
  case TSR_PROFILE_BY_ANNOTATION: ok = name_spans(out); break;
  case TSR_PROFILE_BY_POOL: ok = name_pools(out); break;
  case TSR_PROFILE_BY_METADATA: ok = name_metadata(out); break;
  }
  return ok ? 0 : tsr__fail_memory(error);
}

void tsr__grouping_release(tsr__grouping *grouping) {
  tsr__free(grouping->of_rule);
  tsr__free(grouping->of_key);
  tsr__free(grouping->of_span);
  tsr__free(grouping->of_allocation);
  tsr__intern_release(&grouping->names);
  *grouping = (tsr__grouping){0};
}

uint32_t tsr__grouping_of_stack(const tsr__grouping *g, uint32_t stack) {
  const tsr__rule_stacks *rules = &g->grouper->rule_stacks;
  uint32_t rule = stack < rules->count ? rules->stacks[stack] : TSR__RULE_NONE;
  return g->of_rule[rule == TSR__RULE_NONE ? tsr_rules_count(g->grouper->rules) : rule];
}

static uint32_t of_place(const tsr__grouping *g, uint32_t allocation) {
  uint32_t stack = tsr__timeline_stack(g->timeline, allocation);
  bool is_old = allocation < g->timeline->initial.count;
  if (is_old && !tsr_snapshot_stack(g->grouper->snapshot, stack).depth) return g->before;
  return g->of_key[tsr__label_of(g->grouper->places, stack)];
}

uint32_t tsr__grouping_of(const tsr__grouping *g, uint32_t allocation) {
  assert(allocation < g->timeline->birth.count);
  const tsr_events *events = &g->timeline->events;
  uint32_t event = g->timeline->birth.items[allocation];
  bool is_whole = tsr__grouping_is_whole(g->grouper->by);
  if (event == TSR_NONE && !is_whole) return TSR_NONE;
  switch (g->grouper->by) {
  case TSR_PROFILE_BY_CATEGORY: return g->of_key[g->categories->category[allocation]];
  case TSR_PROFILE_BY_OP:
  case TSR_PROFILE_BY_MODULE:
  case TSR_PROFILE_BY_LINE:
  case TSR_PROFILE_BY_STACK: return of_place(g, allocation);
  case TSR_PROFILE_BY_MOSAIC_CATEGORY:
    return g->of_key[tsr__mosaic_category_of(g->grouper->categories, events->stack[event])];
  case TSR_PROFILE_BY_RULES: return tsr__grouping_of_stack(g, events->stack[event]);
  case TSR_PROFILE_BY_POOL:
  case TSR_PROFILE_BY_METADATA: return g->of_allocation[allocation];
  case TSR_PROFILE_BY_ANNOTATION: return g->of_span[tsr__annotations_span(g->annotations, event)];
  case TSR_PROFILE_BY_COMPILE_CONTEXT: {
    uint32_t string = tsr_id_at(events->context, event);
    return string < tsr_snapshot_string_count(g->grouper->snapshot) ? g->of_key[string] : 0;
  }
  }
  return TSR_NONE;
}

uint32_t tsr__grouping_count(const tsr__grouping *grouping) {
  return grouping->names.count;
}

tsr_text tsr__grouping_name(const tsr__grouping *grouping, uint32_t group) {
  assert(group < grouping->names.count);
  const tsr__interned *item = &grouping->names.items[group];
  return (tsr_text){(const char *)item->data, item->size_bytes};
}
