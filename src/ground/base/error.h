/* error.h - fills in a tsr_error. */
#ifndef TSR_BASE_ERROR_H
#define TSR_BASE_ERROR_H

#include "tessera/status.h"

#if defined(__GNUC__)
#define TSR__PRINTF(format_index, first_arg) \
  __attribute__((format(printf, format_index, first_arg)))
#else
#define TSR__PRINTF(format_index, first_arg)
#endif

/* Fill `error` (unless NULL) and return `status`, so that a failing function can end with
 * `return tsr__fail(...)`. The message is truncated to the array, and control characters are replaced,
 * because it may contain text from a file. */
int tsr__fail(tsr_error *error, tsr_status status, uint64_t offset, const char *format, ...)
    TSR__PRINTF(4, 5);
/* An analyzer cannot see into it, and would follow its callers to where it has returned 0. */
#ifdef __clang_analyzer__
#define tsr__fail(error, status, ...) (tsr__fail((error), (status), __VA_ARGS__), (int)(status))
#endif

/* tsr__fail for TSR_ERROR_MEMORY. Allocates nothing. Defined inline so that readers of the caller,
 * static analyzers included, see that it never returns 0. */
static inline int tsr__fail_memory(tsr_error *error) {
  (void)tsr__fail(error, TSR_ERROR_MEMORY, TSR_OFFSET_NONE, "out of memory");
  return TSR_ERROR_MEMORY;
}

#endif
