/* Tests of allocator/: scripts of requests, and the events that PyTorch would record of them,
 * worked out by hand from its rules.
 *
 * Events are written as "action address size;" with addresses relative to the first that the model
 * chooses, and M and K for whole MiB and KiB. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "allocator/allocator.h"
#include "tessera/unstable/allocator_state.h"
#include "test_support.h"

#define MIB  (UINT64_C(1) << 20)
#define BASE UINT64_C(0x7f0000000000)

typedef struct script {
  tsr_allocator_options options;
  tsr_allocator *a;
  char log[4096];
  size_t length;
  uint64_t places[4]; /* for segment_address */
  size_t place_count, place_next;
} script;

static const char *const names[] = {
    "alloc",        "free_requested", "free_completed", "free",     "segment_alloc",
    "segment_free", "segment_map",    "segment_unmap",  "snapshot", "oom"};
static const tsr_pool no_pool = {0, 0};

static void put_bytes(script *s, uint64_t bytes) {
  const char *unit = "";
  if (bytes && bytes % MIB == 0)
    bytes /= MIB, unit = "M";
  else if (bytes && bytes % 1024 == 0)
    bytes /= 1024, unit = "K";
  s->length += (size_t)snprintf(s->log + s->length, sizeof s->log - s->length, " %" PRIu64 "%s",
                                bytes, unit);
}

static void note(void *context, const tsr_allocator_event *event) {
  script *s = context;
  assert_true(event->action <= TSR_ACTION_OOM);
  assert_true(s->length < sizeof s->log - 200);
  s->length += (size_t)snprintf(s->log + s->length, sizeof s->log - s->length, "%s%s",
                                s->length ? "; " : "", names[event->action]);
  put_bytes(s, event->action == TSR_ACTION_OOM ? event->device_free : event->addr - BASE);
  put_bytes(s, event->size);
}

static uint64_t place(void *context, uint64_t size_bytes) {
  script *s = context;
  (void)size_bytes;
  return s->place_next < s->place_count ? s->places[s->place_next++] : 0;
}

static void start(script *s, const char *conf) {
  s->options.sink = note;
  s->options.sink_context = s;
  if (conf) assert_int_equal(tsr_allocator_settings_parse(conf, &s->options.settings, NULL), 0);
  if (s->place_count) {
    s->options.segment_address = place;
    s->options.segment_address_context = s;
  }
  assert_int_equal(tsr_allocator_new(&s->options, &s->a, NULL), 0);
}

static void finish(script *s) {
  assert_null(tsr__heap_check(&s->a->heap));
  tsr_allocator_destroy(s->a);
}

/* What was recorded since the last look. */
static void expect(script *s, const char *events) {
  assert_string_equal(s->length ? s->log : "", events);
  s->length = 0;
}

static uint64_t get_on(script *s, uint64_t bytes, uint64_t stream) {
  uint64_t address = 0;
  assert_int_equal(tsr_allocator_malloc(s->a, bytes, stream, no_pool, &address), 0);
  return address;
}

static uint64_t get(script *s, uint64_t bytes) {
  return get_on(s, bytes, 0);
}

static uint64_t get_from(script *s, uint64_t bytes, tsr_pool pool) {
  uint64_t address = 0;
  assert_int_equal(tsr_allocator_malloc(s->a, bytes, 0, pool, &address), 0);
  return address;
}

static void give(script *s, uint64_t address) {
  assert_int_equal(tsr_allocator_free(s->a, address), 0);
}

static void starve(script *s, uint64_t bytes) {
  uint64_t address = 77;
  assert_int_equal(tsr_allocator_malloc(s->a, bytes, 0, no_pool, &address),
                   TSR_ALLOCATOR_OUT_OF_DEVICE);
  assert_int_equal(address, 77);
}

/* ---- sizes and segments ---- */

static void rounds_and_picks_segments(void **state) {
  (void)state;
  script s = {0};
  start(&s, "");
  get(&s, 1000);
  expect(&s, "segment_alloc 0 2M; alloc 0 1000");
  get(&s, 1);
  expect(&s, "alloc 1K 1");
  get(&s, MIB); /* still small */
  expect(&s, "alloc 1536 1M");
  get(&s, MIB + 1); /* large, though rounded up to 1 MiB + 512 only */
  expect(&s, "segment_alloc 2M 20M; alloc 2M 1048577");
  get(&s, 10 * MIB); /* the 20 MiB segment has room for it; large blocks serve all large requests */
  expect(&s, "alloc 3146240 10M");
  get(&s, 10 * MIB);
  expect(&s, "segment_alloc 22M 10M; alloc 22M 10M");
  get(&s, 10 * MIB + 1);
  expect(&s, "segment_alloc 32M 12M; alloc 32M 10485761");
  uint64_t address = 9;
  assert_int_equal(tsr_allocator_malloc(s.a, 0, 0, no_pool, &address), 0);
  assert_int_equal(address, 0);
  give(&s, 0);
  expect(&s, "");
  finish(&s);
}

