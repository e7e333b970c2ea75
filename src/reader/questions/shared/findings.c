/* findings.c - see findings.h: the study's findings, which the answer owns, and those that other questions answer:
 * what `leaks` finds and is alive at the peak, and what settings of `whatif` reserve less than a cache that is
 * emptied by hand. */
#include "questions/shared/findings.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "columns/tables.h"
#include "study/finder.h"
#include "tessera/unstable/steps.h"
#include "tessera/unstable/whatif.h"

/* A trace of more events is repeated under one other setting only, since that takes time. */
enum { MANY_EVENTS = 200000 };

/* ---- Leaks ---- */

/* The leak that an allocation is of; `count` for none. What was made since the leak began, at its stack,
 * and is never freed has leaked. */
static size_t leak_of(const tsr__timeline *t, const tsr_leaks_device *leaks, uint32_t allocation) {
  uint32_t birth = t->birth.items[allocation], stack = tsr__timeline_stack(t, allocation);
  size_t i = birth == TSR_NONE || t->death.items[allocation] != TSR_NONE ? leaks->leak_count : 0;
  for (; i < leaks->leak_count; i++) {
    const tsr_leak *leak = &leaks->leaks[i];
    if (birth < leak->first_event) continue;
    bool has_frames = stack != TSR_NONE && tsr_snapshot_stack(t->snapshot, stack).depth;
    if (has_frames ? leak->stack == stack
                   : leak->stack == TSR_NONE &&
                         tsr__timeline_requested(t, allocation) == leak->bytes / leak->allocations)
      break;
  }
  return i;
}

static int weigh_leaks(const tsr__timeline *t, const tsr_leaks_device *leaks, tsr_finding *out,
                       tsr__allocations *rows, tsr_error *error) {
  tsr__live_set live = {0};
  uint64_t most = 0, *bytes = TSR__NEW_ARRAY(uint64_t, leaks->leak_count + 1);
  uint32_t loop = TSR_NONE; /* of the leak that has most */
  int status =
      bytes ? tsr__timeline_live(t, t->allocated_event, &live, error) : tsr__fail_memory(error);
  for (size_t i = 0; !status && i < live.count; i++) {
    size_t leak = leak_of(t, leaks, live.items[i]);
    if (leak == leaks->leak_count) continue;
    uint64_t size = tsr__timeline_requested(t, live.items[i]);
    bytes[leak] = tsr__sum_u64(bytes[leak], size);
    out->bytes = tsr__sum_u64(out->bytes, size);
    out->count++;
    if (bytes[leak] > most) {
      most = bytes[leak];
      out->stack = leaks->leaks[leak].stack;
      loop = leaks->leaks[leak].loop;
    }
    if (rows && !TSR__VECTOR_PUSH(rows, live.items[i])) status = tsr__fail_memory(error);
  }
  out->is_most = most > out->bytes / 2;
  for (size_t i = 0; !status && i < leaks->leak_count; i++)
    out->is_tied |= most && bytes[i] == most && leaks->leaks[i].stack != out->stack;
  for (size_t i = 0; !status && i < leaks->leak_count; i++)
    if (bytes[i] && leaks->leaks[i].loop == loop)
      out->step_bytes = tsr__sum_u64(out->step_bytes, leaks->leaks[i].bytes_per_step);
  if (most) out->unit = leaks->loops[loop].unit;
  tsr__free(bytes);
  TSR__VECTOR_FREE(&live);
  return status;
}

