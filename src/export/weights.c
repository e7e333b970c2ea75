/* weights.c - what each stack held at a moment, or over a range.
 *
 * A moment is the peak's or `at`'s answer with every stack in it. A window is one pass over all
 * allocations: each adds its bytes times the part of its lifetime that is in the window. */
#include <assert.h>
#include <stdlib.h>

#include "attribution/category.h"
#include "base/checked.h"
#include "base/map.h"
#include "base/memory.h"
#include "questions/shared/query.h"
#include "study/study.h"
#include "tessera/unstable/allocations.h"

enum { US_PER_MS = 1000 };

/* Most byte_time first, then most bytes. */
static int compare_weights(const void *a, const void *b) {
  const tsr_stack_weight *x = a, *y = b;
  if (x->byte_time != y->byte_time) return x->byte_time < y->byte_time ? 1 : -1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  if (x->stack != y->stack) return x->stack < y->stack ? -1 : 1;
  return (x->category > y->category) - (x->category < y->category);
}

/* ---- a moment ---- */

static int copy_stacks(const tsr_stack_share *shares, size_t count, tsr_weights_device *out,
                       tsr_error *error) {
  size_t rows = 0;
  for (size_t i = 0; i < count; i++)
    for (int kind = 0; kind < TSR_CATEGORY_COUNT; kind++)
      rows += shares[i].category_allocations[kind] != 0;
  out->stacks = TSR__NEW_ARRAY(tsr_stack_weight, rows);
  if (!out->stacks) return tsr__fail_memory(error);
  for (size_t i = 0; i < count; i++)
    for (int kind = 0; kind < TSR_CATEGORY_COUNT; kind++)
      if (shares[i].category_allocations[kind])
        out->stacks[out->stack_count++] =
            (tsr_stack_weight){.stack = shares[i].stack,
                               .category = (tsr_category)kind,
                               .allocations = shares[i].category_allocations[kind],
                               .bytes = shares[i].category_bytes[kind]};
  assert(out->stack_count == rows);
  if (out->stack_count) qsort(out->stacks, out->stack_count, sizeof *out->stacks, compare_weights);
  return 0;
}

static tsr_weights_device *add_moment(tsr_weights *weights, uint32_t device,
                                      const tsr_moment *moment) {
  tsr_weights_device *out = &weights->devices[weights->device_count++];
  *out = (tsr_weights_device){.device = device,
                              .first = moment->event,
                              .last = moment->event,
                              .first_us = moment->time_us,
                              .last_us = moment->time_us};
  return out;
}

static int weigh_peak(tsr_study *study, const tsr_query *query, tsr_weights *weights,
                      tsr_error *error) {
  tsr_peak *peak = NULL;
  int status = tsr_peak_compute(study, query, &peak, error);
  for (size_t i = 0; !status && i < peak->device_count; i++) {
    const tsr_peak_device *device = &peak->devices[i];
    status = copy_stacks(device->stacks, device->stack_count,
                         add_moment(weights, device->device, &device->peak), error);
  }
  tsr_peak_free(peak);
  return status;
}

static int weigh_moment(tsr_study *study, const tsr_at_where *where, const tsr_query *query,
                        tsr_weights *weights, tsr_error *error) {
  tsr_at *at = NULL;
  int status = tsr_at_compute(study, where, query, &at, error);
  for (size_t i = 0; !status && i < at->device_count; i++) {
    const tsr_at_device *device = &at->devices[i];
    if (!device->is_found) continue;
    status = copy_stacks(device->stacks, device->stack_count,
                         add_moment(weights, device->device, &device->moment), error);
  }
  tsr_at_free(at);
  return status;
}

/* ---- a window ---- */

/* How long an allocation was live in the window, from its birth there to its death there: in
 * microseconds, or in events. Time is taken to stand still before the window's first event. */
static uint64_t time_in(const tsr__timeline *t, const tsr_weights_device *window, int64_t birth,
                        int64_t death, bool is_timed) {
  int64_t from = birth < window->first ? window->first : birth;
  int64_t until = death > window->last ? window->last : death;
  assert(window->first <= from && from <= until && until <= window->last);
  if (!is_timed) return (uint64_t)(until - from);
  int64_t from_us = t->events.time_us[from], until_us = t->events.time_us[until];
  return until_us > from_us ? (uint64_t)until_us - (uint64_t)from_us : 0;
}

/* bytes x time, in milliseconds where time is microseconds; whole milliseconds first, so that what
 * fits does not overflow on the way. */
static uint64_t times(uint64_t bytes, uint64_t time, bool is_timed) {
  uint64_t whole = is_timed ? time / US_PER_MS : time, rest = is_timed ? time % US_PER_MS : 0;
  if (whole && bytes > UINT64_MAX / whole) return UINT64_MAX;
  uint64_t of_rest = bytes / US_PER_MS * rest + bytes % US_PER_MS * rest / US_PER_MS;
  return tsr__sum_u64(bytes * whole, of_rest);
}

static void weigh_allocation(const tsr__timeline *t, const tsr_weights_device *window,
                             uint32_t allocation, bool is_timed, tsr_stack_weight *weight) {
  uint64_t bytes = tsr__timeline_requested(t, allocation);
  int64_t birth = allocation < t->initial.count ? -1 : (int64_t)t->birth.items[allocation];
  int64_t death = t->death.items[allocation] == TSR_NONE ? (int64_t)t->events.count
                                                         : (int64_t)t->death.items[allocation];
  weight->allocations++;
  weight->bytes = tsr__sum_u64(weight->bytes, bytes);
  uint64_t time = time_in(t, window, birth, death, is_timed);
  weight->byte_time = tsr__sum_u64(weight->byte_time, times(bytes, time, is_timed));
}

