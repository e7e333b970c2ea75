/* prompt.h - queries that are typed at a terminal. */
#ifndef CLI_SQL_PROMPT_H
#define CLI_SQL_PROMPT_H

#include "shell.h"

/* Read and run queries until the end of standard input or .quit. With libedit lines can be edited, with history and completion of the
 * names of tables and columns; without it, they are read as the terminal gives them. A wrong query is explained, and the next one is
 * read. `history` is a file that lines are added to, or NULL. Returns 0 or a negative tsr_status. */
int sql_prompt(sql_shell *shell, const char *history);

/* Read lines from `stream` and run what is whole; stops at the first that fails. Returns as sql_shell_run does. */
int sql_script(sql_shell *shell, FILE *stream);

#endif
