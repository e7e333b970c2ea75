/* tracing.c - see tracing.h.
 *
 * A request is what the tracer needs (python/tessera/_child.py): the description, and the options by their names in plans. The options of the
 * command line, a plan file and a DeepSpeed configuration together are a plan, so its canonical text has them all. */
#define _POSIX_C_SOURCE 200809L

#include "tracing.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/json.h>
#include <tessera/unstable/plans.h>

#include "message.h"
#include "textfile.h"

enum { LIMIT_S = 1200 };

static bool has(const tsr_params *own, const char *name) {
  return tsr_params_find(own, name, strlen(name)) && tsr_params_has(own, name);
}

/* ---- the request ---- */

/* Add how experts get their tokens: a word, or the counts in a file. Without --routing, nothing. */
static int add_routing(cli_session *session, json_t *object) {
  const tsr_params *own = session->options->own;
  const char *how = has(own, "routing") ? tsr_params_text(own, "routing") : NULL;
  if (!how) return 0;
  json_t *counts = NULL;
  if (strcmp(how, "balanced") == 0 || strcmp(how, "worst") == 0) {
    counts = json_string(how);
  } else {
    const char *before = session->path;
    char *text = NULL;
    size_t size_bytes = 0;
    session->path = how; /* which errors are about */
    int status = cli_read_text(how, CLI_TEXTFILE_ANY, &text, &size_bytes, &session->error);
    if (status == TSR_ERROR_IO)
      return cli_usage_error(session->options->command,
                             "--routing %s is not balanced or worst, and no file that can be read",
                             how);
    if (status == 0) status = tsr_json_load(text, size_bytes, 0, NULL, &counts, &session->error);
    free(text);
    if (status) return status;
    session->path = before;
  }
  return json_object_set_new(object, "routing", counts) ? TSR_ERROR_MEMORY : 0;
}

/* The options as an object; NULL with the status set on failure. */
static json_t *options_of(cli_session *session, int *status) {
  const tsr_params *own = session->options->own;
  tsr_run_plan *plan = NULL;
  *status = tsr_run_plan_of(own, &plan, &session->error);
  if (*status) return NULL;
  json_t *options = NULL;
  const char *text = tsr_run_plan_text(plan);
  *status = tsr_json_load(text, strlen(text), 0, NULL, &options, &session->error);
  tsr_run_plan_free(plan);
  if (*status) return NULL;
  bool ok = true;
  const tsr_parameter *row;
  for (size_t i = 0; ok && (row = tsr_params_row(own, i)) != NULL; i++) {
    bool is_new = tsr_parameter_is_traced(row->name) && tsr_params_has(own, row->name) &&
                  row->kind == TSR_PARAMETER_COUNT && !json_object_get(options, row->name);
    if (is_new)
      ok = json_object_set_new(options, row->name,
                               json_integer((json_int_t)tsr_params_count(own, row->name))) == 0;
  }
  /* A plan has no defaults, but sdpa may not be what transformers chooses. */
  if (ok && has(own, "attention") && !json_object_get(options, "attention"))
    ok = json_object_set_new(options, "attention", json_string("sdpa")) == 0;
  if (ok && has(own, "padding") && tsr_params_flag(own, "padding"))
    ok = json_object_set_new(options, "padding", json_true()) == 0;
  *status = ok ? add_routing(session, options) : TSR_ERROR_MEMORY;
  if (*status == 0) return options;
  json_decref(options);
  return NULL;
}

static const char *gpu_of(const tsr_params *own) {
  const char *name = has(own, "gpu") ? tsr_params_gpu(own) : NULL;
  return name ? name : "a100";
}

static unsigned limit_of(const tsr_params *own, unsigned usual) {
  uint64_t given = has(own, "time_limit") ? tsr_params_count(own, "time_limit") : usual;
  return given > 1000000 ? 1000000 : (unsigned)given;
}

/* ---- what to say ---- */

/* A word for a shell. */
static void add_word(FILE *stream, const char *word) {
  static const char plain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=+%@";
  if (*word && !word[strspn(word, plain)]) {
    (void)fprintf(stream, " %s", word);
    return;
  }
  (void)fputs(" '", stream);
  for (const char *at = word; *at; at++)
    if (*at == '\'')
      (void)fputs("'\\''", stream);
    else
      (void)fputc(*at, stream);
  (void)fputc('\'', stream);
}

