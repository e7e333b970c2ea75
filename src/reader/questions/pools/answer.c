/* answer.c - which pools is reserved memory in, and which blocks keep it there? See tessera/unstable/pools.h.
 *
 * One moment is described in full; the ends of steps, and the worst moment of each phase, which one sweep finds, are
 * measured in the same way and keep their sums and their worst stack. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "columns/tables.h"
#include "questions/pools/pools.h"
#include "questions/shared/query.h"
#include "questions/shared/shares.h"
#include "tessera/unstable/sidecar.h"
#include "timeline/sweep.h"

enum {
  MOST_ENDS = 64,      /* ends of steps that are measured */
  MOST_SUMS = 1 << 16, /* and of pools at them, together; a real job has a few pools */
};

const char *tsr_pools_reason_name(tsr_pools_reason reason) {
  static const char *const names[TSR_POOLS_REASON_COUNT] = {"peak", "out_of_memory", "event"};
  return (unsigned)reason < TSR_POOLS_REASON_COUNT ? names[reason] : "peak";
}

/* What is the same for all devices. */
typedef struct pools_question {
  const tsr_pools_options *options;
  tsr_study *study;
  size_t top;
  tsr__patience patience;
} pools_question;

/* ---- the moment ---- */

/* False if the options name an event that this device lacks. */
static bool choose(const tsr_pools_options *options, const tsr__timeline *t,
                   const tsr__cycle *cycle, int64_t *event, tsr_pools_reason *reason) {
  const tsr__failure *stop = tsr__cycle_stop(cycle);
  int64_t last = (int64_t)t->events.count - 1;
  *reason = TSR_POOLS_AT_EVENT;
  if (options->has_event) {
    *event = options->event == INT64_MAX ? last : options->event;
    return *event >= -1 && *event <= last;
  }
  *reason = stop ? TSR_POOLS_AT_OUT_OF_MEMORY : TSR_POOLS_AT_PEAK;
  *event = stop ? (int64_t)stop->event : tsr__timeline_highest(t);
  return true;
}

static void cut(tsr__pool_measure *measure, size_t top, tsr_pools_device *out) {
  out->holders = measure->holders;
  out->holder_count = measure->holder_count;
  out->segments = measure->units;
  out->segment_count = measure->unit_count;
  measure->holders = NULL;
  measure->units = NULL;
  for (size_t i = top; top && i < out->holder_count; i++)
    out->omitted_holder_bytes = tsr__sum_u64(out->omitted_holder_bytes, out->holders[i].free_bytes);
  for (size_t i = top; top && i < out->segment_count; i++)
    out->omitted_segment_bytes =
        tsr__sum_u64(out->omitted_segment_bytes, out->segments[i].free_bytes);
  if (top && out->holder_count > top) {
    out->omitted_holders = out->holder_count - top;
    out->holder_count = top;
  }
  if (top && out->segment_count > top) {
    out->omitted_segments = out->segment_count - top;
    out->segment_count = top;
  }
}

static int describe_moment(const tsr__pool_list *list, int64_t event, size_t top,
                           tsr_pools_device *out, tsr_error *error) {
  tsr__pool_measure measure;
  int status = tsr__pool_measure_at(list, out->pools, event, &measure, error);
  if (!status) {
    out->moment = measure.moment;
    out->sums = measure.sums;
    out->releasable_segments = measure.releasable;
    for (size_t i = 0; i < out->pool_count; i++) {
      out->pools[i].at = measure.pools[i];
      out->pools[i].segments = measure.segments[i];
    }
    cut(&measure, top, out);
  }
  tsr__pool_measure_release(&measure);
  return status;
}

/* ---- phases and steps ---- */

typedef struct worst {
  int64_t event; /* -1: the phase does not occur */
  uint64_t free_bytes;
} worst;

