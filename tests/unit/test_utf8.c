/* Tests of base/utf8.h. (Broken characters are tried in all positions by test_emitter.) */
#include "base/utf8.h"

#include <string.h>

#include "test_support.h"

static void every_character_survives(void **state) {
  (void)state;
  for (uint32_t code = 0; code <= 0x10FFFF; code++) {
    unsigned char bytes[TSR__UTF8_BYTES];
    uint32_t decoded = 0;
    size_t length = tsr__utf8_encode(code, bytes);
    assert_int_equal(tsr__utf8_decode((const char *)bytes, length, &decoded), length);
    assert_int_equal(decoded, code);
    if (length > 1) {
      (void)tsr__utf8_decode((const char *)bytes, length - 1, &decoded);
      assert_int_equal(decoded, TSR__CODE_INVALID);
    }
  }
}

static uint32_t hex(const char *digits, size_t count) {
  return tsr__hex_code((const unsigned char *)digits, strlen(digits), count);
}

static void hexadecimal_digits_are_codes(void **state) {
  (void)state;
  assert_int_equal(hex("00e9", 4), 0xE9);
  assert_int_equal(hex("FfFf", 4), 0xFFFF);
  assert_int_equal(hex("0010ffff", 8), 0x10FFFF);
  assert_int_equal(hex("00110000", 8), TSR__CODE_INVALID);
  assert_int_equal(hex("ffffffff", 8), TSR__CODE_INVALID);
  assert_int_equal(hex("41", 2), 'A');
  assert_int_equal(hex("4", 2), TSR__CODE_INVALID);
  assert_int_equal(hex("g0", 2), TSR__CODE_INVALID);
  assert_int_equal(hex("\x10\x11", 2), TSR__CODE_INVALID);
  assert_int_equal(hex("@`", 2), TSR__CODE_INVALID);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_character_survives),
      cmocka_unit_test(hexadecimal_digits_are_codes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
