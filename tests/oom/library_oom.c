/* library_oom.c - loaded before the C library (LD_PRELOAD), makes one allocation of jansson or libyaml
 * fail: the n-th, where n is the environment's TSR_FAIL_AT. Allocations of others are not
 * counted. Writes to the file TSR_FAILED when it has done so, which shows the test that n was not too large. The file is opened
 * at the start: later a command can only write its outputs.
 *
 * The countdown of oom.c does not reach these libraries, because the linker only redirects calls of what
 * is linked into the program. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t size_bytes);
void *__libc_realloc(void *memory, size_t size_bytes);
void *malloc(size_t size_bytes);
void *realloc(void *memory, size_t size_bytes);

static atomic_int left;
static int flag = -1;

static void __attribute__((constructor)) begin(void) {
  const char *at = getenv("TSR_FAIL_AT");
  const char *name = getenv("TSR_FAILED");
  flag = name ? open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
  atomic_store(&left, at ? atoi(at) : 0);
}

static int fails_now(const void *caller) {
  Dl_info from;
  if (atomic_load(&left) <= 0 || !dladdr(caller, &from) || !from.dli_fname) return 0;
  if (!strstr(from.dli_fname, "libjansson") && !strstr(from.dli_fname, "libyaml")) return 0;
  if (atomic_fetch_sub(&left, 1) != 1) return 0;
  return write(flag, "x", 1) == 1;
}

void *malloc(size_t size_bytes) {
  return fails_now(__builtin_return_address(0)) ? NULL : __libc_malloc(size_bytes);
}

void *realloc(void *memory, size_t size_bytes) {
  return fails_now(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, size_bytes);
}