/* An option of a plan as the command line has it. */
static void add_option(FILE *stream, const char *key, const json_t *value) {
  if (strcmp(key, "version") == 0 || json_is_array(value) || json_is_object(value)) return;
  (void)fputs(" --", stream);
  for (const char *at = key; *at; at++) (void)fputc(*at == '_' ? '-' : *at, stream);
  if (json_is_string(value)) add_word(stream, json_string_value(value));
  if (json_is_integer(value))
    (void)fprintf(stream, " %" JSON_INTEGER_FORMAT, json_integer_value(value));
  if (json_is_real(value)) (void)fprintf(stream, " %.17g", json_real_value(value));
}

/* The name of the step graph in a suggestion: the file's, with another ending. */
static void add_graph_name(FILE *stream, const char *path) {
  char name[256];
  const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
  const char *dot = strrchr(base, '.');
  size_t length = dot && dot > base ? (size_t)(dot - base) : strlen(base);
  (void)snprintf(name, sizeof name, "%.*s.graph", length < 200 ? (int)length : 200, base);
  add_word(stream, name);
}

/* What a user has to run if Python or packages of it are missing. The caller frees it; NULL if memory ran out. */
static char *remedy(const cli_session *session, const char *python, const char *lacking,
                    const char *path, json_t *options) {
  cli_text text = {0};
  const char *key;
  json_t *value;
  FILE *stream = cli_text_open(&text);
  if (!stream) return NULL;
  (void)fputs("run:", stream);
  add_word(stream, python);
  (void)fprintf(stream, " -m pip install %s && tessera trace", lacking);
  add_word(stream, path);
  (void)fputs(" -o", stream);
  add_graph_name(stream, path);
  json_object_foreach(options, key, value) add_option(stream, key, value);
  if (has(session->options->own, "gpu"))
    (void)fprintf(stream, " --gpu %s", gpu_of(session->options->own));
  if (has(session->options->own, "python")) {
    (void)fputs(" --python", stream);
    add_word(stream, python);
  }
  if (cli_text_close(stream, &text)) return text.data;
  free(text.data);
  return NULL;
}

/* Explain why a trace returned no graph; returns the exit status. */
static int explain(const cli_session *session, const cli_tracer *tracer, const cli_traced *traced,
                   const char *path, json_t *options) {
  char room[4096];
  const char *python = cli_tracer_python(tracer, room, sizeof room);
  bool is_absent = traced->end == CLI_TRACE_ABSENT;
  if (traced->end == CLI_TRACE_MEMORY) return TSR_ERROR_MEMORY;
  if (traced->end == CLI_TRACE_REFUSED) {
    cli_say(NULL, "%s: %s", path, traced->note);
    return CLI_INPUT;
  }
  if (traced->end == CLI_TRACE_ENDED) {
    cli_say(NULL, "%s: %s ended without a step graph, with %s", path, python, traced->note);
    return CLI_INPUT;
  }
  if (traced->end == CLI_TRACE_LATE) {
    cli_say(NULL,
            "%s: the trace took longer than %u seconds: --time-limit of tessera trace sets another "
            "limit",
            path, tracer->limit_s);
    return CLI_INPUT;
  }
  const char *lacking = is_absent ? "torch transformers" : traced->note;
  char *words = remedy(session, is_absent ? "python3" : python, lacking, path, options);
  if (!words) return TSR_ERROR_MEMORY;
  if (is_absent)
    cli_say(
        NULL,
        "%s: this model is traced with PyTorch, but %s cannot be started (%s): --python chooses "
        "another one, or %s (in Python: tessera.trace)",
        path, python, traced->note, words);
  else
    cli_say(NULL,
            "%s: this model is traced with PyTorch, but %s lacks %s: --python chooses another one, "
            "or %s (in Python: tessera.trace)",
            path, python, lacking, words);
  free(words);
  return CLI_INPUT;
}

/* ---- tracing ---- */

