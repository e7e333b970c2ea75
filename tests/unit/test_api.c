/* The stable interface, seen from a program: options of another version, columns, a question by
 * name. Only tessera/tessera.h is included, besides what lists a snapshot's tables otherwise. */
#include "tessera/tessera.h"

#include <string.h>

#include "tessera/unstable/columns.h"
#include "test_support.h"

static const char text[] =
    "{\"segments\": [{\"device\": 1, \"address\": 4096, \"total_size\": 1024, \"stream\": 0, "
    "\"segment_type\": \"small\", \"blocks\": ["
    "{\"size\": 512, \"requested_size\": 500, \"state\": \"active_allocated\"}, "
    "{\"size\": 512, \"requested_size\": 0, \"state\": \"inactive\"}]}], "
    "\"device_traces\": [[], ["
    "{\"action\": \"segment_alloc\", \"addr\": 4096, \"size\": 1024, \"stream\": 0, \"time_us\": "
    "5}, "
    "{\"action\": \"alloc\", \"addr\": 4096, \"size\": 500, \"stream\": 0}]]}";

static tsr_snapshot *open_text(const tsr_open_options *how) {
  tsr_snapshot *snapshot = NULL;
  tsr_error error;
  if (tsr_snapshot_read(text, sizeof text - 1, how, &snapshot, &error))
    fail_msg("%s", error.message);
  return snapshot;
}

static int discard(void *context, const char *data, size_t size_bytes) {
  (void)data;
  *(size_t *)context += size_bytes;
  return 0;
}

/* ---- options ---- */

/* What a program has that was built with headers of a later version. */
typedef struct later_query {
  tsr_query known;
  uint64_t added;
} later_query;

/* What one has that was built before `top` was there. */
typedef struct earlier_query {
  size_t struct_bytes;
  const uint32_t *devices;
  size_t device_count;
} earlier_query;

static int ask(const tsr_snapshot *snapshot, const void *query, tsr_error *error) {
  tsr_study *study;
  tsr_answer *answer = NULL;
  assert_int_equal(tsr_study_new(snapshot, &study, NULL), 0);
  tsr_subject subject = {study, "text"};
  int status = tsr_ask(tsr_question_find("peak"), &subject, 1, NULL, query, &answer, error);
  assert_true(status ? !answer : answer != NULL);
  tsr_answer_free(answer);
  tsr_study_free(study);
  return status;
}

static void test_sizes_of_options(void **state) {
  (void)state;
  tsr_snapshot *snapshot = open_text(NULL);
  tsr_error error = {0};
  uint32_t one = 1, nine = 9;
  tsr_query now = TSR_OPTIONS_INIT(tsr_query);
  assert_int_equal(now.struct_bytes, sizeof now);
  assert_int_equal(now.top, 0);
  assert_int_equal(ask(snapshot, NULL, NULL), 0);
  assert_int_equal(ask(snapshot, &now, NULL), 0);
  assert_int_equal(ask(snapshot, &(tsr_query){0}, NULL), 0);

  /* What an earlier struct lacks is not read: after it comes what would be no device at all. */
  struct {
    earlier_query query;
    unsigned char after[sizeof(tsr_query)];
  } earlier = {.query = {sizeof earlier.query, &one, 1}};
  memset(earlier.after, 0xff, sizeof earlier.after);
  assert_int_equal(ask(snapshot, &earlier, NULL), 0);
  /* What it has is. */
  earlier.query.devices = &nine;
  assert_int_equal(ask(snapshot, &earlier, &error), TSR_ERROR_ARGUMENT);

  later_query later = {.known = {.struct_bytes = sizeof later, .devices = &one, .device_count = 1}};
  assert_int_equal(ask(snapshot, &later, NULL), 0);
  later.known.devices = &nine;
  assert_int_equal(ask(snapshot, &later, NULL), TSR_ERROR_ARGUMENT);
  later.known.devices = &one;
  later.added = 1;
  assert_int_equal(ask(snapshot, &later, &error), TSR_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "does not have"));

  now.struct_bytes = sizeof(size_t) - 1;
  assert_int_equal(ask(snapshot, &now, &error), TSR_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "size of 7 bytes"));
  tsr_snapshot_free(snapshot);
}

