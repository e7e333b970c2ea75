/* Tests of answers/diff.c and answers/match.c: on snapshots whose stacks have other ids, addresses
 * and orders but the same texts, what grew, shrank, was added or removed is distinguished from what
 * stayed. */
#include <string.h>

#include "questions/diff/match.h"
#include "study_support.h"
#include "tessera/unstable/answers.h"
#include "test_support.h"

#define FRAME(name, line) "{\"name\": \"" name "\", \"filename\": \"a.py\", \"line\": " line "}"
#define ALLOC(addr, size, frames)                                                   \
  "{\"action\": \"alloc\", \"addr\": " addr ", \"size\": " size ", \"stream\": 0, " \
  "\"time_us\": 1, \"frames\": [" frames "]}"
#define TRACES(traces) "{\"segments\": [], \"device_traces\": [" traces "]}"

static const char before[] = TRACES("[" ALLOC("4096", "1000", FRAME("same", "1")) ", " ALLOC(
    "8192", "1000",
    FRAME("grows", "2") ", " FRAME(
        "main", "9")) ", " ALLOC("12288", "5000",
                                 FRAME("shrinks", "3")) ", " ALLOC("20480", "300",
                                                                   FRAME("goes",
                                                                         "4")) ", " ALLOC("24576",
                                                                                          "77",
                                                                                          "") "]");
static const char after[] = TRACES(
    "[" ALLOC("9048576", "700", FRAME("comes", "5")) ", " ALLOC("9052672", "2000", FRAME("shrinks", "3")) ", " ALLOC(
        "9056768", "4000",
        FRAME("grows", "2") ", " FRAME(
            "main",
            "9")) ", " ALLOC("9060864", "4000",
                             FRAME("grows", "2") ", " FRAME(
                                 "main",
                                 "9")) ", " ALLOC("9064960", "400",
                                                  FRAME("grows", "2") ", " FRAME(
                                                      "main",
                                                      "8")) ", " ALLOC("9069056", "78",
                                                                       "") ", " ALLOC("9073152",
                                                                                      "1000",
                                                                                      FRAME(
                                                                                          "same",
                                                                                          "1")) "]");

static tsr_snapshot *read_text(const char *text) {
  tsr_snapshot *snapshot = NULL;
  assert_int_equal(tsr_snapshot_read(text, strlen(text), NULL, &snapshot, NULL), 0);
  return snapshot;
}

static tsr_diff *compare(const char *old_text, const char *new_text, const tsr_query *query) {
  tsr_snapshot *a = read_text(old_text), *b = read_text(new_text);
  tsr_diff *diff = NULL;
  assert_int_equal(
      tsr_diff_compute(test_study(a), test_study(b), TSR_DIFF_BY_STACK, query, &diff, NULL), 0);
  tsr_snapshot_free(a);
  tsr_snapshot_free(b);
  return diff;
}

static void assert_change(const tsr_change *change, tsr_change_status status, int64_t delta,
                          uint64_t old_bytes, uint64_t old_count, uint64_t new_count) {
  assert_int_equal(change->status, status);
  assert_int_equal(change->delta_bytes, delta);
  assert_int_equal(change->old_bytes, old_bytes);
  assert_int_equal((int64_t)change->new_bytes, (int64_t)old_bytes + delta);
  assert_int_equal(change->old_allocations, old_count);
  assert_int_equal(change->new_allocations, new_count);
}

