/* export.c - `tessera export FILE`: write the snapshot in another format, for another program.
 *
 * Whole, as a pickle or JSON, for tools that read only one form, for people who want to search and
 * compare text, and to make a file smaller: whatever the reader had to omit is then reported on
 * standard error. Or an answer in the format of a drawing program: flame graphs, time lines,
 * tables.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/formats.h>
#include <unistd.h>

#include "endings.h"
#include "export.h"
#include "guard.h"
#include "session.h"
#include "sql/save.h"
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
    CLI_EVENTS_PARAMETER,
    CLI_FORMAT_PARAMETER(tsr_format_words),
};

const cli_command cli_export_row = {
    .about =
        {.name = "export",
         .summary = "write the snapshot in another format, for another program",
         .situation = TSR_SITUATION_PROGRAMS,
         .description =
             "Writes everything in the snapshot: as a pickle that PyTorch's viewer and Python read "
             "like the original (mostly smaller, because repetitions are written once), or as json "
             "with one event or segment per line, to search and compare.\n\n"
             "It also writes formats of other programs. Flame graphs of the memory that is live at "
             "the peak, or at the moment of --event or --time, by stack: folded (flamegraph.pl, "
             "and most others), speedscope, and pprof (go tool pprof). With a range, --events A..B "
             "or --time A..B, each allocation counts with its bytes times its lifetime in the "
             "range, in milliseconds. Time lines and tables: perfetto is trace events in JSON on "
             "the trace's own clock, to open in Perfetto next to a trace of kernels, with "
             "counters, phases and annotations, and the largest allocations of each category as "
             "slices; csv has one row per allocation, with its lifetime. arrow is the table of "
             "allocations of 'tessera sql' as an Arrow IPC file, for pandas, polars and others, "
             "and parquet "
             "the same with DuckDB, where it is installed; "
             "sqlite is a database with all of its tables.\n\n"
             "Stacks show the program's own frames and the operation that requested the memory, as "
             "the page does; with --full-stacks every frame, also of the allocator and the "
             "interpreter (csv: a column with all frames). The names that the program gave its "
             "memory are a column in csv, an argument in perfetto, a label in pprof, and the "
             "innermost frame of other flame graphs.\n\n"
             "The format follows the name given with -o: .json, .folded, .speedscope.json, .pb.gz, "
             ".perfetto.json, .csv, .arrow, .parquet, .sqlite, or .pickle (also .pkl, .pt and "
             ".bin, and "
             "names without an "
             "ending). Binary output is not written to a terminal.",
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

/* The warnings printed before name what is missing. */
static void say_losses(const tsr_snapshot *snapshot) {
  size_t count;
  const tsr_warning *warnings = tsr_snapshot_warnings(snapshot, &count);
  for (size_t i = 0; i < count; i++)
    if (is_loss(warnings[i].code)) {
      cli_say("export", "the export is incomplete; it lacks what could not be read");
      return;
    }
}

/* Whether a command writes a format: export writes all, other commands only snapshots. */
static bool is_written(const cli_options *options, const tsr_format *format) {
  return options->command->run == cli_export || format->content == TSR_FORMAT_SNAPSHOT;
}

static const tsr_format *refuse_name(const cli_options *options) {
  cli_ending endings[16];
  size_t count = 0;
  const tsr_format *format;
  char what[80];
  for (size_t i = 0; (format = tsr_format_at(i)) != NULL; i++)
    if (format->endings[0] && is_written(options, format) &&
        count < sizeof endings / sizeof *endings)
      endings[count++] = (cli_ending){format->endings[0], format->form};
  bool is_export = options->command->run == cli_export;
  snprintf(what, sizeof what, "%s%s", is_export ? "" : options->command->about.name,
           is_export ? "no format has this name" : " writes a snapshot");
  cli_ending_refuse(options, what, endings, count, options->output);
  return NULL;
}

const tsr_format *cli_format_for_name(const cli_options *options) {
  const char *ending;
  const tsr_format *format = tsr_format_for(options->output ? options->output : "", &ending);
  return format && is_written(options, format) ? format : refuse_name(options);
}

/* The format that the options ask for; NULL after explaining what is wrong: writing a pickle under the name of a
 * picture helps nobody. */
static const tsr_format *format_of(const cli_options *options) {
  const tsr_parameter *row = cli_option_named(options->command, "format", strlen("format"));
  int word = tsr_params_choice(options->own, "format");
  bool is_auto = word < 0 || strcmp(row->choices[word], "auto") == 0;
  if (!is_auto) return tsr_format_named(row->choices[word]);
  return options->json ? tsr_format_named("json") : cli_format_for_name(options);
}

/* What the shared options mean nothing for, or contradict; 0 when all is well. */
int cli_export_check(const cli_options *options) {
  const tsr_format *format = format_of(options);
  bool to_stdout = !options->output || strcmp(options->output, "-") == 0;
  if (!format) return CLI_USAGE;
  if (options->json && format != tsr_format_named("json"))
    return cli_usage_error(options->command, "--json contradicts --format");
  if (format->is_binary && to_stdout && isatty(STDOUT_FILENO))
    return cli_usage_error(
        options->command,
        "a terminal cannot show binary output; use -o FILE, or another --format such as json");
  return 0;
}

/* From these sizes on, a warning is printed before the output is written. */
enum { LARGE_MIB = 128, LARGE_TIMES = 10 };

