/* pcre.h - PCRE2, whose memory comes from memory.h, so that lack of memory can be tested. */
#ifndef TSR_BASE_PCRE_H
#define TSR_BASE_PCRE_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/memory.h"

static inline void *tsr__pcre_give(size_t size_bytes, void *context) {
  (void)context;
  return tsr__realloc(NULL, size_bytes, 1);
}

static inline void tsr__pcre_take(void *memory, void *context) {
  (void)context;
  tsr__free(memory);
}

/* NULL when out of memory; pcre2_general_context_free frees it. */
static inline pcre2_general_context *tsr__pcre_memory(void) {
  return pcre2_general_context_create(tsr__pcre_give, tsr__pcre_take, NULL);
}

#endif
