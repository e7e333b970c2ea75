/* The highest place of any range, against looking at every place. */
#include "timeline/peak_tree.h"

#include "base/memory.h"
#include "test_support.h"

static size_t look(const tsr_totals *series, size_t first, size_t last) {
  size_t best = first;
  for (size_t i = first; i <= last; i++)
    if (series[i].allocated_bytes > series[best].allocated_bytes) best = i;
  return best;
}

static uint64_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

static void check(size_t count, uint64_t values, uint64_t *state) {
  tsr_totals *series = TSR__NEW_ARRAY(tsr_totals, count);
  tsr__peak_tree tree = {0};
  assert_non_null(series);
  for (size_t i = 0; i < count; i++) series[i].allocated_bytes = next_random(state) % values;
  assert_true(tsr__peak_tree_init(&tree, series, count));
  for (size_t i = 0; i < 500; i++) {
    size_t a = (size_t)next_random(state) % count, b = (size_t)next_random(state) % count;
    size_t first = a < b ? a : b, last = a < b ? b : a;
    assert_int_equal(tsr__peak_tree_highest(&tree, first, last), look(series, first, last));
  }
  assert_int_equal(tsr__peak_tree_highest(&tree, 0, count - 1), look(series, 0, count - 1));
  tsr__peak_tree_release(&tree);
  tsr__free(series);
}

/* Sizes around the fan and its powers; few values, so that ties are common, and many. */
static void finds_the_first_highest(void **state) {
  static const size_t counts[] = {1, 2, 15, 16, 17, 31, 32, 255, 256, 257, 4095, 4097, 70000};
  uint64_t seed = 1;
  (void)state;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    check(counts[i], 3, &seed);
    check(counts[i], UINT32_MAX, &seed);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(finds_the_first_highest)};
  return cmocka_run_group_tests_name("peak_tree", tests, NULL, NULL);
}
