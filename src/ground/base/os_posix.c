/* os_posix.c - files through POSIX: the first half of os.h. Threads are in os_threads_posix.c; what Linux and macOS do
 * differently is in os_linux.c and os_macos.c. This file needs POSIX's strerror_r, and so none of their extensions. */
#define _POSIX_C_SOURCE 200809L
#include "base/os_posix.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/os.h"

enum { STANDARD_INPUT = 0, LARGEST_READ = 1 << 30 };

static int fail_errno(tsr_error *error, const char *what) {
  char reason[128];
  if (strerror_r(errno, reason, sizeof reason) != 0) strcpy(reason, "unknown reason");
  return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "%s: %s", what, reason);
}

/* A name of what the process has opened already, as a shell writes it for <(...); opening it waits for nobody. */
static bool is_descriptor(const char *path) {
  return strncmp(path, "/dev/fd/", 8) == 0 || strncmp(path, "/proc/self/fd/", 14) == 0 ||
         strcmp(path, "/dev/stdin") == 0;
}

int tsr__os_open(const char *path, int *handle, uint64_t *size_bytes, tsr_error *error) {
  int fd = STANDARD_INPUT;
  bool is_stream = strcmp(path, "-") == 0 || is_descriptor(path);
  if (strcmp(path, "-") != 0) fd = open(path, O_RDONLY | O_CLOEXEC | (is_stream ? 0 : O_NONBLOCK));
  if (fd < 0) return fail_errno(error, "cannot open");
  struct stat status;
  if (fstat(fd, &status) != 0) {
    int result = fail_errno(error, "cannot examine");
    tsr__os_close(fd);
    return result;
  }
  if (S_ISDIR(status.st_mode)) {
    tsr__os_close(fd);
    return tsr__fail(
        error, TSR_ERROR_IO, TSR_OFFSET_NONE,
        "is a directory, not a snapshot; tessera ranks reads the snapshots in a directory");
  }
  if (!is_stream && !S_ISREG(status.st_mode)) {
    tsr__os_close(fd);
    return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE,
                     "not a regular file; '-' reads standard input");
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

bool tsr__os_is_absolute(const char *path) {
  return path[0] == '/';
}

bool tsr__os_changed(const char *path, int64_t *written_ns, int64_t *changed_ns) {
  struct stat status;
  if (stat(path, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  tsr__posix_times(&status, written_ns, changed_ns);
  return true;
}

/* Whether a name in a folder is a folder, too; `*is_link` for a link to one. */
static bool is_folder_in(int folder, const char *name, bool *is_link) {
  struct stat status;
  *is_link = false;
  if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0) return false;
  if (S_ISDIR(status.st_mode)) return true;
  *is_link =
      S_ISLNK(status.st_mode) && fstatat(folder, name, &status, 0) == 0 && S_ISDIR(status.st_mode);
  return false;
}

int tsr__os_list(const char *folder, tsr__os_visit *visit, void *context, tsr_error *error) {
  DIR *stream = opendir(folder);
  if (!stream && errno == ENOMEM) return tsr__fail_memory(error);
  if (!stream) return fail_errno(error, "cannot list");
  const struct dirent *entry;
  bool goes_on = true;
  while (goes_on && (errno = 0, entry = readdir(stream)) != NULL) {
    const char *name = entry->d_name;
    if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
    bool is_link, is_folder = is_folder_in(dirfd(stream), name, &is_link);
    if (!is_link) goes_on = visit(context, name, is_folder);
  }
  int status = goes_on && errno ? fail_errno(error, "cannot list") : 0;
  (void)closedir(stream);
  return status;
}

int tsr__os_match(const char *pattern, tsr__os_visit *visit, void *context, tsr_error *error) {
  glob_t found;
  int failure = glob(pattern, 0, NULL, &found);
  if (failure == GLOB_NOSPACE) return tsr__fail_memory(error);
  if (failure) return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "no file matches");
  bool goes_on = true;
  for (size_t i = 0; goes_on && i < found.gl_pathc; i++)
    goes_on = visit(context, found.gl_pathv[i], tsr__os_is_folder(found.gl_pathv[i]));
  globfree(&found);
  return 0;
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

int tsr__os_write_at(int handle, uint64_t offset, const void *data, size_t size, tsr_error *error) {
  const unsigned char *at = data;
  while (size) {
    ssize_t put = pwrite(handle, at, size < LARGEST_READ ? size : LARGEST_READ, (off_t)offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      (void)fail_errno(error, "cannot write");
      if (error) error->status = TSR_ERROR_WRITE;
      return TSR_ERROR_WRITE;
    }
    at += put;
    offset += (uint64_t)put;
    size -= (size_t)put;
  }
  return 0;
}

/* A file without a name is gone with its handle, however the process ends. */
static int open_unnamed(const char *folder) {
  char path[4096];
  if ((size_t)snprintf(path, sizeof path, "%s/tessera-XXXXXX", folder) >= sizeof path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  int fd = mkstemp(path);
  if (fd >= 0) (void)unlink(path);
  return fd;
}

int tsr__os_scratch_file(const char *folder, uint64_t size_bytes, int *handle, tsr_error *error) {
  int fd = open_unnamed(folder);
  if (fd < 0) return fail_errno(error, "cannot make a file there");
  int failure = size_bytes > INT64_MAX ? EFBIG : tsr__posix_reserve(fd, (off_t)size_bytes);
  if (!failure) {
    *handle = fd;
    return 0;
  }
  (void)close(fd);
  return tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE,
                   "the disk has no room for a file of %llu bytes", (unsigned long long)size_bytes);
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
