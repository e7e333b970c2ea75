/* simulate.c - `tessera simulate MODEL`: what will a training run take, before anything has run?
 *
 * The answer goes to standard output; with -o the snapshot goes to a file, as JSON where its name
 * ends in .json.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "parse.h"
#include "session.h"

/* No description of a model is longer. */
#define LARGEST_MODEL (1u << 20)

/* ---- options ---- */

/* `text` is one of `words`, the last of which, "word:", is followed by a number above 0. Answers the
 * word's index, or -1. NULL is the first word. */
static int read_word(const char *text, const char *const *words, uint64_t *number) {
  if (!text) return 0;
  for (int i = 0; words[i]; i++) {
    size_t length = strlen(words[i]);
    if (words[i][length - 1] != ':') {
      if (strcmp(words[i], text) == 0) return i;
      continue;
    }
    char *end = NULL;
    if (strncmp(words[i], text, length) != 0 || text[length] < '1' || text[length] > '9') continue;
    errno = 0;
    *number = strtoull(text + length, &end, 10);
    if (*end == '\0' && errno == 0) return i;
  }
  return -1;
}

static int read_words(const cli_options *options, tsr_simulate_options *how) {
  static const char *const attentions[] = {"sdpa", "eager", "flash", "chunked:", "efficient", NULL};
  static const char *const checkpoints[] = {"none", "full", "selective", "every:", NULL};
  static const char *const losses[] = {"full", "chunked:", NULL};
  int attention = read_word(options->attention, attentions, &how->attention_chunk);
  int checkpoint = read_word(options->checkpoint, checkpoints, &how->checkpoint_every);
  if (attention < 0)
    return cli_usage_error(
        options->command,
        "option '--attention' takes sdpa, eager, flash, efficient or chunked:N, not '%s'",
        options->attention);
  if (checkpoint < 0)
    return cli_usage_error(options->command,
                           "option '--checkpoint' takes none, full, selective or every:K, not '%s'",
                           options->checkpoint);
  if (read_word(options->loss, losses, &how->loss_chunk) < 0)
    return cli_usage_error(options->command, "option '--loss' takes full or chunked:N, not '%s'",
                           options->loss);
  how->attention = (tsr_simulate_attention)attention;
  how->checkpoint = (tsr_simulate_checkpoint)checkpoint;
  return 0;
}

static int read_options(cli_session *session, tsr_simulate_options *how) {
  const cli_options *options = session->options;
  *how = (tsr_simulate_options){.batch = options->batch,
                                .sequence = options->sequence,
                                .steps = options->steps,
                                .accumulate = options->accumulate,
                                .optimizer = (tsr_simulate_optimizer)options->optimizer,
                                .dtype = (tsr_simulate_dtype)options->dtype,
                                .gelu_fused = options->gelu == 1,
                                .no_kv_cache = options->no_kv_cache,
                                .fresh_process = options->fresh_process,
                                .categories = options->categories};
  if (!options->batch || !options->sequence || !options->steps || !options->accumulate)
    return cli_usage_error(options->command,
                           "--batch, --seq, --steps and --accumulate are at least 1");
  if (options->capacity && !cli_parse_size(options->capacity, &how->capacity_bytes))
    return cli_usage_error(options->command,
                           "option '--capacity' takes a size such as 40GiB, not '%s'",
                           options->capacity);
  if (tsr_allocator_settings_parse(options->settings, &how->settings, &session->error))
    return cli_usage_error(options->command, "option '--set': %s", session->error.message);
  if (options->output && strcmp(options->output, "-") == 0)
    return cli_usage_error(options->command,
                           "standard output has the answer; -o needs a file for the snapshot");
  return read_words(options, how);
}

/* ---- the model ---- */

static bool is_file(const char *operand) {
  size_t length = strlen(operand);
  return strchr(operand, '/') || (length > 5 && strcasecmp(operand + length - 5, ".json") == 0);
}

static int read_stream(cli_session *session, FILE *stream, tsr_model **model) {
  char *text = malloc(LARGEST_MODEL);
  if (!text) return TSR_ERROR_MEMORY;
  size_t size = fread(text, 1, LARGEST_MODEL, stream);
  int status = CLI_INPUT;
  if (ferror(stream))
    cli_say(NULL, "%s: %s", session->path, strerror(errno));
  else if (size == LARGEST_MODEL)
    cli_say(NULL, "%s: too long for a model description", session->path);
  else
    status = tsr_model_read(text, size, model, &session->error);
  free(text);
  return status;
}

static int open_model(cli_session *session, tsr_model **model) {
  const char *operand = session->options->operands[0];
  session->path = operand;
  if (!is_file(operand)) return tsr_model_named(operand, model, &session->error);
  FILE *stream = fopen(operand, "rb");
  if (!stream) {
    cli_say(NULL, "%s: %s", operand, strerror(errno));
    return CLI_INPUT;
  }
  int status = read_stream(session, stream, model);
  fclose(stream);
  return status;
}

/* ---- the answer ---- */

static int write_snapshot(cli_session *session, const tsr_snapshot *snapshot) {
  const char *path = session->options->output;
  if (!path) return 0;
  cli_output output = {.path = path};
  bool is_json = strlen(path) > 5 && strcasecmp(path + strlen(path) - 5, ".json") == 0;
  int status = tsr_snapshot_export(snapshot, is_json ? TSR_EXPORT_JSON : TSR_EXPORT_PICKLE,
                                   cli_output_write, &output, &session->error);
  if ((status == 0 && cli_output_finish(&output) != 0) || output.error_number) {
    cli_say(NULL, "%s: %s", path, strerror(output.error_number));
    status = CLI_FAULT;
  }
  cli_output_abandon(&output);
  return status;
}

/* What a model and options cannot do together is the command line's fault. */
static int run(cli_session *session, const tsr_model *model, const tsr_simulate_options *how,
               tsr_simulation **out) {
  int status = tsr_simulate(model, how, out, &session->error);
  if (status == 0 || status == TSR_ERROR_MEMORY) return status;
  return cli_usage_error(session->options->command, "%s: %s", session->path,
                         session->error.message);
}

int cli_simulate(cli_session *session) {
  tsr_simulate_options how;
  tsr_model *model = NULL;
  tsr_simulation *simulation = NULL;
  int status = read_options(session, &how);
  if (status == 0) status = open_model(session, &model);
  if (status == 0) status = run(session, model, &how, &simulation);
  if (status == 0) status = write_snapshot(session, simulation->snapshot);
  if (status == 0) {
    tsr_report_input heading = {.path = session->path, .snapshot = simulation->snapshot};
    status = tsr_report_simulate(&heading, simulation, how.capacity_bytes, &session->report,
                                 cli_output_write, &session->output, &session->error);
  }
  tsr_simulation_free(simulation);
  tsr_model_free(model);
  return status;
}
