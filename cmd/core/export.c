/* export.c - `tessera export FILE`: write the snapshot in another format, for another program.
 *
 * Whole, as a pickle or JSON, for tools that read only one form, for people who want to search and
 * compare text, and to make a file smaller: whatever the reader had to omit is then reported on
 * standard error. Or an answer in the format of a drawing program: flame graphs, time lines,
 * tables.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <tessera/unstable/allocations.h>
#include <tessera/unstable/formats.h>
#include <unistd.h>

#include "export.h"
#include "session.h"
#include "when.h"

static const tsr_parameter export_parameters[] = {
    {.name = "event",
     .kind = TSR_PARAMETER_INTEGER,
     .argument = "N",
     .help = "The moment after event N of the device's trace, -1 for before the first."},
    {.name = "time",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "TIME",
     .help = "The moment after the last event up to a time, or a range A..B of times. A time is "
             "microseconds since 1970, or as reports print it, '2026-07-12 16:40:22'."},
    {.name = "events",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "A..B",
     .help = "The events from A to B, inclusive; either may be omitted."},
    {.name = "format",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "FORMAT",
     .help = "The output format, as described above; auto (default) follows the name of the "
             "output. For trim, pickle or json.",
     .choices = (const char *const[]){"auto", "pickle", "json", "folded", "speedscope", "pprof",
                                      "perfetto", "csv", NULL}},
};

const cli_command cli_export_row = {
    .about =
        {.name = "export",
         .summary = "write the snapshot in another format, for another program",
         .description =
             "Writes everything in the snapshot: as a pickle that PyTorch's viewer and Python read "
             "like the original (mostly smaller, because repetitions are written once), or as json "
             "with one event or segment per line, to search and compare.\n\nOr writes formats of "
             "other programs. Flame graphs of the memory that is live at the peak, or at the "
             "moment of --event or --time, by stack: folded (flamegraph.pl, and most others), "
             "speedscope, and pprof (go tool pprof). With a range, --events A..B or --time A..B, "
             "each allocation counts with its bytes times its lifetime in the range, in "
             "milliseconds. Time lines and tables: perfetto is trace events in JSON on the trace's "
             "own clock, to open in Perfetto next to a trace of kernels, with counters by category "
             "and the largest allocations as slices; csv has one row per allocation, with its "
             "lifetime.\n\nThe format follows the name given with -o: .json, .folded, "
             ".speedscope.json, .pb.gz, .perfetto.json, .csv, or .pickle (also .pkl, .pt and .bin, "
             "and names without an ending). Binary output is not written to a terminal.",
         .parameters = export_parameters,
         .parameter_count = sizeof export_parameters / sizeof *export_parameters,
         .examples = {{"tessera export -o snapshot.json snapshot.pickle", "the snapshot as JSON"},
                      {"tessera export --format folded snapshot.pickle | flamegraph.pl > peak.svg",
                       "a flame graph of the peak"},
                      {"tessera export --events 3000..4000 -o step.pb.gz snapshot.pickle",
                       "bytes x time over a range, for pprof"}}},
    .operands = "FILE",
    .operand_min = 1,
    .operand_max = 1,
    .reads_files = true,
    .lacks = "top verbose",
    .run = cli_export,
};

/* In the order of --format's words. */
typedef enum cli_format {
  CLI_FORMAT_AUTO,
  CLI_FORMAT_PICKLE,
  CLI_FORMAT_JSON,
  CLI_FORMAT_FOLDED,
  CLI_FORMAT_SPEEDSCOPE,
  CLI_FORMAT_PPROF,
  CLI_FORMAT_PERFETTO,
  CLI_FORMAT_CSV
} cli_format;

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

/* The warnings before this line say what. */
static void say_losses(const tsr_snapshot *snapshot) {
  size_t count;
  const tsr_warning *warnings = tsr_snapshot_warnings(snapshot, &count);
  for (size_t i = 0; i < count; i++)
    if (is_loss(warnings[i].code)) {
      cli_say("export", "the export is incomplete; it lacks what could not be read");
      return;
    }
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
    {".pickle", CLI_FORMAT_PICKLE},
    {".pkl", CLI_FORMAT_PICKLE},
    {".pt", CLI_FORMAT_PICKLE},
    {".bin", CLI_FORMAT_PICKLE},
};

static bool ends_in(const char *path, const char *ending) {
  size_t length = strlen(path), of_ending = strlen(ending);
  return length > of_ending && strcasecmp(path + length - of_ending, ending) == 0;
}

static cli_format format_of(const cli_options *options) {
  int format = tsr_params_choice(options->own, "format");
  if (format > CLI_FORMAT_AUTO) return (cli_format)format;
  if (options->json) return CLI_FORMAT_JSON;
  for (size_t i = 0; options->output && i < sizeof endings / sizeof *endings; i++)
    if (ends_in(options->output, endings[i].ending)) return endings[i].format;
  return CLI_FORMAT_PICKLE;
}

/* The ending of a name that no form has, with its dot; NULL if there is none: "out", "dir.d/out",
 * ".hidden" and /dev/stdout are fine. Writing a pickle under the name of a picture helps nobody. */
