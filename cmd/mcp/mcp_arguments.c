/* mcp_arguments.c - a tool's arguments: the schema a client is shown, and reading what it sends.
 *
 * Language models fill these in, so reading is lenient where the meaning is plain (a number sent as
 * text, a null for an optional one); otherwise the message states what is expected. An unknown
 * argument is refused, so that a misspelt one is not silently ignored; Mosaic's tools ignore it, as
 * Mosaic does.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mcp.h"

json_t *mcp_fail(mcp_call *call, const char *format, ...) {
  va_list args;
  va_start(args, format);
  (void)vsnprintf(call->message, sizeof call->message, format, args);
  va_end(args);
  return NULL;
}

const char *mcp_text(const mcp_call *call, const char *name) {
  return json_string_value(json_object_get(call->arguments, name));
}

int64_t mcp_integer(const mcp_call *call, const char *name) {
  const json_t *value = json_object_get(call->arguments, name);
  return json_is_integer(value) ? json_integer_value(value) : MCP_UNSET;
}

bool mcp_flag(const mcp_call *call, const char *name) {
  return json_is_true(json_object_get(call->arguments, name));
}

/* ---- The schema ---- */

/* A choice with a number or a text ("chunked:N", "metadata:KEY") does not fit an enumeration: then any text may be sent, and
 * the help describes it. */
static json_t *choices_of(const tsr_parameter *row) {
  json_t *list = json_array();
  for (size_t i = 0; row->choices[i]; i++)
    if (strchr(row->choices[i], ':') || json_array_append_new(list, json_string(row->choices[i]))) {
      json_decref(list);
      return NULL;
    }
  return list;
}

static void describe_integer(const mcp_argument *argument, json_t *out) {
  json_object_set_new(out, "minimum", json_integer(argument->least));
  if (argument->most != INT64_MAX)
    json_object_set_new(out, "maximum", json_integer(argument->most));
  if (argument->fallback != MCP_UNSET)
    json_object_set_new(out, "default", json_integer(argument->fallback));
}

/* What explains the argument, in `text` if its parameter lists words. */
static const char *help_of(const mcp_argument *argument, char text[TSR_PARAMETER_HELP_BYTES]) {
  bool is_of_row = argument->row && argument->help == argument->row->help;
  return is_of_row ? tsr_parameter_help(argument->row, text, TSR_PARAMETER_HELP_BYTES)
                   : argument->help;
}

static json_t *describe_argument(const mcp_argument *argument) {
  char help[TSR_PARAMETER_HELP_BYTES];
  static const char *const types[] = {[MCP_TEXT] = "string",
                                      [MCP_INTEGER] = "integer",
                                      [MCP_FLAG] = "boolean",
                                      [MCP_TEXTS] = "array"};
  json_t *out = json_pack("{s:s, s:s}", "type", types[argument->kind], "description",
                          help_of(argument, help));
  if (argument->kind == MCP_INTEGER) describe_integer(argument, out);
  if (argument->word)
    json_object_set_new(out, "type", json_pack("[s, s]", types[MCP_INTEGER], types[MCP_TEXT]));
  if (argument->kind == MCP_FLAG)
    json_object_set_new(out, "default", json_boolean(argument->fallback));
  json_t *item = argument->kind == MCP_TEXTS ? json_pack("{s:s}", "type", "string") : NULL;
  if (item) json_object_set_new(out, "items", item);
  json_t *choices = argument->row && argument->row->choices ? choices_of(argument->row) : NULL;
  if (choices) json_object_set_new(item ? item : out, "enum", choices);
  return out;
}

static json_t *describe_arguments(const mcp_argument *arguments) {
  json_t *properties = json_object(), *required = json_array();
  for (const mcp_argument *a = arguments; a->name; a++) {
    json_object_set_new(properties, a->name, describe_argument(a));
    if (a->is_required) json_array_append_new(required, json_string(a->name));
  }
  return json_pack("{s:s, s:o, s:o, s:b}", "type", "object", "properties", properties, "required",
                   required, "additionalProperties", 0);
}

