/* Every allocation fails once on the way from bytes to a snapshot, an answer, a report, a file. */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "../unit/snapshot_support.h"
#include "base/buffer.h"
#include "oom.h"
#include "questions/reports.h"
#include "tessera/tessera.h"
#include "tessera/unstable/unstable.h"

/* clang-format off */
/* A snapshot that makes the reader and the answers take every path that allocates: stacks in both
 * ways of sharing, memory from before the trace, a pool, an odd value, settings, annotations.
 */
#define FRAME(line) "{\"name\": \"forward\", \"filename\": \"a.py\", \"line\": " line "}"
#define EVENT(action, addr, frames)                                           \
  "{\"action\": \"" action "\", \"addr\": " addr ", \"size\": 2097152, "      \
  "\"stream\": 7, \"time_us\": 5, \"compile_context\": \"N/A\", \"odd\": ["   \
  "1, {\"a\": 2.5}], \"pool_id\": [0, 1], \"frames\": [" frames "]}"
#define HISTORY "{\"addr\": 4096, \"real_size\": 500, \"frames\": [" FRAME("2") "]}"
#define SEGMENT                                                                            \
  "{\"device\": 0, \"address\": 4096, \"total_size\": 2097152, \"stream\": 7, "            \
  "\"segment_type\": \"small\", \"segment_pool_id\": [0, 1], \"frames\": [" FRAME("1")     \
  "], \"blocks\": [{\"size\": 512, \"requested_size\": 500, \"state\": "                   \
  "\"active_allocated\", \"history\": [" HISTORY "]}, "                                    \
  "{\"size\": 2096640, \"state\": \"inactive\"}]}"
static const char text[] =
    "{\"segments\": [" SEGMENT "], \"device_traces\": [["
    EVENT("alloc", "8192", FRAME("3")) ", "
    EVENT("free_requested", "8192", "") ", "
    EVENT("free_completed", "8192", FRAME("3") ", " FRAME("4")) ", "
    EVENT("segment_map", "16777216", "") ", "
    EVENT("oom", "1048576", FRAME("3")) ", 7]], "
    "\"allocator_settings\": {\"max_split_size\": -1}, \"external_annotations\": ["
    "{\"name\": \"step\", \"stage\": \"START\", \"device\": 0, \"time_us\": 5}, "
    "{\"name\": \"load\", \"stage\": \"END\", \"device\": 0, \"time_us\": 5}, "
    "{\"name\": \"part 1\", \"stage\": \"START\", \"device\": 0, \"time_us\": 5}, "
    "{\"name\": \"part 1\", \"stage\": \"END\", \"device\": 0, \"time_us\": 6}], "
    "\"more\": {\"x\": [[1], 2]}}";

/* clang-format on */

static tsr_snapshot *snapshot; /* of that text, for the answers */

/* Each operation has its own study, so that whatever a study keeps fails for every question. */
static tsr_study *study;

static int new_study(const tsr_snapshot *of, tsr_error *error) {
  tsr_study_free(study);
  study = NULL;
  return tsr_study_new(of, &study, error);
}

static tsr__buffer pickled;
static unsigned char zipped[8192];

/* ---- operations ---- */

typedef struct bytes {
  const void *data;
  size_t size;
} bytes;

static int open_bytes(void *context) {
  const bytes *b = context;
  tsr_snapshot *read = NULL;
  tsr_error error = {0};
  int status = tsr_snapshot_read(b->data, b->size, NULL, &read, &error);
  assert_int_equal(error.status, status);
  if (status) assert_null(read);
  tsr_snapshot_free(read);
  return status;
}

/* Several files at once: an allocation fails on the way to one of them, or none at all where it is the
 * threads that must be done without. */
static int open_several(void *context) {
  const char *path = context;
  tsr_opening openings[] = {{.path = path}, {.path = path}, {.path = path}};
  size_t failed = 0;
  int status = 0;
  tsr_snapshot_open_all(openings, 3);
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(openings[i].status == 0, openings[i].snapshot != NULL);
    if (openings[i].status) {
      status = openings[i].status;
      assert_int_equal(openings[i].error.status, status);
      failed++;
    }
    tsr_snapshot_free(openings[i].snapshot);
  }
  assert_true(failed <= 1);
  return status;
}

