/* Profiles of random traces against a model that looks at every allocation at every moment, and of
 * traces on which Mosaic errs. */
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/vector.h"
#include "study_support.h"
#include "tessera/tessera.h"
#include "tessera/unstable/unstable.h"
#include "test_support.h"

/* ---- traces ---- */

typedef struct made {
  uint64_t bytes;
  uint32_t group;       /* its compile_context is "cN" */
  int64_t birth, death; /* events; death -1: never */
} made;

typedef struct trace {
  TSR__VECTOR(made) allocations;
  int64_t event_count;
  tsr__buffer text;
  tsr_snapshot *snapshot;
  uint64_t random;
} trace;

static uint32_t dice(trace *t, uint32_t sides) {
  t->random = t->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return (uint32_t)(t->random >> 33) % sides;
}

static void say(trace *t, const char *action, size_t allocation) {
  const made *a = &t->allocations.items[allocation];
  tsr__buffer_printf(&t->text,
                     "%s{\"action\": \"%s\", \"addr\": %zu, \"size\": %d, \"time_us\": %d, "
                     "\"compile_context\": \"c%d\"}",
                     t->event_count ? ", " : "", action, (allocation + 1) << 21, (int)a->bytes,
                     (int)t->event_count * 10 + 5, (int)a->group);
  t->event_count++;
}

static void make(trace *t, uint32_t seed, int operations, uint32_t groups, uint32_t live_target) {
  TSR__VECTOR(size_t) live = {0};
  *t = (trace){.random = seed};
  tsr__buffer_text(&t->text, "{\"segments\": [], \"device_traces\": [[");
  for (int i = 0; i < operations; i++) {
    if (!live.count || dice(t, 2 * live_target) > live.count) {
      made a = {1 + dice(t, 100000), dice(t, groups), t->event_count, -1};
      assert_true(TSR__VECTOR_PUSH(&t->allocations, a));
      assert_true(TSR__VECTOR_PUSH(&live, t->allocations.count - 1));
      say(t, "alloc", t->allocations.count - 1);
    } else {
      uint32_t at = dice(t, (uint32_t)live.count);
      size_t allocation = live.items[at];
      live.items[at] = live.items[--live.count];
      say(t, "free_requested", allocation);
      t->allocations.items[allocation].death = t->event_count;
      say(t, "free_completed", allocation);
    }
  }
  tsr__buffer_text(&t->text, "]]}");
  TSR__VECTOR_FREE(&live);
  assert_false(t->text.failed);
  assert_int_equal(tsr_snapshot_read(t->text.data, t->text.size, NULL, &t->snapshot, NULL), 0);
}

static void unmake(trace *t) {
  tsr_snapshot_free(t->snapshot);
  tsr__buffer_release(&t->text);
  TSR__VECTOR_FREE(&t->allocations);
}

/* Bytes live after an event, of one group or (TSR_NONE) of all. */
static uint64_t live_bytes(const trace *t, int64_t event, uint32_t group) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < t->allocations.count; i++) {
    const made *a = &t->allocations.items[i];
    bool is_live = a->birth <= event && (a->death < 0 || a->death > event);
    if (is_live && (group == TSR_NONE || a->group == group)) bytes += a->bytes;
  }
  return bytes;
}

static tsr_profile *ask(const tsr_snapshot *snapshot, const tsr_profile_options *how) {
  tsr_profile *profile = NULL;
  tsr_error error = {0};
  if (tsr_profile_compute(test_study(snapshot), how, NULL, &profile, &error))
    fail_msg("%s", error.message);
  return profile;
}

static uint32_t group_of(const char *name) {
  assert_int_equal(name[0], 'c');
  return (uint32_t)(name[1] - '0');
}

/* ---- against the model ---- */

