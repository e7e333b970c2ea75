/* session.c - runs a command: prepares its options, delivers its answer, explains its failure.
 *
 * Every failure ends in exactly one line on standard error that names the file it is about and,
 * where the library knows it, the byte:
 *
 *   tessera: snapshot.pickle: unknown opcode 0x07 (at byte 1234)
 *
 * A reader that closes the pipe early (`tessera peak f | head`) has what it wanted: no message, and
 * the question counts as answered. main ignores SIGPIPE, so it arrives here as EPIPE.
 */
#define _POSIX_C_SOURCE 200809L

#include "session.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/sidecar.h>
#include <unistd.h>

#include "confine.h"
#include "guard.h"
#include "progress.h"
#include "sandbox.h"
#include "system.h"
#include "textfile.h"
#include "tracer.h"
#include "version.h"

/* ---- Before ---- */

static bool wants_color(const cli_options *options, bool to_terminal) {
  if (options->color != CLI_COLOR_AUTO) return options->color == CLI_COLOR_ALWAYS;
  const char *no_color = getenv("NO_COLOR");
  const char *terminal = getenv("TERM");
  if (no_color && *no_color) return false;
  return to_terminal && terminal && strcmp(terminal, "dumb") != 0;
}

const char *cli_path_words(const char *path) {
  if (!path || strcmp(path, "-") == 0) return "standard input";
  return *path ? path : "''";
}

static const char *shown_path(const cli_session *session) {
  return cli_path_words(session->path);
}

/* What the user states in COLUMNS, 0 if that is no number of columns. */
static uint32_t stated_width(void) {
  const char *text = getenv("COLUMNS");
  uint64_t columns = 0;
  if (!text || !*text || strlen(text) > 6) return 0;
  for (; *text >= '0' && *text <= '9'; text++) columns = columns * 10 + (uint64_t)(*text - '0');
  return *text ? 0 : (uint32_t)columns;
}

/* Columns to which text is shortened. 0, unlimited, if the output goes elsewhere than to a terminal: what is
 * cut there is lost to grep and to a later reader. */
static uint32_t text_width(bool to_terminal) {
  uint32_t stated = stated_width();
  return stated || !to_terminal ? stated : cli_system_columns();
}

/* `path` may be NULL. */
static void say_warning(const char *path, const char *code, uint64_t count, const char *message) {
  cli_say(NULL, "%s%swarning: %s (%" PRIu64 "): %s", path ? path : "", path ? ": " : "", code,
          count, message);
}

/* A tsr_warn_fn: on standard error, after what is on standard output. */
static void warn(void *context, const char *code, uint64_t count, const char *message) {
  const cli_session *session = context;
  if (session->output.stream) fflush(session->output.stream);
  say_warning(session->opened_count > 1 ? NULL : shown_path(session), code, count, message);
}

static cli_session session_for(const cli_options *options) {
  bool is_aside = options->command && options->command->writes_aside;
  const char *path = is_aside ? NULL : options->output;
  cli_session session = {.options = options, .output.path = path};
  session.error = (tsr_error){.offset = TSR_OFFSET_NONE};
  session.query.devices = options->devices;
  session.query.device_count = options->device_count;
  session.query.top = options->top > SIZE_MAX ? SIZE_MAX : (size_t)options->top;
  bool to_terminal = !path && isatty(STDOUT_FILENO);
  session.report = (tsr_report_options){
      .format = options->json ? TSR_REPORT_JSON : TSR_REPORT_TEXT,
      .color = !options->json && wants_color(options, to_terminal),
      .full_stacks = options->full_stacks,
      .quiet = options->quiet,
      .verbose = options->verbose,
      .width = text_width(to_terminal),
      .warn = warn,
  };
  return session;
}

/* ---- During ---- */

/* With --strict a file with warnings is refused: CLI_INPUT then, or 0. */
static int check_strict(const cli_session *session, const tsr_snapshot *snapshot) {
  size_t count;
  const tsr_warning *warnings = tsr_snapshot_warnings(snapshot, &count);
  if (!session->options->strict) return 0;
  for (size_t i = 0; i < count; i++)
    cli_say(NULL, "%s: %s (%" PRIu64 "): %s", shown_path(session), warnings[i].code,
            warnings[i].count, warnings[i].message);
  return count ? CLI_INPUT : 0;
}

