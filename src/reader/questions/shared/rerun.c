/* rerun.c - repeats a recorded trace on the allocator model. See rerun.h.
 *
 *   recorded event            call of the model
 *   alloc                     malloc of the same bytes, on the same stream, from the same pool
 *   free_requested            free of the block that the model returned for that allocation
 *   free_completed            nothing if the free completed at once; else: its events are done
 *   segment_free, _unmap      empty_cache, once per run of them
 *   segment_alloc, _map       nothing: the model decides; but a new segment goes where the recorded
 *                             one of its size went: the same decisions give the same addresses
 *
 *   oom                       nothing, or (asks_failed) malloc of the same bytes, freed at once
 *
 * A request that the model cannot serve is counted, and its free is skipped.
 *
 * tsr__rerun_further goes on after a failed request with a copy of earlier events. In repetition r
 * of the copy, allocation n of the timeline stands for allocation n + r * lag. Those below the number that
 * the failed request would have had exist, and must come from the same stack to be freed in its place;
 * those from that number on are made by the copy (`copies`).
 *
 * Details that the trace lacks cannot be reproduced: a request that found no block before PyTorch
 * waited for the streams, and took a new segment although a block became free by that wait, finds that
 * block here. */
#include "questions/shared/rerun.h"

#include <assert.h>

#include "allocator/allocator.h"
#include "allocator/rules.h"
#include "base/checked.h"
#include "base/memory.h"
#include "base/sort.h"
#include "tessera/unstable/allocator_state.h"

/* A segment from the driver. */
typedef struct recorded_segment {
  uint64_t size_bytes, event;
} recorded_segment;

/* The addresses that the driver returned, to be returned again. */
typedef struct driver {
  const tsr_events *events;
  TSR__VECTOR(recorded_segment) segments; /* by size, each size in the order of events */
  tsr__map next_of_size;                  /* size -> place of the next segment of that size */
} driver;

enum { EVENTS_AT_ONCE = 4096 }; /* between two looks at whether to stop */

typedef struct rerun {
  const tsr__timeline *t;
  tsr_allocator *allocator;
  driver driver;
  uint64_t *address;   /* by allocation: where the model put it, 0 where it did not */
  uint8_t *is_waiting; /* by allocation: does its free complete later than it is requested? */
  uint32_t *pool;      /* by event: see find_pools; or NULL where events contain it */
  uint64_t capacity_bytes;
  uint64_t patience;
  tsr__work *work; /* or NULL */
  bool asks_failed;
  bool has_private_pools;
  const uint8_t *pool_rules; /* or NULL */
  uint64_t main_stream;
  bool is_releasing; /* inside a run of events that give segments back */
  bool has_flushed;  /* and the cache was emptied for it */
  tsr_whatif_run *run;
} rerun;

static int compare_recorded(const void *left, const void *right) {
  const recorded_segment *a = left, *b = right;
  if (a->size_bytes != b->size_bytes) return a->size_bytes < b->size_bytes ? -1 : 1;
  return (a->event > b->event) - (a->event < b->event);
}

static bool note_segments(driver *d) {
  for (uint64_t i = 0; i < d->events->count; i++)
    if (d->events->action[i] == TSR_ACTION_SEGMENT_ALLOC &&
        !TSR__VECTOR_PUSH(&d->segments, (recorded_segment){d->events->size[i], i}))
      return false;
  tsr__sort(d->segments.items, d->segments.count, sizeof *d->segments.items, compare_recorded);
  for (size_t i = 0; i < d->segments.count; i++)
    if (!tsr__map_put(&d->next_of_size, d->segments.items[i].size_bytes, i, NULL)) return false;
  return true;
}

static uint64_t place_segment(void *context, uint64_t size_bytes) {
  driver *d = context;
  uint64_t *next = tsr__map_find(&d->next_of_size, size_bytes);
  if (!next || *next == d->segments.count) return 0;
  assert(*next < d->segments.count);
  const recorded_segment *segment = &d->segments.items[*next];
  if (segment->size_bytes != size_bytes) return 0;
  ++*next;
  return d->events->addr[segment->event];
}

