/* shell.c - see shell.h. */
#include "shell.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/params.h>

#define SPACES " \t\r\n"

static const sql_writer *const writers[SQL_FORMAT_COUNT] = {
    [SQL_FORMAT_TABLE] = &sql_table_writer,     [SQL_FORMAT_CSV] = &sql_csv_writer,
    [SQL_FORMAT_JSON] = &sql_json_writer,       [SQL_FORMAT_ARROW] = &sql_arrow_writer,
    [SQL_FORMAT_PARQUET] = &sql_parquet_writer,
};

/* ---- Failures ---- */

static int explain_time(const sql_engine *engine) {
  cli_say("sql", "the query took longer than %" PRIu64 " s (--time-limit)", engine->limits.seconds);
  return CLI_FAULT;
}

static int explain_memory(const sql_engine *engine) {
  char size[32];
  if (!engine->limits.memory_bytes) return TSR_ERROR_MEMORY;
  cli_say("sql",
          "out of memory: the query needs more than %s (--memory-limit), or than the machine has",
          tsr_size_text(engine->limits.memory_bytes, size, sizeof size));
  return CLI_FAULT;
}

static int explain_denied(const sql_engine *engine) {
  cli_say("sql", "only queries are run, with SELECT: %s is refused",
          engine->denied ? engine->denied : "a statement that changes something");
  return CLI_USAGE;
}

static void append_tables(const sql_engine *engine, char *out, size_t room) {
  size_t used = 0;
  for (size_t i = 0; i < tsr_relation_count() && used < room; i++) {
    if (!tsr_relations_have(engine->relations, i)) continue;
    used += (size_t)snprintf(out + used, room - used, "%s%s", used ? ", " : "",
                             tsr_relation_at(i)->name);
  }
}

static int explain_wrong(const sql_engine *engine) {
  const char *message = engine->lib.errmsg(engine->db);
  char tables[256] = "";
  append_tables(engine, tables, sizeof tables);
  if (strstr(message, "may not be modified")) return explain_denied(engine);
  if (strncmp(message, "no such table", 13) == 0)
    cli_say("sql", "%s; the tables are %s", message, tables);
  else if (strncmp(message, "no such column", 14) == 0)
    cli_say("sql", "%s; the query '.schema' lists the columns", message);
  else
    cli_say("sql", "%s", message);
  return CLI_USAGE;
}

int sql_shell_explain(const sql_engine *engine, int code) {
  switch (sql_engine_why(engine, code)) {
  case SQL_END_TIME: return explain_time(engine);
  case SQL_END_CANCELLED: cli_say("sql", "cancelled"); return CLI_FAULT;
  case SQL_END_MEMORY: return explain_memory(engine);
  case SQL_END_DENIED: return explain_denied(engine);
  default: return explain_wrong(engine);
  }
}

int sql_shell_open(sql_engine *engine, tsr_relations *relations, const sql_limits *limits) {
  int status = sql_engine_open(engine, relations, limits);
  if (status != TSR_ERROR_UNSUPPORTED) return status;
  cli_say(NULL,
          "SQLite cannot be loaded: %s; install it (Debian: libsqlite3-0; Fedora: sqlite-libs)",
          engine->failure);
  return CLI_FAULT;
}

/* ---- A statement ---- */

typedef struct result {
  const sql_writer *writer;
  void *state;
  sql_out out;
  uint64_t row_count;
} result;

static int write_rows(sql_shell *shell, const sql_rows *rows, result *r) {
  int code = SQLITE_OK;
  int status = r->writer->begin(r->state, rows, &r->out, shell->session);
  while (!status && !r->out.status && (code = rows->lib->step(rows->statement)) == SQLITE_ROW) {
    status = r->writer->row(r->state, rows, &r->out);
    r->row_count++;
  }
  bool has_failed = !status && !r->out.status && code != SQLITE_DONE;
  if (has_failed) status = sql_shell_explain(shell->engine, code);
  if (!status) status = r->writer->end(r->state, rows, &r->out);
  return status;
}

/* The first result only begins the output; CSV and tables can follow each other. */
static int check_count(const sql_shell *shell) {
  if (!shell->result_count || shell->format == SQL_FORMAT_TABLE || shell->format == SQL_FORMAT_CSV)
    return 0;
  return cli_usage_error(shell->session->options->command,
                         "this format has room for the rows of one query; use --output table or "
                         "csv, or one query");
}

/* A sql_take_fn. */
static int write_result(void *context, const sql_rows *rows) {
  sql_shell *shell = context;
  result r = {.writer = writers[shell->format], .out.output = &shell->session->output};
  int status = check_count(shell);
  if (status) return status;
  r.state = calloc(1, r.writer->state_bytes);
  if (!r.state) return TSR_ERROR_MEMORY;
  if (shell->result_count) sql_out_text(&r.out, shell->format == SQL_FORMAT_CSV ? "\r\n" : "\n");
  status = write_rows(shell, rows, &r);
  r.writer->release(r.state);
  free(r.state);
  if (status) r.out.text.size = 0; /* rows of a failed query are no answer */
  int written = sql_out_finish(&r.out);
  shell->result_count++;
  if (shell->is_interactive && !status && !written)
    written = cli_output_flush(&shell->session->output) ? TSR_ERROR_WRITE : 0;
  if (shell->is_interactive && !status && !written)
    fprintf(stderr, "%" PRIu64 " row%s\n", r.row_count, r.row_count == 1 ? "" : "s");
  return status ? status : written;
}

static int run_query(sql_shell *shell, sqlite3_stmt *statement) {
  const sql_lib *lib = &shell->engine->lib;
  const sql_rows rows = {lib, statement, lib->column_count(statement)};
  if (lib->bind_parameter_count(statement))
    return cli_usage_error(shell->session->options->command,
                           "the query has parameters, which nothing sets; write the values");
  return write_result(shell, &rows);
}

