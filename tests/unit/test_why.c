/* Tests of answers/why.c, on traces that the allocator model made (model_trace.h): it ran out of
 * memory for a known reason, in a known state. */
#include "tessera/unstable/why.h"

#include <string.h>

#include "allocator/allocator.h"
#include "base/buffer.h"
#include "model_trace.h"
#include "study_support.h"
#include "tessera/unstable/allocator_state.h"

#define MIB          MODEL_MIB
#define DEFAULT_POOL ((tsr_pool){0, 0})

typedef struct asked {
  tsr_snapshot *snapshot;
  tsr_why *why;
  const tsr_why_device *device;
} asked;

static asked ask_how(const model_trace *m, const tsr_why_options *how) {
  asked a = {.snapshot = model_snapshot(m, 1, NULL)};
  assert_int_equal(tsr_why_compute(test_study(a.snapshot), how, NULL, &a.why, NULL), 0);
  assert_int_equal(a.why->device_count, 1);
  a.device = a.why->devices;
  return a;
}

static void end(asked *a) {
  tsr_why_free(a->why);
  tsr_snapshot_free(a->snapshot);
}

static const tsr_why_trial *recorded_trial(const tsr_why_device *d) {
  for (size_t i = 0; i < d->trial_count; i++)
    if (d->trials[i].is_recorded) return &d->trials[i];
  fail_msg("the recorded settings are not among the trials");
  return NULL;
}

/* What must hold of any answer: nothing is counted twice or forgotten. */
static void check_sums(const tsr_why_device *d) {
  uint64_t kinds = 0, causes = 0, kind_blocks = 0, cause_blocks = 0, free = 0;
  for (size_t i = 0; i < d->category_count; i++) {
    kinds += d->categories[i].bytes;
    kind_blocks += d->categories[i].block_bytes;
  }
  for (size_t i = 0; i < d->cause_count; i++) {
    causes += d->causes[i].bytes;
    cause_blocks += d->causes[i].block_bytes;
  }
  for (size_t i = 0; i < TSR_WHY_CACHE_COUNT; i++) {
    free += d->free[i].bytes;
    assert_true(d->free[i].largest_bytes <= d->free[i].bytes);
    assert_true(d->free[i].segment_bytes <= d->free[i].bytes);
  }
  assert_int_equal(kinds, d->moment.totals.requested_bytes);
  assert_int_equal(causes, d->moment.totals.requested_bytes);
  assert_int_equal(kind_blocks, d->moment.totals.active_bytes);
  assert_int_equal(cause_blocks, d->moment.totals.active_bytes);
  assert_int_equal(d->lost_bytes, d->fragmentation.rounding_bytes + d->fragmentation.unsplit_bytes);
  assert_int_equal(free, d->fragmentation.free_block_bytes + d->fragmentation.free_segment_bytes);
  assert_int_equal(free + d->moment.totals.active_bytes, d->moment.totals.reserved_bytes);
}

/* The model agrees with itself: the recorded settings fail where they failed. */
static asked explain(const model_trace *m, tsr_why_reason reason) {
  asked a = ask_how(m, NULL);
  assert_string_equal(tsr_why_reason_name(a.device->reason), tsr_why_reason_name(reason));
  check_sums(a.device);
  if (a.device->is_beyond_settings) return a;
  assert_int_equal(recorded_trial(a.device)->failed_event, a.device->moment.event);
  assert_false(recorded_trial(a.device)->fits);
  return a;
}

static void fill(model_trace *m, uint32_t count, uint64_t bytes, uint64_t stream, tsr_pool pool) {
  for (uint32_t i = 0; i < count; i++)
    assert_int_not_equal(model_malloc(m, bytes, stream, pool), TSR_NONE);
}

static void fails(model_trace *m, uint64_t bytes, uint64_t stream, tsr_pool pool) {
  assert_int_equal(model_malloc(m, bytes, stream, pool), TSR_NONE);
}

