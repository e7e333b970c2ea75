/* answer.c - compares a run's figures with budgets and a lock. See tessera/unstable/check.h.
 *
 * The timeline alone gives allocated and reserved memory. Categories are computed only
 * if they are needed: for a category's budget, for a lock, or to explain a failure. */
#include "tessera/unstable/check.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/sort.h"
#include "columns/warnings.h"
#include "questions/check/peaks.h"
#include "questions/shared/names.h"
#include "questions/shared/query.h"
#include "questions/shared/shares.h"
#include "study/study.h"
#include "tessera/unstable/columns.h"
#include "timeline/timeline.h"

const char *tsr_check_rule_name(tsr_check_rule rule) {
  static const char *const names[TSR_CHECK_RULE_COUNT] = {
      "max-peak", "max-category", "max-reserved", "lock-device", "lock-peak", "lock-category"};
  return (unsigned)rule < TSR_CHECK_RULE_COUNT ? names[rule] : "max-peak";
}

const char *tsr_check_doubt_name(tsr_check_doubt doubt) {
  static const char *const names[TSR_CHECK_DOUBT_COUNT] = {
      "certain", "truncated", "damaged", "unreadable", "unknown", "out-of-memory"};
  return (unsigned)doubt < TSR_CHECK_DOUBT_COUNT ? names[doubt] : "certain";
}

typedef TSR__VECTOR(tsr_check_result) result_list;

/* What is the same for all devices. */
typedef struct checker {
  tsr_study *study;
  const tsr_snapshot *snapshot; /* the study's */
  const tsr_check_options *options;
  bool names_devices; /* the query names devices: the lock's others may be missing */
  size_t top;
  tsr__functions functions;
  bool has_functions;
  result_list results;
} checker;

/* ---- Measuring ---- */

static int compute_functions(checker *c, tsr_error *error) {
  const tsr__places *places;
  if (c->has_functions) return 0;
  int status = tsr__study_places(c->study, &places, error);
  if (!status) status = tsr__functions_compute(c->snapshot, places, &c->functions, error);
  c->has_functions = !status;
  return status;
}

/* The causes outlive the checker, so their names must too. */
static int copy_names(tsr_check_device *out, tsr_error *error) {
  tsr__arena *arena = TSR__NEW(tsr__arena);
  if (!arena) return tsr__fail_memory(error);
  tsr__arena_init(arena);
  out->names = arena;
  for (size_t i = 0; i < out->cause_count; i++) {
    const char *name = out->causes[i].name;
    const char *copy = tsr__arena_copy(arena, name, strlen(name) + 1, 1);
    if (!copy) return tsr__fail_memory(error);
    out->causes[i].name = copy;
  }
  return 0;
}

static int measure_causes(checker *c, const tsr__timeline *t, tsr_check_device *out,
                          tsr_error *error) {
  const tsr__categories *categories;
  int status = compute_functions(c, error);
  if (!status) status = tsr__study_categories(c->study, out->device, &categories, error);
  const tsr_lock *lock = c->options->lock;
  if (!status)
    status = tsr__check_peaks(t, categories, &c->functions, lock && lock->version == 1, out, error);
  if (!status) status = copy_names(out, error);
  for (size_t i = 1; !status && i < out->cause_count; i++)
    assert(tsr__compare_check_causes(&out->causes[i - 1], &out->causes[i]) <= 0);
  out->has_causes = !status;
  return status;
}

static void measure(const tsr__timeline *t, tsr_check_device *out) {
  out->event_count = t->events.count;
  out->has_history = tsr__has_history(&t->events);
  out->peak.event = t->allocated_event;
  out->peak.time_us = out->peak.event < 0 ? TSR_TIME_NONE : t->events.time_us[out->peak.event];
  out->peak.totals = t->at_peak;
  out->peak_reserved_bytes = t->maxima.reserved_bytes;
  out->peak_reserved_event = t->reserved_event;
}

