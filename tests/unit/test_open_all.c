/* Tests of snapshot/read/open_all.c: several files at once are what each of them is alone, and what is
 * wrong with one of them is wrong with that one only.
 *
 * Under ThreadSanitizer (./run test) they also look for races between the threads that read. */
#include <stdio.h>
#include <string.h>

#include "tessera/unstable/columns.h"
#include "test_support.h"

/* Large enough for a file to have a second thread of its own, which reads ahead of the parser. */
enum { LONG_EVENTS = 40000 };

#define LONG_FILE    "open_all_long.json"
#define OTHER_FILE   "open_all_other.json"
#define SHORT_FILE   "open_all_short.json"
#define DAMAGED_FILE "open_all_damaged.json"
#define NO_FILE      "open_all_missing.json"

static void write_trace(const char *path, int count, uint64_t first_address, const char *end) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  (void)fputs("{\"segments\": [], \"device_traces\": [[", file);
  for (int i = 0; i < count; i++)
    (void)fprintf(file,
                  "%s{\"action\": \"alloc\", \"addr\": %llu, \"size\": 512, \"stream\": 0, "
                  "\"time_us\": %d, \"frames\": [{\"name\": \"f\", \"filename\": \"%s\", "
                  "\"line\": %d}]}",
                  i ? ", " : "", (unsigned long long)first_address + 512ull * (unsigned)i, i, path,
                  i % 7);
  (void)fprintf(file, "]]%s", end);
  assert_int_equal(fclose(file), 0);
}

static int write_files(void **state) {
  (void)state;
  write_trace(LONG_FILE, LONG_EVENTS, 4096, "}");
  write_trace(OTHER_FILE, LONG_EVENTS + 1, 8192, "}");
  write_trace(SHORT_FILE, 3, 512, "}");
  write_trace(DAMAGED_FILE, LONG_EVENTS, 4096, ", !");
  (void)remove(NO_FILE);
  return 0;
}

static int remove_files(void **state) {
  (void)state;
  (void)remove(LONG_FILE);
  (void)remove(OTHER_FILE);
  (void)remove(SHORT_FILE);
  (void)remove(DAMAGED_FILE);
  return 0;
}

static void check_same_events(const tsr_snapshot *a, const tsr_snapshot *b) {
  tsr_events x = tsr_snapshot_events(a, 0), y = tsr_snapshot_events(b, 0);
  assert_int_equal(x.count, y.count);
  assert_memory_equal(x.action, y.action, (size_t)x.count);
  assert_memory_equal(x.addr, y.addr, (size_t)x.count * sizeof *x.addr);
  assert_memory_equal(x.size, y.size, (size_t)x.count * sizeof *x.size);
  assert_memory_equal(x.time_us, y.time_us, (size_t)x.count * sizeof *x.time_us);
  assert_memory_equal(x.stack, y.stack, (size_t)x.count * sizeof *x.stack);
}

/* Each of the openings is what tsr_snapshot_open makes of its path; frees its snapshot. */
static void check_and_free(tsr_opening *openings, size_t count) {
  for (size_t i = 0; i < count; i++) {
    tsr_opening *o = &openings[i];
    tsr_snapshot *alone = NULL;
    tsr_error error = {.offset = TSR_OFFSET_NONE};
    assert_int_equal(o->status, tsr_snapshot_open(o->path, NULL, &alone, &error));
    assert_int_equal(o->status == 0, o->snapshot != NULL);
    if (o->status) {
      assert_int_equal(o->error.status, error.status);
      assert_int_equal(o->error.offset, error.offset);
      assert_string_equal(o->error.message, error.message);
      continue;
    }
    assert_int_equal(tsr_snapshot_input_bytes(o->snapshot), tsr_snapshot_input_bytes(alone));
    assert_string_equal(tsr_snapshot_format(o->snapshot), tsr_snapshot_format(alone));
    check_same_events(o->snapshot, alone);
    tsr_snapshot_free(alone);
    tsr_snapshot_free(o->snapshot);
  }
}

static void test_several_at_once(void **state) {
  (void)state;
  /* One file may be opened twice. */
  tsr_opening openings[] = {
      {.path = LONG_FILE}, {.path = OTHER_FILE}, {.path = SHORT_FILE}, {.path = LONG_FILE}};
  tsr_snapshot_open_all(openings, 4);
  for (size_t i = 0; i < 4; i++) assert_int_equal(openings[i].status, 0);
  assert_int_equal(tsr_snapshot_events(openings[1].snapshot, 0).count, LONG_EVENTS + 1);
  check_and_free(openings, 4);
}

static void test_few(void **state) {
  (void)state;
  tsr_opening one = {.path = SHORT_FILE};
  tsr_snapshot_open_all(&one, 0);
  assert_null(one.snapshot);
  tsr_snapshot_open_all(&one, 1);
  check_and_free(&one, 1);
}

/* Whatever an opening held before says nothing. */
static void test_an_error_is_one_files_own(void **state) {
  (void)state;
  tsr_opening openings[] = {{.path = DAMAGED_FILE, .status = 5},
                            {.path = LONG_FILE, .status = 5},
                            {.path = NO_FILE},
                            {.path = SHORT_FILE, .error = {.status = TSR_ERROR_LIMIT}}};
  tsr_snapshot_open_all(openings, 4);
  assert_int_equal(openings[0].status, TSR_ERROR_FORMAT);
  assert_int_equal(openings[1].status, 0);
  assert_int_equal(openings[2].status, TSR_ERROR_IO);
  assert_int_equal(openings[3].status, 0);
  check_and_free(openings, 4);
}

static bool stop(void *context, uint64_t done_bytes, uint64_t total_bytes) {
  (void)done_bytes, (void)total_bytes;
  ++*(int *)context;
  return false;
}

static bool watch(void *context, uint64_t done_bytes, uint64_t total_bytes) {
  assert_true(done_bytes <= total_bytes);
  *(uint64_t *)context = done_bytes;
  return true;
}

static void test_options_are_one_files_own(void **state) {
  (void)state;
  int stops = 0;
  uint64_t done = 0;
  tsr_opening openings[] = {
      {.path = LONG_FILE, .options = {.progress = stop, .progress_context = &stops}},
      {.path = OTHER_FILE, .options = {.progress = watch, .progress_context = &done}},
      {.path = LONG_FILE, .options = {.limits = {.string_bytes = 1}}}};
  tsr_snapshot_open_all(openings, 3);
  assert_int_equal(openings[0].status, TSR_ERROR_IO);
  assert_string_equal(openings[0].error.message, "stopped");
  assert_int_equal(stops, 1);
  assert_int_equal(openings[1].status, 0);
  assert_int_equal(done, tsr_snapshot_input_bytes(openings[1].snapshot));
  assert_int_equal(openings[2].status, TSR_ERROR_LIMIT);
  tsr_snapshot_free(openings[1].snapshot);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_several_at_once),
                                     cmocka_unit_test(test_few),
                                     cmocka_unit_test(test_an_error_is_one_files_own),
                                     cmocka_unit_test(test_options_are_one_files_own)};
  return cmocka_run_group_tests(tests, write_files, remove_files);
}
