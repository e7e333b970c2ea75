/* peak.c - Mosaic's peak, and the difference of two peaks.
 *
 * Mosaic reads the trace twice, first for the largest usage and then for the first event that has it.
 * Here one pass finds both: the first event at which usage is larger than at any before, or, if it
 * is never above 0, the first at which it is 0.
 *
 * The version in Mosaic's log is that of the second reading, which continues counting from the first:
 * all frees of the address in the window, and again those before the peak. Mosaic also identifies the
 * event to stop at by such versions, so its second reading may stop too early and print
 * nothing; that bug is not reproduced here. */
#include <assert.h>

#include "base/checked.h"
#include "base/memory.h"
#include "mosaic/trace.h"

/* The result of reading the trace. */
typedef struct reading {
  int64_t peak_bytes, peak_event;
  uint64_t nameless_count;
  uint64_t end; /* the first event after the window */
  uint64_t
      end_version_excess; /* 1: the last event is the one to stop at, whose free does not count */
} reading;

/* The window, prepared for reading. */
typedef struct gate {
  const tsr_mosaic_window *window;
  int64_t time_us; /* of the newest event that has one */
} gate;

static bool is_past(gate *g, int64_t time_us) {
  if (time_us != TSR_TIME_NONE) g->time_us = time_us;
  return g->window->has_last && g->time_us != TSR_TIME_NONE && g->time_us > g->window->last_us;
}

static bool is_inside(const gate *g) {
  return !g->window->has_first || g->time_us >= g->window->first_us;
}

static bool read_trace(const tsr__mosaic_trace *trace, const tsr_mosaic_window *window,
                       reading *out) {
  tsr__mosaic_count count = {.bytes = 0};
  gate g = {.window = window, .time_us = TSR_TIME_NONE};
  uint64_t version = 0, i = 0;
  bool is_good = true, is_stopped = false;
  *out = (reading){.peak_event = -1};
  for (; i < trace->events.count && is_good && !is_stopped; i++) {
    if (is_past(&g, trace->events.time_us[i])) break;
    if (!tsr__mosaic_counts(trace, i)) {
      out->nameless_count += trace->events.action[i] == TSR_ACTION_ALLOC ||
                             trace->events.action[i] == TSR_ACTION_FREE_COMPLETED;
      continue;
    }
    is_good = tsr__mosaic_count_event(&count, trace, i, 0);
    if (!is_inside(&g)) continue;
    if (count.bytes > out->peak_bytes || (out->peak_event < 0 && count.bytes == 0)) {
      out->peak_bytes = count.bytes;
      out->peak_event = (int64_t)i;
    }
    is_stopped = window->has_stop && tsr__mosaic_is_moment(trace, i, &window->stop, version);
    version += trace->events.addr[i] == window->stop.address &&
               trace->events.action[i] == TSR_ACTION_FREE_COMPLETED;
  }
  assert(out->peak_bytes >= 0 && out->peak_event < (int64_t)i);
  out->end = i;
  out->end_version_excess = is_stopped;
  tsr__map_release(&count.live);
  return is_good;
}

/* Frees of an address among the first `end` events, except those before the window. */
static uint64_t count_frees(const tsr__mosaic_trace *trace, const tsr_mosaic_window *window,
                            uint64_t address, uint64_t end) {
  gate g = {.window = window, .time_us = TSR_TIME_NONE};
  uint64_t frees = 0;
  assert(end <= trace->events.count);
  for (uint64_t i = 0; i < end; i++) {
    (void)is_past(&g, trace->events.time_us[i]);
    frees += trace->events.action[i] == TSR_ACTION_FREE_COMPLETED &&
             trace->events.addr[i] == address && is_inside(&g) && tsr__mosaic_counts(trace, i);
  }
  return frees;
}

static uint64_t logged_version(const tsr__mosaic_trace *trace, const tsr_mosaic_window *window,
                               const reading *found) {
  if (found->peak_event < 0) return 0;
  uint64_t address = trace->events.addr[found->peak_event];
  return count_frees(trace, window, address, found->end - found->end_version_excess) +
         count_frees(trace, window, address, (uint64_t)found->peak_event);
}

/* ---- static memory ---- */

/* Remove the addresses that occur in the trace from the map. */
static void forget_named(const tsr__mosaic_trace *trace, tsr__map *blocks) {
  for (uint64_t i = 0; i < trace->events.count; i++) {
    uint8_t action = trace->events.action[i];
    bool is_naming = action == TSR_ACTION_ALLOC || action == TSR_ACTION_FREE_REQUESTED ||
                     action == TSR_ACTION_FREE_COMPLETED;
    if (is_naming && tsr__mosaic_counts(trace, i)) tsr__map_remove(blocks, trace->events.addr[i]);
  }
}

static int sum_static(const tsr__mosaic_trace *trace, uint64_t *bytes, tsr_error *error) {
  size_t count;
  const tsr_block *blocks = tsr_snapshot_blocks(trace->snapshot, &count);
  tsr__map allocated = {0};
  bool is_good = true;
  for (size_t i = 0; i < count && is_good; i++)
    if (blocks[i].state == TSR_BLOCK_ALLOCATED)
      is_good = tsr__map_put(&allocated, blocks[i].address, 0, NULL);
  if (is_good && allocated.count + allocated.has_reserved) forget_named(trace, &allocated);
  for (size_t i = 0; i < count && is_good; i++)
    if (blocks[i].state == TSR_BLOCK_ALLOCATED && tsr__map_find(&allocated, blocks[i].address))
      *bytes = tsr__sum_u64(*bytes, blocks[i].size_bytes);
  tsr__map_release(&allocated);
  return is_good ? 0 : tsr__fail_memory(error);
}