static void check_groups(const trace *t, const tsr_profile_device *device) {
  uint64_t peak = 0;
  int64_t peak_event = -1;
  for (int64_t e = 0; e < t->event_count; e++)
    if (live_bytes(t, e, TSR_NONE) > peak) peak = live_bytes(t, e, TSR_NONE), peak_event = e;
  assert_int_equal(device->peak_bytes, peak);
  assert_int_equal(device->peak_event, peak_event);
  assert_int_equal(device->peak_time_us, peak_event * 10 + 5);
  for (size_t i = 0; i < device->group_count; i++) {
    const tsr_profile_group *group = &device->groups[i];
    uint32_t id = group_of(group->name);
    assert_int_equal(group->bytes, live_bytes(t, peak_event, id));
    uint64_t most = 0;
    int64_t most_event = -1, first = -1;
    for (int64_t e = 0; e < t->event_count; e++) {
      uint64_t bytes = live_bytes(t, e, id);
      if (bytes > most) most = bytes, most_event = e;
      if (bytes && first < 0) first = e;
    }
    assert_int_equal(group->peak_bytes, most);
    assert_int_equal(group->peak_event, most_event);
    assert_int_equal(group->first_event, first);
  }
}

static void check_moments(const trace *t, const tsr_profile *profile, size_t most) {
  const tsr_profile_device *device = &profile->devices[0];
  bool has_peak = false;
  assert_true(device->moment_count <= most);
  assert_int_equal(device->moments[0].event, 0);
  assert_int_equal(device->moments[device->moment_count - 1].event, t->event_count - 1);
  for (size_t i = 0; i < device->moment_count; i++) {
    const tsr_profile_moment *moment = &device->moments[i];
    uint64_t cells = 0;
    assert_true(!i || moment->event > device->moments[i - 1].event);
    assert_int_equal(moment->bytes, live_bytes(t, moment->event, TSR_NONE));
    for (size_t k = 0; k < moment->share_count; k++) {
      const tsr_profile_share *share = &device->shares[moment->first_share + k];
      uint32_t id = group_of(device->series[share->series].name);
      assert_int_equal(share->bytes, live_bytes(t, moment->event, id));
    }
    for (size_t k = 0; k < moment->cell_count; k++)
      cells += device->cells[moment->first_cell + k].bytes;
    assert_int_equal(cells, profile->is_ordered ? moment->bytes : 0);
    has_peak = has_peak || moment->event == device->peak_event;
  }
  assert_true(has_peak);
}

static void random_traces(void **state) {
  (void)state;
  for (uint32_t seed = 1; seed <= 4; seed++) {
    trace t;
    make(&t, seed, 500, 1 + seed, 30);
    for (int ordered = 0; ordered < 2; ordered++)
      for (size_t most = 4; most < 3000; most *= 6) {
        tsr_profile_options how = {
            .by = TSR_PROFILE_BY_COMPILE_CONTEXT, .moment_count = most, .is_ordered = ordered};
        tsr_profile *profile = ask(t.snapshot, &how);
        if (most == 4) check_groups(&t, &profile->devices[0]);
        check_moments(&t, profile, most);
        tsr_profile_free(profile);
      }
    unmake(&t);
  }
}

/* Where every band is distinguished: those born and not yet ended, bottom first, and a band that is
 * not the topmost never has its own neighbour group. */
static void bands_are_whole(void **state) {
  (void)state;
  trace t;
  make(&t, 7, 300, 3, 10);
  tsr_profile_options how = {
      .by = TSR_PROFILE_BY_COMPILE_CONTEXT, .moment_count = 1000, .is_ordered = true};
  tsr_profile *profile = ask(t.snapshot, &how);
  const tsr_profile_device *device = &profile->devices[0];
  for (size_t i = 0; i < device->moment_count; i++) {
    const tsr_profile_moment *moment = &device->moments[i];
    for (size_t k = 0; k < moment->cell_count; k++) {
      const tsr_profile_cell *cell = &device->cells[moment->first_cell + k];
      if (cell->band == TSR_PROFILE_MIXED) continue;
      const tsr_profile_band *band = &device->bands[cell->band];
      assert_int_equal(band->series, cell->series);
      assert_true(band->birth_event <= moment->event);
      assert_true(band->death_event < 0 || band->death_event > moment->event);
      assert_true(band->peak_bytes >= cell->bytes);
      if (k) assert_int_not_equal(cell[-1].series, cell->series);
    }
  }
  uint64_t layers = 0;
  for (size_t i = 0; i < device->layer_count; i++) layers += device->layers[i].bytes;
  assert_int_equal(layers, device->peak_bytes);
  tsr_profile_free(profile);
  unmake(&t);
}