static int run_statements(sql_shell *shell, const char *text) {
  const sql_lib *lib = &shell->engine->lib;
  int status = 0;
  while (!status && text[strspn(text, SPACES)]) {
    sqlite3_stmt *statement = NULL;
    int code = sql_engine_prepare(shell->engine, text, &statement, &text);
    if (code != SQLITE_OK)
      status = sql_shell_explain(shell->engine, code);
    else if (statement && !lib->column_count(statement))
      status = explain_denied(shell->engine); /* such as REINDEX, which does nothing here */
    else if (statement)
      status = run_query(shell, statement);
    lib->finalize(statement);
  }
  return status;
}

/* ---- Dot commands ---- */

static int put(sql_shell *shell, const char *text) {
  return cli_output_write(&shell->session->output, text, strlen(text)) ? TSR_ERROR_WRITE : 0;
}

static int put_padded(sql_shell *shell, const char *indent, const char *name, size_t width,
                      const char *text) {
  char line[64];
  (void)snprintf(line, sizeof line, "%s%-*s  ", indent, (int)width, name);
  int status = put(shell, line);
  if (!status) status = put(shell, text);
  return status ? status : put(shell, "\n");
}

static int list_tables(sql_shell *shell, const char *argument) {
  int status = 0;
  (void)argument;
  for (size_t i = 0; !status && i < tsr_relation_count(); i++)
    if (tsr_relations_have(shell->engine->relations, i))
      status = put_padded(shell, "", tsr_relation_at(i)->name, 11, tsr_relation_at(i)->help);
  return status;
}

static int describe(sql_shell *shell, const tsr_relation *relation) {
  int status = put_padded(shell, "", relation->name, 0, relation->help);
  for (size_t i = 0; !status && i < relation->column_count; i++)
    status = put_padded(shell, "  ", relation->columns[i].name, 21, relation->columns[i].help);
  return status;
}

static int list_columns(sql_shell *shell, const char *argument) {
  size_t count = tsr_relation_count(), only = *argument ? tsr_relation_find(argument) : count;
  if (*argument && (only == count || !tsr_relations_have(shell->engine->relations, only))) {
    cli_say("sql", "no such table: %s; .tables lists them", argument);
    return CLI_USAGE;
  }
  if (only < count) return describe(shell, tsr_relation_at(only));
  int status = 0;
  bool has_some = false;
  for (size_t i = 0; !status && i < count; i++) {
    if (!tsr_relations_have(shell->engine->relations, i)) continue;
    if (has_some) status = put(shell, "\n");
    if (!status) status = describe(shell, tsr_relation_at(i));
    has_some = true;
  }
  return status;
}

static int quit(sql_shell *shell, const char *argument) {
  (void)argument;
  shell->has_ended = true;
  return 0;
}

static int set_format(sql_shell *shell, const char *argument) {
  static const char *const names[] = {"table", "csv", "json"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(argument, names[i]) == 0) {
      shell->format = (sql_format)i;
      shell->result_count = 0;
      return 0;
    }
  cli_say("sql", ".output takes table, csv or json");
  return CLI_USAGE;
}

static int help(sql_shell *shell, const char *argument);

static const struct {
  const char *name, *argument, *help;
  int (*run)(sql_shell *shell, const char *argument);
} dots[] = {
    {".help", "", "this list", help},
    {".tables", "", "the tables", list_tables},
    {".schema", "[TABLE]", "the columns of all tables, or of one", list_columns},
    {".output", "FORMAT", "how rows are shown: table, csv or json", set_format},
    {".quit", "", "leave, as Ctrl-D does", quit},
};

enum { DOTS = sizeof dots / sizeof *dots };

const char *sql_shell_command_at(size_t index) {
  return index < DOTS ? dots[index].name : NULL;
}

static int help(sql_shell *shell, const char *argument) {
  int status = 0;
  (void)argument;
  for (size_t i = 0; !status && i < DOTS; i++) {
    char usage[32];
    (void)snprintf(usage, sizeof usage, "%s %s", dots[i].name, dots[i].argument);
    status = put_padded(shell, "", usage, 16, dots[i].help);
  }
  return status ? status
                : put(shell, "\nAnything else is SQL, as SQLite understands it, and ends with a "
                             "semicolon:\n  SELECT category, sum(size_bytes) FROM allocations "
                             "WHERE live_at_peak GROUP BY category;\n");
}

static int run_dot(sql_shell *shell, const char *text) {
  char line[256];
  (void)snprintf(line, sizeof line, "%s", text);
  line[strcspn(line, ";\r\n")] = '\0';
  size_t name = strcspn(line, SPACES);
  char *argument = line + name + strspn(line + name, SPACES);
  for (size_t end = strlen(argument); end && strchr(SPACES, argument[end - 1]); end--)
    argument[end - 1] = '\0';
  for (size_t i = 0; i < DOTS; i++)
    if (strlen(dots[i].name) == name && strncmp(dots[i].name, line, name) == 0)
      return dots[i].run(shell, argument);
  cli_say("sql", "no such command: %.*s; .help lists them", (int)name, line);
  return CLI_USAGE;
}

int sql_shell_run(sql_shell *shell, const char *text) {
  text += strspn(text, SPACES);
  if (*text == '.') return run_dot(shell, text);
  return shell->duck ? sql_duck_run(shell->duck, text, write_result, shell)
                     : run_statements(shell, text);
}

bool sql_shell_is_whole(const sql_shell *shell, const char *text) {
  text += strspn(text, SPACES);
  return !*text || *text == '.' || shell->engine->lib.complete(text);
}
