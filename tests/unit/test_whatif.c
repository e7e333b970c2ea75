/* Tests of answers/whatif.c, on traces that the allocator model made (model_trace.h): the recorded
 * settings must give the recorded segments back, and other settings, or another card, what the
 * model does when it is asked the same under them. */
#include "tessera/unstable/whatif.h"

#include "allocator/allocator.h"
#include "model_trace.h"
#include "study_support.h"
#include "tessera/unstable/allocator_state.h"

/* ---- the recorded settings ---- */

static const tsr_whatif_run *recorded_run(const tsr_whatif *whatif) {
  for (size_t i = 0; i < whatif->devices[0].run_count; i++)
    if (whatif->devices[0].runs[i].is_recorded) return &whatif->devices[0].runs[i];
  fail_msg("the recorded settings are not among the runs");
  return NULL;
}

static tsr_whatif *ask(const model_trace *m, const tsr_allocator_settings *settings,
                       uint64_t capacity_bytes) {
  tsr_snapshot *snapshot = model_snapshot(m, 1, NULL);
  tsr_whatif_options how = {
      .settings = settings, .setting_count = 1, .capacity_bytes = capacity_bytes};
  tsr_whatif *whatif = NULL;
  assert_int_equal(tsr_whatif_compute(test_study(snapshot), &how, NULL, &whatif, NULL), 0);
  assert_int_equal(whatif->device_count, 1);
  assert_int_equal(whatif->devices[0].warning_count, 0);
  tsr_snapshot_free(snapshot); /* stacks are named by its ids; nothing here asks for them */
  return whatif;
}

static uint64_t failures(const model_trace *m) {
  uint64_t count = 0;
  for (size_t i = 0; i < m->events.count; i++)
    count += m->events.items[i].event.action == TSR_ACTION_OOM;
  return count;
}

static void reproduce(const model_program *program) {
  model_trace m;
  model_random(&m, program);
  tsr_whatif *whatif = ask(&m, &m.settings, 0);
  const tsr_whatif_device *device = &whatif->devices[0];
  const tsr_whatif_run *run = recorded_run(whatif);
  assert_int_equal(device->run_count, 1);
  assert_int_equal(device->segments_reproduced, device->segments_recorded);
  assert_int_equal(run->end_segment_count, device->segments_recorded);
  assert_int_equal(run->end_reserved_bytes, m.now.after.reserved_bytes);
  assert_int_equal(run->peak.totals.reserved_bytes, device->recorded_peak_reserved_bytes);
  assert_int_equal(run->peak.totals.reserved_bytes, tsr_allocator_peak(m.allocator).reserved_bytes);
  assert_int_equal(run->oom_count, failures(&m));
  assert_int_equal(run->is_out_of_memory, failures(&m) > 0);
  assert_int_equal(device->recorded_oom_count, failures(&m));
  tsr_whatif_free(whatif);
  model_release(&m);
}

#define FEATURE(name, ...)                                                        \
  static void name(void **state) {                                                \
    (void)state;                                                                  \
    for (uint32_t seed = 1; seed <= 4; seed++)                                    \
      reproduce(&(model_program){.operations = 1500, .seed = seed, __VA_ARGS__}); \
  }

FEATURE(defaults, .conf = "")
FEATURE(several_streams, .streams = 3)
FEATURE(waiting_frees, .streams = 3, .wait_one_in = 4)
FEATURE(private_pools, .pools = 3, .ends_pools = true, .empty_one_in = 150)
FEATURE(capture, .pools = 2, .streams = 2, .wait_one_in = 4, .capture_one_in = 60,
        .empty_one_in = 200)
FEATURE(out_of_memory, .capacity_bytes = 260 * MODEL_MIB, .largest_bytes = 40 * MODEL_MIB,
        .streams = 1)
FEATURE(garbage_collection, .conf = "garbage_collection_threshold:0.5",
        .memory_limit_bytes = 420 * MODEL_MIB)
FEATURE(oversize, .conf = "max_split_size_mb:24", .capacity_bytes = 500 * MODEL_MIB,
        .largest_bytes = 60 * MODEL_MIB)
FEATURE(roundup, .conf = "roundup_power2_divisions:[1:4,4:2,>:8]")
FEATURE(emptied_cache, .empty_one_in = 60, .streams = 1, .wait_one_in = 5)
FEATURE(expandable, .conf = "expandable_segments:True", .empty_one_in = 150)
FEATURE(expandable_streams, .conf = "expandable_segments:True", .streams = 2, .wait_one_in = 4,
        .pools = 1, .empty_one_in = 150)

