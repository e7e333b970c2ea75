/* named.c - categories from the tensors that the program named. See named.h.
 *
 * The sidecar's addresses are from the moment of the snapshot, which is the end of the trace: an
 * allocation that is live then is a block of the snapshot, at the same address. An earlier allocation
 * at that address is unrelated. */
#include "attribution/named.h"

#include <assert.h>

#include "base/checked.h"

const tsr_tensor *tsr__named_in(const tsr__timeline *timeline, uint32_t allocation, size_t *count) {
  size_t all;
  assert(allocation < timeline->death.count);
  *count = 0;
  if (!tsr_snapshot_tensors(timeline->snapshot, &all)) return NULL;
  if (timeline->death.items[allocation] != TSR_NONE) return NULL;
  return tsr_snapshot_tensors_in(timeline->snapshot, timeline->device,
                                 tsr__timeline_address(timeline, allocation), count);
}

bool tsr__named_kind(const tsr__timeline *timeline, uint32_t allocation, tsr_category *kind) {
  uint64_t bytes[TSR_CATEGORY_COUNT] = {0}, most = 0;
  size_t count;
  const tsr_tensor *tensors = tsr__named_in(timeline, allocation, &count);
  for (size_t i = 0; i < count; i++) {
    assert(tensors[i].kind < TSR_CATEGORY_COUNT);
    uint64_t *of_kind = &bytes[tensors[i].kind];
    *of_kind = tsr__sum_u64(*of_kind, tensors[i].size_bytes);
    if (*of_kind <= most) continue;
    most = *of_kind;
    *kind = tensors[i].kind;
  }
  return count;
}

static char plain(char c) {
  if (c >= 'A' && c <= 'Z') return (char)(c - 'A' + 'a');
  return c == ' ' || c == '-' ? '_' : c;
}

bool tsr__category_from_text(tsr_text text, tsr_category *category) {
  for (int i = TSR_CATEGORY_UNKNOWN + 1; i < TSR_CATEGORY_COUNT; i++) {
    const char *name = tsr_category_name((tsr_category)i);
    size_t at = 0;
    while (at < text.size_bytes && name[at] && plain(text.data[at]) == name[at]) at++;
    if (at < text.size_bytes || name[at]) continue;
    *category = (tsr_category)i;
    return true;
  }
  return false;
}