static const char sidecar_text[] =
    "{\"schema\": \"tessera/capture/1\", \"devices\": [{\"device\": 0, \"total_bytes\": 9}], "
    "\"models\": [{\"name\": \"m\", \"parameters\": [{\"name\": \"w\", \"dtype\": \"torch.int8\", "
    "\"shape\": [8], \"device\": \"cuda:0\", \"data_ptr\": 4096, \"nbytes\": 8, \"grad\": "
    "{\"data_ptr\": 4104, \"nbytes\": 8}}]}]}";

/* jansson takes its memory behind the test's back; the rest is ours. */
static int name_tensors(void *context) {
  (void)context;
  tsr_snapshot *named = NULL;
  tsr_at_where start = {.kind = TSR_AT_EVENT, .event = -1};
  tsr_at *answer = NULL;
  tsr_error error = {0};
  int status = read_with_sidecar(text, sizeof text - 1, sidecar_text, &named, &error);
  assert_int_equal(error.status, status);
  if (status) return status;
  size_t count;
  tsr_snapshot_tensors(named, &count);
  assert_int_equal(count, 2);
  status = new_study(named, &error);
  if (!status) status = tsr_at_compute(study, &start, NULL, &answer, &error);
  if (!status) assert_int_equal(answer->devices->stacks->names.count, 2);
  tsr_at_free(answer);
  tsr_study_free(study);
  study = NULL;
  tsr_snapshot_free(named);
  return status;
}

static int discard(void *context, const char *data, size_t size_bytes) {
  (void)context, (void)data, (void)size_bytes;
  return 0;
}

static const tsr_report_input heading_of = {.path = "file"};

/* Compute an answer, report it in both formats, release it. */
#define OPERATION(name, ...)                                                         \
  static int ask_##name(void *context) {                                             \
    (void)context;                                                                   \
    tsr_##name *answer = NULL;                                                       \
    tsr_error error = {0};                                                           \
    tsr_report_input heading = heading_of;                                           \
    heading.snapshot = snapshot;                                                     \
    int status = new_study(snapshot, &error);                                        \
    if (!status) status = tsr_##name##_compute(study, __VA_ARGS__, &answer, &error); \
    assert_int_equal(error.status, status);                                          \
    if (status) assert_null(answer);                                                 \
    for (int json = 0; !status && json < 2; json++) {                                \
      tsr_report_options how = {.format = json ? TSR_REPORT_JSON : TSR_REPORT_TEXT}; \
      status = tsr__report_##name(&heading, answer, &how, discard, NULL, &error);    \
    }                                                                                \
    tsr_##name##_free(answer);                                                       \
    return status;                                                                   \
  }

static const tsr_profile_options *profile_how; /* of ask_profile */
static const tsr_at_where second = {.kind = TSR_AT_EVENT, .event = 1};
OPERATION(info, NULL)
OPERATION(peak, NULL)
OPERATION(profile, profile_how, NULL)
OPERATION(at, &second, NULL)
OPERATION(whatif, NULL, NULL)
OPERATION(why, NULL, NULL)

static const char lock_text[] =
    "tessera memory lock 1\ndevice 0\npeak 5\nkind activation 7\ncause input 5 gone.py:load\n"
    "cause activation 3 a.py:forward\nrest 2\ndevice 3\npeak 1\n";

