/* help.h - help texts for the terminal, rendered from the rows of commands.h. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include <stdio.h>

#include "session.h"

/* All commands, and how to go on. */
void cli_help_overview(FILE *stream);
/* One command: usage, description, options, examples. */
void cli_help_command(FILE *stream, const cli_command *command);

/* `tessera help [COMMAND]`, and any command with --help. Returns as a cli_command_fn does. */
int cli_help(cli_session *session);

#endif
