/* answer.c - what other settings, or another card, would have done with a trace.
 *
 * Every configuration is a rerun (rerun.c) of the whole trace, to find where it reserves most, and
 * a second one up to there, to find the causes of fragmentation. The recorded settings are
 * always included: they show how well the model follows the trace, and what can be saved.
 */
#include "tessera/unstable/whatif.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/format.h"
#include "base/memory.h"
#include "base/sort.h"
#include "columns/tables.h"
#include "questions/shared/query.h"
#include "questions/shared/rerun.h"
#include "questions/shared/shares.h"
#include "study/study.h"
#include "tessera/unstable/allocator_state.h"

#define MIB (UINT64_C(1) << 20)
#define ALL_DIVISIONS(n) \
  { n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n }

const tsr_allocator_settings *tsr_whatif_default(size_t *count) {
  static const tsr_allocator_settings list[] = {
      {.expandable_segments = false},
      {.expandable_segments = true},
      {.max_split_bytes = 128 * MIB},
      {.max_split_bytes = 256 * MIB},
      {.max_split_bytes = 512 * MIB},
      {.roundup_divisions = ALL_DIVISIONS(4)},
      {.roundup_divisions = ALL_DIVISIONS(8)},
      {.garbage_collection_threshold = 0.8},
      {.max_split_bytes = 128 * MIB, .garbage_collection_threshold = 0.8},
      {.expandable_segments = true, .roundup_divisions = ALL_DIVISIONS(8)},
  };
  *count = sizeof list / sizeof *list;
  return list;
}

const char *tsr_whatif_doubt_name(tsr_whatif_doubt doubt) {
  static const char *const names[TSR_WHATIF_DOUBT_COUNT] = {"comparable", "no_events",
                                                            "reserved_before", "reserved_unknown"};
  return (unsigned)doubt < TSR_WHATIF_DOUBT_COUNT ? names[doubt] : "comparable";
}

/* ---- fragmentation of the model's state ---- */

typedef struct survey {
  const tsr_allocator_settings *settings;
  tsr_fragmentation parts;
  uint64_t segment_free, segment_total; /* of the segment being visited */
  uint64_t segment_count;
} survey;

static void close_segment(survey *s) {
  assert(s->segment_free <= s->segment_total);
  if (s->segment_total && s->segment_free == s->segment_total)
    s->parts.free_segment_bytes += s->segment_free;
  else
    s->parts.free_block_bytes += s->segment_free;
  s->segment_free = s->segment_total = 0;
}

static void survey_segment(void *context, const tsr_allocator_segment *segment) {
  survey *s = context;
  close_segment(s);
  s->segment_total = segment->total_bytes;
  s->segment_count++;
}

static void survey_block(void *context, const tsr_allocator_block *block) {
  survey *s = context;
  if (block->state == TSR_BLOCK_INACTIVE) {
    s->segment_free += block->size_bytes;
    if (block->size_bytes > s->parts.largest_free_bytes)
      s->parts.largest_free_bytes = block->size_bytes;
    return;
  }
  assert(s->segment_total);
  uint64_t rounded = tsr__round_request(s->settings, block->requested_bytes);
  if (rounded > block->size_bytes) rounded = block->size_bytes;
  s->parts.rounding_bytes += tsr__drop_u64(rounded, block->requested_bytes);
  s->parts.unsplit_bytes += block->size_bytes - rounded;
  if (block->state == TSR_BLOCK_PENDING_FREE) s->parts.waiting_bytes += block->size_bytes;
}

static int take_survey(const tsr_allocator *allocator, survey *s, tsr_error *error) {
  tsr_allocator_visitor visitor = {survey_segment, survey_block, s};
  int status = tsr_allocator_visit(allocator, &visitor, error);
  close_segment(s);
  return status;
}

/* ---- does the model reproduce the recorded segments? ---- */

typedef struct comparison {
  tsr__map recorded; /* address -> size of the segments in the file */
  uint64_t matched;
} comparison;

static void compare_segment(void *context, const tsr_allocator_segment *segment) {
  comparison *c = context;
  const uint64_t *size = tsr__map_find(&c->recorded, segment->address);
  c->matched += size && *size == segment->total_bytes;
}

