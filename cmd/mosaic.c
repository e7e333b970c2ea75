/* mosaic.c - what drop-ins for Mosaic's commands are called and told, and what they have in common.
 *
 * The rows are read by the same parser as those of commands.c. Names and choices are Mosaic's, down
 * to --print_stack, which is no flag there but takes a truth value, and to options that do nothing.
 */
#define _POSIX_C_SOURCE 200809L

#include "mosaic.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NOTE                                                                                  \
  "\n\nThe answer on standard output is Mosaic's own, and so are the INFO lines on standard " \
  "error. Where Mosaic fails, tessera answers; where its answer hides something, a WARNING "  \
  "line tells. Options may be spelled with '-' or '_'."

const cli_command cli_drop_ins[] = {
    {.name = "mosaic_get_json_snapshot",
     .summary = "write a snapshot as indented JSON, in place of Mosaic's command",
     .description = "Writes the whole snapshot as JSON, indented by four spaces, byte for byte as "
                    "Python's json.dump writes what pickle.load gives, but without executing "
                    "anything that the file asks for." NOTE,
     .operands = "",
     .is_drop_in = true,
     .examples = {{"mosaic_get_json_snapshot --snapshot snapshot.pickle --output_file out.json",
                   "the snapshot as JSON"}},
     .run = cli_mosaic_json},
    {.name = "mosaic_get_memory_profile",
     .summary = "what kind of memory is it at the peak, in place of Mosaic's command",
     .description = "Prints what the memory at the peak of the trace, counting from zero at its "
                    "start, is made of: by category, by annotation, by compiled region, or by "
                    "patterns of your own. It also writes a page with a chart of all of the "
                    "trace; the page is tessera's own." NOTE,
     .operands = "",
     .is_drop_in = true,
     .examples = {{"mosaic_get_memory_profile --snapshot snapshot.pickle --out-path profile.html "
                   "--profile categories --preserve-allocation-order",
                   "by category, and a page"},
                  {"mosaic_get_memory_profile --snapshot snapshot.pickle --profile custom "
                   "--custom-profile '{\"nccl\": \"nccl\"}'",
                   "by a pattern"}},
     .run = cli_mosaic_profile},
    {.name = "mosaic_get_memory_usage",
     .summary = "what is live at an allocation, in place of Mosaic's command",
     .description = "Replays the trace up to one event, counting from zero at its start, and "
                    "prints the stacks of what is live then, largest first." NOTE,
     .operands = "",
     .is_drop_in = true,
     .examples = {{"mosaic_get_memory_usage --snapshot snapshot.pickle --allocation cd1000000_1 "
                   "--action alloc",
                   "when that block was taken for the second time"}},
     .run = cli_mosaic_usage},
    {.name = "mosaic_get_memory_usage_by_annotation_stage",
     .summary = "memory at each annotation, in place of Mosaic's command",
     .description = "Prints how much memory the trace had taken, counting from zero at its start, "
                    "where each annotated range starts and ends." NOTE,
     .operands = "",
     .is_drop_in = true,
     .examples = {{"mosaic_get_memory_usage_by_annotation_stage --snapshot snapshot.pickle",
                   "all annotations"},
                  {"mosaic_get_memory_usage_by_annotation_stage --snapshot snapshot.pickle "
                   "--annotation forward --annotation backward",
                   "those whose names contain one of the two"}},
     .run = cli_mosaic_stages},
    {.name = "mosaic_get_memory_usage_diff",
     .summary = "stacks at one peak and not at the other, in place of Mosaic's command",
     .description = "Prints the stacks that hold memory at the peak of the second snapshot and "
                    "hold none at that of the first, largest first. A stack that grew is not "
                    "among them; 'tessera diff' shows those too." NOTE,
     .operands = "",
     .is_drop_in = true,
     .examples = {{"mosaic_get_memory_usage_diff --snapshot_base old.pickle --snapshot_diff "
                   "new.pickle",
                   "what is new in new.pickle"}},
     .run = cli_mosaic_diff},
    {.name = "mosaic_get_memory_usage_peak",
     .summary = "what holds the memory at the peak, in place of Mosaic's command",
     .description = "Finds the first event at which the memory that the trace takes, counting from "
                    "zero at its start, is largest, and prints the stacks of what is live then, "
                    "largest first." NOTE,
     .operands = "",
     .is_drop_in = true,
     .examples = {{"mosaic_get_memory_usage_peak --snapshot snapshot.pickle",
                   "the peak of the whole trace"},
                  {"mosaic_get_memory_usage_peak --snapshot snapshot.pickle --start_time "
                   "1783874422376221 --end_time 1783874422569490",
                   "between two times"}},
     .run = cli_mosaic_peak},
    {.name = "mosaic_mcp",
     .summary = "let a language model ask, in place of Mosaic's server",
     .description =
         "Serves the Model Context Protocol on standard input and standard output with the tools "
         "of Mosaic's server, under their names and in their form, and with tessera's own beside "
         "them: it is 'tessera mcp'.",
     .operands = "",
     .is_drop_in = true,
     .examples = {{"mosaic_mcp", "what to give to a client as the command of a server"}},
     .run = cli_mcp},
    {.name = "mosaic_per_file_memory_snapshot_analysis",
     .summary = "what the lines of a source file hold, in place of Mosaic's command",
     .description =
         "analyze sorts the stacks of the peak by the lines of one source file that they lead "
         "through, and prints what each line, with the lines it was called from, holds; then the "
         "stacks that do not touch the file. compare puts two snapshots side by side. 'tessera "
         "source' tells more.\n\n"
         "The source is either read from --file-path, or named by --file-name and read from "
         "--file-content." NOTE,
     .operands = "analyze|compare",
     .operand_min = 1,
     .operand_max = 1,
     .is_drop_in = true,
     .examples = {{"mosaic_per_file_memory_snapshot_analysis analyze --snapshot snapshot.pickle "
                   "--file-path model.py",
                   "what the lines of model.py hold"},
                  {"mosaic_per_file_memory_snapshot_analysis compare --base-snapshot old.pickle "
                   "--diff-snapshot new.pickle --file-name model.py --file-content /tmp/model.py",
                   "in two snapshots, from a copy of the source"}},
     .run = cli_mosaic_file},
    {.name = NULL},
};

