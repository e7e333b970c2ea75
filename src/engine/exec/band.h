/* band.h - how far the real time of a step may be from a predicted one: two factors, and what they were learned from. All of these
 * numbers are here; docs/plan.md (The error of times) explains them.
 *
 *   a data sheet    from the full rates of the sheet to half of the share that is assumed: nothing has been measured
 *   measured rates  how well they explain the run that they are from, phase by phase and step by step, and 10 % for another plan
 *   a recorded run  the same, phase by phase, after its one factor
 *   neither         rates that came without a band: older files */
#ifndef TSR_EXEC_BAND_H
#define TSR_EXEC_BAND_H

#include <stdbool.h>
#include <stddef.h>

typedef enum tsr__band_source {
  TSR__BAND_UNKNOWN, /* rates without a band */
  TSR__BAND_SHEET,
  TSR__BAND_RATES,
  TSR__BAND_RECORDED
} tsr__band_source;

/* A predicted time, times each of these: what it may really be. */
typedef struct tsr__time_band {
  double low, high; /* 0 < low <= 1 <= high */
  tsr__band_source source;
} tsr__time_band;

/* Of a data sheet, and of rates that came without one. */
tsr__time_band tsr__band_of_sheet(void);
tsr__time_band tsr__band_unknown(void);

/* What was measured and what the same rates predict for it: a phase of a step, or a step. */
typedef struct tsr__band_sample {
  double measured_s, predicted_s;
} tsr__band_sample;

/* Learn from phases, of which those below 5 % of all are too short to count, and from the times of steps, of which the fastest and the
 * slowest tenth do not count. Unknown if there is nothing to learn from. Sorts `steps_s`. */
tsr__time_band tsr__band_learn(tsr__band_source source, const tsr__band_sample *phases,
                               size_t phase_count, double *steps_s, size_t step_count,
                               double predicted_step_s);

/* In a sentence: "the card's data sheet". A constant. */
const char *tsr__band_words(tsr__band_source source);

#endif