static void changes_are_ranked(void **state) {
  (void)state;
  tsr_diff *diff = compare(before, after, NULL);
  assert_int_equal(diff->device_count, 1);
  const tsr_diff_device *device = &diff->devices[0];
  assert_int_equal(device->change_count, 6);
  assert_change(&device->changes[0], TSR_CHANGE_GROWN, 7000, 1000, 1, 2);
  assert_change(&device->changes[1], TSR_CHANGE_SHRUNK, -3000, 5000, 1, 1);
  assert_change(&device->changes[2], TSR_CHANGE_ADDED, 700, 0, 0, 1);
  assert_change(&device->changes[3], TSR_CHANGE_ADDED, 400, 0, 0, 1);
  assert_change(&device->changes[4], TSR_CHANGE_REMOVED, -300, 300, 1, 0);
  assert_change(&device->changes[5], TSR_CHANGE_GROWN, 1, 77, 1, 1);
  assert_int_equal(device->changes[5].new_stack, TSR_NONE);
  assert_int_equal(device->changes[4].new_stack, TSR_NONE);
  assert_int_not_equal(device->changes[4].old_stack, TSR_NONE);
  assert_int_equal(device->unchanged_stacks, 1);
  assert_int_equal(device->grown_bytes, 7001);
  assert_int_equal(device->shrunk_bytes, 3000);
  assert_int_equal(device->added_bytes, 1100);
  assert_int_equal(device->removed_bytes, 300);
  assert_int_equal(device->omitted_changes, 0);
  tsr_diff_free(diff);
}

static void what_top_leaves_out_is_counted(void **state) {
  (void)state;
  tsr_query query = {.top = 2};
  tsr_diff *diff = compare(before, after, &query);
  assert_int_equal(diff->devices[0].change_count, 2);
  assert_int_equal(diff->devices[0].omitted_changes, 4);
  assert_int_equal(diff->devices[0].omitted_delta_bytes, 700 + 400 - 300 + 1);
  assert_int_equal(diff->devices[0].added_bytes, 1100);
  tsr_diff_free(diff);
}

static void the_same_is_no_change(void **state) {
  (void)state;
  tsr_diff *diff = compare(after, after, NULL);
  assert_int_equal(diff->devices[0].change_count, 0);
  assert_int_equal(diff->devices[0].unchanged_stacks, 6);
  tsr_diff_free(diff);
}

#define DEVICE "[" ALLOC("4096", "1000", FRAME("same", "1")) "]"

static void devices_are_paired(void **state) {
  (void)state;
  /* One each: compared whatever their numbers. */
  tsr_diff *diff = compare(TRACES(DEVICE), TRACES("[], [], " DEVICE), NULL);
  assert_int_equal(diff->device_count, 1);
  assert_int_equal(diff->devices[0].device, 2);
  assert_int_equal(diff->devices[0].old_side.device, 0);
  assert_int_equal(diff->devices[0].change_count, 0);
  tsr_diff_free(diff);
  /* Otherwise by number, and a device of one side alone is compared with nothing. */
  diff = compare(TRACES(DEVICE ", " DEVICE), TRACES("[], " DEVICE ", " DEVICE), NULL);
  assert_int_equal(diff->device_count, 3);
  assert_false(diff->devices[0].new_side.is_there);
  assert_int_equal(diff->devices[0].changes[0].status, TSR_CHANGE_REMOVED);
  assert_int_equal(diff->devices[1].change_count, 0);
  assert_false(diff->devices[2].old_side.is_there);
  assert_int_equal(diff->devices[2].device, 2);
  assert_int_equal(diff->devices[2].changes[0].status, TSR_CHANGE_ADDED);
  tsr_diff_free(diff);
}

static void devices_that_neither_has(void **state) {
  (void)state;
  uint32_t device = 5;
  tsr_query query = {.devices = &device, .device_count = 1};
  tsr_snapshot *a = read_text(before), *b = read_text(after);
  tsr_diff *diff = NULL;
  tsr_error error = {0};
  assert_int_equal(
      tsr_diff_compute(test_study(a), test_study(b), TSR_DIFF_BY_STACK, &query, &diff, &error),
      TSR_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "device 5"));
  assert_null(diff);
  tsr_snapshot_free(a);
  tsr_snapshot_free(b);
  diff = compare(TRACES(""), TRACES(""), NULL);
  assert_int_equal(diff->device_count, 0);
  tsr_diff_free(diff);
  tsr_diff_free(NULL);
}

/* Stacks in another order or depth are not the same; those whose lines alone differ are, where no
 * stack is the same to the line. */
