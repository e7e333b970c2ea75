/* named.h - allocations that the program itself named, in the sidecar of the snapshot. */
#ifndef TSR_ATTRIBUTION_NAMED_H
#define TSR_ATTRIBUTION_NAMED_H

#include "tessera/sidecar.h"
#include "timeline/timeline.h"

/* The tensors in an allocation; NULL and 0 for one that died before the snapshot, and where there is
 * no sidecar. O(log tensors). */
const tsr_tensor *tsr__named_in(const tsr__timeline *timeline, uint32_t allocation, size_t *count);

/* The kind of those; of several in one block, as flat parameters are, that of most bytes. False, and
 * `*kind` untouched, where there are none. */
bool tsr__named_kind(const tsr__timeline *timeline, uint32_t allocation, tsr_kind *kind);

#endif
