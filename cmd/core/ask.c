/* ask.c - asks any question, and prints its answer.
 *
 *   parameters ─► checked ─► files that they name, read ─► snapshots, opened ─► tsr_ask ─► written
 *
 * In that order, so that errors in the command line are reported before a gigabyte is read. Three
 * questions do more on the command line than print their answer, and have their own functions
 * below: profile also writes a page, check writes its lock and exits with a status, simulate writes
 * a snapshot.
 */
#define _XOPEN_SOURCE 700

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/check.h>
#include <unistd.h>

#include <tessera/unstable/formats.h>
#include <tessera/unstable/plans.h>
#include <tessera/unstable/runs.h>

#include "endings.h"
#include "export.h"
#include "machine.h"
#include "page.h"
#include "progress.h"
#include "rules.h"
#include "session.h"
#include "textfile.h"
#include "tracing.h"

/* A description of a model has a few kilobytes, a step graph about ten for each layer. Of a checkpoint of llm.c, whose weights
 * may have any size, the beginning is enough. */
#define FIRST_MODEL_BYTES (1u << 20)
#define MOST_MODEL_BYTES  (64u << 20)

/* ---- Files that parameters name ---- */

/* The absolute path is used: it is easier to match with the paths in a snapshot than a relative one. */
static int set_file(cli_session *session, const tsr_parameter *row, const char *path,
                    const char *text, size_t size_bytes) {
  char *whole = realpath(path, NULL);
  if (!whole && errno == ENOMEM) return TSR_ERROR_MEMORY;
  int status = tsr_params_set_file(session->options->own, cli_option_name(row),
                                   whole ? whole : path, text, size_bytes, &session->error);
  free(whole);
  return status;
}

/* A file that is to be written need not be there yet. One that is there is read all the same: it may be a mistyped
 * name, and what is no lock is not written over. */
static int lacks_own_file(const cli_session *session, const tsr_parameter *row, const char *path) {
  if (tsr_params_flag(session->options->own, row->written_with)) return 0;
  cli_say(NULL, "%s: no such %s; --%s creates it", path, row->type->name, row->written_with);
  return CLI_INPUT;
}

/* Until the file is read, errors are about it; the answer is not. */
static int load_file(cli_session *session, const tsr_parameter *row, const char *path) {
  const char *before = session->path;
  char *text = NULL;
  size_t size_bytes = 0;
  bool is_absent = strcmp(path, "-") != 0 && access(path, F_OK) != 0 && errno == ENOENT;
  if (is_absent && row->written_with) return lacks_own_file(session, row, path);
  session->path = path;
  if (is_absent && row->may_be_absent) return set_file(session, row, path, "", 0);
  int status = cli_read_text(path, CLI_TEXTFILE_ANY, &text, &size_bytes, &session->error);
  if (status == 0) status = set_file(session, row, path, text, size_bytes);
  if (status == 0) session->path = before;
  free(text);
  return status;
}

static int load_rules(cli_session *session, const tsr_parameter *row, const char *text) {
  tsr_rules *rules = NULL;
  const char *name = cli_option_name(row);
  int status = cli_rules_load(session, name, text, TSR_RULES_STRICT, &rules);
  if (status) return status;
  return tsr_params_set_object(session->options->own, name, &tsr_rules_type, rules,
                               &session->error);
}

/* The text of the file, at most MOST_MODEL_BYTES of it. The caller frees it; NULL if memory ran out. */
static char *read_text(cli_session *session, FILE *stream, size_t *size_bytes) {
  char *text = NULL;
  size_t size = 0;
  for (size_t room = FIRST_MODEL_BYTES; room <= MOST_MODEL_BYTES; room *= 2) {
    char *grown = realloc(text, room);
    if (!grown) {
      free(text);
      return NULL;
    }
    text = grown;
    size += fread(text + size, 1, room - size, stream);
    session->is_checkpoint = tsr_model_is_checkpoint(text, size);
    if (size < room || session->is_checkpoint) break;
  }
  *size_bytes = size;
  return text;
}

/* A model that is not built in becomes the step graph of its training step, if the command takes one. */
static int set_traced(cli_session *session, const tsr_parameter *row, const char *text,
                      size_t size_bytes) {
  cli_traced traced;
  if (!tsr_params_find(session->options->own, "python", strlen("python")))
    return TSR_ERROR_UNSUPPORTED;
  int status = cli_trace_config(session, cli_path_words(session->path), text, size_bytes, &traced);
  if (status) return status;
  status = cli_trace_clear(session);
  if (status == 0) status = set_file(session, row, session->path, traced.graph, traced.graph_size);
  cli_traced_release(&traced);
  return status;
}

