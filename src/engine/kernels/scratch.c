/* scratch.c - see scratch.h. */
#include "kernels/scratch.h"

#include <assert.h>

#include "base/checked.h"

enum { MOST_THREADS = 512, WARP = 32, LEAST_VALUES = 16, MOST_VALUES = 256 };

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static uint64_t divide_up(uint64_t a, uint64_t b) {
  return a / b + (a % b != 0);
}

/* The largest power of two that is not larger than n or `most`, which is one. */
static uint64_t power_of_two(uint64_t n, uint64_t most) {
  uint64_t power = 1;
  while (power < most && 2 * power <= n) power *= 2;
  return power;
}

void tsr__scratch_reduction(const tsr__reduced *r, uint64_t *numbers, uint64_t *semaphores) {
  assert(r && numbers && semaphores);
  *numbers = *semaphores = 0;
  bool is_along = r->inputs_at_once != 0; /* threads side by side share an output */
  uint64_t at_once = is_along ? 1 : r->outputs_at_once;
  if (!r->outputs || !r->inputs || !at_once || at_once > 4 || !r->threads || !r->processors) return;
  uint64_t across = is_along ? r->inputs / r->inputs_at_once : r->outputs / at_once;
  uint64_t most = MOST_THREADS / at_once;
  uint64_t columns = power_of_two(across, most);
  uint64_t rows = power_of_two(is_along ? r->outputs : r->inputs, most);
  uint64_t width = least(columns, WARP), height = least(rows, most / width);
  width = least(columns, most / height);

  uint64_t values = is_along ? divide_up(r->inputs, width) : r->inputs; /* of each thread */
  bool is_split = values >= least(height * LEAST_VALUES, MOST_VALUES);  /* by rows of threads */
  if (!is_split) return;
  values = divide_up(r->inputs, is_along ? width * height : height);
  uint64_t grid = divide_up(r->outputs / at_once, is_along ? 1 : width);
  uint64_t target = tsr__product_u64(r->processors, r->threads / (width * height));
  if (values < MOST_VALUES || grid > target) return;
  uint64_t blocks = least(divide_up(target, grid), divide_up(values, LEAST_VALUES));
  if (blocks < divide_up(values, MOST_VALUES)) blocks = divide_up(values, MOST_VALUES);
  if (blocks < 2) return;
  *numbers = tsr__product_u64(tsr__product_u64(r->outputs, blocks), is_along ? 1 : width * at_once);
  *semaphores = grid;
}