/* Thousands of bands at thousands of moments: what cannot be distinguished is put together. */
static void many_bands_stay_few(void **state) {
  (void)state;
  trace t;
  make(&t, 3, 9000, 5, 1500);
  tsr_profile_options how = {
      .by = TSR_PROFILE_BY_COMPILE_CONTEXT, .moment_count = 900, .is_ordered = true};
  tsr_profile *profile = ask(t.snapshot, &how);
  const tsr_profile_device *device = &profile->devices[0];
  assert_true(device->layer_count > 500);
  assert_true(device->cell_count <= 120000);
  assert_true(device->cell_count > 40000);
  for (size_t i = 0; i < device->moment_count; i++) {
    uint64_t cells = 0;
    for (size_t k = 0; k < device->moments[i].cell_count; k++)
      cells += device->cells[device->moments[i].first_cell + k].bytes;
    assert_int_equal(cells, device->moments[i].bytes);
  }
  for (size_t i = 0; i < device->cell_count; i++)
    assert_true(device->cells[i].band == TSR_PROFILE_MIXED ||
                device->cells[i].band < device->band_count);
  tsr_profile_free(profile);
  unmake(&t);
}

/* ---- series, top, window ---- */

static void series_and_top(void **state) {
  (void)state;
  trace t;
  make(&t, 11, 400, 6, 40);
  tsr_profile_options how = {.by = TSR_PROFILE_BY_COMPILE_CONTEXT,
                             .moment_count = 50,
                             .series_count = 2,
                             .is_ordered = true};
  tsr_query query = {.top = 3};
  tsr_profile *profile = NULL;
  assert_int_equal(tsr_profile_compute(test_study(t.snapshot), &how, &query, &profile, NULL), 0);
  const tsr_profile_device *device = &profile->devices[0];
  assert_int_equal(device->series_count, 3);
  assert_null(device->series[2].name);
  assert_int_equal(device->series[2].group_count, 4);
  assert_true(device->series[0].peak_bytes >= device->series[1].peak_bytes);
  assert_int_equal(device->group_count, 3);
  assert_int_equal(device->omitted_groups, 3);
  assert_int_equal(device->groups[0].bytes + device->groups[1].bytes + device->groups[2].bytes +
                       device->omitted_bytes,
                   device->peak_bytes);
  assert_int_equal(device->layer_count, 3);
  uint64_t layers = device->omitted_layer_bytes;
  for (size_t i = 0; i < device->layer_count; i++) {
    layers += device->layers[i].bytes;
    if (i) assert_true(device->layers[i].birth_event > device->layers[i - 1].birth_event);
  }
  assert_int_equal(layers, device->peak_bytes);
  tsr_profile_free(profile);
  unmake(&t);
}

static void window(void **state) {
  (void)state;
  trace t;
  make(&t, 5, 300, 2, 20);
  tsr_profile_options how = {.moment_count = 10, .first_event = 100, .event_count = 50};
  tsr_profile *profile = ask(t.snapshot, &how);
  const tsr_profile_device *device = &profile->devices[0];
  assert_int_equal(device->moments[0].event, 100);
  assert_int_equal(device->moments[device->moment_count - 1].event, 149);
  assert_true(device->moment_count <= 10);
  tsr_profile_free(profile);
  how.first_event = 100000;
  profile = ask(t.snapshot, &how);
  assert_int_equal(profile->devices[0].moment_count, 0);
  tsr_profile_free(profile);
  unmake(&t);
}

