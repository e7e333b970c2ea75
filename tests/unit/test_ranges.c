/* Tests of base/ranges.h. */
#include "base/ranges.h"

#include "test_support.h"

static uint32_t value_of(const tsr__ranges *ranges, uint32_t range) {
  return range == TSR__RANGE_NONE ? TSR__RANGE_NONE : tsr__ranges_get(ranges, range)->value;
}

static void finds_what_lies_where(void **state) {
  (void)state;
  tsr__ranges ranges;
  tsr__ranges_init(&ranges);
  assert_int_equal(tsr__ranges_around(&ranges, 5), TSR__RANGE_NONE);
  assert_int_equal(tsr__ranges_last(&ranges, 0, 5), TSR__RANGE_NONE);
  uint32_t low = tsr__ranges_add(&ranges, 0, 10, 20, 1);
  uint32_t high = tsr__ranges_add(&ranges, 0, 30, 40, 2);
  assert_null(tsr__ranges_check(&ranges));
  assert_int_equal(ranges.count, 2);
  assert_int_equal(tsr__ranges_around(&ranges, 9), TSR__RANGE_NONE);
  assert_int_equal(tsr__ranges_around(&ranges, 10), low);
  assert_int_equal(tsr__ranges_around(&ranges, 20), TSR__RANGE_NONE);
  assert_int_equal(tsr__ranges_around(&ranges, 39), high);
  assert_int_equal(tsr__ranges_last(&ranges, 0, 29), low);
  assert_int_equal(tsr__ranges_last(&ranges, 0, 30), high);
  assert_int_equal(tsr__ranges_last(&ranges, 0, 9), TSR__RANGE_NONE);
  assert_int_equal(tsr__ranges_first(&ranges, 0, 10), low);
  assert_int_equal(tsr__ranges_first(&ranges, 0, 11), high);
  assert_int_equal(tsr__ranges_first(&ranges, 0, 31), TSR__RANGE_NONE);
  assert_int_equal(tsr__ranges_overlap(&ranges, 0, 10), TSR__RANGE_NONE);
  assert_int_equal(tsr__ranges_overlap(&ranges, 19, 100), low);
  assert_int_equal(tsr__ranges_overlap(&ranges, 20, 31), high);
  assert_int_equal(tsr__ranges_overlap(&ranges, 20, 30), TSR__RANGE_NONE);
  tsr__ranges_move(&ranges, low, 50, UINT64_MAX);
  assert_int_equal(tsr__ranges_around(&ranges, 15), TSR__RANGE_NONE);
  assert_int_equal(value_of(&ranges, tsr__ranges_around(&ranges, UINT64_MAX - 1)), 1);
  tsr__ranges_remove(&ranges, high);
  assert_int_equal(tsr__ranges_first(&ranges, 0, 0), low);
  assert_int_equal(tsr__ranges_add(&ranges, 0, 1, 2, 3), high); /* its index again */
  tsr__ranges_release(&ranges);
}

static void keeps_groups_apart(void **state) {
  (void)state;
  tsr__ranges ranges;
  tsr__ranges_init(&ranges);
  assert_true(tsr__ranges_reserve(&ranges, 3));
  for (uint32_t group = 0; group < 3; group++) (void)tsr__ranges_add(&ranges, group, 10, 20, group);
  assert_null(tsr__ranges_check(&ranges));
  assert_int_equal(value_of(&ranges, tsr__ranges_last(&ranges, 1, 15)), 1);
  assert_int_equal(value_of(&ranges, tsr__ranges_first(&ranges, 2, 0)), 2);
  assert_int_equal(tsr__ranges_last(&ranges, 1, 9), TSR__RANGE_NONE);
  assert_int_equal(tsr__ranges_first(&ranges, 1, 11), TSR__RANGE_NONE);
  assert_int_equal(tsr__ranges_last(&ranges, 7, 15), TSR__RANGE_NONE);
  tsr__ranges_release(&ranges);
}

enum { STEPS = 4000, KEPT = 128, PLACES = 300 };

typedef struct plain {
  uint64_t begin, end;
  uint32_t range;
} plain;

/* What a search through all of them finds. */
static uint32_t search_around(const plain *all, size_t count, uint64_t address) {
  uint64_t begin = 0;
  bool is_found = false;
  for (size_t i = 0; i < count; i++)
    if (all[i].begin <= address && all[i].end > address && (!is_found || all[i].begin > begin)) {
      is_found = true;
      begin = all[i].begin;
    }
  return is_found ? (uint32_t)begin : TSR__RANGE_NONE;
}

