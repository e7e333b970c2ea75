/* ops.h - the cost of each op of a run. */
#ifndef TSR_TRAIN_OPS_H
#define TSR_TRAIN_OPS_H

#include "graph/schedule.h"
#include "tessera/unstable/training.h"

/* Sum up the runs of a schedule, by op and phase, the longest first. `run_ns` has the time of each run, `out` room
 * for TSR_TRAIN_OPS. Returns how many there are. O(schedule). */
size_t tsr__list_ops(const tsr__schedule *schedule, const uint64_t *run_ns, tsr_train_op *out);

#endif