/* ---- reasons ---- */

static void in_pieces(void **state) {
  (void)state;
  model_trace m;
  model_start(&m, &(model_program){.capacity_bytes = 104 * MIB});
  fill(&m, 25, 4 * MIB, 0, DEFAULT_POOL);
  for (uint32_t i = 0; i < 25; i += 2) model_free(&m, i, 0);
  fails(&m, 30 * MIB, 0, DEFAULT_POOL);
  asked a = explain(&m, TSR_WHY_FRAGMENTED);
  const tsr_why_device *d = a.device;
  assert_int_equal(d->request_bytes, 30 * MIB);
  assert_int_equal(d->needed_bytes, 30 * MIB);
  assert_int_equal(d->device_free_bytes, 4 * MIB);
  assert_int_equal(d->missing_bytes, 26 * MIB);
  assert_int_equal(d->free[TSR_WHY_CACHE_OWN].bytes, 52 * MIB);
  assert_int_equal(d->free[TSR_WHY_CACHE_OWN].blocks, 13);
  assert_int_equal(d->free[TSR_WHY_CACHE_OWN].largest_bytes, 4 * MIB);
  assert_int_equal(d->free[TSR_WHY_CACHE_OWN].segment_bytes, 0);
  assert_false(d->is_beyond_settings);
  assert_int_equal(recorded_trial(d)->missing_bytes, 26 * MIB);
  assert_int_equal(d->trial_capacity_bytes, 104 * MIB);
  end(&a);
  model_release(&m);
}

static void in_use(void **state) {
  (void)state;
  model_trace m;
  model_start(&m, &(model_program){.capacity_bytes = 105 * MIB});
  fill(&m, 5, 20 * MIB, 0, DEFAULT_POOL);
  fails(&m, 39 * MIB, 0, DEFAULT_POOL);
  asked a = explain(&m, TSR_WHY_IN_USE);
  assert_int_equal(a.device->needed_bytes, 40 * MIB);
  assert_int_equal(a.device->missing_bytes, 35 * MIB);
  assert_int_equal(a.device->moment.totals.active_bytes, 100 * MIB);
  assert_true(a.device->is_beyond_settings);
  assert_int_equal(a.device->asked_bytes, 100 * MIB);
  assert_int_equal(a.device->trial_count, 0);
  end(&a);
  /* What is asked to be tried is. */
  tsr_allocator_settings settings = {.expandable_segments = true};
  a = ask_how(&m, &(tsr_why_options){.event = -1, .settings = &settings, .setting_count = 1});
  assert_int_equal(a.device->trial_count, 2);
  assert_false(a.device->trials[0].fits);
  end(&a);
  /* On a card of which more is gone than its driver and contexts take (1 GiB and a sixteenth), by as much
   * as is missing. */
  tsr_why_options how = {.event = -1, .capacity_bytes = 1242 * MIB};
  a = ask_how(&m, &how);
  assert_int_equal(a.device->outside_bytes, (1242 - 105) * MIB);
  assert_int_equal(a.device->reason, TSR_WHY_OUTSIDE);
  end(&a);
  how.capacity_bytes -= MIB;
  a = ask_how(&m, &how);
  assert_int_equal(a.device->reason, TSR_WHY_IN_USE);
  end(&a);
  model_release(&m);
}

/* 16 MiB free in a segment that something else may use. */
static void check_elsewhere(uint64_t stream, tsr_pool pool, tsr_why_cache cache) {
  model_trace m;
  model_start(&m, &(model_program){.capacity_bytes = 40 * MIB});
  fill(&m, 5, 4 * MIB, stream, pool);
  for (uint32_t i = 1; i < 5; i++) model_free(&m, i, 0);
  fill(&m, 1, 20 * MIB, 0, DEFAULT_POOL);
  fails(&m, 12 * MIB, 0, DEFAULT_POOL);
  asked a = explain(&m, TSR_WHY_CACHED_ELSEWHERE);
  for (int i = 0; i < TSR_WHY_CACHE_COUNT; i++)
    assert_int_equal(a.device->free[i].bytes, i == (int)cache ? 16 * MIB : 0);
  end(&a);
  model_release(&m);
}

