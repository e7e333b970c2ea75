/* answer.c - the memory of a trace by group: at the peak, in allocation order, and
 * over time.
 *
 *   grouping   the group of every allocation                             study/grouping.c
 *   tally      one pass over the trace: what each group and all of them hold, and their maxima
 *   live set   at the peak that the tally found: the groups there
 *   history    a second pass, where bands or moments are requested       history.c, bands.c
 *
 * By category, and by places in the code, everything that is allocated counts, and the peak
 * is that of `tessera peak`. With the other groupings memory counts from zero at the first
 * event: older memory belongs to no group. Every group with an allocation up to the peak
 * is listed, even if nothing of it is live there. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/sort.h"
#include "questions/profile/history.h"
#include "questions/shared/query.h"
#include "questions/shared/shares.h"
#include "study/grouping.h"

/* Warnings that name a rule. */
enum { MESSAGES = 2, MESSAGE_BYTES = 256 };
enum { DEFAULT_SERIES = 20, MOMENTS_LEAST = 4, MOMENTS_MOST = 20000 };

/* One device on its way. */
typedef struct work {
  const tsr_profile_options *options;
  tsr_profile_device *out;
  const tsr__timeline *timeline; /* the grouping's */
  tsr__grouping grouping;
  tsr__members members;
  tsr__picker picker;
  tsr_profile_group *groups; /* by group of the grouping; no trace.allocations: not in this trace */
  uint64_t *now;             /* bytes by group */
  const char **names;        /* by group */
  char *messages;            /* room for MESSAGES texts of MESSAGE_BYTES, owned by out->names */
  uint32_t *series_of;       /* by group */
  tsr_error *error;
} work;

/* ---- groups ---- */

static int find_members(work *w) {
  const tsr__timeline *t = w->timeline;
  uint32_t count = tsr__grouping_count(&w->grouping);
  w->members = (tsr__members){t, TSR__NEW_ARRAY(uint32_t, t->birth.count), count};
  w->groups = TSR__NEW_ARRAY(tsr_profile_group, count);
  w->now = TSR__NEW_ARRAY(uint64_t, count);
  w->names = TSR__NEW_ARRAY(const char *, count);
  w->series_of = TSR__NEW_ARRAY(uint32_t, count);
  if (!w->members.of || !w->groups || !w->now || !w->names || !w->series_of)
    return tsr__fail_memory(w->error);
  for (size_t i = 0; i < t->birth.count; i++)
    w->members.of[i] = tsr__grouping_of(&w->grouping, (uint32_t)i);
  size_t text_bytes = (size_t)MESSAGES * MESSAGE_BYTES;
  for (uint32_t i = 0; i < count; i++)
    text_bytes += tsr__grouping_name(&w->grouping, i).size_bytes + 1;
  char *texts = w->out->names = TSR__NEW_ARRAY(char, text_bytes);
  if (!texts) return tsr__fail_memory(w->error);
  w->messages = texts;
  texts += (size_t)MESSAGES * MESSAGE_BYTES;
  for (uint32_t i = 0; i < count; i++) {
    tsr_text name = tsr__grouping_name(&w->grouping, i);
    memcpy(texts, name.data, name.size_bytes);
    for (size_t k = 0; k < name.size_bytes; k++)
      if (!texts[k]) texts[k] = '?'; /* a zero byte in the file must not cut the name */
    w->names[i] = texts;
    w->groups[i] = (tsr_profile_group){.name = texts,
                                       .first_event = -1,
                                       .peak_event = -1,
                                       .peak_time_us = TSR_TIME_NONE,
                                       .stack = TSR_NONE,
                                       .trace.mean_life_us = -1};
    texts += name.size_bytes + 1;
  }
  assert(texts == (char *)w->out->names + text_bytes);
  return 0;
}

