/* weights.c - what each stack held at a moment, or over a range.
 *
 * A moment is the peak's or `at`'s answer with every stack in it. A window is one pass over all
 * allocations: each adds its bytes times the part of its lifetime that is in the window. */
#include <assert.h>
#include <string.h>

#include "attribution/category.h"
#include "attribution/named.h"
#include "base/checked.h"
#include "base/intern.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"
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
  if (x->category != y->category) return x->category < y->category ? -1 : 1;
  size_t common = x->name.size_bytes < y->name.size_bytes ? x->name.size_bytes : y->name.size_bytes;
  int order = common ? memcmp(x->name.data, y->name.data, common) : 0;
  return order ? order
               : (x->name.size_bytes > y->name.size_bytes) -
                     (x->name.size_bytes < y->name.size_bytes);
}

/* ---- rows ---- */

/* The rows of a device, while they are made. */
typedef struct rows {
  const tsr__timeline *timeline;
  const tsr__categories *categories;
  const tsr__names *names;
  tsr_weights_device *out;
  tsr__map row_of; /* stack, category and name -> row */
  tsr__intern *texts;
  tsr__buffer scratch;
} rows;

enum { NAME_BITS = 28 }; /* with a stack and a category in a map's key */

/* Room for `most` rows. Fails with TSR_ERROR_MEMORY; rows_end in any case. */
static int rows_begin(tsr_study *study, tsr_weights_device *out, size_t most, rows *r,
                      tsr_error *error) {
  *r = (rows){.out = out};
  int status = tsr__study_timeline(study, out->device, &r->timeline, error);
  if (!status) status = tsr__study_categories(study, out->device, &r->categories, error);
  if (!status) status = tsr__study_names(study, out->device, &r->names, error);
  if (status) return status;
  if (!most) most = r->timeline->birth.count;
  out->stacks = TSR__NEW_ARRAY(tsr_stack_weight, most);
  out->names = r->texts = TSR__NEW(tsr__intern);
  if (r->texts) tsr__intern_init(r->texts);
  return out->stacks && r->texts ? 0 : tsr__fail_memory(error);
}

/* The id of an allocation's name, plus 1; 0 if it has none. False when out of memory. */
static bool find_name(rows *r, uint32_t allocation, uint32_t *name) {
  r->scratch.size = 0;
  *name = 0;
  tsr__names_append(r->names, allocation, &r->scratch);
  if (!r->scratch.size) return !r->scratch.failed;
  *name = tsr__intern_put(r->texts, r->scratch.data, r->scratch.size, NULL) + 1;
  return !r->scratch.failed && *name && *name < UINT32_C(1) << NAME_BITS;
}

/* The row that an allocation belongs to, in the order in which they are met; NULL when out of memory. */
static tsr_stack_weight *row_of(rows *r, uint32_t allocation) {
  bool is_new;
  uint32_t name, stack = tsr__timeline_stack(r->timeline, allocation);
  tsr_category kind = (tsr_category)r->categories->category[allocation];
  if (!tsr_snapshot_stack(r->timeline->snapshot, stack).depth) stack = TSR_NONE;
  if (!find_name(r, allocation, &name)) return NULL;
  uint64_t key = ((uint64_t)stack * TSR_CATEGORY_COUNT + (uint64_t)kind) << NAME_BITS | name;
  const uint64_t *row = tsr__map_put(&r->row_of, key, r->out->stack_count, &is_new);
  if (!row) return NULL;
  assert(*row <= r->out->stack_count && r->out->stack_count <= r->timeline->birth.count);
  if (is_new) {
    tsr_stack_weight *added = &r->out->stacks[r->out->stack_count++];
    *added = (tsr_stack_weight){.stack = stack, .category = kind};
    const tsr__interned *text = name ? &r->texts->items[name - 1] : NULL;
    if (text) added->name = (tsr_text){(const char *)text->data, text->size_bytes};
  }
  return &r->out->stacks[*row];
}

static void rows_end(rows *r) {
  tsr_weights_device *out = r->out;
  if (out->stacks) tsr__sort(out->stacks, out->stack_count, sizeof *out->stacks, compare_weights);
  tsr__map_release(&r->row_of);
  tsr__buffer_release(&r->scratch);
}

/* ---- a moment ---- */

static int weigh_live(tsr_study *study, uint32_t device, const tsr_moment *moment,
                      tsr_weights *weights, tsr_error *error) {
  const tsr__timeline *timeline;
  tsr__live_set live = {0};
  rows r = {0};
  tsr_weights_device *out = &weights->devices[weights->device_count++];
  *out = (tsr_weights_device){.device = device,
                              .first = moment->event,
                              .last = moment->event,
                              .first_us = moment->time_us,
                              .last_us = moment->time_us};
  int status = tsr__study_timeline(study, device, &timeline, error);
  if (!status) status = tsr__timeline_live(timeline, moment->event, &live, error);
  if (!status) {
    status = rows_begin(study, out, live.count, &r, error);
    for (size_t i = 0; !status && i < live.count; i++) {
      tsr_stack_weight *weight = row_of(&r, live.items[i]);
      if (!weight) status = tsr__fail_memory(error);
      if (status) break;
      weight->allocations++;
      weight->bytes = tsr__sum_u64(weight->bytes, tsr__timeline_requested(timeline, live.items[i]));
    }
    rows_end(&r);
  }
  TSR__VECTOR_FREE(&live);
  return status;
}

static int weigh_peak(tsr_study *study, const tsr_query *query, tsr_weights *weights,
                      tsr_error *error) {
  tsr_peak *peak = NULL;
  int status = tsr_peak_compute(study, query, &peak, error);
  for (size_t i = 0; !status && i < peak->device_count; i++)
    status = weigh_live(study, peak->devices[i].device, &peak->devices[i].peak, weights, error);
  tsr_peak_free(peak);
  return status;
}

static int weigh_moment(tsr_study *study, const tsr_at_where *where, const tsr_query *query,
                        tsr_weights *weights, tsr_error *error) {
  tsr_at *at = NULL;
  int status = tsr_at_compute(study, where, query, &at, error);
  for (size_t i = 0; !status && i < at->device_count; i++)
    if (at->devices[i].is_found)
      status = weigh_live(study, at->devices[i].device, &at->devices[i].moment, weights, error);
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

static int weigh_device(tsr_study *study, bool is_timed, tsr_weights_device *out,
                        tsr_error *error) {
  rows r;
  int status = rows_begin(study, out, 0, &r, error);
  const tsr__timeline *t = r.timeline;
  for (uint32_t i = 0; !status && i < t->birth.count; i++) {
    bool is_later = i >= t->initial.count && (int64_t)t->birth.items[i] > out->last;
    bool is_over = t->death.items[i] != TSR_NONE && (int64_t)t->death.items[i] <= out->first;
    if (is_later || is_over) continue;
    tsr_stack_weight *weight = row_of(&r, i);
    if (weight)
      weigh_allocation(t, out, i, is_timed, weight);
    else
      status = tsr__fail_memory(error);
  }
  rows_end(&r);
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
  for (size_t i = 0; weights->devices && i < weights->device_count; i++) {
    tsr__free(weights->devices[i].stacks);
    if (weights->devices[i].names) tsr__intern_release(weights->devices[i].names);
    tsr__free(weights->devices[i].names);
  }
  tsr__free(weights->devices);
  tsr__free(weights);
}