/* ---- other settings, another card ---- */

/* The model, asked what made the trace again. */
typedef struct direct {
  const model_trace *m;
  tsr_allocator *allocator;
  tsr__map next_of_size; /* size -> event from which to look for the next segment */
  uint64_t *address;     /* by allocation */
  uint64_t peak_reserved_bytes, oom_count;
  int64_t oom_event;
  uint64_t oom_request_bytes;
} direct;

/* The driver hands out, for each size, the addresses that it handed out then. */
static uint64_t place(void *context, uint64_t size_bytes) {
  direct *d = context;
  uint64_t *from = tsr__map_put(&d->next_of_size, size_bytes, 0, NULL);
  assert_non_null(from);
  for (; *from < d->m->events.count; ++*from) {
    const tsr_allocator_event *event = &d->m->events.items[*from].event;
    if (event->action != TSR_ACTION_SEGMENT_ALLOC || event->size != size_bytes) continue;
    ++*from;
    return event->addr;
  }
  return 0;
}

static void malloc_again(direct *d, const model_call *call) {
  uint64_t *address = &d->address[call->allocation];
  int status = tsr_allocator_malloc(d->allocator, call->bytes, call->stream, call->pool, address);
  if (status != TSR_ALLOCATOR_OUT_OF_DEVICE) {
    assert_int_equal(status, 0);
    return;
  }
  *address = 0;
  if (d->oom_count++) return;
  d->oom_event = (int64_t)call->event;
  d->oom_request_bytes = call->bytes;
}

static void free_again(direct *d, const model_call *call) {
  uint64_t address = d->address[call->allocation];
  if (!address) return;
  if (call->used_on)
    assert_int_equal(tsr_allocator_record_stream(d->allocator, address, call->used_on - 1), 0);
  assert_int_equal(tsr_allocator_free(d->allocator, address), 0);
}

static void call_again(direct *d, const model_call *call) {
  switch (call->kind) {
  case MODEL_MALLOC: malloc_again(d, call); break;
  case MODEL_FREE: free_again(d, call); break;
  case MODEL_COMPLETE: tsr_allocator_complete_stream(d->allocator, call->stream); break;
  case MODEL_EMPTY: assert_int_equal(tsr_allocator_empty_cache(d->allocator), 0); break;
  case MODEL_WAIT:
    for (uint64_t stream = 0; stream < 8; stream++)
      tsr_allocator_complete_stream(d->allocator, stream);
  }
  uint64_t reserved = tsr_allocator_now(d->allocator).reserved_bytes;
  if (reserved > d->peak_reserved_bytes) d->peak_reserved_bytes = reserved;
}

static void run_directly(direct *d, const tsr_allocator_settings *settings, uint64_t capacity) {
  tsr_allocator_options options = {.settings = *settings,
                                   .capacity_bytes = capacity,
                                   .segment_address = place,
                                   .segment_address_context = d};
  assert_int_equal(tsr_allocator_new(&options, &d->allocator, NULL), 0);
  d->address = TSR__NEW_ARRAY(uint64_t, d->m->address.count);
  assert_non_null(d->address);
  for (size_t i = 0; i < d->m->calls.count; i++) call_again(d, &d->m->calls.items[i]);
}

static void compare(const model_trace *m, const tsr_allocator_settings *settings,
                    const tsr_whatif_run *run, uint64_t capacity) {
  direct d = {.m = m};
  run_directly(&d, settings, capacity);
  assert_int_equal(run->oom_count, d.oom_count);
  assert_int_equal(run->is_out_of_memory, d.oom_count > 0);
  if (d.oom_count) {
    assert_int_equal(run->out_of_memory.event, d.oom_event);
    assert_int_equal(run->oom_request_bytes, d.oom_request_bytes);
  }
  assert_int_equal(run->peak.totals.reserved_bytes, d.peak_reserved_bytes);
  assert_int_equal(run->end_reserved_bytes, tsr_allocator_now(d.allocator).reserved_bytes);
  assert_int_equal(run->flush_count, tsr_allocator_retry_count(d.allocator));
  tsr_allocator_destroy(d.allocator);
  tsr__map_release(&d.next_of_size);
  tsr__free(d.address);
}