static void tally_birth(work *w, uint32_t allocation, int64_t event) {
  uint32_t kind = w->members.of[allocation];
  assert(kind < w->members.count);
  tsr_profile_group *group = &w->groups[kind];
  w->now[kind] = tsr__sum_u64(w->now[kind], tsr__timeline_requested(w->timeline, allocation));
  if (!group->peak_bytes && group->peak_event < 0) group->first_event = event;
  if (w->now[kind] <= group->peak_bytes && (group->peak_event >= 0 || group->peak_bytes)) return;
  group->peak_bytes = w->now[kind];
  group->peak_event = event;
}

/* Memory from before the first event, if it counts. */
static uint64_t tally_initial(work *w) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < w->timeline->initial.count; i++) {
    if (w->members.of[i] == TSR_NONE) continue;
    tally_birth(w, i, -1);
    total = tsr__sum_u64(total, tsr__timeline_requested(w->timeline, i));
  }
  return total;
}

/* The maxima of every group and of all, and the moments of the history. */
static int tally(work *w) {
  tsr__sweep sweep;
  int status = tsr__sweep_begin(w->timeline, &sweep, w->error);
  if (status) return status;
  uint64_t total = tally_initial(w);
  while (tsr__sweep_next(&sweep)) {
    uint32_t kind = sweep.died == TSR_NONE ? TSR_NONE : w->members.of[sweep.died];
    if (kind != TSR_NONE) {
      uint64_t bytes = tsr__timeline_requested(w->timeline, sweep.died);
      w->now[kind] = tsr__drop_u64(w->now[kind], bytes);
      total = tsr__drop_u64(total, bytes);
    }
    if (sweep.born != TSR_NONE) {
      tally_birth(w, sweep.born, sweep.event);
      total = tsr__sum_u64(total, tsr__timeline_requested(w->timeline, sweep.born));
      if (!w->out->is_whole && total > w->out->peak_bytes) {
        w->out->peak_bytes = total;
        w->out->peak_event = sweep.event;
      }
    }
    if (w->picker.stretches)
      tsr__picker_note(&w->picker, (uint64_t)sweep.event,
                       w->out->is_whole ? sweep.totals.allocated_bytes : total);
  }
  tsr__sweep_release(&sweep);
  if (w->out->is_whole) w->out->peak_event = w->timeline->allocated_event;
  return 0;
}

/* The sums after the means. */
typedef struct life_sum {
  uint64_t events, us;
  uint64_t timed; /* number of allocations whose times are known */
} life_sum;

static void add_life(const tsr__timeline *t, uint32_t birth, uint32_t death, life_sum *sum) {
  int64_t from = t->events.time_us[birth], until = t->events.time_us[death];
  sum->events = tsr__sum_u64(sum->events, death - birth);
  if (from == TSR_TIME_NONE || until == TSR_TIME_NONE) return;
  sum->us = tsr__sum_u64(sum->us, until > from ? (uint64_t)until - (uint64_t)from : 0);
  sum->timed++;
}

/* Every allocation of the trace: number, sizes, lifetimes. */
static int tally_lives(work *w) {
  const tsr__timeline *t = w->timeline;
  life_sum *sums = TSR__NEW_ARRAY(life_sum, w->members.count);
  if (!sums) return tsr__fail_memory(w->error);
  for (uint32_t i = 0; i < t->birth.count; i++) {
    if (w->members.of[i] == TSR_NONE) continue;
    tsr_profile_group *group = &w->groups[w->members.of[i]];
    tsr_profile_trace *trace = &group->trace;
    uint64_t bytes = tsr__timeline_requested(t, i);
    trace->allocations++;
    trace->bytes = tsr__sum_u64(trace->bytes, bytes);
    if (bytes > trace->largest_bytes) trace->largest_bytes = bytes;
    if (w->options->by == TSR_PROFILE_BY_STACK) group->stack = tsr__timeline_stack(t, i);
    if (i < t->initial.count || t->death.items[i] == TSR_NONE) continue;
    trace->freed++;
    add_life(t, t->birth.items[i], t->death.items[i], &sums[w->members.of[i]]);
  }
  for (uint32_t i = 0; i < w->members.count; i++) {
    tsr_profile_trace *trace = &w->groups[i].trace;
    if (trace->freed) trace->mean_life_events = sums[i].events / trace->freed;
    if (sums[i].timed) trace->mean_life_us = (int64_t)(sums[i].us / sums[i].timed);
  }
  tsr__free(sums);
  return 0;
}

