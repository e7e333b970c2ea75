/* Tests of timeline/: traces that the allocator model made (model_trace.h), whole and cut, in every
 * feature of the allocator. After every event the timeline must know what the model knew. Then
 * traces broken by hand, and the warnings about them. */
#include "timeline/timeline.h"

#include <stdio.h>

#include "model_trace.h"
#include "study_support.h"
#include "tessera/unstable/formats.h"
#include "timeline/sweep.h"

/* ---- a timeline against the model that made its trace ---- */

typedef struct check {
  const model_trace *m;
  tsr__timeline t;
  uint64_t cut;            /* events of the model that the trace does not have */
  uint64_t *missing_bytes; /* by initial allocation: what its block has beyond block_bytes */
  uint64_t largest_rest;
  bool may_miss_bytes; /* the trace is cut, so that some block's size is recorded nowhere */
} check;

static const model_event *event_of(const check *c, int64_t event) {
  static const model_event nothing;
  int64_t of_model = event + (int64_t)c->cut;
  return of_model < 0 ? &nothing : &c->m->events.items[of_model];
}

/* The true size of each initial allocation's block. What the timeline counts too little must be
 * what it has inferred: exactly, but for oversize blocks. */
static void find_missing(check *c) {
  tsr__map bytes = {0};
  for (uint64_t i = 0; i < c->cut; i++) {
    const model_event *e = &c->m->events.items[i];
    if (e->event.action != TSR_ACTION_ALLOC) continue;
    uint64_t *place = tsr__map_put(&bytes, e->event.addr, 0, NULL);
    assert_non_null(place);
    *place = e->block_bytes;
  }
  size_t count = c->t.initial.count;
  c->missing_bytes = TSR__NEW_ARRAY(uint64_t, count);
  assert_non_null(c->missing_bytes);
  for (size_t i = 0; i < count; i++) {
    const uint64_t *truth = tsr__map_find(&bytes, c->t.initial.items[i].address);
    assert_non_null(truth);
    assert_true(*truth >= c->t.block_bytes.items[i]);
    c->missing_bytes[i] = *truth - c->t.block_bytes.items[i];
    uint64_t inferred = c->t.initial.items[i].unsplit_bytes;
    if (inferred) assert_int_equal(c->missing_bytes[i], inferred);
    assert_true(c->missing_bytes[i] <= c->largest_rest);
    c->may_miss_bytes |= c->missing_bytes[i] != 0;
  }
  tsr__map_release(&bytes);
}

static void check_fragmentation(check *c, int64_t event, const tsr__live_set *live,
                                const tsr_totals *totals) {
  tsr_fragmentation parts = {0};
  assert_int_equal(tsr__timeline_fragmentation(&c->t, event, live, &parts, NULL), 0);
  assert_int_equal(totals->requested_bytes + parts.rounding_bytes + parts.unsplit_bytes +
                       parts.free_block_bytes + parts.free_segment_bytes,
                   totals->reserved_bytes);
  assert_int_equal(parts.waiting_bytes, totals->active_bytes - totals->allocated_bytes);
  assert_true(parts.largest_free_bytes <= parts.free_block_bytes + parts.free_segment_bytes);
}

/* Totals and live set after one event. */
static void check_event(check *c, int64_t event) {
  const model_event *want = event_of(c, event);
  tsr__live_set live = {0};
  assert_int_equal(tsr__timeline_live(&c->t, event, &live, NULL), 0);
  tsr_totals got = tsr__timeline_totals(&c->t, event, &live);
  uint64_t sum = 0, missing = 0;
  for (size_t i = 0; i < live.count; i++) {
    uint32_t allocation = live.items[i];
    sum += model_mark(tsr__timeline_address(&c->t, allocation),
                      tsr__timeline_requested(&c->t, allocation));
    if (allocation < c->t.initial.count) missing += c->missing_bytes[allocation];
  }
  assert_int_equal(live.count, want->live_count);
  assert_int_equal(sum, want->live_sum);
  assert_int_equal(got.requested_bytes, want->after.requested_bytes);
  assert_int_equal(got.reserved_bytes, want->after.reserved_bytes);
  assert_int_equal(got.active_bytes + missing, want->after.active_bytes);
  assert_true(got.allocated_bytes <= want->after.allocated_bytes);
  assert_true(got.allocated_bytes + missing >= want->after.allocated_bytes);
  check_fragmentation(c, event, &live, &got);
  TSR__VECTOR_FREE(&live);
}

