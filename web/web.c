/* web.c - the command in a browser: a WASI program whose arguments are a command line of `tessera`.
 *
 * Each question runs in an instance of its own, as each command is a process of its own: what it leaves in memory goes with it,
 * and a hostile file can end nothing but its own question. Files are those that the page's worker mounts (viewer/web).
 */
#include <stdio.h>
#include <string.h>
#include <tessera/tessera.h>

#include "core/program.h"
#include "core/tracer_archive.h"
#include "questions.h"

/* Nothing can be traced: there is no Python. */
const unsigned char cli_tracer_archive[] = {0};
const size_t cli_tracer_archive_size = 0;

/* Commands that need what a browser does not have. */
static const struct {
  const char *name, *needs;
} absent[] = {
    {"doctor", "a Python"},
    {"mcp", "a process that goes on running"},
    {"page", "a file of the installation"},
    {"serve", "sockets"},
    {"sql", "SQLite, which is loaded on demand"},
    {"trace", "a Python with PyTorch"},
    {"train", "threads"},
};

/* `web questions` and `web lists` are the page's own commands. */
int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "web") && !strcmp(argv[2], "lists")) return web_print_lists();
  if (argc == 3 && !strcmp(argv[1], "web") && !strcmp(argv[2], "questions"))
    return web_print_questions();
  for (size_t i = 0; argc > 1 && i < sizeof absent / sizeof *absent; i++) {
    if (strcmp(argv[1], absent[i].name) != 0) continue;
    fprintf(stderr, "tessera: not in the browser: '%s' needs %s\n", argv[1], absent[i].needs);
    return 2;
  }
  return cli_program(argc, argv, false);
}
