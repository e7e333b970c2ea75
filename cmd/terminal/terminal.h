/* terminal.h - `tessera view FILE` on a terminal: the interactive view. */
#ifndef CLI_TERMINAL_TERMINAL_H
#define CLI_TERMINAL_TERMINAL_H

#include "core/session.h"

/* Open the operands and show them until the user quits. Returns as a cli_command_fn does. */
int cli_terminal_view(cli_session *session);

#endif
