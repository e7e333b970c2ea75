/* pools.h - private pools at a moment, as part of an answer. */
#ifndef TSR_QUESTIONS_SHARED_POOLS_H
#define TSR_QUESTIONS_SHARED_POOLS_H

#include "tessera/unstable/timeline.h"
#include "timeline/timeline.h"

/* The private pools of a device at an event; `live` is its live set. The caller frees `*out` with
 * tsr__free; NULL if none. Fails with TSR_ERROR_MEMORY. */
int tsr__private_pools_at(const tsr__timeline *timeline, int64_t event, const tsr__live_set *live,
                          tsr_private_pool **out, size_t *count, tsr_error *error);

#endif