/* Every function of the stable interface that takes options refuses what it does not know. */
static void test_unknown_options_of_snapshots(void **state) {
  (void)state;
  tsr_snapshot *snapshot = NULL;
  struct {
    tsr_open_options known;
    uint64_t added;
  } opening = {.known.struct_bytes = sizeof opening, .added = 1};
  assert_int_equal(tsr_snapshot_read(text, sizeof text - 1, &opening.known, &snapshot, NULL),
                   TSR_ERROR_ARGUMENT);
  assert_int_equal(tsr_snapshot_open("/nowhere", &opening.known, &snapshot, NULL),
                   TSR_ERROR_ARGUMENT);
  opening.added = 0;
  snapshot = open_text(&opening.known);

  struct {
    tsr_report_options known;
    uint64_t added;
  } writing = {.known.struct_bytes = sizeof writing, .added = 1};
  tsr_study *study;
  tsr_answer *answer;
  size_t written = 0;
  assert_int_equal(tsr_study_new(snapshot, &study, NULL), 0);
  tsr_subject subject = {study, "text"};
  assert_int_equal(tsr_ask(tsr_question_find("info"), &subject, 1, NULL, NULL, &answer, NULL), 0);
  assert_int_equal(tsr_answer_write(answer, &writing.known, discard, &written, NULL),
                   TSR_ERROR_ARGUMENT);
  assert_int_equal(written, 0);
  writing.added = 0;
  assert_int_equal(tsr_answer_write(answer, &writing.known, discard, &written, NULL), 0);
  assert_true(written > 0);
  tsr_answer_free(answer);
  tsr_study_free(study);
  tsr_snapshot_free(snapshot);
}

static void test_unknown_options_of_models(void **state) {
  (void)state;
  struct {
    tsr_allocator_options known;
    uint64_t added;
  } allocating = {.known.struct_bytes = sizeof allocating, .added = 1};
  tsr_allocator *allocator = NULL;
  assert_int_equal(tsr_allocator_new(&allocating.known, &allocator, NULL), TSR_ERROR_ARGUMENT);
  allocating.added = 0;
  assert_int_equal(tsr_allocator_new(&allocating.known, &allocator, NULL), 0);
  tsr_allocator_destroy(allocator);

  struct {
    tsr_simulate_options known;
    uint64_t added;
  } simulating = {.known = {.struct_bytes = sizeof simulating, .batch = 1, .sequence = 8},
                  .added = 1};
  tsr_model *model = NULL;
  tsr_simulation *simulation = NULL;
  assert_int_equal(tsr_model_named("gpt2", &model, NULL), 0);
  assert_int_equal(tsr_simulate(model, &simulating.known, &simulation, NULL), TSR_ERROR_ARGUMENT);
  simulating.added = 0;
  assert_int_equal(tsr_simulate(model, &simulating.known, &simulation, NULL), 0);
  assert_false(tsr_simulation_is_out_of_memory(simulation));
  assert_true(tsr_simulation_peak(simulation).allocated_bytes >
              4 * tsr_model_parameter_count(model));
  assert_non_null(tsr_simulation_snapshot(simulation));
  tsr_simulation_free(simulation);
  tsr_model_free(model);
}

/* Room for later versions has to be 0. */
static void test_reserved_room(void **state) {
  (void)state;
  tsr_allocator *allocator = NULL;
  tsr_allocator_options allocating = {.settings.reserved = {[5] = 1}};
  assert_int_equal(tsr_allocator_new(&allocating, &allocator, NULL), TSR_ERROR_ARGUMENT);
  tsr_snapshot *snapshot = NULL;
  tsr_open_options opening = {.limits.reserved = {1}};
  assert_int_equal(tsr_snapshot_read(text, sizeof text - 1, &opening, &snapshot, NULL),
                   TSR_ERROR_ARGUMENT);
}

/* ---- columns ---- */

static tsr_column_view column(const tsr_snapshot *snapshot, tsr_table table, uint32_t device,
                              const char *name) {
  tsr_column_view found;
  if (tsr_snapshot_column(snapshot, table, device, name, &found, NULL)) fail_msg("%s", name);
  return found;
}