/* Whether anything here depends on categories. */
static bool needs_causes(const checker *c, const tsr_check_device *device) {
  const tsr_check_options *o = c->options;
  bool needs = o->lock != NULL;
  for (size_t i = 0; i < o->limit_count && !needs; i++) {
    const tsr_check_limit *limit = &o->limits[i];
    needs = limit->rule == TSR_CHECK_MAX_CATEGORY ||
            (limit->rule == TSR_CHECK_MAX_PEAK ? device->peak.totals.allocated_bytes > limit->bytes
                                               : device->peak_reserved_bytes > limit->bytes);
  }
  return needs;
}

/* ---- The lock's causes ---- */

static const tsr_lock_device *locked_device(const tsr_lock *lock, uint32_t device) {
  for (size_t i = 0; lock && i < lock->device_count; i++)
    if (lock->devices[i].device == device) return &lock->devices[i];
  return NULL;
}

static tsr_check_cause *find_cause(tsr_check_device *device, size_t count, tsr_category kind,
                                   const char *name) {
  for (size_t i = 0; i < count; i++)
    if (device->causes[i].cause.category == kind && strcmp(device->causes[i].name, name) == 0)
      return &device->causes[i];
  return NULL;
}

/* Add the lock's figures to the causes, and append causes of the lock that no longer exist. Locks
 * list only a few causes, so the quadratic search is fine. */
static int join_lock(const tsr_lock_device *locked, tsr_check_device *device, tsr_error *error) {
  size_t count = device->cause_count;
  tsr_check_cause *grown =
      tsr__realloc(device->causes, count + locked->cause_count + 1, sizeof *grown);
  if (!grown) return tsr__fail_memory(error);
  device->causes = grown;
  for (size_t i = 0; i < count; i++) grown[i].locked_bytes = locked->rest_bytes;
  for (size_t i = 0; i < locked->cause_count; i++) {
    const tsr_lock_cause *cause = &locked->causes[i];
    tsr_check_cause *found = find_cause(device, count, cause->category, cause->name);
    if (!found) {
      const char *name = tsr__arena_copy(device->names, cause->name, strlen(cause->name) + 1, 1);
      if (!name) return tsr__fail_memory(error);
      found = &device->causes[device->cause_count++];
      *found = (tsr_check_cause){.name = name,
                                 .cause = {.category = cause->category,
                                           .frame = TSR_NONE,
                                           .layer = TSR_NONE,
                                           .stack = TSR_NONE},
                                 .peak_event = -1};
    }
    found->is_locked = true;
    found->locked_bytes = cause->bytes;
  }
  assert(device->cause_count <= count + locked->cause_count);
  return 0;
}

/* ---- Explaining ---- */

/* A cause's place in a ranking. */
typedef struct ranked {
  uint64_t weight;
  uint32_t cause;
} ranked;

static int compare_ranked(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->weight != y->weight) return x->weight < y->weight ? 1 : -1;
  return (x->cause > y->cause) - (x->cause < y->cause);
}

/* How much of a result a cause explains: its growth (or decrease, if the figure decreased), or what it
 * holds. A cause that the lock does not list may have held up to the lock's `rest`. For the device's
 * peak, a cause explains at most what it holds there. */
static uint64_t weigh(const tsr_check_result *result, const tsr_check_cause *cause,
                      bool by_change) {
  bool has_kind = result->rule == TSR_CHECK_MAX_CATEGORY || result->rule == TSR_CHECK_LOCK_CATEGORY;
  if (has_kind && cause->cause.category != result->category) return 0;
  if (!by_change) return has_kind ? cause->cause.bytes : cause->bytes_at_peak;
  bool has_shrunk = result->rule >= TSR_CHECK_LOCK_DEVICE && result->bytes < result->limit_bytes;
  if (has_shrunk)
    return cause->is_locked ? tsr__drop_u64(cause->locked_bytes, cause->cause.bytes) : 0;
  uint64_t grown = tsr__drop_u64(cause->cause.bytes, cause->locked_bytes);
  return has_kind || grown < cause->bytes_at_peak ? grown : cause->bytes_at_peak;
}

