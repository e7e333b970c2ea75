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

int tsr__stepping_stop(const tsr__stepping *s, tsr_step_stop *out, tsr_error *error) {
  tsr__live_set live = {0};
  *out = tsr__cycle_stop_of(tsr__cycle_stop(s->cycle));
  if (out->event < 0) return 0;
  int status = tsr__timeline_live(s->timeline, out->event, &live, error);
  if (!status)
    out->allocated_bytes = tsr__timeline_totals(s->timeline, out->event, &live).allocated_bytes;
  TSR__VECTOR_FREE(&live);
  return status;
}
