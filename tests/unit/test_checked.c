/* Tests of base/checked.h and base/hash.h. */
#include <string.h>

#include "base/checked.h"
#include "base/hash.h"
#include "test_support.h"

static void adds(void **state) {
  (void)state;
  uint64_t sum = 1;
  assert_true(tsr__add_u64(2, 3, &sum));
  assert_int_equal(sum, 5);
  assert_true(tsr__add_u64(UINT64_MAX - 1, 1, &sum));
  assert_true(sum == UINT64_MAX);
  assert_false(tsr__add_u64(UINT64_MAX, 1, &sum));
  assert_false(tsr__add_u64(1, UINT64_MAX, &sum));
  assert_true(sum == UINT64_MAX); /* left alone */
}

static void multiplies(void **state) {
  (void)state;
  size_t product = 1;
  assert_true(tsr__mul_size(6, 7, &product));
  assert_int_equal(product, 42);
  assert_true(tsr__mul_size(SIZE_MAX, 0, &product));
  assert_true(tsr__mul_size(0, SIZE_MAX, &product));
  assert_int_equal(product, 0);
  assert_true(tsr__mul_size(SIZE_MAX, 1, &product));
  assert_true(product == SIZE_MAX);
  assert_false(tsr__mul_size(SIZE_MAX / 2 + 1, 2, &product));
  assert_false(tsr__mul_size(2, SIZE_MAX / 2 + 1, &product));
  assert_true(product == SIZE_MAX); /* left alone */
}

static void sums_and_drops_saturate(void **state) {
  (void)state;
  assert_int_equal(tsr__sum_u64(2, 3), 5);
  assert_true(tsr__sum_u64(UINT64_MAX, 1) == UINT64_MAX);
  assert_true(tsr__sum_u64(UINT64_MAX - 1, 1) == UINT64_MAX);
  assert_int_equal(tsr__drop_u64(5, 3), 2);
  assert_int_equal(tsr__drop_u64(3, 5), 0);
  assert_int_equal(tsr__drop_u64(3, 3), 0);
}

/* Every byte counts, wherever the data lies; lengths that share a prefix differ. */
static void hash_sees_every_byte(void **state) {
  (void)state;
  unsigned char data[40], shifted[41];
  for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 37);
  memcpy(shifted + 1, data, sizeof data);
  for (size_t size = 0; size <= sizeof data; size++) {
    uint64_t hash = tsr__hash_bytes(data, size, 0);
    assert_true(hash == tsr__hash_bytes(shifted + 1, size, 0));
    if (size) assert_true(hash != tsr__hash_bytes(data, size - 1, 0));
    for (size_t i = 0; i < size; i++) {
      data[i] ^= 1;
      assert_true(hash != tsr__hash_bytes(data, size, 0));
      data[i] ^= 1;
    }
  }
}

/* Tables use the low bits: keys that differ only above must still spread. */
static void hash_spreads_high_bits(void **state) {
  (void)state;
  unsigned seen[256] = {0}, fullest = 0;
  for (uint64_t i = 0; i < 256 * 16; i++) {
    unsigned slot = (unsigned)(tsr__hash_u64(i << 40) & 255);
    if (++seen[slot] > fullest) fullest = seen[slot];
  }
  assert_true(fullest < 64); /* 16 on average */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adds),
      cmocka_unit_test(multiplies),
      cmocka_unit_test(sums_and_drops_saturate),
      cmocka_unit_test(hash_sees_every_byte),
      cmocka_unit_test(hash_spreads_high_bits),
  };
  return cmocka_run_group_tests_name("checked", tests, NULL, NULL);
}