static const model_program programs[] = {
    {.operations = 1200, .seed = 5},
    {.operations = 1200, .seed = 6, .streams = 2, .wait_one_in = 5, .empty_one_in = 200},
    {.operations = 1200, .seed = 7, .pools = 2, .empty_one_in = 200},
    {.operations = 1200, .seed = 8, .conf = "expandable_segments:True", .empty_one_in = 200},
    {.operations = 1200, .seed = 9, .conf = "roundup_power2_divisions:4", .streams = 1},
};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static void other_settings(void **state) {
  (void)state;
  static const char *const confs[] = {"", "expandable_segments:True", "max_split_size_mb:24",
                                      "roundup_power2_divisions:8",
                                      "expandable_segments:True,roundup_power2_divisions:4"};
  for (size_t i = 0; i < COUNT(programs); i++) {
    model_trace m;
    model_random(&m, &programs[i]);
    for (size_t k = 0; k < COUNT(confs); k++) {
      tsr_allocator_settings settings;
      assert_int_equal(tsr_allocator_settings_parse(confs[k], &settings, NULL), 0);
      tsr_whatif *whatif = ask(&m, &settings, 0);
      for (size_t run = 0; run < whatif->devices[0].run_count; run++)
        compare(&m, &whatif->devices[0].runs[run].settings, &whatif->devices[0].runs[run], 0);
      tsr_whatif_free(whatif);
    }
    model_release(&m);
  }
}

static void smaller_cards(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(programs); i++) {
    model_trace m;
    model_random(&m, &programs[i]);
    uint64_t peak = tsr_allocator_peak(m.allocator).reserved_bytes, oom_count = 0;
    for (uint64_t percent = 30; percent <= 100; percent += 14) {
      uint64_t capacity = peak / 100 * percent;
      tsr_whatif *whatif = ask(&m, &m.settings, capacity);
      const tsr_whatif_device *device = &whatif->devices[0];
      compare(&m, &m.settings, &device->runs[0], capacity);
      oom_count += device->runs[0].oom_count;
      /* How well the model follows the trace does not hang on the card that is asked about. */
      assert_int_equal(device->segments_reproduced, device->segments_recorded);
      assert_int_equal(device->stack_count > 0, device->runs[0].is_out_of_memory);
      tsr_whatif_free(whatif);
    }
    assert_true(oom_count > 0);
    model_release(&m);
  }
}

/* A run that failed: its settings fail again, with the memory that it had and with less. */
static void failed_run(void **state) {
  (void)state;
  model_trace m;
  model_start(&m, &(model_program){.capacity_bytes = 104 * MODEL_MIB});
  for (uint32_t i = 0; i < 25; i++)
    assert_int_not_equal(model_malloc(&m, 4 * MODEL_MIB, 0, (tsr_pool){0, 0}), TSR_NONE);
  for (uint32_t i = 0; i < 25; i += 2) model_free(&m, i, 0);
  assert_int_equal(model_malloc(&m, 30 * MODEL_MIB, 0, (tsr_pool){0, 0}), TSR_NONE);
  const int64_t oom_event = (int64_t)m.events.count - 1;
  model_free(&m, 1, 0); /* what unwinding frees */

  tsr_whatif *whatif = ask(&m, &m.settings, 0);
  const tsr_whatif_device *device = &whatif->devices[0];
  assert_true(device->is_capacity_inferred);
  assert_int_equal(device->capacity_bytes, 104 * MODEL_MIB);
  assert_true(device->runs[0].is_recorded && device->runs[0].is_out_of_memory);
  assert_int_equal(device->runs[0].out_of_memory.event, oom_event);
  assert_int_equal(device->runs[0].oom_request_bytes, 30 * MODEL_MIB);
  assert_int_equal(device->segments_reproduced, device->segments_recorded);
  tsr_whatif_free(whatif);

  /* One more segment would have done, and counts. */
  whatif = ask(&m, &m.settings, 130 * MODEL_MIB);
  assert_false(whatif->devices[0].is_capacity_inferred);
  assert_false(recorded_run(whatif)->is_out_of_memory);
  assert_int_equal(recorded_run(whatif)->peak.totals.reserved_bytes, 130 * MODEL_MIB);
  assert_int_equal(recorded_run(whatif)->peak.event, oom_event);
  assert_int_equal(recorded_run(whatif)->end_reserved_bytes, 130 * MODEL_MIB);
  tsr_whatif_free(whatif);
  whatif = ask(&m, &m.settings, 128 * MODEL_MIB);
  assert_int_equal(recorded_run(whatif)->out_of_memory.event, oom_event);
  tsr_whatif_free(whatif);
  model_release(&m);
}