static int read_model(cli_session *session, const tsr_parameter *row, FILE *stream) {
  size_t size = 0;
  char *text = read_text(session, stream, &size);
  if (!text) return TSR_ERROR_MEMORY;
  int status = CLI_INPUT;
  if (ferror(stream))
    cli_say(NULL, "%s: %s", session->path, cli_reason(errno));
  else if (size == MOST_MODEL_BYTES)
    cli_say(NULL, "%s: longer than 64 MiB, which no model description or step graph is",
            session->path);
  else
    status = set_file(session, row, session->path, text, size);
  bool is_foreign = false;
  if (status == TSR_ERROR_UNSUPPORTED && tsr_model_is_foreign(text, size, &is_foreign))
    status = TSR_ERROR_MEMORY;
  if (is_foreign) status = set_traced(session, row, text, size);
  free(text);
  return status;
}

int cli_model_in_folder(cli_session *session, const char *folder) {
  free(session->model_path);
  session->model_path = malloc(strlen(folder) + sizeof "/config.json");
  if (!session->model_path) return TSR_ERROR_MEMORY;
  (void)sprintf(session->model_path, "%s/config.json", folder);
  session->path = session->model_path;
  return 0;
}

static int load_known_model(cli_session *session, const tsr_parameter *row, const char *operand) {
  session->path = operand;
  if (cli_is_folder(operand) && cli_is_model_file(operand)) {
    int status = cli_model_in_folder(session, operand);
    if (status) return status;
    operand = session->path;
  }
  if (!cli_is_model_file(operand))
    return tsr_params_set_text(session->options->own, cli_option_name(row), operand,
                               strlen(operand), &session->error);
  FILE *stream = cli_open_text(operand, CLI_TEXTFILE_ANY);
  if (!stream) {
    int status = cli_open_status();
    cli_say_no_model(operand, cli_open_reason());
    return status;
  }
  int status = read_model(session, row, stream);
  fclose(stream);
  return status;
}

static int load_model(cli_session *session, const tsr_parameter *row, const char *operand) {
  tsr_params *own = session->options->own;
  int status = load_known_model(session, row, operand);
  bool is_padded =
      tsr_params_find(own, "padding", strlen("padding")) && tsr_params_flag(own, "padding");
  if (status || !is_padded) return status;
  const tsr_model *model = tsr_params_object(own, row->name, &tsr_model_type);
  const char *config = tsr_model_is_traced(model) ? NULL : tsr_model_config(model);
  return config ? set_traced(session, row, config, strlen(config)) : 0;
}

/* Set the parameters that are given as operands, after the snapshots. */
static int set_operands(cli_session *session) {
  const cli_options *options = session->options;
  const tsr_question *about = &options->command->about;
  size_t operand = about->subject_count + session->operands_taken;
  const tsr_parameter *row;
  int status = 0;
  for (size_t i = 0; status == 0 && (row = tsr_question_parameter(about, i)); i++) {
    bool is_word = row->is_operand && row->kind != TSR_PARAMETER_FLAG;
    bool takes_all = row->kind == TSR_PARAMETER_TEXTS;
    while (status == 0 && is_word && operand < options->operand_count) {
      const char *word = options->operands[operand++];
      status = takes_all || row->kind == TSR_PARAMETER_CHOICE
                   ? tsr_params_set_text(options->own, cli_option_name(row), word, strlen(word),
                                         &session->error)
                   : tsr_params_set_path(options->own, cli_option_name(row), word, &session->error);
      if (!takes_all) break;
    }
  }
  return status ? cli_params_error(options->command, status, &session->error) : 0;
}

static int load_files_of(cli_session *session, bool is_model) {
  const cli_options *options = session->options;
  const tsr_question *about = &options->command->about;
  const tsr_parameter *row;
  int status = 0;
  for (size_t i = 0; status == 0 && (row = tsr_question_parameter(about, i)); i++) {
    if (row->hidden_from & TSR_INTERFACE_COMMAND) continue;
    const char *path =
        tsr_params_has(options->own, row->name) ? tsr_params_text(options->own, row->name) : NULL;
    if (!path || is_model != (row->type == &tsr_model_type)) continue;
    if (row->kind == TSR_PARAMETER_FILE) status = load_file(session, row, path);
    if (row->type == &tsr_rules_type) status = load_rules(session, row, path);
    if (is_model) status = load_model(session, row, path);
  }
  return status;
}

