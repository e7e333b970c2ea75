/* Tests of ask/values.h with JSON that other readers refuse. What every answer shows is in test_api.c. */
#include "ask/values.h"

#include <string.h>

#include "test_support.h"

static const char text[] =
    "{\"a\\u0000b\":1,\"quoted\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\\ud800x\","
    "\"most\":18446744073709551615,\"next\":9223372036854775807,\"less\":-9223372036854775807,"
    "\"more\":9223372036854775808,\"real\":-1.5e3,\"part\":0.25,\"no\":false,\"none\":[],\"empty\":"
    "{},"
    "\"lists\":[[1,2],[],[[3]]],\n  \"last\" : { \"x\" : [ { \"y\" : \"z\" } ] } }";

static const tsr__node *find(const tsr__values *values, const char *path) {
  const tsr__node *found = NULL;
  tsr_error error;
  if (tsr__values_find(values, NULL, path, &found, &error)) fail_msg("%s", error.message);
  return found;
}

static void values_of_all_kinds(void **state) {
  (void)state;
  tsr__values values = {.json = {0}};
  tsr_text string;
  int64_t number = 0;
  double real = 0;
  uint64_t count = 7;
  tsr__buffer_append(&values.json, text, sizeof text - 1);
  assert_true(tsr__values_read(&values));
  assert_int_equal(values.nodes.items[0].count, 13);
  assert_int_equal(values.nodes.items[0].next, values.nodes.count);
  assert_int_equal(values.nodes.items[1].key.size_bytes, 3);
  assert_memory_equal(values.nodes.items[1].key.data, "a\0b", 3);
  assert_int_equal(tsr__node_text(find(&values, "quoted"), "", &string, NULL), 0);
  assert_string_equal(string.data, "\"\\/\b\f\n\r\t\xc3\xa9\xf0\x9f\x98\x80\xed\xa0\x80x");
  assert_int_equal(tsr__node_number(find(&values, "next"), "", &number, NULL), 0);
  assert_true(number == INT64_MAX);
  assert_int_equal(tsr__node_number(find(&values, "less"), "", &number, NULL), 0);
  assert_true(number == -INT64_MAX);
  assert_int_equal(tsr__node_number(find(&values, "most"), "", &number, NULL), TSR_ERROR_LIMIT);
  assert_int_equal(tsr__node_number(find(&values, "more"), "", &number, NULL), TSR_ERROR_LIMIT);
  assert_int_equal(tsr__node_real(find(&values, "most"), "", &real, NULL), 0);
  assert_true(real > 1.8e19);
  assert_int_equal(tsr__node_number(find(&values, "real"), "", &number, NULL), TSR_ERROR_TYPE);
  assert_int_equal(tsr__node_number(find(&values, "part"), "", &number, NULL), TSR_ERROR_TYPE);
  assert_int_equal(tsr__node_real(find(&values, "real"), "", &real, NULL), 0);
  assert_true(real < -1499 && real > -1501);
  assert_int_equal(tsr__node_number(find(&values, "no"), "", &number, NULL), 0);
  assert_int_equal(number, 0);
  assert_int_equal(tsr__node_count(find(&values, "none"), "", &count, NULL), 0);
  assert_int_equal(count, 0);
  assert_int_equal(tsr__node_count(find(&values, "lists"), "", &count, NULL), 0);
  assert_int_equal(count, 3);
  assert_int_equal(tsr__node_number(find(&values, "lists[0][1]"), "", &number, NULL), 0);
  assert_int_equal(number, 2);
  assert_int_equal(tsr__node_number(find(&values, "lists[2][0][0]"), "", &number, NULL), 0);
  assert_int_equal(number, 3);
  assert_int_equal(tsr__node_text(find(&values, "last.x[0].y"), "", &string, NULL), 0);
  assert_string_equal(string.data, "z");
  const tsr__node *found = NULL;
  assert_int_equal(tsr__values_find(&values, NULL, "empty.x", &found, NULL), TSR_ERROR_ABSENT);
  assert_int_equal(tsr__values_find(&values, NULL, "lists[1][0]", &found, NULL), TSR_ERROR_ABSENT);
  assert_int_equal(tsr__values_find(&values, NULL, "x.y.z", &found, NULL), TSR_ERROR_ABSENT);
  assert_null(found);
  tsr__values_release(&values);
  assert_int_equal(values.nodes.count, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(values_of_all_kinds)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
