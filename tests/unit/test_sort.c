/* Tests of base/sort.h. */
#include "base/sort.h"

#include <string.h>

#include "test_support.h"

/* An item of any size starts with these. */
typedef struct keyed {
  uint32_t key, position;
} keyed;

static bool memory_is_out;

void *__real_realloc(void *items, size_t size);
void *__wrap_realloc(void *items, size_t size);

void *__wrap_realloc(void *items, size_t size) {
  return memory_is_out ? NULL : __real_realloc(items, size);
}

static int compare_keys(const void *left, const void *right) {
  const keyed *a = left, *b = right;
  return (a->key > b->key) - (a->key < b->key);
}

static uint32_t next(uint32_t *state) {
  *state = *state * 1664525 + 1013904223;
  return *state >> 8;
}

/* Sort `count` items of `size` bytes with keys below `keys`, and check order, stability, and that an item moves whole. */
static void sorts(size_t count, size_t size, uint32_t keys) {
  unsigned char *items = test_malloc(count * size + 1);
  uint32_t random = (uint32_t)(count * 31 + size);
  for (uint32_t i = 0; i < count; i++) {
    keyed head = {next(&random) % keys, i};
    memset(items + i * size, (int)(i % 251), size);
    memcpy(items + i * size, &head, sizeof head);
  }
  tsr__sort(items, count, size, compare_keys);
  keyed before = {0, 0};
  for (size_t i = 0; i < count; i++) {
    keyed head;
    memcpy(&head, items + i * size, sizeof head);
    if (i)
      assert_true(before.key < head.key ||
                  (before.key == head.key && before.position < head.position));
    for (size_t at = sizeof head; at < size; at++)
      assert_int_equal(items[i * size + at], head.position % 251);
    before = head;
  }
  test_free(items);
}

static void sorts_all(void) {
  static const size_t sizes[] = {8, 12, 16, 24, 32, 80, 300};
  static const size_t counts[] = {0, 1, 2, 3, 8, 9, 17, 100, 1000, 5000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
      for (uint32_t keys = 1; keys <= 100000; keys *= 10) sorts(counts[k], sizes[i], keys);
}

static void equal_items_keep_their_order(void **state) {
  (void)state;
  sorts_all();
}

static void a_sort_needs_no_memory(void **state) {
  (void)state;
  memory_is_out = true;
  sorts_all();
  memory_is_out = false;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equal_items_keep_their_order),
                                     cmocka_unit_test(a_sort_needs_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