/* What a free block leaves: from a small pool anything, from a large one more than 1 MiB. */
static void splits_by_pool(void **state) {
  (void)state;
  script s = {0};
  start(&s, "");
  uint64_t a = get(&s, 12 * MIB);
  give(&s, a);
  a = get(&s, 11 * MIB); /* leaves exactly 1 MiB: not split */
  assert_int_equal(tsr_allocator_now(s.a).active_bytes, 12 * MIB);
  assert_int_equal(tsr_allocator_now(s.a).requested_bytes, 11 * MIB);
  give(&s, a);
  a = get(&s, 11 * MIB - 512); /* leaves more: split */
  assert_int_equal(tsr_allocator_now(s.a).active_bytes, 11 * MIB - 512);
  uint64_t b = get(&s, MIB + 512); /* all of the rest */
  assert_int_equal(b, a + 11 * MIB - 512);
  assert_int_equal(tsr_allocator_now(s.a).active_bytes, 12 * MIB);
  a = get(&s, MIB);
  b = get(&s, MIB - 512);
  assert_int_equal(b, a + MIB);
  assert_int_equal(get(&s, 1), b + MIB - 512);
  finish(&s);
}

static void rounds_up_to_divisions(void **state) {
  (void)state;
  script s = {0};
  start(&s, "roundup_power2_divisions:[1:0,2:4,>:8]");
  get(&s, 3 * MIB + 1);
  assert_int_equal(tsr_allocator_now(s.a).active_bytes, 7 * MIB / 2);
  get(&s, 9 * MIB);
  assert_int_equal(tsr_allocator_now(s.a).active_bytes, 7 * MIB / 2 + 9 * MIB);
  get(&s, 4 * MIB); /* a power of two stays; the rest of the 20 MiB is 7.5 */
  assert_int_equal(tsr_allocator_now(s.a).active_bytes, 7 * MIB / 2 + 13 * MIB);
  get(&s, 1200); /* slot 0 is off */
  assert_int_equal(tsr_allocator_now(s.a).active_bytes, 7 * MIB / 2 + 13 * MIB + 1536);
  finish(&s);
}

static void large_segments_have_another_size(void **state) {
  (void)state;
  script s = {0};
  start(&s, "large_segment_size_mb:12");
  get(&s, 2 * MIB);
  expect(&s, "segment_alloc 0 12M; alloc 0 2M");
  finish(&s);
  s = (script){0};
  start(&s, "large_segment_size_mb:4"); /* too small for this request */
  get(&s, 5 * MIB);
  expect(&s, "segment_alloc 0 6M; alloc 0 5M");
  finish(&s);
}

/* ---- free and best fit ---- */

static void joins_neighbours(void **state) {
  (void)state;
  script s = {0};
  start(&s, "");
  uint64_t a = get(&s, 512), b = get(&s, 512), c = get(&s, 512);
  s.length = 0;
  give(&s, a);
  expect(&s, "free_requested 0 512; free_completed 0 512");
  give(&s, c);
  assert_int_equal(get(&s, 512), a); /* the smaller of two free blocks */
  give(&s, a);
  give(&s, b);
  s.length = 0;
  assert_int_equal(get(&s, 1536), a); /* all joined */
  expect(&s, "alloc 0 1536");
  assert_int_equal(tsr_allocator_free(s.a, a + 512), TSR_ERROR_ARGUMENT);
  give(&s, a);
  assert_int_equal(tsr_allocator_free(s.a, a), TSR_ERROR_ARGUMENT);
  finish(&s);
}

/* Two free blocks of one size: the lower address, or the older segment. */
static void ties(void **state) {
  (void)state;
  for (int by_segment = 0; by_segment < 2; by_segment++) {
    script s = {.places = {BASE + 64 * MIB, BASE + 32 * MIB}, .place_count = 2};
    s.options.settings.tie_break = by_segment ? TSR_TIE_SEGMENT : TSR_TIE_ADDRESS;
    start(&s, NULL);
    uint64_t high = get(&s, 16 * MIB), low = get(&s, 16 * MIB);
    assert_int_equal(high, BASE + 64 * MIB);
    assert_int_equal(low, BASE + 32 * MIB);
    give(&s, low);
    give(&s, high);
    assert_int_equal(get(&s, 16 * MIB), by_segment ? high : low);
    finish(&s);
  }
}

static void places_that_are_taken_are_not_used(void **state) {
  (void)state;
  script s = {.places = {BASE + MIB, BASE + 2 * MIB, 77, BASE}, .place_count = 4};
  start(&s, "");
  assert_int_equal(get(&s, 10 * MIB), BASE + MIB);
  assert_int_equal(get(&s, 10 * MIB), BASE + 12 * MIB); /* overlaps: after the first instead */
  assert_int_equal(get(&s, 10 * MIB), BASE + 22 * MIB); /* no multiple of 512 */
  assert_int_equal(get(&s, 10 * MIB), BASE + 32 * MIB); /* overlaps */
  finish(&s);
}

static void streams_do_not_share(void **state) {
  (void)state;
  script s = {0};
  start(&s, "");
  give(&s, get(&s, 512));
  s.length = 0;
  get_on(&s, 512, 7);
  expect(&s, "segment_alloc 2M 2M; alloc 2M 512");
  get(&s, 512);
  expect(&s, "alloc 0 512");
  finish(&s);
}

