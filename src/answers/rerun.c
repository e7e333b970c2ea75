/* rerun.c - a recorded trace given again to the allocator model. See rerun.h.
 *
 *   recorded event            what the model is asked
 *   alloc                     malloc of the same bytes, on the same stream, from the same pool
 *   free_requested            free of the block that the model gave for that allocation
 *   free_completed            nothing, if the free was complete at once; else: its events are done
 *   segment_free, _unmap      empty_cache, once for a run of them
 *   segment_alloc, _map       nothing: the model decides; but a new segment goes where the recorded
 *                             one of its size went: the same decisions give the same addresses
 *
 * A request that the model cannot serve is counted, and its free passed over.
 *
 * What is not told cannot be followed: a request that found nothing before PyTorch waited for the
 * streams, and took a new segment although it would have found something after, finds it here. */
#include "answers/rerun.h"

#include <stdlib.h>

#include "allocator/allocator.h"
#include "base/checked.h"
#include "base/memory.h"

/* A segment that the driver handed out. */
typedef struct recorded_segment {
  uint64_t size_bytes, event;
} recorded_segment;

/* The addresses that the driver handed out, to be handed out again. */
typedef struct driver {
  const tsr_events *events;
  TSR__VECTOR(recorded_segment) segments; /* by size, each size in the order of events */
  tsr__map next_of_size;                  /* size -> place of the next segment of that size */
} driver;

typedef struct rerun {
  const tsr__timeline *t;
  tsr_allocator *allocator;
  driver driver;
  uint64_t *address;   /* by allocation: where the model put it, 0 where it did not */
  uint8_t *is_waiting; /* by allocation: does its free complete later than it is requested? */
  uint32_t *pool;      /* by event: see find_pools; or NULL where events tell */
  uint64_t capacity_bytes;
  uint64_t patience;
  bool has_private_pools;
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
  if (d->segments.count)
    qsort(d->segments.items, d->segments.count, sizeof *d->segments.items, compare_recorded);
  for (size_t i = 0; i < d->segments.count; i++)
    if (!tsr__map_put(&d->next_of_size, d->segments.items[i].size_bytes, i, NULL)) return false;
  return true;
}

static uint64_t place_segment(void *context, uint64_t size_bytes) {
  driver *d = context;
  uint64_t *next = tsr__map_find(&d->next_of_size, size_bytes);
  if (!next || *next == d->segments.count) return 0;
  const recorded_segment *segment = &d->segments.items[*next];
  if (segment->size_bytes != size_bytes) return 0;
  ++*next;
  return d->events->addr[segment->event];
}

/* ---- the state before the first event ---- */