/* ---- the state before the first event ---- */

static tsr__pool_rule rule_of(const rerun *r, uint32_t pool) {
  if (!r->pool_rules || pool == TSR_NONE) return TSR__POOL_STAYS;
  return (tsr__pool_rule)r->pool_rules[pool];
}

/* The id of the pool that stands for those that join. No pool of a file that joins has to have another one. */
static tsr_pool pool_of(const rerun *r, uint32_t pool) {
  if (pool == TSR_NONE) return (tsr_pool){0, 0};
  switch (rule_of(r, pool)) {
  case TSR__POOL_STAYS: break;
  case TSR__POOL_JOINS: return (tsr_pool){UINT64_MAX, UINT64_MAX};
  case TSR__POOL_LEAVES:
  case TSR__POOL_LEAVES_STREAM: return (tsr_pool){0, 0};
  }
  return tsr_snapshot_pool(r->t->snapshot, pool);
}

static uint64_t stream_of(const rerun *r, uint32_t stream, uint32_t pool) {
  if (rule_of(r, pool) == TSR__POOL_LEAVES_STREAM) return r->main_stream;
  return tsr_snapshot_stream(r->t->snapshot, stream);
}

static int seed_blocks(rerun *r, const tsr__span *span, uint32_t *next, tsr_error *error) {
  const tsr__timeline *t = r->t;
  uint64_t end = span->address + span->size_bytes;
  while (*next < t->initial.count && t->initial.items[*next].address < span->address) ++*next;
  for (; *next < t->initial.count && t->initial.items[*next].address < end; ++*next) {
    const tsr__initial *initial = &t->initial.items[*next];
    tsr_allocator_block block = {.address = initial->address,
                                 .size_bytes = t->block_bytes.items[*next] + initial->unsplit_bytes,
                                 .requested_bytes = initial->requested_bytes,
                                 .owner = *next,
                                 .state = initial->is_waiting ? TSR_BLOCK_PENDING_FREE
                                                              : TSR_BLOCK_ALLOCATED};
    int status = tsr_allocator_seed_block(r->allocator, &block, NULL);
    if (status == TSR_ERROR_ARGUMENT) continue; /* a broken file: what does not fit is left out */
    if (status) return tsr__fail_memory(error);
    r->address[*next] = initial->address;
  }
  return 0;
}

static int seed(rerun *r, tsr_error *error) {
  const tsr__timeline *t = r->t;
  uint32_t next = 0;
  for (size_t i = 0; i < t->spans.count; i++) {
    const tsr__span *span = &t->spans.items[i];
    tsr_pool pool = pool_of(r, span->pool);
    r->has_private_pools |= pool.first || pool.second || rule_of(r, span->pool) != TSR__POOL_STAYS;
    if (span->birth != TSR_NONE) continue;
    tsr_allocator_segment segment = {.address = span->address,
                                     .total_bytes = span->size_bytes,
                                     .stream = stream_of(r, span->stream, span->pool),
                                     .pool = pool,
                                     .owner = TSR_NONE,
                                     .is_large = span->is_large,
                                     .is_expandable = span->is_expandable};
    int status = tsr_allocator_seed_segment(r->allocator, &segment, NULL);
    if (status == TSR_ERROR_ARGUMENT) continue; /* as above */
    status = status ? tsr__fail_memory(error) : seed_blocks(r, span, &next, error);
    if (status) return status;
  }
  return 0;
}

/* ---- events ---- */

static bool gives_back(const tsr_events *events, uint64_t event) {
  return event < events->count && (events->action[event] == TSR_ACTION_SEGMENT_FREE ||
                                   events->action[event] == TSR_ACTION_SEGMENT_UNMAP);
}

/* Older files have private pools but do not record which event used them: then the pool is that of the
 * memory itself. False when out of memory. */
