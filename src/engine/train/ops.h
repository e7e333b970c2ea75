/* ops.h - the cost of each op of a run. */
#ifndef TSR_TRAIN_OPS_H
#define TSR_TRAIN_OPS_H

#include "graph/tape.h"
#include "tessera/unstable/training.h"

/* Add up the runs of a tape by op and phase, the slowest first. `run_ns` has the time of each run; `out` has room
 * for TSR_TRAIN_OPS. Returns the number of ops. O(schedule). */
size_t tsr__list_ops(const tsr__tape *tape, const uint64_t *run_ns, tsr_train_op *out);

#endif
