/* drop_ins.c - names and options of the drop-ins for Mosaic's commands.
 *
 * The rows are of the same type as those of other commands, and read by the same parser. Names and
 * choices are Mosaic's, including --print_stack, which takes a truth value instead of being a flag, and
 * options that do nothing.
 */
#include "core/commands.h"
#include "mosaic.h"

#define NOTE                                                                                      \
  "\n\nStandard output is the same as Mosaic's, and so are the INFO lines on standard "           \
  "error. Where Mosaic fails although the data is there, tessera answers; where Mosaic's output " \
  "hides something, a WARNING line reports it. Options may be spelled with '-' or '_'."

/* ---- Options that several have ---- */

#define SNAPSHOT                                                          \
  {                                                                       \
    .name = "snapshot", .kind = TSR_PARAMETER_PATH, .argument = "FILE",   \
    .help = "The snapshot to read: a pickle, JSON, or either compressed." \
  }

#define TRACE                                                        \
  {                                                                  \
    .name = "trace", .kind = TSR_PARAMETER_PATH, .argument = "FILE", \
    .help = "Ignored, as Mosaic does."                               \
  }

#define ALLOCATION                                                                              \
  {                                                                                             \
    .name = "allocation", .kind = TSR_PARAMETER_TEXT, .argument = "ADDRESS_VERSION",            \
    .help = "The event to stop at: an address in hexadecimal, an underscore, and how often it " \
            "was freed before."                                                                 \
  }

#define ACTION                                                                      \
  {                                                                                 \
    .name = "action", .kind = TSR_PARAMETER_CHOICE, .argument = "ACTION",           \
    .help = "The action there: alloc, segment_alloc, segment_map, free_completed, " \
            "segment_free, segment_unmap, or free, which means free_completed.",    \
    .choices = cli_mosaic_action_words                                              \
  }

#define PRINT_STACK                                                                       \
  {                                                                                       \
    .name = "print_stack", .option = "print-stack", .kind = TSR_PARAMETER_TRUTH,          \
    .argument = "TRUTH", .help = "Whether to print the stacks: true (default) or false.", \
    .fallback = 1                                                                         \
  }

#define PASTE                                                                              \
  {                                                                                        \
    .name = "paste", .kind = TSR_PARAMETER_FLAG,                                           \
    .help = "Accepted, but there is no paste service outside Meta: the answer is printed." \
  }

#define UPLOAD_RESULT                                                                        \
  {                                                                                          \
    .name = "upload_result", .option = "upload-result", .kind = TSR_PARAMETER_FLAG,          \
    .help = "Accepted, but there is no upload service outside Meta: the answer stays local." \
  }

#define ALLOW_TRUNCATED                                                                          \
  {                                                                                              \
    .name = "allow_truncated", .option = "allow-truncated", .kind = TSR_PARAMETER_FLAG,          \
    .help = "Answer from what a truncated file, or one without a trace, has, with a warning. "   \
            "Without this, such a file is an error, as in Mosaic: the run could have held more." \
  }

/* ---- Options of each ---- */

static const tsr_parameter get_json_snapshot_options[] = {
    SNAPSHOT,
    {.name = "output_file",
     .option = "output-file",
     .kind = TSR_PARAMETER_PATH,
     .is_written = true,
     .argument = "FILE",
     .help = "The file to write (default: /tmp/snapshot.json). It changes only once the JSON is "
             "complete; '-' is standard output."},
    UPLOAD_RESULT,
    ALLOW_TRUNCATED,
};