/* ---- reasons ---- */

static int by_kind(const void *a, const void *b) {
  const tsr_profile_reason *x = a, *y = b;
  if (x->category != y->category) return x->category < y->category ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return (x->evidence > y->evidence) - (x->evidence < y->evidence);
}

/* Why the memory live at the peak is in its group: a row for each phase and reason. Reasons mostly
 * determine the category, so few rows are used. */
static int list_reasons(work *w, const tsr__live_set *live) {
  enum { PHASES = TSR_PHASE_COUNT, REASONS = TSR_EVIDENCE_COUNT, KINDS = TSR_CATEGORY_COUNT };
  const tsr__categories *categories = w->grouping.categories;
  assert(categories && categories->count == w->timeline->birth.count);
  tsr_profile_reason *rows = TSR__NEW_ARRAY(tsr_profile_reason, (size_t)PHASES * REASONS * KINDS);
  if (!rows) return tsr__fail_memory(w->error);
  for (size_t i = 0; i < live->count; i++) {
    uint32_t a = live->items[i];
    size_t row = ((size_t)categories->category[a] * PHASES + categories->phase[a]) * REASONS +
                 categories->evidence[a];
    assert(row < (size_t)PHASES * REASONS * KINDS);
    tsr_profile_reason *reason = &rows[row];
    reason->category = (tsr_category)categories->category[a];
    reason->phase = (tsr_phase)categories->phase[a];
    reason->evidence = (tsr_evidence)categories->evidence[a];
    reason->bytes = tsr__sum_u64(reason->bytes, tsr__timeline_requested(w->timeline, a));
    reason->allocations++;
  }
  for (size_t i = 0; i < (size_t)PHASES * REASONS * KINDS; i++)
    if (rows[i].allocations) rows[w->out->reason_count++] = rows[i];
  tsr__sort(rows, w->out->reason_count, sizeof *rows, by_kind);
  w->out->reasons = rows;
  return 0;
}

/* What is live at the peak, by group. */
static int sum_peak(work *w) {
  tsr__live_set live = {0};
  int status = tsr__timeline_live(w->timeline, w->out->peak_event, &live, w->error);
  if (status) return status;
  for (size_t i = 0; i < live.count; i++) {
    uint32_t kind = w->members.of[live.items[i]];
    if (kind == TSR_NONE) continue;
    uint64_t bytes = tsr__timeline_requested(w->timeline, live.items[i]);
    w->groups[kind].bytes = tsr__sum_u64(w->groups[kind].bytes, bytes);
    w->groups[kind].allocations++;
    if (w->out->is_whole) w->out->peak_bytes = tsr__sum_u64(w->out->peak_bytes, bytes);
  }
  w->out->allocated_bytes =
      tsr__timeline_totals(w->timeline, w->out->peak_event, &live).allocated_bytes;
  if (w->options->by == TSR_PROFILE_BY_CATEGORY) status = list_reasons(w, &live);
  TSR__VECTOR_FREE(&live);
  return status;
}

static int by_bytes(const void *a, const void *b) {
  const tsr_profile_group *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  if (x->allocations != y->allocations) return x->allocations < y->allocations ? 1 : -1;
  return (x->first_event > y->first_event) - (x->first_event < y->first_event);
}

static int by_peak(const void *a, const void *b) {
  const tsr_profile_group *x = a, *y = b;
  if (x->peak_bytes != y->peak_bytes) return x->peak_bytes < y->peak_bytes ? 1 : -1;
  return (x->first_event > y->first_event) - (x->first_event < y->first_event);
}

static void cut_groups(tsr_profile_device *out, size_t top) {
  if (top && out->later_group_count > top) {
    out->omitted_later_groups = out->later_group_count - top;
    out->later_group_count = top;
  }
  if (!top || out->group_count <= top) return;
  for (size_t i = top; i < out->group_count; i++)
    out->omitted_bytes = tsr__sum_u64(out->omitted_bytes, out->groups[i].bytes);
  out->omitted_groups = out->group_count - top;
  out->group_count = top;
}

