/* main.c - the program `tessera`: prepares the process, then leaves the rest to program.c.
 *
 * The only state of the process that tessera changes is set here.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "program.h"

/* A program started without one of the standard streams would be given its number for the next file
 * it opens, and would then print messages into a user's file. */
static void keep_standard_streams(void) {
  for (int handle = STDIN_FILENO; handle <= STDERR_FILENO; handle++)
    if (fcntl(handle, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDONLY) < 0) return;
}

int main(int argc, char **argv) {
  keep_standard_streams();
  signal(SIGPIPE, SIG_IGN);
  return cli_program(argc, argv);
}
