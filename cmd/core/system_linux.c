/* system_linux.c - what system.h needs of Linux in particular, such as files without a name. */
#define _GNU_SOURCE /* O_TMPFILE, getrandom */

#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/types.h>
#include <unistd.h>

enum { DESCRIPTOR_BYTES = 32 };

bool cli_system_random(void *out, size_t size_bytes) {
  return getrandom(out, size_bytes, 0) == (ssize_t)size_bytes;
}

bool cli_system_program(char *path, size_t room_bytes) {
  ssize_t length = readlink("/proc/self/exe", path, room_bytes);
  if (length <= 0 || (size_t)length >= room_bytes) return false;
  path[length] = '\0';
  return true;
}

void cli_system_end_with_parent(void) {
  (void)prctl(PR_SET_PDEATHSIG, (unsigned long)SIGKILL, 0UL, 0UL, 0UL);
}

/* ---- Files without a name ---- */

static void name_of_descriptor(int handle, char name[DESCRIPTOR_BYTES]) {
  snprintf(name, DESCRIPTOR_BYTES, "/proc/self/fd/%d", handle);
}

int cli_system_passing_file(const char *folder) {
  char name[DESCRIPTOR_BYTES];
  int handle = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (handle < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) errno = 0;
  if (handle < 0) return -1;
  name_of_descriptor(handle, name);
  if (access(name, F_OK) == 0) return handle;
  close(handle);
  errno = 0;
  return -1;
}

int cli_system_keep_file(int handle, const char *path) {
  char name[DESCRIPTOR_BYTES];
  name_of_descriptor(handle, name);
  return linkat(AT_FDCWD, name, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
}