/* The largest value of one total, and the first event after which it is that. */
static void check_maximum(const check *c, size_t offset, uint64_t got, int64_t got_event) {
  uint64_t largest = 0;
  int64_t at = -1;
  for (int64_t i = -1; i < (int64_t)c->t.events.count; i++) {
    uint64_t value;
    memcpy(&value, (const char *)&event_of(c, i)->after + offset, sizeof value);
    if (i >= 0 && value <= largest) continue;
    largest = value;
    at = i;
  }
  assert_int_equal(got, largest);
  assert_int_equal(got_event, at);
}

static void check_maxima(const check *c) {
  const tsr__timeline *t = &c->t;
  check_maximum(c, offsetof(tsr_totals, requested_bytes), t->maxima.requested_bytes,
                t->requested_event);
  check_maximum(c, offsetof(tsr_totals, reserved_bytes), t->maxima.reserved_bytes,
                t->reserved_event);
  assert_int_equal(t->start.reserved_bytes, event_of(c, -1)->after.reserved_bytes);
  if (c->may_miss_bytes) return;
  check_maximum(c, offsetof(tsr_totals, allocated_bytes), t->maxima.allocated_bytes,
                t->allocated_event);
  check_maximum(c, offsetof(tsr_totals, active_bytes), t->maxima.active_bytes, t->active_event);
  assert_memory_equal(&t->start, &event_of(c, -1)->after, sizeof t->start);
  assert_memory_equal(&t->at_peak, &event_of(c, t->allocated_event)->after, sizeof t->at_peak);
}

/* Looking for an action jumps from event to event as a plain loop does. */
static void check_actions(const check *c) {
  const tsr_events *events = &c->t.events;
  for (int action = 0; action < TSR_ACTION_KNOWN_COUNT; action++) {
    uint64_t next = tsr__next_action(events, (tsr_action)action, 0);
    for (uint64_t i = 0; i < events->count; i++) {
      if (events->action[i] != action) continue;
      assert_int_equal(next, i);
      next = tsr__next_action(events, (tsr_action)action, i + 1);
    }
    assert_int_equal(next, events->count);
  }
}

static void check_replay(const check *c) {
  const tsr_replay_check *r = &c->t.check;
  for (int i = 0; i < TSR__MISFIT_COUNT; i++)
    if (c->t.misfits[i]) fail_msg("misfit %d: %u", i, (unsigned)c->t.misfits[i]);
  assert_int_equal(r->final_matched, r->final_blocks);
  const model_event *last = event_of(c, (int64_t)c->t.events.count - 1);
  assert_int_equal(r->final_blocks, last->live_count);
  assert_memory_equal(&c->t.end, &last->after, sizeof c->t.end);
}

