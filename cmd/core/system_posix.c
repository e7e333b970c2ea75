/* system_posix.c - what Linux and macOS do alike of system.h. */
#define _DEFAULT_SOURCE         /* flock */
#define _POSIX_C_SOURCE 200809L /* fcntl's F_GETFD */

#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* A program started without one of the standard streams would be given its number for the next file
 * it opens, and would then print messages into a user's file. */
static void keep_standard_streams(void) {
  for (int handle = STDIN_FILENO; handle <= STDERR_FILENO; handle++)
    if (fcntl(handle, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDONLY) < 0) return;
}

void cli_system_prepare(int *argc, char ***argv) {
  (void)argc, (void)argv;
  keep_standard_streams();
  signal(SIGPIPE, SIG_IGN);
}

uint32_t cli_system_columns(void) {
  struct winsize size = {0};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int cli_system_write_error(FILE *stream) {
  (void)stream;
  return errno ? errno : EIO;
}

int cli_system_sync(int handle) {
  return fsync(handle) == 0 || errno == EINVAL || errno == EROFS || errno == ENOTSUP ? 0 : -1;
}

bool cli_system_free_bytes(const char *folder, uint64_t *out) {
  struct statvfs found;
  if (statvfs(folder, &found) != 0 || !found.f_blocks) return false;
  *out = (uint64_t)found.f_bavail * (uint64_t)found.f_frsize;
  return true;
}

/* File systems that know no locks are taken at their word. */
int cli_system_lock_folder(const char *folder, bool *is_taken) {
  int handle = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  *is_taken = handle >= 0 && flock(handle, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!*is_taken) return handle;
  (void)close(handle);
  return -1;
}

void cli_system_unlock_folder(int handle) {
  if (handle >= 0) (void)close(handle);
}
