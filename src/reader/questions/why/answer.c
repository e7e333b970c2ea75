/* answer.c - the reason for an out-of-memory. See tessera/unstable/why.h.
 *
 * The state at the oom event is the one after everything PyTorch tried: entirely free segments of the
 * default pool were released in segment_free events before it, so what is still cached could
 * not be released, or was of no use. Each free block is counted in one account, by whether the request
 * could have used it:
 *
 *   another pool ──► another stream ──► the other size class ──► its own, but too small
 *
 * and the reason is the first of these that would have been enough, accumulated from the right. What
 * blocks hold beyond their requests is the last cause before the tensors themselves. If what the rest of the run needs
 * would not have fit in any arrangement, one for this request alone is no reason. */
#include "tessera/unstable/why.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/map.h"
#include "base/memory.h"
#include "columns/tables.h"
#include "questions/shared/causes.h"
#include "questions/shared/findings.h"
#include "questions/shared/imbalance.h"
#include "questions/shared/pools.h"
#include "questions/shared/query.h"
#include "questions/shared/rerun.h"
#include "questions/shared/shares.h"
#include "questions/why/outlook.h"
#include "questions/why/trials.h"
#include "study/study.h"
#include "tessera/unstable/sidecar.h"

/* What of a card's nominal size PyTorch usually cannot have: the driver's own part, CUDA contexts and
 * libraries. A 24 GiB card hands out 22.5 to 23.5 GiB. */
static uint64_t usual_outside(uint64_t capacity_bytes) {
  return (UINT64_C(1) << 30) + capacity_bytes / 16;
}

const char *tsr_why_reason_name(tsr_why_reason reason) {
  static const char *const names[TSR_WHY_REASON_COUNT] = {
      "not_recorded", "limit",   "fragmented", "cached_elsewhere", "pending",
      "rounded",      "outside", "in_use",     "unknown"};
  return (unsigned)reason < TSR_WHY_REASON_COUNT ? names[reason] : "not_recorded";
}

const char *tsr_why_cache_name(tsr_why_cache cache) {
  static const char *const names[TSR_WHY_CACHE_COUNT] = {"own", "other_size", "other_stream",
                                                         "other_pool"};
  return (unsigned)cache < TSR_WHY_CACHE_COUNT ? names[cache] : "own";
}

const char *tsr_why_basis_name(tsr_why_basis basis) {
  static const char *const names[TSR_WHY_BASIS_COUNT] = {"none", "blocks", "earlier_step",
                                                         "optimizer_state"};
  return (unsigned)basis < TSR_WHY_BASIS_COUNT ? names[basis] : "none";
}

const char *tsr_why_change_name(tsr_why_change change) {
  static const char *const names[TSR_WHY_CHANGE_COUNT] = {"settings", "batch", "checkpoint",
                                                          "growth",   "model", "outside"};
  return (unsigned)change < TSR_WHY_CHANGE_COUNT ? names[change] : "settings";
}

/* What is the same for all devices. */
typedef struct why_question {
  const tsr_why_options *options;
  tsr_study *study;
  tsr__lines lines;
  size_t top;
  tsr__patience patience;
} why_question;

/* ---- Which failure ---- */

/* A snapshot's oom events and whether the program recovered: as its steps have them. */
static bool list_ooms(const tsr_events *events, const tsr__cycle *cycle, tsr_why_device *out) {
  out->ooms = TSR__NEW_ARRAY(tsr_why_oom, cycle->failures.count);
  if (!out->ooms) return false;
  for (size_t i = 0; i < cycle->failures.count; i++) {
    const tsr__failure *failure = &cycle->failures.items[i];
    out->ooms[i] = (tsr_why_oom){.event = failure->event,
                                 .time_us = events->time_us[failure->event],
                                 .request_bytes = events->size[failure->event],
                                 .device_free_bytes = events->addr[failure->event],
                                 .is_recovered = failure->is_recovered};
  }
  out->oom_count = cycle->failures.count;
  return true;
}