/* ---- record_stream ---- */

static void waits_for_streams(void **state) {
  (void)state;
  script s = {0};
  start(&s, "");
  uint64_t a = get(&s, 512), b = get(&s, 1024), c = get(&s, 512);
  assert_int_equal(tsr_allocator_record_stream(s.a, a, 0), 0); /* its own: ignored */
  assert_int_equal(tsr_allocator_record_stream(s.a, b, 5), 0);
  assert_int_equal(tsr_allocator_record_stream(s.a, b, 5), 0);
  assert_int_equal(tsr_allocator_record_stream(s.a, b, 6), 0);
  assert_int_equal(tsr_allocator_record_stream(s.a, c, 6), 0);
  assert_int_equal(tsr_allocator_record_stream(s.a, c + 512, 6), TSR_ERROR_ARGUMENT);
  s.length = 0;
  give(&s, a);
  expect(&s, "free_requested 0 512; free_completed 0 512");
  give(&s, b);
  give(&s, c);
  expect(&s, "free_requested 512 1K; free_requested 1536 512");
  tsr_allocator_totals now = tsr_allocator_now(s.a);
  assert_int_equal(now.allocated_bytes, 0);
  assert_int_equal(now.active_bytes, 1536);
  assert_int_equal(now.requested_bytes, 1536);
  assert_int_equal(tsr_allocator_free(s.a, b), TSR_ERROR_ARGUMENT);
  /* Stream 6 is done with both: c is free, b still waits for stream 5. */
  tsr_allocator_complete_stream(s.a, 6);
  get(&s, 512);
  expect(&s, "free_completed 1536 512; alloc 0 512");
  assert_int_equal(tsr_allocator_complete_block(s.a, a), TSR_ERROR_ARGUMENT);
  assert_int_equal(tsr_allocator_complete_block(s.a, b), 0);
  get(&s, 512);
  expect(&s, "free_completed 512 1K; alloc 512 512");
  finish(&s);
}

/* A stream's events pass in order; where the order is unknown they pass one by one. */
static void order_of_streams(void **state) {
  (void)state;
  script s = {0};
  start(&s, "");
  for (int known = 0; known < 2; known++) {
    uint64_t a = get(&s, 512), b = get(&s, 512);
    uint64_t stream = known ? 9 : TSR_STREAM_UNKNOWN;
    assert_int_equal(tsr_allocator_record_stream(s.a, a, stream), 0);
    assert_int_equal(tsr_allocator_record_stream(s.a, b, stream), 0);
    give(&s, a);
    give(&s, b);
    s.length = 0;
    assert_int_equal(tsr_allocator_complete_block(s.a, b), 0);
    give(&s, get(&s, 4096));
    if (known) {
      expect(&s, "free_completed 0 512; free_completed 512 512; alloc 0 4K; free_requested 0 4K; "
                 "free_completed 0 4K");
    } else {
      expect(&s, "free_completed 512 512; alloc 512 4K; free_requested 512 4K; "
                 "free_completed 512 4K");
      assert_int_equal(tsr_allocator_empty_cache(s.a), 0); /* waits for all */
      expect(&s, "free_completed 0 512; segment_free 0 2M");
      tsr_allocator_destroy(s.a);
      start(&s, "");
    }
  }
  finish(&s);
}

/* A capture looks at no event and records none; what is freed during it waits for its end. */
static void captures_defer(void **state) {
  (void)state;
  script s = {0};
  start(&s, "");
  uint64_t a = get(&s, 512), b = get(&s, 512);
  assert_int_equal(tsr_allocator_record_stream(s.a, a, 3), 0);
  assert_int_equal(tsr_allocator_record_stream(s.a, b, 3), 0);
  give(&s, a);
  tsr_allocator_capture_begin(s.a);
  give(&s, b);
  tsr_allocator_complete_stream(s.a, 3);
  s.length = 0;
  get(&s, 512);
  expect(&s, "alloc 1K 512"); /* not looked at */
  assert_int_equal(tsr_allocator_complete_block(s.a, b), TSR_ERROR_ARGUMENT);
  assert_int_equal(tsr_allocator_empty_cache(s.a), 0);
  expect(&s, "");
  tsr_allocator_capture_end(s.a);
  get(&s, 512);
  expect(&s, "free_completed 0 512; alloc 0 512"); /* b's event is recorded only now */
  tsr_allocator_complete_stream(s.a, 3);
  get(&s, 512);
  expect(&s, "free_completed 512 512; alloc 512 512");
  tsr_allocator_capture_end(s.a); /* one too many does nothing */
  finish(&s);
}

/* ---- out of memory, and releasing ---- */

