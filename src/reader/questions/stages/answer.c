/* answer.c - memory in the stages that a program marked.
 *
 * The stages are the same for every device (match.c). For each device, one sweep gives the totals at
 * every event; another over the boundaries, latest first, finds the events before them; and a
 * tree over the series (timeline/peak_tree.h) finds where each stage is highest.
 *
 * A stage is never higher than the one around it, so a list cut to the highest stages, of equal ones
 * the earlier, has with each stage all those around it. */
#include "tessera/unstable/stages.h"

#include <assert.h>
#include <string.h>

#include "base/intern.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"
#include "questions/shared/query.h"
#include "questions/shared/shares.h"
#include "questions/stages/match.h"
#include "study/study.h"
#include "timeline/peak_tree.h"
#include "timeline/sweep.h"

/* A START or END to be found among the events. */
typedef struct boundary {
  int64_t time_us;
  uint32_t stage;
  bool is_end;
} boundary;

/* What the devices share. */
typedef struct plan {
  tsr_study *study;
  const tsr_snapshot *snapshot; /* the study's */
  tsr__stage_list list;
  boundary *boundaries; /* latest first */
  size_t boundary_count;
  size_t top;
} plan;

/* ---- the plan ---- */

static int compare_boundaries(const void *a, const void *b) {
  const boundary *x = a, *y = b;
  return (x->time_us < y->time_us) - (x->time_us > y->time_us);
}

static bool make_plan(plan *p) {
  const tsr__stage_list *list = &p->list;
  p->boundaries = list->count <= SIZE_MAX / 2 ? TSR__NEW_ARRAY(boundary, 2 * list->count) : NULL;
  if (!p->boundaries) return false;
  for (uint32_t i = 0; i < list->count; i++) {
    if (list->stages[i].has_start)
      p->boundaries[p->boundary_count++] = (boundary){list->stages[i].start.time_us, i, false};
    if (list->ends_us[i] != TSR_TIME_NONE)
      p->boundaries[p->boundary_count++] = (boundary){list->ends_us[i], i, true};
  }
  assert(p->boundary_count <= 2 * list->count);
  tsr__sort(p->boundaries, p->boundary_count, sizeof *p->boundaries, compare_boundaries);
  return true;
}

/* ---- one device ---- */

/* The event each boundary comes after. The later the time, the later the event, whatever order the
 * trace is in. */
static void place_stages(const plan *p, const tsr_events *events, tsr_stage *stages) {
  int64_t event = (int64_t)events->count - 1;
  for (size_t i = 0; i < p->list.count; i++) {
    stages[i].start.event = -1;
    stages[i].end.event = event;
  }
  for (size_t i = 0; i < p->boundary_count; i++) {
    const boundary *at = &p->boundaries[i];
    assert(at->stage < p->list.count && (!i || at[-1].time_us >= at->time_us));
    while (event >= 0 &&
           (events->time_us[event] == TSR_TIME_NONE || events->time_us[event] > at->time_us))
      event--;
    *(at->is_end ? &stages[at->stage].end.event : &stages[at->stage].start.event) = event;
  }
}

static void fill_moment(const tsr_totals *series, const tsr_events *events, int64_t event,
                        tsr_moment *out) {
  out->event = event;
  out->time_us = event < 0 ? TSR_TIME_NONE : events->time_us[event];
  out->totals = series[event + 1];
}

static void measure_stages(const plan *p, const tsr_events *events, const tsr_totals *series,
                           const tsr__peak_tree *ranges, tsr_stage *stages) {
  for (size_t i = 0; i < p->list.count; i++) {
    tsr_stage *stage = &stages[i];
    int64_t last = stage->end.event;
    if (last < stage->start.event) last = stage->start.event; /* times that run backwards */
    assert(stage->start.event >= -1 && last < (int64_t)events->count);
    bool is_cut = !stage->has_start && last >= 0; /* what came before the recording is not known */
    size_t highest = tsr__peak_tree_highest(ranges, (size_t)(stage->start.event + 1 + is_cut),
                                            (size_t)(last + 1));
    stage->start.totals = series[stage->start.event + 1];
    stage->end.totals = series[stage->end.event + 1];
    fill_moment(series, events, (int64_t)highest - 1, &stage->peak);
    assert(stage->peak.event >= stage->start.event && stage->peak.event <= last);
  }
}

