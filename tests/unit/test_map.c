/* Tests of base/map.h. */
#include "base/map.h"
#include "test_support.h"

static void puts_and_finds(void **state) {
  (void)state;
  tsr__map map = {0};
  assert_null(tsr__map_find(&map, 7));
  bool added = false;
  uint64_t *value = tsr__map_put(&map, 7, 70, &added);
  assert_non_null(value);
  assert_true(added);
  assert_int_equal(*value, 70);
  *value = 71;
  value = tsr__map_put(&map, 7, 99, &added);
  assert_false(added);
  assert_int_equal(*value, 71);
  assert_ptr_equal(tsr__map_find(&map, 7), value);
  assert_null(tsr__map_find(&map, 8));
  assert_int_equal(map.count, 1);
  tsr__map_release(&map);
}

/* Addresses as a GPU hands them out: far apart, low bits zero. */
static void survives_growth(void **state) {
  (void)state;
  enum { KEYS = 50000 };
  tsr__map map = {0};
  for (uint64_t i = 0; i < KEYS; i++) {
    bool added = false;
    assert_non_null(tsr__map_put(&map, UINT64_C(0x7f0000000000) + i * 512, i, &added));
    assert_true(added);
  }
  assert_int_equal(map.count, KEYS);
  assert_true(map.count <= (map.mask + 1) / 8 * 5);
  for (uint64_t i = 0; i < KEYS; i++) {
    uint64_t *value = tsr__map_find(&map, UINT64_C(0x7f0000000000) + i * 512);
    assert_non_null(value);
    assert_int_equal(*value, i);
    assert_null(tsr__map_find(&map, UINT64_C(0x7f0000000000) + i * 512 + 1));
  }
  tsr__map_release(&map);
}

/* The key that marks empty slots is a key like any other. */
static void reserved_key_is_a_key(void **state) {
  (void)state;
  tsr__map map = {0};
  assert_null(tsr__map_find(&map, TSR__MAP_EMPTY));
  bool added = false;
  assert_int_equal(*tsr__map_put(&map, TSR__MAP_EMPTY, 5, &added), 5);
  assert_true(added);
  assert_int_equal(*tsr__map_put(&map, TSR__MAP_EMPTY, 6, &added), 5);
  assert_false(added);
  assert_int_equal(*tsr__map_find(&map, TSR__MAP_EMPTY), 5);
  assert_int_equal(map.count, 0);
  assert_non_null(tsr__map_put(&map, 0, 1, NULL));
  assert_int_equal(*tsr__map_find(&map, TSR__MAP_EMPTY), 5);
  assert_int_equal(*tsr__map_find(&map, 0), 1);
  tsr__map_release(&map);
}

/* At the bound of fullness a present key is found, not grown for. */
static void full_table_grows_for_new_keys_only(void **state) {
  (void)state;
  tsr__map map = {0};
  uint64_t key = 0;
  do assert_non_null(tsr__map_put(&map, key, key, NULL));
  while (++key < (map.mask + 1) / 8 * 5);
  size_t mask = map.mask;
  assert_int_equal(*tsr__map_put(&map, 3, 99, NULL), 3);
  assert_int_equal(map.mask, mask);
  assert_non_null(tsr__map_put(&map, key, key, NULL));
  assert_int_equal(map.mask, mask * 2 + 1);
  tsr__map_release(&map);
}

static void release_empties(void **state) {
  (void)state;
  tsr__map map = {0};
  tsr__map_release(&map);
  assert_non_null(tsr__map_put(&map, 1, 1, NULL));
  assert_non_null(tsr__map_put(&map, TSR__MAP_EMPTY, 1, NULL));
  tsr__map_release(&map);
  assert_int_equal(map.count, 0);
  assert_null(tsr__map_find(&map, 1));
  assert_null(tsr__map_find(&map, TSR__MAP_EMPTY));
}

/* The key whose unseeded hash is `hash`: both steps of tsr__hash_u64 can be undone. */
static uint64_t key_of_hash(uint64_t hash) {
  const uint64_t factor = UINT64_C(0xd6e8feb86659fd93);
  uint64_t inverse = factor; /* Newton's iteration doubles the right bits */
  for (int i = 0; i < 6; i++) inverse *= 2 - factor * inverse;
  for (int i = 0; i < 2; i++) {
    hash ^= hash >> 32;
    hash *= inverse;
  }
  return hash ^ hash >> 32;
}

/* A file can choose its keys so that all would begin at one slot; it does not know the seed. */
static void chosen_keys_spread(void **state) {
  (void)state;
  enum { KEYS = 4096 };
  tsr__map map = {0};
  bool seen[KEYS] = {false};
  size_t homes = 0;
  for (uint64_t i = 1; i <= KEYS; i++) {
    uint64_t key = key_of_hash(i << 32);
    assert_true(tsr__hash_u64(key) == i << 32);
    assert_non_null(tsr__map_put(&map, key, i, NULL));
  }
  for (uint64_t i = 1; i <= KEYS; i++) {
    size_t home = tsr__map_home(&map, key_of_hash(i << 32)) % KEYS;
    homes += !seen[home];
    seen[home] = true;
    assert_int_equal(*tsr__map_find(&map, key_of_hash(i << 32)), i);
  }
  assert_true(homes > KEYS / 2); /* about 63 of 100 at random */
  tsr__map_release(&map);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(puts_and_finds),        cmocka_unit_test(survives_growth),
      cmocka_unit_test(reserved_key_is_a_key), cmocka_unit_test(full_table_grows_for_new_keys_only),
      cmocka_unit_test(release_empties),       cmocka_unit_test(chosen_keys_spread),
  };
  return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}