static void elsewhere(void **state) {
  (void)state;
  check_elsewhere(7, DEFAULT_POOL, TSR_WHY_CACHE_OTHER_STREAM);
  check_elsewhere(0, (tsr_pool){3, 0}, TSR_WHY_CACHE_OTHER_POOL);
  check_elsewhere(7, (tsr_pool){3, 0}, TSR_WHY_CACHE_OTHER_POOL);
  /* The small pool's, one of four blocks of each segment left in use. */
  model_trace m;
  model_start(&m, &(model_program){.capacity_bytes = 20 * MIB});
  fill(&m, 40, MIB / 2, 0, DEFAULT_POOL);
  for (uint32_t i = 0; i < 40; i++)
    if (i % 4) model_free(&m, i, 0);
  fails(&m, 12 * MIB, 0, DEFAULT_POOL);
  asked a = explain(&m, TSR_WHY_CACHED_ELSEWHERE);
  assert_int_equal(a.device->free[TSR_WHY_CACHE_OTHER_SIZE].bytes, 15 * MIB);
  end(&a);
  model_release(&m);
}

/* While a CUDA graph is captured, frees of what other streams used do not complete. */
static void pending(void **state) {
  (void)state;
  model_trace m;
  model_start(&m, &(model_program){.capacity_bytes = 40 * MIB});
  fill(&m, 2, 20 * MIB, 0, DEFAULT_POOL);
  tsr_allocator_capture_begin(m.allocator);
  model_free(&m, 1, 1 + 5);
  fails(&m, 20 * MIB, 0, DEFAULT_POOL);
  asked a = ask_how(&m, NULL);
  assert_int_equal(a.device->reason, TSR_WHY_PENDING);
  assert_int_equal(a.device->fragmentation.waiting_bytes, 20 * MIB);
  assert_int_equal(a.device->moment.totals.allocated_bytes, 20 * MIB);
  check_sums(a.device);
  end(&a);
  model_release(&m);
}

/* Segments of 12 MiB for requests of 11: expandable segments waste less. */
static void rounded(void **state) {
  (void)state;
  model_trace m;
  model_start(&m, &(model_program){.capacity_bytes = 100 * MIB});
  fill(&m, 8, 11 * MIB, 0, DEFAULT_POOL);
  fails(&m, 11 * MIB, 0, DEFAULT_POOL);
  asked a = explain(&m, TSR_WHY_ROUNDED);
  assert_int_equal(a.device->lost_bytes, 8 * MIB);
  const tsr_why_trial *best = &a.device->trials[0];
  assert_true(best->fits && best->settings.expandable_segments);
  assert_int_equal(best->failed_event, -1);
  assert_int_equal(best->reserved_bytes, 100 * MIB);
  assert_int_equal(best->reserved_peak_bytes, 100 * MIB);
  end(&a);
  model_release(&m);
}

static void limited(void **state) {
  (void)state;
  model_trace m;
  model_start(&m, &(model_program){.capacity_bytes = 100 * MIB, .memory_limit_bytes = 50 * MIB});
  fill(&m, 2, 20 * MIB, 0, DEFAULT_POOL);
  fails(&m, 20 * MIB, 0, DEFAULT_POOL);
  asked a = explain(&m, TSR_WHY_LIMIT);
  assert_int_equal(a.device->device_free_bytes, 60 * MIB);
  assert_int_equal(a.device->missing_bytes, 0);
  assert_int_equal(a.device->trial_capacity_bytes, 40 * MIB);
  end(&a);
  model_release(&m);
}

