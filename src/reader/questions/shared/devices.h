/* devices.h - apply a function to every device that a query selects. */
#ifndef TSR_QUESTIONS_SHARED_DEVICES_H
#define TSR_QUESTIONS_SHARED_DEVICES_H

#include "study/study.h"
#include "tessera/unstable/answers.h"

/* Shared by all devices. */
typedef struct tsr__asking {
  tsr_study *study;
  const tsr_snapshot *snapshot; /* the study's */
  size_t top;                   /* entries of a list; 0: all */
} tsr__asking;

/* Fill in the answer's part of one device, which is zeroed; on failure too it is to be released. */
typedef int tsr__describe_fn(const tsr__asking *asking, uint32_t device, void *out,
                             tsr_error *error);

/* The parts, in the query's order: `count` of them have been described. After a failure the last is
 * incomplete. */
typedef struct tsr__parts {
  void *items; /* one allocation, released with tsr__free */
  size_t count;
} tsr__parts;

/* Describe every device of the query, each in `part_bytes`; `needs` (of tsr__study_need) is what
 * `describe` is going to ask the study for. `out` belongs to the caller, also on failure: that of
 * tsr__query_devices or `describe`, or TSR_ERROR_MEMORY. */
int tsr__ask_devices(tsr_study *study, const tsr_query *query, unsigned needs,
                     tsr__describe_fn *describe, size_t part_bytes, tsr__parts *out,
                     tsr_error *error);

#endif
