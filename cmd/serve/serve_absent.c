/* serve_absent.c - `tessera serve` in a tessera that was built without libmicrohttpd. */
#include "core/session.h"

int cli_serve(cli_session *session) {
  (void)session;
  cli_say(NULL, "this tessera was built without libmicrohttpd and has no 'serve'; 'tessera view -o "
                "page.html' writes the page to a file");
  return CLI_FAULT;
}