static bool find_pools(rerun *r) {
  const tsr__timeline *t = r->t;
  tsr__ranges there;
  tsr__ranges_init(&there);
  /* An event that releases memory still refers to it. */
  tsr__span_change *changes = tsr__timeline_span_changes(t, 1);
  uint32_t *range_of = TSR__NEW_ARRAY(uint32_t, t->spans.count);
  r->pool = TSR__NEW_ARRAY(uint32_t, (size_t)t->events.count);
  bool ok = changes && range_of && r->pool;
  size_t next = 0;
  for (uint64_t event = 0; ok && event < t->events.count; event++) {
    for (; ok && next < 2 * t->spans.count && changes[next].event <= (int64_t)event; next++) {
      uint32_t index = changes[next].span;
      const tsr__span *span = &t->spans.items[index];
      if (changes[next].is_end) {
        tsr__ranges_remove(&there, range_of[index]);
        continue;
      }
      range_of[index] = tsr__ranges_add(&there, 0, span->address,
                                        tsr__sum_u64(span->address, span->size_bytes), span->pool);
      ok = range_of[index] != TSR__RANGE_NONE;
    }
    uint32_t around = ok ? tsr__ranges_around(&there, t->events.addr[event]) : TSR__RANGE_NONE;
    uint32_t pool = tsr_id_at(t->events.pool, event);
    if (pool == TSR_NONE && around != TSR__RANGE_NONE)
      pool = tsr__ranges_get(&there, around)->value;
    if (ok) r->pool[event] = pool;
  }
  tsr__free(changes);
  tsr__free(range_of);
  tsr__ranges_release(&there);
  return ok;
}

static uint32_t pool_id_of_event(const rerun *r, uint64_t event) {
  return r->pool ? r->pool[event] : tsr_id_at(r->t->events.pool, event);
}

static tsr_pool pool_of_event(const rerun *r, uint64_t event) {
  return pool_of(r, pool_id_of_event(r, event));
}

static tsr_totals totals_now(const rerun *r) {
  tsr_allocator_totals now = tsr_allocator_now(r->allocator);
  return (tsr_totals){now.requested_bytes, now.allocated_bytes, now.active_bytes,
                      now.reserved_bytes};
}

static tsr_moment moment(const rerun *r, uint64_t event) {
  return (tsr_moment){(int64_t)event, r->t->events.time_us[event], totals_now(r)};
}

static void note_peak(rerun *r, uint64_t event) {
  if (tsr_allocator_now(r->allocator).reserved_bytes > r->run->peak.totals.reserved_bytes)
    r->run->peak = moment(r, event);
}

/* The request of an event. `*address` is 0 if it fails, which is not an error; that also happens without a
 * capacity, where the sizes of a broken file exceed every address space. */
static int serve(rerun *r, uint64_t event, uint32_t owner, uint64_t *address) {
  const tsr_events *events = &r->t->events;
  uint64_t stream = stream_of(r, tsr_id_at(events->stream, event), pool_id_of_event(r, event));
  tsr_allocator_set_owner(r->allocator, owner);
  *address = 0;
  int status = tsr_allocator_malloc(r->allocator, events->size[event], stream,
                                    pool_of_event(r, event), address);
  if (status != TSR_ALLOCATOR_OUT_OF_DEVICE) return status;
  *address = 0;
  return 0;
}

static int ask_malloc(rerun *r, uint64_t event, uint64_t *address, uint32_t allocation) {
  const tsr_events *events = &r->t->events;
  int status = serve(r, event, allocation, address);
  if (status || *address || !events->size[event]) return status;
  if (!r->run->oom_count++) {
    r->run->is_out_of_memory = true;
    r->run->out_of_memory = moment(r, event);
    r->run->oom_request_bytes = events->size[event];
  }
  return 0;
}

/* The request that failed in the recorded run. */
static int ask_failed(rerun *r, uint64_t event) {
  uint64_t address;
  int status = ask_malloc(r, event, &address, TSR_NONE);
  if (status || !address) return status;
  note_peak(r, event);
  return tsr_allocator_free(r->allocator, address);
}

static int ask_free(rerun *r, uint32_t allocation) {
  assert(allocation < r->t->birth.count);
  uint64_t address = r->address[allocation];
  if (!address) return 0;
  int status = 0;
  if (r->is_waiting[allocation])
    status = tsr_allocator_record_stream(r->allocator, address, TSR_STREAM_UNKNOWN);
  if (!status) status = tsr_allocator_free(r->allocator, address);
  if (!r->is_waiting[allocation]) r->address[allocation] = 0;
  return status == TSR_ERROR_ARGUMENT ? 0 : status;
}

