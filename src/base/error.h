/* error.h - filling in a tsr_error, and checks that explain themselves. */
#ifndef TSR_BASE_ERROR_H
#define TSR_BASE_ERROR_H

#include "tessera/status.h"

#if defined(__GNUC__)
#define TSR__PRINTF(format_index, first_arg) \
  __attribute__((format(printf, format_index, first_arg)))
#else
#define TSR__PRINTF(format_index, first_arg)
#endif

/* Fill `error` (where not NULL) and answer `status`, so that a failing function can end in
 * `return tsr__fail(...)`. The message is cut to the array and freed of control characters: texts
 * from a file may be in it. */
int tsr__fail(tsr_error *error, tsr_status status, uint64_t offset, const char *format, ...)
    TSR__PRINTF(4, 5);

/* tsr__fail for TSR_ERROR_MEMORY. Allocates nothing. Here in full, so that whoever reads the caller,
 * an analyzer too, sees that it never answers 0. */
static inline int tsr__fail_memory(tsr_error *error) {
  (void)tsr__fail(error, TSR_ERROR_MEMORY, TSR_OFFSET_NONE, "out of memory");
  return TSR_ERROR_MEMORY;
}

#endif