/* A sweep equals a query about the same event, for every event. */
static void check_sweep(const check *c, int64_t stride) {
  tsr__sweep sweep;
  size_t live_count = c->t.initial.count;
  assert_int_equal(tsr__sweep_begin(&c->t, &sweep, NULL), 0);
  assert_memory_equal(&sweep.totals, &c->t.start, sizeof sweep.totals);
  while (tsr__sweep_next(&sweep)) {
    live_count += sweep.born != TSR_NONE;
    live_count -= sweep.died != TSR_NONE;
    if (sweep.died != TSR_NONE) assert_int_equal(c->t.death.items[sweep.died], sweep.event);
    if (sweep.event % stride) continue;
    tsr__live_set live = {0};
    assert_int_equal(tsr__timeline_live(&c->t, sweep.event, &live, NULL), 0);
    tsr_totals want = tsr__timeline_totals(&c->t, sweep.event, &live);
    assert_memory_equal(&sweep.totals, &want, sizeof want);
    assert_int_equal(live.count, live_count);
    TSR__VECTOR_FREE(&live);
  }
  assert_int_equal(sweep.event, (int64_t)c->t.events.count - 1);
  assert_false(tsr__sweep_next(&sweep));
  tsr__sweep_release(&sweep);
}

#define CHECK_SAME(a, b, column)                                          \
  do {                                                                    \
    assert_int_equal((a)->column.count, (b)->column.count);               \
    if ((a)->column.count)                                                \
      assert_memory_equal((a)->column.items, (b)->column.items,           \
                          (a)->column.count * sizeof *(a)->column.items); \
  } while (0)

/* Threads that help change nothing. */
static void check_threads(const tsr_snapshot *snapshot, uint32_t device, const tsr__timeline *t) {
  tsr__thread_pool *pool = tsr__thread_pool_new(3);
  tsr__timeline helped = {0};
  assert_int_equal(tsr__timeline_compute(snapshot, device, true, pool, &helped, NULL), 0);
  CHECK_SAME(&helped, t, birth);
  CHECK_SAME(&helped, t, death);
  CHECK_SAME(&helped, t, block_bytes);
  CHECK_SAME(&helped, t, waits);
  CHECK_SAME(&helped, t, live_ids);
  assert_int_equal(helped.initial.count, t->initial.count);
  for (size_t i = 0; i < t->initial.count; i++) { /* field by field: structs have padding */
    const tsr__initial *a = &helped.initial.items[i], *b = &t->initial.items[i];
    assert_int_equal(a->address, b->address);
    assert_int_equal(a->requested_bytes, b->requested_bytes);
    assert_int_equal(a->unsplit_bytes, b->unsplit_bytes);
    assert_int_equal(a->stack, b->stack);
    assert_int_equal(a->is_waiting, b->is_waiting);
  }
  assert_int_equal(helped.spans.count, t->spans.count);
  for (size_t i = 0; i < t->spans.count; i++) {
    assert_int_equal(helped.spans.items[i].address, t->spans.items[i].address);
    assert_int_equal(helped.spans.items[i].size_bytes, t->spans.items[i].size_bytes);
    assert_int_equal(helped.spans.items[i].birth, t->spans.items[i].birth);
  }
  assert_memory_equal(helped.allocation_of, t->allocation_of,
                      (size_t)t->events.count * sizeof *t->allocation_of);
  assert_memory_equal(&helped.start, &t->start, sizeof t->start);
  assert_memory_equal(&helped.maxima, &t->maxima, sizeof t->maxima);
  assert_memory_equal(helped.misfits, t->misfits, sizeof t->misfits);
  assert_int_equal(helped.recorded.static_bytes, t->recorded.static_bytes);
  tsr__timeline_release(&helped);
  tsr__thread_pool_free(pool);
}

/* Every so many events; all where `stride` is 1. Whether each alloc is where the model put it is
 * asked only where `is_placed`. */
static void check_device(const model_trace *m, const tsr_snapshot *snapshot, uint32_t device,
                         uint64_t cut, bool is_placed, int64_t stride) {
  check c = {.m = m, .cut = cut};
  c.largest_rest = m->settings.max_split_bytes ? 20 * MODEL_MIB : MODEL_MIB;
  assert_int_equal(tsr__timeline_compute(snapshot, device, true, NULL, &c.t, NULL), 0);
  check_threads(snapshot, device, &c.t);
  check_actions(&c);
  check_replay(&c);
  find_missing(&c);
  for (int64_t event = -1; event < (int64_t)c.t.events.count; event += stride)
    check_event(&c, event);
  check_event(&c, (int64_t)c.t.events.count - 1);
  check_sweep(&c, stride);
  check_maxima(&c);
  if (is_placed) {
    assert_true(c.t.check.reused > 0);
    assert_int_equal(c.t.check.reused_matched, c.t.check.reused);
    assert_int_equal(c.t.check.segments_matched, c.t.check.segments_new);
  }
  tsr__free(c.missing_bytes);
  tsr__timeline_release(&c.t);
}

