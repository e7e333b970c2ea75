/* mcp_tools.c - the table of tools, and those that ask tessera's own questions.
 *
 * A tool's answer is the JSON of the command of that name (docs/json.md), written by the same
 * report, with stacks folded to the frames of the program and its verdict in words before all else.
 * What a report writes is read back into a tree, so that it can be bounded (mcp_bound.c) and put
 * into a message. A report may hold what jansson refuses: lone surrogates, and integers beyond 63
 * bits; the first become U+FFFD, and a report with the second is read once more with all numbers as
 * reals.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mcp.h"
#include "parse.h"
#include "textfile.h"

#define SETTINGS_MAX 16
#define MATCHES_MAX  16

/* ---- Reports ---- */

/* What a report wrote, ended by a zero. */
typedef struct text_buffer {
  char *data;
  size_t size, capacity;
} text_buffer;

static int keep(void *context, const char *data, size_t size_bytes) {
  text_buffer *out = context;
  if (out->capacity - out->size <= size_bytes) {
    size_t larger = 2 * (out->size + size_bytes) + 1;
    char *moved = realloc(out->data, larger);
    if (!moved) return -1;
    out->data = moved;
    out->capacity = larger;
  }
  memcpy(out->data + out->size, data, size_bytes);
  out->size += size_bytes;
  out->data[out->size] = '\0';
  return 0;
}

/* tsr_report_NAME for any answer; a report about one file takes the first input. */
typedef int report_fn(const tsr_report_input *inputs, const void *answer,
                      const tsr_report_options *options, tsr_write_fn *write, void *context,
                      tsr_error *error);

#define REPORT(name)                                                                              \
  static int report_##name(const tsr_report_input *inputs, const void *answer,                    \
                           const tsr_report_options *options, tsr_write_fn *write, void *context, \
                           tsr_error *error) {                                                    \
    return tsr_report_##name(inputs, answer, options, write, context, error);                     \
  }
REPORT(at)
REPORT(info)
REPORT(leaks)
REPORT(peak)
REPORT(profile)
REPORT(source)
REPORT(stages)
REPORT(steps)
REPORT(whatif)

static int report_diff(const tsr_report_input *inputs, const void *answer,
                       const tsr_report_options *options, tsr_write_fn *write, void *context,
                       tsr_error *error) {
  return tsr_report_diff(&inputs[0], &inputs[1], answer, options, write, context, error);
}

/* "\udXXX" without its other half, which no strict reader takes, becomes "\ufffd". */
static void mend_surrogates(text_buffer *text) {
  for (size_t i = 0; i + 5 < text->size; i++) {
    char *at = text->data + i;
    if (at[0] != '\\') continue;
    bool is_high = at[1] == 'u' && at[2] == 'd' && strchr("89ab", at[3]) && at[3];
    bool is_low = at[1] == 'u' && at[2] == 'd' && strchr("cdef", at[3]) && at[3];
    bool has_low = is_high && i + 11 < text->size && at[6] == '\\' && at[7] == 'u' &&
                   at[8] == 'd' && strchr("cdef", at[9]);
    if (has_low)
      i += 11;
    else if (is_high || is_low)
      for (size_t k = 0; k < 4; k++) at[2 + k] = "fffd"[k];
    else
      i++;
  }
}