/* Read a lock, check against it and against budgets, report in every form, write a lock. */
static int ask_check(void *context) {
  (void)context;
  static const tsr_check_limit limits[] = {{TSR_CHECK_MAX_PEAK, 0, 1},
                                           {TSR_CHECK_MAX_CATEGORY, TSR_CATEGORY_ACTIVATION, 1}};
  tsr_lock *lock = NULL;
  tsr_check *check = NULL;
  tsr_error error = {0};
  tsr_report_input heading = heading_of;
  heading.snapshot = snapshot;
  int status = new_study(snapshot, &error);
  if (!status) status = tsr_lock_parse(lock_text, sizeof lock_text - 1, &lock, &error);
  tsr_check_options how = {.limits = limits, .limit_count = 2, .lock = lock};
  if (!status) status = tsr_check_compute(study, &how, NULL, &check, &error);
  for (int format = 0; !status && format <= TSR_CHECK_MARKDOWN; format++) {
    tsr_check_face face = {.format = (tsr_check_format)format, .root = "/work"};
    status = tsr__report_check(&heading, check, &face, NULL, discard, NULL, &error);
  }
  if (!status) status = tsr_lock_write(check, discard, NULL, &error);
  assert_int_equal(error.status, status);
  tsr_check_free(check);
  tsr_lock_free(lock);
  return status;
}

static const tsr_query one = {.top = 1};
OPERATION(stages, NULL, &one)

static const char source_text[] =
    "class A:\n  def forward(self):\n    return (\n 1)\ndef g():\n  1\n";
static const tsr_source_file source_file = {"x/a.py", source_text, sizeof source_text - 1};
OPERATION(source, &source_file, &one)

static int compare_sources(void *context) {
  (void)context;
  tsr_source_comparison *answer = NULL;
  tsr_error error = {0};
  tsr_report_input heading = heading_of;
  heading.snapshot = snapshot;
  int status = new_study(snapshot, &error);
  if (!status) status = tsr_source_compare(study, study, &source_file, NULL, &answer, &error);
  assert_int_equal(error.status, status);
  if (status) assert_null(answer);
  if (!status)
    status = tsr__report_source_comparison(&heading, &heading, answer, NULL, discard, NULL, &error);
  tsr_source_comparison_free(answer);
  return status;
}

static int analyze_file(void *context) {
  (void)context;
  tsr_mosaic_peak *peak = NULL;
  tsr_mosaic_file *analysis = NULL;
  int status = new_study(snapshot, NULL);
  if (!status) status = tsr_mosaic_peak_compute(study, NULL, &peak, NULL);
  if (!status) status = tsr_mosaic_file_compute(study, peak, &source_file, &analysis, NULL);
  if (!status) status = tsr_mosaic_print_file(snapshot, peak, analysis, true, discard, NULL, NULL);
  if (!status) status = tsr_mosaic_print_file(snapshot, peak, analysis, false, discard, NULL, NULL);
  if (!status) status = tsr_mosaic_print_file_comparison(analysis, analysis, discard, NULL, NULL);
  if (!status) status = tsr_mosaic_print_file_view(analysis, discard, NULL, NULL);
  tsr_mosaic_file_free(analysis);
  tsr_mosaic_peak_free(peak);
  return status;
}

/* Parameters of every kind that keeps something, and a question through the registry. */
static int ask_registry(void *context) {
  (void)context;
  static const char *const given[][2] = {
      {"by", "rules"}, {"rules", "{\"a\": \"b\"}"}, {"over_time", "true"}, {"samples", "3"}};
  const tsr_question *question = tsr_question_find("profile");
  tsr_params *params = NULL;
  tsr_answer *answer = NULL;
  tsr_error error;
  int status = new_study(snapshot, &error);
  if (!status) status = tsr_question_params(question, TSR_INTERFACE_PYTHON, &params, &error);
  for (size_t i = 0; !status && i < sizeof given / sizeof *given; i++)
    status = tsr_params_set_text(params, given[i][0], given[i][1], strlen(given[i][1]), &error);
  tsr_subject subject = {study, "a file"};
  if (!status) status = tsr_ask(question, &subject, 1, params, NULL, &answer, &error);
  if (!status) status = tsr_answer_write(answer, NULL, discard, NULL, &error);
  if (!status) status = tsr_answer_verdict(answer, discard, NULL, &error);
  int64_t size = -1;
  if (!status) status = tsr_answer_number(answer, "inputs[0].bytes", &size, &error);
  if (status) assert_int_equal(error.status, status);
  if (status) assert_int_equal(size, -1);
  tsr_answer_free(answer);
  tsr_params_free(params);
  return status;
}

