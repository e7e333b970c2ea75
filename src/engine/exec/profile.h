/* profile.h - what is in memory at the peak of a run: the block that it belongs to, and the ops that made and saved
 * it. */
#ifndef TSR_EXEC_PROFILE_H
#define TSR_EXEC_PROFILE_H

#include "exec/dry.h"
#include "tessera/unstable/simulation.h"

/* Profile a run that has ended: `device` is what it saw, `dry` how to walk it again without an observer, which
 * is done up to the peak. The caller owns `*out`. TSR_ERROR_MEMORY. As long as
 * a dry run, and O(n log n) in what is live at the peak. */
int tsr__memory_profile_compute(const tsr__schedule *schedule, const tsr__dry_options *dry,
                                const tsr__dry_device *device, tsr_memory_profile **out,
                                tsr_error *error);

#endif
