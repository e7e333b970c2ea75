/* terminal_absent.c - the terminal view in a tessera that was built without ncurses. */
#include "terminal.h"

int cli_terminal_view(cli_session *session) {
  return cli_usage_error(session->options->command,
                         "this tessera was built without a terminal view; use -o page.html");
}
