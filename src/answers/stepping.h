/* stepping.h - a device's timeline with its phases and steps: what `steps` and `leaks` begin with. */
#ifndef TSR_ANSWERS_STEPPING_H
#define TSR_ANSWERS_STEPPING_H

#include "attribution/cycle.h"

typedef struct tsr__stepping {
  tsr__timeline timeline;
  tsr__phases phases;
  tsr__cycle cycle;
} tsr__stepping;

/* `roles` are the snapshot's. `out` is released by the function below, also when zeroed. Fails with
 * TSR_ERROR_MEMORY. */
int tsr__stepping_compute(const tsr_snapshot *snapshot, const tsr__roles *roles, uint32_t device,
                          tsr__stepping *out, tsr_error *error);
void tsr__stepping_release(tsr__stepping *stepping);

#endif