/* large pool before small, by stream handle, then size; pending frees first. */
static void empties_in_order(void **state) {
  (void)state;
  script s = {0};
  start(&s, "");
  uint64_t blocks[6] = {get_on(&s, 512, 8),      get_on(&s, 30 * MIB, 8), get_on(&s, 20 * MIB, 8),
                        get_on(&s, 40 * MIB, 4), get_on(&s, 512, 4),      get_on(&s, 512, 4)};
  for (int i = 0; i < 5; i++) {
    if (i == 2) assert_int_equal(tsr_allocator_record_stream(s.a, blocks[i], 4), 0);
    give(&s, blocks[i]);
  }
  s.length = 0;
  assert_int_equal(tsr_allocator_empty_cache(s.a), 0);
  expect(&s, "free_completed 32M 20M; segment_free 52M 40M; segment_free 32M 20M; "
             "segment_free 2M 30M; segment_free 0 2M");
  assert_int_equal(tsr_allocator_now(s.a).reserved_bytes, 2 * MIB);
  assert_int_equal(tsr_allocator_peak(s.a).reserved_bytes, 94 * MIB);
  finish(&s);
}

static void runs_out(void **state) {
  (void)state;
  script s = {.options.capacity_bytes = 50 * MIB};
  start(&s, "");
  uint64_t a = get(&s, 20 * MIB), b = get(&s, 20 * MIB);
  give(&s, a);
  s.length = 0;
  get(&s, 26 * MIB); /* after the cache is emptied */
  expect(&s, "segment_free 0 20M; segment_alloc 40M 26M; alloc 40M 26M");
  assert_int_equal(tsr_allocator_retry_count(s.a), 1);
  starve(&s, 4 * MIB + 100); /* 20 MiB segment for a rounded size of 4 MiB + 512 */
  expect(&s, "oom 4M 4194816");
  assert_int_equal(tsr_allocator_oom_count(s.a), 1);
  give(&s, b);
  s.length = 0;
  tsr_allocator_capture_begin(s.a); /* then nothing is emptied */
  starve(&s, 22 * MIB);
  expect(&s, "oom 4M 22M");
  tsr_allocator_capture_end(s.a);
  starve(&s, UINT64_MAX);
  s.length = 0;
  finish(&s);
}

static void keeps_to_the_limit(void **state) {
  (void)state;
  script s = {.options = {.capacity_bytes = 100 * MIB, .memory_limit_bytes = 40 * MIB}};
  start(&s, "");
  give(&s, get(&s, 20 * MIB));
  get(&s, 40 * MIB);
  expect(&s, "segment_alloc 0 20M; alloc 0 20M; free_requested 0 20M; free_completed 0 20M; "
             "segment_free 0 20M; segment_alloc 20M 40M; alloc 20M 40M");
  starve(&s, 1);
  expect(&s, "oom 60M 512");
  tsr_allocator_set_memory_limit(s.a, 0);
  get(&s, 1);
  expect(&s, "segment_alloc 60M 2M; alloc 60M 1");
  finish(&s);
}

/* Above the threshold, what is older than the average is released, whatever the request. */
static void collects_garbage(void **state) {
  (void)state;
  script s = {.options = {.capacity_bytes = 1000 * MIB, .memory_limit_bytes = 100 * MIB}};
  start(&s, "garbage_collection_threshold:0.5");
  get(&s, 2 * MIB);
  uint64_t old = get(&s, 24 * MIB), middle = get(&s, 20 * MIB), young = get(&s, 22 * MIB);
  give(&s, old);
  get(&s, 2 * MIB); /* from the first segment's rest; the search ages what is cached */
  give(&s, middle);
  give(&s, young);
  s.length = 0;
  /* 86 MiB reserved, 50 allowed. Ages: old 2, the others 1; average 4/3: old goes, 24 of 36 MiB.
   * Then the average is 1, and both go. The split segment stays. */
  get(&s, 30 * MIB);
  expect(&s, "segment_free 20M 24M; segment_free 44M 20M; segment_free 64M 22M; "
             "segment_alloc 86M 30M; alloc 86M 30M");
  /* 50 MiB reserved: nothing to do. */
  get(&s, 20 * MIB);
  expect(&s, "segment_alloc 116M 20M; alloc 116M 20M");
  finish(&s);
}

/* Blocks above max_split_size serve only requests above it that are not much smaller. */
static void keeps_oversize_whole(void **state) {
  (void)state;
  script s = {0};
  start(&s, "max_split_size_mb:40,max_non_split_rounding_mb:20");
  uint64_t big = get(&s, 100 * MIB);
  give(&s, big);
  s.length = 0;
  get(&s, 39 * MIB); /* not from the oversize block */
  expect(&s, "segment_alloc 100M 40M; alloc 100M 39M");
  get(&s, 80 * MIB); /* 20 MiB smaller: too much */
  expect(&s, "segment_alloc 140M 80M; alloc 140M 80M");
  get(&s, 80 * MIB + 512); /* not split */
  expect(&s, "alloc 0 83886592");
  assert_int_equal(tsr_allocator_now(s.a).active_bytes, 220 * MIB);
  finish(&s);
}

