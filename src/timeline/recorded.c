/* recorded.c - the relative replay: alloc adds, free_completed of a live address subtracts.
 *
 * One map from address to the event that made it live serves the whole replay:
 *
 *   value = event + 1   live since that event
 *   value = 0           mentioned in the trace, not live
 *
 * so that a block of the final state is `static` exactly when its address is not in the map. The
 * live set at the peak comes from a second pass that stops there. A free counts by its own size, as
 * Mosaic counts it; sizes of an alloc and its free agree in every file that PyTorch wrote. */
#include "timeline/recorded.h"

#include "base/checked.h"
#include "base/map.h"

typedef struct replay {
  tsr__map since; /* address -> event + 1, or 0 */
  uint64_t total_bytes;
  uint64_t frees_without_alloc;
} replay;

/* Apply one event. False when out of memory. */
static inline bool apply(replay *r, const tsr_events *events, uint64_t i) {
  uint64_t *since;
  switch (events->action[i]) {
  case TSR_ACTION_ALLOC:
    since = tsr__map_put(&r->since, events->addr[i], 0, NULL);
    if (!since) return false;
    *since = i + 1;
    r->total_bytes = tsr__sum_u64(r->total_bytes, events->size[i]);
    return true;
  case TSR_ACTION_FREE_COMPLETED:
  case TSR_ACTION_FREE:
    since = tsr__map_put(&r->since, events->addr[i], 0, NULL);
    if (!since) return false;
    if (*since)
      r->total_bytes = tsr__drop_u64(r->total_bytes, events->size[i]);
    else
      r->frees_without_alloc++;
    *since = 0;
    return true;
  case TSR_ACTION_FREE_REQUESTED: return tsr__map_put(&r->since, events->addr[i], 0, NULL) != NULL;
  default: return true;
  }
}

static bool find_peak(replay *r, const tsr_events *events, tsr_recorded *totals) {
  for (uint64_t i = 0; i < events->count; i++) {
    if (!apply(r, events, i)) return false;
    if (r->total_bytes > totals->dynamic_peak_bytes) {
      totals->dynamic_peak_bytes = r->total_bytes;
      totals->peak_event = (int64_t)i;
    }
  }
  if (totals->peak_event >= 0) totals->peak_time_us = events->time_us[totals->peak_event];
  return true;
}

static uint64_t static_bytes(const tsr_snapshot *snapshot, uint32_t device, replay *r) {
  size_t segment_count, block_count;
  const tsr_segment *segments = tsr_snapshot_segments(snapshot, &segment_count);
  const tsr_block *blocks = tsr_snapshot_blocks(snapshot, &block_count);
  uint64_t bytes = 0;
  for (size_t s = 0; s < segment_count; s++) {
    if (segments[s].device != device) continue;
    for (uint64_t b = 0; b < segments[s].block_count; b++) {
      const tsr_block *block = &blocks[segments[s].first_block + b];
      if (block->state == TSR_BLOCK_ALLOCATED && !tsr__map_find(&r->since, block->address))
        bytes = tsr__sum_u64(bytes, block->size_bytes);
    }
  }
  return bytes;
}

/* The allocations up to the peak's event that are live there: those whose address still names them.
 */
static bool find_live(replay *r, const tsr_events *events, tsr__recorded *out) {
  uint64_t end = (uint64_t)(out->totals.peak_event + 1);
  for (uint64_t i = 0; i < end; i++)
    if (!apply(r, events, i)) return false;
  for (uint64_t i = 0; i < end; i++) {
    if (events->action[i] != TSR_ACTION_ALLOC) continue;
    const uint64_t *since = tsr__map_find(&r->since, events->addr[i]);
    if (!since || *since != i + 1) continue;
    if (!TSR__VECTOR_PUSH(&out->live, (tsr__live){i, events->size[i], events->stack[i]}))
      return false;
  }
  return true;
}

int tsr__recorded_totals(const tsr_snapshot *snapshot, uint32_t device, tsr__recorded *out,
                         tsr_error *error) {
  tsr_events events = tsr_snapshot_events(snapshot, device);
  tsr__recorded result = {.totals = {.peak_event = -1, .peak_time_us = TSR_TIME_NONE}};
  replay r = {0};
  bool ok = find_peak(&r, &events, &result.totals);
  if (ok) {
    result.frees_without_alloc = r.frees_without_alloc;
    result.totals.static_bytes = static_bytes(snapshot, device, &r);
    result.totals.overall_bytes =
        tsr__sum_u64(result.totals.dynamic_peak_bytes, result.totals.static_bytes);
    *out = result;
  }
  tsr__map_release(&r.since);
  return ok ? 0 : tsr__fail_memory(error);
}

int tsr__recorded_compute(const tsr_snapshot *snapshot, uint32_t device, tsr__recorded *out,
                          tsr_error *error) {
  tsr_events events = tsr_snapshot_events(snapshot, device);
  tsr__recorded result;
  int status = tsr__recorded_totals(snapshot, device, &result, error);
  if (status) return status;
  replay until_peak = {0};
  bool ok = find_live(&until_peak, &events, &result);
  tsr__map_release(&until_peak.since);
  if (ok)
    *out = result;
  else
    tsr__recorded_release(&result);
  return ok ? 0 : tsr__fail_memory(error);
}

void tsr__recorded_release(tsr__recorded *recorded) {
  TSR__VECTOR_FREE(&recorded->live);
}