/* From 0; no page has as many as the largest number. */
static uint32_t payload_of(const cli_options *options) {
  if (!options->payload) return 0;
  return options->payload > UINT32_MAX ? UINT32_MAX : (uint32_t)options->payload - 1;
}

/* A file is that of the first snapshot; "none" is for all. */
static const char *sidecar_of(const cli_session *session) {
  const char *given = session->options->sidecar;
  if (given && strcmp(given, "none") == 0) return "";
  return session->opened_count ? NULL : given;
}

/* Take over what was opened, which is freed on failure. */
static int accept(cli_session *session, const tsr_opening *opened, cli_input *input) {
  tsr_study *study = NULL;
  int status = opened->status;
  session->path = opened->path;
  if (status) session->error = opened->error;
  if (!status) status = check_strict(session, opened->snapshot);
  if (!status)
    status =
        cli_keep_sidecar(session->options, tsr_snapshot_sidecar(opened->snapshot), opened->path);
  if (!status) status = tsr_study_new(opened->snapshot, &study, &session->error);
  if (status) {
    tsr_snapshot_free(opened->snapshot);
    return status;
  }
  *input = (cli_input){.snapshot = opened->snapshot,
                       .study = study,
                       .heading = {.path = opened->path, .snapshot = opened->snapshot}};
  return 0;
}

/* The first has the progress bar: of several, it is the one that everything waits for longest, or
 * nearly. */
int cli_open_all(cli_session *session, const char *const *paths, size_t count, cli_input *inputs,
                 size_t *opened) {
  *opened = 0;
  if (!count) return 0;
  tsr_opening *openings = calloc(count, sizeof *openings);
  if (!openings) return TSR_ERROR_MEMORY;
  cli_progress progress = cli_progress_start("reading", paths[0], session->options->quiet);
  for (size_t i = 0; i < count; i++) {
    openings[i].path = paths[i];
    openings[i].options =
        (tsr_open_options){.payload = payload_of(session->options), .sidecar = sidecar_of(session)};
    session->opened_count++;
  }
  openings[0].options.progress = cli_progress_update;
  openings[0].options.progress_context = &progress;
  tsr_snapshot_open_all(openings, count);
  cli_progress_end(&progress);
  int status = 0;
  for (size_t i = 0; i < count; i++) {
    if (status) {
      tsr_snapshot_free(openings[i].snapshot);
      continue;
    }
    status = accept(session, &openings[i], &inputs[i]);
    *opened += status == 0;
  }
  free(openings);
  return status;
}

int cli_open_path(cli_session *session, const char *path, cli_input *input) {
  size_t opened;
  return cli_open_all(session, &path, 1, input, &opened);
}

int cli_open(cli_session *session, size_t index, cli_input *input) {
  return cli_open_path(session, session->options->operands[index], input);
}

void cli_warn_of_file(const cli_session *session, const cli_input *input) {
  size_t count;
  const tsr_warning *warnings = tsr_snapshot_warnings(input->snapshot, &count);
  if (session->options->quiet) return;
  for (size_t i = 0; i < count; i++)
    say_warning(cli_path_words(input->heading.path), warnings[i].code, warnings[i].count,
                warnings[i].message);
}

void cli_close(cli_input *input) {
  tsr_study_free(input->study);
  tsr_snapshot_free(input->snapshot);
  *input = (cli_input){0};
}

static int print_version(cli_session *session) {
  FILE *stream = cli_output_stream(&session->output);
  if (stream) cli_put_version(stream, session->options->json);
  return 0;
}

/* ---- After ---- */

static int explain_write(const cli_session *session) {
  int reason = session->output.error_number;
  const char *path = session->output.path;
  if (reason == EPIPE) return CLI_ANSWERED;
  cli_say(NULL, "%s: %s", path ? path : "standard output", cli_reason(reason));
  return CLI_FAULT;
}

