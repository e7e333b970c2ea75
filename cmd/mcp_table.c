/* mcp_table.c - the table of tools: their names, arguments and what a language model is told of them. */
#include "mcp.h"

#define PATH_ARGUMENT(argument, text) \
  { .name = (argument), .kind = MCP_TEXT, .is_required = true, .help = (text) }
#define SNAPSHOT_HELP                                                                            \
  "Path of the memory snapshot on the machine of this server: a file of "                        \
  "torch.cuda.memory._dump_snapshot(), also as JSON, as PyTorch's HTML page, or compressed. It " \
  "is read as data; nothing in it is executed."
#define DEVICE_ARGUMENT                                                                   \
  {                                                                                       \
    .name = "device", .kind = MCP_INTEGER, .fallback = MCP_UNSET, .most = UINT32_MAX - 1, \
    .help = "GPU to answer for, by its number. Default: every device in the file."        \
  }
#define TOP_ARGUMENT(what)                                                              \
  {                                                                                     \
    .name = "top", .kind = MCP_INTEGER, .fallback = 10, .least = 1, .most = 1000,       \
    .help = "How many " what " to list, largest first. The rest is counted and summed." \
  }
#define FRAMES_ARGUMENT                                                                            \
  {                                                                                                \
    .name = "max_frames", .kind = MCP_INTEGER, .fallback = 8, .least = 1, .most = 1000,            \
    .help = "How many frames of each stack to show, innermost first; frames of the framework and " \
            "the interpreter are folded away and counted in folded_frames."                        \
  }

static const mcp_argument info_arguments[] = {
    PATH_ARGUMENT("path", SNAPSHOT_HELP), DEVICE_ARGUMENT, {.name = NULL}};
static const mcp_argument peak_arguments[] = {PATH_ARGUMENT("path", SNAPSHOT_HELP),
                                              DEVICE_ARGUMENT,
                                              TOP_ARGUMENT("stacks"),
                                              FRAMES_ARGUMENT,
                                              {.name = NULL}};
static const mcp_argument at_arguments[] = {
    PATH_ARGUMENT("path", SNAPSHOT_HELP),
    {.name = "event",
     .kind = MCP_INTEGER,
     .fallback = MCP_UNSET,
     .least = -1,
     .most = INT64_MAX,
     .help = "The moment after this event of the device's trace, counted from 0; -1 is before the "
             "first."},
    {.name = "time_us",
     .kind = MCP_INTEGER,
     .fallback = MCP_UNSET,
     .most = INT64_MAX,
     .help = "Instead of event: a time in microseconds since 1970, as time_us in other answers."},
    {.name = "allocation",
     .kind = MCP_TEXT,
     .help = "Instead of event: a block, as ADDRESS_VERSION, the address in hexadecimal and how "
             "often it was given back before, such as 7f36b8000000_1."},
    {.name = "action",
     .kind = MCP_TEXT,
     .choices = {"alloc", "free_requested", "free_completed"},
     .help = "With allocation: which of its events. Default: alloc."},
    DEVICE_ARGUMENT,
    TOP_ARGUMENT("stacks"),
    FRAMES_ARGUMENT,
    {.name = NULL}};
static const mcp_argument leaks_arguments[] = {PATH_ARGUMENT("path", SNAPSHOT_HELP),
                                               DEVICE_ARGUMENT,
                                               TOP_ARGUMENT("stacks"),
                                               FRAMES_ARGUMENT,
                                               {.name = NULL}};
static const mcp_argument profile_arguments[] = {
    PATH_ARGUMENT("path", SNAPSHOT_HELP),
    {.name = "by",
     .kind = MCP_TEXT,
     .choices = {"category", "annotation", "compile-context", "rules", "op", "module", "line",
                 "stack"},
     .help = "What to group by: category (default), the record_function range that was open, the "
             "compiled region, rules of your own, the operation or kernel, the nn.Module, the line "
             "of the program, or the stack."},
    {.name = "rules",
     .kind = MCP_TEXT,
     .help = "For by: rules, names and regular expressions, as JSON such as {\"attention\": "
             "\"attention|softmax\", \"optimizer\": \"optim|adam\"} or as YAML. The first whose "
             "pattern is found in a function or file name of the stack gives its name."},
    DEVICE_ARGUMENT,
    {.name = NULL}};
