/* band.c - see band.h. */
#include "exec/band.h"

#include <assert.h>

#include "base/sort.h"

/* Sheets: programs are assumed to reach 60 % of the operations, and so take no less than 0.6 times as long; and twice as long with 30 %, as
 * large trainings in papers do (the PaLM paper lists 21 to 46 %). */
#define SHEET_LOW  0.6
#define SHEET_HIGH 2.0
/* Rates without a band: about twice what docs/benchmarks.md has for plans that were predicted from measured rates. */
#define UNKNOWN_LOW  0.8
#define UNKNOWN_HIGH 1.25
/* Another plan than the measured one: 7 % too short to 8 % too long there. */
#define OTHER_PLAN 0.1
#define SHORT      0.05

tsr__time_band tsr__band_of_sheet(void) {
  return (tsr__time_band){SHEET_LOW, SHEET_HIGH, TSR__BAND_SHEET};
}

tsr__time_band tsr__band_unknown(void) {
  return (tsr__time_band){UNKNOWN_LOW, UNKNOWN_HIGH, TSR__BAND_UNKNOWN};
}

static void include(tsr__time_band *band, double measured_s, double predicted_s) {
  double ratio = measured_s / predicted_s;
  if (ratio < band->low) band->low = ratio;
  if (ratio > band->high) band->high = ratio;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

tsr__time_band tsr__band_learn(tsr__band_source source, const tsr__band_sample *phases,
                               size_t phase_count, double *steps_s, size_t step_count,
                               double predicted_step_s) {
  tsr__time_band band = {1, 1, source};
  double all_s = 0;
  size_t learned = 0;
  for (size_t i = 0; i < phase_count; i++) all_s += phases[i].measured_s;
  for (size_t i = 0; i < phase_count; i++) {
    const tsr__band_sample *p = &phases[i];
    if (p->measured_s <= SHORT * all_s || p->predicted_s <= 0) continue;
    include(&band, p->measured_s, p->predicted_s);
    learned++;
  }
  if (step_count && predicted_step_s > 0) {
    tsr__sort(steps_s, step_count, sizeof *steps_s, compare);
    include(&band, steps_s[step_count / 10], predicted_step_s);
    include(&band, steps_s[step_count - 1 - step_count / 10], predicted_step_s);
    learned++;
  }
  if (!learned) return tsr__band_unknown();
  band.low *= 1 - OTHER_PLAN;
  band.high *= 1 + OTHER_PLAN;
  assert(band.low > 0 && band.low <= 1 && band.high >= 1);
  return band;
}

const char *tsr__band_words(tsr__band_source source) {
  switch (source) {
  case TSR__BAND_SHEET: return "the card's data sheet";
  case TSR__BAND_RATES: return "measured rates";
  case TSR__BAND_RECORDED: return "the recorded run";
  case TSR__BAND_UNKNOWN: break;
  }
  return "rates without a known error";
}