int cli_explain(const cli_session *session, int status) {
  const tsr_error *error = &session->error;
  const cli_command *command = session->options->command;
  const char *name = command && command->is_drop_in ? command->about.name : NULL;
  const char *path = shown_path(session);
  if (status == TSR_ERROR_WRITE && session->output.error_number) return explain_write(session);
  const char *reason = error->status == status && error->message[0]
                           ? error->message
                           : tsr_status_text((tsr_status)status);
  if (session->is_about_no_input && command)
    cli_say(command->about.name, "%s", reason);
  else if (error->offset == TSR_OFFSET_NONE)
    cli_say(name, "%s: %s", path, reason);
  else
    cli_say(name, "%s: %s (at byte %" PRIu64 ")", path, reason, error->offset);
  switch (status) {
  case TSR_ERROR_ARGUMENT: return CLI_USAGE;
  case TSR_ERROR_IO:
  case TSR_ERROR_FORMAT:
  case TSR_ERROR_LIMIT:
  case TSR_ERROR_UNSUPPORTED: return CLI_INPUT;
  default: return CLI_FAULT;
  }
}

int cli_session_confine(cli_session *session) {
  const cli_options *options = session->options;
  const tsr_params *own = options->own;
  bool traces = options->command->confines; /* trace */
  for (size_t i = 0; i < options->operand_count; i++)
    traces |= cli_is_model_file(options->operands[i]);
  if (options->may_confine && tsr_params_find(own, "python", strlen("python")) &&
      (traces || tsr_params_flag(own, "padding"))) {
    session->tracer = cli_tracer_helper_start(tsr_params_text(own, "python"));
    if (!session->tracer) return TSR_ERROR_MEMORY;
  }
  cli_confine(options, NULL);
  return 0;
}

static int run(cli_session *session, cli_command_fn *command) {
  const cli_options *options = session->options;
  /* These two are about tessera, not about a file: -o and other options do not matter. */
  if (options->help || options->version) session->output.path = NULL;
  if (options->version) return print_version(session);
  int status = options->help ? 0 : cli_keep_inputs(options);
  if (status) return status;
  if (options->command && !options->command->confines) status = cli_session_confine(session);
  return status ? status : command(session);
}

static void say_written(const cli_session *session, const cli_output *output) {
  const cli_command *command = session->options->command;
  if (session->options->quiet || !command || command->is_drop_in) return;
  cli_output_say(output, command->about.name);
}

int cli_put(cli_session *session, const char *text) {
  return cli_output_write(&session->output, text, strlen(text)) ? TSR_ERROR_WRITE : 0;
}

int cli_start_aside(const cli_session *session, const char *path, cli_output *out) {
  *out = (cli_output){.path = path};
  return path ? cli_keep_inputs_from(session->options, path) : 0;
}

int cli_finish_aside(cli_session *session, cli_output *output, int status) {
  if (status == 0 && cli_output_finish(output) != 0) status = TSR_ERROR_WRITE;
  if (status == TSR_ERROR_WRITE) {
    cli_say(NULL, "%s: %s", output->path, cli_reason(output->error_number));
    status = CLI_FAULT;
  }
  say_written(session, output);
  cli_output_abandon(output);
  return status;
}

int cli_leave_aside(cli_session *session, cli_output *output, int status) {
  if (status == 0 && cli_output_flush(output) != 0) status = TSR_ERROR_WRITE;
  if (status || !output->stream) return cli_finish_aside(session, output, status);
  assert(session->aside_count < CLI_ASIDES);
  output->progress = NULL;
  session->asides[session->aside_count++] = *output;
  return 0;
}

int cli_finish_asides(cli_session *session, int status) {
  for (size_t i = 0; i < session->aside_count; i++)
    status = cli_finish_aside(session, &session->asides[i], status);
  session->aside_count = 0;
  return status;
}

int cli_run(const cli_options *options, cli_command_fn *command) {
  cli_session session = session_for(options);
  session.report.warn_context = &session;
  int status = run(&session, command);
  bool complete = status == 0 || status == CLI_CHECK_FAILED || session.is_complete;
  int left = cli_finish_asides(&session, complete ? 0 : CLI_FAULT);
  if (complete && left) status = left;
  if (complete && !left && cli_output_finish(&session.output) != 0) status = TSR_ERROR_WRITE;
  if (status < 0 && !session.ended_by) status = cli_explain(&session, status);
  say_written(&session, &session.output);
  cli_output_abandon(&session.output);
  free(session.model_path);
  free(session.model_source);
  free(session.model_folder);
  cli_tracer_helper_end(session.tracer);
  if (session.ended_by) (void)raise(session.ended_by);
  return status;
}