static void releases_oversize(void **state) {
  (void)state;
  script s = {.options.capacity_bytes = 300 * MIB};
  start(&s, "max_split_size_mb:40");
  uint64_t a = get(&s, 50 * MIB), b = get(&s, 60 * MIB), c = get(&s, 150 * MIB);
  uint64_t d = get(&s, 20 * MIB);
  give(&s, a), give(&s, b), give(&s, c), give(&s, d);
  s.length = 0;
  c = get(&s, 120 * MIB); /* one block is large enough: it alone goes */
  expect(&s, "segment_free 110M 150M; segment_alloc 280M 120M; alloc 280M 120M");
  get(&s, 100 * MIB); /* none is: the largest, downwards, until 100 MiB */
  expect(&s, "segment_free 50M 60M; segment_free 0 50M; segment_alloc 400M 100M; alloc 400M 100M");
  starve(&s, 90 * MIB); /* no oversize block is left; the cache is emptied too */
  expect(&s, "segment_free 260M 20M; oom 80M 90M");
  finish(&s);
}

/* ---- expandable segments ---- */

static void grows_in_place(void **state) {
  (void)state;
  script s = {.options.capacity_bytes = 160 * MIB}; /* 180 MiB of addresses */
  start(&s, "expandable_segments:True");
  uint64_t a = get(&s, 30 * MIB);
  expect(&s, "segment_map 0 40M; alloc 0 30M");
  uint64_t b = get(&s, 20 * MIB); /* 10 MiB of the tail, 20 mapped */
  expect(&s, "segment_map 40M 20M; alloc 30M 20M");
  get(&s, 512); /* the small pool's own reservation, in granules of 2 MiB */
  expect(&s, "segment_map 180M 2M; alloc 180M 512");
  uint64_t c = get(&s, 40 * MIB);
  expect(&s, "segment_map 60M 40M; alloc 50M 40M");
  give(&s, a);
  give(&s, c);
  s.length = 0;
  /* free 0..30, taken 30..50, free 50..100: whole granules of the free parts, smallest first */
  assert_int_equal(tsr_allocator_empty_cache(s.a), 0);
  expect(&s, "segment_unmap 0 20M; segment_unmap 60M 40M");
  assert_int_equal(tsr_allocator_now(s.a).reserved_bytes, 42 * MIB);
  /* The lowest place that is wide enough: 0..30, of which 20 are unmapped. */
  get(&s, 25 * MIB);
  expect(&s, "segment_map 0 20M; alloc 0 25M");
  /* 5 MiB remain at 25M and 10 at 50M. */
  get(&s, 6 * MIB);
  expect(&s, "alloc 50M 6M");
  give(&s, b);
  s.length = 0;
  finish(&s);
}

/* One place may take several steps; what they mapped stays although the last one failed. */
static void maps_step_by_step(void **state) {
  (void)state;
  script s = {.options.capacity_bytes = 140 * MIB}; /* 160 MiB of addresses */
  start(&s, "expandable_segments:True");
  uint64_t a = get(&s, 20 * MIB), b = get(&s, 10 * MIB), c = get(&s, 50 * MIB);
  uint64_t d = get(&s, 20 * MIB);
  /* a 0..20, b 20..30, c 30..80, d 80..100 */
  give(&s, a);
  give(&s, c);
  assert_int_equal(tsr_allocator_empty_cache(s.a), 0); /* unmaps 0..20 and 40..80 */
  give(&s, b);                                         /* free 20..40, joined with c's rest */
  s.length = 0;
  get(&s, 70 * MIB); /* 0..20 mapped, joined with 20..40, and 30 more in granules */
  expect(&s, "segment_map 0 20M; segment_map 40M 40M; alloc 0 70M");
  give(&s, BASE);
  give(&s, d);
  /* all free: 0..100 */
  s.length = 0;
  get(&s, 10 * MIB);
  get(&s, 110 * MIB);
  expect(&s, "alloc 0 10M; segment_map 100M 20M; alloc 10M 110M");
  starve(&s, 21 * MIB); /* room for addresses, 20 MiB of device: all or nothing a step */
  expect(&s, "oom 20M 21M");
  finish(&s);
}

/* A step that succeeded is kept. */
static void keeps_what_was_mapped(void **state) {
  (void)state;
  script s = {.options.capacity_bytes = 100 * MIB}; /* 120 MiB of addresses */
  start(&s, "expandable_segments:True");
  uint64_t a = get(&s, 20 * MIB), b = get(&s, 20 * MIB), c = get(&s, 20 * MIB);
  give(&s, a);
  give(&s, c);
  assert_int_equal(tsr_allocator_empty_cache(s.a), 0);
  expect(&s, "segment_map 0 20M; alloc 0 20M; segment_map 20M 20M; alloc 20M 20M; "
             "segment_map 40M 20M; alloc 40M 20M; free_requested 0 20M; free_completed 0 20M; "
             "free_requested 40M 20M; free_completed 40M 20M; segment_unmap 0 20M; "
             "segment_unmap 40M 20M");
  tsr_pool pool = {1, 0};
  get_from(&s, 60 * MIB, pool); /* 20 MiB of the device are left */
  give(&s, b);                  /* unmapped 0..20, free 20..40, unmapped 40..120 */
  s.length = 0;
  starve(&s, 50 * MIB); /* the first step maps 0..20; the second finds nothing, so all is emptied */
  expect(&s, "segment_map 0 20M; segment_unmap 0 40M; oom 40M 50M");
  finish(&s);
}

