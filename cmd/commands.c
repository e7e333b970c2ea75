/* commands.c - every command of tessera, as a row; its options are in option_rows.c.
 *
 * To add a command: write its file with a `int cli_NAME(cli_session *)`, declare that function in
 * session.h and add a row to cli_commands. Parser, help, manual pages and completions follow.
 *
 * Texts here are plain: no markup, no line breaks of their own inside a paragraph. They reach
 * terminals, troff and three shells, and the code that prints them there quotes what needs quoting.
 */
#include "commands.h"

#include <string.h>

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
         "Divides the memory that is live at the peak into groups and prints their sizes there, "
         "largest first, and how much they took over the whole trace.\n\n"
         "By category, each allocation is a parameter, gradient, optimizer_state, activation, "
         "recomputed activation, temporary, input, communication or workspace, as its phase, its "
         "life and its stack tell; -v says why, and how surely. What nothing explains is "
         "unexplained. By op, it belongs to the operation or kernel that took it, by module to the "
         "nn.Module that was called, by line to the innermost line of the program's own. All of "
         "these count what was there before the recording too.\n\n"
         "By annotation, memory belongs to the innermost record_function range that was open; by "
         "compile-context, to the region that torch.compile made. These, rules, and --categories "
         "mosaic count from zero at the first event, and have a peak of their own.\n\n"
         "Rules are names and patterns: {\"attention\": \"attention|softmax\"}, or a list of rules "
         "with name, pattern, description and priority, in JSON or YAML. They are tried by "
         "priority, the smallest number first, then in their order. Patterns are those of PCRE2, "
         "searched for anywhere as Python's re.search does.",
     .operands = "FILE",
     .operand_min = 1,
     .operand_max = 1,
     .reads_files = true,
     .examples = {{"tessera profile snapshot.pickle", "parameters, activations, gradients, ..."},
                  {"tessera profile --by op --over-time snapshot.pickle",
                   "by aten operation, and its course"},
                  {"tessera profile --rules '{\"attention\": \"attention|softmax\"}' "
                   "snapshot.pickle",
                   "by a rule of one's own"},
                  {"tessera profile --ordered --html page.html snapshot.pickle",
                   "a chart in the order in which memory was taken"}},
     .run = cli_profile},
    {.name = "diff",
     .summary = "what changed between two runs?",
     .description =
         "Compares what was live at the peaks of two snapshots, stack by stack, and lists what "
         "came, went, grew and shrank, by how much.\n\n"
         "Stacks are the same when the functions, files and lines of all their frames are; of "
         "those left over, when the functions and file names are, which is said. "
         "Devices of one number are compared with each other; when each file has one device "
         "alone, those two are, so that two ranks can be compared.",
     .operands = "OLD NEW",
     .operand_min = 2,
     .operand_max = 2,
     .reads_files = true,
     .examples = {{"tessera diff before.pickle after.pickle", "the ten largest changes"},
                  {"tessera diff --json --top 0 rank0.pickle rank7.pickle",
                   "all of them, for a program"}},
     .run = cli_diff},
    {.name = "stages",
     .summary = "how high did memory go in each annotated stage?",
     .description =
         "Tells, for each stage that the program marked, how much was allocated when it began and "
         "when it ended, and the most that was allocated in between, and names the stage that the "
         "peak lies in. Stages come from torch.profiler.record_function, the profiler's steps and "
         "PyTorch's optimizers; those inside another are indented below it.\n\n"
         "Where there are more stages than --top, those of one name, numbers aside, are one line: "
         "how many there are, and the one that goes highest. --top 0 or -v shows each.",
     .operands = "FILE",
     .operand_min = 1,
     .operand_max = 1,
     .reads_files = true,
     .examples = {{"tessera stages snapshot.pickle", "all stages"},
                  {"tessera stages --match Optimizer.step --match backward snapshot.pickle",
                   "those with either text in their name"},
                  {"tessera stages -v snapshot.pickle", "every repetition"}},
     .run = cli_stages},
    {.name = "source",
     .summary = "which lines of my source file cost what?",
     .description =
         "Finds the frames of a Python file in the stacks of what is live at the peak, and tells "
         "for each of its lines, functions and classes how many bytes it holds: self where it is "
         "the file's innermost frame in the stack, inclusive where it is any. Then it prints the "
         "file with these numbers in the margin; lines that hold nothing are folded (-v shows "
         "them).\n\n"
         "The file is found in the snapshot by its name, and by as much of its path as agrees. It "
         "should be the version that ran: where a line does not hold what the snapshot says, that "
         "is said.",
     .operands = "FILE SOURCE",
     .operand_min = 2,
     .operand_max = 2,
     .reads_files = true,
     .examples = {{"tessera source snapshot.pickle model.py", "what each line of model.py holds"},
                  {"tessera source before.pickle model.py --compare after.pickle",
                   "and what changed"},
                  {"tessera source --top 0 -v snapshot.pickle model.py", "everything"}},
     .run = cli_source},
    {.name = "steps",
     .summary = "where do steps begin, and what does one take?",
     .description =
         "Finds the steps of a training run, or the rounds of any other loop, without markers: by "
         "the phases that stacks tell (forward, backward, the optimizer's step), or by the stacks "
         "and sizes that come again. Lays the steps on top of each other and tells the peak of a "
         "steady one, what warm-up needs above that, and the peak of each phase.\n\n"
         "Where the snapshot has annotations of Optimizer.step or ProfilerStep, it tells how many "
         "of them agree. A step that the recording cuts is shown, and left out of the rest.",
     .operands = "FILE",
     .operand_min = 1,
     .operand_max = 1,
     .reads_files = true,
     .examples = {{"tessera steps snapshot.pickle", "the steps, and what a steady one takes"},
                  {"tessera steps -v snapshot.pickle", "every step"},
                  {"tessera steps --json snapshot.pickle", "for a program"}},
     .run = cli_steps},
    {.name = "leaks",
     .summary = "what grows from step to step?",
     .description =
         "Finds memory that survives step after step and is more after each: the stack that "
         "allocates it, how much a step, since when, and how much in all. What is made once "
         "(parameters, optimizer state), replaced in every step (gradients), or stops growing "
         "(caches) is none.\n\n"
         "Steps are found as 'tessera steps' finds them; three whole ones are needed.",
     .operands = "FILE",
     .operand_min = 1,
     .operand_max = 1,
     .reads_files = true,
     .examples = {{"tessera leaks snapshot.pickle", "what grows, most first"},
                  {"tessera leaks --json --top 0 snapshot.pickle", "all of it, for a program"}},
     .run = cli_leaks},
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
    {.name = "why",
     .summary = "why did it run out of memory?",
     .description =
         "Explains the out-of-memory that the trace recorded: what was asked for and what the "
         "device had, what PyTorch had cached and could not use for it, and why (fragmentation, "
         "another stream's or pool's cache, freed blocks that wait for another stream), what held "
         "the rest, by purpose and by line of the program, and which settings of "
         "PYTORCH_CUDA_ALLOC_CONF would have let it through.\n\n"
         "Where the program ran out of memory several times, the last that it did not get over is "
         "explained, or the one of --event. Where none was recorded, it tells how close it came, "
         "when most was reserved.\n\n"
         "A snapshot does not say how much memory the card has: with --capacity what others held "
         "of it is told too.",
     .operands = "FILE",
     .operand_min = 1,
     .operand_max = 1,
     .reads_files = true,
     .examples = {{"tessera why snapshot.pickle", "the verdict, and its evidence"},
                  {"tessera why --capacity 80GiB snapshot.pickle", "on a card of that size"}},
     .run = cli_why},
    {.name = "check",
     .summary = "is it within its budget, and what it was?",
     .description =
         "Compares a run with budgets and with a lock, and exits with status 1 when a check "
         "fails. It says what is too much, what grew, and the lines of the program that hold "
         "it.\n\n"
         "Checks are made on allocated memory; reserved memory, which depends on what the "
         "allocator did before, is checked with --max-reserved only. Kinds of memory are "
         "parameter, gradient, optimizer_state, activation, recomputed, temporary, input, "
         "communication, workspace and unexplained; each is checked at its own highest.\n\n"
         "A lock is a small text, to be kept and reviewed beside the code: the peak of each "
         "device, of each kind, and the functions that held most. Peak and kinds (what is "
         "unexplained aside) must match, within --tolerance and in both directions; functions "
         "explain. It names neither addresses, lines nor folders. A snapshot that is cut short "
         "can hold less than the run did, and does not pass: the exit status is 3 then.",
     .operands = "FILE",
     .operand_min = 1,
     .operand_max = 1,
     .reads_files = true,
     .examples =
         {{"tessera check --max 18GiB --max activation=3GiB snapshot.pickle", "budgets"},
          {"tessera check --lock memory.lock --update snapshot.pickle", "write down what it holds"},
          {"tessera check --lock memory.lock --format markdown snapshot.pickle",
           "did a change cost memory? For a comment on it"},
          {"tessera check --lock memory.lock --format sarif -o memory.sarif snapshot.pickle",
           "for a code host, at the line"}},
     .run = cli_check},
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
    {.name = "mcp",
     .summary = "let a language model ask",
     .description =
         "Serves the Model Context Protocol on standard input and standard output, for programs "
         "around language models, which start it themselves. Its tools answer what the commands "
         "answer, ranked and bounded, and Mosaic's tools are there too, under their names.\n\n"
         "The last few snapshots, up to 2 GiB of memory, are kept open between questions, and "
         "read again when their file has changed. Files are only ever read.",
     .operands = "",
     .examples = {{"tessera mcp", "what to give to a client as the command of a server"},
                  {"tessera mcp --tools tessera --max-answer 32KiB",
                   "tessera's own tools alone, with short answers"}},
     .run = cli_mcp},
    {.name = "simulate",
     .summary = "what will a training run take, before anything has run?",
     .description =
         "Runs the training steps of a model without a device, byte for byte as PyTorch and "
         "transformers would ask for memory, and tells what the run needs at its highest, what "
         "that memory is for, and which moment decides. With -o it writes the snapshot that "
         "PyTorch would have recorded: every other command, Mosaic and PyTorch's own viewer read "
         "it.\n\n"
         "MODEL is the config.json of a GPT-2, Llama, Mistral or Qwen2 model, or one of these "
         "names: gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-2-7b, llama-2-13b, llama-2-70b, "
         "llama-3-8b, llama-3-70b, llama-3-405b, llama-3.2-1b, mistral-7b, qwen2.5-7b.\n\n"
         "With --capacity, a run that does not fit ends where PyTorch's would, in an oom event.",
     .operands = "MODEL",
     .operand_min = 1,
     .operand_max = 1,
     .answers = true,
     .writes_aside = true,
     .examples = {{"tessera simulate gpt2 --batch 4 --seq 512",
                   "what will fine-tuning GPT-2 take?"},
                  {"tessera simulate llama-3-8b --dtype bf16 --seq 4096 --checkpoint full "
                   "--capacity 80GiB",
                   "does it fit on that card?"},
                  {"tessera simulate config.json --batch 8 --steps 5 -o steps.pickle",
                   "a snapshot of five steps"}},
     .run = cli_simulate},
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
                  {"tessera view --rules rules.yaml -o page.html snapshot.pickle",
                   "by groups of one's own"},
                  {"tessera view -o both.html before.pickle after.pickle", "two, side by side"}},
     .run = cli_view},
    {.name = "serve",
     .summary = "show it in a browser, however large it is",
     .description =
         "Serves the page of 'tessera view', and prints its address. The page asks for what it "
         "shows, so that every block can be seen one by one, however long the trace. Ctrl-C ends "
         "it.\n\n"
         "It listens at an address that other machines do not reach, unless --host says otherwise. "
         "The address that it prints holds a secret, new each time; without it, and to pages of "
         "other sites, it answers nothing.",
     .operands = "FILE...",
     .operand_min = 1,
     .operand_max = 64,
     .reads_files = true,
     .examples = {{"tessera serve snapshot.pickle", "prints the address to open"},
                  {"tessera serve --port 8321 old.pickle new.pickle", "two, at a port of choice"}},
     .run = cli_serve},
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
  for (const cli_command *row = cli_drop_ins; row->name; row++)
    if (strcmp(row->name, name) == 0) return row;
  return NULL;
}

const cli_option *cli_options_of(const cli_command *command) {
  return command && command->is_drop_in ? cli_drop_in_rows : cli_option_rows;
}

bool cli_command_takes_files(const cli_command *command) {
  return command->reads_files || command->answers;
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
  if (option->not_for && has_word(option->not_for, command->name)) return false;
  if (!option->takers) return command->reads_files;
  if (strcmp(option->takers, CLI_EVERY_ANSWER) == 0) return cli_command_takes_files(command);
  return strcmp(option->takers, CLI_EVERY_COMMAND) == 0 || has_word(option->takers, command->name);
}

bool cli_option_is_shared(const cli_option *option) {
  return !option->takers || strcmp(option->takers, CLI_EVERY_COMMAND) == 0 ||
         strcmp(option->takers, CLI_EVERY_ANSWER) == 0;
}
