/* plan.c - the command line's part of `tessera plan`: `show FILE [MODEL]`, and the files that are written besides the
 * answer. The question is src/engine/questions/plan. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/planning.h>
#include <tessera/unstable/runs.h>

#include "message.h"
#include "session.h"
#include "textfile.h"

static bool ends_in(const char *path, const char *ending) {
  size_t length = path ? strlen(path) : 0, tail = strlen(ending);
  return length > tail && strcmp(path + length - tail, ending) == 0;
}

/* The form of the front that a file's name selects; NULL for an answer. */
static const char *front_form(const char *path) {
  return ends_in(path, ".html") ? "html" : ends_in(path, ".csv") ? "csv" : NULL;
}

/* `show FILE`, where FILE is left out if a DeepSpeed configuration is the plan. */
static int take_show(cli_session *session) {
  const cli_options *options = session->options;
  tsr_params *own = options->own;
  if (!options->operand_count || strcmp(options->operands[0], "show") != 0) return 0;
  session->operands_taken = 1;
  int status = tsr_params_set_integer(own, "show", 1, &session->error);
  if (status == 0 && !tsr_params_has(own, "ds_config")) {
    if (options->operand_count < 2) return cli_usage_error(options->command, "missing FILE");
    status = tsr_params_set_path(own, "plan", options->operands[session->operands_taken++],
                                 &session->error);
  }
  return status ? cli_params_error(options->command, status, &session->error) : 0;
}

static int read_line(cli_session *session, const char **model) {
  const cli_options *options = session->options;
  const tsr_params *own = options->own;
  tsr_ds_config_how how = {.note = cli_say_ds_note};
  int status = take_show(session);
  if (tsr_params_has(own, "gpus") && !tsr_params_flag(own, "compare"))
    how.ranks = tsr_params_count(own, "gpus");
  if (status == 0) status = cli_read_ds_config(session, how);
  if (status) return status;
  size_t before = session->operands_taken;
  if (options->operand_count > before + 1)
    return cli_usage_error(options->command, "unexpected operand '%s'",
                           options->operands[before + 1]);
  *model = options->operand_count > before ? options->operands[before] : "";
  return 0;
}

/* Write one of the answer's files, if its option is given. */
static int write_file(cli_session *session, const tsr_answer *answer, const char *option,
                      const char *form) {
  cli_output output;
  int status = cli_start_aside(session, tsr_params_text(session->options->own, option), &output);
  if (!output.path || status) return status;
  status = tsr_answer_write_form(answer, form, NULL, &session->report, cli_output_write, &output,
                                 &session->error);
  return cli_leave_aside(session, &output, status);
}

static int write_files(cli_session *session, const tsr_answer *answer) {
  const tsr_plan_answer *value = tsr_answer_value(answer);
  const char *front = front_form(tsr_params_text(session->options->own, "write_front"));
  int status = 0;
  if (value->front) status = write_file(session, answer, "write_front", front ? front : "csv");
  if (status == 0 && value->found) status = write_file(session, answer, "write_plan", "plan");
  if (status == 0 && value->largest && value->largest->model)
    status = write_file(session, answer, "write_model", "model");
  return status;
}

/* A change that another program cannot express may be needed for the budget. */
static void say_pasted(const cli_session *session, const tsr_plan_answer *value) {
  char reserved[32];
  for (size_t i = 0; i < value->pasted_count; i++) {
    const tsr_pasted *one = &value->pasted[i];
    if (one->reserved_bytes <= value->found->budget_bytes) continue;
    cli_say(session->options->command->about.name,
            "the part of the plan that %s can express reserves %s, more than the budget; the "
            "%s list the rest",
            one->target, tsr_size_text(one->reserved_bytes, reserved, sizeof reserved),
            one->notes ? "notes above" : "comments in the text");
  }
}

/* Notes of texts whose format has no comments. */
static void say_notes(const tsr_plan_answer *value) {
  for (size_t i = 0; i < value->pasted_count; i++)
    for (const char *line = value->pasted[i].notes; line && *line;) {
      size_t length = strcspn(line, "\n");
      cli_say(value->pasted[i].target, "%.*s", (int)length, line);
      line += length + (line[length] == '\n');
    }
}

/* ---- Texts for other programs ---- */

/* Whether -o names a folder, which gets a file of each text. */
static bool is_folder(const cli_options *options) {
  const char *path = options->output;
  return path && tsr_params_has(options->own, "for") && (cli_is_folder(path) || ends_in(path, "/"));
}

