/* view.c - the columns that a picture of a trace is drawn from. See tessera/view.h.
 *
 * Which allocations are told one by one: the largest. A histogram of sizes on a scale of sixteenths
 * of octaves says from where on there is room for all; of the class below, those that live longest
 * are taken.
 *
 * The sums of the rest need two sweeps over the events: the first finds the highest and the lowest
 * moment of each bucket, the second takes the sums there. */
#include <stdlib.h>
#include <string.h>

#include "answers/query.h"
#include "answers/shares.h"
#include "answers/view_groups.h"
#include "answers/view_lanes.h"
#include "timeline/sweep.h"

enum { MOST_ALLOCATIONS = 1500000, MOST_BUCKETS = 8192, SIZE_CLASSES = 64 * 16 };

typedef struct viewer {
  const tsr__timeline *t;
  tsr__kinds kinds;
  tsr_view_device *out;
  tsr_view_grouping groups[TSR_VIEW_GROUPINGS_MAX]; /* by allocation of the timeline */
  int group_count;
  uint8_t *is_told; /* by allocation; NULL: all are */
} viewer;

/* ---- which are told ---- */

static unsigned size_class(uint64_t value) {
  unsigned bits = 0;
  if (value < 16) return (unsigned)value;
  while (value >> bits > 31) bits++;
  return bits * 16 + (unsigned)(value >> bits);
}

static uint32_t birth_moment(const tsr__timeline *t, size_t allocation) {
  uint32_t birth = t->birth.items[allocation];
  return birth == TSR_NONE ? 0 : birth + 1;
}

static uint32_t death_moment(const tsr__timeline *t, size_t allocation) {
  uint32_t death = t->death.items[allocation];
  return death == TSR_NONE ? (uint32_t)t->events.count + 1 : death + 1;
}

static unsigned class_of(const tsr__timeline *t, size_t allocation, bool by_life) {
  return size_class(by_life ? death_moment(t, allocation) - birth_moment(t, allocation)
                            : tsr__timeline_requested(t, (uint32_t)allocation));
}

/* The lowest class such that it and those above hold at most `room`; `*left` is what is left. */
static unsigned lowest_class(const uint64_t *histogram, uint64_t room, uint64_t *left) {
  unsigned lowest = SIZE_CLASSES;
  while (lowest && histogram[lowest - 1] <= room) room -= histogram[--lowest];
  *left = room;
  return lowest;
}

static bool choose(viewer *v, uint64_t most) {
  const tsr__timeline *t = v->t;
  uint64_t sizes[SIZE_CLASSES] = {0}, lives[SIZE_CLASSES] = {0}, room, more;
  size_t count = t->birth.count;
  v->out->allocation_count = count;
  if (count <= most) return true;
  v->is_told = TSR__NEW_ARRAY(uint8_t, count);
  if (!v->is_told) return false;
  for (size_t a = 0; a < count; a++) sizes[class_of(t, a, false)]++;
  unsigned all_from = lowest_class(sizes, most, &room);
  for (size_t a = 0; a < count; a++)
    if (class_of(t, a, false) + 1 == all_from) lives[class_of(t, a, true)]++;
  unsigned long_from = lowest_class(lives, room, &more);
  v->out->allocation_count = 0;
  for (size_t a = 0; a < count; a++) {
    unsigned size = class_of(t, a, false);
    bool is_told = size >= all_from;
    if (size + 1 == all_from) {
      unsigned life = class_of(t, a, true);
      is_told = life >= long_from || (life + 1 == long_from && more && more--);
    }
    v->is_told[a] = is_told;
    v->out->allocation_count += is_told;
    uint64_t bytes = tsr__timeline_requested(t, (uint32_t)a);
    if (!is_told && bytes > v->out->rest_largest_bytes) v->out->rest_largest_bytes = bytes;
  }
  v->out->rest_count = count - v->out->allocation_count;
  return true;
}

/* ---- the told ---- */

/* Does the event before a death ask for that free? */
static bool is_requested_before(const tsr__timeline *t, uint32_t allocation, uint32_t death) {
  return death != TSR_NONE && death && t->events.action[death - 1] == TSR_ACTION_FREE_REQUESTED &&
         t->allocation_of[death - 1] == allocation;
}

