/* named.h - allocations that the program itself named, in the sidecar of the snapshot. */
#ifndef TSR_ATTRIBUTION_NAMED_H
#define TSR_ATTRIBUTION_NAMED_H

#include "tessera/unstable/sidecar.h"
#include "timeline/timeline.h"

/* The tensors in an allocation; NULL and 0 for one that died before the snapshot, or without a
 * sidecar. O(log tensors). */
const tsr_tensor *tsr__named_in(const tsr__timeline *timeline, uint32_t allocation, size_t *count);

/* Their category. If several share one block, as flat parameters do, the one with the most bytes.
 * False, and `*kind` untouched, if there is no named tensor. */
bool tsr__named_kind(const tsr__timeline *timeline, uint32_t allocation, tsr_category *kind);

/* The category that a text names: one of tsr_category_name's words, in any case, with blanks or dashes
 * for underscores ("KV cache"). False, and `*category` untouched, for any other text; "unknown" names
 * none. */
bool tsr__category_from_text(tsr_text text, tsr_category *category);

#endif
