/* query.c - see query.h. */
#include "questions/shared/query.h"

#include "emit/text.h"

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
    char name[TSR__FORMAT_BYTES];
    size_t k = 0;
    while (k < there && all[k] != query->devices[i]) k++;
    if (k == there)
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "the snapshot has no events or segments for %s",
                       tsr__device_name(query->devices[i], name));
  }
  *devices = query->devices;
  *count = query->device_count;
  return 0;
}

int tsr__query_gpus(const tsr_snapshot *snapshot, const tsr_query *query, const uint32_t **devices,
                    size_t *count, tsr_error *error) {
  int status = tsr__query_devices(snapshot, query, devices, count, error);
  if (status || (query && query->device_count)) return status;
  size_t gpu_count;
  const uint32_t *gpus = tsr_snapshot_gpus(snapshot, &gpu_count);
  if (!gpu_count && *count && (*devices)[0] == TSR_DEVICE_CPU) {
    *count = 1; /* a program that ran on the CPU: its memory is what was asked about */
    return 0;
  }
  *devices = gpus;
  *count = gpu_count;
  return 0;
}

bool tsr__query_leaves_host(const tsr_snapshot *snapshot, const uint32_t *devices, size_t count) {
  size_t all_count;
  const uint32_t *all = tsr_snapshot_devices(snapshot, &all_count);
  bool is_in = false;
  for (size_t i = 0; i < count; i++) is_in = is_in || devices[i] == TSR_DEVICE_HOST;
  return all_count && all[all_count - 1] == TSR_DEVICE_HOST && !is_in;
}

bool tsr__window_find(const tsr_events *events, const tsr_window *window, int64_t *first,
                      int64_t *last) {
  *first = window->first < 0 ? 0 : window->first;
  *last = window->last < (int64_t)events->count ? window->last : (int64_t)events->count - 1;
  if (window->is_time) {
    *first = (int64_t)events->count;
    *last = -1;
    for (int64_t i = 0; i < (int64_t)events->count; i++) {
      int64_t time = events->time_us[i];
      if (time == TSR_TIME_NONE || time < window->first || time > window->last) continue;
      if (i < *first) *first = i;
      *last = i;
    }
  }
  return *first <= *last;
}
