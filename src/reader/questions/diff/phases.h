/* phases.h - the moments at which two runs are compared. */
#ifndef TSR_QUESTIONS_DIFF_PHASES_H
#define TSR_QUESTIONS_DIFF_PHASES_H

#include "study/study.h"
#include "tessera/unstable/answers.h"

/* Fill a side's `phase` and `in_phase`, and where memory ran out; its device is there. Time is linear in events. Fails with
 * TSR_ERROR_MEMORY. */
int tsr__diff_phases(tsr_study *study, tsr_diff_side *side, tsr_error *error);

/* Choose both sides' `compared`, and the device's `compared_phase`. */
void tsr__diff_choose_moments(tsr_diff_device *device);

#endif
