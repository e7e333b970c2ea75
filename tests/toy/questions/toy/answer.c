/* answer.c - counts the events of one action on each device. */
#include "toy.h"

#include "base/error.h"
#include "base/memory.h"

int tsr__toy_compute(tsr_study *study, tsr_action action, uint64_t least_bytes, tsr__toy **out,
                     tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  size_t count;
  const uint32_t *devices = tsr_snapshot_devices(snapshot, &count);
  tsr__toy *value = TSR__NEW(tsr__toy);
  if (!value) return tsr__fail_memory(error);
  for (size_t i = 0; i < count && i < 64; i++) {
    tsr_events events = tsr_snapshot_events(snapshot, devices[i]);
    value->devices[value->device_count] = devices[i];
    for (uint64_t e = 0; e < events.count; e++)
      value->counts[value->device_count] +=
          events.action[e] == (uint32_t)action && events.size[e] >= least_bytes;
    value->device_count++;
  }
  *out = value;
  return 0;
}