static json_t *parse(text_buffer *text) {
  if (!text->data) return NULL;
  mend_surrogates(text);
  json_t *tree = json_loadb(text->data, text->size, JSON_ALLOW_NUL, NULL);
  return tree ? tree
              : json_loadb(text->data, text->size, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
}

/* The lines that say the answer: the first, and those that begin with a device. */
static json_t *verdict_of(const text_buffer *text) {
  json_t *lines = json_array();
  const char *at = text->data ? text->data : "";
  for (bool is_first = true; *at; is_first = false) {
    size_t size = strcspn(at, "\n");
    if (is_first || strncmp(at, "Device ", 7) == 0)
      json_array_append_new(lines, mcp_string((tsr_text){at, size}));
    at += size + (at[size] == '\n');
  }
  return lines;
}

/* An answer's report as a tree, its verdict first. */
static json_t *tree_of(mcp_call *call, report_fn *report, const void *answer,
                       const tsr_report_input *inputs) {
  int64_t frames = mcp_integer(call, "max_frames");
  tsr_report_options plain = {.format = TSR_REPORT_TEXT, .quiet = true, .width = 400};
  tsr_report_options data = {.format = TSR_REPORT_JSON,
                             .stack_frames = frames == MCP_UNSET ? 0 : (uint32_t)frames};
  text_buffer words = {0}, values = {0};
  json_t *tree = NULL, *out = NULL;
  if (report(inputs, answer, &plain, keep, &words, &call->error) == 0 &&
      report(inputs, answer, &data, keep, &values, &call->error) == 0) {
    tree = parse(&values);
    out = json_pack("{s:o}", "verdict", verdict_of(&words));
    if (!tree || !out || json_object_update(out, tree)) {
      mcp_fail(call, "the answer could not be put into a message");
      json_decref(out);
      out = NULL;
    }
  }
  json_decref(tree);
  free(words.data);
  free(values.data);
  return out;
}

/* ---- What tools share ---- */

const char *mcp_failure(const mcp_call *call, char *text, size_t size_bytes) {
  const char *reason = call->error.message;
  if (!*reason) reason = tsr_status_text(call->error.status);
  if (*call->message)
    (void)snprintf(text, size_bytes, "%s", call->message);
  else if (call->path && call->error.offset != TSR_OFFSET_NONE)
    (void)snprintf(text, size_bytes, "%s: %s (at byte %" PRIu64 ")", call->path, reason,
                   call->error.offset);
  else if (call->path)
    (void)snprintf(text, size_bytes, "%s: %s", call->path, reason);
  else
    (void)snprintf(text, size_bytes, "%s", reason);
  return text;
}

bool mcp_open(mcp_call *call, const char *name, const tsr_snapshot **out) {
  call->path = mcp_text(call, name);
  return mcp_cache_open(call->cache, call->path, &call->how, out, &call->error) == 0;
}

/* A query by the arguments `device` and `top`; `device` must outlive it. */
static tsr_query query_of(const mcp_call *call, uint32_t *device) {
  int64_t number = mcp_integer(call, "device"), top = mcp_integer(call, "top");
  tsr_query query = {.top = top == MCP_UNSET ? 10 : (size_t)top};
  if (number == MCP_UNSET) return query;
  *device = (uint32_t)number;
  query.devices = device;
  query.device_count = 1;
  return query;
}

static tsr_report_input input_of(const mcp_call *call, const char *name,
                                 const tsr_snapshot *snapshot) {
  return (tsr_report_input){.path = mcp_text(call, name), .snapshot = snapshot};
}

/* ---- The tools ---- */

/* A tool that asks one file, and has no arguments but those of every query. */
#define TOOL(name)                                                              \
  static json_t *tool_##name(mcp_call *call) {                                  \
    const tsr_snapshot *snapshot;                                               \
    uint32_t device;                                                            \
    tsr_##name *answer = NULL;                                                  \
    tsr_query query = query_of(call, &device);                                  \
    if (!mcp_open(call, "path", &snapshot)) return NULL;                        \
    tsr_report_input input = input_of(call, "path", snapshot);                  \
    int status = tsr_##name##_compute(snapshot, &query, &answer, &call->error); \
    json_t *out = status ? NULL : tree_of(call, report_##name, answer, &input); \
    tsr_##name##_free(answer);                                                  \
    return out;                                                                 \
  }
TOOL(info)
TOOL(leaks)
TOOL(peak)
TOOL(steps)

static bool read_where(mcp_call *call, tsr_at_where *where) {
  static const tsr_action actions[] = {TSR_ACTION_ALLOC, TSR_ACTION_FREE_REQUESTED,
                                       TSR_ACTION_FREE_COMPLETED};
  static const char *const names[] = {"alloc", "free_requested", "free_completed"};
  int64_t event = mcp_integer(call, "event"), time = mcp_integer(call, "time_us");
  const char *allocation = mcp_text(call, "allocation"), *action = mcp_text(call, "action");
  if ((event != MCP_UNSET) + (time != MCP_UNSET) + (allocation != NULL) != 1) {
    mcp_fail(call, "give one of event, time_us and allocation, to choose the moment");
    return false;
  }
  *where = (tsr_at_where){
      .kind = event != MCP_UNSET ? TSR_AT_EVENT : TSR_AT_TIME, .event = event, .time_us = time};
  if (!allocation) return true;
  where->kind = TSR_AT_ALLOCATION;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!action || strcmp(action, names[i]) == 0) {
      where->action = actions[i];
      break;
    }
  if (cli_parse_allocation(allocation, where)) return true;
  mcp_fail(call, "argument 'allocation' takes ADDRESS_VERSION, such as 7f36b8000000_1");
  return false;
}