static void expandable(void **state) {
  (void)state;
  model_trace m;
  model_start(&m,
              &(model_program){.capacity_bytes = 110 * MIB, .conf = "expandable_segments:True"});
  fill(&m, 5, 15 * MIB, 0, DEFAULT_POOL);
  fails(&m, 50 * MIB, 0, DEFAULT_POOL);
  asked a = ask_how(&m, NULL);
  assert_true(a.device->is_expandable);
  assert_int_equal(a.device->reason, TSR_WHY_IN_USE);
  assert_int_equal(a.device->needed_bytes, 60 * MIB);
  check_sums(a.device);
  end(&a);
  model_release(&m);
}

/* ---- which of several ---- */

static void several(void **state) {
  (void)state;
  model_trace m;
  model_start(&m, &(model_program){.capacity_bytes = 60 * MIB});
  fill(&m, 2, 20 * MIB, 0, DEFAULT_POOL);
  fails(&m, 30 * MIB, 0, DEFAULT_POOL);
  model_free(&m, 0, 0);
  fill(&m, 1, 30 * MIB, 0, DEFAULT_POOL);
  fails(&m, 31 * MIB, 0, DEFAULT_POOL);
  fails(&m, 11 * MIB, 0, DEFAULT_POOL);
  asked a = ask_how(&m, NULL);
  const tsr_why_device *d = a.device;
  assert_int_equal(d->oom_count, 3);
  assert_true(d->ooms[0].is_recovered);
  assert_false(d->ooms[1].is_recovered);
  assert_false(d->ooms[2].is_recovered);
  assert_int_equal(d->chosen, 2);
  assert_int_equal(d->request_bytes, 11 * MIB);
  tsr_why_options how = {.event = d->ooms[0].event};
  tsr_why *first = NULL;
  assert_int_equal(tsr_why_compute(test_study(a.snapshot), &how, NULL, &first, NULL), 0);
  assert_int_equal(first->devices[0].chosen, 0);
  assert_int_equal(first->devices[0].request_bytes, 30 * MIB);
  tsr_why_free(first);
  tsr_error error = {0};
  how.event++;
  assert_int_equal(tsr_why_compute(test_study(a.snapshot), &how, NULL, &first, &error),
                   TSR_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "not an out-of-memory"));
  end(&a);
  model_release(&m);
}

/* What failed and was got over is explained where nothing else failed. */
static void recovered(void **state) {
  (void)state;
  model_trace m;
  model_start(&m, &(model_program){.capacity_bytes = 60 * MIB});
  fill(&m, 2, 20 * MIB, 0, DEFAULT_POOL);
  fails(&m, 30 * MIB, 0, DEFAULT_POOL);
  model_free(&m, 0, 0);
  fill(&m, 1, 30 * MIB, 0, DEFAULT_POOL);
  asked a = ask_how(&m, NULL);
  assert_int_equal(a.device->oom_count, 1);
  assert_true(a.device->ooms[0].is_recovered);
  assert_int_equal(a.device->request_bytes, 30 * MIB);
  end(&a);
  model_release(&m);
}

static void no_failure(void **state) {
  (void)state;
  model_trace m;
  model_start(&m, &(model_program){.conf = ""});
  fill(&m, 5, 4 * MIB, 0, DEFAULT_POOL);
  for (uint32_t i = 0; i < 4; i++) model_free(&m, i, 0);
  tsr_why_options how = {.event = -1, .capacity_bytes = 64 * MIB};
  asked a = ask_how(&m, &how);
  assert_int_equal(a.device->reason, TSR_WHY_NOT_RECORDED);
  assert_int_equal(a.device->oom_count, 0);
  assert_int_equal(a.device->trial_count, 0);
  assert_int_equal(a.device->moment.totals.reserved_bytes, 20 * MIB);
  assert_int_equal(a.device->moment.totals.active_bytes, 20 * MIB);
  assert_int_equal(a.device->peak_reserved_bytes, 20 * MIB);
  check_sums(a.device);
  end(&a);
  model_release(&m);
}