/* The one to explain: false if the options name one that does not exist. */
static bool choose(const tsr_why_options *options, tsr_why_device *out) {
  if (options->event >= 0) {
    for (size_t i = 0; i < out->oom_count; i++) {
      out->chosen = i;
      if (out->ooms[i].event == options->event) return true;
    }
    return false;
  }
  for (size_t i = 0; i < out->oom_count; i++)
    if (!out->ooms[i].is_recovered || out->ooms[out->chosen].is_recovered) out->chosen = i;
  return true;
}

/* ---- The state at that moment ---- */

static void describe_request(const tsr__timeline *t, const tsr__places *places,
                             tsr_why_device *out) {
  const tsr_why_oom *oom = &out->ooms[out->chosen];
  const tsr_events *events = &t->events;
  uint32_t pool = tsr_id_at(events->pool, (uint64_t)oom->event);
  out->request_bytes = oom->request_bytes;
  out->device_free_bytes = oom->device_free_bytes;
  out->needed_bytes = tsr__driver_request(&t->settings, oom->request_bytes);
  out->missing_bytes = tsr__drop_u64(out->needed_bytes, out->device_free_bytes);
  out->stream = tsr_snapshot_stream(t->snapshot, tsr_id_at(events->stream, (uint64_t)oom->event));
  if (pool != TSR_NONE) out->pool = tsr_snapshot_pool(t->snapshot, pool);
  out->stack = events->stack[oom->event];
  const tsr__place *place = &places->items.items[tsr__place_of(places, out->stack)];
  out->frame = place->frame;
  out->layer = place->layer;
}

/* Without a request, the stream that has most of the memory reserved at a moment: most programs use one, which
 * need not be the default stream, and others count as others. */
static int find_main_stream(const tsr__timeline *t, int64_t event, uint64_t *out,
                            tsr_error *error) {
  tsr__map reserved = {0}; /* by id of the stream, bytes */
  uint64_t most = 0;
  bool ok = true;
  for (size_t i = 0; ok && i < t->spans.count; i++) {
    const tsr__span *span = &t->spans.items[i];
    if (!tsr__span_is_there(span, event)) continue;
    uint64_t *bytes = tsr__map_put(&reserved, span->stream, 0, NULL);
    if (!(ok = bytes != NULL)) break;
    *bytes = tsr__sum_u64(*bytes, span->size_bytes);
    if (*bytes <= most) continue;
    most = *bytes;
    *out = tsr_snapshot_stream(t->snapshot, span->stream);
  }
  tsr__map_release(&reserved);
  return ok ? 0 : tsr__fail_memory(error);
}

/* For the accounts of free memory. */
typedef struct accounts {
  const tsr_snapshot *snapshot;
  tsr_why_device *out;
} accounts;

static void book(void *context, const tsr__gap *gap) {
  accounts *a = context;
  const tsr__span *span = gap->span;
  const tsr_why_device *out = a->out;
  tsr_pool pool = {0, 0};
  if (span->pool != TSR_NONE) pool = tsr_snapshot_pool(a->snapshot, span->pool);
  bool is_large = !out->oom_count || tsr__is_large(out->request_bytes);
  tsr_why_cache cache = TSR_WHY_CACHE_OWN;
  if (pool.first != out->pool.first || pool.second != out->pool.second)
    cache = TSR_WHY_CACHE_OTHER_POOL;
  else if (tsr_snapshot_stream(a->snapshot, span->stream) != out->stream)
    cache = TSR_WHY_CACHE_OTHER_STREAM;
  else if (span->is_large != is_large)
    cache = TSR_WHY_CACHE_OTHER_SIZE;
  tsr_why_room *room = &a->out->free[cache];
  room->bytes = tsr__sum_u64(room->bytes, gap->size_bytes);
  room->blocks++;
  if (gap->size_bytes > room->largest_bytes) room->largest_bytes = gap->size_bytes;
  if (gap->is_whole) room->segment_bytes = tsr__sum_u64(room->segment_bytes, gap->size_bytes);
}