/* expandable_segments_reserve: what a reservation has no room for goes to another one, and what none could hold
 * fails although the device has it. */
static void reserves_less(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    script s = {.options.capacity_bytes = 400 * MIB};
    start(&s, i ? "expandable_segments:True,expandable_segments_reserve:0.05"
                : "expandable_segments:True,expandable_segments_reserve:0.01953125G");
    get(&s, 12 * MIB);
    get(&s, 12 * MIB);
    expect(&s, "segment_map 0 20M; alloc 0 12M; segment_map 20M 20M; alloc 20M 12M");
    s.length = 0;
    starve(&s, 21 * MIB);
    expect(&s, "oom 360M 21M");
    finish(&s);
  }
  script s = {.options.capacity_bytes = 0}; /* a part of an unknown size is unknown */
  start(&s, "expandable_segments:True,expandable_segments_reserve:0.05");
  get(&s, 100 * MIB);
  expect(&s, "segment_map 0 100M; alloc 0 100M");
  finish(&s);
}

/* Of the free blocks that fit, a later one is preferred while it could grow to less. */
static void prefers_what_cannot_grow(void **state) {
  (void)state;
  script s = {.options.capacity_bytes = 1000 * MIB};
  start(&s, "expandable_segments:True");
  uint64_t a = get(&s, 8 * MIB);
  get(&s, MIB + 512); /* 10..20 and what follows is free; it can grow */
  give(&s, a);
  uint64_t b = get(&s, 2 * MIB);
  /* 8 MiB in front cannot grow; the tail is larger. */
  assert_int_equal(b, a);
  give(&s, b);
  /* Make the tail the smaller: 20 - 9 = about 11 MiB; take 5 of it. */
  uint64_t c = get(&s, 9 * MIB), d;
  assert_int_equal(c, BASE + 9 * MIB + 512);
  d = get(&s, MIB + 512); /* fits the tail (2 MiB - 512) best by size, but that could grow */
  assert_int_equal(d, a);
  finish(&s);
}

/* With the mode turned off, blocks of expandable segments are skipped. */
static void mode_can_change(void **state) {
  (void)state;
  script s = {.options.capacity_bytes = 100 * MIB};
  start(&s, "expandable_segments:True");
  give(&s, get(&s, 5 * MIB));
  tsr_allocator_settings settings = s.options.settings;
  settings.expandable_segments = false;
  assert_int_equal(tsr_allocator_set_settings(s.a, &settings, NULL), 0);
  s.length = 0;
  uint64_t plain = get(&s, 5 * MIB);
  expect(&s, "segment_alloc 120M 20M; alloc 120M 5M");
  give(&s, plain);
  assert_int_equal(get(&s, 6 * MIB), plain); /* the expandable block of 20 MiB comes first */
  settings.tie_break = TSR_TIE_SEGMENT;
  assert_int_equal(tsr_allocator_set_settings(s.a, &settings, NULL), TSR_ERROR_ARGUMENT);
  settings.tie_break = TSR_TIE_ADDRESS;
  settings.garbage_collection_threshold = 1;
  assert_int_equal(tsr_allocator_set_settings(s.a, &settings, NULL), TSR_ERROR_ARGUMENT);
  finish(&s);
}

/* ---- private pools ---- */

static void pools_are_apart(void **state) {
  (void)state;
  script s = {.options.capacity_bytes = 64 * MIB};
  start(&s, "");
  tsr_pool graph = {1, 0}, mine = {0, 1};
  assert_int_equal(tsr_allocator_pool_begin(s.a, graph), 0);
  give(&s, get_from(&s, 512, graph));
  s.length = 0;
  get(&s, 512);
  expect(&s, "segment_alloc 2M 2M; alloc 2M 512");
  get_from(&s, 512, graph);
  expect(&s, "alloc 0 512");
  give(&s, BASE);
  give(&s, get_from(&s, 10 * MIB, graph));
  s.length = 0;
  assert_int_equal(tsr_allocator_empty_cache(s.a), 0); /* in use */
  expect(&s, "");
  assert_int_equal(tsr_allocator_pool_end(s.a, graph), 0);
  assert_int_equal(tsr_allocator_pool_end(s.a, graph), TSR_ERROR_ARGUMENT);
  assert_int_equal(tsr_allocator_pool_begin(s.a, no_pool), TSR_ERROR_ARGUMENT);
  assert_int_equal(tsr_allocator_pool_end(s.a, no_pool), TSR_ERROR_ARGUMENT);
  assert_int_equal(tsr_allocator_pool_flags(s.a, no_pool, 0), TSR_ERROR_ARGUMENT);
  assert_int_equal(tsr_allocator_empty_cache(s.a), 0); /* small before large here */
  expect(&s, "segment_free 0 2M; segment_free 4M 10M");
  give(&s, get_from(&s, 10 * MIB, mine));
  s.length = 0;
  assert_int_equal(tsr_allocator_empty_cache(s.a), 0); /* never begun: keeps its memory */
  expect(&s, "");
  finish(&s);
}