static bool is_some(const tsr_stage *stage) {
  return stage->has_start || stage->has_end;
}

static bool holds(const tsr_stage *stage, int64_t event) {
  return event <= stage->end.event && event > stage->start.event;
}

/* The stages that the device's peak is in: the latest to begin, and those around it. */
static bool find_path(const plan *p, const tsr_stage *stages, tsr_stages_device *out) {
  uint32_t innermost = TSR_STAGE_NONE;
  for (uint32_t i = 0; i < p->list.count; i++)
    if (holds(&stages[i], out->peak.event)) innermost = i;
  size_t count = innermost == TSR_STAGE_NONE ? 0 : (size_t)stages[innermost].depth + 1;
  out->path = TSR__NEW_ARRAY(tsr_stage, count);
  if (!out->path) return false;
  out->path_count = count;
  for (uint32_t id = innermost; id != TSR_STAGE_NONE; id = stages[id].parent)
    out->path[--count] = stages[id];
  assert(!count); /* a stage's depth is how many are around it */
  return true;
}

/* ---- groups ---- */

/* A group on its way: the tree of groups by first child and next sibling. */
typedef struct group_node {
  tsr_stage_group group;
  uint32_t first_child, last_child, sibling, around;
} group_node;

typedef struct grouping {
  const plan *p;
  const tsr_stage *stages;
  tsr__intern keys;    /* the group around, and the name as a pattern */
  tsr__buffer pattern; /* of the stage at hand */
  uint32_t *group_of;  /* by stage */
  group_node *nodes;   /* the first is the root, which is no group */
  size_t node_count;
} grouping;

/* Hang a new group, node `index`, under the node `around`. */
static void add_node(grouping *g, uint32_t index, uint32_t around, const tsr_stage *stage) {
  group_node *node = &g->nodes[index];
  assert(index == g->node_count + 1 && around < index);
  uint32_t depth = around ? g->nodes[around].group.depth + 1 : 0;
  *node = (group_node){.group = {.name = stage->name, .depth = depth, .largest = *stage},
                       .around = around};
  if (g->nodes[around].last_child)
    g->nodes[g->nodes[around].last_child].sibling = index;
  else
    g->nodes[around].first_child = index;
  g->nodes[around].last_child = index;
  g->node_count++;
}

static bool group_stage(grouping *g, const tsr_stage *stage) {
  uint32_t around = stage->parent == TSR_STAGE_NONE ? 0 : g->group_of[stage->parent];
  assert(stage->parent == TSR_STAGE_NONE || (stage->parent < stage->id && around));
  bool added;
  g->pattern.size = 0;
  tsr__buffer_append(&g->pattern, &around, sizeof around);
  tsr__stage_pattern(&g->pattern, tsr_snapshot_string(g->p->snapshot, stage->name));
  if (g->pattern.failed) return false;
  uint32_t key = tsr__intern_put(&g->keys, g->pattern.data, g->pattern.size, &added);
  if (key == TSR__INTERN_FULL) return false;
  uint32_t index = key + 1;
  if (added) add_node(g, index, around, stage);
  tsr_stage_group *group = &g->nodes[index].group;
  group->count++;
  group->is_pattern = group->is_pattern || group->name != stage->name;
  if (stage->peak.totals.allocated_bytes > group->largest.peak.totals.allocated_bytes)
    group->largest = *stage;
  g->group_of[stage->id] = index;
  return true;
}

/* The groups as a walk of their tree meets them. */
static void list_groups(const grouping *g, tsr_stages_device *out) {
  uint32_t at = g->nodes[0].first_child;
  while (at) {
    out->groups[out->group_count++] = g->nodes[at].group;
    uint32_t next = g->nodes[at].first_child;
    while (!next && at) {
      next = g->nodes[at].sibling;
      if (!next) at = g->nodes[at].around;
    }
    at = next;
  }
  assert(out->group_count == g->node_count);
}

