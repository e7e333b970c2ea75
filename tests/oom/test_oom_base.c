/* Every allocation of the base room fails once. */
#include <stdio.h>
#include <string.h>

#include "../unit/test_support.h"
#include "base/arena.h"
#include "base/buffer.h"
#include "base/intern.h"
#include "base/json.h"
#include "base/map.h"
#include "base/vector.h"
#include "oom.h"

/* Run on after the first failure: what is there must stay usable, and must be released. */

static int fill_arena(void *context) {
  (void)context;
  int status = TSR_OK;
  tsr__arena arena;
  tsr__arena_init(&arena);
  for (size_t i = 0; i < 300; i++) {
    size_t size_bytes = i % 50 ? 100 : 10000;
    void *piece = tsr__arena_alloc(&arena, size_bytes, 16);
    if (piece)
      memset(piece, 1, size_bytes);
    else
      status = TSR_ERROR_MEMORY;
  }
  tsr__arena_release(&arena);
  return status;
}

static int fill_intern(void *context) {
  (void)context;
  int status = TSR_OK;
  tsr__intern table;
  tsr__intern_init(&table);
  char text[32];
  for (uint32_t i = 0; i < 500; i++) {
    size_t length = (size_t)snprintf(text, sizeof text, "frame %u", i);
    bool added = true;
    uint32_t count = table.count, id = tsr__intern_put(&table, text, length, &added);
    if (id == TSR__INTERN_FULL) {
      status = TSR_ERROR_MEMORY;
      assert_false(added);
      assert_int_equal(table.count, count);
      assert_int_equal(tsr__intern_find(&table, text, length), TSR__INTERN_FULL);
    } else {
      assert_int_equal(tsr__intern_find(&table, text, length), id);
    }
  }
  tsr__intern_release(&table);
  return status;
}

static int fill_map(void *context) {
  (void)context;
  int status = TSR_OK;
  tsr__map map = {0};
  for (uint64_t key = 0; key < 1000; key++) {
    bool added = true;
    size_t count = map.count;
    uint64_t *value = tsr__map_put(&map, key, key + 1, &added);
    if (!value) {
      status = TSR_ERROR_MEMORY;
      assert_false(added);
      assert_int_equal(map.count, count);
      assert_null(tsr__map_find(&map, key));
    } else {
      assert_int_equal(*value, key + 1);
    }
  }
  tsr__map_release(&map);
  return status;
}

static int fill_vector(void *context) {
  (void)context;
  int status = TSR_OK;
  TSR__VECTOR(uint64_t) sizes = {0};
  for (uint64_t i = 0; i < 1000; i++) {
    size_t count = sizes.count, capacity = sizes.capacity;
    if (TSR__VECTOR_PUSH(&sizes, i)) continue;
    status = TSR_ERROR_MEMORY;
    assert_int_equal(sizes.count, count);
    assert_int_equal(sizes.capacity, capacity);
  }
  TSR__VECTOR_FREE(&sizes);
  return status;
}

static int fill_buffer(void *context) {
  (void)context;
  tsr__buffer buffer = {0};
  for (int i = 0; i < 200; i++) {
    size_t size = buffer.size;
    tsr__buffer_text(&buffer, "event ");
    tsr__buffer_printf(&buffer, "%d", i);
    tsr__buffer_fill(&buffer, ' ', 5);
    assert_true(buffer.size >= size);
  }
  int status = buffer.failed ? TSR_ERROR_MEMORY : TSR_OK;
  tsr__buffer_release(&buffer);
  return status;
}

static void arena(void **state) {
  (void)state;
  tsr_test_oom(fill_arena, NULL, 8);
}

static void intern(void **state) {
  (void)state;
  tsr_test_oom(fill_intern, NULL, 8);
}

/* Keys and texts that are longer than what jansson begins with, with escapes, more members than it has room for, and an
 * array that grows. */
static int read_json(void *context) {
  static const char text[] =
      "{\"a key of some length\": [1, -2, 3.5, true, false, null, 7, 8, 9, 10, 11, 12],"
      " \"a key with \\u00e9\": {\"an \\\"escaped\\\" key\": \"a text with \\n and "
      "\\ud83d\\ude00\"},"
      " \"b\": 1, \"c\": 2, \"d\": 3, \"e\": 4, \"f\": 5, \"g\": 6, \"h\": 7, \"i\": 8, \"j\": 9}";
  json_t *root = NULL;
  tsr__buffer out = {0};
  (void)context;
  int status = tsr_json_load(text, sizeof text - 1, JSON_REJECT_DUPLICATES, NULL, &root, NULL);
  assert_true(!root == (status != 0));
  if (status == 0 && !tsr__json_append(&out, root, JSON_SORT_KEYS)) status = TSR_ERROR_MEMORY;
  tsr__buffer_release(&out);
  json_decref(root);
  return status;
}

static void json(void **state) {
  (void)state;
  tsr_test_oom(read_json, NULL, 40);
}

static void map(void **state) {
  (void)state;
  tsr_test_oom(fill_map, NULL, 5);
}

static void vector(void **state) {
  (void)state;
  tsr_test_oom(fill_vector, NULL, 5);
}

static void buffer(void **state) {
  (void)state;
  tsr_test_oom(fill_buffer, NULL, 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(arena),  cmocka_unit_test(intern), cmocka_unit_test(map),
      cmocka_unit_test(vector), cmocka_unit_test(buffer), cmocka_unit_test(json),
  };
  return cmocka_run_group_tests_name("oom base", tests, NULL, NULL);
}
