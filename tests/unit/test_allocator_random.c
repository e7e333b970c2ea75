/* Random requests to allocator/, under many settings: at regular intervals, that the heap is sound,
 * that totals, events and blocks agree, and that the fast best fit is the one a walk over all
 * blocks would find. The seed is fixed: a failure is reproducible. */
#include <string.h>

#include "allocator/allocator.h"
#include "tessera/unstable/allocator_state.h"
#include "test_support.h"

#define MIB  (UINT64_C(1) << 20)
#define LIVE 3000

#if defined(__SANITIZE_ADDRESS__)
#define OPERATIONS 150000
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OPERATIONS 150000
#endif
#endif
#ifndef OPERATIONS
#define OPERATIONS 400000
#endif

typedef struct trial {
  tsr_allocator *a;
  uint64_t random;
  tsr_allocator_totals seen; /* from events; requested and reserved only */
  bool has_expandable;       /* there may be expandable segments */
  uint64_t live[LIVE];
  size_t live_count;
  uint64_t waiting[LIVE];
  size_t waiting_count;
  uint64_t oom_count;
  uint64_t visited_end; /* of the last visited block */
  tsr_allocator_totals visited;
} trial;

static const tsr_pool pools[] = {{0, 0}, {0, 0}, {0, 0}, {1, 0}, {0, 2}};

static uint64_t random_below(trial *t, uint64_t bound) {
  t->random ^= t->random << 13;
  t->random ^= t->random >> 7;
  t->random ^= t->random << 17;
  return (t->random >> 11) % bound;
}

/* Small ones mostly, as in life; now and then a huge one. */
static uint64_t random_size(trial *t) {
  switch (random_below(t, 16)) {
  case 0: return 1 + random_below(t, 200 * MIB);
  case 1: return (1 + random_below(t, 40)) * MIB;
  case 2:
  case 3: return 1 + random_below(t, 12 * MIB);
  case 4:
  case 5: return MIB / 2 + random_below(t, MIB);
  default: return 1 + random_below(t, 64 * 1024);
  }
}

static void see(void *context, const tsr_allocator_event *event) {
  trial *t = context;
  switch (event->action) {
  case TSR_ACTION_ALLOC: t->seen.requested_bytes += event->size; break;
  case TSR_ACTION_FREE_COMPLETED: t->seen.requested_bytes -= event->size; break;
  case TSR_ACTION_SEGMENT_ALLOC:
  case TSR_ACTION_SEGMENT_MAP: t->seen.reserved_bytes += event->size; break;
  case TSR_ACTION_SEGMENT_FREE:
  case TSR_ACTION_SEGMENT_UNMAP: t->seen.reserved_bytes -= event->size; break;
  case TSR_ACTION_OOM: t->oom_count++; break;
  default: assert_int_equal(event->action, TSR_ACTION_FREE_REQUESTED);
  }
}

/* ---- checks ---- */

static void visit_segment(void *context, const tsr_allocator_segment *segment) {
  trial *t = context;
  assert_true(segment->address >= t->visited_end); /* by address, without overlap */
  t->visited_end = segment->address;
  t->visited.requested_bytes += segment->requested_bytes;
  t->visited.allocated_bytes += segment->allocated_bytes;
  t->visited.active_bytes += segment->active_bytes;
  t->visited.reserved_bytes += segment->total_bytes;
}

static void visit_block(void *context, const tsr_allocator_block *block) {
  trial *t = context;
  assert_int_equal(block->address, t->visited_end);
  assert_true(block->size_bytes > 0 && block->requested_bytes <= block->size_bytes);
  t->visited_end += block->size_bytes;
}

static void check(trial *t) {
  const char *wrong = tsr__heap_check(&t->a->heap);
  if (wrong) fail_msg("%s", wrong);
  tsr_allocator_visitor visitor = {visit_segment, visit_block, t};
  t->visited_end = 0;
  memset(&t->visited, 0, sizeof t->visited);
  assert_int_equal(tsr_allocator_visit(t->a, &visitor, NULL), 0);
  tsr_allocator_totals now = tsr_allocator_now(t->a), peak = tsr_allocator_peak(t->a);
  assert_memory_equal(&now, &t->visited, sizeof now);
  assert_int_equal(now.requested_bytes, t->seen.requested_bytes);
  assert_int_equal(now.reserved_bytes, t->seen.reserved_bytes);
  assert_true(peak.active_bytes >= now.active_bytes && peak.reserved_bytes >= now.reserved_bytes);
  uint64_t capacity = t->a->options.capacity_bytes;
  assert_true(!capacity || peak.reserved_bytes <= capacity);
  for (size_t i = 0; i < t->live_count; i++) {
    uint32_t block = tsr__heap_find(&t->a->heap, t->live[i]);
    assert_int_equal(t->a->heap.blocks.items[block].use, TSR__BLOCK_TAKEN);
  }
}