/* ---- the answer ---- */

static int describe_others(const tsr_snapshot *snapshot, const tsr_mosaic_window *window,
                           tsr_mosaic_peak *peak, tsr_error *error) {
  size_t count;
  const uint32_t *devices = tsr_snapshot_gpus(snapshot, &count);
  peak->others = TSR__NEW_ARRAY(tsr_mosaic_other, count);
  if (!peak->others) return tsr__fail_memory(error);
  for (size_t i = 0; i < count; i++) {
    tsr__mosaic_trace trace = tsr__mosaic_trace_of(snapshot, devices[i]);
    reading found;
    if (devices[i] == peak->device || !trace.events.count) continue;
    if (!read_trace(&trace, window, &found)) return tsr__fail_memory(error);
    peak->others[peak->other_count++] =
        (tsr_mosaic_other){.device = devices[i], .bytes = (uint64_t)found.peak_bytes};
  }
  return 0;
}

static int describe(const tsr_snapshot *snapshot, const tsr_mosaic_window *window,
                    tsr_mosaic_peak *peak, tsr_error *error) {
  tsr__mosaic_trace trace = window->has_device ? tsr__mosaic_trace_of(snapshot, window->device)
                                               : tsr__mosaic_trace_first(snapshot);
  reading found;
  if (!read_trace(&trace, window, &found)) return tsr__fail_memory(error);
  peak->device = trace.device;
  peak->event = found.peak_event;
  peak->bytes = (uint64_t)found.peak_bytes;
  peak->nameless_count = found.nameless_count;
  peak->version = logged_version(&trace, window, &found);
  int status = sum_static(&trace, &peak->static_bytes, error);
  if (!status) status = tsr__mosaic_groups_at(&trace, peak->event, &peak->groups, error);
  if (!status) status = describe_others(snapshot, window, peak, error);
  return status;
}

int tsr_mosaic_peak_compute(tsr_study *study, const tsr_mosaic_window *window,
                            tsr_mosaic_peak **out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  static const tsr_mosaic_window everything = {.has_first = false};
  tsr_mosaic_peak *peak = TSR__NEW(tsr_mosaic_peak);
  if (!peak) return tsr__fail_memory(error);
  int status = describe(snapshot, window ? window : &everything, peak, error);
  if (status)
    tsr_mosaic_peak_free(peak);
  else
    *out = peak;
  return status;
}

void tsr_mosaic_groups_release(tsr_mosaic_groups *groups) {
  tsr__free(groups->items);
  tsr__free(groups->events);
  *groups = (tsr_mosaic_groups){.count = 0};
}

void tsr_mosaic_peak_free(tsr_mosaic_peak *peak) {
  if (!peak) return;
  tsr_mosaic_groups_release(&peak->groups);
  tsr__free(peak->others);
  tsr__free(peak);
}

/* ---- diff ---- */

static bool put_keys(const tsr_snapshot *snapshot, const tsr_mosaic_groups *groups,
                     tsr__buffer *text, tsr__intern *keys) {
  for (size_t i = 0; i < groups->count; i++) {
    text->size = 0;
    tsr__mosaic_key(text, snapshot, groups->items[i].stack);
    if (text->failed) return false;
    uint32_t id = tsr__intern_put(keys, text->data, text->size, NULL);
    if (id == TSR__INTERN_FULL) return false;
    assert(id == i); /* groups of one snapshot have different keys, so ids are positions */
  }
  return true;
}

static int compare(const tsr_snapshot *base_snapshot, const tsr_mosaic_peak *base,
                   const tsr_snapshot *snapshot, const tsr_mosaic_peak *peak, tsr_mosaic_diff *diff,
                   tsr_error *error) {
  tsr__intern keys;
  tsr__buffer text = {0};
  tsr__intern_init(&keys);
  diff->groups.items = TSR__NEW_ARRAY(tsr_mosaic_group, peak->groups.count);
  bool is_good = diff->groups.items && put_keys(base_snapshot, &base->groups, &text, &keys);
  for (size_t i = 0; i < peak->groups.count && is_good; i++) {
    const tsr_mosaic_group *group = &peak->groups.items[i];
    text.size = 0;
    tsr__mosaic_key(&text, snapshot, group->stack);
    is_good = !text.failed;
    uint32_t id = is_good ? tsr__intern_find(&keys, text.data, text.size) : TSR__INTERN_FULL;
    if (id == TSR__INTERN_FULL) {
      diff->groups.items[diff->groups.count++] = *group;
      continue;
    }
    assert(id < base->groups.count);
    if (group->bytes > base->groups.items[id].bytes) {
      diff->grown_count++;
      diff->grown_bytes =
          tsr__sum_u64(diff->grown_bytes, group->bytes - base->groups.items[id].bytes);
    }
  }
  tsr__intern_release(&keys);
  tsr__buffer_release(&text);
  return is_good ? 0 : tsr__fail_memory(error);
}

int tsr_mosaic_diff_compute(tsr_study *base_study, const tsr_mosaic_peak *base, tsr_study *study,
                            const tsr_mosaic_peak *peak, tsr_mosaic_diff **out, tsr_error *error) {
  tsr_mosaic_diff *diff = TSR__NEW(tsr_mosaic_diff);
  if (!diff) return tsr__fail_memory(error);
  int status =
      compare(tsr_study_snapshot(base_study), base, tsr_study_snapshot(study), peak, diff, error);
  if (status)
    tsr_mosaic_diff_free(diff);
  else
    *out = diff;
  return status;
}

void tsr_mosaic_diff_free(tsr_mosaic_diff *diff) {
  if (!diff) return;
  tsr_mosaic_groups_release(&diff->groups);
  tsr__free(diff);
}
