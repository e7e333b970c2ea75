/* marked.h - annotations that name a step or a phase, as ranges of events. */
#ifndef TSR_ATTRIBUTION_MARKED_H
#define TSR_ATTRIBUTION_MARKED_H

#include "base/error.h"
#include "base/vector.h"
#include "tessera/unstable/attribution.h"
#include "tessera/unstable/columns.h"

/* Events first .. last, inclusive, are between the START and the END of an annotation; if `is_open`, the END is
 * absent, and `last` is before the next step's START or the last event of the trace. */
typedef struct tsr__marked {
  uint32_t first, last;
  uint32_t name;          /* string id */
  uint8_t phase;          /* tsr_phase, or UNKNOWN */
  bool is_step;           /* it stands for a whole step: ProfilerStep */
  bool is_open;           /* only steps are kept if they never end */
  bool is_optimizer_step; /* PyTorch's own Optimizer.step */
} tsr__marked;

typedef TSR__VECTOR(tsr__marked) tsr__marked_ranges;

/* `shows_training`: a name means backward, zero_grad or an optimizer, even if no event is in its range. */
typedef struct tsr__marks_read {
  tsr__marked_ranges ranges;
  bool shows_training;
} tsr__marks_read;

/* The ranges of annotations whose name means a step or a phase and that contain an event, by first
 * event. A START is paired with the next END of its name; duplicate entries, as some releases write,
 * count once. A step whose END is absent, because the run died in it or the recording ended, is kept as
 * open. Empty if events have no times, or times that go backwards. Time is linear in annotations,
 * times the logarithm of events. The caller frees the ranges. Fails with TSR_ERROR_MEMORY. */
int tsr__marked_compute(const tsr_snapshot *snapshot, const tsr_events *events,
                        tsr__marks_read *out, tsr_error *error);

#endif
