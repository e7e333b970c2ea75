/* Tests of base/number.h. */
#include "base/number.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "test_support.h"

static bool read(const char *text, double *out) {
  char copy[64];
  (void)snprintf(copy, sizeof copy, "%s", text);
  return tsr__read_real(copy, out);
}

static void assert_reads(const char *text, double expected) {
  double value = -1;
  assert_true(read(text, &value));
  assert_true(value >= expected && value <= expected);
}

static void assert_refuses(const char *text) {
  double value = 7;
  assert_false(read(text, &value));
  assert_true(value > 6.9 && value < 7.1);
}

static void read_numbers(void) {
  assert_reads("0", 0);
  assert_reads("-1.5", -1.5);
  assert_reads(".5", 0.5);
  assert_reads("2.", 2);
  assert_reads("1e3", 1000);
  assert_reads("6.25e-1", 0.625);
  assert_refuses("");
  assert_refuses(".");
  assert_refuses("x");
  assert_refuses("1.5x");
  assert_refuses("1.5.5");
  assert_refuses("1 ");
}

static void the_whole_text_is_the_number(void **state) {
  (void)state;
  read_numbers();
}

/* Whatever the program's locale; those that are not installed cannot be tried. */
static void the_locale_does_not_matter(void **state) {
  (void)state;
  static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "ru_RU.UTF-8", "de_DE"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (setlocale(LC_NUMERIC, names[i])) read_numbers();
  (void)setlocale(LC_NUMERIC, "C");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_whole_text_is_the_number),
      cmocka_unit_test(the_locale_does_not_matter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