static void pools_have_flags(void **state) {
  (void)state;
  script s = {.options.capacity_bytes = 42 * MIB};
  start(&s, "");
  tsr_pool pool = {0, 3};
  assert_int_equal(tsr_allocator_pool_flags(s.a, pool, TSR_POOL_NO_SPLIT | TSR_POOL_USE_ON_OOM), 0);
  uint64_t a = get_from(&s, 5 * MIB, pool);
  assert_int_equal(tsr_allocator_now(s.a).active_bytes, 20 * MIB); /* whole */
  give(&s, a);
  get(&s, 20 * MIB);
  s.length = 0;
  assert_int_equal(get(&s, 6 * MIB), a); /* lent; before caches are emptied */
  expect(&s, "alloc 0 6M");
  assert_int_equal(tsr_allocator_now(s.a).active_bytes, 40 * MIB);
  starve(&s, 6 * MIB);
  expect(&s, "oom 2M 6M");
  finish(&s);
}

/* ---- owners, totals ---- */

static void note_owner(void *context, const tsr_allocator_event *event) {
  uint32_t *seen = context;
  seen[event->action] = event->owner * 100 + event->cause;
}

static void owners(void **state) {
  (void)state;
  uint32_t seen[TSR_ACTION_KNOWN_COUNT] = {0};
  tsr_allocator_options options = {.sink = note_owner, .sink_context = seen};
  tsr_allocator *a;
  assert_int_equal(tsr_allocator_new(&options, &a, NULL), 0);
  uint64_t address;
  tsr_allocator_set_owner(a, 1);
  assert_int_equal(tsr_allocator_malloc(a, 512, 0, no_pool, &address), 0);
  tsr_allocator_set_owner(a, 2);
  assert_int_equal(tsr_allocator_free(a, address), 0);
  tsr_allocator_set_owner(a, 3);
  assert_int_equal(tsr_allocator_empty_cache(a), 0);
  assert_int_equal(seen[TSR_ACTION_SEGMENT_ALLOC], 101);
  assert_int_equal(seen[TSR_ACTION_ALLOC], 101);
  assert_int_equal(seen[TSR_ACTION_FREE_REQUESTED], 102);
  assert_int_equal(seen[TSR_ACTION_FREE_COMPLETED], 102);
  assert_int_equal(seen[TSR_ACTION_SEGMENT_FREE], 103);
  tsr_allocator_destroy(a);
  tsr_allocator_destroy(NULL);
}

/* ---- seeds ---- */

typedef struct listing {
  char text[2048];
  size_t length;
} listing;

static void list_segment(void *context, const tsr_allocator_segment *segment) {
  listing *l = context;
  l->length += (size_t)snprintf(
      l->text + l->length, sizeof l->text - l->length, "[%" PRIu64 " %" PRIu64 " a%" PRIu64 "]",
      (segment->address - BASE) / MIB, segment->total_bytes / MIB, segment->active_bytes / MIB);
}

static void list_block(void *context, const tsr_allocator_block *block) {
  listing *l = context;
  l->length += (size_t)snprintf(l->text + l->length, sizeof l->text - l->length, " %" PRIu64 "%c",
                                block->size_bytes / MIB, ".AP?"[block->state]);
}

static void expect_state(script *s, const char *text) {
  listing l = {.length = 0};
  tsr_allocator_visitor visitor = {list_segment, list_block, &l};
  assert_int_equal(tsr_allocator_visit(s->a, &visitor, NULL), 0);
  assert_string_equal(l.text, text);
  assert_null(tsr__heap_check(&s->a->heap));
}

static int seed(script *s, uint64_t address, uint64_t size_bytes, bool is_expandable) {
  tsr_allocator_segment segment = {.address = BASE + address,
                                   .total_bytes = size_bytes,
                                   .owner = TSR_NONE,
                                   .is_large = true,
                                   .is_expandable = is_expandable};
  return tsr_allocator_seed_segment(s->a, &segment, NULL);
}

static int seed_block(script *s, uint64_t address, uint64_t size_bytes, tsr_block_state use) {
  tsr_allocator_block block = {.address = BASE + address,
                               .size_bytes = size_bytes,
                               .requested_bytes = size_bytes - 100,
                               .owner = 5,
                               .state = (uint8_t)use};
  return tsr_allocator_seed_block(s->a, &block, NULL);
}

