/* test_params.c - parameters by name: every kind from every form, and messages about wrong ones. */
#include <stdio.h>
#include <string.h>

#include "tessera/model.h"
#include "tessera/rules.h"
#include "tessera/unstable/check.h"
#include "tessera/unstable/params.h"
#include "tessera/unstable/suggest.h"
#include "tessera/version.h"
#include "test_support.h"

static const tsr_parameter rows[] = {
    {.name = "loud", .kind = TSR_PARAMETER_FLAG},
    {.name = "stack", .kind = TSR_PARAMETER_TRUTH, .fallback = 1},
    {.name = "count", .kind = TSR_PARAMETER_COUNT, .fallback = 7},
    {.name = "time_us", .option = "time", .kind = TSR_PARAMETER_INTEGER, .fallback = -1},
    {.name = "capacity", .kind = TSR_PARAMETER_BYTES, .example = "24GiB"},
    {.name = "attention",
     .kind = TSR_PARAMETER_CHOICE,
     .choices = (const char *const[]){"eager", "compile-context", "chunked:N", "tag:KEY", NULL}},
    {.name = "match", .kind = TSR_PARAMETER_TEXTS},
    {.name = "device", .kind = TSR_PARAMETER_DEVICES},
    {.name = "settings", .option = "set", .kind = TSR_PARAMETER_SETTINGS},
    {.name = "rules", .kind = TSR_PARAMETER_OBJECT, .type = &tsr_rules_type},
    {.name = "lock", .kind = TSR_PARAMETER_FILE, .type = &tsr_lock_type},
    {.name = "update", .kind = TSR_PARAMETER_FLAG, .hidden_from = TSR_INTERFACE_MCP},
    {.name = "model",
     .kind = TSR_PARAMETER_OBJECT,
     .type = &tsr_model_type,
     .is_operand = true,
     .argument = "MODEL"},
};

static tsr_params *make(tsr_interface interface) {
  tsr_params *params = NULL;
  assert_int_equal(tsr_params_new(rows, sizeof rows / sizeof *rows, interface, &params, NULL), 0);
  return params;
}

static int set(tsr_params *params, const char *name, const char *text, tsr_error *error) {
  return tsr_params_set_text(params, name, text, strlen(text), error);
}

/* The text is refused with this message. */
static void refused(tsr_params *params, const char *name, const char *text, const char *message) {
  tsr_error error = {.status = TSR_OK};
  assert_int_equal(set(params, name, text, &error), TSR_ERROR_ARGUMENT);
  assert_string_equal(error.message, message);
  assert_true(error.offset == TSR_OFFSET_NONE);
}

static void test_defaults(void **state) {
  (void)state;
  tsr_params *params = make(TSR_INTERFACE_PYTHON);
  size_t count;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    assert_false(tsr_params_has(params, rows[i].name));
  assert_false(tsr_params_flag(params, "loud"));
  assert_true(tsr_params_flag(params, "stack"));
  assert_int_equal(tsr_params_count(params, "count"), 7);
  assert_int_equal(tsr_params_integer(params, "time_us"), -1);
  assert_int_equal(tsr_params_choice(params, "attention"), -1);
  (void)tsr_params_texts(params, "match", &count);
  assert_int_equal(count, 0);
  assert_null(tsr_params_object(params, "rules", &tsr_rules_type));
  tsr_params_free(params);
  tsr_params_free(NULL);
}