/* A window of a trace as its own snapshot gives the same answers about each moment as the whole;
 * sizes, too, even if no event of the window has them. */
static void check_trimmed(const model_trace *m, const tsr_snapshot *whole, bool is_placed) {
  int64_t count = (int64_t)m->events.count;
  const tsr_window windows[] = {
      {false, 0, count / 3}, {false, count / 3, 2 * count / 3}, {false, count / 2, count / 2 + 9}};
  for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
    tsr_snapshot *part = NULL;
    assert_int_equal(tsr_snapshot_trim(test_study(whole), &windows[i], NULL, &part, NULL), 0);
    tsr_snapshot *again = model_reread(part);
    assert_int_equal(tsr_snapshot_events(again, 0).count, windows[i].last - windows[i].first + 1);
    check_device(m, again, 0, (uint64_t)windows[i].first, is_placed && i < 2, 7);
    tsr_snapshot_free(part);
    tsr_snapshot_free(again);
  }
}

/* A random trace of the program: whole, read twice, and cut in several places. */
static void check_program(const model_program *program) {
  model_trace m;
  model_random(&m, program);
  tsr_snapshot *whole = model_snapshot(&m, 1, NULL), *again = model_reread(whole);
  /* Which of two free blocks could grow further depends on the device's size, which no file
   * contains. */
  bool is_placed = !(m.settings.expandable_segments && program->capacity_bytes);
  check_device(&m, whole, 0, 0, is_placed, 1);
  check_device(&m, again, 0, 0, is_placed, 97);
  check_trimmed(&m, whole, is_placed);
  tsr_snapshot_free(whole);
  tsr_snapshot_free(again);
  for (uint64_t part = 1; part < 8; part++) {
    model_form form = {.cut_events = m.events.count * part / 9 + part % 3};
    tsr_snapshot *cut = model_snapshot(&m, 1, &form);
    check_device(&m, cut, 0, form.cut_events, false, 7);
    tsr_snapshot_free(cut);
  }
  model_release(&m);
}

enum { SEEDS = IS_SANITIZED ? 1 : 3 };
#define FEATURE(name, ...)                                                            \
  static void name(void **state) {                                                    \
    (void)state;                                                                      \
    for (uint32_t seed = 1; seed <= SEEDS; seed++)                                    \
      check_program(&(model_program){.operations = 1200, .seed = seed, __VA_ARGS__}); \
  }

FEATURE(defaults, .conf = "")
FEATURE(several_streams, .streams = 3)
FEATURE(waiting_frees, .streams = 3, .wait_one_in = 4)
FEATURE(private_pools, .pools = 3, .ends_pools = true, .empty_one_in = 150)
FEATURE(capture, .pools = 2, .streams = 2, .wait_one_in = 4, .capture_one_in = 60,
        .empty_one_in = 200)
FEATURE(out_of_memory, .capacity_bytes = 260 * MODEL_MIB, .largest_bytes = 40 * MODEL_MIB,
        .streams = 1, .wait_one_in = 6)
FEATURE(garbage_collection, .conf = "garbage_collection_threshold:0.5",
        .memory_limit_bytes = 420 * MODEL_MIB)
FEATURE(oversize, .conf = "max_split_size_mb:24", .capacity_bytes = 500 * MODEL_MIB,
        .largest_bytes = 60 * MODEL_MIB)
