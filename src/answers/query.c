/* query.c - see query.h. */
#include "answers/query.h"

int tsr__query_devices(const tsr_snapshot *snapshot, const tsr_query *query,
                       const uint32_t **devices, size_t *count, tsr_error *error) {
  size_t there;
  const uint32_t *all = tsr_snapshot_devices(snapshot, &there);
  if (!query || !query->device_count) {
    *devices = all;
    *count = there;
    return 0;
  }
  for (size_t i = 0; i < query->device_count; i++) {
    size_t k = 0;
    while (k < there && all[k] != query->devices[i]) k++;
    if (k == there)
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "the snapshot has no events or segments of device %u",
                       (unsigned)query->devices[i]);
  }
  *devices = query->devices;
  *count = query->device_count;
  return 0;
}