static bool group_stages(const plan *p, const tsr_stage *stages, tsr_stages_device *out) {
  grouping g = {.p = p, .stages = stages};
  tsr__intern_init(&g.keys);
  g.group_of = TSR__NEW_ARRAY(uint32_t, p->list.count);
  g.nodes = TSR__NEW_ARRAY(group_node, p->list.count + 1);
  bool ok = g.group_of && g.nodes;
  for (size_t i = 0; ok && i < p->list.count; i++) ok = group_stage(&g, &stages[i]);
  if (ok) out->groups = TSR__NEW_ARRAY(tsr_stage_group, g.node_count);
  ok = ok && out->groups;
  if (ok) list_groups(&g, out);
  tsr__intern_release(&g.keys);
  tsr__buffer_release(&g.pattern);
  tsr__free(g.group_of);
  tsr__free(g.nodes);
  return ok;
}

/* ---- the highest of a list ---- */

typedef struct rank {
  uint64_t bytes;
  uint32_t index;
} rank;

static int compare_ranks(const void *a, const void *b) {
  const rank *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return (x->index > y->index) - (x->index < y->index);
}

static int compare_indexes(const void *a, const void *b) {
  const rank *x = a, *y = b;
  return (x->index > y->index) - (x->index < y->index);
}

/* Sort so that the `top` highest come first, in their old order. */
static void choose(rank *ranks, size_t count, size_t top) {
  assert(top < count);
  tsr__sort(ranks, count, sizeof *ranks, compare_ranks);
  tsr__sort(ranks, top, sizeof *ranks, compare_indexes);
}

static bool cut_stages(size_t top, tsr_stages_device *out) {
  if (!top || out->stage_count <= top) return true;
  rank *ranks = TSR__NEW_ARRAY(rank, out->stage_count);
  if (!ranks) return false;
  for (uint32_t i = 0; i < out->stage_count; i++)
    ranks[i] = (rank){out->stages[i].peak.totals.allocated_bytes, i};
  choose(ranks, out->stage_count, top);
  for (size_t i = 0; i < top; i++) out->stages[i] = out->stages[ranks[i].index];
  out->omitted_stages = out->stage_count - top;
  out->stage_count = top;
  tsr__free(ranks);
  return true;
}

static bool cut_groups(size_t top, tsr_stages_device *out) {
  if (!top || out->group_count <= top) return true;
  rank *ranks = TSR__NEW_ARRAY(rank, out->group_count);
  if (!ranks) return false;
  for (uint32_t i = 0; i < out->group_count; i++)
    ranks[i] = (rank){out->groups[i].largest.peak.totals.allocated_bytes, i};
  choose(ranks, out->group_count, top);
  for (size_t i = 0; i < top; i++) out->groups[i] = out->groups[ranks[i].index];
  out->omitted_groups = out->group_count - top;
  out->group_count = top;
  tsr__free(ranks);
  return true;
}

/* ---- the whole ---- */

static bool describe_stages(const plan *p, const tsr_events *events, const tsr_totals *series,
                            tsr_stages_device *out) {
  tsr__peak_tree ranges = {0};
  size_t count = p->list.count;
  out->stages = TSR__NEW_ARRAY(tsr_stage, count);
  if (!out->stages || !tsr__peak_tree_init(&ranges, series, (size_t)events->count + 1))
    return false;
  if (count) memcpy(out->stages, p->list.stages, count * sizeof *out->stages);
  out->stage_count = count;
  place_stages(p, events, out->stages);
  measure_stages(p, events, series, &ranges, out->stages);
  tsr__peak_tree_release(&ranges);
  for (size_t i = 0; i < count; i++) {
    const tsr_stage *stage = &out->stages[i], *highest = &out->highest;
    bool is_known = stage->has_start || stage->end.event >= 0, is_first = !is_some(highest);
    if (is_known &&
        (is_first || stage->peak.totals.allocated_bytes > highest->peak.totals.allocated_bytes))
      out->highest = *stage;
  }
  return find_path(p, out->stages, out) && group_stages(p, out->stages, out) &&
         cut_stages(p->top, out) && cut_groups(p->top, out);
}

