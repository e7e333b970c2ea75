/* export.c - `tessera export FILE`: write the snapshot out again, in another form.
 *
 * For tools that read only one form, for people who want to search and compare text, and to make a
 * file smaller. Whatever the reader had to leave out is said on standard error: what is written is
 * not all of what was read then.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "export.h"
#include "session.h"

/* Warnings about parts of the file that no export can have. */
static const char *const losses[] = {
    "truncated",        "globals-ignored",  "events-malformed",      "segments-malformed",
    "blocks-malformed", "frames-malformed", "annotations-malformed",
};

static bool is_loss(const char *code) {
  for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
    if (strcmp(losses[i], code) == 0) return true;
  return false;
}

/* A loss that is counted once is one of the whole file, said in a sentence of its own. */
static void say_loss(const tsr_warning *warning) {
  if (warning->count == 1)
    cli_say("export", "not all is exported; %s", warning->message);
  else
    cli_say("export", "not exported: %s (%" PRIu64 " of them)", warning->message, warning->count);
}

static void say_losses(const tsr_snapshot *snapshot) {
  size_t count;
  const tsr_warning *warnings = tsr_snapshot_warnings(snapshot, &count);
  for (size_t i = 0; i < count; i++)
    if (is_loss(warnings[i].code)) say_loss(&warnings[i]);
}

static bool ends_in_json(const char *path) {
  size_t length = strlen(path);
  return length > 5 && strcasecmp(path + length - 5, ".json") == 0;
}

static tsr_export_format format_of(const cli_options *options) {
  switch ((cli_format)options->format) {
  case CLI_FORMAT_PICKLE: return TSR_EXPORT_PICKLE;
  case CLI_FORMAT_JSON: return TSR_EXPORT_JSON;
  case CLI_FORMAT_AUTO: break;
  }
  bool is_json = options->json || (options->output && ends_in_json(options->output));
  return is_json ? TSR_EXPORT_JSON : TSR_EXPORT_PICKLE;
}

/* What the shared options mean nothing for, or contradict; 0 when all is well. */
int cli_export_check(const cli_options *options) {
  tsr_export_format format = format_of(options);
  bool to_stdout = !options->output || strcmp(options->output, "-") == 0;
  if (options->json && format != TSR_EXPORT_JSON)
    return cli_usage_error(options->command, "--json and --format pickle contradict each other");
  if (format == TSR_EXPORT_PICKLE && to_stdout && isatty(STDOUT_FILENO))
    return cli_usage_error(options->command,
                           "a pickle is nothing for a terminal; use -o FILE or --format json");
  return 0;
}

int cli_export_write(cli_session *session, const tsr_snapshot *snapshot) {
  return tsr_snapshot_export(snapshot, format_of(session->options), cli_output_write,
                             &session->output, &session->error);
}

int cli_export(cli_session *session) {
  const cli_options *options = session->options;
  cli_input input = {0};
  int status = cli_export_check(options);
  if (status == 0) status = cli_open(session, 0, &input);
  if (status == 0) status = cli_export_write(session, input.snapshot);
  if (status == 0 && !options->quiet) say_losses(input.snapshot);
  cli_close(&input);
  return status;
}