/* ---- where Mosaic errs ---- */

/* A profile by category of device traces given as JSON, with every event a moment. */
static tsr_profile *profile_of(const char *traces, tsr_snapshot **snapshot) {
  char text[4096];
  int length = snprintf(text, sizeof text, "{\"segments\": [], \"device_traces\": [%s]}", traces);
  assert_int_equal(tsr_snapshot_read(text, (size_t)length, NULL, snapshot, NULL), 0);
  return ask(*snapshot, &(tsr_profile_options){.by = TSR_PROFILE_BY_MOSAIC_CATEGORY,
                                               .moment_count = 100,
                                               .is_ordered = true});
}

static void expect_peak(const char *traces, uint32_t device, uint64_t bytes, int64_t event,
                        size_t moments) {
  tsr_snapshot *snapshot = NULL;
  tsr_profile *profile = profile_of(traces, &snapshot);
  assert_int_equal(profile->devices[0].device, device);
  assert_int_equal(profile->devices[0].peak_bytes, bytes);
  assert_int_equal(profile->devices[0].peak_event, event);
  assert_int_equal(profile->devices[0].moment_count, moments);
  tsr_profile_free(profile);
  tsr_snapshot_free(snapshot);
}

#define EVENT(action, addr, size, rest) \
  "{\"action\": \"" action "\", \"addr\": " addr ", \"size\": " size rest "}"
#define AT(time) ", \"time_us\": " time

/* Mosaic profiles device 0 alone: such a file has no points there. */
static void trace_on_device_3_only(void **state) {
  (void)state;
  expect_peak("[], [], [], [" EVENT("alloc", "4096", "700", AT("1")) "]", 3, 700, 0, 1);
}

/* Mosaic keeps one point a microsecond, the last: this peak would be lost to its history. */
static void equal_microseconds(void **state) {
  (void)state;
  expect_peak("[" EVENT("alloc", "4096", "700", AT("5")) ", " EVENT(
                  "free_requested", "4096", "700", AT("5")) ", " EVENT("free_completed", "4096",
                                                                       "700", AT("5")) "]",
              0, 700, 0, 3);
}

static void out_of_memory_event(void **state) {
  (void)state;
  expect_peak("[" EVENT("alloc", "4096", "700",
                        AT("5")) ", "
                                 "{\"action\": \"oom\", \"device_free\": 10, \"size\": 9000, "
                                 "\"time_us\": 6}, " EVENT("alloc", "8192", "50", AT("7")) "]",
              0, 750, 2, 3);
}

static void free_without_alloc(void **state) {
  (void)state;
  expect_peak("[" EVENT("free_completed", "4096", "700", AT("5")) ", " EVENT("alloc", "8192", "50",
                                                                             AT("7")) "]",
              0, 50, 1, 2);
}

/* Mosaic leaves events without a time out. */
static void events_without_time(void **state) {
  (void)state;
  expect_peak("[" EVENT("alloc", "4096", "700", "") ", " EVENT("alloc", "8192", "50", "") "]", 0,
              750, 1, 2);
}

/* The older allocation has ended: it must not count next to the one that took its place. */
static void alloc_of_live_address(void **state) {
  (void)state;
  expect_peak(
      "[" EVENT("alloc", "4096", "700", AT("5")) ", " EVENT("alloc", "4096", "300", AT("6")) "]", 0,
      700, 0, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_traces),
      cmocka_unit_test(bands_are_whole),
      cmocka_unit_test(many_bands_stay_few),
      cmocka_unit_test(series_and_top),
      cmocka_unit_test(window),
      cmocka_unit_test(trace_on_device_3_only),
      cmocka_unit_test(equal_microseconds),
      cmocka_unit_test(out_of_memory_event),
      cmocka_unit_test(free_without_alloc),
      cmocka_unit_test(events_without_time),
      cmocka_unit_test(alloc_of_live_address),
  };
  return cmocka_run_group_tests_name("profile", tests, NULL, NULL);
}
