/* mcp_tools.c - the tools that ask tessera's own questions.
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

#include "budget.h"
#include "mcp.h"
#include "parse.h"
#include "textfile.h"

#define SETTINGS_MAX 16
#define MATCHES_MAX  16
#define BUDGETS_MAX  16

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
REPORT(why)

static int report_check(const tsr_report_input *inputs, const void *answer,
                        const tsr_report_options *options, tsr_write_fn *write, void *context,
                        tsr_error *error) {
  bool is_json = options->format == TSR_REPORT_JSON;
  tsr_check_face face = {.format = is_json ? TSR_CHECK_JSON : TSR_CHECK_TEXT};
  return tsr_report_check(inputs, answer, &face, options, write, context, error);
}

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
  json_t *mcp_tool_##name(mcp_call *call) {                                     \
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

json_t *mcp_tool_at(mcp_call *call) {
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
  static const char *const names[] = {
      "category", "annotation", "compile-context", "rules", "op", "module", "line", "stack"};
  const char *text = mcp_text(call, "rules"), *by = mcp_text(call, "by");
  tsr_rule_problem problem = {0};
  tsr_error error = {0};
  if (!by) by = text ? "rules" : "category";
  for (int kind = 0; kind < MCP_CHOICES_MAX; kind++)
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

json_t *mcp_tool_profile(mcp_call *call) {
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

json_t *mcp_tool_stages(mcp_call *call) {
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

json_t *mcp_tool_source(mcp_call *call) {
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

/* The configurations to try; false after mcp_fail. */
static bool read_settings(mcp_call *call, tsr_allocator_settings *settings, size_t *count) {
  const json_t *list = json_object_get(call->arguments, "settings");
  *count = json_array_size(list);
  if (*count > SETTINGS_MAX) {
    mcp_fail(call, "argument 'settings' takes at most %d configurations", SETTINGS_MAX);
    return false;
  }
  for (size_t i = 0; i < *count; i++) {
    const char *text = json_string_value(json_array_get(list, i));
    if (tsr_allocator_settings_parse(text, &settings[i], &call->error)) {
      mcp_fail(call, "argument 'settings': %s", call->error.message);
      return false;
    }
  }
  return true;
}

/* The card; false after mcp_fail. */
static bool read_capacity(mcp_call *call, uint64_t *bytes) {
  const char *capacity = mcp_text(call, "capacity");
  if (!capacity || cli_parse_size(capacity, bytes)) return true;
  mcp_fail(call, "argument 'capacity' takes a size such as 24GiB, not '%.100s'", capacity);
  return false;
}

json_t *mcp_tool_whatif(mcp_call *call) {
  const tsr_snapshot *snapshot;
  uint32_t device;
  tsr_whatif *whatif = NULL;
  tsr_allocator_settings settings[SETTINGS_MAX];
  tsr_whatif_options how = {.settings = NULL};
  tsr_query query = query_of(call, &device);
  if (!read_settings(call, settings, &how.setting_count) ||
      !read_capacity(call, &how.capacity_bytes) || !mcp_open(call, "path", &snapshot))
    return NULL;
  if (how.setting_count) how.settings = settings;
  tsr_report_input input = input_of(call, "path", snapshot);
  int status = tsr_whatif_compute(snapshot, &how, &query, &whatif, &call->error);
  json_t *out = status ? NULL : tree_of(call, report_whatif, whatif, &input);
  tsr_whatif_free(whatif);
  return out;
}

json_t *mcp_tool_why(mcp_call *call) {
  const tsr_snapshot *snapshot;
  uint32_t device;
  tsr_why *why = NULL;
  tsr_allocator_settings settings[SETTINGS_MAX];
  int64_t event = mcp_integer(call, "event");
  tsr_why_options how = {.event = event == MCP_UNSET ? -1 : event, .settings = settings};
  tsr_query query = query_of(call, &device);
  if (!read_settings(call, settings, &how.setting_count) ||
      !read_capacity(call, &how.capacity_bytes) || !mcp_open(call, "path", &snapshot))
    return NULL;
  tsr_report_input input = input_of(call, "path", snapshot);
  int status = tsr_why_compute(snapshot, &how, &query, &why, &call->error);
  json_t *out = status ? NULL : tree_of(call, report_why, why, &input);
  tsr_why_free(why);
  return out;
}

