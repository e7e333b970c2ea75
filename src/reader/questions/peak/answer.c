/* answer.c - what holds the memory at the peak? The live set there, summed by stack. */
#include <assert.h>

#include "base/memory.h"
#include "columns/tables.h"
#include "questions/shared/devices.h"
#include "questions/shared/findings.h"
#include "questions/shared/imbalance.h"
#include "questions/shared/pools.h"
#include "questions/shared/shares.h"
#include "questions/shared/stepping.h"

static uint64_t unsplit_of(const tsr__timeline *timeline, const tsr__live_set *live) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < live->count; i++)
    if (live->items[i] < timeline->initial.count)
      bytes += timeline->initial.items[live->items[i]].unsplit_bytes;
  return bytes;
}

static void copy_totals(const tsr__timeline *timeline, tsr_peak_device *out) {
  out->event_count = timeline->events.count;
  out->has_history = tsr__has_history(&timeline->events);
  out->is_partial = tsr__lacks_a_part(timeline->snapshot);
  out->peak.event = timeline->allocated_event;
  out->peak.time_us =
      out->peak.event < 0 ? TSR_TIME_NONE : timeline->events.time_us[out->peak.event];
  out->peak.totals = timeline->at_peak;
  assert(out->peak.event < (int64_t)timeline->events.count);
  out->start = timeline->start;
  out->end = timeline->end;
  out->maxima = timeline->maxima;
  for (size_t i = 0; i < timeline->initial.count; i++)
    out->start_unsplit_bytes += timeline->initial.items[i].unsplit_bytes;
}

static int describe_live(const tsr__timeline *timeline, const tsr__categories *categories,
                         const tsr__names *names, size_t top, tsr_peak_device *out,
                         tsr_error *error) {
  tsr__live_set live = {0};
  tsr__shares shares;
  int status = tsr__timeline_live(timeline, timeline->allocated_event, &live, error);
  if (!status) status = tsr__shares_of(timeline, &live, categories, names, top, &shares, error);
  if (!status) {
    assert((top && shares.omitted_stacks) || !shares.omitted_bytes);
    out->stacks = shares.items;
    out->stack_count = shares.count;
    out->names = shares.names;
    out->omitted_stacks = shares.omitted_stacks;
    out->omitted_bytes = shares.omitted_bytes;
    out->peak_unsplit_bytes = unsplit_of(timeline, &live);
    status = tsr__timeline_fragmentation(timeline, timeline->allocated_event, &live,
                                         &out->fragmentation, error);
    if (!status)
      status = tsr__private_pools_at(timeline, timeline->allocated_event, &live,
                                     &out->private_pools, &out->private_pool_count, error);
  }
  TSR__VECTOR_FREE(&live);
  return status;
}

static int find_stop(const tsr__asking *asking, uint32_t device, tsr_peak_device *out,
                     tsr_error *error) {
  tsr__stepping stepping;
  int status = tsr__stepping_find(asking->study, device, &stepping, error);
  if (status) return status;
  out->unit = stepping.cycle->unit;
  return tsr__stepping_stop(&stepping, &out->stop, error);
}

static int describe(const tsr__asking *asking, uint32_t device, void *part, tsr_error *error) {
  tsr_peak_device *out = part;
  const tsr__timeline *timeline;
  const tsr__categories *categories;
  const tsr__names *names;
  out->device = device;
  int status = tsr__study_timeline(asking->study, device, &timeline, error);
  if (!status) status = tsr__study_categories(asking->study, device, &categories, error);
  if (!status) status = tsr__study_names(asking->study, device, &names, error);
  if (status) return status;
  out->recorded = timeline->recorded;
  copy_totals(timeline, out);
  status = describe_live(timeline, categories, names, asking->top, out, error);
  if (!status)
    status = tsr__findings_of(asking->study, device, &out->findings, &out->finding_count, error);
  if (!status) status = find_stop(asking, device, out, error);
  if (!status && !(out->warnings = tsr__copy_warnings(timeline, &out->warning_count)))
    status = tsr__fail_memory(error);
  return status;
}

static int compare_devices(tsr_study *study, tsr_peak *peak, tsr_error *error) {
  uint32_t *devices = TSR__NEW_ARRAY(uint32_t, peak->device_count + 1);
  if (!devices) return tsr__fail_memory(error);
  for (size_t i = 0; i < peak->device_count; i++) devices[i] = peak->devices[i].device;
  int status = tsr__imbalance_find(study, devices, peak->device_count, &peak->imbalance, error);
  tsr__free(devices);
  return status;
}

int tsr_peak_compute(tsr_study *study, const tsr_query *query, tsr_peak **out, tsr_error *error) {
  tsr__parts parts;
  tsr_peak *peak = TSR__NEW(tsr_peak);
  if (!peak) return tsr__fail_memory(error);
  int status = tsr__ask_devices(study, query, TSR__NEED_CATEGORIES | TSR__NEED_CYCLE, describe,
                                sizeof *peak->devices, &parts, error);
  peak->devices = parts.items;
  peak->device_count = parts.count;
  if (!status) status = compare_devices(study, peak, error);
  if (status)
    tsr_peak_free(peak);
  else
    *out = peak;
  return status;
}

void tsr_peak_free(tsr_peak *peak) {
  if (!peak) return;
  for (size_t i = 0; i < peak->device_count; i++) {
    tsr__free(peak->devices[i].stacks);
    tsr__free(peak->devices[i].names);
    tsr__free(peak->devices[i].private_pools);
    tsr__free(peak->devices[i].findings);
    tsr__free(peak->devices[i].warnings);
  }
  tsr__free(peak->devices);
  tsr__free(peak);
}
