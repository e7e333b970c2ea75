/* main.c - the program `tessera`: prepares the process, then leaves the rest to program.c.
 *
 * The only state of the process that tessera changes is set here, and by confine.c, which may do so because the process is
 * the program's own.
 */
#include <stdlib.h> /* says which C library this is */
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "program.h"
#include "system.h"

/* A search simulates hundreds of plans, one after another. glibc would give what one of them frees back to the system, to
 * get it again for the next. */
static void keep_freed_memory(void) {
#ifdef __GLIBC__
  (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
  (void)mallopt(M_MMAP_THRESHOLD, 4 << 20);
  (void)mallopt(M_TOP_PAD, 1 << 20);
#endif
}

int main(int argc, char **argv) {
  keep_freed_memory();
  cli_system_prepare(&argc, &argv);
  return cli_program(argc, argv, true);
}
