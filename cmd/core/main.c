/* main.c - the program `tessera`: prepares the process, then leaves the rest to program.c.
 *
 * The only state of the process that tessera changes is set here, and by confine.c, which may do so because the process is
 * the program's own.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <unistd.h>

#include "program.h"

/* A program started without one of the standard streams would be given its number for the next file
 * it opens, and would then print messages into a user's file. */
static void keep_standard_streams(void) {
  for (int handle = STDIN_FILENO; handle <= STDERR_FILENO; handle++)
    if (fcntl(handle, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDONLY) < 0) return;
}

/* A search simulates hundreds of plans, one after another. glibc would give what one of them frees back to the system, to
 * get it again for the next. */
static void keep_freed_memory(void) {
#ifdef __GLIBC__
  (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
  (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
  (void)mallopt(M_TOP_PAD, 1 << 20);
#endif
}

int main(int argc, char **argv) {
  keep_freed_memory();
  keep_standard_streams();
  signal(SIGPIPE, SIG_IGN);
  return cli_program(argc, argv, true);
}