static void test_values(void **state) {
  (void)state;
  tsr_params *params = make(TSR_INTERFACE_COMMAND);
  size_t count;
  assert_int_equal(tsr_params_set_integer(params, "loud", 1, NULL), 0);
  assert_int_equal(set(params, "stack", "No", NULL), 0);
  assert_int_equal(set(params, "count", "18446744073709551615", NULL), 0);
  assert_int_equal(set(params, "time", "-5", NULL), 0);
  assert_int_equal(set(params, "capacity", "1.5 gb", NULL), 0);
  assert_int_equal(set(params, "attention", "compile_context", NULL), 0);
  assert_true(tsr_params_flag(params, "loud") && !tsr_params_flag(params, "stack"));
  assert_true(tsr_params_count(params, "count") == UINT64_MAX);
  assert_int_equal(tsr_params_integer(params, "time_us"), -5);
  assert_true(tsr_params_count(params, "capacity") == 1500000000);
  assert_int_equal(tsr_params_choice(params, "attention"), 1);
  assert_int_equal(set(params, "attention", "tag:a b:c", NULL), 0);
  assert_int_equal(tsr_params_choice(params, "attention"), 3);
  assert_string_equal(tsr_params_choice_key(params, "attention"), "a b:c");
  assert_int_equal(set(params, "attention", "chunked:64", NULL), 0);
  assert_null(tsr_params_choice_key(params, "attention"));
  assert_int_equal(tsr_params_choice(params, "attention"), 2);
  assert_int_equal(tsr_params_choice_number(params, "attention"), 64);
  for (int i = 0; i < 2; i++) assert_int_equal(set(params, "match", i ? "b" : "a", NULL), 0);
  assert_string_equal(tsr_params_texts(params, "match", &count)[1], "b");
  assert_int_equal(count, 2);
  assert_int_equal(set(params, "device", "2,0", NULL), 0);
  assert_int_equal(set(params, "device", "2", NULL), 0);
  assert_int_equal(tsr_params_devices(params, "device", &count)[1], 0);
  assert_int_equal(count, 2);
  assert_int_equal(set(params, "device", "all", NULL), 0);
  (void)tsr_params_devices(params, "device", &count);
  assert_int_equal(count, 0);
  assert_int_equal(set(params, "model", "gpt2", NULL), 0);
  assert_string_equal(tsr_model_name(tsr_params_object(params, "model", &tsr_model_type)), "gpt2");
  tsr_params_free(params);
}

static void test_sizes(void **state) {
  (void)state;
  static const struct {
    const char *text;
    uint64_t bytes; /* 0: no size */
  } sizes[] = {
      {"6GiB", UINT64_C(6) << 30},
      {"6Gi", UINT64_C(6) << 30},
      {"6G", UINT64_C(6) << 30},
      {"6 g", UINT64_C(6) << 30},
      {"6GB", UINT64_C(6000000000)},
      {"6 gb", UINT64_C(6000000000)},
      {"0.3GB", 300000000},
      {"80GB", UINT64_C(80000000000)},
      {"1TB", UINT64_C(1000000000000)},
      {"1.5MiB", 1572864},
      {"2kB", 2000},
      {"2K", 2048},
      {"7B", 7},
      {"6000000000", UINT64_C(6000000000)},
      {"524288", 524288},
      {"524287", 0}, /* probably lacks its unit */
      {"3", 0},
      {"6GBs", 0},
      {"0GiB", 0},
      {"GiB", 0},
      {"", 0},
  };
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    uint64_t bytes = 0;
    bool is_size = tsr_size_parse(sizes[i].text, &bytes);
    if (is_size != (sizes[i].bytes != 0) || bytes != sizes[i].bytes)
      fail_msg("%s: %llu", sizes[i].text, (unsigned long long)bytes);
  }
}

static void test_suggestions(void **state) {
  (void)state;
  static const struct {
    const char *typed, *meant; /* NULL: nothing is near */
  } words[] = {{"peek", "peak"},
               {"prof", "profile"},
               {"actvation", "activation"},
               {"kv-cache", "kv_cache"},
               {"Llama3", "llama-3-8b"},
               {"banana", NULL},
               {"x", NULL},
               {"", NULL}};
  static const char *const names[] = {"peak", "profile", "activation", "kv_cache", "llama-3-8b"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    tsr_suggestion nearest = tsr_suggestion_start(words[i].typed, strlen(words[i].typed));
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
      tsr_suggestion_offer(&nearest, names[k]);
    if (words[i].meant)
      assert_string_equal(nearest.best, words[i].meant);
    else
      assert_null(nearest.best);
  }
}

