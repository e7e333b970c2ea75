/* weights.c - what each stack held at a moment, or took over a range.
 *
 * A moment is the peak's or `at`'s answer with every stack in it. A window is one pass over all
 * allocations: each adds its bytes times the part of its life that lies in the window. */
#include <stdlib.h>

#include "answers/query.h"
#include "attribution/kind.h"
#include "base/checked.h"
#include "base/map.h"
#include "base/memory.h"
#include "tessera/allocations.h"
#include "timeline/timeline.h"

enum { US_PER_MS = 1000 };

/* Most byte_time first, then most bytes. */
static int compare_weights(const void *a, const void *b) {
  const tsr_stack_weight *x = a, *y = b;
  if (x->byte_time != y->byte_time) return x->byte_time < y->byte_time ? 1 : -1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  if (x->stack != y->stack) return x->stack < y->stack ? -1 : 1;
  return (x->kind > y->kind) - (x->kind < y->kind);
}

/* ---- a moment ---- */

static int copy_stacks(const tsr_stack_share *shares, size_t count, tsr_weights_device *out,
                       tsr_error *error) {
  size_t rows = 0;
  for (size_t i = 0; i < count; i++)
    for (int kind = 0; kind < TSR_KIND_COUNT; kind++) rows += shares[i].kind_allocations[kind] != 0;
  out->stacks = TSR__NEW_ARRAY(tsr_stack_weight, rows);
  if (!out->stacks) return tsr__fail_memory(error);
  for (size_t i = 0; i < count; i++)
    for (int kind = 0; kind < TSR_KIND_COUNT; kind++)
      if (shares[i].kind_allocations[kind])
        out->stacks[out->stack_count++] =
            (tsr_stack_weight){.stack = shares[i].stack,
                               .kind = (tsr_kind)kind,
                               .allocations = shares[i].kind_allocations[kind],
                               .bytes = shares[i].kind_bytes[kind]};
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

static int weigh_peak(const tsr_snapshot *snapshot, const tsr_query *query, tsr_weights *weights,
                      tsr_error *error) {
  tsr_peak *peak = NULL;
  int status = tsr_peak_compute(snapshot, query, &peak, error);
  for (size_t i = 0; !status && i < peak->device_count; i++) {
    const tsr_peak_device *device = &peak->devices[i];
    status = copy_stacks(device->stacks, device->stack_count,
                         add_moment(weights, device->device, &device->peak), error);
  }
  tsr_peak_free(peak);
  return status;
}

static int weigh_moment(const tsr_snapshot *snapshot, const tsr_at_where *where,
                        const tsr_query *query, tsr_weights *weights, tsr_error *error) {
  tsr_at *at = NULL;
  int status = tsr_at_compute(snapshot, where, query, &at, error);
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

/* No more than stacks and kinds, nor than allocations. */
static size_t most_rows(const tsr__timeline *t) {
  size_t most = ((size_t)tsr_snapshot_stack_count(t->snapshot) + 1) * TSR_KIND_COUNT;
  return most < t->birth.count ? most : t->birth.count;
}

/* A row for each stack and kind, in the order in which they are met. */
static tsr_stack_weight *row_of(tsr_weights_device *out, tsr__map *rows, uint32_t stack,
                                tsr_kind kind) {
  bool is_new;
  uint64_t key = (uint64_t)stack * TSR_KIND_COUNT + (uint64_t)kind;
  const uint64_t *row = tsr__map_put(rows, key, out->stack_count, &is_new);
  if (!row) return NULL;
  if (is_new) out->stacks[out->stack_count++] = (tsr_stack_weight){.stack = stack, .kind = kind};
  return &out->stacks[*row];
}

static int weigh_lives(const tsr__timeline *t, const tsr__kinds *kinds, bool is_timed,
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
        row_of(out, &rows, has_frames ? stack : TSR_NONE, (tsr_kind)kinds->kind[i]);
    if ((ok = weight != NULL)) weigh_allocation(t, out, (uint32_t)i, is_timed, weight);
  }
  tsr__map_release(&rows);
  if (!ok) return tsr__fail_memory(error);
  if (out->stack_count) qsort(out->stacks, out->stack_count, sizeof *out->stacks, compare_weights);
  return 0;
}

static int weigh_device(const tsr_snapshot *snapshot, const tsr__roles *roles, bool is_timed,
                        tsr_weights_device *out, tsr_error *error) {
  tsr__timeline timeline = {0};
  int status = tsr__timeline_compute(snapshot, out->device, false, &timeline, error);
  tsr__kinds kinds = {0};
  if (!status) status = tsr__kinds_of_timeline(&timeline, roles, &kinds, error);
  if (!status) status = weigh_lives(&timeline, &kinds, is_timed, out, error);
  tsr__kinds_release(&kinds);
  tsr__timeline_release(&timeline);
  return status;
}

/* Fill in the devices that have an event in the window; false where no event of one has a time. */
static bool find_windows(const tsr_snapshot *snapshot, const tsr_window *window,
                         const uint32_t *devices, size_t count, tsr_weights *weights) {
  bool is_timed = true;
  for (size_t i = 0; i < count; i++) {
    tsr_events events = tsr_snapshot_events(snapshot, devices[i]);
    tsr_weights_device device = {.device = devices[i]};
    if (!tsr__window_find(&events, window, &device.first, &device.last)) continue;
    device.first_us = events.time_us[device.first];
    device.last_us = events.time_us[device.last];
    is_timed &= device.first_us != TSR_TIME_NONE && device.last_us != TSR_TIME_NONE;
    weights->devices[weights->device_count++] = device;
  }
  return is_timed;
}

static int weigh_window(const tsr_snapshot *snapshot, const tsr_window *window,
                        const uint32_t *devices, size_t count, tsr_weights *weights,
                        tsr_error *error) {
  tsr__roles roles = {0};
  weights->is_timed = find_windows(snapshot, window, devices, count, weights);
  if (!weights->device_count)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "no device has an event in that window");
  int status = tsr__roles_compute(snapshot, &roles, error);
  for (size_t i = 0; !status && i < weights->device_count; i++)
    status = weigh_device(snapshot, &roles, weights->is_timed, &weights->devices[i], error);
  tsr__roles_release(&roles);
  return status;
}

/* ---- both ---- */

int tsr_weights_compute(const tsr_snapshot *snapshot, const tsr_weigh_options *options,
                        const tsr_query *query, tsr_weights **out, tsr_error *error) {
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
    status = weigh_peak(snapshot, &all, weights, error);
  else if (options->what == TSR_WEIGH_MOMENT)
    status = weigh_moment(snapshot, &options->where, &all, weights, error);
  else
    status = weigh_window(snapshot, &options->window, devices, count, weights, error);
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