static void test_columns(void **state) {
  (void)state;
  tsr_snapshot *snapshot = open_text(NULL);
  tsr_events events = tsr_snapshot_events(snapshot, 1);
  tsr_column_view size = column(snapshot, TSR_TABLE_EVENTS, 1, "size_bytes");
  assert_int_equal(size.count, 2);
  assert_ptr_equal(size.data, events.size);
  assert_int_equal(tsr_column_at(&size, 1), 500);
  tsr_column_view action = column(snapshot, TSR_TABLE_EVENTS, 1, "action");
  assert_int_equal(tsr_column_at(&action, 1), TSR_ACTION_ALLOC);
  tsr_column_view time_us = column(snapshot, TSR_TABLE_EVENTS, 1, "time_us");
  assert_int_equal(time_us.type, TSR_COLUMN_TIME);
  assert_int_equal(tsr_column_at(&time_us, 0), 5);
  assert_true((int64_t)tsr_column_at(&time_us, 1) == TSR_TIME_NONE);
  /* The same in every row. */
  tsr_column_view stream = column(snapshot, TSR_TABLE_EVENTS, 1, "stream");
  assert_int_equal(stream.stride_bytes, 0);
  assert_int_equal(tsr_snapshot_stream(snapshot, (uint32_t)tsr_column_at(&stream, 1)), 0);
  assert_int_equal(column(snapshot, TSR_TABLE_EVENTS, 0, "size_bytes").count, 0);
  assert_null(column(snapshot, TSR_TABLE_EVENTS, 7, "pool").data);

  tsr_column_view total = column(snapshot, TSR_TABLE_SEGMENTS, 0, "size_bytes");
  assert_int_equal(total.count, 1);
  assert_int_equal(tsr_column_at(&total, 0), 1024);
  tsr_column_view large = column(snapshot, TSR_TABLE_SEGMENTS, 0, "is_large");
  assert_int_equal(tsr_column_at(&large, 0), 0);
  tsr_column_view requested = column(snapshot, TSR_TABLE_BLOCKS, 0, "requested_bytes");
  assert_int_equal(requested.count, 2);
  assert_int_equal(tsr_column_at(&requested, 0), 500);
  tsr_snapshot_free(snapshot);
}

/* All names are found, and no others. */
static void test_column_names(void **state) {
  (void)state;
  tsr_snapshot *snapshot = open_text(NULL);
  tsr_error error;
  for (tsr_table table = TSR_TABLE_EVENTS; table < TSR_TABLE_COUNT; table++) {
    const char *const *names = tsr_table_columns(table);
    assert_non_null(*names);
    for (; *names; names++) {
      tsr_column_view found = column(snapshot, table, 1, *names);
      for (uint64_t row = 0; row < found.count; row++) (void)tsr_column_at(&found, row);
    }
    tsr_column_view untouched = {.count = 77};
    assert_int_equal(tsr_snapshot_column(snapshot, table, 1, "no", &untouched, &error),
                     TSR_ERROR_ARGUMENT);
    assert_int_equal(untouched.count, 77);
  }
  tsr_column_view none;
  assert_int_equal(tsr_snapshot_column(snapshot, TSR_TABLE_COUNT, 1, "size_bytes", &none, &error),
                   TSR_ERROR_ARGUMENT);
  tsr_snapshot_free(snapshot);
}

/* ---- questions ---- */

static void test_parameters_of_a_question(void **state) {
  (void)state;
  const tsr_question *question = tsr_question_find("at");
  tsr_params *params = NULL;
  assert_int_equal(tsr_question_params(question, TSR_INTERFACE_PYTHON, &params, NULL), 0);
  const tsr_parameter *row;
  for (size_t i = 0; (row = tsr_question_parameter(question, i)); i++) {
    assert_ptr_equal(tsr_params_find(params, row->name, strlen(row->name)), row);
  }
  assert_int_equal(tsr_params_set_integer(params, "event", 1, NULL), 0);
  assert_int_equal(tsr_question_check(question, params, NULL), 0);
  tsr_params_free(params);
}

/* ---- values by path ---- */

typedef struct asked {
  tsr_snapshot *snapshot;
  tsr_study *study;
  tsr_answer *answer;
} asked;

static asked ask_named(const char *name) {
  asked a = {.snapshot = open_text(NULL)};
  assert_int_equal(tsr_study_new(a.snapshot, &a.study, NULL), 0);
  tsr_subject subject = {a.study, "text"};
  assert_int_equal(tsr_ask(tsr_question_find(name), &subject, 1, NULL, NULL, &a.answer, NULL), 0);
  return a;
}

