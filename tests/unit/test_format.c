/* Tests of base/format.h. */
#include "base/format.h"
#include "test_support.h"

static void sizes(void **state) {
  (void)state;
  const struct {
    uint64_t bytes;
    const char *text;
  } cases[] = {
      {0, "0 B"},
      {512, "512 B"},
      {1023, "1023 B"},
      {1024, "1.0 KiB"},
      {32768, "32.0 KiB"},
      {1024 * 1024 - 1, "1.00 MiB"}, /* never "1024.0 KiB" */
      {1023 * 1024, "1023.0 KiB"},
      {1024 * 1024, "1.00 MiB"},
      {UINT64_C(823415275), "785.27 MiB"},
      {(UINT64_C(1) << 30) - 1, "1.00 GiB"},
      {UINT64_C(19112604467), "17.80 GiB"},
      {UINT64_C(3) << 39, "1.50 TiB"},
      {UINT64_C(1) << 50, "1.00 PiB"},
      {UINT64_MAX, "16.00 EiB"},
  };
  char text[TSR__FORMAT_BYTES];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_string_equal(tsr__format_size(cases[i].bytes, text), cases[i].text);
}

static void counts(void **state) {
  (void)state;
  char text[TSR__FORMAT_BYTES];
  assert_string_equal(tsr__format_count(0, text), "0");
  assert_string_equal(tsr__format_count(999, text), "999");
  assert_string_equal(tsr__format_count(1000, text), "1,000");
  assert_string_equal(tsr__format_count(22331, text), "22,331");
  assert_string_equal(tsr__format_count(123456789, text), "123,456,789");
  assert_string_equal(tsr__format_count(UINT64_MAX, text), "18,446,744,073,709,551,615");
}

static void percents(void **state) {
  (void)state;
  char text[TSR__FORMAT_BYTES];
  assert_string_equal(tsr__format_percent(731, 1000, text), "73.1 %");
  assert_string_equal(tsr__format_percent(0, 5, text), "0.0 %");
  assert_string_equal(tsr__format_percent(5, 5, text), "100.0 %");
  assert_string_equal(tsr__format_percent(5, 0, text), "0.0 %");
  assert_string_equal(tsr__format_percent(UINT64_MAX, UINT64_MAX, text), "100.0 %");
  assert_string_equal(tsr__format_percent(1, 3, text), "33.3 %");
}

static void times(void **state) {
  (void)state;
  char text[TSR__FORMAT_BYTES];
  assert_string_equal(tsr__format_time(0, text), "1970-01-01 00:00:00.000000");
  assert_string_equal(tsr__format_time(-1, text), "1969-12-31 23:59:59.999999");
  assert_string_equal(tsr__format_time(INT64_C(1783866822365713), text),
                      "2026-07-12 14:33:42.365713");
  assert_string_equal(tsr__format_time(INT64_C(951782400000000), text),
                      "2000-02-29 00:00:00.000000");
  assert_string_equal(tsr__format_time(INT64_C(4107542399999999), text),
                      "2100-02-28 23:59:59.999999");
  assert_string_equal(tsr__format_time(INT64_C(4107542400000000), text),
                      "2100-03-01 00:00:00.000000");
}

/* A file may hold any number: the text stays inside its array and ends. */
static void extreme_times_stay_inside(void **state) {
  (void)state;
  char text[TSR__FORMAT_BYTES];
  const int64_t cases[] = {INT64_MIN, INT64_MIN + 1, INT64_MAX};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr__format_time(cases[i], text);
    bool ends = false;
    for (size_t byte = 0; byte < sizeof text; byte++) ends = ends || !text[byte];
    assert_true(ends);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sizes),
      cmocka_unit_test(counts),
      cmocka_unit_test(percents),
      cmocka_unit_test(times),
      cmocka_unit_test(extreme_times_stay_inside),
  };
  return cmocka_run_group_tests_name("format", tests, NULL, NULL);
}
