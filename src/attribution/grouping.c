/* grouping.c - see grouping.h. Names are interned, so that what has one name is one group; tables
 * from category, rule, string, place or span to group make the question of every event a look-up. */
#include "attribution/grouping.h"

#include <string.h>

#include "base/memory.h"

bool tsr__grouping_is_whole(tsr_profile_by by) {
  return by == TSR_PROFILE_BY_CATEGORY || by == TSR_PROFILE_BY_OP || by == TSR_PROFILE_BY_MODULE ||
         by == TSR_PROFILE_BY_LINE || by == TSR_PROFILE_BY_STACK;
}

static tsr__label_kind place_of(tsr_profile_by by) {
  return by == TSR_PROFILE_BY_OP       ? TSR__LABEL_OP
         : by == TSR_PROFILE_BY_MODULE ? TSR__LABEL_MODULE
         : by == TSR_PROFILE_BY_LINE   ? TSR__LABEL_LINE
                                       : TSR__LABEL_STACK;
}

int tsr__grouper_init(tsr__grouper *grouper, const tsr_snapshot *snapshot, tsr_profile_by by,
                      const tsr_rules *rules, tsr_error *error) {
  *grouper = (tsr__grouper){.snapshot = snapshot, .rules = rules, .by = by};
  int status =
      tsr__grouping_is_whole(by) ? tsr__roles_compute(snapshot, &grouper->roles, error) : 0;
  if (status) return status;
  switch (by) {
  case TSR_PROFILE_BY_CATEGORY: return 0;
  case TSR_PROFILE_BY_OP:
  case TSR_PROFILE_BY_MODULE:
  case TSR_PROFILE_BY_LINE:
  case TSR_PROFILE_BY_STACK:
    return tsr__labels_compute(snapshot, &grouper->roles, place_of(by), &grouper->places, error);
  case TSR_PROFILE_BY_MOSAIC_CATEGORY:
    return tsr__categories_compute(snapshot, &grouper->categories, error);
  case TSR_PROFILE_BY_ANNOTATION:
  case TSR_PROFILE_BY_COMPILE_CONTEXT: return 0;
  case TSR_PROFILE_BY_RULES:
    if (rules) return tsr__rules_match(rules, snapshot, &grouper->rule_stacks, error);
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "grouping by rules needs rules");
  }
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "there is no such grouping");
}

void tsr__grouper_release(tsr__grouper *grouper) {
  tsr__categories_release(&grouper->categories);
  tsr__roles_release(&grouper->roles);
  tsr__labels_release(&grouper->places);
  tsr__rule_stacks_release(&grouper->rule_stacks);
}

static bool put(tsr__grouping *g, const char *name, size_t size_bytes, uint32_t *group) {
  *group = tsr__intern_put(&g->names, name, size_bytes, NULL);
  return *group != TSR__INTERN_FULL;
}

static bool name_categories(tsr__grouping *g) {
  bool ok = (g->of_key = TSR__NEW_ARRAY(uint32_t, TSR_CATEGORY_COUNT)) != NULL;
  for (uint32_t i = 0; ok && i < TSR_CATEGORY_COUNT; i++) {
    const char *name = tsr_category_name((tsr_category)i);
    ok = put(g, name, strlen(name), &g->of_key[i]);
  }
  return ok;
}

static bool name_kinds(tsr__grouping *g) {
  bool ok = (g->of_key = TSR__NEW_ARRAY(uint32_t, TSR_KIND_COUNT)) != NULL;
  for (uint32_t i = 0; ok && i < TSR_KIND_COUNT; i++) {
    const char *name = tsr_kind_name((tsr_kind)i);
    ok = put(g, name, strlen(name), &g->of_key[i]);
  }
  return ok;
}

static bool name_places(tsr__grouping *g) {
  static const char before[] = TSR__LABEL_BEFORE;
  const tsr__labels *places = &g->grouper->places;
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
  size_t count = g->annotations.spans.count;
  bool ok = (g->of_span = TSR__NEW_ARRAY(uint32_t, count)) != NULL;
  for (size_t i = 0; ok && i < count; i++) {
    tsr_text text = tsr_snapshot_string(g->grouper->snapshot, g->annotations.spans.items[i].name);
    ok = put(g, text.data, text.size_bytes, &g->of_span[i]);
  }
  return ok;
}

int tsr__grouping_init(tsr__grouping *out, const tsr__grouper *grouper,
                       const tsr__timeline *timeline, tsr_error *error) {
  *out = (tsr__grouping){.grouper = grouper, .timeline = timeline};
  tsr__intern_init(&out->names);
  bool ok = false;
  switch (grouper->by) {
  case TSR_PROFILE_BY_CATEGORY:
    ok = !tsr__kinds_of_timeline(timeline, &grouper->roles, &out->kinds, error) && name_kinds(out);
    break;
  case TSR_PROFILE_BY_OP:
  case TSR_PROFILE_BY_MODULE:
  case TSR_PROFILE_BY_LINE:
  case TSR_PROFILE_BY_STACK: ok = name_places(out); break;
  case TSR_PROFILE_BY_MOSAIC_CATEGORY: ok = name_categories(out); break;
  case TSR_PROFILE_BY_RULES: ok = name_rules(out); break;
  case TSR_PROFILE_BY_COMPILE_CONTEXT: ok = name_contexts(out); break;
  case TSR_PROFILE_BY_ANNOTATION:
    ok =
        !tsr__annotations_compute(grouper->snapshot, &timeline->events, &out->annotations, error) &&
        name_spans(out);
    break;
  }
  return ok ? 0 : tsr__fail_memory(error);
}

void tsr__grouping_release(tsr__grouping *grouping) {
  tsr__free(grouping->of_rule);
  tsr__free(grouping->of_key);
  tsr__free(grouping->of_span);
  tsr__annotations_release(&grouping->annotations);
  tsr__kinds_release(&grouping->kinds);
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
  return g->of_key[tsr__label_of(&g->grouper->places, stack)];
}

uint32_t tsr__grouping_of(const tsr__grouping *g, uint32_t allocation) {
  const tsr_events *events = &g->timeline->events;
  uint32_t event = g->timeline->birth.items[allocation];
  bool is_whole = tsr__grouping_is_whole(g->grouper->by);
  if (event == TSR_NONE && !is_whole) return TSR_NONE;
  switch (g->grouper->by) {
  case TSR_PROFILE_BY_CATEGORY: return g->of_key[g->kinds.kind[allocation]];
  case TSR_PROFILE_BY_OP:
  case TSR_PROFILE_BY_MODULE:
  case TSR_PROFILE_BY_LINE:
  case TSR_PROFILE_BY_STACK: return of_place(g, allocation);
  case TSR_PROFILE_BY_MOSAIC_CATEGORY:
    return g->of_key[tsr__category_of(&g->grouper->categories, events->stack[event])];
  case TSR_PROFILE_BY_RULES: return tsr__grouping_of_stack(g, events->stack[event]);
  case TSR_PROFILE_BY_ANNOTATION: return g->of_span[tsr__annotations_span(&g->annotations, event)];
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
  const tsr__interned *item = &grouping->names.items[group];
  return (tsr_text){(const char *)item->data, item->size_bytes};
}