/* Does free block x come before y for PyTorch? */
static bool is_better(const tsr__heap *heap, uint32_t x, uint32_t y) {
  const tsr__heap_block *a = &heap->blocks.items[x], *b = &heap->blocks.items[y];
  uint64_t s = heap->segments.items[a->segment].order, t = heap->segments.items[b->segment].order;
  if (a->size_bytes != b->size_bytes) return a->size_bytes < b->size_bytes;
  if (heap->settings.tie_break == TSR_TIE_SEGMENT && s != t) return s < t;
  return a->address < b->address;
}

/* The first fit of plain segments by a walk over all blocks. */
static void check_fit(trial *t, uint64_t rounded, bool is_large) {
  tsr__heap *heap = &t->a->heap;
  uint32_t best = TSR_NONE;
  for (uint32_t s = 0; s < heap->segments.count; s++) {
    const tsr__heap_segment *segment = &heap->segments.items[s];
    if (segment->is_gone || segment->stream || segment->pool || segment->is_large != is_large)
      continue;
    for (uint32_t b = segment->first; b != TSR_NONE; b = heap->blocks.items[b].next) {
      const tsr__heap_block *block = &heap->blocks.items[b];
      if (block->use == TSR__BLOCK_FREE && block->size_bytes >= rounded &&
          (best == TSR_NONE || is_better(heap, b, best)))
        best = b;
    }
  }
  if (best != TSR_NONE &&
      !tsr__may_serve(&heap->settings, heap->blocks.items[best].size_bytes, rounded))
    best = TSR_NONE;
  assert_int_equal(tsr__heap_best_fit(heap, 0, is_large, 0, rounded), best);
}

/* ---- operations ---- */

static void take(trial *t) {
  uint64_t size = random_size(t), address;
  uint64_t rounded = tsr__round_request(&t->a->heap.settings, size);
  if (!t->has_expandable && !random_below(t, 64)) check_fit(t, rounded, tsr__is_large(rounded));
  uint64_t oom_count = t->oom_count;
  int status = tsr_allocator_malloc(t->a, size, random_below(t, 4) ? 0 : random_below(t, 4),
                                    pools[random_below(t, 5)], &address);
  assert_true(status == TSR_OK || status == TSR_ALLOCATOR_OUT_OF_DEVICE);
  assert_int_equal(t->oom_count, oom_count + (status != TSR_OK));
  if (status == TSR_OK) t->live[t->live_count++] = address;
}

static void give(trial *t) {
  size_t i = random_below(t, t->live_count);
  uint64_t address = t->live[i];
  t->live[i] = t->live[--t->live_count];
  if (!random_below(t, 8) && t->waiting_count < LIVE) {
    uint64_t stream = random_below(t, 5);
    if (stream == 4) stream = TSR_STREAM_UNKNOWN;
    assert_int_equal(tsr_allocator_record_stream(t->a, address, stream), 0);
    assert_int_equal(tsr_allocator_record_stream(t->a, address, random_below(t, 4)), 0);
    t->waiting[t->waiting_count++] = address;
  }
  assert_int_equal(tsr_allocator_free(t->a, address), 0);
  assert_int_equal(tsr_allocator_free(t->a, address), TSR_ERROR_ARGUMENT);
}

static void complete(trial *t) {
  if (random_below(t, 2) || !t->waiting_count) {
    tsr_allocator_complete_stream(t->a, random_below(t, 5));
    return;
  }
  size_t i = random_below(t, t->waiting_count);
  (void)tsr_allocator_complete_block(t->a, t->waiting[i]); /* may have gone, or be another's */
  t->waiting[i] = t->waiting[--t->waiting_count];
}