static const tsr_parameter get_memory_profile_options[] = {
    SNAPSHOT,
    {.name = "out_path",
     .option = "out-path",
     .kind = TSR_PARAMETER_PATH,
     .is_written = true,
     .argument = "FILE",
     .help = "Write a page with a chart to FILE (default: snapshot_graph.html, in the current "
             "folder); '' for none."},
    {.name = "profile",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "KIND",
     .help = "What to group the memory by: categories (default), annotations, compile_context or "
             "custom.",
     .choices = (const char *const[]){"categories", "annotations", "compile_context", "custom",
                                      "compile-context", NULL}},
    {.name = "custom_profile",
     .option = "custom-profile",
     .kind = TSR_PARAMETER_OBJECT,
     .type = &tsr_rules_type,
     .argument = "RULES",
     .help = "With --profile custom: names and patterns as JSON or YAML, or a file of them. An "
             "invalid pattern is skipped, with a warning."},
    {.name = "preserve_allocation_order",
     .option = "preserve-allocation-order",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Draw memory in allocation order, not sorted by group."},
    {.name = "plotter_sampling_rate",
     .option = "plotter-sampling-rate",
     .kind = TSR_PARAMETER_INTEGER,
     .argument = "N",
     .help = "Accepted, but without effect: the page is lossless."},
    {.name = "plotter_start_idx",
     .option = "plotter-start-idx",
     .kind = TSR_PARAMETER_INTEGER,
     .argument = "N",
     .help = "Where the page begins to show the trace; an entry is a microsecond in which "
             "something happens, and a negative number counts from the end."},
    {.name = "plotter_end_idx",
     .option = "plotter-end-idx",
     .kind = TSR_PARAMETER_INTEGER,
     .argument = "N",
     .help = "Where it ends, before this entry. Zooming out shows the rest."},
    ALLOW_TRUNCATED,
};

static const tsr_parameter get_memory_usage_options[] = {
    SNAPSHOT, TRACE, ALLOCATION, ACTION, PRINT_STACK, PASTE, ALLOW_TRUNCATED,
};

static const tsr_parameter get_memory_usage_by_annotation_stage_options[] = {
    SNAPSHOT,
    {.name = "annotation",
     .kind = TSR_PARAMETER_TEXTS,
     .argument = "TEXT",
     .help = "Only annotations whose name contains TEXT. May be repeated: one of the texts is "
             "enough (default: all annotations)."},
    PASTE,
    ALLOW_TRUNCATED,
};

static const tsr_parameter get_memory_usage_diff_options[] = {
    {.name = "snapshot_base",
     .option = "snapshot-base",
     .kind = TSR_PARAMETER_PATH,
     .argument = "FILE",
     .help = "The snapshot to compare with."},
    {.name = "snapshot_diff",
     .option = "snapshot-diff",
     .kind = TSR_PARAMETER_PATH,
     .argument = "FILE",
     .help = "The snapshot whose stacks are printed."},
    PASTE,
    ALLOW_TRUNCATED,
};

static const tsr_parameter get_memory_usage_peak_options[] = {
    SNAPSHOT,
    TRACE,
    ALLOCATION,
    ACTION,
    {.name = "start_time",
     .option = "start-time",
     .kind = TSR_PARAMETER_INTEGER,
     .argument = "US",
     .help = "Look for the peak from this time on, in microseconds since 1970. Earlier events "
             "count towards usage, but not as the peak."},
    {.name = "end_time",
     .option = "end-time",
     .kind = TSR_PARAMETER_INTEGER,
     .argument = "US",
     .help = "Look for it up to this time."},
    PRINT_STACK,
    PASTE,
    UPLOAD_RESULT,
    ALLOW_TRUNCATED,
};

static const tsr_parameter per_file_memory_snapshot_analysis_options[] = {
    SNAPSHOT,
    ALLOCATION,
    ACTION,
    PASTE,
    {.name = "base_snapshot",
     .option = "base-snapshot",
     .kind = TSR_PARAMETER_PATH,
     .argument = "FILE",
     .help = "With compare: the first snapshot."},
    {.name = "diff_snapshot",
     .option = "diff-snapshot",
     .kind = TSR_PARAMETER_PATH,
     .argument = "FILE",
     .help = "With compare: the second snapshot. Differences are the first less the second."},
    {.name = "file_path",
     .option = "file-path",
     .kind = TSR_PARAMETER_PATH,
     .argument = "FILE",
     .help = "The source file, of the version that ran."},
    {.name = "file_name",
     .option = "file-name",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "NAME",
     .help = "The source file's name in the snapshot, without folders; with --file-content."},
    {.name = "file_content",
     .option = "file-content",
     .kind = TSR_PARAMETER_PATH,
     .argument = "FILE",
     .help = "A file with the source's text."},
    {.name = "augmented_view",
     .option = "augmented-view",
     .kind = TSR_PARAMETER_FLAG,
     .help = "With analyze: print the source with bytes next to each line, after the tables."},
    {.name = "verbose",
     .kind = TSR_PARAMETER_FLAG,
     .help = "With analyze: print five tables, by lines, functions, classes and stacks."},
    ALLOW_TRUNCATED,
};

/* ---- The drop-ins ---- */

static const cli_command drop_ins[] = {
    {.about = {.name = "mosaic_get_json_snapshot",
               .summary = "write a snapshot as indented JSON, replacing Mosaic's command",
               .description = "Writes the whole snapshot as JSON, indented by four spaces, byte "
                              "for byte as Python's json.dump writes what pickle.load gives, but "
                              "without executing anything in the file." NOTE,
               CLI_PARAMETERS(get_json_snapshot_options),
               .examples =
                   {{"mosaic_get_json_snapshot --snapshot snapshot.pickle --output_file out.json",
                     "the snapshot as JSON"}}},
     .operands = "",
     .is_drop_in = true,
     .default_output = "/tmp/snapshot.json",
     .run = cli_mosaic_json},
    {.about = {.name = "mosaic_get_memory_profile",
               .summary = "what is the memory at the peak for, replacing Mosaic's command",
               .description = "Prints what the memory at the peak of the trace, counting from zero "
                              "at its start, consists of: by category, by annotation, by compiled "
                              "region, or by your own patterns. It also writes a page with a chart "
                              "of the whole trace; the page is tessera's own." NOTE,
               CLI_PARAMETERS(get_memory_profile_options),
               .examples = {{"mosaic_get_memory_profile --snapshot snapshot.pickle --out-path "
                             "profile.html --profile categories --preserve-allocation-order",
                             "by category, and a page"},
                            {"mosaic_get_memory_profile --snapshot snapshot.pickle --profile "
                             "custom --custom-profile '{\"nccl\": \"nccl\"}'",
                             "by a pattern"}}},
     .operands = "",
     .is_drop_in = true,
     .default_output = "snapshot_graph.html",
     .run = cli_mosaic_profile},
    {.about = {.name = "mosaic_get_memory_usage",
               .summary = "what is live at an allocation, replacing Mosaic's command",
               .description = "Replays the trace up to one event, counting from zero at its start, "
                              "and prints the stacks of what is live then, largest first." NOTE,
               CLI_PARAMETERS(get_memory_usage_options),
               .examples = {{"mosaic_get_memory_usage --snapshot snapshot.pickle --allocation "
                             "cd1000000_1 --action alloc",
                             "when that block was allocated for the second time"}}},
     .operands = "",
     .is_drop_in = true,
     .run = cli_mosaic_usage},
    {.about =
         {.name = "mosaic_get_memory_usage_by_annotation_stage",
          .summary = "memory at each annotation, replacing Mosaic's command",
          .description = "Prints the memory in use, counting from zero at the start of the trace, "
                         "where each annotated range starts and ends." NOTE,
          CLI_PARAMETERS(get_memory_usage_by_annotation_stage_options),
          .examples = {{"mosaic_get_memory_usage_by_annotation_stage --snapshot snapshot.pickle",
                        "all annotations"},
                       {"mosaic_get_memory_usage_by_annotation_stage --snapshot snapshot.pickle "
                        "--annotation forward --annotation backward",
                        "those whose names contain either text"}}},
     .operands = "",
     .is_drop_in = true,
     .run = cli_mosaic_stages},
    {.about = {.name = "mosaic_get_memory_usage_diff",
               .summary = "stacks at one peak and not at the other, replacing Mosaic's command",
               .description = "Prints the stacks that hold memory at the peak of the second "
                              "snapshot but not at that of the first, largest first. Stacks that "
                              "grew are not included; 'tessera diff' shows those too." NOTE,
               CLI_PARAMETERS(get_memory_usage_diff_options),
               .examples = {{"mosaic_get_memory_usage_diff --snapshot_base old.pickle "
                             "--snapshot_diff new.pickle",
                             "what is new in new.pickle"}}},
     .operands = "",
     .is_drop_in = true,
     .run = cli_mosaic_diff},
    {.about = {.name = "mosaic_get_memory_usage_peak",
               .summary = "what holds the memory at the peak, replacing Mosaic's command",
               .description = "Finds the first event at which the memory in use, counting from "
                              "zero at the start of the trace, is largest, and prints the stacks "
                              "of what is live then, largest first." NOTE,
               CLI_PARAMETERS(get_memory_usage_peak_options),
               .examples = {{"mosaic_get_memory_usage_peak --snapshot snapshot.pickle",
                             "the peak of the whole trace"},
                            {"mosaic_get_memory_usage_peak --snapshot snapshot.pickle --start_time "
                             "1783874422376221 --end_time 1783874422569490",
                             "between two times"}}},
     .operands = "",
     .is_drop_in = true,
     .run = cli_mosaic_peak},
    {.about = {.name = "mosaic_mcp",
               .summary = "let a language model ask, replacing Mosaic's server",
               .description =
                   "Serves the Model Context Protocol on standard input and standard output with "
                   "the tools of Mosaic's server, under their names and in their format, and also "
                   "tessera's own: it is the same as 'tessera mcp'.",
               .examples = {{"mosaic_mcp", "the server command to register with a client"}}},
     .operands = "",
     .is_drop_in = true,
     .run = cli_mcp},
    {.about = {.name = "mosaic_per_file_memory_snapshot_analysis",
               .summary = "what the lines of a source file hold, replacing Mosaic's command",
               .description =
                   "analyze sorts the stacks of the peak by the lines of one source file that they "
                   "pass through, and prints what each line, with its callers, holds; then the "
                   "stacks that do not touch the file. compare shows two snapshots side by side. "
                   "'tessera source' shows more.\n\nThe source is either read from --file-path, or "
                   "named by --file-name and read from --file-content." NOTE,
               CLI_PARAMETERS(per_file_memory_snapshot_analysis_options),
               .examples =
                   {{"mosaic_per_file_memory_snapshot_analysis analyze --snapshot snapshot.pickle "
                     "--file-path model.py",
                     "what the lines of model.py hold"},
                    {"mosaic_per_file_memory_snapshot_analysis compare --base-snapshot old.pickle "
                     "--diff-snapshot new.pickle --file-name model.py --file-content /tmp/model.py",
                     "in two snapshots, from a copy of the source"}}},
     .operands = "analyze|compare",
     .operand_min = 1,
     .operand_max = 1,
     .is_drop_in = true,
     .run = cli_mosaic_file},
};

size_t cli_drop_in_count(void) {
  return sizeof drop_ins / sizeof *drop_ins;
}

cli_command cli_drop_in_at(size_t index) {
  return drop_ins[index];
}