static uint32_t search_overlap(const plain *all, size_t count, uint64_t from, uint64_t to) {
  uint32_t begin = TSR__RANGE_NONE;
  for (size_t i = 0; i < count; i++)
    if (all[i].begin < to && all[i].end > from && all[i].begin < begin)
      begin = (uint32_t)all[i].begin;
  return begin;
}

static uint32_t begin_of(const tsr__ranges *ranges, uint32_t range) {
  return range == TSR__RANGE_NONE ? TSR__RANGE_NONE
                                  : (uint32_t)tsr__ranges_get(ranges, range)->begin;
}

/* Overlapping and equal ranges, added, moved and removed at random, against a plain search. */
static void agrees_with_a_search(void **state) {
  (void)state;
  tsr__ranges ranges;
  tsr__ranges_init(&ranges);
  plain all[KEPT];
  size_t count = 0;
  uint64_t random = 88172645463325252u;
  for (int step = 0; step < STEPS; step++) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    uint64_t begin = random % PLACES, end = begin + 1 + (random >> 20) % 40;
    size_t which = count ? (size_t)(random >> 40) % count : 0;
    if (count < KEPT && (random >> 60) % 4 < 2) {
      uint32_t range = tsr__ranges_add(&ranges, 0, begin, end, 0);
      all[count++] = (plain){begin, end, range};
    } else if (count && (random >> 60) % 4 == 2) {
      tsr__ranges_move(&ranges, all[which].range, begin, end);
      all[which] = (plain){begin, end, all[which].range};
    } else if (count) {
      tsr__ranges_remove(&ranges, all[which].range);
      all[which] = all[--count];
    }
    if (step % 50 == 0) assert_null(tsr__ranges_check(&ranges));
    uint64_t at = (random >> 30) % (PLACES + 50), to = at + 1 + (random >> 50) % 9;
    assert_int_equal(begin_of(&ranges, tsr__ranges_around(&ranges, at)),
                     search_around(all, count, at));
    assert_int_equal(begin_of(&ranges, tsr__ranges_overlap(&ranges, at, to)),
                     search_overlap(all, count, at, to));
  }
  tsr__ranges_release(&ranges);
}

/* Orders that would make a plain tree a list. */
static void stays_flat(void **state) {
  (void)state;
  tsr__ranges ranges;
  tsr__ranges_init(&ranges);
  for (uint64_t i = 0; i < 200000; i++)
    assert_int_not_equal(tsr__ranges_add(&ranges, 0, i * 512, i * 512 + 512, (uint32_t)i),
                         TSR__RANGE_NONE);
  assert_null(tsr__ranges_check(&ranges));
  for (uint64_t i = 0; i < 200000; i++)
    assert_int_equal(value_of(&ranges, tsr__ranges_around(&ranges, i * 512 + 511)), i);
  for (uint32_t i = 0; i < 200000; i++) tsr__ranges_remove(&ranges, i);
  assert_int_equal(ranges.count, 0);
  assert_int_equal(ranges.root, TSR__RANGE_NONE);
  tsr__ranges_release(&ranges);
}

/* A million pieces of expandable memory that come and go in no order: every search is a short walk, and
 * finds what it should. */
static void is_flat_when_scattered(void **state) {
  (void)state;
  enum { COUNT = 1 << 20, STRIDE = 524287 /* odd: all indexes, scattered */ };
  tsr__ranges ranges;
  tsr__ranges_init(&ranges);
  for (uint64_t i = 0; i < COUNT; i++) {
    uint64_t k = i * STRIDE % COUNT;
    assert_int_not_equal(tsr__ranges_add(&ranges, 0, 4 * k + 2, 4 * k + 4, (uint32_t)k),
                         TSR__RANGE_NONE);
  }
  assert_true(tsr__ranges_depth(&ranges) <= 4 * 20);
  for (uint64_t i = 0; i < COUNT; i += 7) {
    assert_int_equal(value_of(&ranges, tsr__ranges_ending_after(&ranges, 4 * i)), i);
    assert_int_equal(value_of(&ranges, tsr__ranges_ending_after(&ranges, 4 * i + 3)), i);
  }
  assert_int_equal(tsr__ranges_ending_after(&ranges, UINT64_C(4) * COUNT), TSR__RANGE_NONE);
  for (uint32_t i = 0; i < COUNT; i += 2) tsr__ranges_remove(&ranges, i);
  assert_true(tsr__ranges_depth(&ranges) <= 4 * 20);
  assert_null(tsr__ranges_check(&ranges));
  tsr__ranges_release(&ranges);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(finds_what_lies_where),  cmocka_unit_test(keeps_groups_apart),
      cmocka_unit_test(agrees_with_a_search),   cmocka_unit_test(stays_flat),
      cmocka_unit_test(is_flat_when_scattered),
  };
  return cmocka_run_group_tests_name("ranges", tests, NULL, NULL);
}