static void rarely(trial *t, const tsr_allocator_settings *settings) {
  tsr_allocator_settings other = *settings;
  switch (random_below(t, 8)) {
  case 0: assert_int_equal(tsr_allocator_empty_cache(t->a), 0); break;
  case 1: tsr_allocator_capture_begin(t->a); break;
  case 2:
  case 3: tsr_allocator_capture_end(t->a); break;
  case 4: assert_int_equal(tsr_allocator_pool_begin(t->a, pools[3]), 0); break;
  case 5: (void)tsr_allocator_pool_end(t->a, pools[3]); break;
  case 6:
    tsr_allocator_set_memory_limit(t->a,
                                   random_below(t, 2) ? 0 : (1 + random_below(t, 4096)) * MIB);
    break;
  default:
    if (settings->expandable_segments) other.expandable_segments = random_below(t, 4) > 0;
    assert_int_equal(tsr_allocator_set_settings(t->a, &other, NULL), 0);
  }
}

static void run(const char *conf, tsr_tie_break tie_break, uint64_t capacity_bytes) {
  static trial t;
  memset(&t, 0, sizeof t);
  t.random = 88172645463325252u;
  tsr_allocator_options options = {
      .capacity_bytes = capacity_bytes, .sink = see, .sink_context = &t};
  assert_int_equal(tsr_allocator_settings_parse(conf, &options.settings, NULL), 0);
  options.settings.tie_break = tie_break;
  t.has_expandable = options.settings.expandable_segments;
  assert_int_equal(tsr_allocator_new(&options, &t.a, NULL), 0);
  assert_int_equal(tsr_allocator_pool_flags(t.a, pools[4], TSR_POOL_USE_ON_OOM), 0);
  uint64_t target = LIVE / 2;
  for (uint64_t i = 0; i < OPERATIONS; i++) {
    if (!random_below(&t, 2000)) target = random_below(&t, LIVE); /* grow and shrink */
    if (!random_below(&t, 300)) rarely(&t, &options.settings);
    if (!random_below(&t, 20)) complete(&t);
    if (t.live_count < target + random_below(&t, 10) && t.live_count < LIVE)
      take(&t);
    else if (t.live_count)
      give(&t);
    if (i % 1024 == 0) check(&t);
  }
  while (t.live_count) give(&t);
  while (t.a->capture_count) tsr_allocator_capture_end(t.a);
  assert_int_equal(tsr_allocator_empty_cache(t.a), 0);
  check(&t);
  assert_int_equal(tsr_allocator_now(t.a).active_bytes, 0);
  assert_int_equal(tsr_allocator_now(t.a).allocated_bytes, 0);
  tsr_allocator_destroy(t.a);
}

static void plain(void **state) {
  (void)state;
  run("", TSR_TIE_ADDRESS, 0);
  run("", TSR_TIE_SEGMENT, 8192 * MIB);
}

static void starved(void **state) {
  (void)state;
  run("", TSR_TIE_ADDRESS, 512 * MIB);
  run("garbage_collection_threshold:0.6", TSR_TIE_ADDRESS, 1024 * MIB);
}

static void rounded(void **state) {
  (void)state;
  run("roundup_power2_divisions:[1:4,16:2,>:8],large_segment_size_mb:12", TSR_TIE_SEGMENT, 0);
}

static void oversize(void **state) {
  (void)state;
  run("max_split_size_mb:20", TSR_TIE_ADDRESS, 2048 * MIB);
  run("max_split_size_mb:64,max_non_split_rounding_mb:40,large_segment_size_mb:128,"
      "garbage_collection_threshold:0.3",
      TSR_TIE_SEGMENT, 4096 * MIB);
}

static void expandable(void **state) {
  (void)state;
  run("expandable_segments:True", TSR_TIE_ADDRESS, 0);
  run("expandable_segments:True", TSR_TIE_SEGMENT, 1500 * MIB);
  run("expandable_segments:True,large_segment_size_mb:12,max_split_size_mb:40", TSR_TIE_ADDRESS,
      600 * MIB);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plain),    cmocka_unit_test(starved),    cmocka_unit_test(rounded),
      cmocka_unit_test(oversize), cmocka_unit_test(expandable),
  };
  return cmocka_run_group_tests_name("allocator random", tests, NULL, NULL);
}
