/* Tests of base/python_text.h. What is expected is what CPython 3.11 prints. */
#include "base/python_text.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "test_support.h"

static void assert_float(double value, const char *expected) {
  char text[TSR__PYTHON_FLOAT_BYTES];
  assert_string_equal(tsr__python_float(value, text), expected);
}

static void floats_of_every_size(void) {
  assert_float(0.0, "0.0");
  assert_float(-0.0, "-0.0");
  assert_float(1, "1.0");
  assert_float(-1.5, "-1.5");
  assert_float(100, "100.0");
  assert_float(0.1, "0.1");
  assert_float(1.0 / 3, "0.3333333333333333");
  assert_float(0.1 + 0.2, "0.30000000000000004");
  assert_float(17.7987594678998, "17.7987594678998");
  assert_float(1e15, "1000000000000000.0");
  assert_float(9999999999999998, "9999999999999998.0");
  assert_float(1e16, "1e+16");
  assert_float(123456789012345678.0, "1.2345678901234568e+17");
  assert_float(1e22, "1e+22");
  assert_float(1e23, "1e+23");
  assert_float(0.0001, "0.0001");
  assert_float(0.00012345, "0.00012345");
  assert_float(0.00001, "1e-05");
  assert_float(8.106231689453125e-06, "8.106231689453125e-06");
  assert_float(1.5e300, "1.5e+300");
  assert_float(DBL_MAX, "1.7976931348623157e+308");
  assert_float(-DBL_MIN, "-2.2250738585072014e-308");
  assert_float(5e-324, "5e-324");
}

static void floats_are_the_shortest(void **state) {
  (void)state;
  floats_of_every_size();
  assert_float(INFINITY, "inf");
  assert_float(-INFINITY, "-inf");
  assert_float(NAN, "nan");
}

/* The nearest 16 digits of these are read as the neighbour below. */
static void powers_of_two_round_up(void **state) {
  (void)state;
  assert_float(ldexp(1, -44), "5.684341886080802e-14");
  assert_float(ldexp(1, 89), "6.189700196426902e+26");
  assert_float(ldexp(1, -1074 + 52), "2.2250738585072014e-308");
}

/* Whatever the program's locale; those that are not installed cannot be tried. */
static void the_locale_does_not_matter(void **state) {
  (void)state;
  static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (setlocale(LC_NUMERIC, names[i])) floats_of_every_size();
  (void)setlocale(LC_NUMERIC, "C");
}

static void assert_made(tsr__buffer *made, const char *expected) {
  assert_int_equal(made->size, strlen(expected));
  if (made->size) assert_memory_equal(made->data, expected, made->size);
  tsr__buffer_release(made);
  *made = (tsr__buffer){0};
}

static void assert_repr(const char *text, size_t size_bytes, const char *expected) {
  tsr__buffer made = {0};
  tsr__python_repr(&made, text, size_bytes);
  assert_made(&made, expected);
}

#define ASSERT_REPR(text, expected) assert_repr(text, sizeof text - 1, expected)

static void reprs_choose_their_quotes(void **state) {
  (void)state;
  ASSERT_REPR("", "''");
  ASSERT_REPR("plain", "'plain'");
  ASSERT_REPR("it's", "\"it's\"");
  ASSERT_REPR("a \"b\"", "'a \"b\"'");
  ASSERT_REPR("it's \"b\"", "'it\\'s \"b\"'");
}

static void reprs_escape_what_is_not_printable(void **state) {
  (void)state;
  ASSERT_REPR("\\", "'\\\\'");
  ASSERT_REPR("\n\r\t", "'\\n\\r\\t'");
  ASSERT_REPR("\x00\x1b\x7f", "'\\x00\\x1b\\x7f'");
  ASSERT_REPR("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "'\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80'");
  ASSERT_REPR("\xc2\xa0\xc2\xad", "'\\xa0\\xad'");
  ASSERT_REPR("\xe2\x80\xa8\xee\x80\x80", "'\\u2028\\ue000'");
  ASSERT_REPR("\xf0\xb0\x80\x80\xf4\x8f\xbf\xbf", "'\xf0\xb0\x80\x80\\U0010ffff'");
  ASSERT_REPR("\xed\xb3\xa9", "'\\udce9'");
  ASSERT_REPR("\xff", "'\xef\xbf\xbd'");
}

static void printing_refuses_what_python_cannot_print(void **state) {
  (void)state;
  static const char text[] = "a\x1b[1m\xc3\xa9\xed\xb3\xa9\xff.";
  tsr__buffer made = {0};
  tsr__python_print(&made, text, sizeof text - 1, false);
  assert_made(&made, "a\x1b[1m\xc3\xa9??.");
  tsr__python_print(&made, text, sizeof text - 1, true);
  assert_made(&made, "a?[1m\xc3\xa9??.");
  tsr__python_print(&made, "", 0, true);
  assert_made(&made, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(floats_are_the_shortest),
      cmocka_unit_test(powers_of_two_round_up),
      cmocka_unit_test(the_locale_does_not_matter),
      cmocka_unit_test(reprs_choose_their_quotes),
      cmocka_unit_test(reprs_escape_what_is_not_printable),
      cmocka_unit_test(printing_refuses_what_python_cannot_print),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