static int describe_moment(const tsr__timeline *t, const why_question *question,
                           tsr_why_device *out, tsr_error *error) {
  tsr__live_set live = {0};
  const tsr__categories *categories;
  const tsr__names *names;
  tsr__held_groups held = {0};
  int64_t event = out->oom_count ? out->ooms[out->chosen].event : tsr__timeline_highest(t);
  int status = tsr__timeline_live(t, event, &live, error);
  if (!status && !out->oom_count) status = find_main_stream(t, event, &out->stream, error);
  if (!status) status = tsr__study_categories(question->study, out->device, &categories, error);
  if (!status) status = tsr__study_names(question->study, out->device, &names, error);
  if (!status)
    status =
        tsr__held_by(&question->lines, t, categories, names, &live, question->top, &held, error);
  if (!status) {
    out->moment.event = event;
    out->moment.time_us = event < 0 ? TSR_TIME_NONE : t->events.time_us[event];
    out->moment.totals = tsr__timeline_totals(t, event, &live);
    for (size_t i = 0; i < TSR_CATEGORY_COUNT; i++) out->categories[i] = held.categories[i];
    out->category_count = held.category_count;
    out->causes = held.causes;
    out->cause_count = held.cause_count;
    out->names = held.names;
    out->omitted_causes = held.omitted_causes;
    out->omitted_bytes = held.omitted_bytes;
    out->omitted_block_bytes = held.omitted_block_bytes;
    accounts a = {t->snapshot, out};
    status = tsr__timeline_gaps(t, event, &live, book, &a, &out->fragmentation, error);
    if (!status && out->is_flat) {
      tsr_why_room *room = &out->free[TSR_WHY_CACHE_OWN];
      room->bytes =
          tsr__drop_u64(out->moment.totals.reserved_bytes, out->moment.totals.active_bytes);
    }
    if (!status)
      status = tsr__private_pools_at(t, event, &live, &out->private_pools, &out->private_pool_count,
                                     error);
  }
  out->lost_bytes =
      tsr__sum_u64(out->fragmentation.rounding_bytes, out->fragmentation.unsplit_bytes);
  TSR__VECTOR_FREE(&live);
  return status;
}

/* ---- The reason ---- */

/* Whether what holds the card outside PyTorch explains the failure better than what lies free in its cache: it is more, and an eighth of the
 * card. */
static bool is_mostly_outside(const tsr_why_device *d) {
  const tsr_why_outside_cause *cause = &d->outside_causes[0];
  uint64_t lying = 0;
  for (int i = 0; i < TSR_WHY_CACHE_COUNT; i++) lying = tsr__sum_u64(lying, d->free[i].bytes);
  return d->outside_cause_count && cause->bytes > d->capacity_bytes / 8 &&
         cause->bytes - cause->usual_bytes > lying;
}

static tsr_why_reason reason_of(const tsr_why_device *d) {
  if (!d->oom_count) return TSR_WHY_NOT_RECORDED;
  if (d->is_flat) return TSR_WHY_UNKNOWN; /* what the driver had left is not in the file */
  if (!d->missing_bytes) return TSR_WHY_LIMIT;
  if (is_mostly_outside(d)) return TSR_WHY_OUTSIDE;
  if (d->moment.totals.reserved_bytes < d->moment.totals.active_bytes) return TSR_WHY_UNKNOWN;
  uint64_t there = tsr__sum_u64(d->device_free_bytes, d->free[TSR_WHY_CACHE_OWN].bytes);
  if (there >= d->request_bytes) return TSR_WHY_FRAGMENTED;
  for (int i = TSR_WHY_CACHE_OWN + 1; i < TSR_WHY_CACHE_COUNT; i++)
    there = tsr__sum_u64(there, d->free[i].bytes);
  if (there >= d->request_bytes) return TSR_WHY_CACHED_ELSEWHERE;
  there = tsr__sum_u64(there, d->fragmentation.waiting_bytes);
  if (there >= d->request_bytes) return TSR_WHY_PENDING;
  if (tsr__sum_u64(there, d->lost_bytes) >= d->request_bytes) return TSR_WHY_ROUNDED;
  if (tsr__drop_u64(d->outside_bytes, usual_outside(d->capacity_bytes)) >= d->missing_bytes)
    return TSR_WHY_OUTSIDE;
  if (d->outside_cause_count) return TSR_WHY_OUTSIDE;
  return TSR_WHY_IN_USE;
}