static void release(asked *a) {
  tsr_answer_free(a->answer);
  tsr_study_free(a->study);
  tsr_snapshot_free(a->snapshot);
}

static int64_t number_at(tsr_answer *answer, const char *path) {
  int64_t number = -7;
  tsr_error error;
  if (tsr_answer_number(answer, path, &number, &error)) fail_msg("%s", error.message);
  return number;
}

static void expect_text(tsr_answer *answer, const char *path, const char *want) {
  tsr_text found = {NULL, 0};
  assert_int_equal(tsr_answer_text(answer, path, &found, NULL), 0);
  assert_string_equal(found.data, want);
  assert_int_equal(found.size_bytes, strlen(want));
}

static void test_values(void **state) {
  (void)state;
  asked a = ask_named("peak");
  uint64_t count = 0;
  double real = 0;
  expect_text(a.answer, "command", "peak");
  expect_text(a.answer, "inputs[0].path", "text");
  assert_int_equal(number_at(a.answer, "inputs[0].bytes"), sizeof text - 1);
  assert_int_equal(number_at(a.answer, "devices[0].device"), 1);
  assert_int_equal(number_at(a.answer, "devices[0].peak.allocated_bytes"), 1024);
  assert_int_equal(number_at(a.answer, "peak.allocated_bytes"), 1024);
  assert_int_equal(tsr_answer_real(a.answer, "fragmentation.rounding_bytes", &real, NULL), 0);
  assert_true(real > 11 && real < 13);
  assert_int_equal(tsr_answer_count(a.answer, "devices", &count, NULL), 0);
  assert_int_equal(count, 1);
  assert_int_equal(tsr_answer_count(a.answer, "findings", &count, NULL), 0);
  assert_int_equal(count, 0);
  assert_int_equal(number_at(a.answer, "devices[0].stacks[0].bytes"), 500);
  assert_int_equal(number_at(a.answer, "stacks[0].categories.unknown"), 500);
  release(&a);
}

static void expect_failure(tsr_answer *answer, const char *path, int status, const char *message) {
  tsr_error error = {.status = TSR_OK};
  tsr_text found = {"untouched", 9};
  int64_t number = -7;
  uint64_t count = 77;
  double real = -7;
  assert_int_equal(tsr_answer_number(answer, path, &number, &error), status);
  assert_int_equal(error.status, status);
  if (!strstr(error.message, message)) fail_msg("%s: %s", path, error.message);
  assert_int_equal(number, -7);
  /* What is wrong with a path does not depend on what is expected at its end. */
  if (status == TSR_ERROR_TYPE) return;
  assert_int_equal(tsr_answer_text(answer, path, &found, NULL), status);
  assert_int_equal(tsr_answer_real(answer, path, &real, NULL), status);
  assert_int_equal(tsr_answer_count(answer, path, &count, NULL), status);
  assert_string_equal(found.data, "untouched");
  assert_int_equal(count, 77);
  assert_true(real < -6);
}