/* The recorded free completes; the model may have completed it already, when it was short of memory. */
static void complete(rerun *r, uint32_t allocation) {
  assert(r->is_waiting[allocation]);
  uint32_t block = tsr__heap_find(&r->allocator->heap, r->address[allocation]);
  if (block != TSR_NONE && tsr__block_of(r->allocator, block)->owner == allocation)
    (void)tsr_allocator_complete_block(r->allocator, r->address[allocation]);
}

/* A private pool releases memory only when it has no users; afterwards it may get users again. */
static int set_users(rerun *r, uint64_t event, bool has_users) {
  int status = 0;
  for (; !status && gives_back(&r->t->events, event); event++) {
    tsr_pool pool = pool_of_event(r, event);
    if (!pool.first && !pool.second) continue;
    if (rule_of(r, pool_id_of_event(r, event)) == TSR__POOL_JOINS) continue;
    status = tsr_allocator_pool_begin(r->allocator, pool);
    while (!status && !has_users && !tsr_allocator_pool_end(r->allocator, pool)) continue;
  }
  return status;
}

/* `event` releases memory to the driver. */
static int release(rerun *r, uint64_t event) {
  if (!r->is_releasing) {
    r->has_flushed = false;
    tsr__poll(r->allocator);
  }
  r->is_releasing = true;
  if (r->has_flushed) return 0;
  int status = TSR_ERROR_ARGUMENT;
  if (r->run->is_recorded) status = tsr__release_at(r->allocator, r->t->events.addr[event]);
  if (status != TSR_ERROR_ARGUMENT) return status;
  r->has_flushed = true;
  status = set_users(r, event, false);
  if (!status) status = tsr_allocator_empty_cache(r->allocator);
  return status ? status : set_users(r, event, true);
}

static int apply(rerun *r, uint64_t event) {
  uint32_t allocation = r->t->allocation_of[event];
  tsr_action action = (tsr_action)r->t->events.action[event];
  if (gives_back(&r->t->events, event)) return release(r, event);
  r->is_releasing = false;
  if (action == TSR_ACTION_OOM) return r->asks_failed ? ask_failed(r, event) : 0;
  if (allocation == TSR_NONE) return 0;
  assert(allocation < r->t->birth.count);
  switch (action) {
  case TSR_ACTION_ALLOC: return ask_malloc(r, event, &r->address[allocation], allocation);
  case TSR_ACTION_FREE_REQUESTED:
  case TSR_ACTION_FREE: return ask_free(r, allocation);
  case TSR_ACTION_FREE_COMPLETED: break;
  default: return 0;
  }
  if (!r->is_waiting[allocation]) return ask_free(r, allocation);
  complete(r, allocation);
  return 0;
}

/* ---- the whole ---- */

static int begin(rerun *r, const tsr__rerun_options *options, tsr_error *error) {
  const tsr__timeline *t = r->t;
  tsr_allocator_options how = {.settings = options->settings,
                               .capacity_bytes = options->capacity_bytes,
                               .segment_address = place_segment,
                               .segment_address_context = &r->driver};
  r->address = TSR__NEW_ARRAY(uint64_t, t->birth.count);
  r->is_waiting = TSR__NEW_ARRAY(uint8_t, t->birth.count);
  if (!r->address || !r->is_waiting) return tsr__fail_memory(error);
  for (size_t i = 0; i < t->waits.count; i++)
    r->is_waiting[t->waits.items[i].allocation] = t->waits.items[i].from != TSR_NONE;
  if (!note_segments(&r->driver)) return tsr__fail_memory(error);
  int status = tsr_allocator_new(&how, &r->allocator, error);
  if (status || !r->allocator) return status;
  status = seed(r, error);
  if (!status && r->has_private_pools && !find_pools(r)) status = tsr__fail_memory(error);
  return status;
}

