/* What users type after a question: any values of its parameters, by each interface, and the answer if it takes a moment.
 *
 *   question              "plan", "peak", "simulate"; the first byte before it chooses the interface
 *   name=value            a line for each parameter; a name alone is a flag */
#include "questions.h"
#include "small_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* More memory has room for a larger batch, whose search is no other, but longer. */
#define MOST_BUDGET (UINT64_C(64) << 20)

static const char memory[] =
    "{\"segments\": [{\"device\": 0, \"address\": 4096, \"total_size\": 8192, \"stream\": 0, "
    "\"segment_type\": \"small\", \"blocks\": [{\"size\": 8192, \"state\": "
    "\"active_allocated\"}]}], "
    "\"device_traces\": [[{\"action\": \"alloc\", \"addr\": 4096, \"size\": 8192, \"time_us\": 5, "
    "\"frames\": [{\"name\": \"forward\", \"filename\": \"a.py\", \"line\": 1}]}, "
    "{\"action\": \"free_completed\", \"addr\": 4096, \"size\": 8192, \"time_us\": 7}, "
    "{\"action\": \"alloc\", \"addr\": 4096, \"size\": 8192, \"time_us\": 9}]]}";

static void check_status(int status, const tsr_error *error) {
  check_error(status, error);
  require(status == 0 || status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_FORMAT ||
              status == TSR_ERROR_UNSUPPORTED || status == TSR_ERROR_LIMIT,
          "a value is refused for what it is");
}

static void set(tsr_params *params, char *line) {
  char *value = strchr(line, '=');
  tsr_error error = {0};
  int status;
  if (value) *value++ = '\0';
  if (value)
    status = tsr_params_set_text(params, line, value, strlen(value), &error);
  else
    status = tsr_params_set_integer(params, line, 1, &error);
  check_status(status, &error);
}

/* Whether a run of the small model with these options takes a moment, or some hundred runs if a plan is searched. */
static bool is_short(const tsr_params *params) {
  tsr_run_plan *plan = NULL;
  tsr_simulate_options how = {.struct_bytes = sizeof how};
  tsr_error error = {0};
  if (tsr_params_find(params, "budget", 6))
    return tsr_params_count(params, "batch") <= FUZZ_MOST_REPEATS &&
           tsr_params_count(params, "steps") <= FUZZ_MOST_REPEATS &&
           tsr_params_count(params, "budget") <= MOST_BUDGET;
  if (!tsr_params_find(params, "accumulate", 10)) return true;
  int status = tsr_simulate_options_of(params, &plan, &how, &error);
  check_status(status, &error);
  bool is_short = status != 0 || fuzz_is_short(&how);
  tsr_run_plan_free(plan);
  return is_short;
}

static void answer(const tsr_question *question, const tsr_params *params) {
  tsr_snapshot *snapshot = NULL;
  tsr_answer *answer = NULL;
  tsr_error error = {0};
  require(!tsr_snapshot_read(memory, sizeof memory - 1, NULL, &snapshot, NULL), "a snapshot");
  tsr_study *study = test_study(snapshot);
  tsr_subject subjects[TSR_QUESTION_SUBJECTS] = {{study, "a"}, {study, "b"}};
  int status = tsr_ask(question, subjects, question->subject_count, params, NULL, &answer, &error);
  check_status(status, &error);
  for (int json = 0; status == 0 && json < 2; json++) {
    tsr_report_options how = {.format = json ? TSR_REPORT_JSON : TSR_REPORT_TEXT};
    tsr__buffer written = {0};
    tsr_error why = {0};
    check_written(tsr_answer_write(answer, &how, fuzz_write, &written, &why), &why, &written);
  }
  tsr_answer_free(answer);
  tsr_snapshot_free(snapshot);
}

static void ask(const tsr_question *question, tsr_interface interface, char *lines) {
  tsr_params *params = NULL;
  tsr_error error = {0};
  require(!tsr_question_params(question, interface, &params, NULL), "parameters");
  if (tsr_params_find(params, "model", 5)) {
    int status =
        tsr_params_set_object(params, "model", &tsr_model_type, fuzz_small_model(1), &error);
    require(!status, "a model");
  }
  for (char *line = lines, *next; line; line = next) {
    next = strchr(line, '\n');
    if (next) *next++ = '\0';
    if (*line) set(params, line);
  }
  int status = tsr_question_check(question, params, &error);
  check_status(status, &error);
  if (status == 0 && is_short(params)) answer(question, params);
  tsr_params_free(params);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const tsr_interface interfaces[] = {TSR_INTERFACE_COMMAND, TSR_INTERFACE_MCP,
                                             TSR_INTERFACE_PYTHON};
  if (size < 2) return 0;
  char *text = malloc(size);
  require(text != NULL, "a text");
  memcpy(text, data + 1, size - 1);
  text[size - 1] = '\0';
  char *end = strchr(text, '\n');
  if (end) *end = '\0';
  const tsr_question *question = tsr_question_find(text);
  if (question) ask(question, interfaces[data[0] % 3], end ? end + 1 : NULL);
  free(text);
  return 0;
}