#define FIELD(name) .field = offsetof(cli_options, name)

const cli_option cli_drop_in_rows[] = {
    {.name = "snapshot",
     .kind = CLI_FILE,
     .argument = "FILE",
     .help = "The snapshot to read: a pickle, JSON, or either compressed.",
     .takers = "mosaic_get_json_snapshot mosaic_get_memory_profile mosaic_get_memory_usage "
               "mosaic_get_memory_usage_peak mosaic_get_memory_usage_by_annotation_stage "
               "mosaic_per_file_memory_snapshot_analysis",
     FIELD(mosaic.snapshot)},
    {.name = "out-path",
     .kind = CLI_FILE,
     .argument = "FILE",
     .help = "Write a page with a chart to FILE (default: snapshot_graph.html, in the current "
             "folder); '' for none.",
     .takers = "mosaic_get_memory_profile",
     FIELD(mosaic.out_path)},
    {.name = "profile",
     .kind = CLI_CHOICE,
     .argument = "KIND",
     .help = "What to group the memory by: categories (default), annotations, compile_context or "
             "custom.",
     .takers = "mosaic_get_memory_profile",
     .choices = {"categories", "annotations", "compile_context", "custom", "compile-context"},
     FIELD(mosaic.profile)},
    {.name = "custom-profile",
     .kind = CLI_TEXT,
     .argument = "RULES",
     .help = "With --profile custom: names and patterns as JSON or YAML, or a file of them. A "
             "pattern that is wrong is passed over, with a warning.",
     .takers = "mosaic_get_memory_profile",
     FIELD(mosaic.custom_profile)},
    {.name = "preserve-allocation-order",
     .kind = CLI_FLAG,
     .help = "Draw memory in the order in which it was taken, not sorted by group.",
     .takers = "mosaic_get_memory_profile",
     FIELD(mosaic.keeps_order)},
    {.name = "plotter-sampling-rate",
     .kind = CLI_INTEGER,
     .argument = "N",
     .help = "Taken; the page leaves nothing out, so there is nothing to sample.",
     .takers = "mosaic_get_memory_profile",
     FIELD(mosaic.sampling_rate)},
    {.name = "plotter-start-idx",
     .kind = CLI_INTEGER,
     .argument = "N",
     .help =
         "Where the page begins to show the trace; an entry is a microsecond in which something "
         "happens, and a negative number counts from the end.",
     .takers = "mosaic_get_memory_profile",
     FIELD(mosaic.start_index)},
    {.name = "plotter-end-idx",
     .kind = CLI_INTEGER,
     .argument = "N",
     .help = "Where it ends, before this entry. Zooming out shows the rest.",
     .takers = "mosaic_get_memory_profile",
     FIELD(mosaic.end_index)},
    {.name = "snapshot-base",
     .kind = CLI_FILE,
     .argument = "FILE",
     .help = "The snapshot to compare with.",
     .takers = "mosaic_get_memory_usage_diff",
     FIELD(mosaic.snapshot_base)},
    {.name = "snapshot-diff",
     .kind = CLI_FILE,
     .argument = "FILE",
     .help = "The snapshot whose stacks are printed.",
     .takers = "mosaic_get_memory_usage_diff",
     FIELD(mosaic.snapshot_diff)},
    {.name = "trace",
     .kind = CLI_FILE,
     .argument = "FILE",
     .help = "Ignored, as Mosaic does.",
     .takers = "mosaic_get_memory_usage mosaic_get_memory_usage_peak",
     FIELD(mosaic.trace)},
    {.name = "allocation",
     .kind = CLI_TEXT,
     .argument = "ADDRESS_VERSION",
     .help = "The event to stop at: an address in hexadecimal, an underscore, and how often it was "
             "freed before.",
     .takers = "mosaic_get_memory_usage mosaic_get_memory_usage_peak "
               "mosaic_per_file_memory_snapshot_analysis",
     FIELD(mosaic.allocation)},
    {.name = "action",
     .kind = CLI_CHOICE,
     .argument = "ACTION",
     .help = "What happens to it there: alloc, segment_alloc, segment_map, free_completed, "
             "segment_free, segment_unmap, or free, which means free_completed.",
     .takers = "mosaic_get_memory_usage mosaic_get_memory_usage_peak "
               "mosaic_per_file_memory_snapshot_analysis",
     .choices = {"alloc", "segment_alloc", "segment_map", "free_completed", "segment_free",
                 "segment_unmap", "free"},
     FIELD(mosaic.action)},
    {.name = "start-time",
     .kind = CLI_INTEGER,
     .argument = "US",
     .help = "Look for the peak from this time on, in microseconds since 1970. What happened "
             "before counts, but is not the peak.",
     .takers = "mosaic_get_memory_usage_peak",
     FIELD(mosaic.start_time)},
    {.name = "end-time",
     .kind = CLI_INTEGER,
     .argument = "US",
     .help = "Look for it up to this time.",
     .takers = "mosaic_get_memory_usage_peak",
     FIELD(mosaic.end_time)},
    {.name = "print-stack",
     .kind = CLI_TRUTH,
     .argument = "TRUTH",
     .help = "Whether to print the stacks: true (default) or false.",
     .takers = "mosaic_get_memory_usage mosaic_get_memory_usage_peak",
     FIELD(mosaic.print_stack)},
    {.name = "annotation",
     .kind = CLI_TEXTS,
     .argument = "TEXT",
     .help = "Only annotations whose name contains TEXT. May be repeated: one of the texts is "
             "enough (default: all annotations).",
     .takers = "mosaic_get_memory_usage_by_annotation_stage",
     FIELD(mosaic.annotations)},
    {.name = "output-file",
     .kind = CLI_FILE,
     .argument = "FILE",
     .help = "The file to write (default: /tmp/snapshot.json). It changes only once the JSON is "
             "complete; '-' is standard output.",
     .takers = "mosaic_get_json_snapshot",
     FIELD(mosaic.output_file)},
    {.name = "paste",
     .kind = CLI_FLAG,
     .help = "Taken, but there is no paste service outside Meta: the answer is printed.",
     .takers = "mosaic_get_memory_usage mosaic_get_memory_usage_peak mosaic_get_memory_usage_diff "
               "mosaic_get_memory_usage_by_annotation_stage "
               "mosaic_per_file_memory_snapshot_analysis",
     FIELD(mosaic.paste)},
    {.name = "upload-result",
     .kind = CLI_FLAG,
     .help = "Taken, but there is nowhere to upload to outside Meta: the answer stays here.",
     .takers = "mosaic_get_json_snapshot mosaic_get_memory_usage_peak",
     FIELD(mosaic.upload)},
    {.name = "base-snapshot",
     .kind = CLI_FILE,
     .argument = "FILE",
     .help = "With compare: the first snapshot.",
     .takers = "mosaic_per_file_memory_snapshot_analysis",
     FIELD(mosaic.snapshot_base)},
    {.name = "diff-snapshot",
     .kind = CLI_FILE,
     .argument = "FILE",
     .help = "With compare: the second snapshot. Differences are the first less the second.",
     .takers = "mosaic_per_file_memory_snapshot_analysis",
     FIELD(mosaic.snapshot_diff)},
    {.name = "file-path",
     .kind = CLI_FILE,
     .argument = "FILE",
     .help = "The source file, of the version that ran.",
     .takers = "mosaic_per_file_memory_snapshot_analysis",
     FIELD(mosaic.file_path)},
    {.name = "file-name",
     .kind = CLI_TEXT,
     .argument = "NAME",
     .help = "The source file's name in the snapshot, without folders; with --file-content.",
     .takers = "mosaic_per_file_memory_snapshot_analysis",
     FIELD(mosaic.file_name)},
    {.name = "file-content",
     .kind = CLI_FILE,
     .argument = "FILE",
     .help = "A file with the source's text.",
     .takers = "mosaic_per_file_memory_snapshot_analysis",
     FIELD(mosaic.file_content)},
    {.name = "augmented-view",
     .kind = CLI_FLAG,
     .help = "With analyze: print the source with bytes beside each line, behind the tables.",
     .takers = "mosaic_per_file_memory_snapshot_analysis",
     FIELD(mosaic.augmented_view)},
    {.name = "verbose",
     .kind = CLI_FLAG,
     .help = "With analyze: print five tables, by lines, functions, classes and stacks.",
     .takers = "mosaic_per_file_memory_snapshot_analysis",
     FIELD(mosaic.all_tables)},
    {.name = "help",
     .letter = 'h',
     .kind = CLI_FLAG,
     .help = "Explain the command and end.",
     .takers = CLI_EVERY_COMMAND,
     FIELD(help)},
    {.name = "version",
     .kind = CLI_FLAG,
     .help = "Print tessera's version and end.",
     .takers = CLI_EVERY_COMMAND,
     FIELD(version)},
    {.name = NULL},
};