static size_t rank(const tsr_check_result *result, const tsr_check_device *device, bool by_change,
                   ranked *list) {
  size_t count = 0;
  for (size_t i = 0; i < device->cause_count; i++) {
    uint64_t weight = weigh(result, &device->causes[i], by_change);
    if (weight) list[count++] = (ranked){weight, (uint32_t)i};
  }
  tsr__sort(list, count, sizeof *list, compare_ranked);
  return count;
}

/* Whether the changes explain a result: at least half of what is above a budget. */
static bool is_telling(const tsr_check_result *result, const ranked *list, size_t count) {
  uint64_t sum = 0;
  if (result->rule >= TSR_CHECK_LOCK_DEVICE) return count != 0;
  for (size_t i = 0; i < count; i++) sum = tsr__sum_u64(sum, list[i].weight);
  return sum >= tsr__drop_u64(result->bytes, result->limit_bytes) / 2 && count;
}

/* Ranked by change if there is a lock, otherwise by size. */
static int explain(const checker *c, const tsr_check_device *device, bool has_lock,
                   tsr_check_result *result, tsr_error *error) {
  if (result->is_passed || !device->has_causes) return 0;
  ranked *list = TSR__NEW_ARRAY(ranked, device->cause_count);
  if (!list) return tsr__fail_memory(error);
  size_t count = has_lock ? rank(result, device, true, list) : 0;
  result->is_change = is_telling(result, list, count);
  if (!result->is_change) count = rank(result, device, false, list);
  assert(count <= device->cause_count);
  size_t shown = c->top && count > c->top ? c->top : count;
  result->omitted_causes = count - shown;
  for (size_t i = shown; i < count; i++)
    result->omitted_bytes = tsr__sum_u64(result->omitted_bytes, list[i].weight);
  count = shown;
  result->causes = TSR__NEW_ARRAY(uint32_t, count);
  for (size_t i = 0; result->causes && i < count; i++) result->causes[i] = list[i].cause;
  result->cause_count = result->causes ? count : 0;
  tsr__free(list);
  return result->causes ? 0 : tsr__fail_memory(error);
}

/* ---- What the program called it ---- */

/* The names of what a cause holds when it holds most. */
static int add_names(checker *c, const tsr__timeline *t, const tsr__categories *categories,
                     const tsr__names *names, const tsr_check_cause *cause, uint32_t entry,
                     tsr__name_sums *sums, tsr_error *error) {
  tsr__live_set live = {0};
  int status = tsr__timeline_live(t, cause->peak_event, &live, error);
  for (size_t i = 0; !status && i < live.count; i++) {
    uint32_t allocation = live.items[i];
    uint32_t place = tsr__place_of(c->functions.places, tsr__timeline_stack(t, allocation));
    const char *function = c->functions.names[c->functions.of_place[place]];
    if (categories->category[allocation] != cause->cause.category) continue;
    if (strcmp(function, cause->name) != 0) continue;
    if (!tsr__name_sums_add(sums, entry, names, allocation)) status = tsr__fail_memory(error);
  }
  TSR__VECTOR_FREE(&live);
  return status;
}

/* Give names to the causes of the device's failures, which are results from `first` on. */
static int name_causes(checker *c, const tsr__timeline *t, tsr_check_device *device, size_t first,
                       tsr_error *error) {
  const tsr__names *names;
  const tsr__categories *categories;
  tsr__name_sums sums;
  int status = tsr__study_names(c->study, device->device, &names, error);
  if (status || !device->has_causes || !tsr__names_any(names)) return status;
  status = tsr__study_categories(c->study, device->device, &categories, error);
  if (status) return status;
  bool *is_named = TSR__NEW_ARRAY(bool, device->cause_count);
  tsr_name_range *ranges = TSR__NEW_ARRAY(tsr_name_range, device->cause_count);
  tsr__name_sums_init(&sums);
  if (!is_named || !ranges) status = tsr__fail_memory(error);
  for (size_t i = first; i < c->results.count; i++)
    for (size_t k = 0; !status && k < c->results.items[i].cause_count; k++) {
      uint32_t cause = c->results.items[i].causes[k];
      if (is_named[cause] || !device->causes[cause].cause.bytes) continue;
      is_named[cause] = true;
      status = add_names(c, t, categories, names, &device->causes[cause], cause, &sums, error);
    }
  if (!status)
    status = tsr__name_sums_take(&sums, c->top, device->cause_count, ranges, &device->named, error);
  for (size_t i = 0; !status && i < device->cause_count; i++)
    device->causes[i].cause.names = ranges[i];
  tsr__name_sums_release(&sums);
  tsr__free(is_named);
  tsr__free(ranges);
  return status;
}