static bool allocate_columns(tsr_view_device *out) {
  size_t count = out->allocation_count;
  out->born = tsr__realloc(NULL, count, sizeof *out->born);
  out->died = tsr__realloc(NULL, count, sizeof *out->died);
  out->released = tsr__realloc(NULL, count, sizeof *out->released);
  out->address = tsr__realloc(NULL, count, sizeof *out->address);
  out->requested_bytes = tsr__realloc(NULL, count, sizeof *out->requested_bytes);
  out->block_bytes = tsr__realloc(NULL, count, sizeof *out->block_bytes);
  out->stack = tsr__realloc(NULL, count, sizeof *out->stack);
  return out->born && out->died && out->released && out->address && out->requested_bytes &&
         out->block_bytes && out->stack;
}

static void tell(const viewer *v, uint32_t a, size_t row) {
  const tsr__timeline *t = v->t;
  tsr_view_device *out = v->out;
  uint32_t stack = tsr__timeline_stack(t, a);
  out->born[row] = birth_moment(t, a);
  out->died[row] = death_moment(t, a);
  out->released[row] = out->died[row] - is_requested_before(t, a, t->death.items[a]);
  out->address[row] = tsr__timeline_address(t, a);
  out->requested_bytes[row] = tsr__timeline_requested(t, a);
  out->block_bytes[row] = t->block_bytes.items[a];
  out->stack[row] = tsr_snapshot_stack(t->snapshot, stack).depth ? stack : TSR_NONE;
}

/* Rows of the told, where `told` lists their allocations in order. */
static size_t row_of(const uint32_t *told, size_t count, uint32_t allocation) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (told[middle] < allocation)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool fill_columns(viewer *v) {
  const tsr__timeline *t = v->t;
  tsr_view_device *out = v->out;
  uint32_t *told = v->is_told ? tsr__realloc(NULL, out->allocation_count, sizeof *told) : NULL;
  if (!allocate_columns(out) || (v->is_told && !told)) {
    tsr__free(told);
    return false;
  }
  size_t row = 0;
  for (uint32_t a = 0; a < t->birth.count; a++) {
    if (v->is_told && !v->is_told[a]) continue;
    if (told) told[row] = a;
    tell(v, a, row++);
  }
  for (size_t i = 0; i < t->waits.count; i++) {
    const tsr__wait *wait = &t->waits.items[i];
    size_t at = told ? row_of(told, row, wait->allocation) : wait->allocation;
    if (at < row && (!told || told[at] == wait->allocation))
      out->released[at] = wait->from == TSR_NONE ? 0 : wait->from + 1;
  }
  tsr__free(told);
  return true;
}

/* ---- sums ---- */

/* The highest and the lowest moment of each bucket. */
static int find_buckets(viewer *v, uint32_t most, tsr_error *error) {
  tsr_view_device *out = v->out;
  uint64_t moments = v->t->events.count + 1;
  tsr__sweep sweep;
  out->bucket_moments = (uint32_t)((moments + most - 1) / most);
  out->bucket_count = (size_t)((moments + out->bucket_moments - 1) / out->bucket_moments);
  out->high = TSR__NEW_ARRAY(uint32_t, out->bucket_count);
  out->low = TSR__NEW_ARRAY(uint32_t, out->bucket_count);
  out->allocated_high = TSR__NEW_ARRAY(uint64_t, out->bucket_count);
  out->allocated_low = TSR__NEW_ARRAY(uint64_t, out->bucket_count);
  out->active_high = TSR__NEW_ARRAY(uint64_t, out->bucket_count);
  out->active_low = TSR__NEW_ARRAY(uint64_t, out->bucket_count);
  if (!out->high || !out->low || !out->allocated_high || !out->allocated_low || !out->active_high ||
      !out->active_low)
    return tsr__fail_memory(error);
  int status = tsr__sweep_begin(v->t, &sweep, error);
  if (status) return status;
  uint32_t moment = 0, left = 0;
  size_t bucket = 0;
  do {
    uint64_t bytes = sweep.totals.allocated_bytes;
    bool is_first = !left;
    if (is_first) {
      bucket = moment / out->bucket_moments;
      left = out->bucket_moments;
    }
    if (is_first || bytes > out->allocated_high[bucket]) {
      out->allocated_high[bucket] = bytes;
      out->active_high[bucket] = sweep.totals.active_bytes;
      out->high[bucket] = moment;
    }
    if (is_first || bytes < out->allocated_low[bucket]) {
      out->allocated_low[bucket] = bytes;
      out->active_low[bucket] = sweep.totals.active_bytes;
      out->low[bucket] = moment;
    }
    moment++, left--;
  } while (tsr__sweep_next(&sweep));
  tsr__sweep_release(&sweep);
  return 0;
}

