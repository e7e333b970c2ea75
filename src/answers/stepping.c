/* stepping.c - see stepping.h. */
#include "answers/stepping.h"

int tsr__stepping_compute(const tsr_snapshot *snapshot, const tsr__roles *roles, uint32_t device,
                          tsr__stepping *out, tsr_error *error) {
  tsr__stepping s = {0};
  int status = tsr__timeline_compute(snapshot, device, false, &s.timeline, error);
  if (!status) status = tsr__phases_compute(snapshot, roles, &s.timeline.events, &s.phases, error);
  if (!status) status = tsr__cycle_compute(&s.timeline, roles, &s.phases, &s.cycle, error);
  if (status)
    tsr__stepping_release(&s);
  else
    *out = s;
  return status;
}

void tsr__stepping_release(tsr__stepping *stepping) {
  tsr__timeline_release(&stepping->timeline);
  tsr__phases_release(&stepping->phases);
  tsr__cycle_release(&stepping->cycle);
}