/* A card's nominal size is not what its driver hands out. */
static void nominal_size(void **state) {
  (void)state;
  const uint64_t gib = 1024 * MIB;
  model_trace m;
  model_start(&m, &(model_program){.capacity_bytes = 22 * gib + 600 * MIB});
  fill(&m, 22, gib, 0, DEFAULT_POOL);
  fails(&m, gib, 0, DEFAULT_POOL);
  tsr_why_options how = {.event = -1, .capacity_bytes = 24 * gib};
  asked a = ask_how(&m, &how);
  assert_int_equal(a.device->reason, TSR_WHY_IN_USE);
  assert_int_equal(a.device->outside_bytes, 24 * gib - 22 * gib - 600 * MIB);
  assert_int_equal(a.device->trial_capacity_bytes, 22 * gib + 600 * MIB);
  end(&a);
  how.capacity_bytes = 40 * gib;
  a = ask_how(&m, &how);
  assert_int_equal(a.device->reason, TSR_WHY_OUTSIDE);
  end(&a);
  model_release(&m);
}

/* The same requests again and again, of which some are kept: 14 MiB each time. Written by hand, because
 * the model's traces have a stack for each allocation. */
static void repetitions(void **state) {
  (void)state;
  enum { TIMES = 9, KEPT = 14 };
  const unsigned long long base = 0x7f0000000000, room = TIMES * KEPT + 3;
  tsr__buffer text = {0};
  tsr__buffer_printf(&text,
                     "{\"segments\": [{\"device\": 0, \"address\": %llu, \"total_size\": %llu, "
                     "\"segment_type\": \"large\", \"blocks\": [",
                     base, room << 20);
  for (unsigned i = 0; i < TIMES; i++)
    tsr__buffer_printf(&text,
                       "{\"address\": %llu, \"size\": %u, \"requested_size\": %u, \"state\": "
                       "\"active_allocated\"}, ",
                       base + ((uint64_t)i * KEPT << 20), KEPT << 20, KEPT << 20);
  tsr__buffer_printf(&text, "{\"size\": %u, \"state\": \"inactive\"}]}], \"device_traces\": [[",
                     3 << 20);
  for (unsigned i = 0; i < TIMES; i++) {
    unsigned long long kept = base + ((uint64_t)i * KEPT << 20), freed = kept + (KEPT << 20);
    tsr__buffer_printf(&text,
                       "{\"action\": \"alloc\", \"addr\": %llu, \"size\": %u, \"frames\": []}, "
                       "{\"action\": \"alloc\", \"addr\": %llu, \"size\": %u, \"frames\": []}, ",
                       kept, KEPT << 20, freed, 3 << 20);
    tsr__buffer_printf(&text,
                       "{\"action\": \"free_requested\", \"addr\": %llu, \"size\": %u}, "
                       "{\"action\": \"free_completed\", \"addr\": %llu, \"size\": %u}, ",
                       freed, 3 << 20, freed, 3 << 20);
  }
  tsr__buffer_printf(&text,
                     "{\"action\": \"oom\", \"device_free\": 0, \"size\": %u, \"frames\": []}]]}",
                     KEPT << 20);
  assert_false(text.failed);
  tsr_snapshot *snapshot = NULL;
  tsr_why *why = NULL;
  assert_int_equal(tsr_snapshot_read(text.data, text.size, NULL, &snapshot, NULL), 0);
  assert_int_equal(tsr_why_compute(test_study(snapshot), NULL, NULL, &why, NULL), 0);
  const tsr_why_device *d = why->devices;
  const tsr_why_outlook *outlook = &d->outlook;
  assert_int_equal(outlook->basis, TSR_WHY_BASIS_NONE); /* how many follow is not known */
  assert_int_equal(outlook->phase, TSR_PHASE_UNKNOWN);
  assert_int_equal(outlook->blocks_begun, TIMES + 1);
  assert_int_equal(outlook->block_count, 0);
  assert_int_equal(outlook->block_bytes, KEPT * MIB);
  assert_int_equal(outlook->like_event, 4 * (TIMES - 1));
  for (size_t i = 0; i < d->advice_count; i++) assert_false(d->advice[i].is_enough);
  tsr_why_free(why);
  tsr_snapshot_free(snapshot);
  tsr__buffer_release(&text);
}