static const mcp_argument stages_arguments[] = {
    PATH_ARGUMENT("path", SNAPSHOT_HELP),
    {.name = "match",
     .kind = MCP_TEXTS,
     .help = "Only stages whose name contains one of these texts. Default: all."},
    DEVICE_ARGUMENT,
    TOP_ARGUMENT("stages"),
    {.name = NULL}};
static const mcp_argument source_arguments[] = {
    PATH_ARGUMENT("path", SNAPSHOT_HELP),
    PATH_ARGUMENT("source_path",
                  "Path of the Python file in question; as much of its end as tells it from others "
                  "is enough where source_text is given."),
    {.name = "source_text",
     .kind = MCP_TEXT,
     .help = "The file's text, of the version that ran. Default: what source_path holds on the "
             "machine of this server."},
    DEVICE_ARGUMENT,
    TOP_ARGUMENT("lines, functions and classes"),
    {.name = NULL}};
static const mcp_argument whatif_arguments[] = {
    PATH_ARGUMENT("path", SNAPSHOT_HELP),
    {.name = "settings",
     .kind = MCP_TEXTS,
     .help = "Configurations to try, each as PYTORCH_CUDA_ALLOC_CONF has it, such as "
             "\"expandable_segments:True,max_split_size_mb:128\". Default: the usual ones."},
    {.name = "capacity",
     .kind = MCP_TEXT,
     .help = "Memory of another card, such as 24GiB, to learn whether the job fits. Default: "
             "unlimited."},
    DEVICE_ARGUMENT,
    TOP_ARGUMENT("stacks, where it does not fit,"),
    FRAMES_ARGUMENT,
    {.name = NULL}};
static const mcp_argument why_arguments[] = {
    PATH_ARGUMENT("path", SNAPSHOT_HELP),
    {.name = "event",
     .kind = MCP_INTEGER,
     .fallback = MCP_UNSET,
     .most = INT64_MAX,
     .help = "Which out-of-memory to explain, by the number of its event. Default: the last that "
             "the program did not get over."},
    {.name = "capacity",
     .kind = MCP_TEXT,
     .help = "Memory of the card, such as 24GiB: tells what others than PyTorch held."},
    {.name = "settings",
     .kind = MCP_TEXTS,
     .help = "Configurations that might have let it fit, each as PYTORCH_CUDA_ALLOC_CONF has it. "
             "Default: the usual ones, where any could."},
    DEVICE_ARGUMENT,
    TOP_ARGUMENT("causes"),
    FRAMES_ARGUMENT,
    {.name = NULL}};
static const mcp_argument check_arguments[] = {
    PATH_ARGUMENT("path", SNAPSHOT_HELP),
    {.name = "max",
     .kind = MCP_TEXTS,
     .help = "Budgets: a size such as 18GiB for all allocated memory, or KIND=SIZE such as "
             "activation=3GiB for memory of a kind."},
    {.name = "max_reserved",
     .kind = MCP_TEXT,
     .help = "Budget of reserved memory, such as 20GiB; that depends on what the allocator had "
             "cached before."},
    {.name = "lock_path",
     .kind = MCP_TEXT,
     .help = "Path of a lock that `tessera check --update` wrote: the figures of an earlier run, "
             "which this one must match."},
    {.name = "tolerance",
     .kind = MCP_TEXT,
     .help = "How far figures may be off the lock's: a share of its peak such as 1% (the default), "
             "or a size such as 16MiB."},
    DEVICE_ARGUMENT,
    TOP_ARGUMENT("causes of each failure"),
    FRAMES_ARGUMENT,
    {.name = NULL}};
