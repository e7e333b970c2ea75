/* Tests of base/buffer.h. */
#include <string.h>

#include "base/buffer.h"
#include "test_support.h"

static void builds_text(void **state) {
  (void)state;
  tsr__buffer buffer = {0};
  tsr__buffer_text(&buffer, "peak ");
  tsr__buffer_printf(&buffer, "%d of %s", 3, "8");
  tsr__buffer_fill(&buffer, '.', 4);
  tsr__buffer_append(&buffer, "a\0b", 3);
  assert_int_equal(buffer.size, 18);
  assert_memory_equal(buffer.data, "peak 3 of 8....a\0b", 18);
  assert_false(buffer.failed);
  tsr__buffer_release(&buffer);
}

static void nothing_appended_is_nothing(void **state) {
  (void)state;
  tsr__buffer buffer = {0};
  tsr__buffer_append(&buffer, NULL, 0);
  tsr__buffer_text(&buffer, "");
  tsr__buffer_fill(&buffer, 'x', 0);
  tsr__buffer_printf(&buffer, "%s", "");
  assert_int_equal(buffer.size, 0);
  assert_false(buffer.failed);
  tsr__buffer_release(&buffer);
}

static void grows(void **state) {
  (void)state;
  tsr__buffer buffer = {0};
  for (int i = 0; i < 10000; i++) tsr__buffer_printf(&buffer, "%05d", i);
  assert_int_equal(buffer.size, 50000);
  assert_memory_equal(buffer.data + 5 * 1234, "01234", 5);
  tsr__buffer_release(&buffer);
}

/* After a failure the text stays the prefix it was. */
static void failure_sticks(void **state) {
  (void)state;
  tsr__buffer buffer = {0};
  tsr__buffer_text(&buffer, "kept");
  tsr__buffer_fill(&buffer, 'x', SIZE_MAX / 2);
  assert_true(buffer.failed);
  tsr__buffer_text(&buffer, " lost");
  tsr__buffer_printf(&buffer, "%d", 1);
  tsr__buffer_fill(&buffer, 'x', 1);
  assert_true(buffer.failed);
  assert_int_equal(buffer.size, 4);
  assert_memory_equal(buffer.data, "kept", 4);
  tsr__buffer_release(&buffer);
}

static void release_empties(void **state) {
  (void)state;
  tsr__buffer buffer = {0};
  tsr__buffer_release(&buffer);
  tsr__buffer_text(&buffer, "a");
  tsr__buffer_release(&buffer);
  assert_null(buffer.data);
  assert_int_equal(buffer.size, 0);
  assert_int_equal(buffer.capacity, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(builds_text),     cmocka_unit_test(nothing_appended_is_nothing),
      cmocka_unit_test(grows),           cmocka_unit_test(failure_sticks),
      cmocka_unit_test(release_empties),
  };
  return cmocka_run_group_tests_name("buffer", tests, NULL, NULL);
}
