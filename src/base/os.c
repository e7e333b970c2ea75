/* os.c - files through POSIX: the first half of os.h. Threads are in os_threads.c, which needs GNU
 * extensions; this file needs POSIX's strerror_r instead of GNU's. */
#define _POSIX_C_SOURCE 200809L
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

enum { STANDARD_INPUT = 0, LARGEST_READ = 1 << 30 };

static int fail_errno(tsr_error *error, const char *what) {
  char reason[128];
  if (strerror_r(errno, reason, sizeof reason) != 0) strcpy(reason, "unknown reason");
  return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "%s: %s", what, reason);
}

int tsr__os_open(const char *path, int *handle, uint64_t *size_bytes, tsr_error *error) {
  int fd = STANDARD_INPUT;
  if (strcmp(path, "-") != 0) fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail_errno(error, "cannot open");
  struct stat status;
  if (fstat(fd, &status) != 0) {
    int result = fail_errno(error, "cannot examine");
    tsr__os_close(fd);
    return result;
  }
  if (S_ISDIR(status.st_mode)) {
    tsr__os_close(fd);
    return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "is a directory, not a snapshot");
  }
  *handle = fd;
  *size_bytes = S_ISREG(status.st_mode) && status.st_size > 0 ? (uint64_t)status.st_size : 0;
  return 0;
}

int tsr__os_open_sized(const char *path, int *handle, uint64_t *size_bytes, tsr_error *error) {
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return fail_errno(error, "cannot open");
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    (void)close(fd);
    return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "not a regular file");
  }
  *handle = fd;
  *size_bytes = status.st_size > 0 ? (uint64_t)status.st_size : 0;
  return 0;
}

int tsr__os_open_regular(const char *path, int *handle, tsr_error *error) {
  uint64_t ignored;
  return tsr__os_open_sized(path, handle, &ignored, error);
}

bool tsr__os_is_there(const char *path) {
  struct stat status;
  return stat(path, &status) == 0;
}

bool tsr__os_is_folder(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

ptrdiff_t tsr__os_read_at(int handle, uint64_t offset, void *buffer, size_t size,
                          tsr_error *error) {
  if (offset > INT64_MAX) return 0; /* no file is so long */
  for (;;) {
    ssize_t got = pread(handle, buffer, size < LARGEST_READ ? size : LARGEST_READ, (off_t)offset);
    if (got >= 0) return got;
    if (errno != EINTR) return fail_errno(error, "cannot read");
  }
}

int tsr__os_read_exactly(int handle, uint64_t offset, void *buffer, size_t size, tsr_error *error) {
  unsigned char *at = buffer;
  while (size) {
    ptrdiff_t got = tsr__os_read_at(handle, offset, at, size, error);
    if (got < 0) return (int)got;
    if (got == 0)
      return tsr__fail(error, TSR_ERROR_FORMAT, offset,
                       "the file has become shorter while it is read");
    at += got;
    offset += (uint64_t)got;
    size -= (size_t)got;
  }
  return 0;
}

ptrdiff_t tsr__os_read(int handle, void *buffer, size_t size, tsr_error *error) {
  for (;;) {
    ssize_t got = read(handle, buffer, size < LARGEST_READ ? size : LARGEST_READ);
    if (got >= 0) return got;
    if (errno != EINTR) return fail_errno(error, "cannot read");
  }
}

void tsr__os_close(int handle) {
  if (handle != STANDARD_INPUT) (void)close(handle);
}