json_t *mcp_tool_describe(const mcp_tool *tool, bool is_old) {
  json_t *out = json_pack("{s:s, s:s, s:o}", "name", tool->name, "description", tool->help,
                          "inputSchema", describe_arguments(tool->arguments));
  if (is_old) return out;
  json_object_set_new(out, "title", json_string(tool->title));
  json_object_set_new(out, "annotations",
                      json_pack("{s:s, s:b, s:b, s:b, s:b}", "title", tool->title, "readOnlyHint",
                                1, "destructiveHint", 0, "idempotentHint", 1, "openWorldHint", 0));
  return out;
}

/* ---- Reading ---- */

/* An integer, also sent as 10.0 or "10". */
static bool read_integer(const json_t *given, json_int_t *out) {
  if (json_is_integer(given)) {
    *out = json_integer_value(given);
    return true;
  }
  if (json_is_real(given)) {
    double real = json_real_value(given);
    if (!(real > -9e15 && real < 9e15) || real != (double)(json_int_t)real) return false;
    *out = (json_int_t)real;
    return true;
  }
  const char *text = json_string_value(given);
  char *end = NULL;
  if (!text || !*text) return false;
  errno = 0;
  *out = strtoll(text, &end, 10);
  return *end == '\0' && !errno;
}

static json_t *fail_integer(mcp_call *call, const mcp_argument *argument) {
  if (argument->most == INT64_MAX)
    return mcp_fail(call, "argument '%s' must be an integer of at least %" PRId64, argument->name,
                    argument->least);
  return mcp_fail(call, "argument '%s' must be an integer from %" PRId64 " to %" PRId64,
                  argument->name, argument->least, argument->most);
}

static json_t *value_of_integer(mcp_call *call, const mcp_argument *argument, const json_t *given) {
  json_int_t number;
  if (!read_integer(given, &number) || number < argument->least || number > argument->most)
    return fail_integer(call, argument);
  return json_integer(number);
}

static json_t *value_of_flag(mcp_call *call, const mcp_argument *argument, const json_t *given) {
  const char *text = json_string_value(given);
  bool is_true = json_is_true(given) || (text && strcmp(text, "true") == 0);
  bool is_false = json_is_false(given) || (text && strcmp(text, "false") == 0);
  if (is_true || is_false) return json_boolean(is_true);
  return mcp_fail(call, "argument '%s' must be true or false", argument->name);
}

static json_t *value_of_text(mcp_call *call, const mcp_argument *argument, const json_t *given) {
  const char *text = json_string_value(given);
  if (!text || (argument->is_required && !*text))
    return mcp_fail(call, "argument '%s' must be a non-empty string", argument->name);
  return json_string(text);
}

static json_t *value_of_texts(mcp_call *call, const mcp_argument *argument, const json_t *given) {
  if (json_is_string(given)) return json_pack("[O]", given);
  bool ok = json_is_array(given);
  for (size_t i = 0; ok && i < json_array_size(given); i++)
    ok = json_is_string(json_array_get(given, i));
  if (ok) return json_deep_copy(given);
  return mcp_fail(call, "argument '%s' must be a list of strings", argument->name);
}

static json_t *value_of(mcp_call *call, const mcp_argument *argument, const json_t *given) {
  bool is_given = given && !json_is_null(given);
  char help[TSR_PARAMETER_HELP_BYTES];
  if (!is_given && argument->is_required)
    return mcp_fail(call, "argument '%s' is missing: %s", argument->name, help_of(argument, help));
  switch (argument->kind) {
  case MCP_INTEGER:
    if (is_given && argument->word && json_is_string(given) &&
        strcmp(json_string_value(given), argument->word) == 0)
      return json_integer(argument->word_value);
    if (is_given && argument->other_word && json_is_string(given) &&
        strcmp(json_string_value(given), argument->other_word) == 0)
      return json_integer(argument->other_value);
    if (is_given) return value_of_integer(call, argument, given);
    return argument->fallback == MCP_UNSET ? json_null() : json_integer(argument->fallback);
  case MCP_FLAG:
    return is_given ? value_of_flag(call, argument, given) : json_boolean(argument->fallback);
  case MCP_TEXT: return is_given ? value_of_text(call, argument, given) : json_null();
  case MCP_TEXTS: break;
  }
  return is_given ? value_of_texts(call, argument, given) : json_null();
}

