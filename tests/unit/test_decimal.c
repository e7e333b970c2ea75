/* Tests of base/decimal.h. */
#include "base/decimal.h"

#include <stdint.h>
#include <string.h>

#include "test_support.h"

/* Both ways. */
static void assert_spells(const char *expected, const void *bytes, size_t size) {
  char text[TSR__DECIMAL_TEXT];
  unsigned char back[TSR__DECIMAL_BYTES];
  size_t length = tsr__decimal_of_bytes(bytes, size, text);
  assert_int_equal(length, strlen(expected));
  assert_memory_equal(text, expected, length);
  assert_int_equal(tsr__bytes_of_decimal(text, length, back), size);
  assert_memory_equal(back, bytes, size);
}

#define SPELLS(expected, bytes) assert_spells(expected, bytes, sizeof(bytes) - 1)

static void known_numbers(void **state) {
  (void)state;
  SPELLS("0", "\0");
  SPELLS("127", "\x7f");
  SPELLS("128", "\x80\0");
  SPELLS("-1", "\xff");
  SPELLS("-128", "\x80");
  SPELLS("-129", "\x7f\xff");
  SPELLS("1000000000", "\x00\xca\x9a\x3b");
  SPELLS("18446744073709551616", "\0\0\0\0\0\0\0\0\1");
  SPELLS("-18446744073709551616", "\0\0\0\0\0\0\0\0\xff");
  SPELLS("1180591620717411303424", "\0\0\0\0\0\0\0\0\x40");
}

static void superfluous_bytes_go(void **state) {
  unsigned char back[TSR__DECIMAL_BYTES];
  char text[TSR__DECIMAL_TEXT];
  (void)state;
  assert_int_equal(tsr__decimal_of_bytes((const unsigned char *)"\x05\0\0\0\0", 5, text), 1);
  assert_int_equal(text[0], '5');
  assert_int_equal(tsr__bytes_of_decimal("0000000000000000000005", 22, back), 1);
  assert_int_equal(back[0], 5);
}

/* What has as many digits as there is room for fits the bytes; more is refused. */
static void the_longest(void **state) {
  unsigned char bytes[TSR__DECIMAL_BYTES + 1], back[TSR__DECIMAL_BYTES];
  char text[TSR__DECIMAL_TEXT + 9], again[TSR__DECIMAL_TEXT];
  (void)state;
  memset(text, '9', sizeof text);
  for (int sign = 0; sign < 2; sign++) {
    if (sign) text[0] = '-';
    size_t size = tsr__bytes_of_decimal(text, TSR__DECIMAL_DIGITS + (size_t)sign, back);
    assert_int_equal(size, 255);
    assert_int_equal(tsr__decimal_of_bytes(back, size, again), TSR__DECIMAL_DIGITS + sign);
    assert_memory_equal(again, text, TSR__DECIMAL_DIGITS + (size_t)sign);
  }
  assert_int_equal(tsr__bytes_of_decimal(text, sizeof text, back), 0);
  memset(bytes, 0xff, sizeof bytes);
  bytes[TSR__DECIMAL_BYTES - 1] = 0x7f;
  assert_int_equal(tsr__decimal_of_bytes(bytes, TSR__DECIMAL_BYTES, again), 0);
  assert_int_equal(tsr__decimal_of_bytes(bytes, TSR__DECIMAL_BYTES + 1, again), 0);
}

static void all_lengths_survive(void **state) {
  unsigned char bytes[254], back[TSR__DECIMAL_BYTES];
  char text[TSR__DECIMAL_TEXT];
  uint32_t random = 1;
  (void)state;
  for (size_t size = 1; size <= sizeof bytes; size++)
    for (int sign = 0; sign < 2; sign++) {
      for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)((random = random * 1664525 + 1013904223) >> 24);
      bytes[size - 1] = sign ? 0x9a : 0x6a;
      size_t length = tsr__decimal_of_bytes(bytes, size, text);
      assert_int_equal(text[0] == '-', sign);
      assert_int_equal(tsr__bytes_of_decimal(text, length, back), size);
      assert_memory_equal(back, bytes, size);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_numbers),
      cmocka_unit_test(superfluous_bytes_go),
      cmocka_unit_test(the_longest),
      cmocka_unit_test(all_lengths_survive),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
