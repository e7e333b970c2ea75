/* profile.c - the peak by kind: the live set there, summed by category.
 *
 * Every category that an allocation up to the peak falls under is a group, also when nothing of it
 * is live any more. */
#include <stdlib.h>

#include "answers/query.h"
#include "attribution/category.h"
#include "base/checked.h"
#include "base/memory.h"
#include "timeline/timeline.h"

static int compare_groups(const void *a, const void *b) {
  const tsr_profile_group *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return (x->allocations < y->allocations) - (x->allocations > y->allocations);
}

/* Sum what the trace saw allocated and is live at its own peak. */
static void sum_by_category(const tsr__timeline *timeline, const tsr__categories *categories,
                            const tsr__live_set *live, tsr_profile_device *out) {
  tsr_profile_group groups[TSR_CATEGORY_COUNT] = {{0}};
  const tsr_events *events = &timeline->events;
  for (int64_t i = 0; i <= out->peak_event; i++)
    if (events->action[i] == TSR_ACTION_ALLOC) {
      tsr_category category = tsr__category_of(categories, events->stack[i]);
      groups[category].name = tsr_category_name(category);
    }
  for (size_t i = 0; i < live->count; i++) {
    uint32_t birth = timeline->birth.items[live->items[i]];
    if (birth == TSR_NONE) continue;
    tsr_profile_group *group = &groups[tsr__category_of(categories, events->stack[birth])];
    group->bytes = tsr__sum_u64(group->bytes, events->size[birth]);
    group->allocations++;
  }
  for (size_t i = 0; i < TSR_CATEGORY_COUNT; i++)
    if (groups[i].name) out->groups[out->group_count++] = groups[i];
  if (out->group_count) qsort(out->groups, out->group_count, sizeof *out->groups, compare_groups);
}

static int describe(const tsr_snapshot *snapshot, const tsr__categories *categories,
                    tsr_profile_device *out, tsr_error *error) {
  tsr__timeline timeline = {0};
  tsr__live_set live = {0};
  out->groups = TSR__NEW_ARRAY(tsr_profile_group, TSR_CATEGORY_COUNT);
  if (!out->groups) return tsr__fail_memory(error);
  int status = tsr__timeline_compute(snapshot, out->device, false, &timeline, error);
  if (status) return status;
  out->event_count = timeline.events.count;
  out->peak_event = timeline.recorded.peak_event;
  out->peak_time_us = timeline.recorded.peak_time_us;
  out->peak_bytes = timeline.recorded.dynamic_peak_bytes;
  status = tsr__timeline_live(&timeline, out->peak_event, &live, error);
  if (!status) {
    sum_by_category(&timeline, categories, &live, out);
    out->allocated_bytes = tsr__timeline_totals(&timeline, out->peak_event, &live).allocated_bytes;
  }
  TSR__VECTOR_FREE(&live);
  tsr__timeline_release(&timeline);
  return status;
}

int tsr_profile_compute(const tsr_snapshot *snapshot, tsr_profile_by by, const tsr_query *query,
                        tsr_profile **out, tsr_error *error) {
  const uint32_t *devices;
  size_t count;
  tsr__categories categories = {0};
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  tsr_profile *profile = TSR__NEW(tsr_profile);
  if (!profile) return tsr__fail_memory(error);
  profile->by = by;
  profile->devices = TSR__NEW_ARRAY(tsr_profile_device, count);
  status = profile->devices ? tsr__categories_compute(snapshot, &categories, error)
                            : tsr__fail_memory(error);
  while (!status && profile->device_count < count) {
    tsr_profile_device *device = &profile->devices[profile->device_count];
    device->device = devices[profile->device_count++];
    status = describe(snapshot, &categories, device, error);
  }
  tsr__categories_release(&categories);
  if (status)
    tsr_profile_free(profile);
  else
    *out = profile;
  return status;
}

void tsr_profile_free(tsr_profile *profile) {
  if (!profile) return;
  for (size_t i = 0; i < profile->device_count; i++) tsr__free(profile->devices[i].groups);
  tsr__free(profile->devices);
  tsr__free(profile);
}
