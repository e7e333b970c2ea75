/* simulate.h - what an executor saw, as users see it: for tsr_simulate and tsr_train. */
#ifndef TSR_EXEC_SIMULATE_H
#define TSR_EXEC_SIMULATE_H

#include "exec/build.h"
#include "exec/dry.h"
#include "tessera/unstable/simulation.h"

/* What a space besides the device saw. */
tsr_space_peak tsr__space_peak_of(const tsr__dry_device *space);
/* A moment as users see it. */
tsr_simulate_moment tsr__public_moment(const tsr__schedule *schedule,
                                       const tsr__dry_moment *moment);

#endif
