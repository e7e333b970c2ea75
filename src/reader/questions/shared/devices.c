/* devices.c - see devices.h. */
#include "questions/shared/devices.h"

#include <assert.h>

#include "base/memory.h"
#include "questions/shared/query.h"

int tsr__ask_devices(tsr_study *study, const tsr_query *query, unsigned needs,
                     tsr__describe_fn *describe, size_t part_bytes, tsr__parts *out,
                     tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  const uint32_t *devices;
  size_t count;
  assert(part_bytes);
  *out = (tsr__parts){0};
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  out->items = tsr__calloc(count, part_bytes);
  if (!out->items) return tsr__fail_memory(error);
  status = tsr__study_prepare(study, devices, count, needs, error);
  tsr__asking asking = {study, snapshot, query ? query->top : 0};
  while (!status && out->count < count) {
    size_t i = out->count++;
    status = describe(&asking, devices[i], (char *)out->items + i * part_bytes, error);
  }
  assert(status || out->count == count);
  return status;
}
