/* marked.h - annotations that name a step or a phase, as ranges of events. */
#ifndef TSR_ATTRIBUTION_MARKED_H
#define TSR_ATTRIBUTION_MARKED_H

#include "base/error.h"
#include "base/vector.h"
#include "tessera/attribution.h"
#include "tessera/snapshot.h"

/* Events first .. last, both included, lie between the START and the END of an annotation. */
typedef struct tsr__marked {
  uint32_t first, last;
  uint32_t name;          /* string id */
  uint8_t phase;          /* tsr_phase, or UNKNOWN */
  bool is_step;           /* it stands for a whole step: ProfilerStep */
  bool is_optimizer_step; /* PyTorch's own Optimizer.step */
} tsr__marked;

typedef TSR__VECTOR(tsr__marked) tsr__marked_ranges;

/* The ranges of annotations whose name tells a step or a phase and that hold an event, by first
 * event. A START is paired with the next END of its name; doubled entries, as some releases write,
 * are one. Empty where events have no times, or times that go back. Time is linear in annotations,
 * times the logarithm of events. `out` is the caller's to free. Fails with TSR_ERROR_MEMORY. */
int tsr__marked_compute(const tsr_snapshot *snapshot, const tsr_events *events,
                        tsr__marked_ranges *out, tsr_error *error);

#endif
