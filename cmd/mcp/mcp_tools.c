/* mcp_tools.c - asking a question of the registry.
 *
 * A tool's answer is the JSON of the command of that name (docs/json.md), written by the same
 * report, with stacks folded to the frames of the program and its verdict in words first. What a
 * report writes is read back into a tree, so that it can be bounded (mcp_bound.c) and put into a
 * message. A report may contain what jansson rejects: lone surrogates, and integers beyond 63 bits;
 * the first become U+FFFD (mcp_parse.c), and a report with the second is read once more with all numbers as
 * reals.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/session.h"
#include "core/textfile.h"
#include "mcp.h"

/* ---- Reports ---- */

static json_t *parse_with(const cli_text *text) {
  json_t *tree = NULL;
  int status = mcp_load(text->data, text->size, JSON_ALLOW_NUL, &tree, NULL);
  if (status == TSR_ERROR_FORMAT)
    (void)mcp_load(text->data, text->size, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &tree, NULL);
  return tree;
}

/* A key may be a name from the file; jansson takes no zero byte there. */
static json_t *parse(cli_text *text) {
  if (!text->data) return NULL;
  mcp_mend(text->data, text->size, false);
  json_t *tree = parse_with(text);
  if (tree) return tree;
  mcp_mend(text->data, text->size, true);
  return parse_with(text);
}

/* The lines of the verdict as a list. */
static json_t *lines_of(const cli_text *text) {
  json_t *lines = json_array();
  for (const char *at = text->data ? text->data : ""; *at;) {
    size_t size = strcspn(at, "\n");
    json_array_append_new(lines, mcp_string((tsr_text){at, size}));
    at += size + (at[size] == '\n');
  }
  return lines;
}