static void test_settings_are_separated_on_the_command_line_alone(void **state) {
  (void)state;
  static const char two[] = "expandable_segments:True max_split_size_mb:128";
  size_t count;
  tsr_params *params = make(TSR_INTERFACE_COMMAND);
  assert_int_equal(set(params, "set", two, NULL), 0);
  (void)tsr_params_settings(params, "settings", &count);
  assert_int_equal(count, 2);
  tsr_params_free(params);
  params = make(TSR_INTERFACE_MCP);
  assert_int_equal(set(params, "settings", "expandable_segments:True, max_split_size_mb:128", NULL),
                   0);
  (void)tsr_params_settings(params, "settings", &count);
  assert_int_equal(count, 1);
  tsr_params_free(params);
}

static void test_wrong_values(void **state) {
  (void)state;
  tsr_params *params = make(TSR_INTERFACE_COMMAND);
  refused(params, "count", "-1", "option '--count' needs a number, not '-1'");
  refused(params, "count", "18446744073709551616",
          "option '--count' needs a number, not '18446744073709551616'");
  refused(params, "time", "noon", "option '--time' needs a number, not 'noon'");
  refused(params, "stack", "perhaps", "option '--stack' needs true or false, not 'perhaps'");
  for (const char *const *wrong = (const char *const[]){"0", "-1GiB", "1GiBs", "nan", "", NULL};
       *wrong; wrong++) {
    char message[128];
    (void)snprintf(message, sizeof message,
                   "option '--capacity' takes a size such as 24GiB, not '%s'", *wrong);
    refused(params, "capacity", *wrong, message);
  }
  for (const char *const *wrong = (const char *const[]){"chunked", "chunked:", "chunked:0",
                                                        "chunked:N", "Eager", "tag:", "tag", NULL};
       *wrong; wrong++) {
    char message[128];
    (void)snprintf(
        message, sizeof message,
        "option '--attention' takes eager, compile-context, chunked:N or tag:KEY, not '%s'%s",
        *wrong, strcmp(*wrong, "Eager") ? "" : "; did you mean 'eager'?");
    refused(params, "attention", *wrong, message);
  }
  refused(params, "device", "0,,1",
          "option '--device' needs device numbers, 'cpu', 'host' or 'all', not '0,,1'");
  assert_false(tsr_params_has(params, "count") || tsr_params_has(params, "capacity"));
  tsr_error error;
  assert_int_equal(tsr_params_set_text(params, "match", "a\0b", 3, &error), TSR_ERROR_ARGUMENT);
  assert_string_equal(error.message, "option '--match' contains a zero byte");
  assert_int_equal(set(params, "lock", "nonsense\n", &error), TSR_ERROR_FORMAT);
  tsr_params_free(params);
}

/* A wrong value leaves the one before. */
static void test_what_is_refused_changes_nothing(void **state) {
  (void)state;
  tsr_params *params = make(TSR_INTERFACE_PYTHON);
  tsr_error error;
  assert_int_equal(set(params, "attention", "chunked:8", NULL), 0);
  assert_int_equal(set(params, "attention", "other", &error), TSR_ERROR_ARGUMENT);
  assert_int_equal(tsr_params_choice_number(params, "attention"), 8);
  assert_int_equal(set(params, "rules", "{\"a\": \"b\"}", NULL), 0);
  assert_int_equal(set(params, "rules", "{\"a\": \"b(\"}", &error), TSR_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "rules: rule 'a': "));
  assert_int_equal(tsr_rules_count(tsr_params_object(params, "rules", &tsr_rules_type)), 1);
  tsr_params_free(params);
}