/* Where most of what is reserved is free, in each phase. A segment that a request just got is not free. */
static int find_worst(const tsr__timeline *t, const tsr__phases *phases, worst *of,
                      tsr_error *error) {
  tsr__sweep sweep;
  int status = tsr__sweep_begin(t, &sweep, error);
  if (status) return status;
  for (int i = 0; i < TSR_PHASE_COUNT; i++) of[i] = (worst){-1, 0};
  size_t run = 0;
  while (tsr__sweep_next(&sweep)) {
    uint32_t event = (uint32_t)sweep.event;
    while (run + 1 < phases->runs.count && phases->runs.items[run + 1].first <= event) run++;
    if (run >= phases->runs.count || phases->runs.items[run].first > event) continue;
    tsr_action action = (tsr_action)t->events.action[event];
    if (action == TSR_ACTION_SEGMENT_ALLOC || action == TSR_ACTION_SEGMENT_MAP) continue;
    uint64_t unused = tsr__drop_u64(sweep.totals.reserved_bytes, sweep.totals.active_bytes);
    worst *w = &of[phases->runs.items[run].phase];
    if (w->event < 0 || unused > w->free_bytes) *w = (worst){sweep.event, unused};
  }
  tsr__sweep_release(&sweep);
  return 0;
}

static int measure_moment(const tsr__pool_list *list, const tsr__phases *phases,
                          tsr_pools_device *out, tsr_pools_moment moment, tsr_error *error) {
  tsr__pool_measure measure;
  int status = tsr__pool_measure_at(list, out->pools, moment.event, &measure, error);
  if (!status) {
    moment.time_us = measure.moment.time_us;
    moment.phase = tsr__phases_at(phases, (uint32_t)moment.event);
    moment.sums = measure.sums;
    moment.pools = measure.pools;
    moment.holder = (tsr_pools_holder){.stack = TSR_NONE};
    for (size_t i = 0; i < measure.holder_count && !moment.holder.free_bytes; i++)
      if (out->pools[measure.holders[i].pool].kind == TSR_POOLS_DEFAULT)
        moment.holder = measure.holders[i];
    measure.pools = NULL;
    out->moments[out->moment_count++] = moment;
  }
  tsr__pool_measure_release(&measure);
  return status;
}

static int describe_moments(const tsr__pool_list *list, const tsr__phases *phases,
                            const tsr__cycle *cycle, tsr_pools_device *out, tsr_error *error) {
  worst of[TSR_PHASE_COUNT];
  size_t most = MOST_SUMS / (list->count + 1), ends = cycle->steps.count;
  if (most > MOST_ENDS) most = MOST_ENDS;
  if (ends > most) ends = most;
  out->unit = cycle->unit;
  out->omitted_ends = cycle->steps.count - ends;
  out->moments = TSR__NEW_ARRAY(tsr_pools_moment, TSR_PHASE_COUNT + ends);
  if (!out->moments) return tsr__fail_memory(error);
  int status = find_worst(list->timeline, phases, of, error);
  for (int i = 0; !status && most && i < TSR_PHASE_COUNT; i++) {
    if (i == TSR_PHASE_UNKNOWN || of[i].event < 0) continue;
    tsr_pools_moment moment = {.event = of[i].event};
    status = measure_moment(list, phases, out, moment, error);
  }
  for (size_t i = 0; !status && i < ends; i++) {
    /* The last is always among them. */
    size_t step = (size_t)((uint64_t)(i + 1) * cycle->steps.count / ends) - 1;
    tsr_pools_moment moment = {
        .is_step_end = true, .step = step + 1, .event = cycle->steps.items[step].last};
    status = measure_moment(list, phases, out, moment, error);
  }
  return status;
}

/* ---- a device ---- */