/* No more than stacks and categories, nor than allocations. */
static size_t most_rows(const tsr__timeline *t) {
  size_t most = ((size_t)tsr_snapshot_stack_count(t->snapshot) + 1) * TSR_CATEGORY_COUNT;
  return most < t->birth.count ? most : t->birth.count;
}

/* A row for each stack and kind, in the order in which they are met. */
static tsr_stack_weight *row_of(tsr_weights_device *out, tsr__map *rows, uint32_t stack,
                                tsr_category kind) {
  bool is_new;
  uint64_t key = (uint64_t)stack * TSR_CATEGORY_COUNT + (uint64_t)kind;
  const uint64_t *row = tsr__map_put(rows, key, out->stack_count, &is_new);
  if (!row) return NULL;
  if (is_new)
    out->stacks[out->stack_count++] = (tsr_stack_weight){.stack = stack, .category = kind};
  return &out->stacks[*row];
}

static int weigh_lives(const tsr__timeline *t, const tsr__categories *categories, bool is_timed,
                       tsr_weights_device *out, tsr_error *error) {
  tsr__map rows = {0};
  bool ok = true;
  out->stacks = TSR__NEW_ARRAY(tsr_stack_weight, most_rows(t));
  if (!out->stacks) return tsr__fail_memory(error);
  for (size_t i = 0; ok && i < t->birth.count; i++) {
    bool is_later = i >= t->initial.count && (int64_t)t->birth.items[i] > out->last;
    bool is_over = t->death.items[i] != TSR_NONE && (int64_t)t->death.items[i] <= out->first;
    if (is_later || is_over) continue;
    uint32_t stack = tsr__timeline_stack(t, (uint32_t)i);
    bool has_frames = tsr_snapshot_stack(t->snapshot, stack).depth > 0;
    tsr_stack_weight *weight =
        row_of(out, &rows, has_frames ? stack : TSR_NONE, (tsr_category)categories->category[i]);
    if ((ok = weight != NULL)) weigh_allocation(t, out, (uint32_t)i, is_timed, weight);
  }
  tsr__map_release(&rows);
  assert(out->stack_count <= most_rows(t));
  if (!ok) return tsr__fail_memory(error);
  if (out->stack_count) qsort(out->stacks, out->stack_count, sizeof *out->stacks, compare_weights);
  return 0;
}

static int weigh_device(tsr_study *study, bool is_timed, tsr_weights_device *out,
                        tsr_error *error) {
  const tsr__timeline *timeline;
  const tsr__categories *categories;
  int status = tsr__study_timeline(study, out->device, &timeline, error);
  if (!status) status = tsr__study_categories(study, out->device, &categories, error);
  return status ? status : weigh_lives(timeline, categories, is_timed, out, error);
}

/* Fill in the devices that have an event in the window; false where no event of one has a time. */
static bool find_windows(const tsr_snapshot *snapshot, const tsr_window *window,
                         const uint32_t *devices, size_t count, tsr_weights *weights) {
  bool is_timed = true;
  for (size_t i = 0; i < count; i++) {
    tsr_events events = tsr_snapshot_events(snapshot, devices[i]);
    tsr_weights_device device = {.device = devices[i]};
    if (!tsr__window_find(&events, window, &device.first, &device.last)) continue;
    assert(device.first >= 0 && device.first <= device.last && device.last < (int64_t)events.count);
    device.first_us = events.time_us[device.first];
    device.last_us = events.time_us[device.last];
    is_timed &= device.first_us != TSR_TIME_NONE && device.last_us != TSR_TIME_NONE;
    weights->devices[weights->device_count++] = device;
  }
  return is_timed;
}

static int weigh_window(tsr_study *study, const tsr_window *window, const uint32_t *devices,
                        size_t count, tsr_weights *weights, tsr_error *error) {
  weights->is_timed = find_windows(tsr_study_snapshot(study), window, devices, count, weights);
  if (!weights->device_count)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "no device has an event in that window");
  int status = tsr__study_prepare(study, devices, count, TSR__NEED_CATEGORIES, error);
  for (size_t i = 0; !status && i < weights->device_count; i++)
    status = weigh_device(study, weights->is_timed, &weights->devices[i], error);
  return status;
}

/* ---- both ---- */

int tsr_weights_compute(tsr_study *study, const tsr_weigh_options *options, const tsr_query *query,
                        tsr_weights **out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  static const tsr_weigh_options peak = {.what = TSR_WEIGH_PEAK};
  const uint32_t *devices;
  size_t count;
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  if (!options) options = &peak;
  tsr_query all = {.devices = devices, .device_count = count};
  tsr_weights *weights = TSR__NEW(tsr_weights);
  if (!weights) return tsr__fail_memory(error);
  weights->what = options->what;
  weights->devices = TSR__NEW_ARRAY(tsr_weights_device, count);
  if (!weights->devices)
    status = tsr__fail_memory(error);
  else if (options->what == TSR_WEIGH_PEAK)
    status = weigh_peak(study, &all, weights, error);
  else if (options->what == TSR_WEIGH_MOMENT)
    status = weigh_moment(study, &options->where, &all, weights, error);
  else
    status = weigh_window(study, &options->window, devices, count, weights, error);
  if (status)
    tsr_weights_free(weights);
  else
    *out = weights;
  return status;
}

void tsr_weights_free(tsr_weights *weights) {
  if (!weights) return;
  for (size_t i = 0; weights->devices && i < weights->device_count; i++)
    tsr__free(weights->devices[i].stacks);
  tsr__free(weights->devices);
  tsr__free(weights);
}