/* ---- Checking ---- */

static int add_result(checker *c, const tsr_check_device *device, bool has_lock,
                      tsr_check_result result, tsr_error *error) {
  result.device = device->device;
  result.is_one_moment = !device->has_history;
  int status = explain(c, device, has_lock, &result, error);
  if (!status && !TSR__VECTOR_PUSH(&c->results, result)) status = tsr__fail_memory(error);
  if (status) tsr__free(result.causes);
  return status;
}

static tsr_check_result against_limit(const tsr_check_device *device,
                                      const tsr_check_limit *limit) {
  tsr_check_result result = {.rule = limit->rule,
                             .category = limit->category,
                             .bytes = device->peak.totals.allocated_bytes,
                             .event = device->peak.event,
                             .limit_bytes = limit->bytes};
  if (limit->rule == TSR_CHECK_MAX_CATEGORY) {
    assert(limit->category < TSR_CATEGORY_COUNT);
    result.bytes = device->categories[limit->category].peak_bytes;
    result.event = device->categories[limit->category].peak_event;
  } else if (limit->rule == TSR_CHECK_MAX_RESERVED) {
    result.bytes = device->peak_reserved_bytes;
    result.event = device->peak_reserved_event;
  }
  result.is_passed = result.bytes <= result.limit_bytes;
  return result;
}

/* `millionths` of `bytes`, without overflow. */
static uint64_t millionths(uint64_t bytes, uint32_t parts) {
  uint64_t whole = bytes / 1000000, rest = bytes % 1000000;
  if (parts && whole > UINT64_MAX / parts) return UINT64_MAX;
  return tsr__sum_u64(whole * parts, rest * parts / 1000000);
}

static uint64_t distance(uint64_t a, uint64_t b) {
  return a > b ? a - b : b - a;
}

static int check_limits(checker *c, const tsr_check_device *device, bool has_lock,
                        tsr_error *error) {
  int status = 0;
  for (int rule = TSR_CHECK_MAX_PEAK; rule <= TSR_CHECK_MAX_RESERVED; rule++)
    for (size_t i = 0; !status && i < c->options->limit_count; i++) {
      const tsr_check_limit *limit = &c->options->limits[i];
      if ((int)limit->rule != rule) continue;
      status = add_result(c, device, has_lock, against_limit(device, limit), error);
    }
  return status;
}

static int check_lock(checker *c, const tsr_check_device *device, const tsr_lock_device *locked,
                      tsr_error *error) {
  tsr_check_result missing = {.rule = TSR_CHECK_LOCK_DEVICE,
                              .bytes = device->peak.totals.allocated_bytes,
                              .event = device->peak.event};
  if (!locked) return add_result(c, device, false, missing, error);
  uint64_t tolerance =
      tsr__sum_u64(c->options->tolerance_bytes,
                   millionths(locked->peak_bytes, c->options->tolerance_millionths));
  tsr_check_result peak = {.rule = TSR_CHECK_LOCK_PEAK,
                           .bytes = device->peak.totals.allocated_bytes,
                           .event = device->peak.event,
                           .limit_bytes = locked->peak_bytes,
                           .tolerance_bytes = tolerance};
  peak.is_passed = distance(peak.bytes, peak.limit_bytes) <= tolerance;
  int status = add_result(c, device, true, peak, error);
  for (int kind = 0; !status && kind < TSR_CATEGORY_COUNT; kind++) {
    if (kind == TSR_CATEGORY_UNKNOWN) continue;
    const tsr_check_category *now = &device->categories[kind];
    if (!now->peak_bytes && !locked->categories[kind]) continue;
    tsr_check_result result = {.rule = TSR_CHECK_LOCK_CATEGORY,
                               .category = (tsr_category)kind,
                               .bytes = now->peak_bytes,
                               .event = now->peak_event,
                               .limit_bytes = locked->categories[kind],
                               .tolerance_bytes = tolerance};
    result.is_passed = distance(result.bytes, result.limit_bytes) <= tolerance;
    status = add_result(c, device, true, result, error);
  }
  return status;
}

