/* mcp.c - `tessera mcp`: tessera as a server of the Model Context Protocol.
 *
 * A client, mostly a program around a language model, starts this one and talks with it over
 * standard input and output: JSON-RPC 2.0, one message a line. Everything else goes to standard
 * error. The end of input is the end of the program.
 *
 *   line ──► message ──► method ──► tool ──► answer, bounded ──► message
 *
 * Versions to 2025-11-25 begin with `initialize`, which settles one for the connection. From
 * 2026-07-28 there is no beginning: each request has its version in `_meta`, and `server/discover`
 * lists the versions. What a version does not have, its clients do not see.
 *
 * One message is answered after the other. While a file is read, what has arrived is looked at for
 * a cancellation (mcp_input_cancels), and reports how far reading has come to a client that asked.
 * Nothing that a client sends ends the server but the end of its input.
 *
 * The protocol is at https://modelcontextprotocol.io/specification.
 */
#define _POSIX_C_SOURCE 200809L

#include "mcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/terminal.h>
#include <time.h>
#include <unistd.h>

#include "core/message.h"
#include "core/session.h"
#include "core/system.h"

#define PROGRESS_MS 250
/* What a language model is shown of one answer, about 16,000 tokens. */
#define ANSWER_BYTES ((size_t)64 << 10)
/* Of those that begin a conversation, unless more is asked for. */
#define BRIEF_BYTES ((size_t)6000)

enum {
  PARSE_ERROR = -32700,
  INVALID_REQUEST = -32600,
  METHOD_NOT_FOUND = -32601,
  INVALID_PARAMS = -32602,
  INTERNAL_ERROR = -32603,
  UNSUPPORTED_VERSION = -32022
};

/* In the order of time; see `versions`. */
typedef enum version {
  VERSION_2024_11, /* batches */
  VERSION_2025_03, /* batches, annotations */
  VERSION_2025_06, /* structured answers, titles */
  VERSION_2025_11,
  VERSION_2026_07, /* without a handshake */
  VERSION_COUNT
} version;

static const char *const versions[VERSION_COUNT] = {"2024-11-05", "2025-03-26", "2025-06-18",
                                                    "2025-11-25", "2026-07-28"};
#define NEWEST_HANDSHAKE VERSION_2025_11

static const char version_key[] = "io.modelcontextprotocol/protocolVersion";
static const char server_key[] = "io.modelcontextprotocol/serverInfo";

static const char instructions[] =
    "tessera reads PyTorch GPU memory snapshots (torch.cuda.memory._dump_snapshot) and answers "
    "where the memory went. Begin with tessera_why if the job ran out of memory (files with _oom "
    "in their names), with tessera_ranks for a folder of many ranks, and otherwise with "
    "tessera_peak; 'verdict' is the answer in one line, 'stacks' are ranked by bytes, frames are "
    "innermost first. tessera_diff compares two files, tessera_whatif tries allocator settings or "
    "another card, tessera_at looks at another moment. Before anything has run, tessera_plan "
    "finds how a model fits into a budget. Sizes are in bytes; present them in GiB. The other "
    "tools answer in Mosaic's format, for clients written for it. Snapshots stay open between "
    "calls, so asking again is cheap.";

typedef struct server {
  cli_session *session;
  mcp_input input;
  mcp_cache cache;
  version settled; /* by initialize */
  size_t answer_bytes;
  bool is_limit_given; /* --max-answer */
  int status;          /* nothing more can be written, or memory ran out for an error */
} server;

/* A request being answered. */
typedef struct request {
  server *server;
  const json_t *id, *params;
  version version;
  const json_t *progress_token; /* NULL: the client requested no progress */
  int64_t told_ms;
  bool is_cancelled;
} request;

/* ---- Output ---- */

static void send(server *s, json_t *message) {
  FILE *stream = cli_output_stream(&s->session->output);
  char *text = message && stream && !s->status ? json_dumps(message, JSON_COMPACT) : NULL;
  errno = 0;
  if (mcp_memory_ran_out())
    s->status = TSR_ERROR_MEMORY;
  else if (text && (fputs(text, stream) == EOF || fputc('\n', stream) == EOF || fflush(stream))) {
    s->session->output.error_number = cli_system_write_error(stream);
    s->status = TSR_ERROR_WRITE;
  }
  free(text);
  json_decref(message);
}

