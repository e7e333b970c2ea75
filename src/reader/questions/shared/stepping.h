/* stepping.h - a device's timeline with its phases and steps, for `steps`, `leaks` and `peak`. */
#ifndef TSR_QUESTIONS_SHARED_STEPPING_H
#define TSR_QUESTIONS_SHARED_STEPPING_H

#include "emit/emitter.h"
#include "study/study.h"

/* What a study keeps of a device. */
typedef struct tsr__stepping {
  const tsr__timeline *timeline;
  const tsr__roles *roles;
  const tsr__phases *phases;
  const tsr__cycle *cycle;
} tsr__stepping;

/* Where it ran out of memory for good. Time is that of tsr__timeline_live. Fails with TSR_ERROR_MEMORY. */
int tsr__stepping_stop(const tsr__stepping *s, tsr_step_stop *out, tsr_error *error);

/* Print a line on it, in text: "Memory ran out in the forward pass of step 2, at event 3,910, with 10.62 GiB
 * allocated; see `tessera why`." Nothing if absent. */
void tsr__emit_stop(tsr__emitter *emitter, const tsr_step_stop *stop, tsr_steps_unit unit);
/* The field `out_of_memory` in JSON, null if absent. */
void tsr__emit_stop_fields(tsr__emitter *emitter, const tsr_step_stop *stop);
/* "the forward pass", ...; NULL if the phase is not known. */
const char *tsr__phase_words(tsr_phase phase);

/* Nothing to release. Fails with TSR_ERROR_MEMORY. */
int tsr__stepping_find(tsr_study *study, uint32_t device, tsr__stepping *out, tsr_error *error);

#endif