static bool knows(const mcp_tool *tool, const char *name) {
  for (const mcp_argument *a = tool->arguments; a->name; a++)
    if (strcmp(a->name, name) == 0) return true;
  return false;
}

static bool refuse_unknown(mcp_call *call, const json_t *given) {
  const char *key;
  json_t *value;
  if (!call->tool->question) return true;
  json_object_foreach((json_t *)(uintptr_t)given, key, value) {
    if (knows(call->tool, key)) continue;
    char all[512] = "";
    for (const mcp_argument *a = call->tool->arguments; a->name; a++) {
      size_t used = strlen(all);
      (void)snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "", a->name);
    }
    mcp_fail(call, "no argument '%.100s'; %s takes: %s", key, call->tool->name, all);
    return false;
  }
  return true;
}

/* ---- Arguments that are parameters of a question ---- */

/* Any value but a text, as the text that it would be. */
static int set_dumped(mcp_call *call, const char *name, const json_t *given) {
  char *text = json_dumps(given, JSON_ENCODE_ANY | JSON_COMPACT);
  if (!text) return TSR_ERROR_MEMORY;
  int status = tsr_params_set_text(call->params, name, text, strlen(text), &call->error);
  free(text);
  return status;
}

static int set_value(mcp_call *call, const tsr_parameter *row, const json_t *given) {
  json_int_t number;
  if (json_is_string(given))
    return tsr_params_set_text(call->params, row->name, json_string_value(given),
                               json_string_length(given), &call->error);
  if (json_is_boolean(given) && row->kind == TSR_PARAMETER_FLAG)
    return tsr_params_set_integer(call->params, row->name, json_is_true(given), &call->error);
  if (json_is_number(given) && read_integer(given, &number))
    return tsr_params_set_integer(call->params, row->name, number, &call->error);
  return set_dumped(call, row->name, given);
}

/* A list is a value for each item where the parameter gathers several. */
static int set_values(mcp_call *call, const mcp_argument *argument, const json_t *given) {
  int status = 0;
  if (argument->kind != MCP_TEXTS || !json_is_array(given))
    return set_value(call, argument->row, given);
  if (json_array_size(given) > MCP_LIST_MAX) {
    mcp_fail(call, "argument '%s' takes at most %d values", argument->name, MCP_LIST_MAX);
    return TSR_ERROR_ARGUMENT;
  }
  for (size_t i = 0; status == 0 && i < json_array_size(given); i++)
    status = set_value(call, argument->row, json_array_get(given, i));
  return status;
}

/* Hand the argument to `call->params`; false when it is not what it should be. */
static bool take_parameter(mcp_call *call, const mcp_argument *argument, const json_t *given) {
  bool is_given = given && !json_is_null(given);
  char help[TSR_PARAMETER_HELP_BYTES];
  if (!is_given && argument->is_required) {
    mcp_fail(call, "argument '%s' is missing: %s", argument->name, help_of(argument, help));
    return false;
  }
  return !is_given || set_values(call, argument, given) == 0;
}

bool mcp_names_file(const tsr_parameter *row) {
  bool is_model = row->type && row->type->parse_typed;
  return row->kind == TSR_PARAMETER_FILE || is_model;
}

/* Files are kept as arguments, and read by the tool. */
static bool is_parameter(const mcp_argument *argument) {
  return argument->row && !mcp_names_file(argument->row);
}

json_t *mcp_arguments_read(mcp_call *call, const json_t *given) {
  json_t *out = json_object();
  bool ok = out && refuse_unknown(call, given);
  for (const mcp_argument *a = call->tool->arguments; ok && a->name; a++) {
    const json_t *one = json_object_get(given, a->name);
    if (is_parameter(a)) {
      ok = take_parameter(call, a, one);
      continue;
    }
    json_t *value = value_of(call, a, one);
    ok = value && json_object_set_new(out, a->name, value) == 0;
  }
  if (ok) return out;
  json_decref(out);
  return NULL;
}