/* The model is last: it may be traced with the options of a plan. */
static int load_files(cli_session *session) {
  int status = load_files_of(session, false);
  if (status == 0) status = cli_take_machine(session->options->own, &session->error);
  return status ? status : load_files_of(session, true);
}

int cli_read_parameters(cli_session *session) {
  int status = set_operands(session);
  return status ? status : load_files(session);
}

void cli_say_ds_note(void *context, const char *text) {
  const cli_session *session = context;
  if (!session->options->quiet) cli_say(NULL, "%s: %s", cli_path_words(session->path), text);
}

int cli_read_ds_config(cli_session *session, tsr_ds_config_how how) {
  const char *path = tsr_params_text(session->options->own, "ds_config"), *before = session->path;
  char *text = NULL;
  size_t size_bytes = 0;
  if (!path) return 0;
  how.context = session;
  session->path = path;
  int status = cli_read_text(path, CLI_TEXTFILE_ANY, &text, &size_bytes, &session->error);
  if (status == 0)
    status = tsr_ds_config_apply(text, size_bytes, &how, session->options->own, &session->error);
  if (status == 0) session->path = before;
  free(text);
  return status;
}

/* ---- The name of the output ---- */

enum {
  ANSWER_TEXT,
  ANSWER_JSON,
  ANSWER_JUNIT,
  ANSWER_SARIF,
  ANSWER_MARKDOWN,
  ANSWER_PROMETHEUS,
  ANSWER_CSV,
  ANSWER_ARROW,
  ANSWER_PARQUET
};
static const char *const words[] = {"text",       "json", "junit", "sarif",  "markdown",
                                    "prometheus", "csv",  "arrow", "parquet"};

static const cli_ending endings[] = {
    {".txt", ANSWER_TEXT},          {".log", ANSWER_TEXT},         {".out", ANSWER_TEXT},
    {".json", ANSWER_JSON},         {".xml", ANSWER_JUNIT},        {".sarif", ANSWER_SARIF},
    {".md", ANSWER_MARKDOWN},       {".sarif.json", ANSWER_SARIF}, {".prom", ANSWER_PROMETHEUS},
    {".markdown", ANSWER_MARKDOWN}, {".csv", ANSWER_CSV},          {".arrow", ANSWER_ARROW},
    {".parquet", ANSWER_PARQUET}};
enum { ENDINGS_MOST = sizeof endings / sizeof *endings };

/* The parameter of a question whose answers have more formats than text and JSON; NULL for others. */
static const tsr_parameter *format_row(const cli_options *options) {
  return cli_option_named(options->command, "format", strlen("format"));
}

static bool has_word(const char *const *choices, const char *word) {
  while (*choices && strcmp(*choices, word) != 0) choices++;
  return *choices != NULL;
}

/* The format by the output's name: an ANSWER_ value, or -1 after explaining which endings there are. */
static int format_by_name(const cli_options *options) {
  const tsr_parameter *row = format_row(options);
  const char *path = options->command->writes_aside ? NULL : options->output;
  cli_ending known[ENDINGS_MOST];
  size_t count = 0;
  for (size_t i = 0; i < ENDINGS_MOST; i++)
    if (endings[i].format <= ANSWER_JSON ||
        (row && has_word(row->choices, words[endings[i].format])))
      known[count++] = endings[i];
  if (!path || !*cli_ending_of(path)) return ANSWER_TEXT;
  const cli_ending *found = cli_ending_find(known, count, path);
  if (found) return found->format;
  bool is_check = options->command->run == cli_check;
  (void)cli_ending_refuse(options,
                          is_check ? "an answer is text, JSON, JUnit's XML, SARIF or Markdown"
                          : row    ? "an answer is text, JSON, JUnit's XML, Markdown, Prometheus' "
                                     "text, CSV, Arrow or Parquet"
                                   : "an answer is text or JSON",
                          known, count, path);
  return -1;
}

