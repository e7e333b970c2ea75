/* usage.c - what is live at an event, identified as in Mosaic. */
#include "base/memory.h"
#include "mosaic/trace.h"

/* Read up to the moment. `usage->event` stays -1 if the trace does not contain it. */
static bool find(const tsr__mosaic_trace *trace, tsr_mosaic_usage *usage) {
  tsr__mosaic_count count = {.bytes = 0};
  uint64_t version = 0;
  bool is_good = true;
  for (uint64_t i = 0; i < trace->events.count && is_good; i++) {
    if (!tsr__mosaic_counts(trace, i)) continue;
    is_good = tsr__mosaic_count_event(&count, trace, i, 0);
    if (tsr__mosaic_is_moment(trace, i, &usage->moment, version)) {
      usage->device = trace->device;
      usage->event = (int64_t)i;
      usage->bytes = count.bytes;
      break;
    }
    version += trace->events.addr[i] == usage->moment.address &&
               trace->events.action[i] == TSR_ACTION_FREE_COMPLETED;
  }
  tsr__map_release(&count.live);
  return is_good;
}

static int describe(const tsr_snapshot *snapshot, tsr_mosaic_usage *usage, tsr_error *error) {
  size_t count;
  const uint32_t *devices = tsr_snapshot_gpus(snapshot, &count);
  usage->first_device = tsr__mosaic_trace_first(snapshot).device;
  usage->device = usage->first_device;
  for (size_t i = 0; i < count; i++) {
    tsr__mosaic_trace trace = tsr__mosaic_trace_of(snapshot, devices[i]);
    if (!find(&trace, usage)) return tsr__fail_memory(error);
    if (usage->event >= 0)
      return tsr__mosaic_groups_at(&trace, usage->event, &usage->groups, error);
  }
  return 0;
}

int tsr_mosaic_usage_compute(tsr_study *study, const tsr_mosaic_moment *moment,
                             tsr_mosaic_usage **out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  tsr_mosaic_usage *usage = TSR__NEW(tsr_mosaic_usage);
  if (!usage) return tsr__fail_memory(error);
  usage->moment = *moment;
  usage->event = -1;
  int status = describe(snapshot, usage, error);
  if (status)
    tsr_mosaic_usage_free(usage);
  else
    *out = usage;
  return status;
}

void tsr_mosaic_usage_free(tsr_mosaic_usage *usage) {
  if (!usage) return;
  tsr_mosaic_groups_release(&usage->groups);
  tsr__free(usage);
}
