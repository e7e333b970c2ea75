/* os_macos.c - what os.h and os_posix.h need of macOS in particular. */
#include "base/os_posix.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/os.h"

int tsr__posix_reserve(int fd, int64_t size) {
  fstore_t room = {.fst_flags = F_ALLOCATEALL, .fst_posmode = F_PEOFPOSMODE, .fst_length = size};
  if (size > 0 && fcntl(fd, F_PREALLOCATE, &room) != 0 && errno != ENOTSUP) return errno;
  return ftruncate(fd, size) == 0 ? 0 : errno;
}

/* Nothing here backs pages ahead of time without changing them. */
void tsr__os_populate(void *data, size_t size_bytes) {
  (void)data, (void)size_bytes;
}

/* madvise() would leave the bytes as they are; new pages in place of the old ones read as zeros. */
void tsr__os_forget(void *base, size_t offset_bytes, size_t size_bytes) {
  assert(base && size_bytes);
  (void)mmap((char *)base + offset_bytes, size_bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANON | MAP_FIXED, -1, 0);
}

unsigned tsr__os_processor_count(void) {
  long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? (unsigned)count : 1;
}