static int ask_diff_by(tsr_diff_by by) {
  tsr_diff *answer = NULL;
  tsr_error error = {0};
  tsr_report_input heading = heading_of;
  heading.snapshot = snapshot;
  int status = new_study(snapshot, &error);
  if (!status) status = tsr_diff_compute(study, study, by, NULL, &answer, &error);
  assert_int_equal(error.status, status);
  if (status) assert_null(answer);
  for (int json = 0; !status && json < 2; json++) {
    tsr_report_options how = {.format = json ? TSR_REPORT_JSON : TSR_REPORT_TEXT};
    status = tsr__report_diff(&heading, &heading, answer, &how, discard, NULL, &error);
  }
  tsr_diff_free(answer);
  return status;
}

static int ask_diff(void *context) {
  (void)context;
  return ask_diff_by(TSR_DIFF_BY_LINE);
}

static int ask_alignment(void *context) {
  (void)context;
  return ask_diff_by(TSR_DIFF_BY_ALLOCATION);
}

/* jansson and libyaml take their memory behind the test's back; the rest is ours. */
static int parse_rules(void *context) {
  tsr_rules *rules = NULL;
  tsr_rule_problem problem = {0};
  tsr_error error = {0};
  int status =
      tsr_rules_parse(context, strlen(context), TSR_RULES_STRICT, &rules, &problem, &error);
  assert_int_equal(error.status, status);
  if (status) assert_null(rules);
  tsr_rule_problem_release(&problem);
  tsr_rules_free(rules);
  return status;
}

/* Mosaic's questions, and their answers printed. */
static int ask_mosaic_peak(void *context) {
  (void)context;
  tsr_mosaic_peak *peak = NULL;
  tsr_mosaic_diff *diff = NULL;
  int status = new_study(snapshot, NULL);
  if (!status) status = tsr_mosaic_peak_compute(study, NULL, &peak, NULL);
  if (!status) status = tsr_mosaic_log_peak(snapshot, peak, discard, NULL, NULL);
  if (!status)
    status = tsr_mosaic_print_groups(snapshot, &peak->groups, false, discard, NULL, NULL);
  if (!status) status = tsr_mosaic_diff_compute(study, peak, study, peak, &diff, NULL);
  if (!status) status = tsr_mosaic_log_diff(diff, discard, NULL, NULL);
  tsr_mosaic_diff_free(diff);
  tsr_mosaic_peak_free(peak);
  return status;
}

static int ask_mosaic_usage(void *context) {
  (void)context;
  tsr_events events = tsr_snapshot_events(snapshot, 0);
  tsr_mosaic_moment moment = {.address = events.addr[0], .action = (tsr_action)events.action[0]};
  tsr_mosaic_usage *usage = NULL;
  int status = new_study(snapshot, NULL);
  if (!status) status = tsr_mosaic_usage_compute(study, &moment, &usage, NULL);
  if (!status) status = tsr_mosaic_log_usage(snapshot, usage, discard, NULL, NULL);
  tsr_mosaic_usage_free(usage);
  return status;
}

static int ask_mosaic_stages(void *context) {
  (void)context;
  tsr_mosaic_stages *stages = NULL;
  int status = new_study(snapshot, NULL);
  if (!status) status = tsr_mosaic_stages_compute(study, NULL, 0, &stages, NULL);
  if (!status) status = tsr_mosaic_print_stages(snapshot, stages, false, discard, NULL, NULL);
  if (!status) status = tsr_mosaic_log_stages(stages, discard, NULL, NULL);
  tsr_mosaic_stages_free(stages);
  return status;
}

static int trim(void *context) {
  const tsr_window *window = context;
  tsr_snapshot *part = NULL;
  tsr_error error = {0};
  int status = new_study(snapshot, &error);
  if (!status) status = tsr_snapshot_trim(study, window, NULL, &part, &error);
  assert_int_equal(error.status, status);
  if (status) assert_null(part);
  tsr_snapshot_free(part);
  return status;
}

