/* mcp.h - the parts of `tessera mcp`, a server of the Model Context Protocol.
 *
 *   mcp.c            the protocol: messages in, messages out
 *   mcp_input.c      lines of standard input, bounded
 *   mcp_table.c      the list of tools: one for each question, and Mosaic's
 *   mcp_tools.c      asking a question of the registry
 *   mcp_mosaic.c     the tools that Mosaic has
 *   mcp_arguments.c  a tool's arguments: their schema, and reading them
 *   mcp_cache.c      the snapshots opened last
 *   mcp_bound.c      making an answer small enough
 *   mcp_brief.c      the short answers of peak and why
 *   mcp_memory.c     noticing that memory ran out
 *
 * A question that the registry has is a tool here, without a line being changed. To add one of Mosaic's:
 * write its function, and give it a row in mcp_table.c with a list of arguments. Its schema, the checks
 * of what it is called with, and the bound on its answer follow.
 *
 * JSON values are jansson's. A function that answers a `json_t *` gives the caller a reference, or
 * NULL when it fails; one that takes a value borrows it, unless it says otherwise.
 */
#ifndef CLI_MCP_H
#define CLI_MCP_H

#include <jansson.h>
#include <tessera/tessera.h>
#include <tessera/unstable/params.h>

/* ---- Input ---- */

/* The longest message that is read. */
#define MCP_LINE_BYTES ((size_t)4 << 20)

/* Bytes read and not yet used are data[start .. size). A zeroed struct with its handle is ready. */
typedef struct mcp_input {
  int handle;
  char *data;
  size_t start, size, capacity;
  size_t scanned;   /* no line ends before this */
  bool is_skipping; /* in a line that is too long */
  bool at_end;
} mcp_input;

typedef enum mcp_line { MCP_LINE, MCP_LINE_TOO_LONG, MCP_LINE_END, MCP_LINE_FAILED } mcp_line;

/* Wait for a line. `*line` stays until the next call of a function here. MCP_LINE_FAILED: reading
 * failed, or memory ran out. */
mcp_line mcp_input_next(mcp_input *input, const char **line, size_t *size_bytes);
/* Whether a line that has arrived since then cancels the request `id`. Never waits. */
bool mcp_input_cancels(mcp_input *input, const json_t *id);
void mcp_input_release(mcp_input *input);

/* ---- The snapshots opened last ---- */

#define MCP_CACHE_FILES 8
/* What they may hold together; those that a call uses are kept whatever they hold. */
#define MCP_CACHE_BYTES ((uint64_t)2 << 30)

typedef struct mcp_cached {
  char *path;
  uint64_t device, inode, size_bytes; /* of the file, as it was read */
  int64_t written_ns;
  tsr_snapshot *snapshot; /* NULL: the place is free */
  tsr_study *study;       /* of it: questions of one session replay a trace once */
  uint64_t held_bytes;    /* an estimate of its memory */
  uint64_t used;          /* the call that used it last */
} mcp_cached;

typedef struct mcp_cache {
  mcp_cached files[MCP_CACHE_FILES];
  uint64_t call; /* the number of this call */
} mcp_cache;

/* A study of the snapshot in a regular file, read unless it is there already and the file has not changed.
 * It is the cache's, and stays until the next call (`cache->call`). Fails as tsr_snapshot_open. */
int mcp_cache_open(mcp_cache *cache, const char *path, const tsr_open_options *how, tsr_study **out,
                   tsr_error *error);
void mcp_cache_release(mcp_cache *cache);

/* ---- Tools ---- */

typedef enum mcp_kind {
  MCP_TEXT,
  MCP_INTEGER,
  MCP_FLAG,
  MCP_TEXTS, /* a list of texts, or one text */
} mcp_kind;

/* `fallback` of an integer that may be left out and has no value then. */
#define MCP_UNSET INT64_MIN

typedef struct mcp_argument {
  const char *name; /* NULL ends a list; "": the row's own, with `suffix` */
  mcp_kind kind;
  bool is_required;
  int64_t fallback;       /* of an integer or a flag that is left out */
  int64_t least, most;    /* of an integer */
  const char *word;       /* an integer that may also be this text; or NULL */
  int64_t word_value;     /* which number it stands for */
  const char *other_word; /* another of the kind */
  int64_t other_value;
  const char *help; /* for a language model that has to fill it in */
  /* Of a question's parameter: its row, by which tsr_params checks the value. */
  const tsr_parameter *row;
  char own_name[48]; /* `name` points here where it is made up */
} mcp_argument;

struct mcp_call;

/* The answer, an object; or NULL after mcp_fail or with the call's `error` set. */
typedef json_t *mcp_tool_fn(struct mcp_call *call);

#define MCP_ARGUMENTS_MAX 80
/* Values of an argument that gathers several. */
#define MCP_LIST_MAX 32

