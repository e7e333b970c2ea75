/* commands.c - every command and every option of tessera, as rows.
 *
 * To add a command: write its file with a `int cli_NAME(cli_session *)`, declare that function in
 * session.h and add a row to cli_commands. To add an option: add a field to cli_options
 * (options.h) and a row to cli_option_rows; its field's zero, or what cli_parse sets, is its
 * default. Parser, help, manual pages and completions follow.
 *
 * Texts here are plain: no markup, no line breaks of their own inside a paragraph. They reach
 * terminals, troff and three shells, and the code that prints them there quotes what needs quoting.
 */
#include "commands.h"

#include <string.h>

#include "options.h"
#include "session.h"

const char cli_tagline[] = "where the memory of a GPU job went";

const char cli_description[] =
    "tessera reads the memory snapshots that PyTorch writes with "
    "torch.cuda.memory._dump_snapshot() and answers questions about them: what the file holds, "
    "what occupied the memory at its highest, and what kind of memory that was.\n\n"
    "Answers go to standard output, everything else to standard error. A snapshot is data: nothing "
    "in it is ever executed. FILE may be '-' for standard input.";

const cli_command cli_commands[] = {
    {.name = "info",
     .summary = "what is in this file?",
     .description =
         "Counts what the snapshot holds for each device: events by action, segments, blocks, "
         "distinct stacks and frames, the time the trace covers, frees of memory that the trace "
         "never saw allocated, and the memory in use at the moment of the snapshot.",
     .operands = "FILE",
     .operand_min = 1,
     .operand_max = 1,
     .reads_files = true,
     .examples = {{"tessera info snapshot.pickle", "what the file holds, device by device"},
                  {"tessera info --json snapshot.pickle", "the same for a program"}},
     .run = cli_info},
    {.name = "peak",
     .summary = "what holds the memory at the peak?",
     .description =
         "Finds the first moment at which most memory was allocated, as "
         "torch.cuda.memory_allocated() would have said, and lists what was live then, grouped by "
         "the stack that allocated it, largest first. It also tells what reserved memory was "
         "lost to fragmentation, and how.\n\n"
         "Memory from before the recording is counted too; its stacks are known where the "
         "snapshot's blocks carry them.",
     .operands = "FILE",
     .operand_min = 1,
     .operand_max = 1,
     .reads_files = true,
     .examples = {{"tessera peak snapshot.pickle", "the ten largest stacks at the peak"},
                  {"tessera peak --device 0 --top 3 snapshot.pickle", "three, of one device"},
                  {"tessera peak --full-stacks --top 0 -o peak.txt snapshot.pickle",
                   "everything, with framework frames, into a file"}},
     .run = cli_peak},
    {.name = "at",
     .summary = "what held the memory at another moment?",
     .description =
         "Tells the exact state after one event of the trace: how much was requested, allocated "
         "and reserved, what the reserved memory lost to fragmentation, and the stacks that held "
         "it, largest first.\n\n"
         "Events are numbered from 0 on each device; -1 is the state before the first. A time is "
         "in microseconds since 1970 and means the last event up to it. An allocation is named as "
         "PyTorch's viewer names it: its address in hexadecimal, an underscore, and how often "
         "that address was given back before.",
     .operands = "FILE",
     .operand_min = 1,
     .operand_max = 1,
     .reads_files = true,
     .examples = {{"tessera at --event 3737 snapshot.pickle", "after event 3737"},
                  {"tessera at --time 1783874422365713 snapshot.pickle", "at that time"},
                  {"tessera at --alloc cd1000000_1 --action alloc snapshot.pickle",
                   "when that block was taken for the second time"}},
     .run = cli_at},
    {.name = "profile",
     .summary = "what kind of memory is it at the peak?",
     .description =
         "Divides the memory that is live at the peak into groups and prints their sizes, largest "
         "first.\n\n"
         "By category, each allocation is a parameter, an activation, a gradient or temporary of "
         "the backward pass, optimizer state, and so on, as told by the functions and files in "
         "the stack that allocated it.",
     .operands = "FILE",
     .operand_min = 1,
     .operand_max = 1,
     .reads_files = true,
     .examples = {{"tessera profile snapshot.pickle", "parameters, activations, optimizer, ..."},
                  {"tessera profile --by category --json snapshot.pickle", "for a program"}},
     .run = cli_profile},
    {.name = "whatif",
     .summary = "what would other settings, or another card, have done?",
     .description =
         "Gives the recorded requests to a model of PyTorch's caching allocator again, under other "
         "settings of PYTORCH_CUDA_ALLOC_CONF or with the memory of another card, and tells how "
         "much each configuration reserves at its peak, what of that it does not hand out, and "
         "the first request that would run out of memory.\n\n"
         "Without --set it tries these: defaults; expandable_segments:True; max_split_size_mb of "
         "128, 256 and 512; roundup_power2_divisions of 4 and 8; "
         "garbage_collection_threshold:0.8, alone and with max_split_size_mb:128; and "
         "expandable_segments:True with roundup_power2_divisions:8. The recorded settings are "
         "always among them; how well they give the recorded segments back tells how far the "
         "rest can be trusted. Memory from before the recording keeps its place.",
     .operands = "FILE",
     .operand_min = 1,
     .operand_max = 1,
     .reads_files = true,
     .examples = {{"tessera whatif snapshot.pickle", "the usual configurations, best first"},
                  {"tessera whatif --capacity 24GiB snapshot.pickle", "does it fit on that card?"},
                  {"tessera whatif --set expandable_segments:True,max_split_size_mb:128 "
                   "snapshot.pickle",
                   "one configuration"}},
     .run = cli_whatif},
    {.name = "export",
     .summary = "write the snapshot in another form, for another program",
     .description =
         "Writes everything that the snapshot holds: as a pickle that PyTorch's viewer and Python "
         "read like the original, mostly smaller because what repeats is written once, or as json, "
         "with one event or segment on each line, to search and to compare.\n\n"
         "Or writes what other programs draw. Flame graphs of the memory that is live at the peak, "
         "or at the moment of --event or --time, by stack: folded (flamegraph.pl, and most "
         "others), "
         "speedscope, and pprof (go tool pprof). With a range, --events A..B or --time A..B, each "
         "allocation counts with its bytes times the milliseconds that it lived in it. Time lines "
         "and tables: perfetto is trace events in JSON on the trace's own clock, to be opened in "
         "Perfetto beside a trace of kernels, with counters by category and the largest "
         "allocations as slices; csv has a row for each allocation, from birth to death.\n\n"
         "The form follows the name given with -o: .json, .folded, .speedscope.json, .pb.gz, "
         ".perfetto.json, .csv, and a pickle for any other. What is binary is not written to a "
         "terminal.",
     .operands = "FILE",
     .operand_min = 1,
     .operand_max = 1,
     .reads_files = true,
     .examples = {{"tessera export -o snapshot.json snapshot.pickle", "the snapshot as JSON"},
                  {"tessera export --format folded snapshot.pickle | flamegraph.pl > peak.svg",
                   "a flame graph of the peak"},
                  {"tessera export --events 3000..4000 -o step.pb.gz snapshot.pickle",
                   "bytes x time over a range, for pprof"}},
     .run = cli_export},
    {.name = "trim",
     .summary = "cut a part of a trace out, as a snapshot of its own",
     .description =
         "Writes the events of a window, with the segments and blocks as they were after the last "
         "of them: a small snapshot that PyTorch's own viewer opens, of a step out of a trace too "
         "large for it. What tessera says of a moment in it, it says of the same moment in the "
         "whole.\n\n"
         "With --device the other devices are left out. A device that has no event in the window "
         "is written as it was at the end of the trace.",
     .operands = "FILE",
     .operand_min = 1,
     .operand_max = 1,
     .reads_files = true,
     .examples = {{"tessera trim --events 3000..4000 -o step.pickle snapshot.pickle",
                   "a thousand and one events"},
                  {"tessera trim --device 1 -o one.pickle snapshot.pickle", "one device, whole"},
                  {"tessera trim --time ..1783874422365713 -o start.json snapshot.pickle",
                   "all up to a time, as JSON"}},
     .run = cli_trim},
    {.name = "view",
     .summary = "show it: a picture of memory over time, as one HTML file",
     .description =
         "Writes a page that draws the memory of a trace over time, by category or by another "
         "grouping, down to single blocks, and tells of any moment or range in it which stacks "
         "held what, as a table and as a flame graph, and where the blocks lay in their segments. "
         "Two moments can be compared, and two files.\n\n"
         "The page opens in any recent browser, from a disk or an attachment: it holds its data, "
         "asks no network for anything, and is at most 20 MB. Of a trace too long for that it "
         "holds the largest allocations one by one and the rest in sums, which are exact at the "
         "highest and lowest moment of each of 8192 parts of the trace.",
     .operands = "FILE...",
     .operand_min = 1,
     .operand_max = 64,
     .reads_files = true,
     .examples = {{"tessera view -o page.html snapshot.pickle", "a page of the snapshot"},
                  {"tessera view --by stream --capacity 80GiB -o page.html snapshot.pickle",
                   "by stream, with the card's memory as a line"},
                  {"tessera view -o both.html before.pickle after.pickle", "two, side by side"}},
     .run = cli_view},
    {.name = "help",
     .summary = "explain tessera, or one of its commands",
     .description = "Without COMMAND, lists the commands. With one, explains it and its options, "
                    "as 'tessera COMMAND --help' does.",
     .operands = "[COMMAND]",
     .operand_max = 1,
     .examples = {{"tessera help peak", "how to use tessera peak"}},
     .run = cli_help},
    {.name = NULL},
};