/* `id` may be NULL: a message whose id is not known. */
static json_t *error_with(const json_t *id, int code, const char *text, json_t *data) {
  json_t *error = json_pack("{s:i, s:s}", "code", code, "message", text);
  if (data) json_object_set_new(error, "data", data);
  json_t *copy = id ? json_deep_copy(id) : json_null();
  return json_pack("{s:s, s:o, s:o}", "jsonrpc", "2.0", "id", copy, "error", error);
}

static json_t *error_of(const json_t *id, int code, const char *text) {
  return error_with(id, code, text, NULL);
}

static json_t *server_info(version v) {
  json_t *info = json_pack("{s:s, s:s}", "name", "tessera", "version", tsr_version());
  if (v >= VERSION_2025_06) json_object_set_new(info, "title", json_string("tessera"));
  return info;
}

/* A response; takes the result. */
static json_t *respond(const request *r, json_t *result) {
  if (!result) return error_of(r->id, INTERNAL_ERROR, "out of memory");
  if (r->version >= VERSION_2026_07) {
    json_object_set_new(result, "resultType", json_string("complete"));
    json_object_set_new(result, "_meta", json_pack("{s:o}", server_key, server_info(r->version)));
  }
  return json_pack("{s:s, s:o, s:o}", "jsonrpc", "2.0", "id", json_deep_copy(r->id), "result",
                   result);
}

/* ---- While a file is read ---- */

static int64_t now_ms(void) {
  struct timespec now;
  if (clock_gettime(CLOCK_MONOTONIC, &now)) return 0;
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A tsr_progress_fn. */
static bool look_around(void *context, uint64_t done_bytes, uint64_t total_bytes) {
  request *r = context;
  int64_t now = now_ms();
  if (now - r->told_ms < PROGRESS_MS) return true;
  r->told_ms = now;
  if (mcp_input_cancels(&r->server->input, r->id)) r->is_cancelled = true;
  if (r->progress_token && !r->is_cancelled) {
    json_t *params = json_pack("{s:o, s:I}", "progressToken", json_deep_copy(r->progress_token),
                               "progress", (json_int_t)done_bytes);
    if (total_bytes) json_object_set_new(params, "total", json_integer((json_int_t)total_bytes));
    send(r->server, json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method",
                              "notifications/progress", "params", params));
  }
  return !r->is_cancelled && !r->server->status;
}

/* ---- Methods ---- */

static json_t *capabilities(void) {
  return json_pack("{s:{s:b}}", "tools", "listChanged", 0);
}

static json_t *initialize(request *r) {
  const char *asked = json_string_value(json_object_get(r->params, "protocolVersion"));
  if (!asked) return error_of(r->id, INVALID_PARAMS, "initialize needs a protocolVersion");
  version v = NEWEST_HANDSHAKE;
  for (int i = 0; i <= NEWEST_HANDSHAKE; i++)
    if (strcmp(versions[i], asked) == 0) v = (version)i;
  r->server->settled = v;
  return respond(r, json_pack("{s:s, s:o, s:o, s:s}", "protocolVersion", versions[v],
                              "capabilities", capabilities(), "serverInfo", server_info(v),
                              "instructions", instructions));
}

/* For clients that cache an answer: it is valid as long as the program runs. */
static void allow_keeping(json_t *result) {
  json_object_set_new(result, "ttlMs", json_integer(3600000));
  json_object_set_new(result, "cacheScope", json_string("public"));
}

static json_t *discover(request *r) {
  json_t *list = json_array();
  for (int i = 0; i < VERSION_COUNT; i++) json_array_append_new(list, json_string(versions[i]));
  json_t *result = json_pack("{s:o, s:o, s:s}", "supportedVersions", list, "capabilities",
                             capabilities(), "instructions", instructions);
  allow_keeping(result);
  r->version = VERSION_2026_07;
  return respond(r, result);
}

static json_t *ping(request *r) {
  return respond(r, json_object());
}

/* --tools: which part of the table is shown and can be called. */
static bool is_offered(const server *s, const mcp_tool *tool) {
  const tsr_params *own = s->session->options->own;
  bool has_choice = tsr_params_find(own, "tools", strlen("tools")) != NULL; /* not mosaic_mcp */
  int which = has_choice ? tsr_params_choice(own, "tools") : 0;
  return which <= 0 || (which == 1) == (tool->question != NULL);
}