static void starts_from_a_state(void **state) {
  (void)state;
  script s = {.options.capacity_bytes = 200 * MIB};
  start(&s, "");
  assert_int_equal(seed_block(&s, 0, MIB, TSR_BLOCK_ALLOCATED), TSR_ERROR_ARGUMENT);
  assert_int_equal(seed(&s, 0, 20 * MIB, false), 0);
  assert_int_equal(seed_block(&s, 2 * MIB, 3 * MIB, TSR_BLOCK_ALLOCATED), 0);
  assert_int_equal(seed_block(&s, 4 * MIB, 3 * MIB, TSR_BLOCK_ALLOCATED), TSR_ERROR_ARGUMENT);
  assert_int_equal(seed_block(&s, 5 * MIB, 2 * MIB, TSR_BLOCK_PENDING_FREE), 0);
  assert_int_equal(seed_block(&s, 7 * MIB, 5 * MIB, TSR_BLOCK_INACTIVE), 0);
  assert_int_equal(seed_block(&s, 12 * MIB, 9 * MIB, TSR_BLOCK_ALLOCATED), TSR_ERROR_ARGUMENT);
  assert_int_equal(seed_block(&s, 12 * MIB, 8 * MIB, TSR_BLOCK_ALLOCATED), 0);
  assert_int_equal(seed_block(&s, 7 * MIB, 5 * MIB, TSR_BLOCK_UNKNOWN), TSR_ERROR_ARGUMENT);
  assert_int_equal(seed(&s, 10 * MIB, 20 * MIB, false), TSR_ERROR_ARGUMENT);
  assert_int_equal(seed(&s, 30 * MIB, 0, false), TSR_ERROR_ARGUMENT);
  assert_int_equal(seed(&s, 30 * MIB, 10 * MIB, false), 0);
  expect_state(&s, "[0 20 a13] 2. 3A 2P 5. 8A[30 10 a0] 10.");
  tsr_allocator_totals now = tsr_allocator_now(s.a);
  assert_int_equal(now.reserved_bytes, 30 * MIB);
  assert_int_equal(now.active_bytes, 13 * MIB);
  assert_int_equal(now.allocated_bytes, 11 * MIB);
  assert_int_equal(now.requested_bytes, 13 * MIB - 300);
  expect(&s, "");
  get(&s, 4 * MIB);
  expect(&s, "alloc 7M 4M");
  assert_int_equal(seed(&s, 80 * MIB, 10 * MIB, false), TSR_ERROR_ARGUMENT); /* too late */
  assert_int_equal(seed_block(&s, 31 * MIB, MIB, TSR_BLOCK_ALLOCATED), TSR_ERROR_ARGUMENT);
  assert_int_equal(tsr_allocator_complete_block(s.a, BASE + 5 * MIB), 0);
  get(&s, 30 * MIB); /* around the seeds */
  expect(&s, "free_completed 5M 2097052; segment_alloc 40M 30M; alloc 40M 30M");
  finish(&s);
}

/* Runs of an expandable segment are one reservation again, and go on growing. */
static void starts_from_expandable(void **state) {
  (void)state;
  script s = {.options.capacity_bytes = 300 * MIB}; /* 340 MiB of addresses */
  start(&s, "expandable_segments:True");
  assert_int_equal(seed(&s, 0, 40 * MIB, true), 0);
  assert_int_equal(seed_block(&s, 0, 30 * MIB, TSR_BLOCK_ALLOCATED), 0);
  assert_int_equal(seed(&s, 80 * MIB, 20 * MIB, true), 0);
  assert_int_equal(seed_block(&s, 80 * MIB, 20 * MIB, TSR_BLOCK_ALLOCATED), 0);
  assert_int_equal(seed(&s, 210 * MIB, 10 * MIB, false), 0); /* in the way */
  expect_state(&s, "[0 40 a30] 30A 10.[80 20 a20] 20A[210 10 a0] 10.");
  get(&s, 45 * MIB); /* 10 free and 40 unmapped MiB */
  expect(&s, "segment_map 40M 40M; alloc 30M 45M");
  get(&s, 110 * MIB); /* 100..200: not wide enough, so elsewhere */
  expect(&s, "segment_map 220M 120M; alloc 220M 110M");
  get(&s, 20 * MIB); /* the lowest place: after the first reservation's end */
  expect(&s, "segment_map 100M 20M; alloc 100M 20M");
  expect_state(&s, "[0 120 a115] 30A 45A 5. 20A 20A[210 10 a0] 10.[220 120 a110] 110A 10.");
  finish(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rounds_and_picks_segments),
      cmocka_unit_test(splits_by_pool),
      cmocka_unit_test(rounds_up_to_divisions),
      cmocka_unit_test(large_segments_have_another_size),
      cmocka_unit_test(joins_neighbours),
      cmocka_unit_test(ties),
      cmocka_unit_test(places_that_are_taken_are_not_used),
      cmocka_unit_test(streams_do_not_share),
      cmocka_unit_test(waits_for_streams),
      cmocka_unit_test(order_of_streams),
      cmocka_unit_test(captures_defer),
      cmocka_unit_test(empties_in_order),
      cmocka_unit_test(runs_out),
      cmocka_unit_test(keeps_to_the_limit),
      cmocka_unit_test(collects_garbage),
      cmocka_unit_test(keeps_oversize_whole),
      cmocka_unit_test(releases_oversize),
      cmocka_unit_test(grows_in_place),
      cmocka_unit_test(maps_step_by_step),
      cmocka_unit_test(keeps_what_was_mapped),
      cmocka_unit_test(reserves_less),
      cmocka_unit_test(prefers_what_cannot_grow),
      cmocka_unit_test(mode_can_change),
      cmocka_unit_test(pools_are_apart),
      cmocka_unit_test(pools_have_flags),
      cmocka_unit_test(owners),
      cmocka_unit_test(starts_from_a_state),
      cmocka_unit_test(starts_from_expandable),
  };
  return cmocka_run_group_tests_name("allocator", tests, NULL, NULL);
}
