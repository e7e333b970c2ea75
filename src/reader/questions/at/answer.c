/* answer.c - what was live at another moment? A moment is an event's number, a time, or the event at
 * which an address was allocated or freed for the n-th time. */
#include <assert.h>
#include <inttypes.h>

#include "base/memory.h"
#include "emit/text.h"
#include "questions/shared/pools.h"
#include "questions/shared/query.h"
#include "questions/shared/shares.h"
#include "study/study.h"

/* The last event at or before a time; -1 if all are later. Times may run backwards in odd files,
 * so this is the last such event in the order of the trace. */
static bool find_time(const tsr_events *events, int64_t time_us, int64_t *event) {
  bool has_time = false;
  *event = -1;
  for (uint64_t i = 0; i < events->count; i++) {
    if (events->time_us[i] == TSR_TIME_NONE) continue;
    has_time = true;
    if (events->time_us[i] <= time_us) *event = (int64_t)i;
  }
  return has_time;
}

static bool find_allocation(const tsr_events *events, const tsr_at_where *where, int64_t *event) {
  uint64_t version = 0;
  for (uint64_t i = 0; i < events->count; i++) {
    if (events->addr[i] != where->address || events->action[i] == TSR_ACTION_OOM) continue;
    if (events->action[i] == where->action && version == where->version) {
      *event = (int64_t)i;
      return true;
    }
    version += events->action[i] == TSR_ACTION_FREE_COMPLETED;
  }
  return false;
}

static bool find_moment(const tsr_events *events, const tsr__timeline *timeline,
                        const tsr_at_where *where, int64_t *event) {
  switch (where->kind) {
  case TSR_AT_EVENT:
    *event = where->event;
    return where->event >= -1 && where->event < (int64_t)events->count;
  case TSR_AT_TIME: return find_time(events, where->time_us, event);
  case TSR_AT_ALLOCATION: return find_allocation(events, where, event);
  case TSR_AT_PEAK: *event = timeline->allocated_event; return true;
  case TSR_AT_END: *event = (int64_t)events->count - 1; return true;
  }
  return false;
}

static int describe_live(const tsr__timeline *timeline, const tsr__categories *categories,
                         const tsr__names *names, size_t top, tsr_at_device *out,
                         tsr_error *error) {
  tsr__live_set live = {0};
  tsr__shares shares;
  int64_t event = out->moment.event;
  assert(event >= -1 && event < (int64_t)timeline->events.count);
  int status = tsr__timeline_live(timeline, event, &live, error);
  if (!status) status = tsr__shares_of(timeline, &live, categories, names, top, &shares, error);
  if (!status) {
    out->stacks = shares.items;
    out->stack_count = shares.count;
    out->names = shares.names;
    out->omitted_stacks = shares.omitted_stacks;
    out->omitted_bytes = shares.omitted_bytes;
    out->live_allocations = live.count;
    out->moment.totals = tsr__timeline_totals(timeline, event, &live);
    status = tsr__timeline_fragmentation(timeline, event, &live, &out->fragmentation, error);
    if (!status)
      status = tsr__private_pools_at(timeline, event, &live, &out->private_pools,
                                     &out->private_pool_count, error);
  }
  TSR__VECTOR_FREE(&live);
  return status;
}

static int describe(tsr_study *study, size_t top, tsr_at_device *out, tsr_error *error) {
  const tsr__timeline *timeline;
  const tsr__categories *categories;
  const tsr__names *names;
  int status = tsr__study_timeline(study, out->device, &timeline, error);
  if (!status) status = tsr__study_categories(study, out->device, &categories, error);
  if (!status) status = tsr__study_names(study, out->device, &names, error);
  if (!status) status = describe_live(timeline, categories, names, top, out, error);
  if (!status && !(out->warnings = tsr__copy_warnings(timeline, &out->warning_count)))
    status = tsr__fail_memory(error);
  return status;
}