/* Devices in the lock that the snapshot does not have. */
static int miss_devices(checker *c, const tsr_check *check, tsr_error *error) {
  const tsr_lock *lock = c->options->lock;
  for (size_t i = 0; lock && !c->names_devices && i < lock->device_count; i++) {
    bool is_there = false;
    for (size_t k = 0; k < check->device_count; k++)
      is_there |= check->devices[k].device == lock->devices[i].device;
    if (is_there) continue;
    tsr_check_device none = {.device = lock->devices[i].device};
    tsr_check_result missing = {
        .rule = TSR_CHECK_LOCK_DEVICE, .limit_bytes = lock->devices[i].peak_bytes, .event = -1};
    int status = add_result(c, &none, false, missing, error);
    if (status) return status;
  }
  return 0;
}

static int check_device(checker *c, tsr_check_device *out, tsr_error *error) {
  const tsr__timeline *t;
  const tsr_lock_device *locked = locked_device(c->options->lock, out->device);
  size_t first = c->results.count;
  int status = tsr__study_timeline(c->study, out->device, &t, error);
  if (!status) {
    measure(t, out);
    out->needs_causes = needs_causes(c, out);
    if (out->needs_causes || c->options->wants_causes) status = measure_causes(c, t, out, error);
  }
  if (!status && locked) status = join_lock(locked, out, error);
  if (!status) status = check_limits(c, out, locked != NULL, error);
  if (!status && c->options->lock) status = check_lock(c, out, locked, error);
  if (!status) status = name_causes(c, t, out, first, error);
  if (!status && !(out->warnings = tsr__copy_warnings(t, &out->warning_count)))
    status = tsr__fail_memory(error);
  return status;
}

/* ---- The whole ---- */

static int check_all(checker *c, const uint32_t *devices, size_t count, tsr_check *check,
                     tsr_error *error) {
  int status = tsr__study_prepare(c->study, devices, count, TSR__NEED_TIMELINE, error);
  for (size_t i = 0; !status && i < count; i++) {
    tsr_check_device *device = &check->devices[check->device_count++];
    device->device = devices[i];
    status = check_device(c, device, error);
  }
  return status ? status : miss_devices(c, check, error);
}

/* What the reader's warnings mean for a check; the first that applies counts. */
static tsr_check_doubt doubt_of_file(const tsr_snapshot *snapshot) {
  static const tsr_check_doubt doubts[] = {[TSR__LOSS_NONE] = TSR_CHECK_CERTAIN,
                                           [TSR__LOSS_TRUNCATED] = TSR_CHECK_TRUNCATED,
                                           [TSR__LOSS_DAMAGED] = TSR_CHECK_DAMAGED,
                                           [TSR__LOSS_UNREADABLE] = TSR_CHECK_UNREADABLE};
  return doubts[tsr__snapshot_loss(snapshot)];
}

/* Whether no history was recorded (tsr__has_history): then one state is known, and not the peak. A sidecar
 * shows that there was a recording, in which nothing happened. */
static bool is_unrecorded(const tsr_snapshot *snapshot, const tsr_check *check) {
  size_t count;
  const uint32_t *devices = tsr_snapshot_devices(snapshot, &count);
  for (size_t i = 0; i < count; i++) {
    tsr_events events = tsr_snapshot_events(snapshot, devices[i]);
    if (tsr__has_history(&events)) return false;
  }
  return check->device_count && !tsr_snapshot_sidecar(snapshot);
}

/* Whether a category is within its budget only because most of the device's memory is unknown, for
 * example without stacks. */