/* `*is_meant` is false if the question is about an event that this device does not have. */
static int describe(pools_question *question, tsr_pools_device *out, bool *is_meant,
                    tsr_error *error) {
  const tsr__timeline *t;
  const tsr__phases *phases;
  const tsr__cycle *cycle;
  tsr__pool_list list = {0};
  int64_t event;
  int status = tsr__study_timeline(question->study, out->device, &t, error);
  if (!status) status = tsr__study_phases(question->study, out->device, &phases, error);
  if (!status) status = tsr__study_cycle(question->study, out->device, &cycle, error);
  if (status) return status;
  out->event_count = t->events.count;
  out->has_history = tsr__has_history(&t->events);
  out->is_partial = tsr__lacks_a_part(t->snapshot);
  out->recorded_peak_reserved_bytes = t->maxima.reserved_bytes;
  out->card_bytes = tsr_snapshot_card(t->snapshot, out->device).total_bytes;
  *is_meant = choose(question->options, t, cycle, &event, &out->reason);
  if (!*is_meant) return 0;
  status = tsr__pool_list_make(t, &list, out, error);
  if (!status) status = describe_moment(&list, event, question->top, out, error);
  if (!status && out->has_history) status = describe_moments(&list, phases, cycle, out, error);
  if (!status) status = tsr__pool_trials(&list, &question->patience, out, error);
  if (!status && !(out->warnings = tsr__copy_warnings(t, &out->warning_count)))
    status = tsr__fail_memory(error);
  tsr__pool_list_release(&list);
  return status;
}

static void release_device(tsr_pools_device *device) {
  for (size_t i = 0; i < device->moment_count; i++) tsr__free(device->moments[i].pools);
  tsr__free(device->pools);
  tsr__free(device->holders);
  tsr__free(device->segments);
  tsr__free(device->moments);
  tsr__free(device->trials);
  tsr__free(device->warnings);
  *device = (tsr_pools_device){0};
}

static int describe_all(const uint32_t *devices, size_t count, pools_question *question,
                        tsr_pools *pools, tsr_error *error) {
  int status = 0;
  for (size_t i = 0; !status && i < count; i++) {
    tsr_pools_device *device = &pools->devices[pools->device_count++];
    bool is_meant = false;
    device->device = devices[i];
    status = describe(question, device, &is_meant, error);
    if (!status && !is_meant) release_device(&pools->devices[--pools->device_count]);
  }
  if (!status && count && !pools->device_count)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "no event %" PRId64 " in the trace", question->options->event);
  return status;
}

int tsr_pools_compute(tsr_study *study, const tsr_pools_options *options, const tsr_query *query,
                      tsr_pools **out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  const uint32_t *devices;
  size_t count;
  tsr_pools_options how = options ? *options : (tsr_pools_options){0};
  int status = tsr__query_gpus(snapshot, query, &devices, &count, error);
  if (status) return status;
  for (size_t i = 0; i < count; i++)
    if (devices[i] == TSR_DEVICE_HOST)
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "pinned host memory is never split, so its allocator pins nothing; ask "
                       "about a GPU");
  tsr_pools *pools = TSR__NEW(tsr_pools);
  if (!pools) return tsr__fail_memory(error);
  pools_question question = {.options = &how, .study = study, .top = query ? query->top : 0};
  tsr__rerun_begin(&question.patience, snapshot, devices, count, query);
  pools->leaves_host = tsr__query_leaves_host(snapshot, devices, count);
  pools->devices = TSR__NEW_ARRAY(tsr_pools_device, count);
  if (!pools->devices) status = tsr__fail_memory(error);
  if (!status) status = tsr__study_prepare(study, devices, count, TSR__NEED_CYCLE, error);
  if (!status) status = describe_all(devices, count, &question, pools, error);
  if (status)
    tsr_pools_free(pools);
  else
    *out = pools;
  return status;
}

void tsr_pools_free(tsr_pools *pools) {
  if (!pools) return;
  for (size_t i = 0; i < pools->device_count; i++) release_device(&pools->devices[i]);
  tsr__free(pools->devices);
  tsr__free(pools);
}