/* Those up to the peak, and those after it. */
static int list_groups(work *w, size_t top) {
  tsr_profile_device *out = w->out;
  out->groups = TSR__NEW_ARRAY(tsr_profile_group, w->members.count);
  out->later_groups = TSR__NEW_ARRAY(tsr_profile_group, w->members.count);
  if (!out->groups || !out->later_groups) return tsr__fail_memory(w->error);
  for (uint32_t i = 0; i < w->members.count; i++) {
    tsr_profile_group group = w->groups[i];
    assert(group.bytes <= group.peak_bytes && group.allocations <= group.trace.allocations);
    assert(group.first_event <= group.peak_event && group.trace.freed <= group.trace.allocations);
    if (!group.trace.allocations) continue;
    if (group.peak_event >= 0) group.peak_time_us = w->timeline->events.time_us[group.peak_event];
    if (group.first_event <= out->peak_event)
      out->groups[out->group_count++] = group;
    else
      out->later_groups[out->later_group_count++] = group;
  }
  tsr__sort(out->groups, out->group_count, sizeof *out->groups, by_bytes);
  tsr__sort(out->later_groups, out->later_group_count, sizeof *out->later_groups, by_peak);
  cut_groups(out, top);
  return 0;
}

/* ---- series ---- */

/* A group and its maximum, for sorting. */
typedef struct ranked {
  tsr_profile_group group;
  uint32_t kind;
} ranked;

static int by_rank(const void *a, const void *b) {
  return by_peak(&((const ranked *)a)->group, &((const ranked *)b)->group);
}

static int64_t time_of(const work *w, int64_t event) {
  return event < 0 ? TSR_TIME_NONE : w->timeline->events.time_us[event];
}

/* The groups that hold most get one series each, the rest share the last one. Its maximum is unknown,
 * because no pass sums the combined groups, so it has the largest maximum of its groups. */
static int choose_series(work *w) {
  tsr_profile_device *out = w->out;
  size_t most = w->options->series_count ? w->options->series_count : DEFAULT_SERIES, count = 0;
  ranked *order = TSR__NEW_ARRAY(ranked, w->members.count);
  out->series =
      TSR__NEW_ARRAY(tsr_profile_series, most + 1 < w->members.count ? most + 1 : w->members.count);
  for (uint32_t i = 0; order && i < w->members.count; i++)
    if (w->groups[i].trace.allocations) order[count++] = (ranked){w->groups[i], i};
  if (!order || !out->series) {
    tsr__free(order);
    return tsr__fail_memory(w->error);
  }
  tsr__sort(order, count, sizeof *order, by_rank);
  for (size_t i = 0; i < count; i++) {
    size_t series = i < most ? i : most;
    assert(series <= out->series_count);
    w->series_of[order[i].kind] = (uint32_t)series;
    if (series == out->series_count)
      out->series[out->series_count++] =
          (tsr_profile_series){i < most ? order[i].group.name : NULL, order[i].group.peak_bytes,
                               order[i].group.peak_event, time_of(w, order[i].group.peak_event), 0};
    out->series[series].group_count++;
  }
  tsr__free(order);
  return 0;
}

/* ---- layers ---- */

