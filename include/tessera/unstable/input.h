/* tessera/unstable/input.h - what a report says it was computed from. */
#ifndef TESSERA_UNSTABLE_INPUT_H
#define TESSERA_UNSTABLE_INPUT_H

#include "tessera/output.h"
#include "tessera/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One file the answer was computed from, for the report's heading. */
typedef struct tsr_report_input {
  const char *path; /* as the user gave it */
  const tsr_snapshot *snapshot;
} tsr_report_input;

#ifdef __cplusplus
}
#endif
#endif