static int export(void *context) {
  const tsr_export_format *format = context;
  return tsr_snapshot_export(snapshot, *format, discard, NULL, NULL);
}

static int weigh(void *context) {
  const tsr_weigh_options *how = context;
  tsr_report_input heading = heading_of;
  heading.snapshot = snapshot;
  tsr_weights *weights = NULL;
  tsr_error error = {0};
  int status = new_study(snapshot, &error);
  if (!status) status = tsr_weights_compute(study, how, NULL, &weights, &error);
  assert_int_equal(error.status, status);
  for (int format = 0; !status && format <= TSR_STACKS_PPROF; format++)
    status = tsr_report_weights(&heading, weights, (tsr_stacks_format)format, NULL, discard, NULL,
                                &error);
  tsr_weights_free(weights);
  return status;
}

static int list_lives(void *context) {
  const tsr_lives_format *format = context;
  const tsr_report_options full = {.full_stacks = true};
  tsr_report_input heading = heading_of;
  heading.snapshot = snapshot;
  tsr_lives *lives = NULL;
  int status = new_study(snapshot, NULL);
  if (!status) status = tsr_lives_compute(study, NULL, &lives, NULL);
  if (!status) status = tsr_report_lives(&heading, lives, *format, &full, discard, NULL, NULL);
  tsr_lives_free(lives);
  return status;
}

typedef struct drawn {
  tsr_view_options view;
  tsr_view_stretch stretch;
} drawn;

static int make_page(void *context) {
  const drawn *how = context;
  tsr_view *view = NULL;
  tsr_page *page = NULL;
  tsr_view_cut cut = {0};
  tsr_error error = {0};
  tsr_page_options served = {.is_served = true};
  int status = new_study(snapshot, &error);
  if (!status) status = tsr_view_compute(study, &how->view, NULL, &view, &error);
  if (status) assert_null(view);
  if (!status) status = tsr_view_cut_compute(view->devices, &how->stretch, &cut, &error);
  tsr_page_input input = {heading_of, view, &cut};
  input.input.snapshot = snapshot;
  if (!status) status = tsr_page_open(&input, 1, &served, &page, &error);
  if (status) assert_null(page);
  if (!status) status = tsr_page_write(page, discard, NULL, &error);
  if (!status) status = tsr_page_write_part(page, 0, &cut, discard, NULL, &error);
  assert_int_equal(error.status, status);
  tsr_page_free(page);
  tsr_view_cut_release(&cut);
  tsr_view_free(view);
  return status;
}

/* ---- tests ---- */

/* Allocations that can be done without: what json_seen.c remembers, places in the memo of values
 * that are found elsewhere (tsr__resolve), and what PCRE2 compiles patterns with beyond what it
 * interprets them with. */
enum { SEEN_STACKS = 4, MEMO_PLACES = 1, JIT_PLACES = 6 };

static void opening(void **state) {
  (void)state;
  bytes json = {text, sizeof text - 1}, pickle = {pickled.data, pickled.size};
  tsr_test_oom_sparing(open_bytes, &json, 25, SEEN_STACKS);
  tsr_test_oom_sparing(open_bytes, &pickle, 25, MEMO_PLACES);
  z_stream z = {.next_in = (unsigned char *)pickled.data,
                .avail_in = (uInt)pickled.size,
                .next_out = zipped,
                .avail_out = sizeof zipped};
  assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  bytes gzip = {zipped, z.total_out};
  assert_int_equal(deflateEnd(&z), Z_OK);
  tsr_test_oom_sparing(open_bytes, &gzip, 30, MEMO_PLACES);
}