/* PyTorch serves no request below max_split_size_mb from a block of that size or more. */
static bool is_kept_whole(const tsr_allocator_settings *settings, const tsr_why_device *d) {
  uint64_t most = settings->max_split_bytes, largest = d->free[TSR_WHY_CACHE_OWN].largest_bytes;
  return d->oom_count && most && d->request_bytes < most && largest >= most;
}

/* expandable_segments_reserve, if no expandable segment could hold the request; a fraction is of the card. */
static uint64_t exceeded_reserve(const tsr_allocator_settings *settings, const tsr_why_device *d) {
  uint64_t reserve = settings->expandable_reserve_bytes;
  uint64_t card = d->capacity_bytes >> 50 ? 0 : d->capacity_bytes; /* no card has as much */
  if (!reserve) reserve = (uint64_t)(settings->expandable_reserve_fraction * (double)card);
  return settings->expandable_segments && d->oom_count && d->request_bytes > reserve ? reserve : 0;
}

/* The card's memory, as given or from the sidecar. What others held is most exact at a failure,
 * when the allocator queried the driver; without one the sidecar's figure is used. */
static void describe_card(const tsr_snapshot *snapshot, uint64_t capacity_bytes,
                          tsr_why_device *out) {
  tsr_card card = tsr_snapshot_card(snapshot, out->device);
  const tsr_ledger *ledger = tsr_snapshot_ledger(snapshot, out->device);
  if (!card.total_bytes && ledger && ledger->total_bytes != TSR_LEDGER_UNKNOWN)
    card.total_bytes = ledger->total_bytes;
  out->capacity_bytes = capacity_bytes ? capacity_bytes : card.total_bytes;
  out->is_capacity_from_sidecar = !capacity_bytes && card.total_bytes;
  if (!out->oom_count) out->outside_bytes = card.outside_bytes;
  if (!out->capacity_bytes || !out->oom_count) return;
  uint64_t mapped = tsr__drop_u64(out->moment.totals.reserved_bytes, out->asleep_bytes);
  uint64_t known = tsr__sum_u64(mapped, out->device_free_bytes);
  out->outside_bytes = tsr__drop_u64(out->capacity_bytes, known);
}

/* ---- A device ---- */

/* Findings are about the peak, which is no advice for a failure while far less was in use. */
static bool is_about_peak(const tsr__timeline *t, const tsr_why_device *d) {
  return d->moment.totals.allocated_bytes >= t->maxima.allocated_bytes / 4 * 3;
}

/* `*is_meant` is false if the question is about an event that this device does not have. */
static int describe(const tsr_snapshot *snapshot, why_question *question, tsr_why_device *out,
                    bool *is_meant, tsr_error *error) {
  const tsr__timeline *t;
  const tsr__cycle *cycle;
  int status = tsr__study_timeline(question->study, out->device, &t, error);
  if (!status) status = tsr__study_cycle(question->study, out->device, &cycle, error);
  if (status) return status;
  bool is_host = out->device >= TSR_DEVICE_CPU; /* its allocator records no failure */
  if (!is_host && !list_ooms(&t->events, cycle, out)) status = tsr__fail_memory(error);
  out->event_count = t->events.count;
  out->is_flat = t->flat;
  out->has_history = tsr__has_history(&t->events);
  out->is_partial = tsr__lacks_a_part(t->snapshot);
  *is_meant = !status && choose(question->options, out);
  if (!status && *is_meant) {
    out->frame = out->layer = out->stack = TSR_NONE;
    out->peak_reserved_bytes = t->maxima.reserved_bytes;
    out->allocated_event = t->allocated_event;
    out->most_allocated_bytes = t->maxima.allocated_bytes;
    out->is_expandable = t->settings.expandable_segments;
    if (out->oom_count) describe_request(t, question->lines.places, out);
    status = describe_moment(t, question, out, error);
    if (!status) status = tsr__why_look_outside(question->study, out, error);
    if (out->is_flat) out->missing_bytes = 0;
    if (!is_host) describe_card(snapshot, question->options->capacity_bytes, out);
    if (!status && out->oom_count && out->missing_bytes) tsr__why_find_outside(out);
    out->reason = out->request_reason = reason_of(out);
    out->is_kept_whole = is_kept_whole(&t->settings, out);
    out->exceeded_reserve_bytes = exceeded_reserve(&t->settings, out);
  }
  bool can_repeat = !out->is_flat; /* what the allocator would have done otherwise */
  if (!status && *is_meant && out->oom_count && out->reason != TSR_WHY_UNKNOWN && can_repeat) {
    tsr__rerun_tail tail = {0};
    out->trial_capacity_bytes = tsr__capacity_at(t, out->moment.event);
    status = tsr__why_look_ahead(question->study, t, &question->patience, &tail, out, error);
    if (!status && tsr__why_is_arrangement(out->request_reason) && out->outlook.short_bytes)
      out->reason = TSR_WHY_IN_USE;
    if (!status)
      status = tsr__why_try(t, question->options, &tail, &question->patience, out, error);
    if (!status && is_about_peak(t, out))
      status = tsr__findings_of(question->study, out->device, &out->findings, &out->finding_count,
                                error);
    if (!status) status = tsr__why_advise(question->study, t, out, error);
    tsr__free((void *)(uintptr_t)tail.fate);
  }
  if (!status && *is_meant && !out->oom_count)
    status =
        tsr__findings_of(question->study, out->device, &out->findings, &out->finding_count, error);
  if (!status && !(out->warnings = tsr__copy_warnings(t, &out->warning_count)))
    status = tsr__fail_memory(error);
  return status;
}

