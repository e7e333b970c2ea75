/* What cards leave to a run: budgets, capacities and types that get notes. */
#include "exec/card.h"

#include <stdio.h>
#include <string.h>

#include "test_support.h"

#define GiB 1073741824.0

static tsr_outside outside_of(const tsr__data_sheet *gpu, uint64_t ranks) {
  tsr_simulate_options how = {.ranks = ranks};
  return tsr__outside_by_table(gpu, &how);
}

static uint64_t safe_bytes(const tsr__data_sheet *gpu, uint64_t ranks) {
  tsr_outside outside = outside_of(gpu, ranks);
  return tsr__card_safe_bytes(gpu, &outside);
}

static void test_sheets(void **state) {
  (void)state;
  for (size_t i = 0; tsr__data_sheet_at(i); i++) {
    const tsr__data_sheet *gpu = tsr__data_sheet_at(i);
    double all = (double)gpu->memory_bytes;
    assert_true(gpu->visible_bytes < all && gpu->visible_bytes > 0.9 * all);
    uint64_t alone = safe_bytes(gpu, 0), ranks = safe_bytes(gpu, 8);
    assert_int_equal(alone, safe_bytes(gpu, 1));
    assert_true(ranks < alone && (double)alone < gpu->visible_bytes);
  }
  assert_false(tsr__card_has_bf16(tsr__data_sheet_of_name("t4")));
  assert_false(tsr__card_has_bf16(tsr__data_sheet_of_name("v100")));
  assert_true(tsr__card_has_bf16(tsr__data_sheet_of_name("a100")));
  assert_true(tsr__card_has_bf16(tsr__data_sheet_of_name("mi300x")));
}

static bool has(const tsr__card_notes *notes, const char *words) {
  return notes->count == 1 && strstr(notes->text[0], words) != NULL;
}

/* A limit has a note if context and libraries do not fit next to it; the note's own proposal has none. */
static void test_limits(void **state) {
  (void)state;
  uint64_t random = 17;
  for (size_t i = 0; i < 4000; i++) {
    random = random * UINT64_C(6364136223846793005) + 1442695040888963407U;
    size_t count = 0;
    while (tsr__data_sheet_at(count)) count++;
    const tsr__data_sheet *gpu = tsr__data_sheet_at((random >> 33) % count);
    uint64_t ranks = (random >> 40) % 3;
    tsr_outside outside = outside_of(gpu, ranks);
    double libraries = (double)outside.whole.high_bytes;
    double limit = (double)gpu->memory_bytes * (0.8 + 0.2 * (double)((random >> 20) % 1000) / 999);
    tsr__card_room room = {.limit = "budget", .limit_bytes = (uint64_t)limit, .outside = &outside};
    tsr__card_notes notes = {.count = 0};
    tsr__card_note_room(gpu, &room, &notes);
    bool is_over = limit + libraries > gpu->visible_bytes + 1;
    if (is_over != (notes.count == 1)) fail_msg("%s: %.3f GiB", gpu->name, limit / GiB);
    if (!is_over) continue;
    double proposed = 0;
    const char *at = strstr(notes.text[0], "and one of ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "and one of %lf GiB", &proposed), 1);
    room.limit_bytes = (uint64_t)(proposed * GiB);
    notes.count = 0;
    tsr__card_note_room(gpu, &room, &notes);
    assert_int_equal(notes.count, 0);
    assert_true(proposed * GiB + libraries > gpu->visible_bytes - 0.11 * GiB);
  }
}

/* Whether a run fits is certain below what is safe and above what is visible; in between it depends on the context. */
static void test_runs(void **state) {
  (void)state;
  const tsr__data_sheet *t4 = tsr__data_sheet_of_name("t4");
  tsr_outside outside = outside_of(t4, 0);
  static const struct {
    double gib;
    const char *words;
  } rows[] = {{14.1, NULL},
              {14.2, "may run out"},
              {14.45, "may run out"},
              {14.5, "not fit"},
              {90, "not fit"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    tsr__card_notes notes = {.count = 0};
    tsr__card_room room = {
        .run = "this run", .reserved_bytes = (uint64_t)(rows[i].gib * GiB), .outside = &outside};
    tsr__card_note_room(t4, &room, &notes);
    assert_true(rows[i].words ? has(&notes, rows[i].words) : notes.count == 0);
  }
}

static void test_types(void **state) {
  (void)state;
  for (size_t i = 0; tsr__data_sheet_at(i); i++) {
    const tsr__data_sheet *gpu = tsr__data_sheet_at(i);
    for (int dtype = TSR_SIMULATE_FP32; dtype <= TSR_SIMULATE_AUTOCAST_FP16; dtype++) {
      tsr__card_notes notes = {.count = 0};
      tsr_simulate_options how = {.dtype = (tsr_simulate_dtype)dtype};
      bool is_bf16 = dtype == TSR_SIMULATE_BF16 || dtype == TSR_SIMULATE_AUTOCAST_BF16;
      tsr__card_note_types(gpu, &how, &notes);
      assert_int_equal(notes.count, is_bf16 && gpu->capability < 80);
      if (!notes.count) continue;
      assert_true(has(&notes, dtype == TSR_SIMULATE_BF16 ? " fp16" : "autocast-fp16"));
      assert_true(has(&notes, "attention kernel"));
      how.attention = TSR_ATTENTION_EAGER;
      notes.count = 0;
      tsr__card_note_types(gpu, &how, &notes);
      assert_false(has(&notes, "attention kernel"));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_sheets), cmocka_unit_test(test_limits),
                                     cmocka_unit_test(test_runs), cmocka_unit_test(test_types)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