static int compare_segments(const tsr_snapshot *snapshot, const tsr_allocator *allocator,
                            tsr_whatif_device *out, tsr_error *error) {
  comparison c = {.matched = 0};
  size_t count;
  const tsr_segment *segments = tsr_snapshot_segments(snapshot, &count);
  int status = 0;
  out->segments_recorded = 0;
  for (size_t i = 0; !status && i < count; i++) {
    if (segments[i].device != out->device) continue;
    out->segments_recorded++;
    if (!tsr__map_put(&c.recorded, segments[i].address, segments[i].total_bytes, NULL))
      status = tsr__fail_memory(error);
  }
  tsr_allocator_visitor visitor = {compare_segment, NULL, &c};
  if (!status) status = tsr_allocator_visit(allocator, &visitor, error);
  assert(status || c.matched <= out->segments_recorded);
  out->segments_reproduced = c.matched;
  tsr__map_release(&c.recorded);
  return status;
}

/* ---- one configuration ---- */

static int run_one(const tsr__timeline *timeline, const tsr__rerun_options *options,
                   tsr_whatif_device *device, tsr_whatif_run *run, tsr_error *error) {
  tsr_allocator *allocator = NULL;
  survey at_end = {.settings = &options->settings}, at_peak = at_end;
  int status = tsr__rerun(timeline, options, run, &allocator, error);
  if (!status) status = take_survey(allocator, &at_end, error);
  run->end_segment_count = at_end.segment_count;
  if (!status) run->flush_count = tsr_allocator_retry_count(allocator);
  if (!status && run->is_recorded && !options->capacity_bytes)
    status = compare_segments(timeline->snapshot, allocator, device, error);
  tsr_allocator_destroy(allocator);
  if (status || run->is_given_up) return status;
  tsr__rerun_options again = *options;
  tsr_whatif_run ignored = {.is_recorded = run->is_recorded};
  again.until = run->peak.event;
  allocator = NULL;
  status = tsr__rerun(timeline, &again, &ignored, &allocator, error);
  if (!status) status = take_survey(allocator, &at_peak, error);
  run->is_given_up = ignored.is_given_up;
  run->fragmentation = at_peak.parts;
  tsr_allocator_destroy(allocator);
  return status;
}

/* Those that fit first, by reserved bytes; then those that do not, latest failure first; and
 * those that were given up. */
static int compare_runs(const void *a, const void *b) {
  const tsr_whatif_run *x = a, *y = b;
  if (x->is_given_up != y->is_given_up) return x->is_given_up ? 1 : -1;
  if (x->is_out_of_memory != y->is_out_of_memory) return x->is_out_of_memory ? 1 : -1;
  if (x->is_out_of_memory && x->out_of_memory.event != y->out_of_memory.event)
    return x->out_of_memory.event < y->out_of_memory.event ? 1 : -1;
  if (x->peak.totals.reserved_bytes != y->peak.totals.reserved_bytes)
    return x->peak.totals.reserved_bytes > y->peak.totals.reserved_bytes ? 1 : -1;
  return y->is_recorded - x->is_recorded;
}

/* Another card would have changed the recording, so the check assumes unlimited memory. */
static int check_model(const tsr__timeline *timeline, tsr__patience *patience,
                       tsr_whatif_device *out, tsr_error *error) {
  tsr__rerun_options how = {
      .settings = timeline->settings, .until = INT64_MAX, .patience = patience};
  tsr_whatif_run ignored = {.is_recorded = true};
  tsr_allocator *allocator = NULL;
  int status = tsr__rerun(timeline, &how, &ignored, &allocator, error);
  if (!status) status = compare_segments(timeline->snapshot, allocator, out, error);
  tsr_allocator_destroy(allocator);
  return status;
}

static bool same_settings(const tsr_allocator_settings *a, const tsr_allocator_settings *b) {
  char x[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES], y[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES];
  return strcmp(tsr_allocator_settings_text(a, x), tsr_allocator_settings_text(b, y)) == 0;
}

/* ---- a device ---- */

/* With the memory that the recorded run had, the recorded settings failed. That is known, also where
 * the model finds a way: what other processes held may have changed, for example. */
static int insist_on_failure(const tsr__timeline *timeline, const tsr_whatif_device *device,
                             tsr_whatif_run *run, tsr_error *error) {
  tsr__live_set live = {0};
  assert(run->is_recorded && device->recorded_oom_event >= 0);
  if (run->is_out_of_memory || run->is_given_up) return 0;
  int status = tsr__timeline_live(timeline, device->recorded_oom_event, &live, error);
  if (status) return status;
  run->is_out_of_memory = true;
  run->oom_count = device->recorded_oom_count;
  run->oom_request_bytes = device->recorded_oom_request_bytes;
  run->out_of_memory.event = device->recorded_oom_event;
  run->out_of_memory.time_us = timeline->events.time_us[device->recorded_oom_event];
  run->out_of_memory.totals = tsr__timeline_totals(timeline, device->recorded_oom_event, &live);
  TSR__VECTOR_FREE(&live);
  return 0;
}