static bool hides_category(const tsr_check *check, const tsr_check_options *options) {
  for (size_t i = 0; i < check->device_count; i++) {
    const tsr_check_device *device = &check->devices[i];
    const tsr_check_category *unknown = &device->categories[TSR_CATEGORY_UNKNOWN];
    if (!device->has_causes || unknown->bytes <= device->peak.totals.requested_bytes / 2) continue;
    for (size_t k = 0; k < options->limit_count; k++) {
      const tsr_check_limit *limit = &options->limits[k];
      if (limit->rule == TSR_CHECK_MAX_CATEGORY && limit->category != TSR_CATEGORY_UNKNOWN &&
          unknown->peak_bytes > limit->bytes)
        return true;
    }
  }
  return false;
}

/* Whether a request failed on one of the devices: what the run needed is not known then. */
static bool ran_out(const tsr_snapshot *snapshot, const tsr_check *check) {
  for (size_t i = 0; i < check->device_count; i++) {
    tsr_events events = tsr_snapshot_events(snapshot, check->devices[i].device);
    if (tsr__next_action(&events, TSR_ACTION_OOM, 0) < events.count) return true;
  }
  return false;
}

static tsr_check_doubt doubt_of(const tsr_snapshot *snapshot, const tsr_check_options *options,
                                const tsr_check *check) {
  tsr_check_doubt doubt = doubt_of_file(snapshot);
  if (doubt) return doubt;
  if (ran_out(snapshot, check)) return TSR_CHECK_OUT_OF_MEMORY;
  return hides_category(check, options) ? TSR_CHECK_UNKNOWN : TSR_CHECK_CERTAIN;
}

int tsr_check_compute(tsr_study *study, const tsr_check_options *options, const tsr_query *query,
                      tsr_check **out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  const uint32_t *devices;
  size_t count;
  /* A budget is a GPU's; pinned host memory has one if the query or the lock names it. */
  bool has_host =
      locked_device(options->lock, TSR_DEVICE_HOST) || locked_device(options->lock, TSR_DEVICE_CPU);
  int status =
      (has_host ? tsr__query_devices : tsr__query_gpus)(snapshot, query, &devices, &count, error);
  if (status) return status;
  /* A list of allocations may have both, of which a lock that was made without --device has the first. */
  bool drops_host = has_host && count && devices[count - 1] == TSR_DEVICE_HOST &&
                    !(query && query->device_count) &&
                    !locked_device(options->lock, TSR_DEVICE_HOST);
  count -= drops_host;
  tsr_check *check = TSR__NEW(tsr_check);
  if (!check) return tsr__fail_memory(error);
  checker c = {.study = study,
               .snapshot = snapshot,
               .options = options,
               .names_devices = query && query->device_count,
               .top = query ? query->top : 0};
  check->has_lock = options->lock != NULL;
  check->counts_blocks = options->lock && options->lock->version == 1;
  check->devices = TSR__NEW_ARRAY(tsr_check_device, count);
  status = check->devices ? check_all(&c, devices, count, check, error) : tsr__fail_memory(error);
  tsr__functions_release(&c.functions);
  check->results = c.results.items;
  check->result_count = c.results.count;
  for (size_t i = 0; i < check->result_count; i++)
    check->failed_count += !check->results[i].is_passed;
  assert(status || check->device_count == count);
  check->doubt = doubt_of(snapshot, options, check);
  check->is_unrecorded = is_unrecorded(snapshot, check);
  check->leaves_host = tsr__query_leaves_host(snapshot, devices, count);
  check->is_passed = !check->failed_count && check->device_count && !check->doubt;
  if (status)
    tsr_check_free(check);
  else
    *out = check;
  return status;
}

void tsr_check_free(tsr_check *check) {
  if (!check) return;
  for (size_t i = 0; i < check->device_count; i++) {
    tsr_check_device *device = &check->devices[i];
    tsr__free(device->causes);
    tsr__free(device->named);
    tsr__free(device->warnings);
    if (device->names) tsr__arena_release(device->names);
    tsr__free(device->names);
  }
  for (size_t i = 0; i < check->result_count; i++) tsr__free(check->results[i].causes);
  tsr__free(check->devices);
  tsr__free(check->results);
  tsr__free(check);
}
