/* nameless_absent.c - system.h's files without a name, on systems that have none: macOS, WebAssembly. */
#include <errno.h>

#include "system.h"

int cli_system_passing_file(const char *folder) {
  (void)folder;
  errno = 0;
  return -1;
}

int cli_system_keep_file(int handle, const char *path) {
  (void)handle, (void)path;
  errno = ENOTSUP;
  return -1;
}