/* A profiler's trace and PyTorch's memory timeline, with every kind of row, and a total that no row explains. */
static void opening_traces(void **state) {
  (void)state;
#define TRACED(time, type, address, bytes, total)                                          \
  "{\"ph\": \"i\", \"name\": \"[memory]\", \"pid\": 1, \"tid\": 2, \"ts\": " time          \
  ", \"args\": {\"Device Type\": " type ", \"Device Id\": 0, " address "\"Bytes\": " bytes \
  ", \"Total Allocated\": " total ", \"Total Reserved\": " total "}}"
#define SLICED(category, name)                                   \
  "{\"ph\": \"X\", \"cat\": \"" category "\", \"name\": \"" name \
  "\", \"pid\": 1, \"tid\": 2, \"ts\": 1, \"dur\": 90}, "
  static const char trace[] =
      "{\"schemaVersion\": 1, \"traceEvents\": [" SLICED("python_function", "a\\u00e9.py(3): f")
          SLICED("cpu_op", "aten::mm") SLICED("user_annotation", "ProfilerStep#1")
              SLICED("python_function", "<built-in method f of type object at 0x7f>")
                  TRACED("2", "1", "\"Addr\": 4096, ", "64", "1064") ", " TRACED(
                      "3", "1", "\"Addr\": 8192, ", "-32",
                      "1132") ", " TRACED("4", "1", "\"Addr\": 4096, ", "-64",
                                          "900") ", " TRACED("5", "0", "", "16",
                                                             "16") ", " TRACED("6", "0", "", "-16",
                                                                               "0") "]}";
  static const char rows[] =
      "[[-1, 1, 64, 0], [9, 2, 32, 4], [9, 3, -32, 4], [9, 3, 32, 5], [9, 4, -8, 5]]";
  static const char sums[] = "[[1, 2], [[0, 9, 0, 0, 0, 0, 0, 0, 0], [0, 4, 0, 0, 0, 0, 0, 0, 7]]]";
  bytes all[] = {{trace, sizeof trace - 1}, {rows, sizeof rows - 1}, {sums, sizeof sums - 1}};
  for (size_t i = 0; i < 3; i++) tsr_test_oom_sparing(open_bytes, &all[i], 20, 12);
#undef TRACED
#undef SLICED
}

/* What is cut short is put together before it answers. */
static void opening_several(void **state) {
  (void)state;
  char path[] = "oom_opening_several.json";
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, sizeof text - 1, file), sizeof text - 1);
  (void)fclose(file);
  /* What may fail unnoticed is the pool and what it takes to start its threads. Which allocation is the
   * n-th changes from run to run, so that one of these may have its turn several times. */
  tsr_test_oom_sparing(open_several, path, 60, 40);
  (void)remove(path);
}

static void opening_what_is_cut(void **state) {
  (void)state;
  bytes json = {text, sizeof text - 100}, pickle = {pickled.data, pickled.size - 100};
  tsr_test_oom_sparing(open_bytes, &json, 20, SEEN_STACKS);
  tsr_test_oom_sparing(open_bytes, &pickle, 20, MEMO_PLACES);
}

static void naming(void **state) {
  (void)state;
  tsr_test_oom_sparing(name_tensors, NULL, 30, SEEN_STACKS);
}

static void answers(void **state) {
  (void)state;
  tsr_test_oom(ask_info, NULL, 10);
  tsr_test_oom(ask_peak, NULL, 10);
  tsr_test_oom(ask_at, NULL, 10);
  tsr_test_oom(ask_whatif, NULL, 10);
  tsr_test_oom(ask_why, NULL, 60);
  tsr_test_oom(ask_check, NULL, 60);
  tsr_test_oom(ask_diff, NULL, 10);
  tsr_test_oom(ask_alignment, NULL, 10);
  tsr_test_oom_sparing(ask_registry, NULL, 20, JIT_PLACES);
}