static json_t *list_tools(request *r) {
  json_t *list = json_array();
  mcp_tool tool;
  for (size_t i = 0; mcp_tool_at(i, &tool); i++)
    if (is_offered(r->server, &tool))
      json_array_append_new(list, mcp_tool_describe(&tool, r->version < VERSION_2025_03));
  json_t *result = json_pack("{s:o}", "tools", list);
  if (r->version >= VERSION_2026_07) allow_keeping(result);
  return respond(r, result);
}

/* ---- tools/call ---- */

static json_t *tool_result(const request *r, json_t *answer, const char *text, bool is_error) {
  json_t *content = json_pack("[{s:s, s:s}]", "type", "text", "text", text);
  json_t *result = json_pack("{s:o, s:b}", "content", content, "isError", is_error);
  if (answer && r->version >= VERSION_2025_06) json_object_set(result, "structuredContent", answer);
  return respond(r, result);
}

/* The text of an answer, which its reader, a language model, sees as a person sees a terminal: characters that are not drawn are
 * escaped there as well. With one of them all others are, too. NULL when out of memory; the caller's. */
static char *text_of(const json_t *answer) {
  char *text = json_dumps(answer, JSON_COMPACT), *clean = text ? strdup(text) : NULL;
  size_t length = clean ? strlen(text) : 0;
  bool is_clean = clean && tsr_terminal_clean(clean, length, false) == length &&
                  memcmp(clean, text, length) == 0;
  if (is_clean) {
    free(clean);
    return text;
  }
  free(text);
  text = clean ? json_dumps(answer, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
  free(clean);
  return text;
}

/* Bound an answer and wrap it. Takes the answer. */
static json_t *deliver(const request *r, const mcp_call *call, json_t *answer) {
  char *text = NULL;
  json_t *events = json_object_get(answer, "events"), *summary = json_object_get(answer, "summary");
  if (mcp_bound(answer, call->brief_bytes ? call->brief_bytes : r->server->answer_bytes)) {
    if (call->tool->question == NULL && events && json_object_get(summary, "returned_event_count"))
      json_object_set_new(summary, "returned_event_count",
                          json_integer((json_int_t)json_array_size(events)));
    text = text_of(answer);
  }
  json_t *message =
      text ? tool_result(r, answer, text, false) : error_of(r->id, INTERNAL_ERROR, "out of memory");
  free(text);
  json_decref(answer);
  return message;
}

static json_t *explain(const request *r, const mcp_call *call) {
  char text[1280];
  if (call->tool->question == NULL && call->arguments)
    return deliver(r, call, mcp_mosaic_failure(call));
  return tool_result(r, NULL, mcp_failure(call, text, sizeof text), true);
}

/* The size of a short answer; 0 if the question has none, or the call or --max-answer wants another size. */
static size_t brief_bytes(const request *r, const mcp_tool *tool, const json_t *arguments) {
  bool is_brief = tool->question && (strcmp(tool->question->name, "peak") == 0 ||
                                     strcmp(tool->question->name, "why") == 0);
  bool wants_more = r->server->is_limit_given || json_object_get(arguments, "top") ||
                    json_object_get(arguments, "max_frames");
  return is_brief && !wants_more ? BRIEF_BYTES : 0;
}

static json_t *run_tool(request *r, const mcp_tool *tool, const json_t *arguments) {
  mcp_call call = {.tool = tool,
                   .cache = &r->server->cache,
                   .how = {.progress = look_around, .progress_context = r},
                   .brief_bytes = brief_bytes(r, tool, arguments),
                   .error = {.offset = TSR_OFFSET_NONE}};
  r->server->cache.call++;
  r->told_ms = now_ms();
  const tsr_question *question = tool->question;
  int status = 0;
  if (question)
    status = tsr_question_params(question, TSR_INTERFACE_MCP, &call.params, &call.error);
  if (status == 0) call.arguments = mcp_arguments_read(&call, arguments);
  json_t *answer = call.arguments ? tool->run(&call) : NULL;
  if (!r->is_cancelled) r->is_cancelled = mcp_input_cancels(&r->server->input, r->id);
  json_t *message = NULL;
  if (r->is_cancelled)
    json_decref(answer);
  else
    message = answer ? deliver(r, &call, answer) : explain(r, &call);
  json_decref(call.arguments);
  tsr_params_free(call.params);
  return message;
}

static json_t *call_tool(request *r) {
  const char *name = json_string_value(json_object_get(r->params, "name"));
  const json_t *arguments = json_object_get(r->params, "arguments");
  if (!name) return error_of(r->id, INVALID_PARAMS, "tools/call needs the name of a tool");
  if (arguments && !json_is_object(arguments) && !json_is_null(arguments))
    return error_of(r->id, INVALID_PARAMS, "arguments must be an object");
  mcp_tool tool;
  if (mcp_tool_find(name, &tool) && is_offered(r->server, &tool))
    return run_tool(r, &tool, arguments);
  return error_of(r->id, INVALID_PARAMS, "no such tool; tools/list lists them");
}

/* ---- Messages ---- */

static const struct {
  const char *name;
  json_t *(*answer)(request *r);
} methods[] = {
    {"initialize", initialize}, {"server/discover", discover}, {"ping", ping},
    {"tools/list", list_tools}, {"tools/call", call_tool},
};

/* What versions there are, as the error of one that is not. */
static json_t *refuse_version(const json_t *id, const char *asked) {
  json_t *list = json_array();
  for (int i = 0; i < VERSION_COUNT; i++) json_array_append_new(list, json_string(versions[i]));
  return error_with(id, UNSUPPORTED_VERSION, "unsupported protocol version",
                    json_pack("{s:o, s:s}", "supported", list, "requested", asked));
}

static json_t *answer_request(server *s, const json_t *id, const char *method,
                              const json_t *params) {
  const json_t *meta = json_object_get(params, "_meta");
  const json_t *asked = json_object_get(meta, version_key);
  request r = {.server = s,
               .id = id,
               .params = params,
               .version = s->settled,
               .progress_token = json_object_get(meta, "progressToken")};
  if (asked) {
    int v = 0;
    if (!json_is_string(asked)) return error_of(id, INVALID_PARAMS, "a version must be a string");
    while (v < VERSION_COUNT && strcmp(versions[v], json_string_value(asked)) != 0) v++;
    if (v == VERSION_COUNT) return refuse_version(id, json_string_value(asked));
    r.version = (version)v;
  }
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
    if (strcmp(methods[i].name, method) == 0) return methods[i].answer(&r);
  return error_of(id, METHOD_NOT_FOUND, "no such method");
}

/* `problem` is what the line of the message contains that none may, or "". */
static json_t *answer_any(server *s, const json_t *message, const char *problem) {
  const json_t *id = json_object_get(message, "id"), *params = json_object_get(message, "params");
  const char *method = json_string_value(json_object_get(message, "method"));
  const char *dialect = json_string_value(json_object_get(message, "jsonrpc"));
  bool is_named = json_is_string(id) || json_is_number(id);
  if (*problem && !method) return error_of(is_named ? id : NULL, PARSE_ERROR, problem);
  if (*problem) return is_named ? error_of(id, INVALID_PARAMS, problem) : NULL;
  if (!json_is_object(message))
    return error_of(NULL, INVALID_REQUEST, "a message must be an object");
  if (!method && (json_object_get(message, "result") || json_object_get(message, "error")))
    return NULL; /* a response, to nothing that was asked */
  if (!method || !dialect || strcmp(dialect, "2.0") != 0)
    return error_of(is_named ? id : NULL, INVALID_REQUEST,
                    "a request must have jsonrpc \"2.0\" and a method");
  if (!id) return NULL;
  if (!is_named) return error_of(NULL, INVALID_REQUEST, "an id must be a string or a number");
  if (params && !json_is_object(params))
    return error_of(id, INVALID_PARAMS, "params must be an object");
  return answer_request(s, id, method, params);
}

/* The response to one message, or NULL: notifications have none. */
static json_t *answer_message(server *s, const json_t *message, const char *problem) {
  const json_t *id = json_object_get(message, "id");
  json_t *response = answer_any(s, message, problem);
  if (!mcp_memory_ran_out()) return response;
  json_decref(response);
  return id ? error_of(id, INTERNAL_ERROR, "out of memory") : NULL;
}

static void answer_batch(server *s, const json_t *batch, const char *problem) {
  if (!json_array_size(batch) || s->settled > VERSION_2025_03) {
    send(s, error_of(NULL, INVALID_REQUEST,
                     json_array_size(batch) ? "this version of the protocol has no batches"
                                            : "a batch must not be empty"));
    return;
  }
  json_t *responses = json_array();
  for (size_t i = 0; i < json_array_size(batch); i++) {
    json_t *response = answer_message(s, json_array_get(batch, i), problem);
    if (response) json_array_append_new(responses, response);
  }
  if (json_array_size(responses))
    send(s, responses);
  else
    json_decref(responses);
}

static void answer_line(server *s, const char *line, size_t size_bytes) {
  char problem[MCP_PROBLEM_BYTES];
  size_t blank = 0;
  while (blank < size_bytes && strchr(" \t\r", line[blank])) blank++;
  if (blank == size_bytes) return;
  json_t *message = mcp_parse(line, size_bytes, problem);
  if (mcp_memory_ran_out())
    send(s, error_of(NULL, INTERNAL_ERROR, "out of memory"));
  else if (!message)
    send(s, error_of(NULL, PARSE_ERROR, problem));
  else if (json_is_array(message))
    answer_batch(s, message, problem);
  else
    send(s, answer_message(s, message, problem));
  json_decref(message);
}

static int serve(server *s) {
  const char *line;
  size_t size;
  while (!s->status) {
    switch (mcp_input_next(&s->input, &line, &size)) {
    case MCP_LINE: answer_line(s, line, size); break;
    case MCP_LINE_TOO_LONG:
      send(s, error_of(NULL, INVALID_REQUEST, "a message may have at most 4 MiB"));
      break;
    case MCP_LINE_END: return 0;
    case MCP_LINE_FAILED:
      if (errno == ENOMEM) return TSR_ERROR_MEMORY;
      cli_say("mcp", "standard input: %s", strerror(errno));
      return CLI_FAULT;
    }
  }
  return s->status;
}

static const tsr_parameter mcp_parameters[] = {
    {.name = "tools",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "WHICH",
     .help = "Offer all tools (default), only tessera's, or only Mosaic's.",
     .choices = (const char *const[]){"all", "tessera", "mosaic", NULL}},
    {.name = "max_answer",
     .option = "max-answer",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "SIZE",
     .help = "Limit the size of an answer by shortening lists, 0 for no limit (default: 64KiB)."},
};

const cli_command cli_mcp_row = {
    .about =
        {.name = "mcp",
         .summary = "let a language model ask",
         .situation = TSR_SITUATION_PROGRAMS,
         .description =
             "Serves the Model Context Protocol on standard input and standard output, for "
             "programs around language models, which start it themselves. Its tools give the same "
             "answers as the commands, ranked and bounded; Mosaic's tools are also included, under "
             "their names.\n\nThe last few snapshots, up to 2 GiB of memory, are kept open between "
             "questions, and read again when their file has changed. Files are only ever read.",
         .parameters = mcp_parameters,
         .parameter_count = sizeof mcp_parameters / sizeof *mcp_parameters,
         .examples = {{"tessera mcp", "the server command to register with a client"},
                      {"tessera mcp --tools tessera --max-answer 32KiB",
                       "only tessera's own tools, with short answers"}}},
    .operands = "",
    .run = cli_mcp,
};

int cli_mcp(cli_session *session) {
  const tsr_params *own = session->options->own;
  bool has_limit = tsr_params_find(own, "max-answer", strlen("max-answer")) != NULL;
  const char *limit = has_limit ? tsr_params_text(own, "max_answer") : NULL;
  uint64_t bytes = ANSWER_BYTES;
  server s = {.session = session, .input.handle = STDIN_FILENO, .settled = NEWEST_HANDSHAKE};
  if (limit && strcmp(limit, "0") == 0)
    bytes = 0;
  else if (limit && !tsr_size_parse(limit, &bytes))
    return cli_usage_error(session->options->command,
                           "option '--max-answer' takes a size such as 64KiB, not '%s'", limit);
  s.is_limit_given = limit != NULL;
  s.answer_bytes = bytes > SIZE_MAX ? 0 : (size_t)bytes;
  if (isatty(STDIN_FILENO))
    cli_say(
        "mcp",
        "waiting for messages on standard input; this command is meant to be started by a client");
  mcp_memory_begin();
  int status = serve(&s);
  mcp_memory_end();
  mcp_input_release(&s.input);
  mcp_cache_release(&s.cache);
  return status;
}
