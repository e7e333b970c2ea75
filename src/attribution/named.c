/* named.c - from what the program said of its tensors to the kind of an allocation. See named.h.
 *
 * The sidecar's addresses are of the moment of the snapshot, which is the end of the trace: an
 * allocation that lives then is a block of the snapshot, at the same address. One at that address
 * that died earlier is another's. */
#include "attribution/named.h"

#include "base/checked.h"

const tsr_tensor *tsr__named_in(const tsr__timeline *timeline, uint32_t allocation, size_t *count) {
  size_t all;
  *count = 0;
  if (!tsr_snapshot_tensors(timeline->snapshot, &all)) return NULL;
  if (timeline->death.items[allocation] != TSR_NONE) return NULL;
  return tsr_snapshot_tensors_in(timeline->snapshot, timeline->device,
                                 tsr__timeline_address(timeline, allocation), count);
}

bool tsr__named_kind(const tsr__timeline *timeline, uint32_t allocation, tsr_kind *kind) {
  uint64_t bytes[TSR_KIND_COUNT] = {0}, most = 0;
  size_t count;
  const tsr_tensor *tensors = tsr__named_in(timeline, allocation, &count);
  for (size_t i = 0; i < count; i++) {
    uint64_t *of_kind = &bytes[tensors[i].kind];
    *of_kind = tsr__sum_u64(*of_kind, tensors[i].size_bytes);
    if (*of_kind <= most) continue;
    most = *of_kind;
    *kind = tensors[i].kind;
  }
  return count;
}
