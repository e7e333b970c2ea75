/* devices.h - what answers that know what memory is for do alike: ask each device a query means. */
#ifndef TSR_ANSWERS_DEVICES_H
#define TSR_ANSWERS_DEVICES_H

#include "attribution/phase.h"
#include "tessera/answers.h"

/* What is the same for all devices. */
typedef struct tsr__asking {
  const tsr_snapshot *snapshot;
  const tsr__roles *roles;
  size_t top; /* entries of a list; 0: all */
} tsr__asking;

/* Fill in the answer's part of one device, which is zeroed; on failure too it is to be released. */
typedef int tsr__describe_fn(const tsr__asking *asking, uint32_t device, void *out,
                             tsr_error *error);

/* The parts, in the query's order: `count` of them have been described, the last perhaps in vain. */
typedef struct tsr__parts {
  void *items; /* one allocation, released with tsr__free */
  size_t count;
} tsr__parts;

/* Describe every device of the query, each in `part_bytes`. `out` belongs to the caller, also on
 * failure: as tsr__query_devices and `describe`, or TSR_ERROR_MEMORY. */
int tsr__ask_devices(const tsr_snapshot *snapshot, const tsr_query *query,
                     tsr__describe_fn *describe, size_t part_bytes, tsr__parts *out,
                     tsr_error *error);

#endif