uint64_t cli_export_warn_of_size(const cli_session *session, const tsr_snapshot *snapshot,
                                 const tsr_format *format) {
  char size[32];
  bool is_snapshot = format->content == TSR_FORMAT_SNAPSHOT;
  uint64_t bytes = tsr_format_estimate(format, snapshot, session->options->full_stacks);
  uint64_t input = tsr_snapshot_input_bytes(snapshot);
  bool is_large = bytes >> 20 >= LARGE_MIB && (!input || bytes / input >= LARGE_TIMES);
  if (!is_large || session->options->quiet) return bytes;
  cli_say(session->options->command->about.name,
          "the output will be about %s, because %s repeats the stack of every %s; %s",
          tsr_size_text(bytes, size, sizeof size), format->name,
          is_snapshot ? "event" : "allocation",
          is_snapshot ? "a .pickle is far smaller, and 'tessera trim --events A..B' writes "
                        "a part"
                      : "without --full-stacks it is much smaller");
  return bytes;
}

/* Before a large output: warn, and show how far it is. */
static void expect_output(cli_session *session, const tsr_snapshot *snapshot,
                          const tsr_format *format, cli_output *output, cli_progress *progress) {
  const char *path = output->path;
  output->expected_bytes = cli_export_warn_of_size(session, snapshot, format);
  *progress = cli_progress_start("writing", path ? path : "standard output",
                                 session->options->quiet || !path);
  output->progress = progress;
}

int cli_export_snapshot(cli_session *session, const tsr_snapshot *snapshot,
                        const tsr_format *format, cli_output *output) {
  cli_progress progress;
  expect_output(session, snapshot, format, output, &progress);
  int status = tsr_snapshot_export(snapshot, (tsr_export_format)format->form, cli_output_write,
                                   output, &session->error);
  output->progress = NULL;
  cli_progress_end(&progress);
  return status;
}

int cli_export_write(cli_session *session, const tsr_snapshot *snapshot) {
  return cli_export_snapshot(session, snapshot, format_of(session->options), &session->output);
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

/* ---- formats of other programs ---- */

static int write_format(cli_session *session, const tsr_format *format, const cli_input *input,
                        const tsr_format_options *how) {
  if (format->content != TSR_FORMAT_TABLES)
    return tsr_format_write(format, input->study, input->heading.path, how, cli_output_write,
                            &session->output, &session->error);
  if (format->form == TSR_TABLES_SQLITE) return sql_save_database(session, input->study);
  return sql_save_allocations(session, input->study, format->form == TSR_TABLES_PARQUET);
}

static int export_other(cli_session *session, const tsr_format *format) {
  const cli_options *options = session->options;
  tsr_format_options how = {.query = session->query, .report = session->report};
  cli_input input = {0};
  int status = 0;
  if (format->content == TSR_FORMAT_STACKS) status = read_weigh(options, &how.weigh);
  if (format->content != TSR_FORMAT_STACKS && has_moment(options))
    status =
        cli_usage_error(options->command, "this format contains all events; use trim for a part");
  if (status == 0) status = cli_open(session, 0, &input);
  if (status == 0) {
    cli_progress progress;
    expect_output(session, input.snapshot, format, &session->output, &progress);
    status = write_format(session, format, &input, &how);
    session->output.progress = NULL;
    cli_progress_end(&progress);
  }
  if (status == 0) cli_warn_of_file(session, &input);
  cli_close(&input);
  return status;
}

int cli_export(cli_session *session) {
  int status = cli_export_check(session->options);
  if (status) return status;
  const tsr_format *format = format_of(session->options);
  return format->content == TSR_FORMAT_SNAPSHOT ? export_whole(session)
                                                : export_other(session, format);
}

/* ---- ranks ---- */

/* The path of a rank, with `ending` instead of ".pickle" unless it is NULL. */
static char *rank_path(const char *path, uint64_t rank, const char *ending) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const char *dot = ending ? strstr(name, ".pickle") : NULL;
  size_t folder = (size_t)(name - path), stem = dot ? (size_t)(dot - name) : strlen(name);
  size_t room = strlen(path) + 64;
  char *out = malloc(room);
  if (out)
    (void)snprintf(out, room, "%.*srank%" PRIu64 "_%.*s%s", (int)folder, path, rank, (int)stem,
                   name, ending ? ending : "");
  return out;
}

char *cli_rank_path(const char *path, uint64_t rank) {
  return rank_path(path, rank, NULL);
}

int cli_rank_keep_inputs(const cli_session *session, const char *path, uint64_t ranks) {
  int status = 0;
  for (uint64_t rank = 0; status == 0 && rank < ranks; rank++) {
    char *names[] = {rank_path(path, rank, NULL), rank_path(path, rank, ".json")};
    for (size_t i = 0; status == 0 && i < 2; i++)
      status = names[i] ? cli_keep_inputs_from(session->options, names[i]) : TSR_ERROR_MEMORY;
    free(names[0]);
    free(names[1]);
  }
  return status;
}

int cli_rank_sidecar(cli_session *session, const char *path, uint64_t rank, uint64_t ranks,
                     const char *reason) {
  char text[1024];
  if (!strstr(path, ".pickle")) return 0;
  char *name = rank_path(path, rank, ".json");
  cli_output output;
  int status = name ? cli_start_aside(session, name, &output) : TSR_ERROR_MEMORY;
  if (status) {
    free(name);
    return status;
  }
  int length =
      snprintf(text, sizeof text,
               "{\"schema\": \"tessera/capture/1\", \"reason\": \"%s\", "
               "\"ranks\": {\"rank\": %" PRIu64 ", \"world_size\": %" PRIu64
               ", \"source\": \"%s\"}, \"mesh\": {\"names\": [\"dp\"], "
               "\"sizes\": [%" PRIu64 "], \"coordinates\": [%" PRIu64 "], \"source\": \"%s\"}}\n",
               reason, rank, ranks, reason, ranks, rank, reason);
  status = cli_output_write(&output, text, (size_t)length) ? TSR_ERROR_WRITE : 0;
  status = cli_finish_aside(session, &output, status);
  free(name);
  return status;
}