static int run_events(rerun *r, int64_t until, tsr_error *error) {
  tsr_whatif_run *run = r->run;
  run->peak = (tsr_moment){-1, TSR_TIME_NONE, totals_now(r)};
  if (r->capacity_bytes && run->peak.totals.reserved_bytes > r->capacity_bytes) {
    /* Another card was too small before the recording began, unless empty segments made the difference. */
    if (tsr_allocator_empty_cache(r->allocator)) return tsr__fail_memory(error);
    run->peak.totals = totals_now(r);
    if (run->peak.totals.reserved_bytes > r->capacity_bytes) {
      run->is_out_of_memory = true;
      run->out_of_memory = run->peak;
      run->oom_count = 1;
      return 0;
    }
  }
  for (uint64_t i = 0; i < r->t->events.count && (int64_t)i <= until; i++) {
    if (i % EVENTS_AT_ONCE == 0 && !tsr__work_advance(r->work, EVENTS_AT_ONCE))
      return tsr__work_stopped(error);
    int status = apply(r, i);
    if (status) return tsr__fail_memory(error);
    if (tsr__allocator_steps(r->allocator) > r->patience) {
      run->is_given_up = true;
      break;
    }
    note_peak(r, i);
  }
  assert(!r->capacity_bytes || run->peak.totals.reserved_bytes <= r->capacity_bytes);
  run->end_reserved_bytes = tsr_allocator_now(r->allocator).reserved_bytes;
  return 0;
}

/* ---- after the last event ---- */

/* The allocations of the tail, by number from `first` on: their addresses, 0 where freed. */
typedef struct copies {
  TSR__VECTOR(uint64_t) address;
  uint32_t first; /* the number that the failed request would have had */
} copies;

/* The first allocation made after an event. */
static uint32_t born_after(const tsr__timeline *t, int64_t event) {
  size_t low = t->initial.count, high = t->birth.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if ((int64_t)t->birth.items[middle] <= event)
      low = middle + 1;
    else
      high = middle;
  }
  assert(low == t->birth.count || (int64_t)t->birth.items[low] > event);
  return (uint32_t)low;
}

static void note_most(const rerun *r, tsr__rerun_end *out) {
  tsr_totals now = totals_now(r);
  if (now.requested_bytes > out->most.requested_bytes)
    out->most.requested_bytes = now.requested_bytes;
  if (now.allocated_bytes > out->most.allocated_bytes)
    out->most.allocated_bytes = now.allocated_bytes;
  if (now.active_bytes > out->most.active_bytes) out->most.active_bytes = now.active_bytes;
  if (now.reserved_bytes > out->most.reserved_bytes) out->most.reserved_bytes = now.reserved_bytes;
}

/* One more allocation of the tail, with the size of `event`. `*is_served` is false if it failed. */
static int copy_malloc(rerun *r, uint64_t event, copies *made, tsr__rerun_end *out,
                       bool *is_served) {
  uint64_t address;
  int status = serve(r, event, TSR_NONE, &address);
  if (status) return status;
  *is_served = address || !r->t->events.size[event];
  out->reserved_bytes = tsr_allocator_now(r->allocator).reserved_bytes;
  if (!*is_served) {
    uint64_t rounded = tsr__round_request(&r->run->settings, r->t->events.size[event]);
    out->needed_bytes = tsr__driver_request(&r->run->settings, rounded);
  } else {
    note_most(r, out);
  }
  return TSR__VECTOR_PUSH(&made->address, address) ? 0 : TSR_ERROR_MEMORY;
}

/* Same stack; or without one, same size. */
static bool is_alike(const tsr__timeline *t, uint32_t a, uint32_t b) {
  uint32_t stack = tsr__timeline_stack(t, a);
  if (stack != tsr__timeline_stack(t, b)) return false;
  return stack != TSR_NONE || tsr__timeline_requested(t, a) == tsr__timeline_requested(t, b);
}