int cli_choose_format(cli_session *session) {
  int format = format_by_name(session->options);
  if (format < 0) return CLI_USAGE;
  const tsr_parameter *row = format_row(session->options);
  bool is_chosen = row && tsr_params_choice(session->options->own, row->name) >= 0;
  if (format != ANSWER_JSON || is_chosen) return 0;
  session->report.format = TSR_REPORT_JSON;
  session->report.color = false;
  return 0;
}

int cli_choose_form(cli_session *session, const char **form) {
  const cli_options *options = session->options;
  const tsr_parameter *row = format_row(options);
  int index = tsr_params_choice(options->own, row->name);
  *form = NULL;
  if (options->json && index > 0)
    return cli_usage_error(options->command, "--json and --format are mutually exclusive");
  int by_name = index < 0 && !options->json ? format_by_name(options) : ANSWER_JSON;
  if (by_name < 0) return CLI_USAGE;
  const char *word = index >= 0 ? row->choices[index] : words[by_name];
  bool is_json = strcmp(word, "json") == 0;
  if (is_json) session->report.format = TSR_REPORT_JSON;
  if (is_json) session->report.color = false;
  if (!is_json && strcmp(word, "text") != 0) *form = word;
  return 0;
}

/* ---- Asking ---- */

/* Open the snapshots: operands, and one that an option names. */
static int open_subjects(cli_session *session, cli_asking *asking) {
  const cli_options *options = session->options;
  const tsr_question *about = &options->command->about;
  const char *paths[TSR_QUESTION_SUBJECTS];
  size_t count = 0;
  assert(about->subject_count <= TSR_QUESTION_SUBJECTS);
  while (count < about->subject_count) {
    paths[count] = options->operands[count];
    count++;
  }
  const tsr_parameter *row;
  for (size_t i = 0; (row = tsr_question_parameter(about, i)); i++) {
    const char *path =
        row->kind == TSR_PARAMETER_SNAPSHOT ? tsr_params_text(options->own, row->name) : NULL;
    if (!path) continue;
    assert(count < TSR_QUESTION_SUBJECTS);
    paths[count++] = path;
  }
  return cli_open_all(session, paths, count, asking->inputs, &asking->input_count);
}

/* Without a snapshot of its own, a question fails because of the command line; one that is not named by its file has files
 * besides. */
static int explain_ask(const cli_session *session, const cli_asking *asking, int status) {
  const cli_command *command = session->options->command;
  if (!status || status == TSR_ERROR_MEMORY || command->about.subject_count) return status;
  if (asking->name)
    return cli_is_about_options(status) ? cli_usage_error(command, "%s", session->error.message)
                                        : status;
  return cli_usage_error(command, "%s: %s", session->path, session->error.message);
}

int cli_asking_run(cli_session *session, cli_asking *asking) {
  const cli_options *options = session->options;
  const tsr_question *question = tsr_question_find(options->command->about.name);
  tsr_subject subjects[TSR_QUESTION_SUBJECTS] = {{0}};
  tsr_error *error = &session->error;
  size_t count = 0;
  int status = asking->has_format ? 0 : cli_choose_format(session);
  if (status == 0) status = set_operands(session);
  if (status) return status;
  status = tsr_question_check(question, options->own, error);
  if (status) return cli_params_error(options->command, status, error);
  status = load_files(session);
  const char *name = asking->name ? asking->name : session->path;
  if (!question->subject_count) subjects[count++].name = name;
  if (status == 0) status = open_subjects(session, asking);
  if (status) return status;
  for (size_t i = 0; i < asking->input_count; i++)
    subjects[count++] = (tsr_subject){asking->inputs[i].study, asking->inputs[i].heading.path};
  if (options->verbose && question->verbose_lists_all) session->query.top = 0;
  cli_clock clock;
  cli_clock_start(&clock, "working on",
                  session->path ? session->path : options->command->about.name, options->quiet);
  status =
      tsr_ask(question, subjects, count, options->own, &session->query, &asking->answer, error);
  cli_clock_stop(&clock);
  return explain_ask(session, asking, status);
}

void cli_asking_release(cli_asking *asking) {
  tsr_answer_free(asking->answer);
  while (asking->input_count) cli_close(&asking->inputs[--asking->input_count]);
  *asking = (cli_asking){0};
}

int cli_asking_print(cli_session *session, const cli_asking *asking) {
  return tsr_answer_write(asking->answer, &session->report, cli_output_write, &session->output,
                          &session->error);
}

