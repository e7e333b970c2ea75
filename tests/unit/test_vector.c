/* Tests of base/vector.h and base/memory.h. */
#include "base/vector.h"
#include "test_support.h"

static void pushes(void **state) {
  (void)state;
  TSR__VECTOR(uint32_t) ids = {0};
  for (uint32_t i = 0; i < 10000; i++) {
    assert_true(TSR__VECTOR_PUSH(&ids, i * 3));
    assert_true(ids.count <= ids.capacity);
  }
  assert_int_equal(ids.count, 10000);
  for (uint32_t i = 0; i < 10000; i++) assert_int_equal(ids.items[i], i * 3);
  TSR__VECTOR_FREE(&ids);
  assert_null(ids.items);
  assert_int_equal(ids.count, 0);
  assert_int_equal(ids.capacity, 0);
}

static void pushes_structs_with_commas(void **state) {
  (void)state;
  typedef struct pair {
    int first, second;
  } pair;
  TSR__VECTOR(pair) pairs = {0};
  assert_true(TSR__VECTOR_PUSH(&pairs, (pair){1, 2}));
  assert_int_equal(pairs.items[0].second, 2);
  TSR__VECTOR_FREE(&pairs);
}

static void reserve_makes_room(void **state) {
  (void)state;
  TSR__VECTOR(uint64_t) sizes = {0};
  assert_true(TSR__VECTOR_RESERVE(&sizes, 0));
  assert_int_equal(sizes.capacity, 0);
  assert_true(TSR__VECTOR_RESERVE(&sizes, 1000));
  assert_true(sizes.capacity >= 1000);
  uint64_t *items = sizes.items;
  for (uint64_t i = 0; i < 1000; i++) assert_true(TSR__VECTOR_PUSH(&sizes, i));
  assert_ptr_equal(sizes.items, items);
  TSR__VECTOR_FREE(&sizes);
}

static void impossible_reserve_changes_nothing(void **state) {
  (void)state;
  TSR__VECTOR(uint64_t) sizes = {0};
  assert_true(TSR__VECTOR_PUSH(&sizes, 42));
  size_t capacity = sizes.capacity;
  assert_false(TSR__VECTOR_RESERVE(&sizes, SIZE_MAX));
  assert_false(TSR__VECTOR_RESERVE(&sizes, SIZE_MAX / sizeof(uint64_t)));
  assert_int_equal(sizes.capacity, capacity);
  assert_int_equal(sizes.items[0], 42);
  TSR__VECTOR_FREE(&sizes);
}

static void growth_saturates(void **state) {
  (void)state;
  assert_true(tsr__vector_growth(0, 1) >= 1);
  assert_int_equal(tsr__vector_growth(10, 1000), 1000);
  assert_int_equal(tsr__vector_growth(1000, 1001), 1516);
  assert_int_equal(tsr__vector_growth(SIZE_MAX - 1, SIZE_MAX), SIZE_MAX);
}

static void memory_is_zeroed_and_checked(void **state) {
  (void)state;
  uint64_t *values = TSR__NEW_ARRAY(uint64_t, 100);
  assert_non_null(values);
  for (int i = 0; i < 100; i++) assert_int_equal(values[i], 0);
  assert_null(tsr__calloc(SIZE_MAX / 2, 4));
  assert_null(tsr__realloc(values, SIZE_MAX / 2, 4));
  values[99] = 9; /* still ours */
  values = tsr__realloc(values, 200, sizeof *values);
  assert_non_null(values);
  assert_int_equal(values[99], 9);
  tsr__free(values);
  tsr__free(NULL);
}

static void no_items_is_not_out_of_memory(void **state) {
  (void)state;
  void *none = tsr__calloc(0, 8);
  assert_non_null(none);
  none = tsr__realloc(none, 0, 8);
  assert_non_null(none);
  tsr__free(none);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pushes),
      cmocka_unit_test(pushes_structs_with_commas),
      cmocka_unit_test(reserve_makes_room),
      cmocka_unit_test(impossible_reserve_changes_nothing),
      cmocka_unit_test(growth_saturates),
      cmocka_unit_test(memory_is_zeroed_and_checked),
      cmocka_unit_test(no_items_is_not_out_of_memory),
  };
  return cmocka_run_group_tests_name("vector", tests, NULL, NULL);
}
