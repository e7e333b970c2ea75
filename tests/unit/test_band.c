/* How far real times may be from predicted ones: what is learned covers what was measured, and no more than is needed. */
#include "exec/band.h"

#include <math.h>
#include <string.h>

#include "test_support.h"

enum { PHASES = 5, STEPS = 64 };

static double draw(uint64_t *random) {
  *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407U;
  return (double)(*random >> 11) / 9007199254740992.0;
}

/* How many of the steps are outside of the band, times the prediction. */
static size_t outside(const tsr__time_band *band, const double *steps, size_t count, double s) {
  size_t found = 0;
  for (size_t i = 0; i < count; i++) found += steps[i] < band->low * s || steps[i] > band->high * s;
  return found;
}

/* Random runs. The band has all phases that matter and all but the outermost tenths of the steps, and one of its ends is 10 % beyond the
 * worst of them. */
static void test_learned(void **state) {
  (void)state;
  uint64_t random = 11;
  for (size_t round = 0; round < 5000; round++) {
    tsr__band_sample phases[PHASES];
    double steps[STEPS], sorted[STEPS], predicted = 0.5 + draw(&random), all = 0, worst = 1,
                                        best = 1;
    size_t count = (size_t)(draw(&random) * (STEPS + 1)),
           phase_count = (size_t)(draw(&random) * (PHASES + 1));
    for (size_t i = 0; i < phase_count; i++) {
      phases[i].predicted_s = draw(&random) < 0.1 ? 0 : draw(&random);
      phases[i].measured_s =
          draw(&random) < 0.1 ? 0 : phases[i].predicted_s * (0.5 + draw(&random));
      all += phases[i].measured_s;
    }
    for (size_t i = 0; i < count; i++) steps[i] = predicted * (0.7 + draw(&random));
    memcpy(sorted, steps, sizeof steps);
    tsr__time_band band =
        tsr__band_learn(TSR__BAND_RATES, phases, phase_count, sorted, count, predicted);
    assert_true(band.low > 0 && band.low <= 1 && band.high >= 1);
    bool is_learned = count > 0;
    for (size_t i = 0; i < phase_count; i++) {
      if (phases[i].predicted_s <= 0 || phases[i].measured_s <= 0.05 * all) continue;
      double ratio = phases[i].measured_s / phases[i].predicted_s;
      is_learned = true;
      assert_true(ratio >= band.low && ratio <= band.high);
      worst = fmax(worst, ratio);
      best = fmin(best, ratio);
    }
    assert_int_equal(band.source, is_learned ? TSR__BAND_RATES : TSR__BAND_UNKNOWN);
    if (!is_learned) continue;
    assert_true(outside(&band, steps, count, predicted) <= 2 * (count / 10));
    for (size_t i = 0; i < count; i++) {
      worst = fmax(worst, steps[i] / predicted);
      best = fmin(best, steps[i] / predicted);
    }
    assert_true(band.high <= 1.1 * worst * (1 + 1e-12) && band.low >= 0.9 * best * (1 - 1e-12));
    assert_true(band.high >= 1.1 && band.low <= 0.9);
  }
}

static void test_given(void **state) {
  (void)state;
  tsr__time_band sheet = tsr__band_of_sheet(), unknown = tsr__band_unknown();
  assert_true(sheet.low < unknown.low && unknown.low < 1 && 1 < unknown.high &&
              unknown.high < sheet.high);
  assert_int_equal(sheet.source, TSR__BAND_SHEET);
  assert_int_equal(unknown.source, TSR__BAND_UNKNOWN);
  for (int a = TSR__BAND_UNKNOWN; a <= TSR__BAND_RECORDED; a++)
    for (int b = TSR__BAND_UNKNOWN; b < a; b++)
      assert_string_not_equal(tsr__band_words((tsr__band_source)a),
                              tsr__band_words((tsr__band_source)b));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_learned), cmocka_unit_test(test_given)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