/* The totals before the first event and after each; NULL when out of memory. */
static tsr_totals *make_series(const tsr__timeline *timeline) {
  tsr_totals *series = TSR__NEW_ARRAY(tsr_totals, (size_t)timeline->events.count + 1);
  tsr__sweep sweep;
  if (!series || tsr__sweep_begin(timeline, &sweep, NULL)) {
    tsr__free(series);
    return NULL;
  }
  series[0] = sweep.totals;
  while (tsr__sweep_next(&sweep)) series[sweep.event + 1] = sweep.totals;
  assert(sweep.event + 1 == (int64_t)timeline->events.count);
  tsr__sweep_release(&sweep);
  return series;
}

static int describe(const plan *p, tsr_stages_device *out, tsr_error *error) {
  const tsr__timeline *timeline;
  int status = tsr__study_timeline(p->study, out->device, &timeline, error);
  if (status) return status;
  tsr_totals *series = make_series(timeline);
  if (!series) return tsr__fail_memory(error);
  out->event_count = timeline->events.count;
  out->has_history = tsr__has_history(&timeline->events);
  fill_moment(series, &timeline->events, timeline->allocated_event, &out->peak);
  bool ok = describe_stages(p, &timeline->events, series, out);
  ok = ok && (out->warnings = tsr__copy_warnings(timeline, &out->warning_count));
  tsr__free(series);
  return ok ? 0 : tsr__fail_memory(error);
}

static bool warn(const plan *p, tsr_stages *out) {
  static const tsr_warning texts[TSR__STAGE_ODDITIES] = {
      {"odd-annotations", 0, "annotations that are neither START nor END, or have no time"},
      {"stages-without-end", 0,
       "stages without an END; they end with the stage in which they began, or last to the end of "
       "the trace"},
      {"stages-without-start", 0,
       "stages without a START; they are assumed to begin before the trace"},
      {"stages-overlap", 0, "stages that overlap without one being inside the other"},
      {"stages-recorded-twice", 0,
       "stages that were recorded twice, as PyTorch did before mid-2025; they count once"},
  };
  out->warnings = TSR__NEW_ARRAY(tsr_warning, TSR__STAGE_ODDITIES);
  if (!out->warnings) return false;
  for (size_t i = 0; i < TSR__STAGE_ODDITIES; i++) {
    if (!p->list.oddities[i]) continue;
    out->warnings[out->warning_count] = texts[i];
    out->warnings[out->warning_count++].count = p->list.oddities[i];
  }
  return true;
}

static int fill(plan *p, const tsr_stages_options *options, const uint32_t *devices, size_t count,
                tsr_stages *out, tsr_error *error) {
  size_t annotation_count;
  int status = tsr__stages_match(p->snapshot, options, &p->list, error);
  if (status) return status;
  (void)tsr_snapshot_annotations(p->snapshot, &annotation_count);
  out->annotation_count = annotation_count;
  out->matched_count = p->list.matched_count;
  out->devices = TSR__NEW_ARRAY(tsr_stages_device, count);
  if (!out->devices || !make_plan(p) || !warn(p, out)) return tsr__fail_memory(error);
  status = tsr__study_prepare(p->study, devices, count, TSR__NEED_TIMELINE, error);
  while (!status && out->device_count < count) {
    tsr_stages_device *device = &out->devices[out->device_count];
    device->device = devices[out->device_count++];
    status = describe(p, device, error);
  }
  return status;
}

int tsr_stages_compute(tsr_study *study, const tsr_stages_options *options, const tsr_query *query,
                       tsr_stages **out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  const uint32_t *devices;
  size_t count;
  plan p = {.study = study, .snapshot = snapshot, .top = query ? query->top : 0};
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  tsr_stages *stages = TSR__NEW(tsr_stages);
  if (!stages) return tsr__fail_memory(error);
  status = fill(&p, options, devices, count, stages, error);
  tsr__stage_list_release(&p.list);
  tsr__free(p.boundaries);
  if (status)
    tsr_stages_free(stages);
  else
    *out = stages;
  return status;
}

void tsr_stages_free(tsr_stages *stages) {
  if (!stages) return;
  for (size_t i = 0; i < stages->device_count; i++) {
    tsr__free(stages->devices[i].path);
    tsr__free(stages->devices[i].stages);
    tsr__free(stages->devices[i].groups);
    tsr__free(stages->devices[i].warnings);
  }
  tsr__free(stages->devices);
  tsr__free(stages->warnings);
  tsr__free(stages);
}