static int run_all(const tsr__timeline *timeline, const tsr_whatif_options *options,
                   tsr__patience *patience, tsr_whatif_device *out, tsr_error *error) {
  tsr__rerun_options how = {.settings = timeline->settings,
                            .capacity_bytes = out->capacity_bytes,
                            .until = INT64_MAX,
                            .patience = patience,
                            .asks_failed = true};
  out->runs = TSR__NEW_ARRAY(tsr_whatif_run, options->setting_count + 1);
  if (!out->runs) return tsr__fail_memory(error);
  out->runs[0].is_recorded = true;
  int status = run_one(timeline, &how, out, &out->runs[0], error);
  if (!status && how.capacity_bytes) status = check_model(timeline, patience, out, error);
  if (!status && out->is_capacity_inferred)
    status = insist_on_failure(timeline, out, &out->runs[0], error);
  out->run_count = 1;
  for (size_t i = 0; !status && i < options->setting_count; i++) {
    how.settings = options->settings[i];
    how.settings.tie_break = timeline->settings.tie_break;
    how.settings.rounding_extra_bytes = timeline->settings.rounding_extra_bytes;
    if (same_settings(&how.settings, &timeline->settings)) continue;
    status = run_one(timeline, &how, out, &out->runs[out->run_count++], error);
  }
  assert(out->run_count <= options->setting_count + 1);
  if (!status) tsr__sort(out->runs, out->run_count, sizeof *out->runs, compare_runs);
  return status;
}

/* Which stacks held memory when the best configuration ran out of it. */
static int list_holders(tsr_study *study, const tsr__timeline *timeline, size_t top,
                        tsr_whatif_device *out, tsr_error *error) {
  const tsr__categories *categories;
  tsr__live_set live = {0};
  tsr__shares shares = {0};
  if (!out->runs[0].is_out_of_memory) return 0;
  int64_t before = out->runs[0].out_of_memory.event - 1;
  assert(before < (int64_t)out->event_count);
  int status = tsr__study_categories(study, out->device, &categories, error);
  if (!status) status = tsr__timeline_live(timeline, before < -1 ? -1 : before, &live, error);
  if (!status) status = tsr__shares_of(timeline, &live, categories, NULL, top, &shares, error);
  if (!status) {
    out->stacks = shares.items;
    out->stack_count = shares.count;
    out->omitted_stacks = shares.omitted_stacks;
    out->omitted_bytes = shares.omitted_bytes;
  }
  TSR__VECTOR_FREE(&live);
  return status;
}

/* The oom events, and the memory that they show PyTorch to have had. */
static void note_recorded_oom(const tsr__timeline *timeline, tsr_whatif_device *out) {
  const tsr_events *events = &timeline->events;
  int64_t last = -1;
  out->recorded_oom_event = -1;
  for (uint64_t i = 0; i < events->count; i++) {
    if (events->action[i] == TSR_ACTION_ALLOC) out->is_end_failure = false;
    if (events->action[i] != TSR_ACTION_OOM) continue;
    last = (int64_t)i;
    out->is_end_failure = true;
    if (out->recorded_oom_count++) continue;
    out->recorded_oom_event = (int64_t)i;
    out->recorded_oom_request_bytes = events->size[i];
  }
  if (last < 0) return;
  out->recorded_capacity_bytes = tsr__capacity_at(timeline, last);
  if (out->recorded_capacity_bytes < timeline->maxima.reserved_bytes)
    out->recorded_capacity_bytes = timeline->maxima.reserved_bytes;
}

static tsr_whatif_doubt doubt_of(const tsr__timeline *t) {
  if (!t->events.count) return TSR_WHATIF_NO_EVENTS;
  if (t->at_peak.allocated_bytes > t->at_peak.reserved_bytes) return TSR_WHATIF_RESERVED_UNKNOWN;
  return t->reserved_event < 0 ? TSR_WHATIF_RESERVED_BEFORE : TSR_WHATIF_COMPARABLE;
}

/* What is the same for all devices. */
typedef struct whatif_question {
  size_t top;
  tsr__patience *patience;
} whatif_question;

