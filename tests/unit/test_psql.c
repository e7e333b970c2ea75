/* Tables as tabulate draws them. */
#include "mosaic/psql.h"

#include <math.h>
#include <string.h>

#include "test_support.h"

static tsr_text text_of(const char *text) {
  return (tsr_text){text, strlen(text)};
}

static void check(tsr__psql *table, const char *expected) {
  tsr__buffer out = {0};
  tsr__psql_print(table, &out);
  assert_false(out.failed);
  tsr__buffer_append(&out, "", 1);
  assert_string_equal(out.data, expected);
  tsr__buffer_release(&out);
  tsr__psql_release(table);
}

static void empty(void **state) {
  static const char *const headers[] = {"a"};
  tsr__psql table = {.column_count = 1, .headers = headers};
  (void)state;
  check(&table, "");
}

static void numbers(void **state) {
  static const char *const headers[] = {"a", "b", "c", "d"};
  tsr__psql table = {.column_count = 4, .headers = headers};
  (void)state;
  tsr__psql_float(&table, 6.017578125);
  tsr__psql_integer(&table, 12);
  tsr__psql_text(&table, text_of("432"));
  tsr__psql_float(&table, NAN);
  tsr__psql_float(&table, 3.814697265625e-06);
  tsr__psql_integer(&table, -1234567);
  tsr__psql_text(&table, text_of(""));
  tsr__psql_float(&table, NAN);
  tsr__psql_float(&table, 0);
  tsr__psql_integer(&table, 0);
  tsr__psql_text(&table, text_of("7"));
  tsr__psql_float(&table, NAN);
  check(&table, "+------------+----------+-----+-----+\n"
                "|          a |        b | c   |   d |\n"
                "|------------+----------+-----+-----|\n"
                "| 6.01758    |       12 | 432 | nan |\n"
                "| 3.8147e-06 | -1234567 |     | nan |\n"
                "| 0          |        0 | 7   | nan |\n"
                "+------------+----------+-----+-----+");
}

/* Whole numbers in a text are numbers. */
static void digits(void **state) {
  static const char *const headers[] = {"c"};
  tsr__psql table = {.column_count = 1, .headers = headers};
  (void)state;
  tsr__psql_text(&table, text_of("432"));
  tsr__psql_text(&table, text_of("7"));
  check(&table, "+-----+\n|   c |\n|-----|\n| 432 |\n|   7 |\n+-----+");
}

static void texts(void **state) {
  static const char *const headers[] = {"stack", "n"};
  tsr__psql table = {.column_count = 2, .headers = headers};
  (void)state;
  tsr__psql_text(&table, text_of("  f, a.py:1\nlonger, b.py:2 "));
  tsr__psql_integer(&table, 5);
  tsr__psql_text(&table, text_of("12,\xc3\xa9"));
  tsr__psql_integer(&table, 6);
  check(&table, "+----------------+-----+\n"
                "| stack          |   n |\n"
                "|----------------+-----|\n"
                "| f, a.py:1      |   5 |\n"
                "| longer, b.py:2 |     |\n"
                "| 12,\xc3\xa9           |   6 |\n"
                "+----------------+-----+");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(empty), cmocka_unit_test(numbers),
                                     cmocka_unit_test(digits), cmocka_unit_test(texts)};
  return cmocka_run_group_tests_name("psql", tests, NULL, NULL);
}