/* The budgets; false after mcp_fail. */
static bool read_budgets(mcp_call *call, tsr_check_limit *limits, tsr_check_options *how) {
  char why[CLI_BUDGET_WHY_BYTES];
  const json_t *list = json_object_get(call->arguments, "max");
  const char *reserved = mcp_text(call, "max_reserved");
  size_t count = json_array_size(list);
  how->limits = limits;
  if (count > BUDGETS_MAX) {
    mcp_fail(call, "argument 'max' takes at most %d budgets", BUDGETS_MAX);
    return false;
  }
  for (size_t i = 0; i < count; i++)
    if (!cli_budget_parse(json_string_value(json_array_get(list, i)), &limits[how->limit_count++],
                          why)) {
      mcp_fail(call, "argument 'max'%s", why);
      return false;
    }
  if (reserved && !cli_budget_parse_reserved(reserved, &limits[how->limit_count++], why)) {
    mcp_fail(call, "argument 'max_reserved'%s", why);
    return false;
  }
  if (cli_budget_parse_tolerance(mcp_text(call, "tolerance"), how, why)) return true;
  mcp_fail(call, "argument 'tolerance'%s", why);
  return false;
}

/* The lock, where there is one; false after a failure. */
static bool read_lock(mcp_call *call, tsr_lock **lock) {
  char *text = NULL;
  size_t size_bytes = 0;
  call->path = mcp_text(call, "lock_path");
  if (!call->path) return true;
  int status = cli_read_text(call->path, CLI_TEXTFILE_REGULAR, &text, &size_bytes, &call->error);
  if (status == 0) status = tsr_lock_parse(text, size_bytes, lock, &call->error);
  free(text);
  return status == 0;
}

json_t *mcp_tool_check(mcp_call *call) {
  const tsr_snapshot *snapshot;
  uint32_t device;
  tsr_check *check = NULL;
  tsr_check_limit limits[BUDGETS_MAX + 1];
  tsr_check_options how = {.limits = NULL};
  tsr_lock *lock = NULL;
  tsr_query query = query_of(call, &device);
  json_t *out = NULL;
  bool ok = read_budgets(call, limits, &how) && read_lock(call, &lock);
  if (ok && !how.limit_count && !lock)
    ok = mcp_fail(call, "nothing to check: give max, max_reserved or lock_path") != NULL;
  how.lock = lock;
  if (ok && mcp_open(call, "path", &snapshot)) {
    tsr_report_input input = input_of(call, "path", snapshot);
    if (tsr_check_compute(snapshot, &how, &query, &check, &call->error) == 0)
      out = tree_of(call, report_check, check, &input);
  }
  tsr_check_free(check);
  tsr_lock_free(lock);
  return out;
}

json_t *mcp_tool_diff(mcp_call *call) {
  const tsr_snapshot *before, *after;
  uint32_t device;
  tsr_diff *diff = NULL;
  tsr_query query = query_of(call, &device);
  if (!mcp_open(call, "old_path", &before) || !mcp_open(call, "new_path", &after)) return NULL;
  tsr_report_input inputs[] = {input_of(call, "old_path", before),
                               input_of(call, "new_path", after)};
  static const char *const names[] = {"stack", "category", "op", "line"};
  const char *word = mcp_text(call, "by");
  tsr_diff_by by = TSR_DIFF_BY_STACK;
  for (int i = 0; word && i < 4; i++)
    if (strcmp(word, names[i]) == 0) by = (tsr_diff_by)i;
  int status = tsr_diff_compute(before, after, by, &query, &diff, &call->error);
  json_t *out = status ? NULL : tree_of(call, report_diff, diff, inputs);
  tsr_diff_free(diff);
  return out;
}