/* What the runs have of the card. */
static int find_capacity(const tsr_snapshot *snapshot, const tsr_whatif_options *options,
                         tsr_whatif_device *out, tsr_error *error) {
  uint64_t given = options->capacity_bytes, outside = options->outside_bytes;
  char size[TSR__FORMAT_BYTES], all[TSR__FORMAT_BYTES];
  if (options->is_outside_recorded)
    outside = tsr_snapshot_card(snapshot, out->device).outside_bytes;
  if (given && outside >= given)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "%s outside of PyTorch leave nothing of %s", tsr__format_size(outside, size),
                     tsr__format_size(given, all));
  out->outside_bytes = given ? outside : 0;
  out->capacity_bytes = given - out->outside_bytes;
  out->is_capacity_inferred = !given && out->recorded_oom_count;
  if (out->is_capacity_inferred) out->capacity_bytes = out->recorded_capacity_bytes;
  return 0;
}

static int describe(tsr_study *study, const tsr_whatif_options *options,
                    const whatif_question *question, tsr_whatif_device *out, tsr_error *error) {
  const tsr__timeline *timeline;
  int status = tsr__study_timeline(study, out->device, &timeline, error);
  if (status) return status;
  out->event_count = timeline->events.count;
  out->doubt = doubt_of(timeline);
  out->recorded_peak_reserved_bytes = timeline->maxima.reserved_bytes;
  out->recorded_peak =
      (tsr_moment){.event = timeline->allocated_event, .totals = timeline->at_peak};
  out->recorded_peak.time_us = timeline->allocated_event < 0
                                   ? TSR_TIME_NONE
                                   : timeline->events.time_us[timeline->allocated_event];
  note_recorded_oom(timeline, out);
  status = find_capacity(tsr_study_snapshot(study), options, out, error);
  if (!status) status = run_all(timeline, options, question->patience, out, error);
  if (!status) status = list_holders(study, timeline, question->top, out, error);
  if (!status && !(out->warnings = tsr__copy_warnings(timeline, &out->warning_count)))
    status = tsr__fail_memory(error);
  return status;
}

int tsr_whatif_compute(tsr_study *study, const tsr_whatif_options *options, const tsr_query *query,
                       tsr_whatif **out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  const uint32_t *devices;
  size_t count;
  tsr_whatif_options how = options ? *options : (tsr_whatif_options){0};
  if (!how.setting_count) how.settings = tsr_whatif_default(&how.setting_count);
  int status = tsr__query_gpus(snapshot, query, &devices, &count, error);
  if (status) return status;
  for (size_t i = 0; i < count; i++)
    if (devices[i] == TSR_DEVICE_HOST)
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "this repeats what the GPU's allocator did; pinned host memory has another, "
                       "to which its settings and rules do not apply");
  for (size_t i = 0; i < count; i++)
    if (tsr__snapshot_flat(snapshot, devices[i]))
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "this repeats what the GPU's allocator did with its segments, and the file "
                       "lists none: it needs a snapshot of torch.cuda.memory._dump_snapshot");
  tsr_whatif *whatif = TSR__NEW(tsr_whatif);
  if (!whatif) return tsr__fail_memory(error);
  tsr__patience patience;
  tsr__rerun_begin(&patience, snapshot, devices, count, query);
  whatif_question question = {.top = query ? query->top : 0, .patience = &patience};
  whatif->capacity_bytes = how.capacity_bytes;
  whatif->leaves_host = tsr__query_leaves_host(snapshot, devices, count);
  whatif->devices = TSR__NEW_ARRAY(tsr_whatif_device, count);
  if (!whatif->devices)
    status = tsr__fail_memory(error);
  else
    status = tsr__study_prepare(study, devices, count, TSR__NEED_TIMELINE, error);
  while (!status && whatif->device_count < count) {
    tsr_whatif_device *device = &whatif->devices[whatif->device_count];
    device->device = devices[whatif->device_count++];
    status = describe(study, &how, &question, device, error);
  }
  if (status)
    tsr_whatif_free(whatif);
  else
    *out = whatif;
  return status;
}

void tsr_whatif_free(tsr_whatif *whatif) {
  if (!whatif) return;
  for (size_t i = 0; i < whatif->device_count; i++) {
    tsr__free(whatif->devices[i].runs);
    tsr__free(whatif->devices[i].stacks);
    tsr__free(whatif->devices[i].warnings);
  }
  tsr__free(whatif->devices);
  tsr__free(whatif);
}
