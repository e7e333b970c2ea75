/* Tests of base/arena.h. */
#include <string.h>

#include "base/arena.h"
#include "test_support.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

static void aligns_as_asked(void **state) {
  (void)state;
  tsr__arena arena;
  tsr__arena_init(&arena);
  for (size_t round = 0; round < 200; round++)
    for (size_t alignment = 1; alignment <= 16; alignment *= 2) {
      void *p = tsr__arena_alloc(&arena, 1 + round % 7, alignment);
      assert_non_null(p);
      assert_int_equal((uintptr_t)p % alignment, 0);
    }
  tsr__arena_release(&arena);
}

/* Every piece keeps its own bytes, whatever is handed out after it. */
static void keeps_pieces_apart(void **state) {
  (void)state;
  enum { PIECES = 2000 };
  static unsigned char *pieces[PIECES];
  tsr__arena arena;
  tsr__arena_init(&arena);
  for (size_t i = 0; i < PIECES; i++) {
    size_t size_bytes = i % 97 == 0 ? 5000 * (i % 5) : i % 61;
    pieces[i] = tsr__arena_alloc(&arena, size_bytes, 1);
    assert_non_null(pieces[i]);
    memset(pieces[i], (int)(i % 251), size_bytes);
  }
  for (size_t i = 0; i < PIECES; i++) {
    size_t size_bytes = i % 97 == 0 ? 5000 * (i % 5) : i % 61;
    for (size_t byte = 0; byte < size_bytes; byte++) assert_int_equal(pieces[i][byte], i % 251);
  }
  tsr__arena_release(&arena);
}

static void empty_piece_is_valid(void **state) {
  (void)state;
  tsr__arena arena;
  tsr__arena_init(&arena);
  assert_non_null(tsr__arena_alloc(&arena, 0, 1));
  assert_non_null(tsr__arena_copy(&arena, NULL, 0, 8));
  tsr__arena_release(&arena);
}

static void copies(void **state) {
  (void)state;
  tsr__arena arena;
  tsr__arena_init(&arena);
  char text[] = "segment";
  char *copy = tsr__arena_copy(&arena, text, sizeof text, 1);
  assert_non_null(copy);
  text[0] = 'x';
  assert_string_equal(copy, "segment");
  tsr__arena_release(&arena);
}

/* A large piece gets its own chunk, and the room in the current one is still used. */
static void large_piece_leaves_room(void **state) {
  (void)state;
  tsr__arena arena;
  tsr__arena_init(&arena);
  char *before = tsr__arena_alloc(&arena, 8, 8);
  char *large = tsr__arena_alloc(&arena, 100000, 16);
  char *after = tsr__arena_alloc(&arena, 8, 8);
  assert_non_null(large);
  assert_ptr_equal(after, before + 8);
  assert_true(arena.total_bytes >= 100016);
  tsr__arena_release(&arena);
}

static void large_piece_may_be_first(void **state) {
  (void)state;
  tsr__arena arena;
  tsr__arena_init(&arena);
  char *large = tsr__arena_alloc(&arena, 100000, 16), *small = tsr__arena_alloc(&arena, 8, 8);
  assert_non_null(large);
  assert_non_null(small);
  assert_true(small + 8 <= large || small >= large + 100000);
  tsr__arena_release(&arena);
}

static void impossible_size_fails(void **state) {
  (void)state;
  tsr__arena arena;
  tsr__arena_init(&arena);
  assert_non_null(tsr__arena_alloc(&arena, 8, 8));
  size_t held_bytes = arena.total_bytes;
  assert_null(tsr__arena_alloc(&arena, SIZE_MAX, 1));
  assert_null(tsr__arena_alloc(&arena, SIZE_MAX - 8, 16));
  assert_int_equal(arena.total_bytes, held_bytes);
  assert_non_null(tsr__arena_alloc(&arena, 8, 8));
  tsr__arena_release(&arena);
}

static void release_starts_anew(void **state) {
  (void)state;
  tsr__arena arena = {0}; /* zeroed is as good as initialised */
  tsr__arena_release(&arena);
  assert_non_null(tsr__arena_alloc(&arena, 10, 4));
  tsr__arena_release(&arena);
  assert_null(arena.chunks);
  assert_null(arena.next);
  assert_int_equal(arena.total_bytes, 0);
  assert_non_null(tsr__arena_alloc(&arena, 10, 4));
  tsr__arena_release(&arena);
}

#if defined(__SANITIZE_ADDRESS__)
static void poisons_what_is_not_handed_out(void **state) {
  (void)state;
  tsr__arena arena;
  tsr__arena_init(&arena);
  char *p = tsr__arena_alloc(&arena, 8, 8);
  assert_false(__asan_address_is_poisoned(p + 7));
  assert_true(__asan_address_is_poisoned(p + 8));
  tsr__arena_release(&arena);
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(aligns_as_asked),
    cmocka_unit_test(keeps_pieces_apart),
    cmocka_unit_test(empty_piece_is_valid),
    cmocka_unit_test(copies),
    cmocka_unit_test(large_piece_leaves_room),
    cmocka_unit_test(large_piece_may_be_first),
    cmocka_unit_test(impossible_size_fails),
    cmocka_unit_test(release_starts_anew),
#if defined(__SANITIZE_ADDRESS__)
    cmocka_unit_test(poisons_what_is_not_handed_out),
#endif
  };
  return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