/* ---- the log ---- */

static void log_line(const char *level, const char *format, va_list args) {
  char text[CLI_MESSAGE_BYTES];
  cli_format_line(text, format, args);
  fprintf(stderr, "%s:root:%s\n", level, text);
}

#define LOG_FUNCTION(name, level)      \
  void name(const char *format, ...) { \
    va_list args;                      \
    va_start(args, format);            \
    log_line(level, format, args);     \
    va_end(args);                      \
  }

LOG_FUNCTION(cli_mosaic_info, "INFO")
LOG_FUNCTION(cli_mosaic_warn, "WARNING")
LOG_FUNCTION(cli_mosaic_error, "ERROR")

int cli_mosaic_log(void *context, const char *data, size_t size_bytes) {
  (void)context;
  return fwrite(data, 1, size_bytes, stderr) == size_bytes ? 0 : -1;
}

/* ---- what several drop-ins do ---- */

/* What the reader noticed about the file, such as that it is cut short. */
static void say_warnings(const tsr_snapshot *snapshot) {
  size_t count;
  const tsr_warning *warnings = tsr_snapshot_warnings(snapshot, &count);
  for (size_t i = 0; i < count; i++)
    cli_mosaic_warn("%s (%" PRIu64 ")", warnings[i].message, warnings[i].count);
}