static void test_names_as_each_interface_spells_them(void **state) {
  (void)state;
  static const struct {
    tsr_interface interface;
    const char *message;
  } cases[] = {
      {TSR_INTERFACE_COMMAND, "--time needs --lock; option '--time' and MODEL 5 %"},
      {TSR_INTERFACE_MCP, "time_us needs lock_path; argument 'time_us' and model 5 %"},
      {TSR_INTERFACE_PYTHON, "time_us needs lock; time_us and model 5 %"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_params *params = make(cases[i].interface);
    tsr_error error;
    assert_int_equal(
        tsr_params_fail(params, &error, "{time_us} needs {lock}; {=time_us} and {model} %d %%", 5),
        TSR_ERROR_ARGUMENT);
    assert_string_equal(error.message, cases[i].message);
    tsr_params_free(params);
  }
}

static void test_unknown_and_hidden_names(void **state) {
  (void)state;
  tsr_params *params = make(TSR_INTERFACE_MCP);
  tsr_error error;
  assert_null(tsr_params_find(params, "update", 6));
  assert_null(tsr_params_find(params, "time", 4));
  assert_ptr_equal(tsr_params_find(params, "time-us", 7), &rows[3]);
  assert_int_equal(tsr_params_set_integer(params, "update", 1, &error), TSR_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "no parameter 'update'; the parameters are: loud, stack"));
  assert_false(tsr_params_flag(params, "update"));
  tsr_params_free(params);
}

static void test_sizes_in_bytes(void **state) {
  (void)state;
  uint64_t bytes = 0;
  assert_true(tsr_size_parse("18446744073709551615B", &bytes) && bytes == UINT64_MAX);
  assert_true(tsr_size_parse("9007199254740993 b", &bytes) && bytes == UINT64_C(9007199254740993));
  assert_true(tsr_size_parse("2k", &bytes) && bytes == 2048);
  assert_true(tsr_size_parse("1e3B", &bytes) && bytes == 1000);
  assert_false(tsr_size_parse("18446744073709551616B", &bytes));
  assert_false(tsr_size_parse("1e30B", &bytes));
  assert_int_equal(bytes, 1000);
}