/* A segment at address 0 cannot be: the model goes without it, and that is no error. */
static void broken_segment(void **state) {
  (void)state;
  static const char text[] =
      "{\"segments\": [{\"device\": 0, \"total_size\": 20971520, \"segment_type\": \"large\", "
      "\"is_expandable\": true, \"segment_pool_id\": [1, 2], \"blocks\": [{\"size\": 20971520, "
      "\"state\": \"inactive\"}]}], \"device_traces\": [[{\"action\": \"oom\", \"device_free\": "
      "20971520, \"size\": 25165824, \"frames\": []}]]}";
  tsr_snapshot *snapshot = NULL;
  tsr_why *why = NULL;
  tsr_error error = {0};
  assert_int_equal(tsr_snapshot_read(text, sizeof text - 1, NULL, &snapshot, NULL), 0);
  assert_int_equal(tsr_why_compute(test_study(snapshot), NULL, NULL, &why, &error), 0);
  assert_int_equal(error.status, 0);
  assert_true(why->devices[0].trial_count > 0);
  tsr_why_free(why);
  tsr_snapshot_free(snapshot);
}

/* ---- random programs ---- */

static void check_random(const model_program *program) {
  model_trace m;
  model_random(&m, program);
  tsr_snapshot *snapshot = model_snapshot(&m, 1, NULL);
  size_t seen = 0;
  for (size_t i = 0; i < m.events.count && seen < 5; i++) {
    if (m.events.items[i].event.action != TSR_ACTION_OOM) continue;
    seen++;
    tsr_why_options how = {.event = (int64_t)i, .settings = &m.settings, .setting_count = 1};
    tsr_why *why = NULL;
    assert_int_equal(tsr_why_compute(test_study(snapshot), &how, NULL, &why, NULL), 0);
    const tsr_why_device *d = why->devices;
    assert_int_equal(d->moment.event, i);
    check_sums(d);
    assert_int_equal(d->moment.totals.reserved_bytes + d->device_free_bytes,
                     program->capacity_bytes);
    /* The first failure is the model's own first; later ones came after what it would have kept. */
    assert_int_equal(d->trial_count, 1);
    if (seen == 1) assert_int_equal(d->trials[0].failed_event, i);
    if (d->is_beyond_settings) assert_false(d->trials[0].fits);
    assert_true(d->free[TSR_WHY_CACHE_OWN].largest_bytes < d->request_bytes);
    tsr_why_free(why);
  }
  assert_true(seen > 0);
  tsr_snapshot_free(snapshot);
  model_release(&m);
}

static void random_programs(void **state) {
  (void)state;
  for (uint32_t seed = 1; seed <= 4; seed++) {
    check_random(&(model_program){
        .operations = 1500, .seed = seed, .capacity_bytes = 240 * MIB, .conf = ""});
    check_random(&(model_program){.operations = 1500,
                                  .seed = seed,
                                  .capacity_bytes = 240 * MIB,
                                  .conf = "",
                                  .streams = 2,
                                  .pools = 1});
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(in_pieces),      cmocka_unit_test(in_use),
      cmocka_unit_test(elsewhere),      cmocka_unit_test(pending),
      cmocka_unit_test(rounded),        cmocka_unit_test(limited),
      cmocka_unit_test(expandable),     cmocka_unit_test(several),
      cmocka_unit_test(recovered),      cmocka_unit_test(no_failure),
      cmocka_unit_test(broken_segment), cmocka_unit_test(random_programs),
      cmocka_unit_test(nominal_size),   cmocka_unit_test(repetitions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
