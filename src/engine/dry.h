/* dry.h - a schedule, given to the allocator model step by step, and recorded. */
#ifndef TSR_ENGINE_DRY_H
#define TSR_ENGINE_DRY_H

#include "engine/tape.h"

/* Run the tape's schedule `options->steps` times and fill the tape's snapshot and `out`, but for
 * what the program knows (parameters, notes). */
int tsr__dry_run(const tsr__tape *tape, const tsr_simulate_options *options, tsr_simulation *out,
                 tsr_error *error);

#endif
