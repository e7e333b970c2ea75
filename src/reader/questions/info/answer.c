/* answer.c - what is in this file? Counts per device, and the state at the moment of the snapshot. */
#include <assert.h>

#include "base/memory.h"
#include "columns/tables.h"
#include "questions/shared/query.h"
#include "questions/shared/shares.h"
#include "study/study.h"

static int count_actions(const tsr_snapshot *snapshot, const tsr_events *events,
                         tsr_info_device *out) {
  uint64_t counts[UINT8_MAX + 1] = {0};
  for (uint64_t i = 0; i < events->count; i++) counts[events->action[i]]++;
  uint32_t codes = tsr_snapshot_action_count(snapshot);
  out->actions = TSR__NEW_ARRAY(tsr_action_tally, codes);
  if (!out->actions) return TSR_ERROR_MEMORY;
  for (uint32_t code = 0; code < codes; code++)
    if (counts[code]) out->actions[out->action_count++] = (tsr_action_tally){code, counts[code]};
  return 0;
}

/* Distinct stacks among the events, and distinct frames in those. */
static int count_stacks(const tsr_snapshot *snapshot, const tsr_events *events,
                        tsr_info_device *out) {
  uint32_t stack_count = tsr_snapshot_stack_count(snapshot);
  uint32_t frame_count = tsr_snapshot_frame_count(snapshot);
  uint8_t *stack_seen = TSR__NEW_ARRAY(uint8_t, stack_count);
  uint8_t *frame_seen = TSR__NEW_ARRAY(uint8_t, frame_count);
  if (stack_seen && frame_seen) {
    for (uint64_t i = 0; i < events->count; i++)
      if (events->stack[i] < stack_count) stack_seen[events->stack[i]] = 1;
    for (uint32_t id = 0; id < stack_count; id++) {
      if (!stack_seen[id]) continue;
      out->stack_count++;
      tsr_stack stack = tsr_snapshot_stack(snapshot, id);
      for (uint32_t k = 0; k < stack.depth; k++) frame_seen[stack.frames[k]] = 1;
    }
    for (uint32_t id = 0; id < frame_count; id++) out->frame_count += frame_seen[id];
  }
  int status = stack_seen && frame_seen ? 0 : TSR_ERROR_MEMORY;
  tsr__free(stack_seen);
  tsr__free(frame_seen);
  return status;
}

static void find_times(const tsr_events *events, tsr_info_device *out) {
  out->first_time_us = out->last_time_us = TSR_TIME_NONE;
  for (uint64_t i = 0; i < events->count; i++) {
    int64_t time = events->time_us[i];
    if (time == TSR_TIME_NONE) continue;
    if (out->first_time_us == TSR_TIME_NONE || time < out->first_time_us) out->first_time_us = time;
    if (time > out->last_time_us) out->last_time_us = time;
  }
  assert(out->first_time_us <= out->last_time_us);
}

static void count_segments(const tsr_snapshot *snapshot, tsr_info_device *out) {
  size_t count;
  const uint32_t *rows = tsr__snapshot_segments_of(snapshot, out->device, &count);
  out->segment_count = count;
  for (size_t i = 0; i < count; i++)
    out->block_count += snapshot->segments.items[rows[i]].block_count;
}

static int describe(tsr_study *study, tsr_info_device *out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  tsr_events events = tsr_snapshot_events(snapshot, out->device);
  const tsr__timeline *timeline;
  out->event_count = events.count;
  find_times(&events, out);
  count_segments(snapshot, out);
  if (count_actions(snapshot, &events, out) || count_stacks(snapshot, &events, out))
    return tsr__fail_memory(error);
  int status = tsr__study_replay_check(study, out->device, &out->replay, error);
  if (!status) status = tsr__study_timeline(study, out->device, &timeline, error);
  if (status) return status;
  out->warnings = tsr__copy_warnings(timeline, &out->warning_count);
  if (!out->warnings) return tsr__fail_memory(error);
  out->frees_without_alloc = timeline->frees_without_alloc;
  out->end = timeline->end;
  return 0;
}

int tsr_info_compute(tsr_study *study, const tsr_query *query, tsr_info **out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  const uint32_t *devices;
  size_t count;
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  tsr_info *info = TSR__NEW(tsr_info);
  if (!info) return tsr__fail_memory(error);
  info->devices = TSR__NEW_ARRAY(tsr_info_device, count);
  info->plan_hash = tsr__snapshot_plan_hash(snapshot);
  if (!info->devices) status = tsr__fail_memory(error);
  while (!status && info->device_count < count) {
    tsr_info_device *device = &info->devices[info->device_count];
    device->device = devices[info->device_count++];
    status = describe(study, device, error);
  }
  if (status)
    tsr_info_free(info);
  else
    *out = info;
  return status;
}

void tsr_info_free(tsr_info *info) {
  if (!info) return;
  for (size_t i = 0; i < info->device_count; i++) {
    tsr__free(info->devices[i].actions);
    tsr__free(info->devices[i].warnings);
  }
  tsr__free(info->devices);
  tsr__free(info);
}