static int layers_by_bytes(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

/* Keep only the `top` largest, in their order; among equals the lower ones. */
static int cut_layers(tsr_profile_device *out, size_t top, tsr_error *error) {
  if (!top || out->layer_count <= top) return 0;
  uint64_t *sizes = TSR__NEW_ARRAY(uint64_t, out->layer_count);
  if (!sizes) return tsr__fail_memory(error);
  for (size_t i = 0; i < out->layer_count; i++) sizes[i] = out->layers[i].bytes;
  tsr__sort(sizes, out->layer_count, sizeof *sizes, layers_by_bytes);
  uint64_t least = sizes[top - 1];
  size_t room = 0, kept = 0; /* for those of just that size */
  for (size_t i = 0; i < top; i++) room += sizes[i] == least;
  for (size_t i = 0; i < out->layer_count; i++) {
    uint64_t bytes = out->layers[i].bytes;
    if (bytes > least || (bytes == least && room)) {
      room -= bytes == least;
      out->layers[kept++] = out->layers[i];
    } else {
      out->omitted_layers++;
      out->omitted_layer_bytes = tsr__sum_u64(out->omitted_layer_bytes, bytes);
    }
  }
  assert(kept == top && kept + out->omitted_layers == out->layer_count);
  out->layer_count = kept;
  tsr__free(sizes);
  return 0;
}

/* ---- one device ---- */

static int plan_history(work *w) {
  const tsr_profile_options *o = w->options;
  uint64_t events = w->timeline->events.count;
  uint64_t first = o->first_event < events ? o->first_event : events, count = events - first;
  size_t moments = o->moment_count;
  if (!moments) return 0;
  if (o->event_count && o->event_count < count) count = o->event_count;
  if (moments < MOMENTS_LEAST) moments = MOMENTS_LEAST;
  if (moments > MOMENTS_MOST) moments = MOMENTS_MOST;
  return tsr__picker_init(&w->picker, first, count, moments) ? 0 : tsr__fail_memory(w->error);
}

static int tell_history(work *w, size_t top) {
  if (!w->options->moment_count && !w->options->is_ordered) return 0;
  int status = choose_series(w);
  if (status) return status;
  tsr__picker_finish(&w->picker);
  tsr__history_plan plan = {.members = &w->members,
                            .is_ordered = w->options->is_ordered,
                            .events = w->picker.events,
                            .event_count = w->picker.count,
                            .series_of = w->series_of,
                            .series_count = w->out->series_count,
                            .peak_event = w->out->peak_event,
                            .peak_bytes = w->out->peak_bytes};
  status = tsr__history_compute(&plan, w->names, w->out, w->error);
  return status ? status : cut_layers(w->out, top, w->error);
}

/* A warning that names a rule; its text goes to the end of the device's texts. */
static tsr_warning warn_of_rule(const work *w, unsigned slot, const char *code, uint64_t count,
                                uint32_t rule, const char *what) {
  char *text = w->messages + (size_t)slot * MESSAGE_BYTES;
  assert(slot < MESSAGES);
  (void)snprintf(text, MESSAGE_BYTES, "rule '%.80s': %s",
                 tsr_rules_at(w->grouping.grouper->rules, rule).name, what);
  return (tsr_warning){code, count, text};
}

static int warn(work *w) {
  enum { MOST = TSR__MISFIT_COUNT + TSR__ANNOTATION_ODD_COUNT + MESSAGES };
  const tsr__grouper *grouper = w->grouping.grouper;
  tsr_warning *list = TSR__NEW_ARRAY(tsr_warning, MOST);
  if (!list) return tsr__fail_memory(w->error);
  size_t count = tsr__timeline_warnings(w->timeline, list);
  if (grouper->by == TSR_PROFILE_BY_ANNOTATION)
    count += tsr__annotations_warnings(w->grouping.annotations, list + count);
  const tsr__rule_stacks *rules = &grouper->rule_stacks;
  if (rules->given_up)
    list[count++] = warn_of_rule(
        w, 0, "rule-gave-up", rules->given_up, rules->given_up_rule,
        "the pattern exceeded the backtracking limit on a text, which counts as no match");
  if (rules->disabled)
    list[count++] = warn_of_rule(w, 1, "rule-disabled", rules->disabled, rules->disabled_rule,
                                 "the pattern backtracks too much on too many texts, and was not "
                                 "tried on the rest of them; simplify it");
  assert(count <= MOST);
  w->out->warnings = list;
  w->out->warning_count = count;
  return 0;
}

static void note_times(work *w) {
  const tsr_events *events = &w->timeline->events;
  if (w->out->peak_event >= 0) w->out->peak_time_us = events->time_us[w->out->peak_event];
  uint64_t i = 0;
  while (i < events->count && events->time_us[i] == TSR_TIME_NONE) i++;
  if (i < events->count) w->out->first_time_us = events->time_us[i];
}

static int describe(work *w, const tsr__grouper *grouper, size_t top) {
  tsr_profile_device *out = w->out;
  int status = tsr__grouping_init(&w->grouping, grouper, out->device, w->error);
  w->timeline = w->grouping.timeline;
  if (!status) status = find_members(w);
  if (!status) status = plan_history(w);
  if (!status) status = tally(w);
  if (!status) status = tally_lives(w);
  if (!status) status = sum_peak(w);
  if (!status) status = list_groups(w, top);
  if (!status) status = tell_history(w, top);
  if (!status) status = warn(w);
  if (status) return status;
  out->event_count = w->timeline->events.count;
  out->has_history = tsr__has_history(&w->timeline->events);
  note_times(w);
  return 0;
}

static int describe_device(const tsr__grouper *grouper, const tsr_profile_options *options,
                           size_t top, tsr_profile_device *out, tsr_error *error) {
  work w = {.options = options, .out = out, .error = error};
  int status = describe(&w, grouper, top);
  tsr__picker_release(&w.picker);
  tsr__free(w.members.of);
  tsr__free(w.groups);
  tsr__free(w.now);
  tsr__free(w.names);
  tsr__free(w.series_of);
  tsr__grouping_release(&w.grouping);
  return status;
}

static char *copy_text(const char *text) {
  size_t size = strlen(text) + 1;
  char *copy = TSR__NEW_ARRAY(char, size);
  return copy ? memcpy(copy, text, size) : NULL;
}

int tsr_profile_compute(tsr_study *study, const tsr_profile_options *options,
                        const tsr_query *query, tsr_profile **out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  static const tsr_profile_options defaults = {.by = TSR_PROFILE_BY_CATEGORY};
  const uint32_t *devices;
  size_t count;
  tsr__grouper grouper = {0};
  if (!options) options = &defaults;
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  tsr_profile *profile = TSR__NEW(tsr_profile);
  if (!profile) return tsr__fail_memory(error);
  profile->by = options->by;
  profile->is_ordered = options->is_ordered;
  profile->has_history = options->moment_count > 0;
  profile->devices = TSR__NEW_ARRAY(tsr_profile_device, count);
  status = profile->devices ? tsr__grouper_init(&grouper, study, options->by, options->rules, error)
                            : tsr__fail_memory(error);
  if (!status && options->key && options->by == TSR_PROFILE_BY_METADATA) {
    tsr__grouper_by_metadata(&grouper, study, options->key);
    profile->key = copy_text(options->key);
    status = profile->key ? 0 : tsr__fail_memory(error);
  }
  unsigned needs = TSR__NEED_TIMELINE;
  if (options->by == TSR_PROFILE_BY_CATEGORY) needs |= TSR__NEED_CATEGORIES;
  if (!status) status = tsr__study_prepare(study, devices, count, needs, error);
  while (!status && profile->device_count < count) {
    tsr_profile_device *device = &profile->devices[profile->device_count];
    *device = (tsr_profile_device){.device = devices[profile->device_count++],
                                   .is_whole = tsr__grouping_is_whole(options->by),
                                   .peak_event = -1,
                                   .peak_time_us = TSR_TIME_NONE,
                                   .first_time_us = TSR_TIME_NONE};
    status = describe_device(&grouper, options, query ? query->top : 0, device, error);
  }
  tsr__grouper_release(&grouper);
  if (status)
    tsr_profile_free(profile);
  else
    *out = profile;
  return status;
}

void tsr_profile_free(tsr_profile *profile) {
  if (!profile) return;
  for (size_t i = 0; i < profile->device_count; i++) {
    tsr_profile_device *device = &profile->devices[i];
    tsr__free(device->groups);
    tsr__free(device->reasons);
    tsr__free(device->later_groups);
    tsr__free(device->layers);
    tsr__free(device->series);
    tsr__free(device->moments);
    tsr__free(device->shares);
    tsr__free(device->cells);
    tsr__free(device->bands);
    tsr__free(device->warnings);
    tsr__free(device->names);
  }
  tsr__free(profile->devices);
  tsr__free(profile->key);
  tsr__free(profile);
}
