/* trials.h - would other settings have let a failed request through? */
#ifndef TSR_QUESTIONS_WHY_TRIALS_H
#define TSR_QUESTIONS_WHY_TRIALS_H

#include "questions/shared/rerun.h"
#include "tessera/unstable/why.h"
#include "timeline/timeline.h"

/* Fill the device's trials for its chosen oom event: the recorded settings, and those of `options`, or
 * the default ones if any could help. Where the request is served, `tail` follows it. `patience` as in
 * tsr__rerun_options. Needs the device's request, capacity and outlook. Fails with
 * TSR_ERROR_MEMORY. */
int tsr__why_try(const tsr__timeline *timeline, const tsr_why_options *options,
                 const tsr__rerun_tail *tail, tsr__patience *patience, tsr_why_device *device,
                 tsr_error *error);

#endif
