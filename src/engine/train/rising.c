/* rising.c - see rising.h. */
#include "train/rising.h"

#include <math.h>

enum { SETTLED = 20, FOLLOWED = 60, HIGH_STEPS = 25, GUESSING_STEPS = 10, SAID_MOST = 3 };

/* Weight of the newest loss in the mean, and what that makes of the deviation of one loss: the root of share / (2 - share). */
#define SHARE          0.05
#define OF_MEAN        0.16
#define DEVIATIONS     8
#define LEAST_RISE     0.05
#define RISE           0.1
#define ABOVE_GUESSING 0.5

static double larger(double a, double b) {
  return a > b ? a : b;
}

/* Update the mean and the variance. */
static void average(tsr__rising *r, double loss) {
  double share = larger(1 / (double)(r->count + 1), SHARE);
  double difference = r->count ? loss - r->last : 0;
  r->mean += (loss - r->mean) * share;
  r->variance += (difference * difference / 2 - r->variance) * share;
  r->last = loss;
  r->count++;
}

/* Look for a further rise once the mean has followed this one. */
static tsr__rise notice(tsr__rising *r, tsr__rise what) {
  r->said++;
  r->high = r->higher = 0;
  r->least_step = 0;
  r->settled = r->count + FOLLOWED;
  return what;
}

tsr__rise tsr__rising_add(tsr__rising *r, uint64_t step, double loss) {
  if (!isfinite(loss)) return TSR__RISE_NONE;
  average(r, loss);
  if (r->said >= SAID_MOST) return TSR__RISE_NONE;
  double margin =
      larger(larger(RISE * fabs(r->least), LEAST_RISE), DEVIATIONS * OF_MEAN * sqrt(r->variance));
  r->higher = loss > r->guessing + ABOVE_GUESSING ? r->higher + 1 : 0;
  r->high = r->least_step && r->mean > r->least + margin ? r->high + 1 : 0;
  if (r->count >= SETTLED && r->count >= r->settled && (!r->least_step || r->mean < r->least)) {
    r->least = r->mean;
    r->least_step = step;
  }
  if (r->higher >= GUESSING_STEPS) {
    tsr__rise what = notice(r, TSR__RISE_ABOVE_GUESSING);
    r->guessing = (double)INFINITY; /* said once */
    return what;
  }
  return r->high >= HIGH_STEPS ? notice(r, TSR__RISE_RISEN) : TSR__RISE_NONE;
}