static const mcp_argument diff_arguments[] = {
    PATH_ARGUMENT("old_path", "Path of the snapshot to compare with: the run before, or the rank "
                              "that is well."),
    PATH_ARGUMENT("new_path", "Path of the snapshot in question: the run after."),
    {.name = "by",
     .kind = MCP_TEXT,
     .choices = {"stack", "category", "op", "line"},
     .help = "What to compare: stacks (default), what memory is for, operations, or lines of the "
             "program."},
    DEVICE_ARGUMENT,
    TOP_ARGUMENT("changes"),
    FRAMES_ARGUMENT,
    {.name = NULL}};

#define MOSAIC_PATH "Path of a PyTorch memory snapshot."
#define MOSAIC_TOP(count)                                                             \
  {                                                                                   \
    .name = "top_n", .kind = MCP_INTEGER, .fallback = (count), .most = 1000000,       \
    .help = "How many stacks to list, largest first; 0 = all that fit in the answer." \
  }
static const mcp_argument mosaic_peak_arguments[] = {
    PATH_ARGUMENT("snapshot_path", MOSAIC_PATH),
    {.name = "print_stack",
     .kind = MCP_FLAG,
     .fallback = 1,
     .help = "Whether call_stack is filled; false gives the numbers alone."},
    MOSAIC_TOP(0),
    {.name = NULL}};
static const mcp_argument mosaic_categories_arguments[] = {
    PATH_ARGUMENT("snapshot_path", MOSAIC_PATH), {.name = NULL}};
static const mcp_argument mosaic_annotations_arguments[] = {
    PATH_ARGUMENT("snapshot_path", MOSAIC_PATH),
    {.name = "annotation",
     .kind = MCP_TEXT,
     .help = "Only stages whose name contains this text. Default: all."},
    {.name = NULL}};
static const mcp_argument mosaic_diff_arguments[] = {
    PATH_ARGUMENT("snapshot_path_1", "Path of the snapshot to compare with."),
    PATH_ARGUMENT("snapshot_path_2", "Path of the snapshot in question."),
    MOSAIC_TOP(0),
    {.name = NULL}};
static const mcp_argument mosaic_compare_arguments[] = {
    PATH_ARGUMENT("snapshot_path_1", "Path of the snapshot to compare with."),
    PATH_ARGUMENT("snapshot_path_2", "Path of the snapshot in question."),
    MOSAIC_TOP(10),
    {.name = NULL}};