static void test_times(void **state) {
  (void)state;
  int64_t time_us = 7;
  assert_true(tsr_time_parse("1783874422365713", &time_us) && time_us == INT64_C(1783874422365713));
  assert_true(tsr_time_parse("2026-07-12 16:40:22.365713", &time_us));
  assert_int_equal(time_us, INT64_C(1783874422365713));
  assert_true(tsr_time_parse("2026-07-12T16:40:22Z", &time_us));
  assert_int_equal(time_us, INT64_C(1783874422000000));
  assert_true(tsr_time_parse("2024-02-29 00:00:00.5 UTC", &time_us));
  assert_int_equal(time_us, INT64_C(1709164800500000));
  assert_true(tsr_time_parse("1969-12-31 23:59:59", &time_us) && time_us == -1000000);
  const char *wrong[] = {"",
                         "now",
                         "2026-13-01 00:00:00",
                         "2026-02-29 00:00:00",
                         "2026-07-12",
                         "2026-07-12 24:00:00",
                         "2026-07-12 16:40:22.3657131",
                         "2026-07-12 16:40:22 CET"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_false(tsr_time_parse(wrong[i], &time_us));
  assert_int_equal(time_us, -1000000);
}

/* Every row is complete: what an interface shows is never missing. */
static void test_rows_of_the_registry(void **state) {
  (void)state;
  for (size_t i = 0; i < tsr_question_count(); i++) {
    const tsr_question *question = tsr_question_at(i);
    assert_ptr_equal(tsr_question_find(question->name), question);
    assert_true(question->summary && question->description && question->examples[0].command);
    assert_true(!question->title == !question->advice);
    const tsr_parameter *row;
    const char *option = question->main_options;
    for (size_t length; option && *(option += strspn(option, " ")); option += length) {
      length = strcspn(option, " ");
      bool is_known = false;
      for (size_t k = 0; (row = tsr_question_parameter(question, k)); k++)
        is_known |= tsr_word_is(option, length, tsr_parameter_spelling(row, TSR_INTERFACE_COMMAND));
      if (!is_known) fail_msg("%s has no option %s", question->name, option);
    }
    for (size_t k = 0; (row = tsr_question_parameter(question, k)); k++) {
      assert_true(row->name && row->help);
      assert_null(strchr(row->name, '-'));
      assert_true(row->option || !strchr(row->name, '_') ||
                  row->hidden_from & TSR_INTERFACE_COMMAND);
      bool is_choice = row->kind == TSR_PARAMETER_CHOICE || row->kind == TSR_PARAMETER_CHOICES;
      assert_true(is_choice == (row->choices != NULL));
      assert_true((row->kind == TSR_PARAMETER_FLAG) == !row->argument);
    }
  }
  assert_null(tsr_question_find("weather"));
}

static void test_version(void **state) {
  (void)state;
  char text[32];
  (void)snprintf(text, sizeof text, "%d.%d.%d", TESSERA_VERSION_MAJOR, TESSERA_VERSION_MINOR,
                 TESSERA_VERSION_PATCH);
  assert_string_equal(text, tsr_version());
}

/* ---- tables within tables ---- */

static const char *nth_word(size_t index) {
  static const char *const words[] = {"one", "two", "three"};
  return index < 3 ? words[index] : NULL;
}

static void rows_that_stand_for_tables(void **state) {
  (void)state;
  static const tsr_parameter inner[] = {{.name = "b", .kind = TSR_PARAMETER_FLAG, .help = "b"},
                                        {.name = NULL}};
  static const tsr_parameter empty[] = {{.name = NULL}};
  static const tsr_parameter middle[] = {
      {.rows = inner}, {.name = "c", .kind = TSR_PARAMETER_COUNT, .help = "c"}, {.name = NULL}};
  static const tsr_parameter outer[] = {
      {.name = "a", .kind = TSR_PARAMETER_FLAG, .help = "a"},
      {.rows = empty},
      {.rows = middle},
      {.name = "d", .kind = TSR_PARAMETER_TEXT, .help = "Any of %s.", .word = nth_word}};
  const tsr_question question = {.parameters = outer, .parameter_count = 4};
  static const char *const names[] = {"a", "b", "c", "d"};
  char help[TSR_PARAMETER_HELP_BYTES];
  tsr_params *params = NULL;
  assert_int_equal(tsr_params_new(outer, 4, TSR_INTERFACE_COMMAND, &params, NULL), 0);
  for (size_t i = 0; i < 4; i++) {
    assert_string_equal(tsr_params_row(params, i)->name, names[i]);
    assert_ptr_equal(tsr_question_parameter(&question, i), tsr_params_row(params, i));
    assert_ptr_equal(tsr_params_find(params, names[i], 1), tsr_params_row(params, i));
  }
  assert_null(tsr_params_row(params, 4));
  assert_null(tsr_question_parameter(&question, 4));
  assert_int_equal(tsr_params_set_text(params, "c", "7", 1, NULL), 0);
  assert_int_equal(tsr_params_count(params, "c"), 7);
  assert_false(tsr_params_has(params, "b"));
  assert_string_equal(tsr_parameter_help(&outer[3], help, sizeof help),
                      "Any of one, two and three.");
  assert_ptr_equal(tsr_parameter_help(&outer[0], help, sizeof help), outer[0].help);
  tsr_params_free(params);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_values),
      cmocka_unit_test(test_sizes),
      cmocka_unit_test(test_suggestions),
      cmocka_unit_test(test_settings_are_separated_on_the_command_line_alone),
      cmocka_unit_test(test_wrong_values),
      cmocka_unit_test(test_what_is_refused_changes_nothing),
      cmocka_unit_test(test_names_as_each_interface_spells_them),
      cmocka_unit_test(test_unknown_and_hidden_names),
      cmocka_unit_test(test_sizes_in_bytes),
      cmocka_unit_test(test_times),
      cmocka_unit_test(test_rows_of_the_registry),
      cmocka_unit_test(test_version),
      cmocka_unit_test(rows_that_stand_for_tables),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
