/* why_trials.h - would other settings have let a failed request through? */
#ifndef TSR_ANSWERS_WHY_TRIALS_H
#define TSR_ANSWERS_WHY_TRIALS_H

#include "tessera/why.h"
#include "timeline/timeline.h"

/* Fill the device's trials for its chosen oom event: the recorded settings, and those of `options`, or
 * the default ones where any could help. `patience` as in tsr__rerun_options. Needs the device's request to be filled. Fails with
 * TSR_ERROR_MEMORY. */
int tsr__why_try(const tsr__timeline *timeline, const tsr_why_options *options, uint64_t *patience,
                 tsr_why_device *device, tsr_error *error);

/* What the driver is asked for when no cached block serves a rounded request: a segment, or pages. */
uint64_t tsr__why_needed(const tsr_allocator_settings *settings, uint64_t request_bytes);

#endif