static int trace(cli_session *session, const char *path, json_t *request, json_t *options,
                 cli_tracer *tracer, cli_traced *out) {
  cli_clock clock;
  char *line = request ? json_dumps(request, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
  if (!line) return TSR_ERROR_MEMORY;
  tracer->request = line;
  bool is_quiet = session->options->quiet || tracer->is_script; /* which prints itself */
  cli_clock_start(&clock, "tracing", path, is_quiet);
  cli_tracer_run(tracer, out);
  cli_clock_stop(&clock);
  int status = 0;
  if (out->end != CLI_TRACE_GRAPH)
    status = explain(session, tracer, out, path, options);
  else if (!session->options->quiet)
    cli_say(NULL, "%s: %s", cli_path_words(path), out->note);
  free(line);
  if (status) cli_traced_release(out);
  return status;
}

/* A text as JSON. NULL if memory ran out, or if it is no text. */
static json_t *text_value(const char *text, size_t size_bytes, bool *is_invalid) {
  json_error_t error = {.line = 0};
  json_t *value = json_pack_ex(&error, 0, "s%", text, size_bytes);
  *is_invalid |= !value && json_error_code(&error) == json_error_invalid_utf8;
  return value;
}

static const char *python_of(const tsr_params *own) {
  return has(own, "python") ? tsr_params_text(own, "python") : NULL;
}

int cli_trace_config(cli_session *session, const char *path, const char *text, size_t size_bytes,
                     cli_traced *out) {
  const tsr_params *own = session->options->own;
  int status = 0;
  cli_tracer tracer = {
      .python = python_of(own), .limit_s = limit_of(own, LIMIT_S), .helper = session->tracer};
  json_t *options = options_of(session, &status);
  *out = (cli_traced){.note = ""};
  if (!options) return status;
  bool is_invalid = false;
  json_t *config = text_value(text, size_bytes, &is_invalid);
  if (is_invalid) {
    cli_say(NULL, "%s: not a description of a model: not UTF-8", path);
    json_decref(options);
    return CLI_INPUT;
  }
  json_t *request = json_pack("{s:o,s:O,s:s,s:b}", "config", config, "options", options, "gpu",
                              gpu_of(own), "dashes", 1);
  status = trace(session, path, request, options, &tracer, out);
  json_decref(request);
  json_decref(options);
  return status;
}

int cli_trace_script(cli_session *session, const char *script, const char *const *arguments,
                     size_t count, cli_traced *out) {
  const tsr_params *own = session->options->own;
  const char *value = tsr_params_text(own, "value");
  cli_tracer tracer = {.python = python_of(own), .limit_s = limit_of(own, 0), .is_script = true};
  json_t *words = json_array();
  bool is_invalid = false;
  bool ok = words != NULL;
  *out = (cli_traced){.note = ""};
  for (size_t i = 0; ok && i < count; i++)
    ok = json_array_append_new(words,
                               text_value(arguments[i], strlen(arguments[i]), &is_invalid)) == 0;
  json_t *request =
      json_pack("{s:o,s:O,s:s,s:b}", "script", text_value(script, strlen(script), &is_invalid),
                "arguments", words, "gpu", gpu_of(own), "module", tsr_params_flag(own, "module"));
  static const char *const numbers[][2] = {
      {"after", "after"}, {"step_of", "optimizer"}, {"ranks", "ranks"}};
  ok = ok && request;
  for (size_t i = 0; ok && i < sizeof numbers / sizeof *numbers; i++)
    if (has(own, numbers[i][0]))
      ok = json_object_set_new(request, numbers[i][1],
                               json_integer((json_int_t)tsr_params_count(own, numbers[i][0]))) == 0;
  if (ok && value) ok = json_object_set_new(request, "value", json_real(strtod(value, NULL))) == 0;
  json_t *none = json_object();
  int status = ok && none ? add_routing(session, request) : TSR_ERROR_MEMORY;
  if (is_invalid) {
    cli_say(NULL, "the script and its arguments must be UTF-8");
    status = CLI_USAGE;
  }
  if (status == 0) status = trace(session, script, request, none, &tracer, out);
  json_decref(none);
  json_decref(request);
  json_decref(words);
  return status;
}

int cli_trace_clear(cli_session *session) {
  tsr_params *own = session->options->own;
  tsr_run_plan *plan = NULL;
  tsr_simulate_options how = {.struct_bytes = sizeof how};
  bool has_modules = true;
  int status = tsr_run_plan_of(own, &plan, &session->error);
  if (status == TSR_ERROR_MEMORY) return status;
  if (status == 0) {
    tsr_run_plan_options(plan, &how);
    has_modules = how.module_count != 0;
    tsr_run_plan_free(plan);
  }
  const tsr_parameter *row;
  for (size_t i = 0; (row = tsr_params_row(own, i)) != NULL; i++)
    if (tsr_parameter_is_traced(row->name)) tsr_params_clear(own, row->name);
  tsr_params_clear(own, "ds_config");
  if (!has_modules) tsr_params_clear(own, "plan");
  return 0;
}
