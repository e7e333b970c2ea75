/* sql.c - `tessera sql FILE [QUERY]`: a snapshot as tables.
 *
 *   text of queries ──► shell ──► engine: SQLite, loaded on demand ──► rows ──► writer: table, CSV, JSON, Arrow
 *                                   └─► virtual tables ──► relations of the library (tessera/unstable/relations.h)
 *
 * docs/sql.md has the schema and worked queries, docs/decisions/069-sql.md the reasons. */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tessera/unstable/fleet.h>
#include <unistd.h>

#include "core/confine.h"
#include "core/endings.h"
#include "core/guard.h"
#include "prompt.h"

enum { DEFAULT_MEMORY_GIB = 4 };
enum { ENGINE_DUCKDB = 1 }; /* in `engines` */

static const char *const engines[] = {"sqlite", "duckdb", NULL};
static const char *const formats[] = {"table", "csv", "json", "arrow", "parquet", NULL};

static const tsr_parameter parameters[] = {
    {.name = "output",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "FORMAT",
     .help = "How rows are written: table (default), csv, json (a list of objects), arrow (an "
             "Arrow IPC file) or parquet (with DuckDB, where it is installed). The name given with "
             "-o selects a format too.",
     .choices = formats},
    {.name = "write",
     .letter = 'o',
     .kind = TSR_PARAMETER_PATH,
     .is_written = true,
     .argument = "FILE",
     .help = "Write the rows to FILE instead of standard output. FILE is replaced only when they "
             "are complete, and must not be an input."},
    {.name = "engine",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "ENGINE",
     .help = "What runs the queries: sqlite (default), which computes rows when they are asked "
             "for, or duckdb, where it is installed: it copies the columns that a query names, and "
             "has more functions.",
     .choices = engines},
    {.name = "time_limit",
     .option = "time-limit",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "SECONDS",
     .help = "End a query that takes longer (default: 0, unlimited)."},
    {.name = "pattern",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "REGEX",
     .help = "Over ranks: where a path tells its rank, as for tessera ranks."},
    {.name = "mesh",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "AXES",
     .help = "Over ranks: axes and sizes of the mesh, as for tessera ranks."},
    {.name = "memory_limit",
     .option = "memory-limit",
     .kind = TSR_PARAMETER_BYTES,
     .argument = "SIZE",
     .help = "End a query that needs more memory of its own, for sorting and grouping (default: "
             "4GiB)."},
};

const cli_command cli_sql_row = {
    .about =
        {.name = "sql",
         .summary = "ask a snapshot in SQL",
         .description =
             "Runs a query over tables of the snapshot: devices, events, allocations, stacks, "
             "frames, segments, blocks, spans, steps and annotations. Running totals, lifetimes, "
             "peaks, categories and steps are columns. The SQL is SQLite's, and nothing can be "
             "changed: only SELECT is allowed.\n\n"
             "Over a folder, a pattern of files, or sketches of tessera ranks, the tables are "
             "those "
             "of its answer: ranks, outliers and changes, with stacks and frames.\n\n"
             "Without QUERY, it reads queries from standard input: at a terminal with a prompt, "
             "where the tab key completes names, and .help, .tables and .schema explain what "
             "there is. 'tessera sql FILE .schema' prints all columns.",
         CLI_PARAMETERS(parameters),
         .examples =
             {{"tessera sql snapshot.pickle \"SELECT action, count(*) FROM events GROUP BY 1\"",
               "how many events of each action"},
              {"tessera sql --output csv -o steps.csv snapshot.pickle \"SELECT * FROM steps\"",
               "a table as a file"},
              {"tessera sql snapshot.pickle", "a prompt"},
              {"tessera sql run \"SELECT rank, peak_allocated_bytes FROM ranks ORDER BY 2 DESC\"",
               "the ranks of a job"}}},
    .operands = "FILE|FOLDER [QUERY]",
    .operand_min = 1,
    .operand_max = 2,
    .reads_files = true,
    .confines = true,
    .lacks = "top full_stacks verbose output",
    .run = cli_sql,
};

static const cli_ending endings[] = {
    {".txt", SQL_FORMAT_TABLE},   {".csv", SQL_FORMAT_CSV},       {".json", SQL_FORMAT_JSON},
    {".arrow", SQL_FORMAT_ARROW}, {".feather", SQL_FORMAT_ARROW}, {".parquet", SQL_FORMAT_PARQUET}};