FEATURE(roundup, .conf = "roundup_power2_divisions:[1:4,4:2,>:8]")
FEATURE(ascend, .rounding_extra_bytes = 32, .streams = 1)
FEATURE(emptied_cache, .empty_one_in = 60, .streams = 1, .wait_one_in = 5)
FEATURE(expandable, .conf = "expandable_segments:True", .empty_one_in = 150)
FEATURE(expandable_streams, .conf = "expandable_segments:True", .streams = 2, .wait_one_in = 4,
        .pools = 1, .empty_one_in = 150)
FEATURE(expandable_out_of_memory, .conf = "expandable_segments:True",
        .capacity_bytes = 300 * MODEL_MIB, .largest_bytes = 40 * MODEL_MIB)

/* ---- forms of the file ---- */

static void several_devices(void **state) {
  (void)state;
  model_trace traces[3];
  for (uint32_t i = 0; i < 3; i++)
    model_random(&traces[i], &(model_program){.operations = 300 + 50 * i, .seed = i, .streams = i});
  tsr_snapshot *snapshot = model_snapshot(traces, 3, NULL);
  size_t count;
  (void)tsr_snapshot_devices(snapshot, &count);
  assert_int_equal(count, 3);
  for (uint32_t i = 0; i < 3; i++) check_device(&traces[i], snapshot, i, 0, true, 5);
  tsr_snapshot_free(snapshot);
  for (uint32_t i = 0; i < 3; i++) model_release(&traces[i]);
}

/* Ascend lists its workspace after the normal segments; that allocator adds nothing to a request. */
static void ascend_workspace(void **state) {
  (void)state;
  static const char text[] =
      "{\"segments\": ["
      "{\"device\": 0, \"address\": 4096, \"total_size\": 2097152, \"blocks\": ["
      "{\"address\": 4096, \"size\": 1536, \"requested_size\": 1024, \"state\": "
      "\"active_allocated\"},"
      "{\"address\": 5632, \"size\": 2560, \"requested_size\": 2048, \"state\": "
      "\"active_allocated\"},"
      "{\"address\": 8192, \"size\": 2093056, \"requested_size\": 0, \"state\": \"inactive\"}]},"
      "{\"device\": 0, \"address\": 8388608, \"total_size\": 4194304, \"blocks\": ["
      "{\"address\": 8388608, \"size\": 4194304, \"requested_size\": 4194304, \"state\": "
      "\"active_allocated\"}]}], \"device_traces\": [[]]}";
  tsr_snapshot *snapshot = NULL;
  tsr_allocator_settings settings;
  assert_int_equal(tsr_snapshot_read(text, sizeof text - 1, NULL, &snapshot, NULL), 0);
  tsr__timeline_settings(snapshot, 0, &settings);
  assert_int_equal(settings.rounding_extra_bytes, 32);
  tsr_snapshot_free(snapshot);
}

/* Neither settings nor pools of events: releases before 2.2, in all but names. */
static void old_releases(void **state) {
  (void)state;
  static const model_form old = {.drops_pool_id = true, .drops_settings = true};
  static const model_program programs[] = {
      {.operations = 600, .streams = 1},
      {.operations = 600, .pools = 2},
      {.operations = 600, .conf = "expandable_segments:True", .empty_one_in = 100}};
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    model_trace m;
    model_random(&m, &programs[i]);
    tsr_snapshot *snapshot = model_snapshot(&m, 1, &old);
    check_device(&m, snapshot, 0, 0, true, 3);
    tsr_snapshot_free(snapshot);
    model_release(&m);
  }
}

/* Longer than the distance between checkpoints. */
static void long_trace(void **state) {
  (void)state;
  model_trace m;
  model_random(&m, &(model_program){.operations = 14000, .streams = 1, .wait_one_in = 9});
  assert_true(m.events.count > 20000);
  tsr_snapshot *snapshot = model_snapshot(&m, 1, NULL);
  check_device(&m, snapshot, 0, 0, true, 211);
  tsr_snapshot_free(snapshot);
  model_release(&m);
}

