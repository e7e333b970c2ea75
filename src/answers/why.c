/* why.c - the reason for an out-of-memory. See tessera/why.h.
 *
 * The state at the oom event is the one after everything PyTorch tried: whole segments of the default
 * pool went back to the driver in segment_free events before it, so what is cached still is what
 * could not go back, or was of no use. Each free block is put to one account, by whether the request
 * might have had it:
 *
 *   another pool ──► another stream ──► the other size class ──► its own, but too small
 *
 * and the reason is the first of those that would have been enough, added up from the right. What blocks
 * hold beyond their requests is the last thing to be blamed before the tensors themselves. */
#include "tessera/why.h"

#include <stdlib.h>

#include "answers/causes.h"
#include "answers/query.h"
#include "answers/rerun.h"
#include "answers/shares.h"
#include "answers/why_trials.h"
#include "base/checked.h"
#include "base/memory.h"
#include "tessera/sidecar.h"

/* What others than PyTorch hold on any card: a CUDA context, libraries. */
#define USUAL_OUTSIDE_BYTES (UINT64_C(1) << 30)

const char *tsr_why_reason_name(tsr_why_reason reason) {
  static const char *const names[TSR_WHY_REASON_COUNT] = {
      "not_recorded", "limit",   "fragmented", "cached_elsewhere",
      "pending",      "rounded", "outside",    "in_use"};
  return (unsigned)reason < TSR_WHY_REASON_COUNT ? names[reason] : "not_recorded";
}

const char *tsr_why_cache_name(tsr_why_cache cache) {
  static const char *const names[TSR_WHY_CACHE_COUNT] = {"own", "other_size", "other_stream",
                                                         "other_pool"};
  return (unsigned)cache < TSR_WHY_CACHE_COUNT ? names[cache] : "own";
}

/* What is the same for all devices. */
typedef struct why_question {
  const tsr_why_options *options;
  tsr__purposes purposes;
  size_t top;
  uint64_t patience;
} why_question;

/* ---- Which failure ---- */

typedef TSR__VECTOR(tsr_why_oom) oom_list;

static void reverse(oom_list *ooms) {
  for (size_t i = 0, k = ooms->count; i + 1 < k; i++) {
    tsr_why_oom swapped = ooms->items[i];
    ooms->items[i] = ooms->items[--k];
    ooms->items[k] = swapped;
  }
}

/* Read from the end, so that it is known what is served later. */
static bool list_ooms(const tsr_snapshot *snapshot, const tsr_events *events, oom_list *ooms) {
  uint32_t stack_count = tsr_snapshot_stack_count(snapshot);
  bool *is_served = TSR__NEW_ARRAY(bool, stack_count);
  uint64_t served = 0; /* up to the next failure */
  bool ok = is_served != NULL;
  for (uint64_t i = events->count; ok && i-- > 0;) {
    uint32_t stack = events->stack[i];
    bool is_told = stack < stack_count && tsr_snapshot_stack(snapshot, stack).depth;
    if (events->action[i] == TSR_ACTION_ALLOC) {
      if (is_told) is_served[stack] = true;
      served = tsr__sum_u64(served, events->size[i]);
    } else if (events->action[i] == TSR_ACTION_OOM) {
      bool is_as_much = served && tsr__sum_u64(served, TSR__MIN_BLOCK - 1) >= events->size[i];
      bool is_recovered = (is_told && is_served[stack]) || is_as_much;
      ok = TSR__VECTOR_PUSH(ooms, (tsr_why_oom){(int64_t)i, events->time_us[i], events->size[i],
                                                events->addr[i], is_recovered});
      served = 0;
    }
  }
  tsr__free(is_served);
  reverse(ooms);
  return ok;
}

/* The one that the question means: false where it names one that is not there. */
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

/* An event at which most is reserved: the peak of what is allocated, where it is one; else the first,
 * with what the new memory was taken for in use. */
static int64_t highest_event(const tsr__timeline *t) {
  int64_t event = t->reserved_event, next = event;
  const tsr_events *events = &t->events;
  if (t->at_peak.reserved_bytes == t->maxima.reserved_bytes) return t->allocated_event;
  if (event < 0) return event;
  while (next + 1 < (int64_t)events->count && (events->action[next] == TSR_ACTION_SEGMENT_ALLOC ||
                                               events->action[next] == TSR_ACTION_SEGMENT_MAP))
    next++;
  return events->action[next] == TSR_ACTION_ALLOC ? next : event;
}

static void describe_request(const tsr__timeline *t, const tsr__places *places,
                             tsr_why_device *out) {
  const tsr_why_oom *oom = &out->ooms[out->chosen];
  const tsr_events *events = &t->events;
  uint32_t pool = tsr_id_at(events->pool, (uint64_t)oom->event);
  out->request_bytes = oom->request_bytes;
  out->device_free_bytes = oom->device_free_bytes;
  out->needed_bytes = tsr__why_needed(&t->settings, oom->request_bytes);
  out->missing_bytes = tsr__drop_u64(out->needed_bytes, out->device_free_bytes);
  out->stream = tsr_snapshot_stream(t->snapshot, tsr_id_at(events->stream, (uint64_t)oom->event));
  if (pool != TSR_NONE) out->pool = tsr_snapshot_pool(t->snapshot, pool);
  out->stack = events->stack[oom->event];
  const tsr__place *place = &places->items.items[tsr__place_of(places, out->stack)];
  out->frame = place->frame;
  out->layer = place->layer;
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
  tsr__kinds kinds = {0};
  tsr__held held = {0};
  int64_t event = out->oom_count ? out->ooms[out->chosen].event : highest_event(t);
  int status = tsr__timeline_live(t, event, &live, error);
  if (!status) status = tsr__purposes_kinds(&question->purposes, t, &kinds, error);
  if (!status)
    status = tsr__held_by(&question->purposes, t, &kinds, &live, question->top, &held, error);
  if (!status) {
    out->moment.event = event;
    out->moment.time_us = event < 0 ? TSR_TIME_NONE : t->events.time_us[event];
    out->moment.totals = tsr__timeline_totals(t, event, &live);
    for (size_t i = 0; i < TSR_KIND_COUNT; i++) out->kinds[i] = held.kinds[i];
    out->kind_count = held.kind_count;
    out->causes = held.causes;
    out->cause_count = held.cause_count;
    out->omitted_causes = held.omitted_causes;
    out->omitted_bytes = held.omitted_bytes;
    accounts a = {t->snapshot, out};
    status = tsr__timeline_gaps(t, event, &live, book, &a, &out->fragmentation, error);
  }
  out->lost_bytes =
      tsr__sum_u64(out->fragmentation.rounding_bytes, out->fragmentation.unsplit_bytes);
  tsr__kinds_release(&kinds);
  TSR__VECTOR_FREE(&live);
  return status;
}