static int check_format(const cli_options *options, sql_format format) {
  bool to_stdout = !options->output || strcmp(options->output, "-") == 0;
  if (format == SQL_FORMAT_PARQUET) return sql_parquet_check(options);
  if (format == SQL_FORMAT_ARROW && to_stdout && isatty(STDOUT_FILENO))
    return cli_usage_error(
        options->command, "a terminal cannot show binary output; use -o FILE, or another --output");
  return 0;
}

/* The format of --output, of --json, or else of the output's name. Returns 0 or a usage error. */
static int choose_format(const cli_options *options, sql_format *out) {
  const size_t count = sizeof endings / sizeof *endings;
  int word = tsr_params_choice(options->own, "output");
  bool has_word = word >= 0;
  if (options->json && has_word && word != SQL_FORMAT_JSON)
    return cli_usage_error(options->command, "--json contradicts --output");
  bool has_name = !has_word && !options->json && options->output && *cli_ending_of(options->output);
  const cli_ending *ending = has_name ? cli_ending_find(endings, count, options->output) : NULL;
  if (has_name && !ending)
    return cli_ending_refuse(options, "no format has this name", endings, count, options->output);
  *out = options->json ? SQL_FORMAT_JSON
         : has_word    ? (sql_format)word
         : ending      ? (sql_format)ending->format
                       : SQL_FORMAT_TABLE;
  return check_format(options, *out);
}

/* ---- Where queries come from ---- */

static const char *query_of(const cli_options *options) {
  return options->operand_count > 1 ? options->operands[1] : NULL;
}

static bool is_prompted(const cli_options *options) {
  return !query_of(options) && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !options->output;
}

static int run_queries(cli_session *session, sql_shell *shell, const char *history) {
  const char *query = query_of(session->options);
  shell->is_interactive = is_prompted(session->options);
  if (shell->is_interactive) return sql_prompt(shell, history);
  if (!query) return sql_script(shell, stdin);
  int status = sql_shell_run(shell, query);
  if (status || shell->result_count || *query == '.') return status;
  return cli_usage_error(session->options->command, "the query is empty");
}

static int ask(cli_session *session, tsr_relations *relations, sql_format format,
               const char *history) {
  const tsr_params *own = session->options->own;
  sql_limits limits = {.seconds = tsr_params_count(own, "time_limit"),
                       .memory_bytes = tsr_params_count(own, "memory_limit")};
  if (!limits.memory_bytes) limits.memory_bytes = UINT64_C(1) << 30 << (DEFAULT_MEMORY_GIB / 2);
  sql_engine engine;
  sql_shell shell = {.session = session, .engine = &engine, .format = format};
  int status = sql_shell_open(&engine, relations, &limits);
  if (!status) {
    sql_engine_lock(&engine);
    if (tsr_params_choice(own, "engine") == ENGINE_DUCKDB)
      status = sql_duck_open(relations, &limits, &shell.duck);
  }
  if (!status) status = run_queries(session, &shell, history);
  sql_duck_close(shell.duck);
  sql_engine_close(&engine);
  return status;
}

/* ---- What is asked ---- */

/* A snapshot, or the ranks of a job. */
typedef struct subject {
  cli_input input;
  tsr_ranks *ranks;
  tsr_relations *relations;
} subject;

static bool begins_as_sketches(const char *path) {
  static const char begin[] = "tessera/sketch";
  char bytes[sizeof begin - 1];
  FILE *file = fopen(path, "rbe");
  bool is_one = file && fread(bytes, 1, sizeof bytes, file) == sizeof bytes &&
                memcmp(bytes, begin, sizeof bytes) == 0;
  if (file) fclose(file);
  return is_one;
}

/* What `tessera ranks` takes and other commands do not. */
static bool is_of_ranks(const char *path) {
  struct stat found;
  if (strcmp(path, "-") == 0) return false;
  if (stat(path, &found) == 0)
    return S_ISDIR(found.st_mode) || (S_ISREG(found.st_mode) && begins_as_sketches(path));
  return *path == '@' || strpbrk(path, "*?[");
}