/* ---- broken by hand ---- */

/* Events: 0 segment_alloc (small), 1 alloc A, 2 segment_alloc (20 MiB), 3 alloc B, 4 alloc C,
 * 5 and 6 free of B, 7 alloc D (small). */
enum { ALLOC_B = 3, ALLOC_C = 4, FREED_B = 7, END = 8 };

typedef struct broken {
  model_trace m;
  tsr__timeline t;
  tsr_snapshot *snapshot;
} broken;

static void break_begin(broken *x) {
  const tsr_pool pool = {0, 0};
  *x = (broken){0};
  model_start(&x->m, &(model_program){0});
  (void)model_malloc(&x->m, 1000, 0, pool);
  uint32_t b = model_malloc(&x->m, 3 * MODEL_MIB, 0, pool);
  (void)model_malloc(&x->m, 3 * MODEL_MIB, 0, pool);
  model_free(&x->m, b, 0);
  (void)model_malloc(&x->m, 700, 0, pool);
  assert_int_equal(x->m.events.count, END);
}

static tsr_allocator_event event_at(const broken *x, size_t index) {
  return x->m.events.items[index].event;
}

/* Insert an event at an index: like the one at `like`, but for its action, address and size. */
static void insert(broken *x, size_t index, size_t like, tsr_allocator_event change) {
  tsr_allocator_event event = event_at(x, like);
  event.action = change.action;
  if (change.addr) event.addr = change.addr;
  if (change.size) event.size = change.size;
  model_insert(&x->m, index, event);
}

/* The misfits must be these, and at the end everything as the model has it, but for `beyond`, which
 * is requested beyond that. */
static void break_end(broken *x, const uint64_t misfits[TSR__MISFIT_COUNT], const model_form *form,
                      uint64_t beyond) {
  x->snapshot = model_snapshot(&x->m, 1, form);
  assert_int_equal(tsr__timeline_compute(x->snapshot, 0, true, NULL, &x->t, NULL), 0);
  check_threads(x->snapshot, 0, &x->t);
  for (int i = 0; i < TSR__MISFIT_COUNT; i++)
    if (x->t.misfits[i] != misfits[i])
      fail_msg("misfit %d: %u, not %u", i, (unsigned)x->t.misfits[i], (unsigned)misfits[i]);
  tsr__live_set live = {0};
  int64_t last = (int64_t)x->t.events.count - 1;
  assert_int_equal(tsr__timeline_live(&x->t, last, &live, NULL), 0);
  tsr_totals end = tsr__timeline_totals(&x->t, last, &live);
  assert_memory_equal(&end, &x->t.end, sizeof end);
  assert_int_equal(end.requested_bytes, x->m.now.after.requested_bytes + beyond);
  TSR__VECTOR_FREE(&live);
  tsr_warning warnings[TSR__MISFIT_COUNT];
  size_t kinds = 0;
  for (int i = 0; i < TSR__MISFIT_COUNT; i++) kinds += misfits[i] != 0;
  assert_int_equal(tsr__timeline_warnings(&x->t, warnings), kinds);
}

static void break_release(broken *x) {
  tsr__timeline_release(&x->t);
  tsr_snapshot_free(x->snapshot);
  model_release(&x->m);
}

#define MISFITS(...)                    \
  (const uint64_t[TSR__MISFIT_COUNT]) { \
    __VA_ARGS__                         \
  }
#define EVENT(...) ((tsr_allocator_event){__VA_ARGS__})

static void allocated_twice(void **state) {
  (void)state;
  broken x;
  break_begin(&x);
  insert(&x, END, ALLOC_C, EVENT(.action = TSR_ACTION_ALLOC));
  break_end(&x, MISFITS([TSR__MISFIT_ALLOC_LIVE] = 1), NULL, 0);
  assert_int_equal(x.t.check.final_matched, x.t.check.final_blocks);
  break_release(&x);
}

