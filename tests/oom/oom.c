/* oom.c - a countdown in front of the system's allocator.
 *
 * `countdown` is 0 when nothing is to fail; otherwise the allocation that brings it to 0 fails, and
 * only that one: code that goes on after a failure meets a system that has memory again. Threads of
 * an operation count together. jansson, a library that the linker does not reach, is asked to call the countdown. */
#include "oom.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "../unit/test_support.h"

enum { LIMIT = 1000000 };

static atomic_uint countdown;
static atomic_bool has_failed;

void *__real_malloc(size_t size_bytes);
void *__real_calloc(size_t count, size_t item_size);
void *__real_realloc(void *items, size_t size_bytes);
void *__wrap_malloc(size_t size_bytes);
void *__wrap_calloc(size_t count, size_t item_size);
void *__wrap_realloc(void *items, size_t size_bytes);

static bool fails_now(void) {
  unsigned left = atomic_load(&countdown);
  while (left && !atomic_compare_exchange_weak(&countdown, &left, left - 1)) continue;
  if (left != 1) return false;
  atomic_store(&has_failed, true);
  return true;
}

void *__wrap_malloc(size_t size_bytes) {
  return fails_now() ? NULL : __real_malloc(size_bytes);
}

void *__wrap_calloc(size_t count, size_t item_size) {
  return fails_now() ? NULL : __real_calloc(count, item_size);
}

void *__wrap_realloc(void *items, size_t size_bytes) {
  return fails_now() ? NULL : __real_realloc(items, size_bytes);
}

void tsr_test_oom(tsr_test_operation *operation, void *context, unsigned at_least) {
  tsr_test_oom_sparing(operation, context, at_least, 0);
}

void tsr_test_oom_sparing(tsr_test_operation *operation, void *context, unsigned at_least,
                          unsigned spared) {
  json_set_alloc_funcs(__wrap_malloc, free);
  for (unsigned n = 1; n < LIMIT; n++) {
    has_failed = false;
    countdown = n;
    int status = operation(context);
    countdown = 0;
    if (!has_failed) { /* fewer than n allocations: each has had its turn */
      assert_int_equal(status, TSR_OK);
      assert_true(n > at_least);
      return;
    }
    if (status == TSR_OK && spared) {
      spared--;
      continue;
    }
    if (status != TSR_ERROR_MEMORY) print_message("# allocation %u failed unnoticed\n", n);
    assert_int_equal(status, TSR_ERROR_MEMORY);
  }
  fail_msg("still failing after %d allocations", LIMIT);
}