const mcp_tool mcp_tools[] = {
    {.name = "tessera_info",
     .title = "What is in this snapshot?",
     .help = "Describe a PyTorch GPU memory snapshot: devices, events by action, the time covered, "
             "memory in use at the end, and warnings about the file. Ask this first of an unknown "
             "file.",
     .arguments = info_arguments,
     .run = mcp_tool_info},
    {.name = "tessera_peak",
     .title = "What holds the GPU memory at its peak?",
     .help = "Find the moment at which a PyTorch job had most GPU memory allocated, and rank the "
             "lines of code (stacks) that held it, with bytes, number of allocations and category; "
             "also what fragmentation cost. The tool for 'why does my job need so much memory'. "
             "Totals are absolute, memory from before the recording "
             "included.",
     .arguments = peak_arguments,
     .run = mcp_tool_peak},
    {.name = "tessera_at",
     .title = "What held the GPU memory at a chosen moment?",
     .help = "Like tessera_peak, for another moment than the peak: after an event number, at a "
             "time, or when a given block was allocated or freed.",
     .arguments = at_arguments,
     .run = mcp_tool_at},
    {.name = "tessera_profile",
     .title = "What kinds of memory make up the peak?",
     .help =
         "Divide the memory that is live at the peak into parameters, gradients, optimizer_state, "
         "activations, recomputed activations, temporaries, inputs, communication and "
         "workspaces, each with the evidence for it; what nothing explains is unexplained. Tells "
         "which technique would help: activation checkpointing, sharding, another "
         "optimizer.",
     .arguments = profile_arguments,
     .run = mcp_tool_profile},
    {.name = "tessera_stages",
     .title = "How high did memory go in each annotated stage?",
     .help = "Memory at the start and end of each record_function range, and the peak inside it. "
             "The tool for 'which part of the step needs most'.",
     .arguments = stages_arguments,
     .run = mcp_tool_stages},
    {.name = "tessera_steps",
     .title = "Where do training steps begin, and what does one take?",
     .help = "Find the steps of a training run without any marks in the program: how many there "
             "are, what a steady one peaks at, whether warm-up went higher, and the peaks of "
             "forward, backward and optimizer.",
     .arguments = info_arguments,
     .run = mcp_tool_steps},
    {.name = "tessera_leaks",
     .title = "What grows from step to step?",
     .help = "Rank the stacks whose memory grows with every training step, with bytes a step. The "
             "tool for jobs that run out of memory after a while.",
     .arguments = leaks_arguments,
     .run = mcp_tool_leaks},
    {.name = "tessera_source",
     .title = "Which lines of a source file hold memory at the peak?",
     .help = "Bytes at the peak for each line, function and class of one Python file: of the line "
             "itself, and of all that was called from it.",
     .arguments = source_arguments,
     .run = mcp_tool_source},
    {.name = "tessera_whatif",
     .title = "What would other allocator settings or another card do?",
     .help = "Replay the recorded allocations under other settings of PYTORCH_CUDA_ALLOC_CONF, or "
             "with the memory of another card: how much each would reserve, what it would save, "
             "and where it would run out of memory. The tool for fragmentation.",
     .arguments = whatif_arguments,
     .run = mcp_tool_whatif},
    {.name = "tessera_why",
     .title = "Why did it run out of memory?",
     .help = "Explain an out-of-memory error: what was asked for, what was free and why that could "
             "not be used (fragmentation, other streams and pools, other processes), what held the "
             "card, by lines of code, and which allocator settings would have let it fit. Without "
             "such an error: how close it came.",
     .arguments = why_arguments,
     .run = mcp_tool_why},
    {.name = "tessera_check",
     .title = "Is it within its memory budget?",
     .help = "Hold a run against budgets, for all memory or for a kind, and against the lock of an "
             "earlier run; says what failed, by how much, and the lines of code behind it.",
     .arguments = check_arguments,
     .run = mcp_tool_check},
    {.name = "tessera_diff",
     .title = "What changed between two runs?",
     .help = "Compare the peaks of two snapshots stack by stack and rank what was added, removed, "
             "grew or shrank. The tool for regressions, and for two ranks of one job.",
     .arguments = diff_arguments,
     .run = mcp_tool_diff},
    {.name = "peak_memory_analysis",
     .title = "Peak memory, as Mosaic answers it",
     .help = "Stacks at the peak of what the recording saw allocated, in the form of Mosaic's "
             "tool. tessera_peak is shorter and counts memory from before the recording.",
     .arguments = mosaic_peak_arguments,
     .run = mcp_mosaic_peak,
     .is_mosaic = true},
    {.name = "categorical_profiling",
     .title = "Memory by category, as Mosaic answers it",
     .help = "Peak memory by category (activation, parameter, optimizer, ...), in the form of "
             "Mosaic's tool.",
     .arguments = mosaic_categories_arguments,
     .run = mcp_mosaic_categories,
     .is_mosaic = true},
    {.name = "annotation_analysis",
     .title = "Memory at each annotation",
     .help = "Memory at the start and end of each annotated stage of training (record_function "
             "ranges), counted from zero at the start of the recording, in the form of Mosaic's "
             "tool.",
     .arguments = mosaic_annotations_arguments,
     .run = mcp_mosaic_annotations,
     .is_mosaic = true},
    {.name = "memory_diff",
     .title = "Difference of two peaks, as Mosaic answers it",
     .help = "Stacks at the peak that only one of two snapshots has, in the form of Mosaic's tool; "
             "also those that grew or shrank. tessera_diff is shorter.",
     .arguments = mosaic_diff_arguments,
     .run = mcp_mosaic_diff,
     .is_mosaic = true},
    {.name = "compare_snapshots_tool",
     .title = "Two snapshots side by side, as Mosaic answers it",
     .help = "Peaks, categories and differing stacks of two snapshots in one answer, in the form "
             "of Mosaic's tool.",
     .arguments = mosaic_compare_arguments,
     .run = mcp_mosaic_compare,
     .is_mosaic = true},
    {.name = NULL},
};