static void freed_twice(void **state) {
  (void)state;
  broken x;
  break_begin(&x);
  insert(&x, FREED_B, ALLOC_B, EVENT(.action = TSR_ACTION_FREE_REQUESTED));
  insert(&x, FREED_B + 1, ALLOC_B, EVENT(.action = TSR_ACTION_FREE_COMPLETED));
  break_end(&x, MISFITS([TSR__MISFIT_FREE_UNKNOWN] = 2), NULL, 0);
  break_release(&x);
}

/* What no event mentions before it is freed existed before the window. */
static void freed_from_before(void **state) {
  (void)state;
  broken x;
  break_begin(&x);
  insert(&x, 0, ALLOC_B,
         EVENT(.action = TSR_ACTION_FREE_COMPLETED, .addr = 0x1000000, .size = 5000));
  break_end(&x, MISFITS(0), NULL, 0);
  assert_int_equal(x.t.start.requested_bytes, 5000);
  assert_int_equal(x.t.start.active_bytes, 5120);
  assert_int_equal(x.t.start.reserved_bytes, 0);
  break_release(&x);
}

static void outside_segments(void **state) {
  (void)state;
  broken x;
  break_begin(&x);
  insert(&x, END, ALLOC_C, EVENT(.action = TSR_ACTION_ALLOC, .addr = 0x1000000, .size = 5000));
  break_end(&x, MISFITS([TSR__MISFIT_ALLOC_OUTSIDE] = 1, [TSR__MISFIT_FINAL] = 1), NULL, 5000);
  assert_int_equal(x.t.end.active_bytes, x.m.now.after.active_bytes + 5120);
  break_release(&x);
}

/* In memory that is in use an alloc has no place either. */
static void inside_used_block(void **state) {
  (void)state;
  broken x;
  break_begin(&x);
  uint64_t inside = event_at(&x, ALLOC_C).addr + MODEL_MIB;
  insert(&x, END, ALLOC_C, EVENT(.action = TSR_ACTION_ALLOC, .addr = inside, .size = 5000));
  insert(&x, END + 1, ALLOC_C,
         EVENT(.action = TSR_ACTION_FREE_COMPLETED, .addr = inside, .size = 5000));
  break_end(&x, MISFITS([TSR__MISFIT_ALLOC_OUTSIDE] = 1), NULL, 0);
  assert_memory_equal(&x.t.end, &x.m.now.after, sizeof x.t.end);
  break_release(&x);
}

static void inside_free_block(void **state) {
  (void)state;
  broken x;
  break_begin(&x);
  uint64_t inside = event_at(&x, ALLOC_C).addr + 5 * MODEL_MIB;
  insert(&x, END, ALLOC_C,
         EVENT(.action = TSR_ACTION_ALLOC, .addr = inside, .size = 2 * MODEL_MIB));
  insert(&x, END + 1, ALLOC_C,
         EVENT(.action = TSR_ACTION_FREE_COMPLETED, .addr = inside, .size = 2 * MODEL_MIB));
  break_end(&x, MISFITS([TSR__MISFIT_ALLOC_INSIDE] = 1), NULL, 0);
  assert_memory_equal(&x.t.end, &x.m.now.after, sizeof x.t.end);
  break_release(&x);
}

/* Where 3 MiB are free, 5 are allocated: they count with the 3 that there are. */
static void too_long(void **state) {
  (void)state;
  broken x;
  break_begin(&x);
  insert(&x, FREED_B, ALLOC_B, EVENT(.action = TSR_ACTION_ALLOC, .size = 5 * MODEL_MIB));
  insert(&x, FREED_B + 1, ALLOC_B,
         EVENT(.action = TSR_ACTION_FREE_COMPLETED, .size = 5 * MODEL_MIB));
  break_end(&x, MISFITS([TSR__MISFIT_ALLOC_TOO_LONG] = 1), NULL, 0);
  assert_memory_equal(&x.t.end, &x.m.now.after, sizeof x.t.end);
  break_release(&x);
}