int cli_mosaic_open(cli_session *session, const char *option, const char *path, cli_input *input) {
  struct stat file;
  if (!path) return cli_usage_error(session->options->command, "missing --%s FILE", option);
  cli_mosaic_info("Loading snapshot %s using io read", path);
  if (stat(path, &file) == 0)
    cli_mosaic_info("Loading snapshot %s, size %.2fMB ...", path, (double)file.st_size / (1 << 20));
  int status = cli_open_path(session, path, input);
  if (status) return status;
  cli_mosaic_info("Snapshot loaded successfully.");
  say_warnings(input->snapshot);
  return 0;
}

/* The choices of --action, in their order. */
static const tsr_action actions[] = {TSR_ACTION_ALLOC,         TSR_ACTION_SEGMENT_ALLOC,
                                     TSR_ACTION_SEGMENT_MAP,   TSR_ACTION_FREE_COMPLETED,
                                     TSR_ACTION_SEGMENT_FREE,  TSR_ACTION_SEGMENT_UNMAP,
                                     TSR_ACTION_FREE_COMPLETED};

int cli_mosaic_moment(const cli_session *session, tsr_mosaic_moment *moment) {
  const cli_mosaic_options *options = &session->options->mosaic;
  const char *text = options->allocation;
  size_t digits = strspn(text, "0123456789abcdefABCDEF");
  const char *version = text + digits + 1;
  bool is_named = digits > 0 && digits <= 16 && text[digits] == '_' && *version &&
                  version[strspn(version, "0123456789")] == '\0';
  if (!is_named)
    return cli_usage_error(
        session->options->command,
        "option '--allocation' takes ADDRESS_VERSION, such as cd1000000_1, not '%s'", text);
  size_t action = options->action < 0 ? 0 : (size_t)options->action;
  if (action + 1 == sizeof actions / sizeof *actions)
    cli_mosaic_info("Overloading action 'free' to 'free_completed' for memory analysis");
  moment->address = strtoull(text, NULL, 16);
  moment->version = strtoull(version, NULL, 10);
  moment->action = actions[action];
  return 0;
}

void cli_mosaic_services(const cli_session *session) {
  const cli_mosaic_options *options = &session->options->mosaic;
  if (options->paste)
    cli_mosaic_warn("--paste: there is no paste service here; the answer is printed instead");
  if (options->upload)
    cli_mosaic_warn("--upload_result: there is nowhere to upload to; the answer stays here");
}
