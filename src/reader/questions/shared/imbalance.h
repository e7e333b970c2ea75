/* imbalance.h - do the GPUs of a file have very different peaks? */
#ifndef TSR_QUESTIONS_SHARED_IMBALANCE_H
#define TSR_QUESTIONS_SHARED_IMBALANCE_H

#include "emit/emitter.h"
#include "study/study.h"
#include "tessera/unstable/answers.h"

/* Compare the peaks of these devices. A GPU is at work if its peak is a twentieth of the highest or more; the
 * peaks differ much if the highest is half more than the mean of the others. Fails with TSR_ERROR_MEMORY. */
int tsr__imbalance_find(tsr_study *study, const uint32_t *devices, size_t count, tsr_imbalance *out,
                        tsr_error *error);

/* JSON: the member "imbalance", null where the GPUs are used alike. Text: a paragraph, or nothing. */
void tsr__imbalance_emit(tsr__emitter *emitter, const tsr_imbalance *found);

#endif
