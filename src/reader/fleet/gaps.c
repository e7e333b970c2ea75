/* gaps.c - see gaps.h. */
#include "fleet/gaps.h"

#include <math.h>

#include "base/sort.h"

/* How likely equal numbers may seem to have an outlier, if they were spread evenly: one in ten thousand. */
#define TRUST_EXPONENT 4.0
#define LEAST_FACTOR   1.5

/* With n numbers spread evenly, the chance that the largest gap at the top is k times the rest is (1 / (1 + k))^(n - 2). */
static double factor_of(size_t count) {
  if (count < 3) return INFINITY;
  double factor = pow(10, TRUST_EXPONENT / (double)(count - 2)) - 1;
  return factor > LEAST_FACTOR ? factor : LEAST_FACTOR;
}

/* How many different numbers there are, sorted: ranks with the same data are one sample. */
static size_t count_different(const uint64_t *values, size_t listed, size_t count) {
  size_t different = listed < count;
  for (size_t i = 0; i < listed; i++) different += i + 1 == listed || values[i] != values[i + 1];
  return different;
}

size_t tsr__apart(const uint64_t *values, size_t listed, size_t count, size_t most,
                  bool *is_exact) {
  size_t different = count_different(values, listed, count);
  uint64_t least = listed < count ? 0 : values[listed - 1];
  for (size_t k = 1; k <= most && k <= listed && count - k >= TSR__LEAST_EQUALS - 1; k++) {
    uint64_t next = k < listed ? values[k] : 0;
    double gap = (double)(values[k - 1] - next), spread = (double)(next - least);
    *is_exact = next == least;
    bool is_double = gap >= (double)next && spread * 2 <= (double)next;
    if (gap > 0 && (*is_exact || is_double || gap > factor_of(different) * spread)) return k;
  }
  return 0;
}

static int compare_reals(const void *a, const void *b) {
  const double *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

void tsr__sort_reals(double *values, size_t count) {
  tsr__sort(values, count, sizeof *values, compare_reals);
}
