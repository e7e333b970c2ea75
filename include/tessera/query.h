/* tessera/query.h - which part of a snapshot a question is about.
 */
#ifndef TESSERA_QUERY_H
#define TESSERA_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/options.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which devices and how much; NULL means every device and everything (tessera/options.h). */
typedef struct tsr_query {
  size_t struct_bytes;
  const uint32_t *devices; /* the devices to answer for; device_count 0 = all */
  size_t device_count;
  size_t top; /* longest list to return, 0 = all; omitted entries are counted */
  /* Called now and then, in the thread that asks, by questions that repeat the trace many times (whatif,
   * why) or simulate steps (simulate, plan): what is done, and the total or 0 if unknown. False stops the question, which then fails with
   * TSR_ERROR_IO. NULL for none. */
  bool (*progress)(void *context, uint64_t done_units, uint64_t total_units);
  void *progress_context;
} tsr_query;

#ifdef __cplusplus
}
#endif
#endif
