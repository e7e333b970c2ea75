/* Tests of base/error.h and tessera/status.h. */
#include <string.h>

#include "base/error.h"
#include "test_support.h"

static void fills_in(void **state) {
  (void)state;
  tsr_error error;
  assert_int_equal(tsr__fail(&error, TSR_ERROR_FORMAT, 17, "opcode 0x%02x", 0xff),
                   TSR_ERROR_FORMAT);
  assert_int_equal(error.status, TSR_ERROR_FORMAT);
  assert_int_equal(error.offset, 17);
  assert_string_equal(error.message, "opcode 0xff");
}

static void nobody_need_listen(void **state) {
  (void)state;
  assert_int_equal(tsr__fail(NULL, TSR_ERROR_IO, 0, "%s", "x"), TSR_ERROR_IO);
  assert_int_equal(tsr__fail_memory(NULL), TSR_ERROR_MEMORY);
}

static void memory_has_no_offset(void **state) {
  (void)state;
  tsr_error error;
  assert_int_equal(tsr__fail_memory(&error), TSR_ERROR_MEMORY);
  assert_int_equal(error.status, TSR_ERROR_MEMORY);
  assert_true(error.offset == TSR_OFFSET_NONE);
  assert_string_equal(error.message, "out of memory");
}

/* Names in a message come from the file: a terminal must not act on them. */
static void control_characters_go(void **state) {
  (void)state;
  tsr_error error;
  tsr__fail(&error, TSR_ERROR_FORMAT, 0, "%s",
            "a\x1b[2Jb\nc\x7f"
            "d\xc3\xa9");
  assert_string_equal(error.message, "a?[2Jb?c?d\xc3\xa9");
}

static void long_messages_are_cut(void **state) {
  (void)state;
  char text[1000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = 0;
  tsr_error error;
  tsr__fail(&error, TSR_ERROR_FORMAT, 0, "%s", text);
  assert_int_equal(strlen(error.message), sizeof error.message - 1);
}

static void every_status_has_its_words(void **state) {
  (void)state;
  for (int status = TSR_OK; status >= TSR_ERROR_TYPE; status--) {
    assert_string_not_equal(tsr_status_text((tsr_status)status), "unknown status");
    for (int other = TSR_OK; other > status; other--)
      assert_string_not_equal(tsr_status_text((tsr_status)status),
                              tsr_status_text((tsr_status)other));
  }
  assert_string_equal(tsr_status_text((tsr_status)-1000), "unknown status");
  assert_string_equal(tsr_status_text((tsr_status)1), "unknown status");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fills_in),
      cmocka_unit_test(nobody_need_listen),
      cmocka_unit_test(memory_has_no_offset),
      cmocka_unit_test(control_characters_go),
      cmocka_unit_test(long_messages_are_cut),
      cmocka_unit_test(every_status_has_its_words),
  };
  return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
