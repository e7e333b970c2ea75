/* fail_one.c - makes one allocation of a program fail: the n-th, where n is the environment's TSR_FAIL_AT, whoever
 * makes it. Creates the file TSR_FAILED when it has done so, with the stack of the allocation if TSR_FAIL_STACK is set.
 * Without TSR_FAIL_AT, the file gets the number of allocations when the program ends. Programs that this one starts are left alone.
 *
 * Loaded before the C library (LD_PRELOAD), it has the allocations of all libraries. A sanitizer has its own
 * allocator, which must come first; there it is linked into the program (TSR_IS_LINKED), and the linker redirects the
 * calls of what is linked with it (--wrap). jansson, which is not, is asked to call it. */
#define _GNU_SOURCE
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef TSR_IS_LINKED
#include <jansson.h>
#define HERE(function) __wrap_##function
#define REAL(function) __real_##function
#else
#define HERE(function) function
#define REAL(function) __libc_##function
#endif

void *REAL(malloc)(size_t size_bytes);
void *REAL(calloc)(size_t count, size_t item_size);
void *REAL(realloc)(void *memory, size_t size_bytes);
void *REAL(memalign)(size_t alignment, size_t size_bytes);
void *HERE(malloc)(size_t size_bytes);
void *HERE(calloc)(size_t count, size_t item_size);
void *HERE(realloc)(void *memory, size_t size_bytes);
void *HERE(aligned_alloc)(size_t alignment, size_t size_bytes);

static atomic_int left; /* 0 before the program begins, and after the failure */
static bool counts;     /* nothing fails */

static int file = -1; /* opened at the start: later a command can only write its outputs */

static void __attribute__((constructor)) begin(void) {
  const char *at = getenv("TSR_FAIL_AT");
  const char *name = getenv("TSR_FAILED");
  file = name ? open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
#ifdef TSR_IS_LINKED
  json_set_alloc_funcs(HERE(malloc), free);
#endif
  counts = !at;
  atomic_store(&left, at ? atoi(at) : INT_MAX);
  (void)unsetenv("TSR_FAIL_AT");
  (void)unsetenv("TSR_FAILED");
}

static void __attribute__((destructor)) end(void) {
  if (file >= 0 && counts) (void)dprintf(file, "%d\n", INT_MAX - atomic_load(&left));
}

static void tell(void) {
  void *stack[40];
  if (file < 0) return;
  if (write(file, "failed\n", 7) != 7) abort();
  if (getenv("TSR_FAIL_STACK")) backtrace_symbols_fd(stack, backtrace(stack, 40), file);
}

static int fails_now(void) {
  if (atomic_load(&left) <= 0 || atomic_fetch_sub(&left, 1) != 1) return 0;
  tell();
  errno = ENOMEM;
  return 1;
}

void *HERE(malloc)(size_t size_bytes) {
  return fails_now() ? NULL : REAL(malloc)(size_bytes);
}

void *HERE(calloc)(size_t count, size_t item_size) {
  return fails_now() ? NULL : REAL(calloc)(count, item_size);
}

void *HERE(realloc)(void *memory, size_t size_bytes) {
  return fails_now() ? NULL : REAL(realloc)(memory, size_bytes);
}

#ifdef TSR_IS_LINKED
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t most);
void *__real_aligned_alloc(size_t alignment, size_t size_bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t most);

char *__wrap_strdup(const char *text) {
  return fails_now() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t most) {
  return fails_now() ? NULL : __real_strndup(text, most);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size_bytes) {
  return fails_now() ? NULL : __real_aligned_alloc(alignment, size_bytes);
}
#else
int posix_memalign(void **memory, size_t alignment, size_t size_bytes);

void *aligned_alloc(size_t alignment, size_t size_bytes) {
  return fails_now() ? NULL : __libc_memalign(alignment, size_bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t size_bytes) {
  if (fails_now()) return ENOMEM;
  *memory = __libc_memalign(alignment, size_bytes);
  return *memory ? 0 : ENOMEM;
}
#endif
