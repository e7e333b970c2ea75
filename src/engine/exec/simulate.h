/* simulate.h - what an executor saw, as users see it: for tsr_simulate and tsr_train. */
#ifndef TSR_EXEC_SIMULATE_H
#define TSR_EXEC_SIMULATE_H

#include "exec/build.h"
#include "exec/dry.h"
#include "tessera/unstable/simulation.h"

/* tsr_simulate, for a process that holds `outside` of the card as well: notes on the card count it, and the result has it. It does not
 * change the run, for which `options` have what is left. NULL: notes are by the table. */
int tsr__simulate_beside(const tsr_model *model, const tsr_simulate_options *options,
                         const tsr_outside *outside, tsr_simulation **out, tsr_error *error);

/* What a space besides the device saw. */
tsr_space_peak tsr__space_peak_of(const tsr__dry_device *space);
/* A moment as users see it. */
tsr_simulate_moment tsr__public_moment(const tsr__schedule *schedule,
                                       const tsr__dry_moment *moment);

#endif
