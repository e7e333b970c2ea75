/* help.h - help texts for the terminal, rendered from the rows of commands.h. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "session.h"

/* `tessera help [COMMAND]`, and any command with --help. Returns as a cli_command_fn does. */
int cli_help(cli_session *session);

#endif
