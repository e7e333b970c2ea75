/* test_rising.c - train/rising.h: noise and falling losses are none, a rise is noticed once. */
#include <math.h>

#include "test_support.h"
#include "train/rising.h"

static double noise(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (double)(*state >> 33) / (double)(UINT64_C(1) << 30) - 1;
}

static unsigned count(double (*loss)(uint64_t step), double deviation, uint64_t steps,
                      tsr__rise *last, uint64_t *first) {
  tsr__rising rising = {.guessing = 5.5};
  uint64_t state = 1;
  unsigned found = 0;
  for (uint64_t step = 1; step <= steps; step++) {
    tsr__rise what = tsr__rising_add(&rising, step, loss(step) + deviation * noise(&state));
    if (!what) continue;
    if (!found++) *first = step;
    *last = what;
  }
  return found;
}

static double falls(uint64_t step) {
  return 2 + 3.5 / sqrt((double)step);
}
static double stays(uint64_t step) {
  return step ? 3 : 0;
}
static double rises(uint64_t step) {
  return step < 300 ? falls(step) : falls(300) + (double)(step - 300) * 0.01;
}
static double jumps(uint64_t step) {
  return step < 3 ? 5.5 : 40;
}
static double has_a_spike(uint64_t step) {
  return step == 200 ? 20 : falls(step);
}
static double is_lost(uint64_t step) {
  return step == 30 ? (double)NAN : 3;
}

static void no_rise(void **state) {
  tsr__rise last = TSR__RISE_NONE;
  uint64_t first = 0;
  (void)state;
  for (double deviation = 0; deviation < 1; deviation += 0.1) {
    assert_int_equal(count(falls, deviation, 5000, &last, &first), 0);
    assert_int_equal(count(stays, deviation, 5000, &last, &first), 0);
    assert_int_equal(count(has_a_spike, deviation, 5000, &last, &first), 0);
    assert_int_equal(count(is_lost, deviation, 5000, &last, &first), 0);
  }
}

static void rise(void **state) {
  tsr__rise last = TSR__RISE_NONE;
  uint64_t first = 0;
  (void)state;
  assert_int_equal(count(rises, 0.1, 390, &last, &first), 1);
  assert_int_equal(last, TSR__RISE_RISEN);
  assert_true(first > 300 && first < 390);
  assert_int_equal(count(rises, 0.1, 100000, &last, &first), 3);
  assert_int_equal(count(jumps, 1, 2000, &last, &first), 1);
  assert_int_equal(last, TSR__RISE_ABOVE_GUESSING);
  assert_int_equal(first, 12);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_rise), cmocka_unit_test(rise)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