int cli_ask(cli_session *session) {
  cli_asking asking = {0};
  int status = cli_asking_run(session, &asking);
  if (status == 0) status = cli_asking_print(session, &asking);
  if (status == 0 && !tsr_answer_passed(asking.answer)) status = CLI_CHECK_FAILED;
  cli_asking_release(&asking);
  return status;
}

/* ---- card: of several files, which the question reads itself ---- */

int cli_ask_card(cli_session *session) {
  cli_asking asking = {.name = session->options->operands[0]};
  session->path = asking.name; /* for warnings */
  int status = cli_asking_run(session, &asking);
  if (status == 0) status = cli_asking_print(session, &asking);
  cli_asking_release(&asking);
  if (status != TSR_ERROR_IO && status != TSR_ERROR_FORMAT) return status;
  cli_say(NULL, "%s", session->error.message); /* which names the file */
  return CLI_INPUT;
}

/* ---- profile: and a page ---- */

/* Also write the page of `tessera view`, which opens with the grouping of the options. */
int cli_profile(cli_session *session) {
  const tsr_params *own = session->options->own;
  const char *html = tsr_params_text(own, "html");
  cli_asking asking = {0};
  int status = html ? cli_page_check_name(session->options, html) : 0;
  if (status == 0) status = cli_asking_run(session, &asking);
  if (status == 0) status = cli_asking_print(session, &asking);
  if (status == 0 && html) {
    const tsr_profile *profile = tsr_answer_value(asking.answer);
    cli_page_from from = {.inputs = asking.inputs,
                          .count = 1,
                          .rules = tsr_params_object(own, "rules", &tsr_rules_type),
                          .query = &session->query};
    from.key = profile->key;
    from.options.by = cli_page_grouping(profile->by);
    from.options.is_ordered = profile->is_ordered;
    status = cli_page_save(session, &from, html);
  }
  cli_asking_release(&asking);
  return status;
}

/* ---- check: its lock, its formats and its exit status ---- */

/* A truncated file, for example, does not pass and cannot become a lock: the run may have held more than
 * it shows. */
static int refuse(const cli_asking *asking) {
  const tsr_check *check = tsr_answer_value(asking->answer);
  cli_say(NULL, "%s: %s", asking->inputs[0].heading.path, tsr_check_doubt_reason(check->doubt));
  return CLI_INPUT;
}

static int write_lock(cli_session *session, const cli_asking *asking) {
  cli_output output;
  int status = cli_start_aside(session, tsr_params_text(session->options->own, "lock"), &output);
  if (status) return status;
  status = tsr_answer_write_form(asking->answer, "lock", NULL, &session->report, cli_output_write,
                                 &output, &session->error);
  return cli_leave_aside(session, &output, status);
}

static int report_check(cli_session *session, const cli_asking *asking, const char *form) {
  char here[4096];
  const tsr_params *own = session->options->own;
  const tsr_check *check = tsr_answer_value(asking->answer);
  const char *root = tsr_params_text(own, "root");
  bool is_update_alone = tsr_params_flag(own, "update") && !check->result_count;
  if (form)
    return tsr_answer_write_form(asking->answer, form, root ? root : getcwd(here, sizeof here),
                                 &session->report, cli_output_write, &session->output,
                                 &session->error);
  if (!is_update_alone || session->report.format == TSR_REPORT_JSON)
    return cli_asking_print(session, asking);
  cli_warn_of_file(session, &asking->inputs[0]);
  return 0;
}

static int finish_check(cli_session *session, const cli_asking *asking, const char *form) {
  const tsr_check *check = tsr_answer_value(asking->answer);
  bool is_update = tsr_params_flag(session->options->own, "update");
  bool is_refused = check->doubt && !check->failed_count;
  bool has_failed = check->failed_count || !check->device_count;
  int status = is_refused && is_update ? refuse(asking) : 0;
  if (status == 0 && is_update && !check->failed_count) status = write_lock(session, asking);
  if (status == 0) status = report_check(session, asking, form);
  session->is_complete = status == 0;
  if (status == 0 && is_update && check->failed_count)
    cli_say("check", "%s is not written, because a budget is exceeded",
            tsr_params_text(session->options->own, "lock"));
  if (status == 0 && is_refused) return refuse(asking);
  return status == 0 && has_failed ? CLI_CHECK_FAILED : status;
}