/* The rest, as it comes and goes. Sums wrap where a file's sizes are absurd; they come back. */
typedef struct rest {
  const viewer *v;
  uint32_t blocks;
  uint64_t sums[TSR_VIEW_GROUPINGS_MAX][TSR_VIEW_GROUPS_MAX];
} rest;

static void add_rest(rest *r, uint32_t allocation, bool is_born) {
  const viewer *v = r->v;
  if (v->is_told[allocation]) return;
  uint64_t bytes = tsr__timeline_requested(v->t, allocation);
  if (!is_born) bytes = 0 - bytes;
  r->blocks += is_born ? 1 : UINT32_MAX;
  for (int g = 0; g < v->group_count; g++) r->sums[g][v->groups[g].group[allocation]] += bytes;
}

static bool allocate_sums(viewer *v) {
  tsr_view_device *out = v->out;
  size_t buckets = out->bucket_count;
  out->rest_blocks_high = TSR__NEW_ARRAY(uint32_t, buckets);
  out->rest_blocks_low = TSR__NEW_ARRAY(uint32_t, buckets);
  for (int g = 0; g < v->group_count; g++) {
    v->groups[g].rest_high = TSR__NEW_ARRAY(uint64_t, buckets * v->groups[g].count);
    v->groups[g].rest_low = TSR__NEW_ARRAY(uint64_t, buckets * v->groups[g].count);
    if (!v->groups[g].rest_high || !v->groups[g].rest_low) return false;
  }
  return out->rest_blocks_high && out->rest_blocks_low;
}

static void take_sums(viewer *v, const rest *r, size_t bucket, bool is_high) {
  (is_high ? v->out->rest_blocks_high : v->out->rest_blocks_low)[bucket] = r->blocks;
  for (int g = 0; g < v->group_count; g++) {
    tsr_view_grouping *grouping = &v->groups[g];
    uint64_t *sums = is_high ? grouping->rest_high : grouping->rest_low;
    memcpy(sums + bucket * grouping->count, r->sums[g], grouping->count * sizeof *sums);
  }
}

/* Sums of the rest at each bucket's two moments. */
static int sum_rest(viewer *v, tsr_error *error) {
  tsr_view_device *out = v->out;
  rest r = {.v = v};
  tsr__sweep sweep;
  if (!v->is_told) return 0;
  if (!allocate_sums(v)) return tsr__fail_memory(error);
  int status = tsr__sweep_begin(v->t, &sweep, error);
  if (status) return status;
  for (uint32_t a = 0; a < v->t->initial.count; a++) add_rest(&r, a, true);
  uint32_t moment = 0, left = out->bucket_moments;
  size_t bucket = 0;
  do {
    if (sweep.born != TSR_NONE) add_rest(&r, sweep.born, true);
    for (size_t i = 0; moment && i < sweep.died_count; i++) add_rest(&r, sweep.died[i], false);
    if (moment == out->high[bucket]) take_sums(v, &r, bucket, true);
    if (moment == out->low[bucket]) take_sums(v, &r, bucket, false);
    moment++;
    if (!--left) bucket++, left = out->bucket_moments;
  } while (tsr__sweep_next(&sweep));
  tsr__sweep_release(&sweep);
  return 0;
}

/* ---- the whole ---- */