#define FIELD(name) .field = offsetof(cli_options, name)

const cli_option cli_option_rows[] = {
    {.name = "by",
     .kind = CLI_CHOICE,
     .argument = "GROUPING",
     .help = "What to group the memory by (default: category).",
     .takers = "profile",
     .choices = {"category"},
     FIELD(by)},
    {.name = "by",
     .kind = CLI_CHOICE,
     .argument = "GROUPING",
     .help = "What the page is coloured by when it opens (default: category).",
     .takers = "view",
     .choices = {"category", "annotation", "compile_context", "metadata", "stream", "pool",
                 "stack"},
     FIELD(view_by)},
    {.name = "blocks",
     .kind = CLI_NUMBER,
     .argument = "N",
     .help = "Tell at most N allocations one by one, the largest, and the rest in sums (default: "
             "1500000, fewer where the page would be too large).",
     .takers = "view",
     FIELD(blocks)},
    {.name = "event",
     .kind = CLI_TEXT,
     .argument = "N",
     .help = "The moment after event N of the device's trace, -1 for before the first.",
     .takers = "at export",
     FIELD(event)},
    {.name = "time",
     .kind = CLI_TEXT,
     .argument = "US",
     .help = "A time in microseconds since 1970, meaning the moment after the last event up to it; "
             "or a range A..B of them. Trim takes a range, at a moment, export either.",
     .takers = "at export trim",
     FIELD(time)},
    {.name = "events",
     .kind = CLI_TEXT,
     .argument = "A..B",
     .help = "The events from A to B, both included; either may be left out.",
     .takers = "export trim",
     FIELD(events)},
    {.name = "set",
     .kind = CLI_TEXT,
     .argument = "CONF",
     .help = "Settings to try, as PYTORCH_CUDA_ALLOC_CONF has them; several configurations are "
             "separated by blanks or semicolons.",
     .takers = "whatif",
     FIELD(settings)},
    {.name = "capacity",
     .kind = CLI_TEXT,
     .argument = "SIZE",
     .help = "Memory of the card that PyTorch may have, such as 40GiB (default: unlimited); "
             "view draws it as a line.",
     .takers = "whatif view",
     FIELD(capacity)},
    {.name = "alloc",
     .kind = CLI_TEXT,
     .argument = "ADDRESS_VERSION",
     .help = "The moment at which that block was taken or given back, see --action.",
     .takers = "at",
     FIELD(allocation)},
    {.name = "action",
     .kind = CLI_CHOICE,
     .argument = "ACTION",
     .help = "With --alloc: alloc (default), free_requested, free_completed or free.",
     .takers = "at",
     .choices = {"alloc", "free_requested", "free_completed", "free"},
     FIELD(action)},
    {.name = "format",
     .kind = CLI_CHOICE,
     .argument = "FORMAT",
     .help =
         "The form to write, as described above; auto (default) goes by the name of the output. "
         "For trim, pickle or json.",
     .takers = "export trim",
     .choices = {"auto", "pickle", "json", "folded", "speedscope", "pprof", "perfetto", "csv"},
     FIELD(format)},
    {.name = "device",
     .kind = CLI_DEVICES,
     .argument = "N|all",
     .help = "Answer for device N only. Several may be given, with commas or by repeating the "
             "option (default: all that have events or segments).",
     FIELD(devices)},
    {.name = "top",
     .kind = CLI_NUMBER,
     .argument = "N",
     .help = "List at most N entries, 0 for all of them (default: 10). What is left out is "
             "counted.",
     FIELD(top)},
    {.name = "full-stacks",
     .kind = CLI_FLAG,
     .help = "Show the frames of the framework and the interpreter too.",
     FIELD(full_stacks)},
    {.name = "json",
     .kind = CLI_FLAG,
     .help = "Print one JSON object instead of text.",
     FIELD(json)},
    {.name = "output",
     .letter = 'o',
     .kind = CLI_FILE,
     .argument = "FILE",
     .help = "Write the answer to FILE instead of standard output. FILE changes only once the "
             "answer is complete.",
     FIELD(output)},
    {.name = "color",
     .kind = CLI_CHOICE,
     .argument = "WHEN",
     .help = "Use colours: auto (default; on a terminal), always or never.",
     .choices = {"auto", "always", "never"},
     FIELD(color)},
    {.name = "quiet",
     .letter = 'q',
     .kind = CLI_FLAG,
     .help = "Leave out warnings about the file, and the progress bar.",
     FIELD(quiet)},
    {.name = "verbose",
     .letter = 'v',
     .kind = CLI_FLAG,
     .help = "Say more: further columns.",
     FIELD(verbose)},
    {.name = "strict",
     .kind = CLI_FLAG,
     .help = "Refuse a file about which there is any warning: say the warnings, and fail.",
     FIELD(strict)},
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

const cli_note cli_exits[] = {
    {"0", "The question was answered."},
    {"1", "A check failed."},
    {"2", "The command line is wrong, or asks for a device that the file does not have."},
    {"3", "The input cannot be read, or is not a snapshot."},
    {"4", "The answer cannot be written, memory ran out, or tessera itself is at fault."},
    {NULL, NULL},
};

const cli_note cli_environment[] = {
    {"NO_COLOR", "When set and not empty, --color=auto means never."},
    {"TERM", "When it is dumb, --color=auto means never."},
    {NULL, NULL},
};

const cli_command *cli_command_find(const char *name) {
  for (const cli_command *row = cli_commands; row->name; row++)
    if (strcmp(row->name, name) == 0) return row;
  return NULL;
}

/* Whether `word` is one of the words of `list`. */
static bool has_word(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *at = list; (at = strstr(at, word)) != NULL; at += length) {
    bool starts = at == list || at[-1] == ' ';
    bool ends = at[length] == ' ' || at[length] == '\0';
    if (starts && ends) return true;
  }
  return false;
}

bool cli_option_applies(const cli_option *option, const cli_command *command) {
  if (!command) return true;
  if (!option->takers) return command->reads_files;
  return strcmp(option->takers, CLI_EVERY_COMMAND) == 0 || has_word(option->takers, command->name);
}

bool cli_option_is_shared(const cli_option *option) {
  return !option->takers || strcmp(option->takers, CLI_EVERY_COMMAND) == 0;
}
