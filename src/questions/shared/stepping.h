/* stepping.h - a device's timeline with its phases and steps, for `steps` and `leaks`. */
#ifndef TSR_QUESTIONS_SHARED_STEPPING_H
#define TSR_QUESTIONS_SHARED_STEPPING_H

#include "study/study.h"

/* What a study keeps of a device. */
typedef struct tsr__stepping {
  const tsr__timeline *timeline;
  const tsr__roles *roles;
  const tsr__phases *phases;
  const tsr__cycle *cycle;
} tsr__stepping;

/* Nothing to release. Fails with TSR_ERROR_MEMORY. */
int tsr__stepping_find(tsr_study *study, uint32_t device, tsr__stepping *out, tsr_error *error);

#endif