/* A copied free: of what stands for the allocation now. */
static int copy_free(rerun *r, uint32_t allocation, uint64_t shift, copies *made) {
  const tsr__timeline *t = r->t;
  assert(allocation < t->birth.count);
  if (allocation < t->initial.count) return 0; /* it was there once, and not again */
  uint64_t now = allocation + shift;
  uint64_t *address = NULL;
  if (now >= made->first)
    address =
        now - made->first < made->address.count ? &made->address.items[now - made->first] : NULL;
  else if (is_alike(t, (uint32_t)now, allocation))
    address = &r->address[now];
  if (!address || !*address) return 0;
  int status = tsr_allocator_free(r->allocator, *address);
  *address = 0;
  return status == TSR_ERROR_ARGUMENT ? 0 : status;
}

/* What stands now for a stale allocation: in the first repetition itself, later its copy before. */
static int drop_stale(rerun *r, const tsr__rerun_tail *tail, uint32_t repeat, copies *made) {
  int status = 0;
  assert(tail->fate && repeat && repeat <= tail->repeats);
  for (uint32_t a = (uint32_t)r->t->initial.count; !status && a < made->first; a++)
    if (tail->fate[a] == TSR__FATE_STALE)
      status = copy_free(r, a, (uint64_t)(repeat - 1) * tail->lag, made);
  return status;
}

static int run_tail(rerun *r, const tsr__rerun_tail *tail, uint64_t until, copies *made,
                    tsr__rerun_end *out) {
  const tsr_events *events = &r->t->events;
  int status = 0;
  for (uint32_t repeat = 1; repeat <= tail->repeats; repeat++) {
    bool is_served = true;
    /* Between two repetitions comes the request itself. */
    assert(repeat == 1 || made->address.count == (uint64_t)(repeat - 1) * tail->lag);
    if (!tsr__work_advance(r->work, EVENTS_AT_ONCE)) {
      r->run->is_given_up = true; /* the next rerun, or the caller, stops */
      return 0;
    }
    if (repeat > 1) status = copy_malloc(r, until, made, out, &is_served);
    if (status || !is_served) return status;
    assert(tail->first >= 0 && tail->first <= tail->last);
    for (int64_t e = tail->first; e <= tail->last; e++) {
      uint32_t allocation = r->t->allocation_of[e];
      tsr_action action = (tsr_action)events->action[e];
      if (e == tail->drop_event) status = drop_stale(r, tail, repeat, made);
      if (status) return status;
      if (allocation == TSR_NONE) continue;
      if (action == TSR_ACTION_ALLOC && tail->fate && tail->fate[allocation] == TSR__FATE_ONCE)
        status = TSR__VECTOR_PUSH(&made->address, 0) ? 0 : TSR_ERROR_MEMORY;
      else if (action == TSR_ACTION_ALLOC)
        status = copy_malloc(r, (uint64_t)e, made, out, &is_served);
      else
        status = copy_free(r, allocation, (uint64_t)repeat * tail->lag, made);
      if (status || !is_served) return status;
      if (tsr__allocator_steps(r->allocator) > r->patience) {
        r->run->is_given_up = true;
        return 0;
      }
    }
  }
  out->is_tail_served = true;
  return 0;
}

/* The failed request, and the tail. */
static int run_further(rerun *r, const tsr__rerun_options *options, tsr__rerun_end *out,
                       tsr_error *error) {
  copies made = {.first = born_after(r->t, options->until)};
  assert(r->t->events.action[options->until] == TSR_ACTION_OOM);
  assert(!options->tail.repeats || options->tail.last < options->until);
  assert(options->tail.fate || options->tail.drop_event <= 0);
  int status = copy_malloc(r, (uint64_t)options->until, &made, out, &out->is_served);
  out->request_reserved_bytes = out->reserved_bytes;
  if (!status && out->is_served)
    status = run_tail(r, &options->tail, (uint64_t)options->until, &made, out);
  TSR__VECTOR_FREE(&made.address);
  return status ? tsr__fail_memory(error) : 0;
}

