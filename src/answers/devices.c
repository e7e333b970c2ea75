/* devices.c - see devices.h. */
#include "answers/devices.h"

#include "answers/query.h"
#include "base/memory.h"

int tsr__ask_devices(const tsr_snapshot *snapshot, const tsr_query *query,
                     tsr__describe_fn *describe, size_t part_bytes, tsr__parts *out,
                     tsr_error *error) {
  const uint32_t *devices;
  size_t count;
  tsr__roles roles = {0};
  *out = (tsr__parts){0};
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  out->items = tsr__calloc(count, part_bytes);
  status = out->items ? tsr__roles_compute(snapshot, &roles, error) : tsr__fail_memory(error);
  tsr__asking asking = {snapshot, &roles, query ? query->top : 0};
  while (!status && out->count < count) {
    size_t i = out->count++;
    status = describe(&asking, devices[i], (char *)out->items + i * part_bytes, error);
  }
  tsr__roles_release(&roles);
  return status;
}
