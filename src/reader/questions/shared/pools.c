/* pools.c - see pools.h: the counts of timeline/pools.h, with the file's numbers instead of ids. */
#include "questions/shared/pools.h"

#include "base/memory.h"
#include "timeline/pools.h"

int tsr__private_pools_at(const tsr__timeline *timeline, int64_t event, const tsr__live_set *live,
                          tsr_private_pool **out, size_t *count, tsr_error *error) {
  tsr__pool_uses found;
  int status = tsr__timeline_pools(timeline, event, live, &found, error);
  if (status || !found.uses.count) {
    tsr__pool_uses_release(&found);
    return status;
  }
  tsr_private_pool *pools = TSR__NEW_ARRAY(tsr_private_pool, found.uses.count);
  for (size_t i = 0; pools && i < found.uses.count; i++) {
    const tsr__pool_use *use = &found.uses.items[i];
    pools[i] = (tsr_private_pool){tsr_snapshot_pool(timeline->snapshot, use->pool),
                                  tsr_snapshot_stream(timeline->snapshot, use->stream),
                                  use->active_bytes, use->reserved_bytes, use->high_water_bytes};
  }
  if (pools) {
    *out = pools;
    *count = found.uses.count;
  }
  tsr__pool_uses_release(&found);
  return pools ? 0 : tsr__fail_memory(error);
}
