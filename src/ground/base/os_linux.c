/* os_linux.c - what os.h and os_posix.h need of Linux in particular, and of systems like it (FreeBSD). */
#define _GNU_SOURCE /* sched_getaffinity, madvise */
#include "base/os_posix.h"

#include <assert.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/os.h"

int tsr__posix_reserve(int fd, int64_t size) {
  return posix_fallocate(fd, 0, size);
}

void tsr__os_populate(void *data, size_t size_bytes) {
#ifdef MADV_POPULATE_WRITE /* Linux 5.14; older kernels refuse it, which is fine */
  long page_bytes = sysconf(_SC_PAGESIZE);
  if (page_bytes <= 0) return;
  uintptr_t mask = (uintptr_t)page_bytes - 1;
  uintptr_t begin = ((uintptr_t)data + mask) & ~mask, end = ((uintptr_t)data + size_bytes) & ~mask;
  if (begin < end) (void)madvise((void *)begin, end - begin, MADV_POPULATE_WRITE);
#else
  (void)data, (void)size_bytes;
#endif
}

void tsr__os_forget(void *base, size_t offset_bytes, size_t size_bytes) {
  assert(base && size_bytes);
  (void)madvise((char *)base + offset_bytes, size_bytes, MADV_DONTNEED);
}

unsigned tsr__os_processor_count(void) {
#ifdef __linux__
  cpu_set_t sets[8]; /* 8,192 processors; the kernel refuses a set that is too small */
  if (sched_getaffinity(0, sizeof sets, sets) == 0) {
    int count = CPU_COUNT_S(sizeof sets, sets);
    if (count > 0) return (unsigned)count;
  }
#endif
  long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? (unsigned)count : 1;
}