static void release_device(tsr_why_device *device) {
  tsr__free(device->ooms);
  tsr__free(device->outside);
  tsr_cards_free(device->ledger);
  tsr__free(device->causes);
  tsr__free(device->names);
  tsr__free(device->trials);
  tsr__free(device->private_pools);
  tsr__free(device->warnings);
  tsr__free(device->findings);
  *device = (tsr_why_device){0};
}

static int describe_all(const tsr_snapshot *snapshot, const uint32_t *devices, size_t count,
                        why_question *question, tsr_why *why, tsr_error *error) {
  int status = 0;
  for (size_t i = 0; !status && i < count; i++) {
    tsr_why_device *device = &why->devices[why->device_count++];
    bool is_meant = false;
    device->device = devices[i];
    status = describe(snapshot, question, device, &is_meant, error);
    if (!status && !is_meant) release_device(&why->devices[--why->device_count]);
  }
  if (!status && count && !why->device_count)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "event %lld is not an out-of-memory", (long long)question->options->event);
  return status;
}

int tsr_why_compute(tsr_study *study, const tsr_why_options *options, const tsr_query *query,
                    tsr_why **out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  const uint32_t *devices;
  size_t count;
  tsr_why_options how = options ? *options : (tsr_why_options){.event = -1};
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  tsr_why *why = TSR__NEW(tsr_why);
  if (!why) return tsr__fail_memory(error);
  why_question question = {.options = &how, .study = study, .top = query ? query->top : 0};
  tsr__rerun_begin(&question.patience, snapshot, devices, count, query);
  why->devices = TSR__NEW_ARRAY(tsr_why_device, count);
  if (!why->devices) status = tsr__fail_memory(error);
  unsigned needs = TSR__NEED_CATEGORIES | TSR__NEED_PLACES | TSR__NEED_CYCLE;
  if (!status) status = tsr__study_prepare(study, devices, count, needs, error);
  if (!status) status = tsr__study_places(study, &question.lines.places, error);
  if (!status) status = tsr__study_labels(study, TSR__LABEL_LINE, &question.lines.names, error);
  if (!status) status = describe_all(snapshot, devices, count, &question, why, error);
  if (!status) status = tsr__imbalance_find(study, devices, count, &why->imbalance, error);
  if (status)
    tsr_why_free(why);
  else
    *out = why;
  return status;
}

void tsr_why_free(tsr_why *why) {
  if (!why) return;
  for (size_t i = 0; i < why->device_count; i++) release_device(&why->devices[i]);
  tsr__free(why->devices);
  tsr__free(why);
}
