/* export.c - `tessera export FILE`: write the snapshot in another form, for another program.
 *
 * Whole, as a pickle or JSON, for tools that read only one form, for people who want to search and
 * compare text, and to make a file smaller: whatever the reader had to leave out is said on standard
 * error then. Or an answer in the form of a program that draws: flame graphs, time lines, tables.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "export.h"
#include "session.h"
#include "when.h"

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

/* Names by which --format auto goes; the longest that fits comes first. */
static const struct {
  const char *ending;
  cli_format format;
} endings[] = {
    {".speedscope.json", CLI_FORMAT_SPEEDSCOPE},
    {".perfetto.json", CLI_FORMAT_PERFETTO},
    {".json", CLI_FORMAT_JSON},
    {".folded", CLI_FORMAT_FOLDED},
    {".pb.gz", CLI_FORMAT_PPROF},
    {".pprof", CLI_FORMAT_PPROF},
    {".csv", CLI_FORMAT_CSV},
};

static bool ends_in(const char *path, const char *ending) {
  size_t length = strlen(path), of_ending = strlen(ending);
  return length > of_ending && strcasecmp(path + length - of_ending, ending) == 0;
}

static cli_format format_of(const cli_options *options) {
  if (options->format != CLI_FORMAT_AUTO) return (cli_format)options->format;
  if (options->json) return CLI_FORMAT_JSON;
  for (size_t i = 0; options->output && i < sizeof endings / sizeof *endings; i++)
    if (ends_in(options->output, endings[i].ending)) return endings[i].format;
  return CLI_FORMAT_PICKLE;
}

static bool is_whole(cli_format format) {
  return format == CLI_FORMAT_PICKLE || format == CLI_FORMAT_JSON;
}

/* What the shared options mean nothing for, or contradict; 0 when all is well. */
int cli_export_check(const cli_options *options) {
  cli_format format = format_of(options);
  bool to_stdout = !options->output || strcmp(options->output, "-") == 0;
  bool is_binary = format == CLI_FORMAT_PICKLE || format == CLI_FORMAT_PPROF;
  if (options->json && format != CLI_FORMAT_JSON)
    return cli_usage_error(options->command, "--json and another --format contradict each other");
  if (options->command->run == cli_trim && !is_whole(format))
    return cli_usage_error(options->command, "trim writes a snapshot: a pickle or json");
  if (is_binary && to_stdout && isatty(STDOUT_FILENO))
    return cli_usage_error(options->command,
                           "what is binary is nothing for a terminal; use -o FILE, or another "
                           "--format such as json");
  return 0;
}

int cli_export_write(cli_session *session, const tsr_snapshot *snapshot) {
  tsr_export_format format =
      format_of(session->options) == CLI_FORMAT_JSON ? TSR_EXPORT_JSON : TSR_EXPORT_PICKLE;
  return tsr_snapshot_export(snapshot, format, cli_output_write, &session->output, &session->error);
}

/* ---- the snapshot itself ---- */

static int export_whole(cli_session *session) {
  const cli_options *options = session->options;
  cli_input input = {0};
  if (options->devices.count && !options->devices.all)
    return cli_usage_error(options->command,
                           "an exported snapshot has all devices; --device is for trim");
  if (options->event || options->time || options->events)
    return cli_usage_error(options->command,
                           "an exported snapshot has all events; tessera trim cuts parts out");
  int status = cli_open(session, 0, &input);
  if (status == 0) status = cli_export_write(session, input.snapshot);
  if (status == 0 && !options->quiet) say_losses(input.snapshot);
  cli_close(&input);
  return status;
}

/* ---- flame graphs ---- */

/* The peak, a moment or a range, as the options say. Answers 0 or a usage error. */
static int read_weigh(const cli_options *options, tsr_weigh_options *out) {
  bool is_range = options->events || (options->time && strstr(options->time, ".."));
  *out = (tsr_weigh_options){.what = TSR_WEIGH_PEAK};
  if (!!options->event + !!options->time + !!options->events > 1)
    return cli_usage_error(options->command, "--event, --events and --time exclude one another");
  if (is_range) {
    out->what = TSR_WEIGH_WINDOW;
    return cli_read_window(options, &out->window);
  }
  if (options->event || options->time) out->what = TSR_WEIGH_MOMENT;
  out->where.kind = options->time ? TSR_AT_TIME : TSR_AT_EVENT;
  if (options->event) return cli_read_integer(options, "event", options->event, &out->where.event);
  if (options->time) return cli_read_integer(options, "time", options->time, &out->where.time_us);
  return 0;
}

static int export_weights(cli_session *session, tsr_stacks_format format) {
  cli_input input = {0};
  tsr_weights *weights = NULL;
  tsr_weigh_options how;
  tsr_error *error = &session->error;
  int status = read_weigh(session->options, &how);
  if (status == 0) status = cli_open(session, 0, &input);
  if (status == 0)
    status = tsr_weights_compute(input.snapshot, &how, &session->query, &weights, error);
  if (status == 0)
    status = tsr_report_weights(&input.heading, weights, format, &session->report, cli_output_write,
                                &session->output, error);
  tsr_weights_free(weights);
  cli_close(&input);
  return status;
}

/* ---- time lines and tables ---- */

static int export_lives(cli_session *session, tsr_lives_format format) {
  const cli_options *options = session->options;
  cli_input input = {0};
  if (options->event || options->time || options->events)
    return cli_usage_error(options->command,
                           "this form has all events; tessera trim cuts parts out");
  int status = cli_open(session, 0, &input);
  if (status == 0)
    status = tsr_report_lives(&input.heading, &session->query, format, &session->report,
                              cli_output_write, &session->output, &session->error);
  cli_close(&input);
  return status;
}

int cli_export(cli_session *session) {
  int status = cli_export_check(session->options);
  if (status) return status;
  switch (format_of(session->options)) {
  case CLI_FORMAT_FOLDED: return export_weights(session, TSR_STACKS_FOLDED);
  case CLI_FORMAT_SPEEDSCOPE: return export_weights(session, TSR_STACKS_SPEEDSCOPE);
  case CLI_FORMAT_PPROF: return export_weights(session, TSR_STACKS_PPROF);
  case CLI_FORMAT_CSV: return export_lives(session, TSR_LIVES_CSV);
  case CLI_FORMAT_PERFETTO: return export_lives(session, TSR_LIVES_PERFETTO);
  case CLI_FORMAT_AUTO:
  case CLI_FORMAT_PICKLE:
  case CLI_FORMAT_JSON: break;
  }
  return export_whole(session);
}
