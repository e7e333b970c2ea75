/* os_files.c - files, as all systems have them: most of the first half of os.h. This file needs POSIX's strerror_r, and so
 * none of glibc's extensions. */
#define _POSIX_C_SOURCE 200809L
#include "base/os.h"
#include "base/os_posix.h"

enum { STANDARD_INPUT = 0, LARGEST_TRANSFER = 1 << 30 };

int tsr__posix_fail(tsr_error *error, const char *what) {
  char reason[128];
  if (errno == ENOMEM) return tsr__fail_memory(error);
  if (strerror_r(errno, reason, sizeof reason) != 0) strcpy(reason, "unknown reason");
  return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "%s: %s", what, reason);
}

/* ---- opening and closing ---- */

/* A name of what the process has opened already, as a shell writes it for <(...); opening it waits for nobody. */
static bool is_descriptor(const char *path) {
  return strncmp(path, "/dev/fd/", 8) == 0 || strncmp(path, "/proc/self/fd/", 14) == 0 ||
         strcmp(path, "/dev/stdin") == 0;
}

/* `*size_bytes` is the size of an open file, 0 of a stream. A snapshot that is neither gets a message of its own. */
static int examine(int handle, bool is_snapshot, bool may_be_stream, uint64_t *size_bytes,
                   tsr_error *error) {
  struct stat status;
  const char *message = NULL;
  if (fstat(handle, &status) != 0) return tsr__posix_fail(error, "cannot examine");
  bool is_file = S_ISREG(status.st_mode);
  if (S_ISDIR(status.st_mode) && is_snapshot)
    message = "is a directory, not a snapshot; tessera ranks reads the snapshots in a directory";
  else if (!is_file && !may_be_stream)
    message = is_snapshot ? "not a regular file; '-' reads standard input" : "not a regular file";
  if (message) return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "%s", message);
  *size_bytes = is_file && status.st_size > 0 ? (uint64_t)status.st_size : 0;
  return 0;
}

/* The end of an opening: closes the file again if it is not what was wanted. */
static int finish(int fd, bool is_snapshot, bool may_be_stream, int *handle, uint64_t *size_bytes,
                  tsr_error *error) {
  if (fd < 0) return tsr__posix_fail(error, "cannot open");
  int status = examine(fd, is_snapshot, may_be_stream, size_bytes, error);
  if (status)
    tsr__os_close(fd);
  else
    *handle = fd;
  return status;
}

int tsr__os_open(const char *path, int *handle, uint64_t *size_bytes, tsr_error *error) {
  bool is_standard = strcmp(path, "-") == 0, is_stream = is_standard || is_descriptor(path);
  int flags = O_RDONLY | O_CLOEXEC | (is_stream ? 0 : O_NONBLOCK);
  int fd = is_standard ? STANDARD_INPUT : open(path, flags);
  return finish(fd, true, is_stream, handle, size_bytes, error);
}

int tsr__os_open_sized(const char *path, int *handle, uint64_t *size_bytes, tsr_error *error) {
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  return finish(fd, false, false, handle, size_bytes, error);
}

int tsr__os_open_regular(const char *path, int *handle, tsr_error *error) {
  uint64_t ignored;
  return tsr__os_open_sized(path, handle, &ignored, error);
}

void tsr__os_close(int handle) {
  if (handle != STANDARD_INPUT) (void)close(handle);
}

/* ---- what is there ---- */

bool tsr__os_is_there(const char *path) {
  struct stat status;
  return stat(path, &status) == 0;
}

bool tsr__os_is_folder(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static int64_t in_ns(struct timespec time) {
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

bool tsr__os_changed(const char *path, int64_t *written_ns, int64_t *changed_ns) {
  struct stat status;
  if (stat(path, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  *written_ns = in_ns(status.st_mtim);
  *changed_ns = in_ns(status.st_ctim);
  return true;
}

/* ---- reading and writing ---- */

static size_t piece(size_t size) {
  return size < LARGEST_TRANSFER ? size : LARGEST_TRANSFER;
}

ptrdiff_t tsr__os_read(int handle, void *buffer, size_t size, tsr_error *error) {
  for (;;) {
    ssize_t got = read(handle, buffer, piece(size));
    if (got >= 0) return got;
    if (errno != EINTR) return tsr__posix_fail(error, "cannot read");
  }
}

ptrdiff_t tsr__os_read_at(int handle, uint64_t offset, void *buffer, size_t size,
                          tsr_error *error) {
  if (offset > INT64_MAX) return 0; /* no file is so long */
  for (;;) {
    ssize_t got = pread(handle, buffer, piece(size), (int64_t)offset);
    if (got >= 0) return got;
    if (errno != EINTR) return tsr__posix_fail(error, "cannot read");
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
    ssize_t put = pwrite(handle, at, piece(size), (int64_t)offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      (void)tsr__posix_fail(error, "cannot write");
      if (error) error->status = TSR_ERROR_WRITE;
      return TSR_ERROR_WRITE;
    }
    at += put;
    offset += (uint64_t)put;
    size -= (size_t)put;
  }
  return 0;
}

int tsr__os_scratch_file(const char *folder, uint64_t size_bytes, int *handle, tsr_error *error) {
  int fd = tsr__posix_unnamed(folder);
  if (fd < 0) return tsr__posix_fail(error, "cannot make a file there");
  int failure = size_bytes > INT64_MAX ? EFBIG : tsr__posix_reserve(fd, (int64_t)size_bytes);
  if (!failure) {
    *handle = fd;
    return 0;
  }
  (void)close(fd);
  return tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE,
                   "the disk has no room for a file of %llu bytes", (unsigned long long)size_bytes);
}