/* An answer as a tree, its verdict first. */
static json_t *tree_of(mcp_call *call, const tsr_answer *answer) {
  int64_t frames = mcp_integer(call, "max_frames");
  tsr_report_options data = {.format = TSR_REPORT_JSON,
                             .stack_frames = frames == MCP_UNSET ? 0 : (uint32_t)frames};
  tsr_report_options prose = {.quiet = true};
  cli_text words = {0}, values = {0}, text = {0};
  json_t *tree = NULL, *out = NULL;
  if (tsr_answer_verdict(answer, cli_text_append, &words, &call->error) == 0 &&
      tsr_answer_write(answer, &data, cli_text_append, &values, &call->error) == 0) {
    tree = parse(&values);
    /* An answer may have a verdict of its own, in one word. */
    bool has_word = json_object_get(tree, "verdict") != NULL;
    json_t *lines = lines_of(&words);
    mcp_name_tools(lines);
    out = json_pack("{s:o}", has_word ? "in_words" : "verdict", lines);
    if (!tree || !out || json_object_update(out, tree)) {
      mcp_fail(call, "the answer could not be encoded");
      json_decref(out);
      out = NULL;
    }
  }
  if (out && call->brief_bytes &&
      tsr_answer_write(answer, &prose, cli_text_append, &text, &call->error) == 0 && text.data)
    mcp_brief(out, text.data, call->brief_bytes);
  if (words.is_lost || values.is_lost || text.is_lost) mcp_memory_note();
  json_decref(tree);
  free(words.data);
  free(text.data);
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

bool mcp_open(mcp_call *call, const char *name, tsr_study **out) {
  call->path = mcp_text(call, name);
  return mcp_cache_open(call->cache, call->path, &call->how, out, &call->error) == 0;
}

/* A query by the arguments `device` and `top`; `device` must outlive it. */
static tsr_query query_of(const mcp_call *call, uint32_t *device) {
  int64_t number = mcp_integer(call, "device"), top = mcp_integer(call, "top");
  tsr_query query = {.top = top == MCP_UNSET ? 10 : (size_t)top,
                     .progress = call->how.progress,
                     .progress_context = call->how.progress_context};
  if (number == MCP_UNSET) return query;
  *device = (uint32_t)number;
  query.devices = device;
  query.device_count = 1;
  return query;
}

/* ---- Files that parameters name ---- */

/* Contents that the client sent, or else those of a regular file here. */
static bool load_file(mcp_call *call, const tsr_parameter *row) {
  char path_name[48], text_name[48];
  (void)snprintf(path_name, sizeof path_name, "%s_path", row->name);
  (void)snprintf(text_name, sizeof text_name, "%s_text", row->name);
  const char *path = mcp_text(call, path_name), *text = mcp_text(call, text_name);
  size_t size_bytes = text ? strlen(text) : 0;
  char *read = NULL;
  int status = 0;
  if (!path && !text) return true;
  if (!text) {
    call->path = path;
    status = cli_read_text(path, CLI_TEXTFILE_REGULAR, &read, &size_bytes, &call->error);
    text = read;
  }
  if (status == 0)
    status = tsr_params_set_file(call->params, row->name, path ? path : "", text, size_bytes,
                                 &call->error);
  free(read);
  return status == 0;
}

/* What is typed - the name of a model - or a file of it, by its path or by its contents. */
static bool load_typed(mcp_call *call, const tsr_parameter *row) {
  const char *text = mcp_text(call, row->name);
  char *read = NULL;
  size_t size_bytes = text ? strlen(text) : 0;
  int status = 0;
  if (!text) return true;
  call->path = text;
  if (*text == '{') {
    status = tsr_params_set_file(call->params, row->name, "", text, size_bytes, &call->error);
  } else if (cli_is_model_file(text)) {
    status = cli_read_text(text, CLI_TEXTFILE_REGULAR, &read, &size_bytes, &call->error);
    if (status == 0)
      status = tsr_params_set_file(call->params, row->name, text, read, size_bytes, &call->error);
  } else {
    status = tsr_params_set_text(call->params, row->name, text, size_bytes, &call->error);
  }
  free(read);
  return status == 0;
}

static bool load_files(mcp_call *call) {
  const tsr_question *question = call->tool->question;
  const tsr_parameter *row;
  bool ok = true;
  for (size_t i = 0; ok && (row = tsr_question_parameter(question, i)); i++) {
    if (row->hidden_from & TSR_INTERFACE_MCP || !mcp_names_file(row)) continue;
    ok = row->kind == TSR_PARAMETER_FILE ? load_file(call, row) : load_typed(call, row);
  }
  return ok;
}

/* ---- Asking ---- */

json_t *mcp_ask(mcp_call *call) {
  const tsr_question *question = call->tool->question;
  tsr_subject subjects[TSR_QUESTION_SUBJECTS] = {{0}};
  tsr_answer *answer = NULL;
  uint32_t device;
  tsr_query query = query_of(call, &device);
  if (!load_files(call)) return NULL;
  call->path = NULL;
  if (tsr_question_check(question, call->params, &call->error)) return NULL;
  for (size_t i = 0; i < question->subject_count; i++) {
    const char *name = question->subjects[i].name;
    if (!mcp_open(call, name, &subjects[i].study)) return NULL;
    subjects[i].name = mcp_text(call, name);
  }
  const char *model = question->subject_count ? NULL : mcp_text(call, "model");
  size_t path_count = 0;
  const char *const *paths = tsr_params_find(call->params, "paths", strlen("paths"))
                                 ? tsr_params_texts(call->params, "paths", &path_count)
                                 : NULL;
  size_t count = question->subject_count ? question->subject_count : 1;
  if (!question->subject_count) subjects[0].name = model && *model != '{' ? model : "the model";
  if (!question->subject_count && path_count) subjects[0].name = paths[0];
  int status = tsr_ask(question, subjects, count, call->params, &query, &answer, &call->error);
  json_t *out = status ? NULL : tree_of(call, answer);
  tsr_answer_free(answer);
  return out;
}
