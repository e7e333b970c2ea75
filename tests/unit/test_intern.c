/* Tests of base/intern.h. */
#include <stdio.h>
#include <string.h>

#include "base/intern.h"
#include "test_support.h"

static void ids_follow_first_appearance(void **state) {
  (void)state;
  tsr__intern table;
  tsr__intern_init(&table);
  bool added = false;
  assert_int_equal(tsr__intern_put(&table, "alloc", 5, &added), 0);
  assert_true(added);
  assert_int_equal(tsr__intern_put(&table, "free", 4, &added), 1);
  assert_true(added);
  assert_int_equal(tsr__intern_put(&table, "alloc", 5, &added), 0);
  assert_false(added);
  assert_int_equal(tsr__intern_put(&table, "free", 4, NULL), 1);
  assert_int_equal(table.count, 2);
  assert_int_equal(table.bytes, 9);
  tsr__intern_release(&table);
}

static void finds_only_what_was_put(void **state) {
  (void)state;
  tsr__intern table = {0};
  assert_int_equal(tsr__intern_find(&table, "a", 1), TSR__INTERN_FULL);
  assert_int_equal(tsr__intern_put(&table, "a", 1, NULL), 0);
  assert_int_equal(tsr__intern_find(&table, "a", 1), 0);
  assert_int_equal(tsr__intern_find(&table, "b", 1), TSR__INTERN_FULL);
  assert_int_equal(tsr__intern_find(&table, "a\0", 2), TSR__INTERN_FULL);
  assert_int_equal(table.count, 1);
  tsr__intern_release(&table);
}

/* Bytes, not text: zeros count, and so do prefixes and nothing at all. */
static void compares_whole_bytes(void **state) {
  (void)state;
  tsr__intern table;
  tsr__intern_init(&table);
  assert_int_equal(tsr__intern_put(&table, "", 0, NULL), 0);
  assert_int_equal(tsr__intern_put(&table, "a", 1, NULL), 1);
  assert_int_equal(tsr__intern_put(&table, "a\0b", 3, NULL), 2);
  assert_int_equal(tsr__intern_put(&table, "a\0c", 3, NULL), 3);
  assert_int_equal(tsr__intern_put(&table, "a\0", 2, NULL), 4);
  assert_int_equal(tsr__intern_put(&table, NULL, 0, NULL), 0);
  tsr__intern_release(&table);
}

static void keeps_its_own_copy(void **state) {
  (void)state;
  tsr__intern table;
  tsr__intern_init(&table);
  char text[] = "stack";
  assert_int_equal(tsr__intern_put(&table, text, 5, NULL), 0);
  const unsigned char *kept = table.items[0].data;
  text[0] = 'b';
  assert_int_equal(table.items[0].size_bytes, 5);
  assert_memory_equal(kept, "stack", 5);
  /* Pointers survive growth, and are aligned for structs and arrays of ids. */
  for (int i = 0; i < 1000; i++)
    assert_int_not_equal(tsr__intern_put(&table, &i, sizeof i, NULL), 0);
  assert_ptr_equal(table.items[0].data, kept);
  for (uint32_t id = 0; id < table.count; id++)
    assert_int_equal((uintptr_t)table.items[id].data % 8, 0);
  tsr__intern_release(&table);
}

static void survives_growth(void **state) {
  (void)state;
  enum { STRINGS = 20000 };
  tsr__intern table;
  tsr__intern_init(&table);
  char text[32];
  for (uint32_t i = 0; i < STRINGS; i++) {
    size_t length = (size_t)snprintf(text, sizeof text, "model.py:%u", i);
    assert_int_equal(tsr__intern_put(&table, text, length, NULL), i);
  }
  for (uint32_t i = 0; i < STRINGS; i++) {
    size_t length = (size_t)snprintf(text, sizeof text, "model.py:%u", i);
    assert_int_equal(tsr__intern_find(&table, text, length), i);
  }
  assert_int_equal(table.count, STRINGS);
  tsr__intern_release(&table);
}

#if SIZE_MAX > UINT32_MAX
static void refuses_what_is_too_long(void **state) {
  (void)state;
  tsr__intern table;
  tsr__intern_init(&table);
  bool added = true;
  /* Refused by its length, before a byte of it is read. */
  assert_int_equal(tsr__intern_put(&table, "", (size_t)UINT32_MAX + 1, &added), TSR__INTERN_FULL);
  assert_false(added);
  assert_int_equal(table.count, 0);
  tsr__intern_release(&table);
}
#endif

static void release_starts_anew(void **state) {
  (void)state;
  tsr__intern table = {0};
  tsr__intern_release(&table);
  assert_int_equal(tsr__intern_put(&table, "a", 1, NULL), 0);
  tsr__intern_release(&table);
  assert_int_equal(table.count, 0);
  assert_int_equal(tsr__intern_find(&table, "a", 1), TSR__INTERN_FULL);
  assert_int_equal(tsr__intern_put(&table, "b", 1, NULL), 0);
  tsr__intern_release(&table);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(ids_follow_first_appearance),
    cmocka_unit_test(finds_only_what_was_put),
    cmocka_unit_test(compares_whole_bytes),
    cmocka_unit_test(keeps_its_own_copy),
    cmocka_unit_test(survives_growth),
#if SIZE_MAX > UINT32_MAX
    cmocka_unit_test(refuses_what_is_too_long),
#endif
    cmocka_unit_test(release_starts_anew),
  };
  return cmocka_run_group_tests_name("intern", tests, NULL, NULL);
}