/* A and D live on without a place. */
static void segment_freed_in_use(void **state) {
  (void)state;
  broken x;
  break_begin(&x);
  insert(&x, END, 0, EVENT(.action = TSR_ACTION_SEGMENT_FREE));
  break_end(&x, MISFITS([TSR__MISFIT_SEGMENT] = 2), NULL, 0);
  assert_int_equal(x.t.end.reserved_bytes, 20 * MODEL_MIB);
  assert_int_equal(x.t.end.active_bytes, x.m.now.after.active_bytes);
  break_release(&x);
}

static void segment_made_twice(void **state) {
  (void)state;
  broken x;
  break_begin(&x);
  insert(&x, END, 0, EVENT(.action = TSR_ACTION_SEGMENT_ALLOC));
  break_end(&x, MISFITS([TSR__MISFIT_SEGMENT] = 1), NULL, 0);
  assert_memory_equal(&x.t.end, &x.m.now.after, sizeof x.t.end);
  break_release(&x);
}

static void segments_overlap(void **state) {
  (void)state;
  broken x;
  char segment[512];
  break_begin(&x);
  (void)snprintf(segment, sizeof segment,
                 ", {\"device\": 0, \"address\": %llu, \"total_size\": 20971520, "
                 "\"allocated_size\": 0, \"active_size\": 0, \"stream\": 0, "
                 "\"segment_type\": \"large\", \"blocks\": []}",
                 (unsigned long long)(event_at(&x, 2).addr + 10 * MODEL_MIB));
  model_form form = {.cut_events = ALLOC_B, .more_segments = segment};
  break_end(&x, MISFITS([TSR__MISFIT_SEGMENT] = 1), &form, 0);
  assert_int_equal(x.t.check.final_matched, 3);
  break_release(&x);
}

/* Times are reported, never used for order. */
static void times_run_backwards(void **state) {
  (void)state;
  broken x;
  break_begin(&x);
  for (size_t i = 0; i < END; i++) x.m.events.items[i].time_us = 1000000 - 7 * (int64_t)i;
  break_end(&x, MISFITS(0), NULL, 0);
  assert_memory_equal(&x.t.end, &x.m.now.after, sizeof x.t.end);
  break_release(&x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults),
      cmocka_unit_test(several_streams),
      cmocka_unit_test(waiting_frees),
      cmocka_unit_test(private_pools),
      cmocka_unit_test(capture),
      cmocka_unit_test(out_of_memory),
      cmocka_unit_test(garbage_collection),
      cmocka_unit_test(oversize),
      cmocka_unit_test(roundup),
      cmocka_unit_test(ascend),
      cmocka_unit_test(emptied_cache),
      cmocka_unit_test(expandable),
      cmocka_unit_test(expandable_streams),
      cmocka_unit_test(expandable_out_of_memory),
      cmocka_unit_test(several_devices),
      cmocka_unit_test(ascend_workspace),
      cmocka_unit_test(old_releases),
      cmocka_unit_test(long_trace),
      cmocka_unit_test(allocated_twice),
      cmocka_unit_test(freed_twice),
      cmocka_unit_test(freed_from_before),
      cmocka_unit_test(outside_segments),
      cmocka_unit_test(inside_used_block),
      cmocka_unit_test(inside_free_block),
      cmocka_unit_test(too_long),
      cmocka_unit_test(segment_freed_in_use),
      cmocka_unit_test(segment_made_twice),
      cmocka_unit_test(segments_overlap),
      cmocka_unit_test(times_run_backwards),
  };
  return cmocka_run_group_tests_name("timeline", tests, NULL, NULL);
}