static json_t *tool_at(mcp_call *call) {
  const tsr_snapshot *snapshot;
  uint32_t device;
  tsr_at *at = NULL;
  tsr_at_where where;
  tsr_query query = query_of(call, &device);
  if (!read_where(call, &where) || !mcp_open(call, "path", &snapshot)) return NULL;
  tsr_report_input input = input_of(call, "path", snapshot);
  int status = tsr_at_compute(snapshot, &where, &query, &at, &call->error);
  json_t *out = status ? NULL : tree_of(call, report_at, at, &input);
  tsr_at_free(at);
  return out;
}

/* The kind of groups, and the rules where those are theirs; false after mcp_fail. */
static bool read_profile(mcp_call *call, tsr_profile_options *how, tsr_rules **rules) {
  static const char *const names[] = {"category", "annotation", "compile-context", "rules"};
  const char *text = mcp_text(call, "rules"), *by = mcp_text(call, "by");
  tsr_rule_problem problem = {0};
  tsr_error error = {0};
  if (!by) by = text ? "rules" : "category";
  for (int kind = 0; kind < 4; kind++)
    if (strcmp(by, names[kind]) == 0) how->by = (tsr_profile_by)kind;
  if ((how->by == TSR_PROFILE_BY_RULES) != (text != NULL)) {
    mcp_fail(call, "argument 'rules' is needed with by: rules, and goes with nothing else");
    return false;
  }
  if (!text ||
      tsr_rules_parse(text, strlen(text), TSR_RULES_STRICT, rules, &problem, &error) == 0) {
    how->rules = *rules;
    return true;
  }
  if (problem.message[0])
    mcp_fail(call, "argument 'rules': rule '%.100s': %s, at offset %zu of '%.200s'",
             problem.rule.name, problem.message, problem.offset_bytes, problem.rule.pattern);
  else
    mcp_fail(call, "argument 'rules': %s", error.message);
  tsr_rule_problem_release(&problem);
  return false;
}

static json_t *tool_profile(mcp_call *call) {
  const tsr_snapshot *snapshot;
  uint32_t device;
  tsr_profile *profile = NULL;
  tsr_profile_options how = {0};
  tsr_rules *rules = NULL;
  tsr_query query = query_of(call, &device);
  json_t *out = NULL;
  if (read_profile(call, &how, &rules) && mcp_open(call, "path", &snapshot)) {
    tsr_report_input input = input_of(call, "path", snapshot);
    if (tsr_profile_compute(snapshot, &how, &query, &profile, &call->error) == 0)
      out = tree_of(call, report_profile, profile, &input);
  }
  tsr_profile_free(profile);
  tsr_rules_free(rules);
  return out;
}