typedef struct mcp_tool {
  char name[64];
  const char *title;
  const char *help;                          /* for a language model that chooses among tools */
  mcp_argument arguments[MCP_ARGUMENTS_MAX]; /* ends at a NULL name */
  size_t argument_count;
  mcp_tool_fn *run;
  const tsr_question *question; /* NULL for Mosaic's tools, whose errors are answers in Mosaic's
                                 * format */
  char top_help[160];
} mcp_tool;

/* The tools: those of questions, then Mosaic's. `out` must stay where it is: it points into itself.
 * False if no tool has that index or name. */
bool mcp_tool_at(size_t index, mcp_tool *out);
bool mcp_tool_find(const char *name, mcp_tool *out);

/* A tool being called. */
typedef struct mcp_call {
  const mcp_tool *tool;
  json_t *arguments;  /* checked; those left out have their fallback, or none if they have a row */
  tsr_params *params; /* the arguments that have a row; NULL for Mosaic's tools */
  mcp_cache *cache;
  tsr_open_options how; /* to open files with */
  size_t brief_bytes;   /* the size of a short answer; 0: a whole one was asked for */
  const char *path;     /* the file that `error` is about, or NULL */
  tsr_error error;
  char message[1024]; /* replaces `error` if not empty */
} mcp_call;

/* Whether a parameter is read from a file that the call names: always, or unless it is typed. */
bool mcp_names_file(const tsr_parameter *row);

/* Record why the call fails; returns NULL. */
json_t *mcp_fail(mcp_call *call, const char *format, ...);
/* The message of a failed call. Fills `text` and returns it. */
const char *mcp_failure(const mcp_call *call, char *text, size_t size_bytes);
/* Open the file named by the argument `name`; false when that fails. */
bool mcp_open(mcp_call *call, const char *name, tsr_study **out);

/* The value of an argument: NULL, MCP_UNSET or false where it has none. */
const char *mcp_text(const mcp_call *call, const char *name);
int64_t mcp_integer(const mcp_call *call, const char *name);
bool mcp_flag(const mcp_call *call, const char *name);

/* A tool as tools/list shows it: `inputSchema` and, unless `is_old`, title and annotations. */
json_t *mcp_tool_describe(const mcp_tool *tool, bool is_old);
/* Check what a tool is called with and fill in what was left out; `given` may be NULL. Arguments that
 * have a row go to `call->params`. NULL after mcp_fail or with the call's `error` set. */
json_t *mcp_arguments_read(mcp_call *call, const json_t *given);

#define MCP_PROBLEM_BYTES 256

/* tsr_json_load; that memory ran out is noted. */
int mcp_load(const char *text, size_t size_bytes, size_t flags, json_t **out, tsr_error *error);
/* A line as a tree; the caller owns it. NULL if it is no JSON, or memory ran out, which is noted. `problem` is then what is wrong; it is not
 * empty either if a text in the tree has a zero byte, or if texts or numbers had to be replaced in order
 * to read the line: such a message is not to be answered, except with an error. */
json_t *mcp_parse(const char *line, size_t size_bytes, char problem[MCP_PROBLEM_BYTES]);
/* In JSON of `size_bytes`, replace escapes of lone surrogates, which no strict reader takes, with
 * \ufffd, and those of zero bytes if `mends_zeros`. A zero follows the text. */
void mcp_mend(char *text, size_t size_bytes, bool mends_zeros);

/* A text of a snapshot as a value; '?' replaces what is not UTF-8. NULL if memory ran out, which is noted. */
json_t *mcp_string(tsr_text text);

/* A question's tool. */
json_t *mcp_ask(mcp_call *call);

/* Mosaic's tools, and the form that their errors have. */
json_t *mcp_mosaic_peak(mcp_call *call);
json_t *mcp_mosaic_categories(mcp_call *call);
json_t *mcp_mosaic_annotations(mcp_call *call);
json_t *mcp_mosaic_diff(mcp_call *call);
json_t *mcp_mosaic_compare(mcp_call *call);
json_t *mcp_mosaic_failure(const mcp_call *call);

/* ---- Memory ---- */

/* From here to there, failed allocations of jansson's are noted. Not nested. */
void mcp_memory_begin(void);
void mcp_memory_end(void);
/* Note another one. */
void mcp_memory_note(void);
/* Whether any was noted since this was asked last: what was made since then has holes. */
bool mcp_memory_ran_out(void);

/* ---- Size ---- */

/* Shorten lists and texts until `answer` takes at most `limit_bytes` as JSON; records in
 * the members "left_out" and "hint" what was cut. False when memory ran out. */
bool mcp_bound(json_t *answer, size_t limit_bytes);
/* Name tools instead of commands in texts: "`tessera why`" becomes "tessera_why". */
void mcp_name_tools(json_t *lines);
/* Make the answer of a question about a snapshot short: `text` is what the command prints, whose advice joins the verdict. Aims at
 * `limit_bytes`. */
void mcp_brief(json_t *answer, const char *text, size_t limit_bytes);

#endif
