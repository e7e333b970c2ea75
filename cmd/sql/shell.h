/* shell.h - runs the text of queries: statements, and commands that begin with a dot. */
#ifndef CLI_SQL_SHELL_H
#define CLI_SQL_SHELL_H

#include "duck.h"
#include "engine.h"
#include "write.h"

typedef struct sql_shell {
  cli_session *session;
  sql_engine *engine;
  sql_duck *duck; /* runs the queries; NULL: the engine does */
  sql_format format;
  size_t result_count; /* written so far */
  bool is_interactive; /* also says how many rows there were */
  bool has_ended;      /* by .quit */
} sql_shell;

/* Run all statements of a text, or a dot command. Returns 0, a negative tsr_status, or an exit status after explaining what is
 * wrong. */
int sql_shell_run(sql_shell *shell, const char *text);

/* Open an engine (sql_engine_open). Returns 0, TSR_ERROR_MEMORY, or an exit status after explaining why there is no SQLite. */
int sql_shell_open(sql_engine *engine, tsr_relations *relations, const sql_limits *limits);

/* Explain why a statement failed with SQLite's code: returns an exit status, or TSR_ERROR_MEMORY. */
int sql_shell_explain(const sql_engine *engine, int code);

/* Whether `text` is whole: a dot command, or statements of which the last ends with a semicolon. */
bool sql_shell_is_whole(const sql_shell *shell, const char *text);

/* The dot commands, in the order of .help; NULL at the end. */
const char *sql_shell_command_at(size_t index);

#endif