int tsr__leak_find(tsr_study *study, uint32_t device, tsr_finding *out, tsr__allocations *rows,
                   tsr_error *error) {
  tsr_query query = {.struct_bytes = sizeof query, .devices = &device, .device_count = 1};
  const tsr__timeline *t;
  tsr_leaks *leaks = NULL;
  *out = (tsr_finding){.rule = TSR_FINDING_LEAK, .frame = TSR_NONE, .stack = TSR_NONE};
  int status = tsr__study_timeline(study, device, &t, error);
  if (!status) status = tsr_leaks_compute(study, &query, &leaks, error);
  if (status) return status;
  if (leaks->device_count && leaks->devices->leak_count) {
    out->event = t->allocated_event;
    status = weigh_leaks(t, leaks->devices, out, rows, error);
  }
  tsr_leaks_free(leaks);
  uint64_t peak = t->at_peak.allocated_bytes;
  bool is_worth_it =
      out->bytes >= TSR__FINDING_LEAST_BYTES && out->bytes >= peak / TSR__FINDING_LEAST_SHARE;
  out->saved_bytes = is_worth_it ? out->bytes : 0;
  return status;
}

/* ---- Settings ---- */

/* The best run that reserves less than the recorded settings do, where the two can be compared. */
static void note_settings(const tsr_whatif_device *device, tsr_finding *finding) {
  uint64_t recorded = 0;
  if (device->doubt != TSR_WHATIF_COMPARABLE) return;
  for (size_t i = 0; i < device->run_count; i++)
    if (device->runs[i].is_recorded && !device->runs[i].is_given_up)
      recorded = device->runs[i].peak.totals.reserved_bytes;
  for (size_t i = 0; i < device->run_count; i++) {
    const tsr_whatif_run *run = &device->runs[i];
    uint64_t less = tsr__drop_u64(recorded, run->peak.totals.reserved_bytes);
    if (run->is_recorded || run->is_given_up || run->is_out_of_memory) continue;
    if (less <= finding->saved_bytes || less <= finding->settings_bytes) continue;
    finding->settings = run->settings;
    finding->settings_bytes = less;
  }
}

static int try_settings(tsr_study *study, uint32_t device, tsr_finding *finding, tsr_error *error) {
  const tsr_allocator_settings expandable = {.expandable_segments = true};
  tsr_query query = {.struct_bytes = sizeof query, .devices = &device, .device_count = 1};
  tsr_whatif_options one = {.settings = &expandable, .setting_count = 1};
  tsr_whatif *whatif = NULL;
  uint64_t events = tsr_snapshot_events(tsr_study_snapshot(study), device).count;
  if (finding->is_one_moment || device >= TSR_DEVICE_CPU) return 0;
  if (tsr__snapshot_flat(tsr_study_snapshot(study), device)) return 0; /* nothing to repeat */
  int status =
      tsr_whatif_compute(study, events > MANY_EVENTS ? &one : NULL, &query, &whatif, error);
  if (!status && whatif->device_count) note_settings(whatif->devices, finding);
  if (!status) tsr_whatif_free(whatif);
  return status;
}

/* ---- All ---- */

/* Where a leak goes: among the others by what it saves, before what is cached. */
static void insert(tsr_finding *list, size_t *count, const tsr_finding *leak) {
  size_t i = (*count)++;
  for (; i > 0; i--) {
    const tsr_finding *before = &list[i - 1];
    if (before->rule != TSR_FINDING_CACHED && before->saved_bytes >= leak->saved_bytes) break;
    list[i] = *before;
  }
  list[i] = *leak;
}

int tsr__findings_of(tsr_study *study, uint32_t device, tsr_finding **out, size_t *count,
                     tsr_error *error) {
  const tsr__findings *findings;
  tsr_finding leak;
  int status = tsr__study_findings(study, device, &findings, error);
  if (!status) status = tsr__leak_find(study, device, &leak, NULL, error);
  *out = NULL;
  *count = 0;
  if (status || (!findings->items.count && !leak.saved_bytes)) return status;
  *out = TSR__NEW_ARRAY(tsr_finding, findings->items.count + 1);
  if (!*out) return tsr__fail_memory(error);
  *count = findings->items.count;
  if (*count) memcpy(*out, findings->items.items, *count * sizeof **out);
  if (leak.saved_bytes) insert(*out, count, &leak);
  tsr_finding *last = &(*out)[*count - 1];
  return last->rule == TSR_FINDING_CACHED ? try_settings(study, device, last, error) : 0;
}