static void stacks_match(void **state) {
  (void)state;
  static const char old_text[] = TRACES("[" ALLOC("4096", "1", FRAME("f", "1")) ", " ALLOC(
      "8192", "1", FRAME("f", "1") ", " FRAME("g", "2")) "]");
  static const char new_text[] = TRACES(
      "[" ALLOC("4096", "1", FRAME("f", "2")) ", " ALLOC("8192", "1", FRAME("g", "1")) ", " ALLOC(
          "12288", "1", FRAME("g", "2") ", " FRAME("f", "1")) ", " ALLOC("16384", "1",
                                                                         FRAME("f", "1") ", " FRAME(
                                                                             "g", "2")) "]");
  tsr_snapshot *a = read_text(old_text), *b = read_text(new_text);
  tsr__match match;
  assert_int_equal(tsr__match_compute(a, b, &match, NULL), 0);
  uint32_t found = 0, moved = 0;
  for (uint32_t i = 0; i < tsr_snapshot_stack_count(a); i++)
    for (uint32_t k = 0; k < tsr_snapshot_stack_count(b); k++) {
      if (match.old_class[i] != match.new_class[k] || !tsr_snapshot_stack(a, i).depth) continue;
      found++;
      moved += match.is_moved[match.old_class[i]];
      assert_int_equal(tsr_snapshot_stack(a, i).depth, tsr_snapshot_stack(b, k).depth);
    }
  assert_int_equal(found, 2);
  assert_int_equal(moved, 1);
  tsr__match_release(&match);
  tsr_snapshot_free(a);
  tsr_snapshot_free(b);
}

/* Two lines of a function that moved are two again; where one more comes, all are one. */
static void moved_lines(void **state) {
  (void)state;
  static const char two[] = TRACES(
      "[" ALLOC("4096", "10", FRAME("f", "1")) ", " ALLOC("8192", "300", FRAME("f", "2")) "]");
  static const char moved[] = TRACES(
      "[" ALLOC("4096", "11", FRAME("f", "5")) ", " ALLOC("8192", "500", FRAME("f", "6")) "]");
  static const char three[] = TRACES("[" ALLOC("4096", "11", FRAME("f", "5")) ", " ALLOC(
      "8192", "500", FRAME("f", "6")) ", " ALLOC("12288", "2", FRAME("f", "7")) "]");
  for (int by = TSR_DIFF_BY_STACK; by <= TSR_DIFF_BY_LINE; by += TSR_DIFF_BY_LINE) {
    tsr_snapshot *a = read_text(two), *b = read_text(moved), *c = read_text(three);
    tsr_diff *diff = NULL;
    assert_int_equal(
        tsr_diff_compute(test_study(a), test_study(b), (tsr_diff_by)by, NULL, &diff, NULL), 0);
    assert_int_equal(diff->devices[0].moved_stacks, 2);
    assert_int_equal(diff->devices[0].change_count, 2);
    assert_change(&diff->devices[0].changes[0], TSR_CHANGE_GROWN, 200, 300, 1, 1);
    assert_change(&diff->devices[0].changes[1], TSR_CHANGE_GROWN, 1, 10, 1, 1);
    assert_true(diff->devices[0].changes[0].is_moved);
    tsr_diff_free(diff);
    assert_int_equal(
        tsr_diff_compute(test_study(a), test_study(c), (tsr_diff_by)by, NULL, &diff, NULL), 0);
    assert_int_equal(diff->devices[0].moved_stacks, 1);
    assert_int_equal(diff->devices[0].change_count, 1);
    assert_change(&diff->devices[0].changes[0], TSR_CHANGE_GROWN, 203, 310, 2, 3);
    tsr_diff_free(diff);
    tsr_snapshot_free(a);
    tsr_snapshot_free(b);
    tsr_snapshot_free(c);
  }
}

/* ---- The cause ---- */

#define IN_FORWARD(line)                                                                       \
  FRAME("f", line)                                                                             \
  ", {\"name\": \"_call_impl\", \"filename\": \"/site-packages/torch/nn/modules/module.py\", " \
  "\"line\": 1}"