static tsr_pool pool_of(const tsr__timeline *t, uint32_t pool) {
  return pool == TSR_NONE ? (tsr_pool){0, 0} : tsr_snapshot_pool(t->snapshot, pool);
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
    tsr_pool pool = pool_of(t, span->pool);
    r->has_private_pools |= pool.first || pool.second;
    if (span->birth != TSR_NONE) continue;
    tsr_allocator_segment segment = {.address = span->address,
                                     .total_bytes = span->size_bytes,
                                     .stream = tsr_snapshot_stream(t->snapshot, span->stream),
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

/* A span that comes or goes. */
typedef struct change {
  int64_t event; /* the first at which it is there, or is no more */
  uint32_t span;
  bool is_end;
} change;

static int compare_changes(const void *left, const void *right) {
  const change *a = left, *b = right;
  if (a->event != b->event) return a->event < b->event ? -1 : 1;
  if (a->is_end != b->is_end) return a->is_end ? -1 : 1;
  return (a->span > b->span) - (a->span < b->span);
}

/* All that happens to spans, in order; twice as many as spans, or NULL when out of memory. */
static change *list_changes(const tsr__timeline *t) {
  change *changes = TSR__NEW_ARRAY(change, 2 * t->spans.count + 1);
  for (size_t i = 0; changes && i < t->spans.count; i++) {
    const tsr__span *span = &t->spans.items[i];
    int64_t birth = span->birth == TSR_NONE ? -1 : (int64_t)span->birth;
    int64_t death = span->death == TSR_NONE ? INT64_MAX : (int64_t)span->death;
    changes[2 * i] = (change){birth, (uint32_t)i, false};
    /* An event that gives memory back is still about it. */
    changes[2 * i + 1] = (change){death == INT64_MAX ? death : death + 1, (uint32_t)i, true};
  }
  if (changes) qsort(changes, 2 * t->spans.count, sizeof *changes, compare_changes);
  return changes;
}

/* Older files have private pools without telling which event used them: then it is that of the
 * memory itself. False when out of memory. */
static bool find_pools(rerun *r) {
  const tsr__timeline *t = r->t;
  tsr__ranges there;
  tsr__ranges_init(&there);
  change *changes = list_changes(t);
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

static tsr_pool pool_of_event(const rerun *r, uint64_t event) {
  return pool_of(r->t, r->pool ? r->pool[event] : tsr_id_at(r->t->events.pool, event));
}

static tsr_totals totals_now(const rerun *r) {
  tsr_allocator_totals now = tsr_allocator_now(r->allocator);
  return (tsr_totals){now.requested_bytes, now.allocated_bytes, now.active_bytes,
                      now.reserved_bytes};
}

static tsr_moment moment(const rerun *r, uint64_t event) {
  return (tsr_moment){(int64_t)event, r->t->events.time_us[event], totals_now(r)};
}

static int ask_malloc(rerun *r, uint64_t event, uint32_t allocation) {
  const tsr_events *events = &r->t->events;
  uint64_t stream = tsr_snapshot_stream(r->t->snapshot, tsr_id_at(events->stream, event));
  tsr_allocator_set_owner(r->allocator, allocation);
  int status = tsr_allocator_malloc(r->allocator, events->size[event], stream,
                                    pool_of_event(r, event), &r->address[allocation]);
  if (status != TSR_ALLOCATOR_OUT_OF_DEVICE) return status;
  r->address[allocation] = 0;
  if (!r->run->oom_count++) {
    r->run->is_out_of_memory = true;
    r->run->out_of_memory = moment(r, event);
    r->run->oom_request_bytes = events->size[event];
  }
  return 0;
}

static int ask_free(rerun *r, uint32_t allocation) {
  uint64_t address = r->address[allocation];
  if (!address) return 0;
  int status = 0;
  if (r->is_waiting[allocation])
    status = tsr_allocator_record_stream(r->allocator, address, TSR_STREAM_UNKNOWN);
  if (!status) status = tsr_allocator_free(r->allocator, address);
  if (!r->is_waiting[allocation]) r->address[allocation] = 0;
  return status == TSR_ERROR_ARGUMENT ? 0 : status;
}

/* The recorded free completes; the model's may have, too, for lack of memory. */
static void complete(rerun *r, uint32_t allocation) {
  uint32_t block = tsr__heap_find(&r->allocator->heap, r->address[allocation]);
  if (block != TSR_NONE && tsr__block_of(r->allocator, block)->owner == allocation)
    (void)tsr_allocator_complete_block(r->allocator, r->address[allocation]);
}

/* A private pool gives memory back once nobody uses it; afterwards somebody may again. */
static int set_users(rerun *r, uint64_t event, bool has_users) {
  int status = 0;
  for (; !status && gives_back(&r->t->events, event); event++) {
    tsr_pool pool = pool_of_event(r, event);
    if (!pool.first && !pool.second) continue;
    status = tsr_allocator_pool_begin(r->allocator, pool);
    while (!status && !has_users && !tsr_allocator_pool_end(r->allocator, pool)) continue;
  }
  return status;
}

/* `event` gives memory back to the driver. */
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
  if (allocation == TSR_NONE) return 0;
  switch (action) {
  case TSR_ACTION_ALLOC: return ask_malloc(r, event, allocation);
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
    int status = apply(r, i);
    if (status) return tsr__fail_memory(error);
    if (tsr__allocator_steps(r->allocator) > r->patience) {
      run->is_given_up = true;
      break;
    }
    if (tsr_allocator_now(r->allocator).reserved_bytes > run->peak.totals.reserved_bytes)
      run->peak = moment(r, i);
  }
  run->end_reserved_bytes = tsr_allocator_now(r->allocator).reserved_bytes;
  return 0;
}

int tsr__rerun(const tsr__timeline *timeline, const tsr__rerun_options *options,
               tsr_whatif_run *run, tsr_allocator **out_allocator, tsr_error *error) {
  rerun r = {.t = timeline,
             .run = run,
             .capacity_bytes = options->capacity_bytes,
             .patience = options->patience ? *options->patience : UINT64_MAX,
             .driver = {.events = &timeline->events}};
  run->settings = options->settings;
  int status = begin(&r, options, error);
  if (!status) status = run_events(&r, options->until, error);
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
    *options->patience = tsr__drop_u64(*options->patience, tsr__allocator_steps(r.allocator));
  r.allocator->options.segment_address = NULL; /* what is asked of it yet has no recorded place */
  *out_allocator = r.allocator;
  return 0;
}

uint64_t tsr__rerun_patience(const tsr_snapshot *snapshot, const uint32_t *devices, size_t count) {
  enum { ALWAYS = 10000000, AN_EVENT = 32 };
  uint64_t events = 0;
  for (size_t i = 0; i < count; i++) events += tsr_snapshot_events(snapshot, devices[i]).count;
  return ALWAYS + AN_EVENT * events;
}