static int write_text(cli_session *session, const char *name, const char *text) {
  const char *folder = session->options->output;
  size_t length = strlen(folder) + strlen(name) + 2;
  char *path = malloc(length);
  cli_output output;
  if (!path) return TSR_ERROR_MEMORY;
  (void)snprintf(path, length, "%s%s%s", folder, ends_in(folder, "/") ? "" : "/", name);
  int status = cli_start_aside(session, path, &output);
  if (status == 0) {
    if (cli_output_write(&output, text, strlen(text))) status = TSR_ERROR_WRITE;
    status = cli_finish_aside(session, &output, status);
  }
  free(path);
  return status;
}

/* Notes of a text without comments are in a file next to it: deepspeed.json and deepspeed.txt. */
static int write_texts(cli_session *session, const tsr_plan_answer *value) {
  int status = 0;
  for (size_t i = 0; status == 0 && i < value->pasted_count; i++) {
    const tsr_pasted *one = &value->pasted[i];
    char name[64];
    (void)snprintf(name, sizeof name, "%.*s.txt", (int)strcspn(one->file, "."), one->file);
    status = write_text(session, one->file, one->text);
    if (status == 0 && one->notes) status = write_text(session, name, one->notes);
  }
  return status;
}

/* Texts are written as they are, whatever the name of the file ends in. */
static int choose_text(cli_session *session) {
  const cli_options *options = session->options;
  size_t count;
  (void)tsr_params_texts(options->own, "for", &count);
  if (!is_folder(options)) {
    if (count > 1 && options->output && !options->json)
      return cli_usage_error(
          options->command,
          "several --for write several files: -o must name a folder, and '%s' is not one",
          options->output);
    return 0;
  }
  if (!cli_is_folder(options->output))
    return cli_usage_error(options->command, "-o: there is no folder '%s'", options->output);
  session->output.path = NULL;
  return 0;
}

/* ---- What to type next ---- */

/* A budget in few digits: not above `bytes`, or not below. */
static void write_budget(uint64_t bytes, bool is_up, char text[32]) {
  uint64_t mebibytes = (bytes >> 20) + is_up;
  if (!is_up && mebibytes >= 2048)
    (void)snprintf(text, 32, " --budget %" PRIu64 "GiB", mebibytes >> 10);
  else
    (void)snprintf(text, 32, " --budget %" PRIu64 "MiB", mebibytes);
}

/* A plan that was found is for the program that it is about: by text for transformers' Trainer, otherwise as a file. */
static void write_use(const tsr_params *own, const tsr_plan_answer *value, char text[32]) {
  const tsr_model *model = tsr_params_object(own, "model", &tsr_model_type);
  bool is_traced = model && tsr_model_is_traced(model);
  const char *target = value->found ? value->next_target : is_traced ? NULL : "hf";
  if (target)
    (void)snprintf(text, 32, " --for %s", target);
  else if (value->found && value->found->change_count && !tsr_params_has(own, "write_plan"))
    (void)snprintf(text, 32, " --write-plan plan.json");
}

/* What follows the line that was typed; "" if the answer has no successor. A budget is the memory of the card that
 * was named, if any: a run that fits needs none, and a larger one is of no use. Without a card, three quarters of
 * what the run takes are worth a try. */
static void write_next(const tsr_params *own, const tsr_plan_answer *value, char text[32]) {
  const char *allow = tsr_params_text(own, "allow");
  uint64_t card_bytes = tsr_params_gpu_bytes(own);
  bool is_short = value->found && !value->fits;
  *text = '\0';
  if (value->techniques && !card_bytes) {
    write_budget(value->techniques->without.reserved_bytes / 4 * 3, false, text);
  } else if (value->techniques && value->techniques->without.reserved_bytes > card_bytes) {
    write_budget(card_bytes, false, text);
  } else if (is_short && (!allow || strcmp(allow, "all") != 0)) {
    (void)snprintf(text, 32, " --allow all");
  } else if (is_short && !value->largest) {
    uint64_t needed_bytes = value->found->with.reserved_bytes;
    if (!card_bytes || needed_bytes <= card_bytes) write_budget(needed_bytes, true, text);
  } else if (value->techniques || (value->found && value->fits && !value->pasted_count)) {
    write_use(own, value, text);
  }
}

