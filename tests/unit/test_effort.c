/* Efforts: limits on work and time, shares of them, and the caller's wish to stop. */
#include "base/effort.h"

#include <math.h>
#include <string.h>

#include "base/os.h"
#include "test_support.h"

static tsr_effort begun(tsr_effort_options options) {
  tsr_effort effort;
  tsr_error error;
  options.struct_bytes = sizeof options;
  assert_int_equal(tsr__effort_init(&effort, &options, &error), 0);
  return effort;
}

static void test_without_limits(void **state) {
  tsr_effort *effort = NULL;
  (void)state;
  assert_true(tsr__effort_go_on(NULL, UINT64_MAX));
  assert_false(tsr__effort_is_over(NULL));
  tsr__effort_share(NULL, 0.5);
  tsr__effort_lift(NULL);
  assert_int_equal(tsr_effort_new(NULL, &effort, NULL), 0);
  for (int i = 0; i < 1000; i++) assert_true(tsr__effort_go_on(effort, UINT64_C(1) << 40));
  assert_true(tsr_effort_work(effort) == UINT64_C(1000) << 40);
  assert_int_equal(tsr_effort_ended(effort), TSR_EFFORT_LEFT);
  tsr_effort_free(effort);
  tsr_effort_free(NULL);
}

static void test_work(void **state) {
  tsr_effort effort = begun((tsr_effort_options){.most_work = 100});
  tsr_error error = {0};
  (void)state;
  assert_true(tsr__effort_go_on(&effort, 100));
  assert_false(tsr__effort_go_on(&effort, 1));
  assert_true(tsr__effort_is_over(&effort) && tsr__effort_is_spent(&effort));
  assert_int_equal(tsr__effort_fail(&effort, &error), TSR_ERROR_LIMIT);
  assert_non_null(strstr(error.message, "100 instructions"));
  tsr__effort_lift(&effort);
  assert_true(tsr__effort_go_on(&effort, 1000));
  assert_false(tsr__effort_is_spent(&effort));
  assert_int_equal(tsr_effort_ended(&effort), TSR_EFFORT_WORK); /* which is remembered */
}

static void test_shares(void **state) {
  tsr_effort effort = begun((tsr_effort_options){.most_work = 100});
  (void)state;
  tsr__effort_share(&effort, 0.25);
  assert_false(tsr__effort_go_on(&effort, 26));
  tsr__effort_share(&effort, 0.75);
  assert_int_equal(tsr_effort_ended(&effort), TSR_EFFORT_LEFT);
  assert_true(tsr__effort_go_on(&effort, 49));
  assert_false(tsr__effort_go_on(&effort, 1));
}

static void test_time(void **state) {
  tsr_effort effort = begun((tsr_effort_options){.most_seconds = 0.001});
  tsr_error error = {0};
  (void)state;
  uint64_t begin_ns = tsr__os_time_ns();
  while (tsr__effort_go_on(&effort, 0)) assert_true(tsr__os_time_ns() - begin_ns < 60000000000);
  assert_int_equal(tsr_effort_ended(&effort), TSR_EFFORT_TIME);
  assert_int_equal(tsr__effort_fail(&effort, &error), TSR_ERROR_LIMIT);
  assert_non_null(strstr(error.message, "0.001 seconds"));
}

static bool count_down(void *context, uint64_t done_units, uint64_t total_units) {
  int *left = context;
  assert_true(done_units > 0 && total_units == 0 && *left > 0);
  return --*left > 0;
}

/* A wish to stop is no limit: nothing is to be finished. */
static void test_the_hook_stops_it(void **state) {
  int left = 3;
  tsr_effort effort =
      begun((tsr_effort_options){.progress = count_down, .progress_context = &left});
  tsr_error error = {0};
  (void)state;
  uint64_t begin_ns = tsr__os_time_ns();
  while (tsr__effort_go_on(&effort, 1)) assert_true(tsr__os_time_ns() - begin_ns < 60000000000);
  assert_int_equal(left, 0);
  tsr__effort_lift(&effort);
  assert_true(tsr__effort_is_over(&effort) && !tsr__effort_is_spent(&effort));
  assert_int_equal(tsr__effort_fail(&effort, &error), TSR_ERROR_IO);
}

static void test_refuses(void **state) {
  static const double wrong[] = {-1, NAN, INFINITY};
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    tsr_effort *effort = NULL;
    const tsr_effort_options options = {.struct_bytes = sizeof options, .most_seconds = wrong[i]};
    assert_int_equal(tsr_effort_new(&options, &effort, NULL), TSR_ERROR_ARGUMENT);
    assert_null(effort);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_without_limits),
      cmocka_unit_test(test_work),
      cmocka_unit_test(test_shares),
      cmocka_unit_test(test_time),
      cmocka_unit_test(test_the_hook_stops_it),
      cmocka_unit_test(test_refuses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