/* Fill in the devices and the moment on each; `*found` is the number of devices that have it. */
static int find_moments(tsr_study *study, const tsr_at_where *where, const uint32_t *devices,
                        size_t count, tsr_at *at, size_t *found, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  const tsr__timeline *timeline = NULL;
  int status = 0;
  for (size_t i = 0; i < count && status == 0; i++) {
    if (where->kind == TSR_AT_PEAK)
      status = tsr__study_timeline(study, devices[i], &timeline, error);
    if (status) return status;
    tsr_at_device *device = &at->devices[at->device_count++];
    tsr_events events = tsr_snapshot_events(snapshot, devices[i]);
    int64_t event = -1;
    device->device = devices[i];
    device->event_count = events.count;
    device->has_history = tsr__has_history(&events);
    device->is_found = find_moment(&events, timeline, where, &event);
    if (!device->is_found) event = -1; /* it may be another device's */
    device->moment.event = event;
    device->moment.time_us = event < 0 ? TSR_TIME_NONE : events.time_us[event];
    *found += device->is_found;
  }
  return status;
}

/* No device has the moment: the error lists what exists instead. */
static int fail_unknown(const tsr_snapshot *snapshot, const tsr_at_where *where, const tsr_at *at,
                        tsr_error *error) {
  const tsr_at_device *longest = at->devices;
  uint64_t seen = 0, given_back = 0;
  for (size_t i = 0; i < at->device_count; i++) {
    tsr_events events = tsr_snapshot_events(snapshot, at->devices[i].device);
    if (events.count > longest->event_count) longest = &at->devices[i];
    for (uint64_t k = 0; where->kind == TSR_AT_ALLOCATION && k < events.count; k++) {
      if (events.addr[k] != where->address || events.action[k] == TSR_ACTION_OOM) continue;
      seen++;
      given_back += events.action[k] == TSR_ACTION_FREE_COMPLETED;
    }
  }
  char name[TSR__FORMAT_BYTES];
  if (!at->device_count || !longest->event_count)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "the trace has no events; only the final state is available");
  if (where->kind == TSR_AT_EVENT)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "no event %" PRId64 ": %s has events 0 to %" PRIu64
                     ", and -1 for the state before the first",
                     where->event, tsr__device_name(longest->device, name),
                     longest->event_count - 1);
  if (where->kind == TSR_AT_TIME)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "no event has a time; use --event");
  if (!seen)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "the trace has no event with address %" PRIx64, where->address);
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                   "no such event: %" PRIu64 " of the trace %s about address %" PRIx64
                   ", which is freed %" PRIu64 " times",
                   seen, seen == 1 ? "is" : "are", where->address, given_back);
}

int tsr_at_compute(tsr_study *study, const tsr_at_where *where, const tsr_query *query,
                   tsr_at **out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  const uint32_t *devices;
  size_t count, found = 0;
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  tsr_at *at = TSR__NEW(tsr_at);
  if (!at) return tsr__fail_memory(error);
  at->devices = TSR__NEW_ARRAY(tsr_at_device, count);
  if (!at->devices) status = tsr__fail_memory(error);
  if (!status) status = find_moments(study, where, devices, count, at, &found, error);
  if (!status && !found) status = fail_unknown(snapshot, where, at, error);
  for (size_t i = 0; !status && i < at->device_count; i++)
    if (at->devices[i].is_found)
      status = describe(study, query ? query->top : 0, &at->devices[i], error);
  if (status)
    tsr_at_free(at);
  else
    *out = at;
  return status;
}

void tsr_at_free(tsr_at *at) {
  if (!at) return;
  for (size_t i = 0; i < at->device_count; i++) {
    tsr__free(at->devices[i].stacks);
    tsr__free(at->devices[i].names);
    tsr__free(at->devices[i].private_pools);
    tsr__free(at->devices[i].warnings);
  }
  tsr__free(at->devices);
  tsr__free(at);
}