#define IN_BACKWARD                                                                        \
  "{\"name\": \"backward\", \"filename\": \"/site-packages/torch/autograd/__init__.py\", " \
  "\"line\": 1}"
#define FREE(action, addr, size)                                                         \
  "{\"action\": \"" action "\", \"addr\": " addr ", \"size\": " size ", \"stream\": 0, " \
  "\"time_us\": 1, \"frames\": []}"

/* Of the forward pass, which has the peak. */
#define PASSING                            \
  ALLOC("65536", "65536", IN_FORWARD("3")) \
  ", " FREE("free_requested", "65536", "65536") ", " FREE("free_completed", "65536", "65536")

/* Line 1 holds as much in both, but for backward in the first alone; line 2 has shrunk. */
static const char kept[] = TRACES("[" ALLOC("4096", "8192", IN_FORWARD("1")) ", " ALLOC(
    "16384", "1024", IN_FORWARD("2")) ", " PASSING ", " ALLOC("20480", "512", IN_BACKWARD) "]");
static const char let_go[] = TRACES("[" ALLOC("4096", "8192", IN_FORWARD("1")) ", " ALLOC(
    "16384", "512", IN_FORWARD("2")) ", " PASSING
                                     ", " FREE("free_requested", "4096", "8192") ", " FREE(
                                         "free_completed", "4096",
                                         "8192") ", " ALLOC("20480", "512", IN_BACKWARD) "]");

/* Line 1 kept 8192 bytes for backward; now it has 4096 and frees them. */
static const char half[] = TRACES("[" ALLOC("4096", "4096", IN_FORWARD("1")) ", " PASSING ", " FREE(
    "free_requested", "4096", "4096") ", " FREE("free_completed", "4096",
                                                "4096") ", " ALLOC("20480", "512",
                                                                   IN_BACKWARD) "]");

static void a_change_has_the_category_of_what_changed(void **state) {
  (void)state;
  tsr_diff *diff = compare(kept, half, NULL);
  const tsr_change *change = &diff->devices[0].changes[0];
  assert_change(change, TSR_CHANGE_SHRUNK, -4096, 8192, 1, 1);
  assert_int_equal(change->category, TSR_CATEGORY_ACTIVATION);
  tsr_diff_free(diff);
}

static void a_line_is_to_blame_for_bytes_and_not_for_names(void **state) {
  (void)state;
  tsr_diff *diff = compare(kept, let_go, NULL);
  const tsr_diff_cause *cause = &diff->devices[0].cause;
  assert_int_equal(cause->category, TSR_CATEGORY_ACTIVATION);
  assert_true(cause->kind_delta_bytes < -8192);
  assert_non_null(cause->line);
  assert_non_null(strstr(cause->line, "a.py:2"));
  assert_int_equal(cause->line_delta_bytes, -512);
  tsr_diff_free(diff);
}

static void names_of_statuses(void **state) {
  (void)state;
  assert_string_equal(tsr_change_status_name(TSR_CHANGE_ADDED), "added");
  assert_string_equal(tsr_change_status_name(TSR_CHANGE_REMOVED), "removed");
  assert_string_equal(tsr_change_status_name(TSR_CHANGE_GROWN), "grown");
  assert_string_equal(tsr_change_status_name(TSR_CHANGE_SHRUNK), "shrunk");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(changes_are_ranked),
      cmocka_unit_test(what_top_leaves_out_is_counted),
      cmocka_unit_test(the_same_is_no_change),
      cmocka_unit_test(devices_are_paired),
      cmocka_unit_test(devices_that_neither_has),
      cmocka_unit_test(stacks_match),
      cmocka_unit_test(moved_lines),
      cmocka_unit_test(a_change_has_the_category_of_what_changed),
      cmocka_unit_test(a_line_is_to_blame_for_bytes_and_not_for_names),
      cmocka_unit_test(names_of_statuses),
  };
  return cmocka_run_group_tests_name("diff", tests, NULL, NULL);
}
