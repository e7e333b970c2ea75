/* serve_absent.c - `tessera serve` in a tessera that was built without libmicrohttpd. */
#include "session.h"

int cli_serve(cli_session *session) {
  (void)session;
  cli_say(NULL,
          "this tessera was built without libmicrohttpd, and so without 'serve'; 'tessera view "
          "-o page.html' writes the page as a file");
  return CLI_FAULT;
}
