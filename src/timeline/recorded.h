/* recorded.h - memory as the trace alone tells it, counted from zero at its first event.
 *
 * This is what Mosaic and PyTorch's own viewer call dynamic memory. It knows nothing of what was
 * there before the recording began; that is `static` memory, estimated from the final blocks. */
#ifndef TSR_TIMELINE_RECORDED_H
#define TSR_TIMELINE_RECORDED_H

#include "base/error.h"
#include "base/vector.h"
#include "tessera/answers.h"

/* An allocation that is live at the peak. */
typedef struct tsr__live {
  uint64_t event; /* the alloc */
  uint64_t size_bytes;
  uint32_t stack;
} tsr__live;

/* Owned by the caller, to be released with tsr__recorded_release. */
typedef struct tsr__recorded {
  tsr_recorded totals;
  TSR__VECTOR(tsr__live) live; /* at totals.peak_event, by event */
  uint64_t frees_without_alloc;
} tsr__recorded;

/* Replay one device's trace. `out` is zeroed or released before. Fails with TSR_ERROR_MEMORY. Time
 * is linear in events and blocks, memory in the distinct addresses of the trace. */
int tsr__recorded_compute(const tsr_snapshot *snapshot, uint32_t device, tsr__recorded *out,
                          tsr_error *error);
/* The same without the live set, which costs a second pass. */
int tsr__recorded_totals(const tsr_snapshot *snapshot, uint32_t device, tsr__recorded *out,
                         tsr_error *error);
void tsr__recorded_release(tsr__recorded *recorded);

#endif
