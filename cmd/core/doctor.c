/* doctor.c - `tessera doctor`: whether tessera is right on this machine.
 *
 * The checks run in the user's Python (python/doctor), which is started as the tracer is (tracer.h) and returns a line, the answer,
 * and the report:
 *
 *   graph FAILED BYTES     how many checks failed, and the length of the answer, which follows; the rest is the report of -o
 *
 * Without a Python this process answers alone. */
#define _POSIX_C_SOURCE 200809L

#include "doctor.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <tessera/unstable/json.h>
#include <unistd.h>

#include "session.h"
#include "system.h"
#include "tracer.h"

enum { LIMIT_S = 1800 };

static const tsr_parameter doctor_parameters[] = {
    {.name = "quick",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Only six of the programs; nothing is kept in machine.json."},
    {.name = "no_save",
     .option = "no-save",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Do not keep what was measured in machine.json, for simulate and others."},
    {.name = "python",
     .kind = TSR_PARAMETER_PATH,
     .argument = "PROGRAM",
     .help = "The Python to look at (default: that of the active environment, else python3)."},
};

const cli_command cli_doctor_row = {
    .about =
        {.name = "doctor",
         .summary = "whether tessera is right on this machine",
         .situation = TSR_SITUATION_FORECAST,
         .description =
             "Checks the installation: command, package, PyTorch, recorder, folders and terminal. "
             "Then it predicts what small training programs will need. On a machine with a GPU "
             "they also run there, and each prediction is compared with PyTorch's counters, and "
             "so is what the snapshot of the run shows. "
             "What depends on the machine (the CUDA context, libraries, and NCCL with two cards) "
             "is measured and kept in machine.json, which simulate uses. Without a GPU, "
             "predictions are compared with recorded ones.\n\n"
             "Each check is one line; what failed comes with what to do. With -o a report to "
             "attach to an issue is written: this text, and the JSON. If FILE ends in .json, only "
             "the JSON is. It contains versions and figures, and no paths or names of yours.",
         CLI_PARAMETERS(doctor_parameters),
         .examples = {{"tessera doctor", "all checks"},
                      {"tessera doctor -o doctor.md", "and a report for an issue"},
                      {"tessera doctor --quick --json", "six programs, for a script"}}},
    .answers = true,
    .writes_aside = true,
    .lacks = "verbose",
    .confines = true,
    .run = cli_doctor,
};

/* ---- the request ---- */

/* What the report is: "" without one. */
static const char *report_form(const char *path) {
  const char *ending = path ? strrchr(path, '.') : NULL;
  if (!path) return "";
  return ending && strcasecmp(ending, ".json") == 0 ? "json" : "markdown";
}

static char *request_of(const cli_session *session) {
  const cli_options *options = session->options;
  char program[4096];
  bool is_known = cli_system_program(program, sizeof program);
  json_t *request = json_pack(
      "{s:s, s:s, s:s, s:b, s:b, s:b, s:s, s:b, s:b, s:i}", "entry", "doctor", "version",
      tsr_version(), "program", is_known ? program : "", "quick",
      tsr_params_flag(options->own, "quick"), "save", !tsr_params_flag(options->own, "no_save"),
      "json", options->json, "report", report_form(options->output), "color", session->report.color,
      "progress", !options->quiet && isatty(STDERR_FILENO), "columns", (int)session->report.width);
  char *line = request ? json_dumps(request, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
  json_decref(request);
  return line;
}

/* ---- an answer without Python ---- */

/* The answer that has one check, as JSON. `message` is safe in it. */
static void print_json(FILE *stream, bool is_failure, const char *message, const char *advice) {
  fprintf(stream,
          "{\n  \"schema\": \"tessera/1\",\n  \"command\": \"doctor\",\n  \"inputs\": [],\n"
          "  \"verdict\": \"%s\",\n  \"version\": \"%s\",\n  \"system\": null,\n"
          "  \"processor\": null,\n  \"python\": null,\n  \"torch\": null,\n"
          "  \"cuda\": null,\n  \"allocator_settings\": \"\",\n  \"is_quick\": false,\n"
          "  \"is_saved\": false,\n  \"duration_us\": 0,\n  \"checks\": [\n    {\n"
          "      \"group\": \"python\",\n      \"name\": \"python\",\n"
          "      \"status\": \"%s\",\n      \"message\": \"%s\",\n      \"advice\": ",
          is_failure ? "failed" : "well", tsr_version(), is_failure ? "failed" : "skipped",
          message);
  fprintf(stream, advice ? "\"%s\"" : "null", advice);
  fputs("\n    }\n  ],\n  \"devices\": [],\n  \"programs\": [],\n  \"warnings\": []\n}\n", stream);
}

static void print_text(FILE *stream, bool is_failure, const char *message, const char *advice) {
  fputs(is_failure ? "1 check failed: python.\n" : "Only the command itself runs here.\n", stream);
  fprintf(stream, "\npython\n  %s  python  ", is_failure ? "FAILED " : "skipped");
  cli_put_clean(stream, message);
  if (advice) fprintf(stream, "\n                   to do: %s", advice);
  fputc('\n', stream);
}

/* The report is the JSON, whatever its name is. */
static int put_alone(cli_session *session, bool is_failure, const char *message,
                     const char *advice) {
  char safe[6 * CLI_MESSAGE_BYTES + 17];
  cli_output report = {0};
  safe[tsr_json_text(message, strlen(message), safe)] = '\0';
  int status = cli_start_aside(session, session->options->output, &report);
  FILE *aside = status == 0 && report.path ? cli_output_stream(&report) : NULL;
  FILE *stream = cli_output_stream(&session->output);
  if (status == 0 && (!stream || (report.path && !aside))) status = TSR_ERROR_WRITE;
  if (status == 0 && aside) print_json(aside, is_failure, safe, advice);
  if (status == 0 && session->options->json) print_json(stream, is_failure, safe, advice);
  if (status == 0 && !session->options->json) print_text(stream, is_failure, message, advice);
  status = cli_leave_aside(session, &report, status);
  return status ? status : is_failure ? CLI_CHECK_FAILED : 0;
}

static int explain(cli_session *session, const cli_tracer *tracer, const cli_traced *traced) {
  char room[4096], message[CLI_MESSAGE_BYTES];
  const char *python = cli_tracer_python(tracer, room, sizeof room), *slash = strrchr(python, '/');
  const char *name = slash ? slash + 1 : python;
  switch (traced->end) {
  case CLI_TRACE_MEMORY: return TSR_ERROR_MEMORY;
  case CLI_TRACE_REFUSED:
    return put_alone(session, false,
                     "tessera for Windows and for browsers starts no Python, so nothing else is "
                     "checked",
                     NULL);
  case CLI_TRACE_LATE:
    (void)snprintf(message, sizeof message, "%s took longer than %d minutes", name, LIMIT_S / 60);
    break;
  case CLI_TRACE_ABSENT:
    (void)snprintf(message, sizeof message, "%s cannot be started: %s", name, traced->note);
    break;
  default:
    (void)snprintf(message, sizeof message, "%s ended without an answer: %s", name, traced->note);
  }
  return put_alone(session, true, message, "--python names another Python");
}

/* ---- the answer of Python ---- */

/* The two numbers after the first word. False if they are not numbers, or too large. */
static bool read_sizes(const cli_traced *traced, unsigned long *failed, size_t *answer_bytes) {
  char *end = NULL;
  *failed = strtoul(traced->note, &end, 10);
  if (end == traced->note || *end != ' ') return false;
  const char *second = end + 1;
  unsigned long long bytes = strtoull(second, &end, 10);
  *answer_bytes = (size_t)bytes;
  return end != second && !*end && bytes <= traced->graph_size;
}

static int put_answer(cli_session *session, const cli_traced *traced) {
  unsigned long failed = 0;
  size_t bytes = 0;
  cli_output report = {0};
  if (!read_sizes(traced, &failed, &bytes))
    return put_alone(session, true, "Python's answer cannot be read", NULL);
  int status = cli_start_aside(session, session->options->output, &report);
  if (status == 0 && session->options->output &&
      cli_output_write(&report, traced->graph + bytes, traced->graph_size - bytes))
    status = TSR_ERROR_WRITE;
  if (status == 0 && cli_output_write(&session->output, traced->graph, bytes))
    status = TSR_ERROR_WRITE;
  status = cli_leave_aside(session, &report, status);
  return status ? status : failed ? CLI_CHECK_FAILED : 0;
}

int cli_doctor(cli_session *session) {
  const char *output = session->options->output;
  if (output && strcmp(output, "-") == 0)
    return cli_usage_error(session->options->command,
                           "-o names a file for the report, such as -o doctor.md");
  if (output && cli_output_try(output)) {
    cli_say(NULL, "%s: %s", output, cli_reason(errno));
    return CLI_FAULT;
  }
  char *request = request_of(session);
  int status = TSR_ERROR_MEMORY;
  if (request) {
    cli_traced traced;
    cli_tracer tracer = {.python = tsr_params_text(session->options->own, "python"),
                         .request = request,
                         .is_script = true,
                         .limit_s = LIMIT_S};
    cli_tracer_run(&tracer, &traced);
    status = traced.end == CLI_TRACE_GRAPH ? put_answer(session, &traced)
                                           : explain(session, &tracer, &traced);
    cli_traced_release(&traced);
  }
  free(request);
  return status;
}