int cli_check(cli_session *session) {
  cli_asking asking = {.has_format = true};
  const char *form;
  int status = cli_choose_form(session, &form);
  if (status == 0) status = cli_asking_run(session, &asking);
  if (status == 0) status = finish_check(session, &asking, form);
  cli_asking_release(&asking);
  return status;
}

/* ---- simulate: the snapshot of the run, or one of each rank ---- */

/* Of many snapshots, each is finished: so many files cannot be open until the end. */
static int write_snapshot(cli_session *session, const tsr_snapshot *snapshot,
                          const tsr_format *format, const char *path, bool is_only) {
  cli_output output;
  int status = cli_start_aside(session, path, &output);
  if (!path || status) return status;
  status = cli_export_snapshot(session, snapshot, format, &output);
  if (output.error_number) status = TSR_ERROR_WRITE;
  return is_only ? cli_leave_aside(session, &output, status)
                 : cli_finish_aside(session, &output, status);
}

/* The answer is rank 0's, or of the one that was asked for; each is asked for its own snapshot. */
static int write_rank(cli_session *session, uint64_t rank, uint64_t ranks,
                      const tsr_format *format) {
  tsr_params *own = session->options->own;
  const tsr_question *question = tsr_question_find(session->options->command->about.name);
  const tsr_subject subject = {.name = session->path};
  tsr_answer *answer = NULL;
  char number[24];
  int length = snprintf(number, sizeof number, "%" PRIu64, rank);
  char *path = cli_rank_path(session->options->output, rank);
  int status = path ? 0 : TSR_ERROR_MEMORY;
  if (status == 0)
    status = tsr_params_set_text(own, "rank", number, (size_t)length, &session->error);
  if (status == 0)
    status = tsr_ask(question, &subject, 1, own, &session->query, &answer, &session->error);
  if (status == 0)
    status = write_snapshot(session, tsr_answer_snapshot(answer), format, path, false);
  if (status == 0)
    status = cli_rank_sidecar(session, session->options->output, rank, ranks, "simulated");
  tsr_answer_free(answer);
  free(path);
  return status;
}

static int write_snapshots(cli_session *session, const tsr_snapshot *snapshot,
                           const tsr_format *format) {
  const tsr_params *own = session->options->own;
  tsr_simulate_options options;
  tsr_run_plan *plan = NULL;
  int status = tsr_simulate_options_of(own, &plan, &options, &session->error);
  uint64_t ranks = status ? 0 : options.ranks;
  if (plan) tsr_run_plan_free(plan);
  if (status || !session->options->output) return status;
  if (ranks < 2) return write_snapshot(session, snapshot, format, session->options->output, true);
  status = cli_rank_keep_inputs(session, session->options->output, ranks);
  for (uint64_t i = 0; status == 0 && i < ranks; i++)
    status = write_rank(session, i, ranks, format);
  return status;
}

/* Write the plan of the options to its own file. */
int cli_write_plan(cli_session *session) {
  const tsr_params *own = session->options->own;
  cli_output output;
  tsr_run_plan *plan = NULL;
  int status = cli_start_aside(session, tsr_params_text(own, "write_plan"), &output);
  if (!output.path || status) return status;
  status = tsr_run_plan_of(own, &plan, &session->error);
  if (status) return status;
  const char *text = tsr_run_plan_text(plan);
  status = cli_output_write(&output, text, strlen(text)) ? TSR_ERROR_WRITE : 0;
  tsr_run_plan_free(plan);
  return cli_leave_aside(session, &output, status);
}

int cli_simulate(cli_session *session) {
  const cli_options *options = session->options;
  cli_asking asking = {0};
  if (options->output && strcmp(options->output, "-") == 0)
    return cli_usage_error(options->command,
                           "standard output carries the answer; -o needs a file for the snapshot");
  const tsr_format *format = cli_format_for_name(options);
  if (!format) return CLI_USAGE;
  int status = cli_read_ds_config(session, (tsr_ds_config_how){.note = cli_say_ds_note});
  if (status == 0) status = cli_asking_run(session, &asking);
  if (status == 0) status = write_snapshots(session, tsr_answer_snapshot(asking.answer), format);
  if (status == 0) status = cli_write_plan(session);
  if (status == 0) status = cli_asking_print(session, &asking);
  cli_asking_release(&asking);
  return status;
}
