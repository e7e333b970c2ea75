/* stepping.c - see stepping.h. */
#include "questions/shared/stepping.h"

#include <assert.h>

int tsr__stepping_find(tsr_study *study, uint32_t device, tsr__stepping *out, tsr_error *error) {
  tsr__stepping s;
  int status = tsr__study_timeline(study, device, &s.timeline, error);
  if (!status) status = tsr__study_roles(study, &s.roles, error);
  if (!status) status = tsr__study_phases(study, device, &s.phases, error);
  if (!status) status = tsr__study_cycle(study, device, &s.cycle, error);
  if (status) return status;
  assert(!s.cycle->steps.count ||
         s.cycle->steps.items[s.cycle->steps.count - 1].last < s.timeline->events.count);
  *out = s;
  return 0;
}