static void test_paths_without_a_value(void **state) {
  (void)state;
  asked a = ask_named("peak");
  static const char *const wrong[] = {
      "",      ".",   "peak.",      ".peak",       "peak..x", "devices[]",
      "a[-1]", "a[1", "devices[x]", "devices[0]x", "[0]",     "a[9999999999999999999]"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    expect_failure(a.answer, wrong[i], TSR_ERROR_ARGUMENT, "is not a path");
  expect_failure(a.answer, "peek.event", TSR_ERROR_ARGUMENT,
                 "'peek' is not a field of this answer");
  expect_failure(a.answer, "devices[0].peak.bytes", TSR_ERROR_ARGUMENT, "'devices[0].peak.bytes'");
  expect_failure(a.answer, "devices[1]", TSR_ERROR_ABSENT, "'devices[1]' is absent");
  expect_failure(a.answer, "devices[1].peak", TSR_ERROR_ABSENT, "'devices[1]' is absent");
  expect_failure(a.answer, "stacks[0].categories.gradient", TSR_ERROR_ABSENT, "absent");
  expect_failure(a.answer, "peak.time_us", TSR_ERROR_NULL, "'peak.time_us' is null");
  expect_failure(a.answer, "inputs[0].sidecar", TSR_ERROR_NULL, "is null");
  expect_failure(a.answer, "inputs[0].sidecar[0]", TSR_ERROR_NULL, "is null");
  expect_failure(a.answer, "command", TSR_ERROR_TYPE, "'command' is a text, not a number");
  expect_failure(a.answer, "command.x", TSR_ERROR_TYPE, "'command' is no object");
  expect_failure(a.answer, "peak[0]", TSR_ERROR_TYPE, "'peak' is no list");
  expect_failure(a.answer, "peak", TSR_ERROR_TYPE, "'peak' is an object, not a number");
  expect_failure(a.answer, "devices.peak", TSR_ERROR_TYPE, "'devices' is a list: number its entry");
  expect_failure(a.answer, "devices", TSR_ERROR_TYPE, "'devices' is a list, not a number");
  tsr_text found;
  double real;
  uint64_t count;
  assert_int_equal(tsr_answer_text(a.answer, "device", &found, NULL), TSR_ERROR_TYPE);
  assert_int_equal(tsr_answer_real(a.answer, "command", &real, NULL), TSR_ERROR_TYPE);
  assert_int_equal(tsr_answer_count(a.answer, "peak", &count, NULL), TSR_ERROR_TYPE);
  /* A failure is no reason to fail again. */
  assert_int_equal(number_at(a.answer, "device"), 1);
  release(&a);
}

static void test_truth_and_absent_devices(void **state) {
  (void)state;
  static const char none[] = "{\"segments\": [], \"device_traces\": []}";
  asked a = {NULL, NULL, NULL};
  assert_int_equal(tsr_snapshot_read(none, sizeof none - 1, NULL, &a.snapshot, NULL), 0);
  assert_int_equal(tsr_study_new(a.snapshot, &a.study, NULL), 0);
  tsr_subject subject = {a.study, "none"};
  assert_int_equal(tsr_ask(tsr_question_find("peak"), &subject, 1, NULL, NULL, &a.answer, NULL), 0);
  expect_failure(a.answer, "peak.event", TSR_ERROR_ABSENT, "about no device");
  release(&a);

  tsr_params *params = NULL;
  tsr_answer *answer = NULL;
  subject = (tsr_subject){NULL, "gpt2"};
  const tsr_question *question = tsr_question_find("simulate");
  assert_int_equal(tsr_question_params(question, TSR_INTERFACE_PYTHON, &params, NULL), 0);
  assert_int_equal(tsr_params_set_text(params, "model", "gpt2", 4, NULL), 0);
  assert_int_equal(tsr_params_set_integer(params, "seq", 8, NULL), 0);
  assert_int_equal(tsr_ask(question, &subject, 1, params, NULL, &answer, NULL), 0);
  assert_int_equal(number_at(answer, "fits"), 1);
  expect_failure(answer, "out_of_memory.event", TSR_ERROR_ABSENT, "'out_of_memory' is absent");
  expect_failure(answer, "message", TSR_ERROR_ABSENT, "absent");
  tsr_answer_free(answer);

  /* A model needs no name. */
  assert_int_equal(tsr_ask(question, NULL, 0, params, NULL, &answer, NULL), 0);
  assert_int_equal(number_at(answer, "fits"), 1);
  tsr_answer_free(answer);
  tsr_subject many[TSR_QUESTION_SUBJECTS + 1] = {{NULL, "a"}, {NULL, "b"}, {NULL, "c"}};
  assert_int_equal(tsr_ask(question, many, TSR_QUESTION_SUBJECTS + 1, params, NULL, &answer, NULL),
                   TSR_ERROR_ARGUMENT);
  tsr_params_free(params);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sizes_of_options),
      cmocka_unit_test(test_unknown_options_of_snapshots),
      cmocka_unit_test(test_unknown_options_of_models),
      cmocka_unit_test(test_reserved_room),
      cmocka_unit_test(test_columns),
      cmocka_unit_test(test_column_names),
      cmocka_unit_test(test_parameters_of_a_question),
      cmocka_unit_test(test_values),
      cmocka_unit_test(test_paths_without_a_value),
      cmocka_unit_test(test_truth_and_absent_devices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