/* ---- The reason ---- */

static tsr_why_reason reason_of(const tsr_why_device *d) {
  if (!d->oom_count) return TSR_WHY_NOT_RECORDED;
  if (!d->missing_bytes) return TSR_WHY_LIMIT;
  uint64_t there = tsr__sum_u64(d->device_free_bytes, d->free[TSR_WHY_CACHE_OWN].bytes);
  if (there >= d->request_bytes) return TSR_WHY_FRAGMENTED;
  for (int i = TSR_WHY_CACHE_OWN + 1; i < TSR_WHY_CACHE_COUNT; i++)
    there = tsr__sum_u64(there, d->free[i].bytes);
  if (there >= d->request_bytes) return TSR_WHY_CACHED_ELSEWHERE;
  there = tsr__sum_u64(there, d->fragmentation.waiting_bytes);
  if (there >= d->request_bytes) return TSR_WHY_PENDING;
  if (tsr__sum_u64(there, d->lost_bytes) >= d->request_bytes) return TSR_WHY_ROUNDED;
  if (tsr__drop_u64(d->outside_bytes, USUAL_OUTSIDE_BYTES) >= d->missing_bytes)
    return TSR_WHY_OUTSIDE;
  return TSR_WHY_IN_USE;
}

/* The card's memory, as given or as the sidecar has it. What others held is most exact at a failure,
 * where the allocator asked the driver; without one there is the sidecar's figure. */
static void describe_card(const tsr_snapshot *snapshot, uint64_t capacity_bytes,
                          tsr_why_device *out) {
  tsr_card card = tsr_snapshot_card(snapshot, out->device);
  out->capacity_bytes = capacity_bytes ? capacity_bytes : card.total_bytes;
  out->is_capacity_told = !capacity_bytes && card.total_bytes;
  if (!out->oom_count) out->outside_bytes = card.outside_bytes;
  if (!out->capacity_bytes || !out->oom_count) return;
  uint64_t known = tsr__sum_u64(out->moment.totals.reserved_bytes, out->device_free_bytes);
  out->outside_bytes = tsr__drop_u64(out->capacity_bytes, known);
}

/* ---- A device ---- */

/* False in `*is_meant`: the question is about an event that this device does not have. */
static int describe(const tsr_snapshot *snapshot, why_question *question, tsr_why_device *out,
                    bool *is_meant, tsr_error *error) {
  tsr__timeline t = {0};
  oom_list ooms = {0};
  int status = tsr__timeline_compute(snapshot, out->device, false, &t, error);
  if (!status && !list_ooms(snapshot, &t.events, &ooms)) status = tsr__fail_memory(error);
  out->ooms = ooms.items;
  out->oom_count = ooms.count;
  out->event_count = t.events.count;
  *is_meant = !status && choose(question->options, out);
  if (!status && *is_meant) {
    out->frame = out->layer = out->stack = TSR_NONE;
    out->peak_reserved_bytes = t.maxima.reserved_bytes;
    out->is_expandable = t.settings.expandable_segments;
    if (out->oom_count) describe_request(&t, &question->purposes.places, out);
    status = describe_moment(&t, question, out, error);
    describe_card(snapshot, question->options->capacity_bytes, out);
    out->reason = reason_of(out);
  }
  if (!status && *is_meant && out->oom_count)
    status = tsr__why_try(&t, question->options, &question->patience, out, error);
  if (!status && !(out->warnings = tsr__copy_warnings(&t, &out->warning_count)))
    status = tsr__fail_memory(error);
  tsr__timeline_release(&t);
  return status;
}

static void release_device(tsr_why_device *device) {
  tsr__free(device->ooms);
  tsr__free(device->causes);
  tsr__free(device->trials);
  tsr__free(device->warnings);
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

int tsr_why_compute(const tsr_snapshot *snapshot, const tsr_why_options *options,
                    const tsr_query *query, tsr_why **out, tsr_error *error) {
  const uint32_t *devices;
  size_t count;
  tsr_why_options how = options ? *options : (tsr_why_options){.event = -1};
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  tsr_why *why = TSR__NEW(tsr_why);
  if (!why) return tsr__fail_memory(error);
  why_question question = {.options = &how,
                           .top = query ? query->top : 0,
                           .patience = tsr__rerun_patience(snapshot, devices, count)};
  why->devices = TSR__NEW_ARRAY(tsr_why_device, count);
  status = why->devices ? tsr__purposes_compute(snapshot, &question.purposes, error)
                        : tsr__fail_memory(error);
  if (!status) status = describe_all(snapshot, devices, count, &question, why, error);
  tsr__purposes_release(&question.purposes);
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