/* The groups of the told only. */
static void keep_told(viewer *v) {
  for (int g = 0; g < v->group_count; g++) {
    uint8_t *group = v->groups[g].group;
    size_t row = 0;
    for (size_t a = 0; v->is_told && a < v->t->birth.count; a++)
      if (v->is_told[a]) group[row++] = group[a];
    v->out->groupings[v->out->grouping_count++] = v->groups[g];
    v->groups[g] = (tsr_view_grouping){0};
  }
  v->group_count = 0;
}

static int fill(viewer *v, const tsr_view_options *options, tsr_error *error) {
  const tsr__timeline *t = v->t;
  tsr_view_device *out = v->out;
  uint64_t most =
      options && options->most_allocations ? options->most_allocations : MOST_ALLOCATIONS;
  uint32_t buckets = options && options->most_buckets ? options->most_buckets : MOST_BUCKETS;
  out->event_count = t->events.count;
  out->peak = (uint32_t)(t->allocated_event + 1);
  out->peak_totals = t->at_peak;
  out->maxima = t->maxima;
  if (!tsr__view_times(t, out) || !tsr__view_spans(t, out) || !tsr__view_marks(t, out) ||
      !tsr__view_ranges(t, out))
    return tsr__fail_memory(error);
  tsr__view_source source = {t, &v->kinds, out->ranges, out->range_count};
  int count = tsr__view_groupings(&source, v->groups);
  if (count < 0) return tsr__fail_memory(error);
  v->group_count = count;
  if (!choose(v, most) || !fill_columns(v)) return tsr__fail_memory(error);
  int status = find_buckets(v, buckets, error);
  if (!status) status = sum_rest(v, error);
  if (!status) keep_told(v);
  return status;
}

static int describe(const tsr_snapshot *snapshot, const tsr__roles *roles,
                    const tsr_view_options *options, tsr_view_device *out, tsr_error *error) {
  tsr__timeline timeline = {0};
  int status = tsr__timeline_compute(snapshot, out->device, false, &timeline, error);
  if (status) return status;
  viewer v = {.t = &timeline, .out = out};
  status = tsr__kinds_of_timeline(&timeline, roles, &v.kinds, error);
  if (!status) status = fill(&v, options, error);
  for (int g = 0; g < v.group_count; g++) tsr__view_grouping_release(&v.groups[g]);
  tsr__kinds_release(&v.kinds);
  tsr__free(v.is_told);
  if (!status && !(out->warnings = tsr__copy_warnings(&timeline, &out->warning_count)))
    status = tsr__fail_memory(error);
  tsr__timeline_release(&timeline);
  return status;
}

int tsr_view_compute(const tsr_snapshot *snapshot, const tsr_view_options *options,
                     const tsr_query *query, tsr_view **out, tsr_error *error) {
  const uint32_t *devices;
  size_t count;
  tsr__roles roles = {0};
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  tsr_view *view = TSR__NEW(tsr_view);
  if (!view) return tsr__fail_memory(error);
  view->devices = TSR__NEW_ARRAY(tsr_view_device, count);
  status = view->devices ? tsr__roles_compute(snapshot, &roles, error) : tsr__fail_memory(error);
  while (!status && view->device_count < count) {
    tsr_view_device *device = &view->devices[view->device_count];
    device->device = devices[view->device_count++];
    status = describe(snapshot, &roles, options, device, error);
  }
  tsr__roles_release(&roles);
  if (status)
    tsr_view_free(view);
  else
    *out = view;
  return status;
}

static void release_device(tsr_view_device *device) {
  for (size_t g = 0; g < device->grouping_count; g++)
    tsr__view_grouping_release(&device->groupings[g]);
  void *columns[] = {device->born,
                     device->died,
                     device->released,
                     device->address,
                     device->requested_bytes,
                     device->block_bytes,
                     device->stack,
                     device->high,
                     device->low,
                     device->allocated_high,
                     device->allocated_low,
                     device->active_high,
                     device->active_low,
                     device->rest_blocks_high,
                     device->rest_blocks_low,
                     device->times_us,
                     device->spans,
                     device->ranges,
                     device->marks,
                     device->warnings};
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) tsr__free(columns[i]);
}

void tsr_view_free(tsr_view *view) {
  if (!view) return;
  for (size_t i = 0; i < view->device_count; i++) release_device(&view->devices[i]);
  tsr__free(view->devices);
  tsr__free(view);
}
