/* mcp.h - the parts of `tessera mcp`, a server of the Model Context Protocol.
 *
 *   mcp.c            the protocol: messages in, messages out
 *   mcp_input.c      lines of standard input, bounded
 *   mcp_table.c      the table of tools
 *   mcp_tools.c      tessera's own
 *   mcp_mosaic.c     the tools that Mosaic has
 *   mcp_arguments.c  a tool's arguments: their schema, and reading them
 *   mcp_cache.c      the snapshots opened last
 *   mcp_bound.c      making an answer small enough
 *
 * To add a tool: write its function (see mcp_tool_diff in mcp_tools.c), give it a row in mcp_table.c and a
 * list of arguments. Its schema, the checks of what it is called with, and the bound on its answer
 * follow.
 *
 * JSON values are jansson's. A function that answers a `json_t *` gives the caller a reference, or
 * NULL when it fails; one that takes a value borrows it, unless it says otherwise.
 */
#ifndef CLI_MCP_H
#define CLI_MCP_H

#include <jansson.h>
#include <tessera/tessera.h>

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
/* Whether the lines that have arrived meanwhile cancel the request `id`. Never waits. */
bool mcp_input_cancels(mcp_input *input, const json_t *id);
void mcp_input_release(mcp_input *input);

/* ---- The snapshots opened last ---- */

#define MCP_CACHE_FILES 8
/* What they may hold together; those that a call uses are kept whatever they hold. */
#define MCP_CACHE_BYTES ((uint64_t)2 << 30)

typedef struct mcp_cached {
  char *path;
  uint64_t device, inode, size_bytes; /* of the file, as it was read */
  int64_t time_s, time_ns;
  tsr_snapshot *snapshot; /* NULL: the place is free */
  uint64_t held_bytes;    /* an estimate of its memory */
  uint64_t used;          /* the call that used it last */
} mcp_cached;

typedef struct mcp_cache {
  mcp_cached files[MCP_CACHE_FILES];
  uint64_t call; /* the number of this call */
} mcp_cache;

/* The snapshot in a regular file, read unless it is there already and the file has not changed.
 * It is the cache's, and stays until the next call (`cache->call`). Fails as tsr_snapshot_open. */
int mcp_cache_open(mcp_cache *cache, const char *path, const tsr_open_options *how,
                   const tsr_snapshot **out, tsr_error *error);
void mcp_cache_release(mcp_cache *cache);

/* ---- Tools ---- */

typedef enum mcp_kind {
  MCP_TEXT,
  MCP_INTEGER,
  MCP_FLAG,
  MCP_TEXTS, /* a list of texts, or one text */
} mcp_kind;

/* `fallback` of an integer that may be left out and has no value then. */
#define MCP_UNSET       INT64_MIN
#define MCP_CHOICES_MAX 8

typedef struct mcp_argument {
  const char *name; /* NULL ends a list */
  mcp_kind kind;
  bool is_required;
  int64_t fallback;                     /* of an integer or a flag that is left out */
  int64_t least, most;                  /* of an integer */
  const char *choices[MCP_CHOICES_MAX]; /* that a text may be; none: any */
  const char *help;                     /* for a language model that has to fill it in */
} mcp_argument;

struct mcp_call;

/* The answer, an object; or NULL after mcp_fail or with the call's `error` set. */
typedef json_t *mcp_tool_fn(struct mcp_call *call);

typedef struct mcp_tool {
  const char *name; /* NULL ends the table */
  const char *title;
  const char *help; /* for a language model that chooses among tools */
  const mcp_argument *arguments;
  mcp_tool_fn *run;
  bool is_mosaic; /* its errors are answers of Mosaic's form */
} mcp_tool;

extern const mcp_tool mcp_tools[];

/* A tool being called. */
typedef struct mcp_call {
  const mcp_tool *tool;
  json_t *arguments; /* checked; those left out have their fallback */
  mcp_cache *cache;
  tsr_open_options how; /* to open files with */
  const char *path;     /* the file that `error` is about, or NULL */
  tsr_error error;
  char message[1024]; /* said instead of `error` where not empty */
} mcp_call;

/* Say why the call fails; answers NULL. */
json_t *mcp_fail(mcp_call *call, const char *format, ...);
/* What there is to say of a failed call. Fills `text` and answers it. */
const char *mcp_failure(const mcp_call *call, char *text, size_t size_bytes);
/* Open the file that the argument `name` says; false when that fails. */
bool mcp_open(mcp_call *call, const char *name, const tsr_snapshot **out);

/* The value of an argument: NULL, MCP_UNSET or false where it has none. */
const char *mcp_text(const mcp_call *call, const char *name);
int64_t mcp_integer(const mcp_call *call, const char *name);
bool mcp_flag(const mcp_call *call, const char *name);

/* A tool as tools/list shows it: `inputSchema` and, unless `is_old`, title and annotations. */
json_t *mcp_tool_describe(const mcp_tool *tool, bool is_old);
/* Check what a tool is called with and fill in what was left out; `given` may be NULL. NULL after
 * mcp_fail. */
json_t *mcp_arguments_read(mcp_call *call, const json_t *given);

/* A text of a snapshot as a value: what is no UTF-8 becomes '?'. */
json_t *mcp_string(tsr_text text);

/* The tools. */
json_t *mcp_tool_at(mcp_call *call);
json_t *mcp_tool_check(mcp_call *call);
json_t *mcp_tool_diff(mcp_call *call);
json_t *mcp_tool_info(mcp_call *call);
json_t *mcp_tool_leaks(mcp_call *call);
json_t *mcp_tool_peak(mcp_call *call);
json_t *mcp_tool_profile(mcp_call *call);
json_t *mcp_tool_source(mcp_call *call);
json_t *mcp_tool_stages(mcp_call *call);
json_t *mcp_tool_steps(mcp_call *call);
json_t *mcp_tool_whatif(mcp_call *call);
json_t *mcp_tool_why(mcp_call *call);

/* Mosaic's tools, and the form that their errors have. */
json_t *mcp_mosaic_peak(mcp_call *call);
json_t *mcp_mosaic_categories(mcp_call *call);
json_t *mcp_mosaic_annotations(mcp_call *call);
json_t *mcp_mosaic_diff(mcp_call *call);
json_t *mcp_mosaic_compare(mcp_call *call);
json_t *mcp_mosaic_failure(const mcp_call *call);

/* ---- Size ---- */

/* Cut lists from their ends, and texts, until `answer` takes at most `limit_bytes` as JSON; says in
 * the members "left_out" and "hint" what was cut. False when memory ran out. */
bool mcp_bound(json_t *answer, size_t limit_bytes);

#endif