static void profiles(void **state) {
  (void)state;
  tsr_rules *rules = NULL;
  char json_rules[] = "{\"a\": \"forward\"}", yaml_rules[] = "a: forward\nb: back(ward)?\n";
  assert_int_equal(
      tsr_rules_parse(json_rules, strlen(json_rules), TSR_RULES_STRICT, &rules, NULL, NULL), 0);
  for (int by = TSR_PROFILE_BY_CATEGORY; by <= TSR_PROFILE_BY_MOSAIC_CATEGORY; by++) {
    tsr_profile_options how = {.by = (tsr_profile_by)by, .rules = rules};
    profile_how = &how;
    tsr_test_oom(ask_profile, NULL, 5);
    how.moment_count = 8;
    how.is_ordered = by != TSR_PROFILE_BY_ANNOTATION;
    tsr_test_oom(ask_profile, NULL, 10);
  }
  tsr_rules_free(rules);
  tsr_test_oom_sparing(parse_rules, json_rules, 5, JIT_PLACES);
  tsr_test_oom_sparing(parse_rules, yaml_rules, 5, 2 * JIT_PLACES);
}

static void mosaic_answers(void **state) {
  (void)state;
  tsr_test_oom(ask_mosaic_peak, NULL, 8);
  tsr_test_oom(ask_mosaic_usage, NULL, 4);
  tsr_test_oom(ask_mosaic_stages, NULL, 2);
}

static void stages_and_sources(void **state) {
  (void)state;
  tsr_test_oom(ask_stages, NULL, 20);
  tsr_test_oom(ask_source, NULL, 20);
  tsr_test_oom(compare_sources, NULL, 40);
  tsr_test_oom(analyze_file, NULL, 20);
}

static void writing(void **state) {
  (void)state;
  tsr_window window = {.first = 1, .last = 2};
  tsr_test_oom(trim, &window, 20);
  for (tsr_export_format format = TSR_EXPORT_PICKLE; format <= TSR_EXPORT_PYTHON_JSON; format++)
    tsr_test_oom(export, &format, 2);
}

static void writing_for_others(void **state) {
  (void)state;
  tsr_weigh_options how = {.where = second, .window = {.first = 0, .last = 2}};
  for (how.what = TSR_WEIGH_PEAK; how.what <= TSR_WEIGH_WINDOW; how.what++)
    tsr_test_oom(weigh, &how, 10);
  for (tsr_lives_format format = TSR_LIVES_CSV; format <= TSR_LIVES_PERFETTO; format++)
    tsr_test_oom(list_lives, &format, 10);
}

static void drawing(void **state) {
  (void)state;
  tsr_rules *rules = NULL;
  char json[] = "{\"a\": \"forward\"}";
  assert_int_equal(tsr_rules_parse(json, strlen(json), TSR_RULES_STRICT, &rules, NULL, NULL), 0);
  drawn all = {{0}, {0}}, few = {{.rules = rules}, {.most_allocations = 1, .most_buckets = 2}};
  tsr_test_oom(make_page, &all, 30);
  tsr_test_oom(make_page, &few, 30);
  tsr_rules_free(rules);
}

static int keep(void *context, const char *data, size_t size_bytes) {
  tsr__buffer_append(context, data, size_bytes);
  return 0;
}

static int set_up(void **state) {
  (void)state;
  tsr_error error = {0};
  if (tsr_snapshot_read(text, sizeof text - 1, NULL, &snapshot, &error)) {
    print_error("%s at %llu\n", error.message, (unsigned long long)error.offset);
    return -1;
  }
  return tsr_snapshot_export(snapshot, TSR_EXPORT_PICKLE, keep, &pickled, NULL);
}

static int tear_down(void **state) {
  (void)state;
  tsr_study_free(study);
  tsr_snapshot_free(snapshot);
  tsr__buffer_release(&pickled);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(opening),
      cmocka_unit_test(opening_traces),
      cmocka_unit_test(opening_several),
      cmocka_unit_test(opening_what_is_cut),
      cmocka_unit_test(naming),
      cmocka_unit_test(answers),
      cmocka_unit_test(profiles),
      cmocka_unit_test(mosaic_answers),
      cmocka_unit_test(stages_and_sources),
      cmocka_unit_test(writing),
      cmocka_unit_test(writing_for_others),
      cmocka_unit_test(drawing),
  };
  return cmocka_run_group_tests_name("oom snapshot", tests, set_up, tear_down);
}
