/* rising.h - notices losses that rise, which a run is better ended for.
 *
 * The mean of about the last twenty losses is compared with its least value so far. It has risen if it is above that by a tenth, and by more
 * than noise explains, for 25 steps in a row. The noise is estimated from differences of neighbouring losses, so that a trend
 * does not count as noise. A loss above that of guessing, the logarithm of the vocabulary, is noticed after 10 steps in a row. */
#ifndef TSR_TRAIN_RISING_H
#define TSR_TRAIN_RISING_H

#include <stdint.h>

typedef enum tsr__rise { TSR__RISE_NONE, TSR__RISE_RISEN, TSR__RISE_ABOVE_GUESSING } tsr__rise;

/* Zeroed at first, but for `guessing`. */
typedef struct tsr__rising {
  double guessing;       /* the loss of a model that knows nothing */
  double mean, variance; /* of the last losses; the variance is that of one loss */
  double last;           /* loss */
  double least;          /* mean, */
  uint64_t least_step;   /* and when */
  uint64_t count;        /* of losses */
  uint64_t settled;      /* the number of losses before a least mean is looked for */
  uint64_t high, higher; /* steps in a row above the least mean, and above guessing */
  unsigned said;         /* how often something was noticed */
} tsr__rising;

/* Add the loss of a step. What it notices is returned once, and at most three times in a run, guessing once. Sixty steps
 * later a least value is looked for again, so that only a further rise is noticed. Losses that are not finite are ignored. */
tsr__rise tsr__rising_add(tsr__rising *rising, uint64_t step, double loss);

#endif