/* The best configuration comes first: those that fit, by what they reserve. */
static void best_first(void **state) {
  (void)state;
  model_trace m;
  model_random(&m, &programs[0]);
  tsr_snapshot *snapshot = model_snapshot(&m, 1, NULL);
  tsr_whatif_options how = {.capacity_bytes = tsr_allocator_peak(m.allocator).reserved_bytes};
  tsr_whatif *whatif = NULL;
  assert_int_equal(tsr_whatif_compute(test_study(snapshot), &how, NULL, &whatif, NULL), 0);
  const tsr_whatif_device *device = &whatif->devices[0];
  size_t default_count;
  (void)tsr_whatif_default(&default_count);
  assert_int_equal(device->run_count, default_count);
  for (size_t i = 1; i < device->run_count; i++) {
    const tsr_whatif_run *better = &device->runs[i - 1], *worse = &device->runs[i];
    assert_true(better->is_out_of_memory <= worse->is_out_of_memory);
    if (!worse->is_out_of_memory)
      assert_true(better->peak.totals.reserved_bytes <= worse->peak.totals.reserved_bytes);
  }
  tsr_whatif_free(whatif);
  tsr_snapshot_free(snapshot);
  model_release(&m);
}

/* The parts of what is reserved at the peak add up. */
typedef struct watcher {
  unsigned calls, stop_at; /* 0: never */
} watcher;

static bool watch(void *context, uint64_t done_units, uint64_t total_units) {
  watcher *w = context;
  assert_true(done_units > 0 && total_units == 0);
  return ++w->calls != w->stop_at;
}

/* The query's hook sees every rerun, and stops whichever it is called in. */
static void stopped(void **state) {
  (void)state;
  model_trace m;
  model_random(&m, &programs[0]);
  tsr_snapshot *snapshot = model_snapshot(&m, 1, NULL);
  tsr_study *study = test_study(snapshot);
  watcher all = {0};
  tsr_query query = {.progress = watch, .progress_context = &all};
  tsr_whatif *whatif = NULL;
  assert_int_equal(tsr_whatif_compute(study, NULL, &query, &whatif, NULL), 0);
  assert_true(all.calls >= 2 * whatif->devices[0].run_count);
  tsr_whatif_free(whatif);
  for (unsigned at = 1; at <= all.calls; at++) {
    watcher some = {.stop_at = at};
    tsr_error error = {0};
    whatif = NULL;
    query.progress_context = &some;
    assert_int_equal(tsr_whatif_compute(study, NULL, &query, &whatif, &error), TSR_ERROR_IO);
    assert_string_equal(error.message, "stopped");
    assert_null(whatif);
    assert_int_equal(some.calls, at);
  }
  tsr_snapshot_free(snapshot);
  model_release(&m);
}

static void fragmentation(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(programs); i++) {
    model_trace m;
    model_random(&m, &programs[i]);
    tsr_whatif *whatif = ask(&m, &m.settings, 0);
    const tsr_whatif_run *run = &whatif->devices[0].runs[0];
    const tsr_fragmentation *parts = &run->fragmentation;
    assert_int_equal(run->peak.totals.requested_bytes + parts->rounding_bytes +
                         parts->unsplit_bytes + parts->free_block_bytes + parts->free_segment_bytes,
                     run->peak.totals.reserved_bytes);
    assert_int_equal(parts->waiting_bytes,
                     run->peak.totals.active_bytes - run->peak.totals.allocated_bytes);
    tsr_whatif_free(whatif);
    model_release(&m);
  }
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
      cmocka_unit_test(emptied_cache),
      cmocka_unit_test(expandable),
      cmocka_unit_test(expandable_streams),
      cmocka_unit_test(other_settings),
      cmocka_unit_test(smaller_cards),
      cmocka_unit_test(failed_run),
      cmocka_unit_test(best_first),
      cmocka_unit_test(stopped),
      cmocka_unit_test(fragmentation),
  };
  return cmocka_run_group_tests_name("whatif", tests, NULL, NULL);
}
