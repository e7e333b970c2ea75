/* browser.c - `tessera page -o tessera.html`: tessera itself as one page, for where nothing can be installed.
 *
 * The page is a file of the installation (web/, docs/web.md), found from the program's own place:
 *
 *   PREFIX/bin/tessera  ->  PREFIX/share/tessera/tessera.html
 *   CHECKOUT/build/tessera  ->  CHECKOUT/build-web/tessera.html
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "browser.h"
#include "page.h"
#include "system.h"

enum { PATH_BYTES = 4096, CHUNK_BYTES = 1 << 16 };

const cli_command cli_browser_row = {
    .about =
        {.name = "page",
         .summary = "tessera as one HTML file, for a browser alone",
         .situation = TSR_SITUATION_PROGRAMS,
         .description =
             "Writes tessera.html: the same program as a page that opens in any recent browser, "
             "from a disk or an attachment, on any system. Drop snapshots on it, and it answers "
             "the "
             "questions of the command line and draws the page of 'tessera view'. It has no "
             "server, and its security policy forbids it to connect anywhere: no data leaves "
             "it.\n\nIt lacks threads, training, tracing and SQL, and can use 4 GiB of memory.",
         .examples = {{"tessera page -o tessera.html", "a file to send to a colleague"}}},
    .answers = true,
    .lacks = "json color verbose",
    .run = cli_browser,
};

/* The page in a folder beside the program's, or NULL. */
static FILE *open_beside(const char *program, size_t folder_length, const char *name) {
  char path[PATH_BYTES + 64];
  (void)snprintf(path, sizeof path, "%.*s/../%s", (int)folder_length, program, name);
  return fopen(path, "rb");
}

FILE *cli_browser_open(void) {
  char program[PATH_BYTES];
  if (!cli_system_program(program, sizeof program)) return NULL;
  const char *slash = strrchr(program, '/');
  size_t folder_length = slash ? (size_t)(slash - program) : 0;
  FILE *file = open_beside(program, folder_length, "share/tessera/tessera.html");
  return file ? file : open_beside(program, folder_length, "build-web/tessera.html");
}

static int copy(cli_session *session, FILE *from) {
  char chunk[CHUNK_BYTES];
  size_t size;
  while ((size = fread(chunk, 1, sizeof chunk, from)) > 0)
    if (cli_output_write(&session->output, chunk, size) != 0) return TSR_ERROR_WRITE;
  if (!ferror(from)) return 0;
  cli_say(NULL, "tessera.html: %s", strerror(errno));
  return CLI_FAULT;
}

int cli_browser(cli_session *session) {
  if (!session->options->output && isatty(STDOUT_FILENO))
    return cli_usage_error(session->options->command,
                           "a terminal cannot show a page; use -o tessera.html");
  int status = session->options->output
                   ? cli_page_check_name(session->options, session->options->output)
                   : 0;
  if (status) return status;
  FILE *from = cli_browser_open();
  if (!from) {
    cli_say(NULL, "tessera.html is not installed with this tessera; './run build web' in its "
                  "sources makes it");
    return CLI_FAULT;
  }
  status = copy(session, from);
  (void)fclose(from);
  return status;
}
