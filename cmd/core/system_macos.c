/* system_macos.c - what system.h and output.h need of macOS in particular. */
#include "system.h"

#include <errno.h>
#include <mach-o/dyld.h>
#include <stdio.h>
#include <sys/random.h>

#include "output.h"

enum { RANDOM_MOST = 256 /* at once */ };

bool cli_system_random(void *out, size_t size_bytes) {
  return size_bytes <= RANDOM_MOST && getentropy(out, size_bytes) == 0;
}

bool cli_system_program(char *path, size_t room_bytes) {
  uint32_t size = (uint32_t)room_bytes;
  return _NSGetExecutablePath(path, &size) == 0;
}

void cli_system_end_with_parent(void) {}

int64_t cli_system_written_ns(const struct stat *status) {
  return (int64_t)status->st_mtimespec.tv_sec * 1000000000 + status->st_mtimespec.tv_nsec;
}

/* ---- Files without a name, which macOS lacks ---- */

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

/* ---- Streams ---- */

static int append(void *context, const char *data, int size_bytes) {
  return cli_text_append(context, data, (size_t)size_bytes) ? -1 : size_bytes;
}

FILE *cli_text_open(cli_text *text) {
  return funopen(text, NULL, append, NULL, NULL);
}

bool cli_text_close(FILE *stream, cli_text *text) {
  return fclose(stream) == 0 && !text->is_lost;
}