static json_t *tool_stages(mcp_call *call) {
  const tsr_snapshot *snapshot;
  uint32_t device;
  const char *matches[MATCHES_MAX];
  tsr_stages *stages = NULL;
  tsr_stages_options how = {.matches = matches};
  tsr_query query = query_of(call, &device);
  const json_t *list = json_object_get(call->arguments, "match");
  how.match_count = json_array_size(list);
  if (how.match_count > MATCHES_MAX)
    return mcp_fail(call, "argument 'match' takes at most %d texts", MATCHES_MAX);
  for (size_t i = 0; i < how.match_count; i++)
    matches[i] = json_string_value(json_array_get(list, i));
  if (!mcp_open(call, "path", &snapshot)) return NULL;
  tsr_report_input input = input_of(call, "path", snapshot);
  int status = tsr_stages_compute(snapshot, &how, &query, &stages, &call->error);
  json_t *out = status ? NULL : tree_of(call, report_stages, stages, &input);
  tsr_stages_free(stages);
  return out;
}

/* The source that is asked about: a file's, or the text that was given; false after a failure.
 * `*read` is the caller's to free. */
static bool read_source(mcp_call *call, tsr_source_file *file, char **read) {
  file->path = mcp_text(call, "source_path");
  file->text = mcp_text(call, "source_text");
  if (file->text) {
    file->size_bytes = strlen(file->text);
    return true;
  }
  call->path = file->path;
  if (cli_read_text(file->path, CLI_TEXTFILE_REGULAR, read, &file->size_bytes, &call->error))
    return false;
  file->text = *read;
  return true;
}

static json_t *tool_source(mcp_call *call) {
  const tsr_snapshot *snapshot;
  uint32_t device;
  tsr_source *source = NULL;
  tsr_source_file file = {.path = NULL};
  tsr_query query = query_of(call, &device);
  char *read = NULL;
  json_t *out = NULL;
  if (read_source(call, &file, &read) && mcp_open(call, "path", &snapshot)) {
    tsr_report_input input = input_of(call, "path", snapshot);
    if (tsr_source_compute(snapshot, &file, &query, &source, &call->error) == 0)
      out = tree_of(call, report_source, source, &input);
  }
  tsr_source_free(source);
  free(read);
  return out;
}

/* The configurations to try, and the card; false after mcp_fail. */
static bool read_whatif(mcp_call *call, tsr_allocator_settings *settings, tsr_whatif_options *how) {
  const json_t *list = json_object_get(call->arguments, "settings");
  const char *capacity = mcp_text(call, "capacity");
  size_t count = json_array_size(list);
  if (count > SETTINGS_MAX) {
    mcp_fail(call, "argument 'settings' takes at most %d configurations", SETTINGS_MAX);
    return false;
  }
  for (size_t i = 0; i < count; i++) {
    const char *text = json_string_value(json_array_get(list, i));
    if (tsr_allocator_settings_parse(text, &settings[i], &call->error)) {
      mcp_fail(call, "argument 'settings': %s", call->error.message);
      return false;
    }
  }
  *how = (tsr_whatif_options){.settings = count ? settings : NULL, .setting_count = count};
  if (!capacity || cli_parse_size(capacity, &how->capacity_bytes)) return true;
  mcp_fail(call, "argument 'capacity' takes a size such as 24GiB, not '%.100s'", capacity);
  return false;
}

static json_t *tool_whatif(mcp_call *call) {
  const tsr_snapshot *snapshot;
  uint32_t device;
  tsr_whatif *whatif = NULL;
  tsr_whatif_options how;
  tsr_allocator_settings settings[SETTINGS_MAX];
  tsr_query query = query_of(call, &device);
  if (!read_whatif(call, settings, &how) || !mcp_open(call, "path", &snapshot)) return NULL;
  tsr_report_input input = input_of(call, "path", snapshot);
  int status = tsr_whatif_compute(snapshot, &how, &query, &whatif, &call->error);
  json_t *out = status ? NULL : tree_of(call, report_whatif, whatif, &input);
  tsr_whatif_free(whatif);
  return out;
}

