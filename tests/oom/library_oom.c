/* library_oom.c - loaded before the C library (LD_PRELOAD), makes one allocation of a program fail: the
 * n-th, where n is the environment's TSR_FAIL_AT. With TSR_FAIL_FROM, a list of names such as "libjansson libyaml", only
 * those count whose caller is in a library with such a name. Creates the file TSR_FAILED when it has done so, which tells
 * the test that n was not too large; the stack of the allocation goes there with TSR_FAIL_STACK.
 *
 * The countdown of oom.c does not reach libraries, because the linker only redirects calls of what is linked into
 * the program. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t size_bytes);
void *__libc_calloc(size_t count, size_t item_size);
void *__libc_realloc(void *memory, size_t size_bytes);
void *__libc_memalign(size_t alignment, size_t size_bytes);
void *malloc(size_t size_bytes);
void *calloc(size_t count, size_t item_size);
void *realloc(void *memory, size_t size_bytes);
void *aligned_alloc(size_t alignment, size_t size_bytes);
int posix_memalign(void **memory, size_t alignment, size_t size_bytes);

static atomic_int left;
static char from[128];

static void __attribute__((constructor)) begin(void) {
  const char *at = getenv("TSR_FAIL_AT"), *names = getenv("TSR_FAIL_FROM");
  if (names) strncpy(from, names, sizeof from - 1);
  atomic_store(&left, at ? atoi(at) : 0);
}

/* Whether the caller is in one of the libraries. */
static int counts(const void *caller) {
  char names[sizeof from];
  Dl_info in;
  if (!from[0]) return 1;
  if (!dladdr(caller, &in) || !in.dli_fname) return 0;
  memcpy(names, from, sizeof names);
  char *rest = NULL;
  for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
    if (strstr(in.dli_fname, name)) return 1;
  return 0;
}

static void tell(void) {
  void *stack[40];
  const char *name = getenv("TSR_FAILED");
  int file = name ? open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (file < 0) return;
  if (getenv("TSR_FAIL_STACK")) backtrace_symbols_fd(stack, backtrace(stack, 40), file);
  (void)close(file);
}

static int fails_now(const void *caller) {
  if (atomic_load(&left) <= 0 || !counts(caller)) return 0;
  if (atomic_fetch_sub(&left, 1) != 1) return 0;
  tell();
  errno = ENOMEM;
  return 1;
}

void *malloc(size_t size_bytes) {
  return fails_now(__builtin_return_address(0)) ? NULL : __libc_malloc(size_bytes);
}

void *calloc(size_t count, size_t item_size) {
  return fails_now(__builtin_return_address(0)) ? NULL : __libc_calloc(count, item_size);
}

void *realloc(void *memory, size_t size_bytes) {
  return fails_now(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, size_bytes);
}

void *aligned_alloc(size_t alignment, size_t size_bytes) {
  return fails_now(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, size_bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t size_bytes) {
  if (fails_now(__builtin_return_address(0))) return ENOMEM;
  *memory = __libc_memalign(alignment, size_bytes);
  return *memory ? 0 : ENOMEM;
}
