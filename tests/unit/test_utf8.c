/* Tests of base/utf8.h and tessera/unstable/terminal.h. (Broken characters are tried in all positions by test_emitter.) */
#include "base/utf8.h"

#include <string.h>

#include "base/error.h"
#include "tessera/unstable/terminal.h"
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

/* Cleaned in place, also where a buffer cut the last character. */
static void check_clean(const char *text, bool keeps_lines, const char *expected) {
  char copy[64];
  size_t size = strlen(text);
  assert_true(size < sizeof copy);
  memcpy(copy, text, size + 1);
  size = tsr_terminal_clean(copy, size, keeps_lines);
  copy[size] = '\0';
  assert_string_equal(copy, expected);
}

static void a_terminal_gets_no_controls(void **state) {
  (void)state;
  check_clean("", false, "");
  check_clean("plain \xC3\xA9 \xF0\x9F\x98\x80", false, "plain \xC3\xA9 \xF0\x9F\x98\x80");
  check_clean("a\x1b[2J\x7f", false, "a?[2J?");
  check_clean("a\nb\tc\rd", false, "a?b?c?d");
  check_clean("a\nb\tc\rd", true, "a\nb\tc?d");
  check_clean("\xC2\x9B"
              "31m\xC2\xA0",
              true, "?31m\xC2\xA0"); /* C1's CSI; a no-break space */
  check_clean("\xE2\x80\xAEgnp\xE2\x81\xA6\xD8\x9C\xE2\x80\x8F", true, "?gnp???"); /* bidi */
  check_clean("\xE2\x80\xA8\xE2\x80\xA9", true, "??");
  check_clean("a\xC2\xAD"
              "b\xE2\x80\x8B\xE2\x81\xA0\xEF\xBB\xBF",
              true, "a?b???"); /* soft hyphen, zero width */
  check_clean("\xF3\xA0\x81\x81\xF3\xA0\x84\x80\xE1\xA0\x8E", true, "???"); /* tags */
  check_clean("\xED\xA0\xBD\x9B\xFFz", true, "???z");
  check_clean("cut \xE2\x82", false, "cut ?");
  for (uint32_t code = 0; code <= 0x10FFFF; code++) {
    char text[TSR__UTF8_BYTES];
    size_t length = tsr__utf8_encode(code, (unsigned char *)text);
    size_t size = tsr_terminal_clean(text, length, false);
    assert_int_equal(size, tsr__code_is_unsafe(code) ? 1 : length);
    assert_true(!tsr__code_is_unsafe(code) || text[0] == '?');
  }
  assert_true(tsr__code_is_unsafe(TSR__CODE_INVALID));
}

/* A message quotes names of a file. */
static void errors_are_clean(void **state) {
  (void)state;
  tsr_error error;
  (void)tsr__fail(&error, TSR_ERROR_FORMAT, 0, "no '%s'", "\xC2\x9B\x1b\xE2\x80\xAEx\xC3\xA9");
  assert_string_equal(error.message, "no '???x\xC3\xA9'");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_character_survives),
      cmocka_unit_test(hexadecimal_digits_are_codes),
      cmocka_unit_test(a_terminal_gets_no_controls),
      cmocka_unit_test(errors_are_clean),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