/* The length of a word of a line as it was typed, quotes included. */
static size_t word_length(const char *word) {
  bool is_quoted = false;
  size_t length = 0;
  for (; word[length] && (is_quoted || word[length] != ' '); length++)
    is_quoted ^= word[length] == '\'';
  return length;
}

/* Put what was typed, without an option that follows again: "--budget 4GiB" or "--budget=4GiB". */
static int put_typed(cli_session *session, const char *typed, const char *option) {
  size_t length = strlen(option);
  int status = 0;
  for (const char *at = typed; status == 0 && *at;) {
    size_t word = word_length(at);
    const char *name = at + (*at == '\'');
    bool is_same = word >= length && strncmp(name, option, length) == 0;
    bool is_alone = is_same && word == length, is_joined = is_same && name[length] == '=';
    bool is_kept = !is_alone && !is_joined;
    if (is_kept && at != typed) status = cli_put(session, " ");
    if (is_kept && status == 0 && cli_output_write(&session->output, at, word))
      status = TSR_ERROR_WRITE;
    at += word;
    at += strspn(at, " ");
    if (is_alone) at += word_length(at);
    at += strspn(at, " ");
  }
  return status;
}

/* What to do with a plan that is in a file. */
static int put_apply(cli_session *session, const char *path) {
  int status = cli_put(session, "\nNext: tessera.apply(model, \"");
  if (status == 0) status = cli_put(session, path);
  return status ? status : cli_put(session, "\", optimizer=optimizer) in the program\n");
}

/* The last line of a text: the next command to run, or the call of Python that takes the plan. */
static int put_next(cli_session *session, const tsr_plan_answer *value) {
  char text[32], option[32];
  const char *path = tsr_params_text(session->options->own, "write_plan");
  if (session->options->quiet) return 0;
  write_next(session->options->own, value, text);
  bool is_written =
      path && value->found && value->found->change_count && value->fits && !value->largest;
  if (!*text && is_written && !strpbrk(path, "\"\\\n")) /* as a text of Python needs no escapes */
    return put_apply(session, path);
  if (!*text || !session->options->typed) return 0;
  (void)snprintf(option, sizeof option, "%.*s", (int)word_length(text + 1), text + 1);
  int status = cli_put(session, "\nNext: tessera ");
  if (status == 0) status = put_typed(session, session->options->typed, option);
  if (status == 0) status = cli_put(session, text);
  return status ? status : cli_put(session, "\n");
}

static int put_answer(cli_session *session, const tsr_answer *answer, const char *form) {
  const tsr_plan_answer *value = tsr_answer_value(answer);
  bool has_folder = is_folder(session->options) && value->pasted_count;
  int status = has_folder ? write_texts(session, value) : 0;
  /* A file for another program gets no verdict in its place. */
  if (tsr_params_has(session->options->own, "for") && !value->pasted_count)
    session->output.path = NULL;
  if (status == 0 && form)
    status = tsr_answer_write_form(answer, form, NULL, &session->report, cli_output_write,
                                   &session->output, &session->error);
  else if (status == 0 && (!has_folder || session->report.format == TSR_REPORT_JSON))
    status = tsr_answer_write(answer, &session->report, cli_output_write, &session->output,
                              &session->error);
  bool is_text = !form && !value->pasted_count && session->report.format == TSR_REPORT_TEXT;
  if (status == 0 && is_text) status = put_next(session, value);
  if (status) return status;
  bool has_notes = !has_folder && session->report.format == TSR_REPORT_TEXT;
  if (has_notes) say_notes(value);
  if (value->fits) return write_files(session, answer);
  if (value->pasted_count) say_pasted(session, value);
  return CLI_CHECK_FAILED;
}

int cli_plan(cli_session *session) {
  const cli_options *options = session->options;
  const char *model = NULL;
  cli_asking asking = {.name = NULL};
  int status = read_line(session, &model);
  if (status) return status;
  bool is_front = tsr_params_flag(options->own, "front") && !options->json;
  const char *form = is_front ? front_form(options->output) : NULL;
  asking.name = model;
  bool is_for = tsr_params_has(options->own, "for");
  asking.has_format = form || is_for;
  if (is_for)
    status = choose_text(session);
  else if (!form)
    status = cli_choose_format(session);
  if (status) return status;
  status = cli_asking_run(session, &asking);
  if (status == 0) status = put_answer(session, asking.answer, form);
  cli_asking_release(&asking);
  return status;
}