static void say_broken(const cli_session *session, const tsr_ranks *ranks) {
  if (!ranks->broken_count || session->options->quiet) return;
  cli_say("sql", "warning: %zu of %zu files cannot be read; 'tessera ranks' lists them",
          ranks->broken_count, ranks->file_count);
}

static int open_ranks(cli_session *session, subject *s) {
  const tsr_params *own = session->options->own;
  const char *places[] = {session->options->operands[0]};
  cli_progress progress = cli_progress_start("reading", places[0], session->options->quiet);
  const tsr_fleet_options how = {.places = places,
                                 .place_count = 1,
                                 .pattern = tsr_params_text(own, "pattern"),
                                 .mesh = tsr_params_text(own, "mesh"),
                                 .progress = cli_progress_update,
                                 .progress_context = &progress};
  session->path = places[0];
  int status = tsr_ranks_compute(&how, &s->ranks, &session->error);
  cli_progress_end(&progress);
  if (status == TSR_ERROR_IO || status == TSR_ERROR_LIMIT || status == TSR_ERROR_UNSUPPORTED) {
    cli_say(NULL, "%s", session->error.message); /* which names the place */
    return CLI_INPUT;
  }
  if (!status) status = cli_keep_ranks(session->options, s->ranks);
  if (!status) status = tsr_relations_of_ranks(s->ranks, &s->relations, &session->error);
  return status;
}

static int open_subject(cli_session *session, subject *s) {
  const cli_options *options = session->options;
  if (is_of_ranks(options->operands[0])) {
    if (options->device_count)
      return cli_usage_error(options->command,
                             "--device does not apply to ranks; use WHERE device = 0");
    return open_ranks(session, s);
  }
  if (tsr_params_has(options->own, "pattern") || tsr_params_has(options->own, "mesh"))
    return cli_usage_error(options->command,
                           "--pattern and --mesh apply to ranks, not to a snapshot");
  int status = cli_open(session, 0, &s->input);
  return status
             ? status
             : tsr_relations_new(s->input.study, &session->query, &s->relations, &session->error);
}

static void warn_of_subject(const cli_session *session, const subject *s) {
  if (s->ranks)
    say_broken(session, s->ranks);
  else
    cli_warn_of_file(session, &s->input);
}

static void close_subject(subject *s) {
  tsr_relations_free(s->relations);
  tsr_ranks_free(s->ranks);
  cli_close(&s->input);
}

/* ---- History ---- */

/* The folder of what was typed, by the XDG specification; NULL if the environment names no place. The caller frees it. */
static char *state_folder(void) {
  const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
  bool has_state = state && *state == '/';
  if (!has_state && (!home || *home != '/')) return NULL;
  const char *base = has_state ? state : home,
             *below = has_state ? "/tessera" : "/.local/state/tessera";
  char *folder = malloc(strlen(base) + strlen(below) + 1);
  if (!folder) return NULL;
  strcat(strcpy(folder, base), below);
  for (char *slash = folder + strlen(base); (slash = strchr(slash + 1, '/')) != NULL;) {
    *slash = '\0'; /* a new home has no .local yet */
    (void)mkdir(folder, 0700);
    *slash = '/';
  }
  return folder;
}

static char *history_in(const char *folder) {
  char *path = folder ? malloc(strlen(folder) + sizeof "/sql_history") : NULL;
  if (path) strcat(strcpy(path, folder), "/sql_history");
  return path;
}

int cli_sql(cli_session *session) {
  const cli_options *options = session->options;
  sql_format format = SQL_FORMAT_TABLE;
  subject about = {.ranks = NULL};
  int status = choose_format(options, &format);
  if (!status && !query_of(options) && strcmp(options->operands[0], "-") == 0)
    status = cli_usage_error(options->command,
                             "standard input cannot be both the snapshot and the queries");
  if (status) return status;
  char *folder = is_prompted(options) ? state_folder() : NULL, *history = history_in(folder);
  const char *folders[] = {folder};
  cli_confine(options, &(cli_needs){.folders = folders, .folder_count = 1});
  status = open_subject(session, &about);
  if (!status) status = ask(session, about.relations, format, history);
  if (!status) warn_of_subject(session, &about);
  close_subject(&about);
  free(history);
  free(folder);
  return status;
}