static const char *unknown_ending(const cli_options *options) {
  if (!options->output || tsr_params_choice(options->own, "format") > CLI_FORMAT_AUTO ||
      options->json)
    return NULL;
  const char *slash = strrchr(options->output, '/');
  const char *name = slash ? slash + 1 : options->output;
  const char *dot = *name ? strrchr(name + 1, '.') : NULL;
  for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
    if (ends_in(name, endings[i].ending)) return NULL;
  return dot && dot[1] ? dot : NULL;
}

static bool is_whole(cli_format format) {
  return format == CLI_FORMAT_PICKLE || format == CLI_FORMAT_JSON;
}

/* What the shared options mean nothing for, or contradict; 0 when all is well. */
int cli_export_check(const cli_options *options) {
  cli_format format = format_of(options);
  bool to_stdout = !options->output || strcmp(options->output, "-") == 0;
  bool is_binary = format == CLI_FORMAT_PICKLE || format == CLI_FORMAT_PPROF;
  const char *unknown = unknown_ending(options);
  if (unknown)
    return cli_usage_error(options->command,
                           "no format of export ends in '%s'; use .pickle, .json, .folded, "
                           ".speedscope.json, .pb.gz, .perfetto.json or .csv, or choose one with "
                           "--format",
                           unknown);
  if (options->json && format != CLI_FORMAT_JSON)
    return cli_usage_error(options->command, "--json contradicts --format");
  if (options->command->run == cli_trim && !is_whole(format))
    return cli_usage_error(options->command, "trim writes a snapshot, as pickle or json");
  if (is_binary && to_stdout && isatty(STDOUT_FILENO))
    return cli_usage_error(
        options->command,
        "a terminal cannot show binary output; use -o FILE, or another --format such as json");
  return 0;
}

int cli_export_write(cli_session *session, const tsr_snapshot *snapshot) {
  tsr_export_format format =
      format_of(session->options) == CLI_FORMAT_JSON ? TSR_EXPORT_JSON : TSR_EXPORT_PICKLE;
  return tsr_snapshot_export(snapshot, format, cli_output_write, &session->output, &session->error);
}

static bool has_moment(const cli_options *options) {
  return tsr_params_has(options->own, "event") || tsr_params_has(options->own, "time") ||
         tsr_params_has(options->own, "events");
}

/* ---- the snapshot itself ---- */

static int export_whole(cli_session *session) {
  const cli_options *options = session->options;
  cli_input input = {0};
  if (options->device_count)
    return cli_usage_error(options->command, "export writes all devices; use trim with --device");
  if (has_moment(options))
    return cli_usage_error(options->command, "export writes all events; use trim for a part");
  int status = cli_open(session, 0, &input);
  if (status == 0) status = cli_export_write(session, input.snapshot);
  if (status == 0) cli_warn_of_file(session, &input);
  if (status == 0 && !options->quiet) say_losses(input.snapshot);
  cli_close(&input);
  return status;
}

/* ---- flame graphs ---- */

/* The peak, a moment or a range, from the options. Returns 0 or a usage error. */
static int read_weigh(const cli_options *options, tsr_weigh_options *out) {
  const tsr_params *own = options->own;
  const char *time = tsr_params_text(own, "time"), *events = tsr_params_text(own, "events");
  bool has_event = tsr_params_has(own, "event");
  bool is_range = events || (time && strstr(time, ".."));
  *out = (tsr_weigh_options){.what = TSR_WEIGH_PEAK};
  if (has_event + !!time + !!events > 1)
    return cli_usage_error(options->command, "--event, --events and --time are mutually exclusive");
  if (is_range) {
    out->what = TSR_WEIGH_WINDOW;
    return cli_read_window(options, &out->window);
  }
  if (has_event || time) out->what = TSR_WEIGH_MOMENT;
  out->where.kind = time ? TSR_AT_TIME : TSR_AT_EVENT;
  if (has_event) out->where.event = tsr_params_integer(own, "event");
  if (!time || tsr_time_parse(time, &out->where.time_us)) return 0;
  return cli_usage_error(options->command,
                         "option '--time' takes microseconds since 1970, a time as reports print "
                         "it, or a range A..B of them, not '%s'",
                         time);
}

static int export_weights(cli_session *session, tsr_stacks_format format) {
  cli_input input = {0};
  tsr_weights *weights = NULL;
  tsr_weigh_options how;
  tsr_error *error = &session->error;
  int status = read_weigh(session->options, &how);
  if (status == 0) status = cli_open(session, 0, &input);
  if (status == 0)
    status = tsr_weights_compute(input.study, &how, &session->query, &weights, error);
  if (status == 0)
    status = tsr_report_weights(&input.heading, weights, format, &session->report, cli_output_write,
                                &session->output, error);
  if (status == 0) cli_warn_of_file(session, &input);
  tsr_weights_free(weights);
  cli_close(&input);
  return status;
}

/* ---- time lines and tables ---- */

static int export_lives(cli_session *session, tsr_lives_format format) {
  const cli_options *options = session->options;
  cli_input input = {0};
  tsr_lives *lives = NULL;
  if (has_moment(options))
    return cli_usage_error(options->command,
                           "this format contains all events; use trim for a part");
  int status = cli_open(session, 0, &input);
  if (status == 0)
    status = tsr_lives_compute(input.study, &session->query, &lives, &session->error);
  if (status == 0)
    status = tsr_report_lives(&input.heading, lives, format, &session->report, cli_output_write,
                              &session->output, &session->error);
  if (status == 0) cli_warn_of_file(session, &input);
  tsr_lives_free(lives);
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