/* Up to `until`, and if `further` is not NULL, after it. */
static int run_whole(const tsr__timeline *timeline, const tsr__rerun_options *options,
                     tsr_whatif_run *run, tsr__rerun_end *further, tsr_allocator **out_allocator,
                     tsr_error *error) {
  rerun r = {.t = timeline,
             .run = run,
             .capacity_bytes = options->capacity_bytes,
             .patience = options->patience ? options->patience->steps : UINT64_MAX,
             .work = options->patience ? &options->patience->work : NULL,
             .asks_failed = options->asks_failed,
             .pool_rules = options->pool_rules,
             .main_stream = options->main_stream,
             .driver = {.events = &timeline->events}};
  run->settings = options->settings;
  int status = begin(&r, options, error);
  if (!status) status = run_events(&r, options->until, error);
  if (!status && further && !run->is_out_of_memory && !run->is_given_up) {
    r.allocator->options.segment_address = NULL; /* as below */
    status = run_further(&r, options, further, error);
  }
  TSR__VECTOR_FREE(&r.driver.segments);
  tsr__map_release(&r.driver.next_of_size);
  tsr__free(r.pool);
  tsr__free(r.address);
  tsr__free(r.is_waiting);
  if (status) {
    tsr_allocator_destroy(r.allocator);
    return status;
  }
  if (options->patience)
    options->patience->steps =
        tsr__drop_u64(options->patience->steps, tsr__allocator_steps(r.allocator));
  r.allocator->options.segment_address = NULL; /* what is asked of it yet has no recorded place */
  *out_allocator = r.allocator;
  return 0;
}

int tsr__rerun(const tsr__timeline *timeline, const tsr__rerun_options *options,
               tsr_whatif_run *run, tsr_allocator **out_allocator, tsr_error *error) {
  return run_whole(timeline, options, run, NULL, out_allocator, error);
}

int tsr__rerun_further(const tsr__timeline *timeline, const tsr__rerun_options *options,
                       tsr_whatif_run *run, tsr__rerun_end *out, tsr_error *error) {
  tsr_allocator *allocator = NULL;
  *out = (tsr__rerun_end){0};
  int status = run_whole(timeline, options, run, out, &allocator, error);
  tsr_allocator_destroy(allocator);
  return status;
}

uint64_t tsr__driver_request(const tsr_allocator_settings *settings, uint64_t request_bytes) {
  if (!settings->expandable_segments) return tsr__segment_size(settings, request_bytes);
  uint64_t page = tsr__is_large(request_bytes) ? TSR__LARGE_SEGMENT : TSR__SMALL_SEGMENT;
  uint64_t rest = request_bytes % page;
  return rest ? tsr__sum_u64(request_bytes, page - rest) : request_bytes;
}

uint64_t tsr__capacity_at(const tsr__timeline *t, int64_t oom_event) {
  const tsr_events *events = &t->events;
  uint64_t now = t->start.reserved_bytes, most = now;
  assert(oom_event >= 0 && events->action[oom_event] == TSR_ACTION_OOM);
  for (int64_t i = 0; i < oom_event; i++) {
    switch ((tsr_action)events->action[i]) {
    case TSR_ACTION_SEGMENT_ALLOC:
    case TSR_ACTION_SEGMENT_MAP: now = tsr__sum_u64(now, events->size[i]); break;
    case TSR_ACTION_SEGMENT_FREE:
    case TSR_ACTION_SEGMENT_UNMAP: now = tsr__drop_u64(now, events->size[i]); break;
    default: break;
    }
    if (now > most) most = now;
  }
  uint64_t device_free = events->addr[oom_event];
  /* A limit of the process is not recorded, but what was reserved must have been allowed. */
  if (tsr__driver_request(&t->settings, events->size[oom_event]) > device_free)
    now = tsr__sum_u64(now, device_free);
  if (now > most) most = now;
  return most ? most : 1; /* to a rerun, 0 is unlimited */
}

void tsr__rerun_begin(tsr__patience *patience, const tsr_snapshot *snapshot,
                      const uint32_t *devices, size_t count, const tsr_query *query) {
  enum { ALWAYS = 10000000, AN_EVENT = 32 };
  uint64_t events = 0;
  for (size_t i = 0; i < count; i++) events += tsr_snapshot_events(snapshot, devices[i]).count;
  patience->steps = ALWAYS + AN_EVENT * events;
  tsr__work_init(&patience->work, NULL, query ? query->progress : NULL,
                 query ? query->progress_context : NULL, 0);
}
