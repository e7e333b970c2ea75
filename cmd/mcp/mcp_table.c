/* mcp_table.c - the list of tools: one for each question of the registry, and Mosaic's.
 *
 * A question's tool is called tessera_NAME. Its arguments are its snapshots, its parameters, and those
 * that the protocol adds to all: which device, how much of what is ranked, and how much of each stack.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "mcp.h"

/* ---- Mosaic's ---- */

typedef struct mosaic_tool {
  const char *name, *title, *help;
  const mcp_argument *arguments;
  mcp_tool_fn *run;
} mosaic_tool;

#define PATH_ARGUMENT(argument, text) \
  { .name = (argument), .kind = MCP_TEXT, .is_required = true, .help = (text) }
#define MOSAIC_PATH "Path of a PyTorch memory snapshot."
#define MOSAIC_TOP(count)                                                              \
  {                                                                                    \
    .name = "top_n", .kind = MCP_INTEGER, .fallback = (count), .most = 1000000,        \
    .help = "Number of stacks to list, largest first; 0 = all that fit in the answer." \
  }
static const mcp_argument mosaic_peak_arguments[] = {
    PATH_ARGUMENT("snapshot_path", MOSAIC_PATH),
    {.name = "print_stack",
     .kind = MCP_FLAG,
     .fallback = 1,
     .help = "Whether to fill call_stack; false returns only the numbers."},
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

static const mosaic_tool mosaic_tools[] = {
    {.name = "peak_memory_analysis",
     .title = "Peak memory, in Mosaic's format",
     .help = "Stacks at the peak of the recorded allocations, in the format of Mosaic's tool. "
             "tessera_peak is shorter and counts memory from before the recording.",
     .arguments = mosaic_peak_arguments,
     .run = mcp_mosaic_peak},
    {.name = "categorical_profiling",
     .title = "Memory by category, in Mosaic's format",
     .help = "Peak memory by category (activation, parameter, optimizer, ...), in the format of "
             "Mosaic's tool.",
     .arguments = mosaic_categories_arguments,
     .run = mcp_mosaic_categories},
    {.name = "annotation_analysis",
     .title = "Memory at each annotation",
     .help = "Memory at the start and end of each annotated stage of training (record_function "
             "ranges), counted from zero at the start of the recording, in the format of Mosaic's "
             "tool.",
     .arguments = mosaic_annotations_arguments,
     .run = mcp_mosaic_annotations},
    {.name = "memory_diff",
     .title = "Difference of two peaks, in Mosaic's format",
     .help = "Stacks at the peak that only one of two snapshots has, in the format of Mosaic's "
             "tool; also those that grew or shrank. tessera_diff is shorter.",
     .arguments = mosaic_diff_arguments,
     .run = mcp_mosaic_diff},
    {.name = "compare_snapshots_tool",
     .title = "Two snapshots side by side, in Mosaic's format",
     .help = "Peaks, categories and differing stacks of two snapshots in one answer, in the format "
             "of Mosaic's tool.",
     .arguments = mosaic_compare_arguments,
     .run = mcp_mosaic_compare},
};

enum { MOSAIC_TOOLS = sizeof mosaic_tools / sizeof *mosaic_tools };

static void tool_of_mosaic(const mosaic_tool *from, mcp_tool *out) {
  *out = (mcp_tool){.title = from->title, .help = from->help, .run = from->run};
  (void)snprintf(out->name, sizeof out->name, "%s", from->name);
  for (const mcp_argument *a = from->arguments; a->name; a++)
    out->arguments[out->argument_count++] = *a;
}

/* ---- Questions ---- */

/* The next argument of a tool. */
static mcp_argument *add(mcp_tool *tool, mcp_argument argument) {
  assert(tool->argument_count + 1 < MCP_ARGUMENTS_MAX);
  mcp_argument *out = &tool->arguments[tool->argument_count++];
  *out = argument;
  return out;
}

/* An argument called as the parameter is, and `suffix`. */
static mcp_argument *add_named(mcp_tool *tool, mcp_argument argument, const char *suffix) {
  mcp_argument *out = add(tool, argument);
  (void)snprintf(out->own_name, sizeof out->own_name, "%s%s", argument.row->name, suffix);
  out->name = out->own_name;
  return out;
}

static mcp_kind kind_of(const tsr_parameter *row) {
  switch (row->kind) {
  case TSR_PARAMETER_FLAG:
  case TSR_PARAMETER_TRUTH: return MCP_FLAG;
  case TSR_PARAMETER_COUNT:
  case TSR_PARAMETER_TIME:
  case TSR_PARAMETER_INTEGER: return MCP_INTEGER;
  case TSR_PARAMETER_TEXTS:
  case TSR_PARAMETER_CHOICES:
  case TSR_PARAMETER_SETTINGS: return MCP_TEXTS;
  default: return MCP_TEXT;
  }
}

/* A file is given by its path, or by its contents where the client may have it and the server not. */
static void add_parameter(mcp_tool *tool, const tsr_parameter *row) {
  bool has_default = row->kind == TSR_PARAMETER_COUNT && row->fallback;
  mcp_argument argument = {.kind = kind_of(row),
                           .is_required = row->is_operand && !row->is_optional,
                           .fallback = has_default ? row->fallback : MCP_UNSET,
                           .least = row->least,
                           .most = INT64_MAX,
                           .help = row->advice ? row->advice : row->help,
                           .row = row};
  if (row->hidden_from & TSR_INTERFACE_MCP || row->kind == TSR_PARAMETER_SNAPSHOT) return;
  if (argument.kind == MCP_FLAG) argument.fallback = 0;
  add_named(tool, argument, row->kind == TSR_PARAMETER_FILE ? "_path" : "");
  if (!row->contents_advice) return;
  argument.is_required = false;
  argument.help = row->contents_advice;
  add_named(tool, argument, "_text");
}

static void tool_of_question(const tsr_question *question, mcp_tool *out) {
  *out = (mcp_tool){
      .title = question->title, .help = question->advice, .run = mcp_ask, .question = question};
  (void)snprintf(out->name, sizeof out->name, "tessera_%s", question->name);
  for (size_t i = 0; i < question->subject_count; i++)
    add(out, (mcp_argument)PATH_ARGUMENT(question->subjects[i].name, question->subjects[i].advice));
  const tsr_parameter *row;
  for (size_t i = 0; (row = tsr_question_parameter(question, i)); i++) add_parameter(out, row);
  if (question->subject_count)
    add(out, (mcp_argument){.name = "device",
                            .kind = MCP_INTEGER,
                            .fallback = MCP_UNSET,
                            .most = TSR_DEVICE_CPU - 1,
                            .word = "host",
                            .word_value = TSR_DEVICE_HOST,
                            .other_word = "cpu",
                            .other_value = TSR_DEVICE_CPU,
                            .help = "Device number of the GPU, \"host\" for pinned CPU memory, or "
                                    "\"cpu\" for the CPU memory of a profiler's trace. "
                                    "Default: every device in the file."});
  if (question->ranks) {
    (void)snprintf(out->top_help, sizeof out->top_help,
                   "Number of %s to list, largest first. The rest is counted and summed.",
                   question->ranks);
    add(out, (mcp_argument){.name = "top",
                            .kind = MCP_INTEGER,
                            .fallback = 10,
                            .least = 1,
                            .most = 1000,
                            .help = out->top_help});
  }
  if (question->has_stacks)
    add(out,
        (mcp_argument){
            .name = "max_frames",
            .kind = MCP_INTEGER,
            .fallback = 8,
            .least = 1,
            .most = 1000,
            .help = "Number of frames to show per stack, innermost first; frames of the framework "
                    "and the interpreter are folded away and counted in folded_frames."});
}

/* ---- All ---- */

bool mcp_tool_at(size_t index, mcp_tool *out) {
  for (size_t i = 0; i < tsr_question_count(); i++) {
    const tsr_question *question = tsr_question_at(i);
    if (!question->title || index--) continue;
    tool_of_question(question, out);
    return true;
  }
  if (index >= MOSAIC_TOOLS) return false;
  tool_of_mosaic(&mosaic_tools[index], out);
  return true;
}

bool mcp_tool_find(const char *name, mcp_tool *out) {
  for (size_t i = 0; mcp_tool_at(i, out); i++)
    if (strcmp(out->name, name) == 0) return true;
  return false;
}