static json_t *tool_diff(mcp_call *call) {
  const tsr_snapshot *before, *after;
  uint32_t device;
  tsr_diff *diff = NULL;
  tsr_query query = query_of(call, &device);
  if (!mcp_open(call, "old_path", &before) || !mcp_open(call, "new_path", &after)) return NULL;
  tsr_report_input inputs[] = {input_of(call, "old_path", before),
                               input_of(call, "new_path", after)};
  int status = tsr_diff_compute(before, after, TSR_DIFF_BY_STACK, &query, &diff, &call->error);
  json_t *out = status ? NULL : tree_of(call, report_diff, diff, inputs);
  tsr_diff_free(diff);
  return out;
}

/* ---- The table ---- */

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
     .choices = {"category", "annotation", "compile-context", "rules"},
     .help = "What to group by: category (default), the record_function range that was open, the "
             "compiled region, or rules of your own."},
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
static const mcp_argument diff_arguments[] = {
    PATH_ARGUMENT("old_path", "Path of the snapshot to compare with: the run before, or the rank "
                              "that is well."),
    PATH_ARGUMENT("new_path", "Path of the snapshot in question: the run after."),
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
     .run = tool_info},
    {.name = "tessera_peak",
     .title = "What holds the GPU memory at its peak?",
     .help = "Find the moment at which a PyTorch job had most GPU memory allocated, and rank the "
             "lines of code (stacks) that held it, with bytes, number of allocations and category; "
             "also what fragmentation cost. The tool for 'why does my job need so much memory' and "
             "for out-of-memory errors. Totals are absolute, memory from before the recording "
             "included.",
     .arguments = peak_arguments,
     .run = tool_peak},
    {.name = "tessera_at",
     .title = "What held the GPU memory at a chosen moment?",
     .help = "Like tessera_peak, for another moment than the peak: after an event number, at a "
             "time, or when a given block was allocated or freed.",
     .arguments = at_arguments,
     .run = tool_at},
    {.name = "tessera_profile",
     .title = "What kinds of memory make up the peak?",
     .help =
         "Divide the memory that is live at the peak into parameters, gradients, optimizer_state, "
         "activations, recomputed activations, temporaries, inputs, communication and "
         "workspaces, each with the evidence for it; what nothing explains is unexplained. Tells "
         "which technique would help: activation checkpointing, sharding, another "
         "optimizer.",
     .arguments = profile_arguments,
     .run = tool_profile},
    {.name = "tessera_stages",
     .title = "How high did memory go in each annotated stage?",
     .help = "Memory at the start and end of each record_function range, and the peak inside it. "
             "The tool for 'which part of the step needs most'.",
     .arguments = stages_arguments,
     .run = tool_stages},
    {.name = "tessera_steps",
     .title = "Where do training steps begin, and what does one take?",
     .help = "Find the steps of a training run without any marks in the program: how many there "
             "are, what a steady one peaks at, whether warm-up went higher, and the peaks of "
             "forward, backward and optimizer.",
     .arguments = info_arguments,
     .run = tool_steps},
    {.name = "tessera_leaks",
     .title = "What grows from step to step?",
     .help = "Rank the stacks whose memory grows with every training step, with bytes a step. The "
             "tool for jobs that run out of memory after a while.",
     .arguments = leaks_arguments,
     .run = tool_leaks},
    {.name = "tessera_source",
     .title = "Which lines of a source file hold memory at the peak?",
     .help = "Bytes at the peak for each line, function and class of one Python file: of the line "
             "itself, and of all that was called from it.",
     .arguments = source_arguments,
     .run = tool_source},
    {.name = "tessera_whatif",
     .title = "What would other allocator settings or another card do?",
     .help = "Replay the recorded allocations under other settings of PYTORCH_CUDA_ALLOC_CONF, or "
             "with the memory of another card: how much each would reserve, what it would save, "
             "and where it would run out of memory. The tool for fragmentation.",
     .arguments = whatif_arguments,
     .run = tool_whatif},
    {.name = "tessera_diff",
     .title = "What changed between two runs?",
     .help = "Compare the peaks of two snapshots stack by stack and rank what was added, removed, "
             "grew or shrank. The tool for regressions, and for two ranks of one job.",
     .arguments = diff_arguments,
     .run = tool_diff},
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
