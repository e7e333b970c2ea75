/* stepping.c - see stepping.h. */
#include "questions/shared/stepping.h"

#include <assert.h>

#include "base/format.h"

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

const char *tsr__phase_words(tsr_phase phase) {
  static const char *const words[TSR_PHASE_COUNT] = {[TSR_PHASE_SETUP] = "the setup",
                                                     [TSR_PHASE_DATA] = "the loading of a batch",
                                                     [TSR_PHASE_FORWARD] = "the forward pass",
                                                     [TSR_PHASE_RECOMPUTE] = "the recomputation",
                                                     [TSR_PHASE_BACKWARD] = "the backward pass",
                                                     [TSR_PHASE_OPTIMIZER] = "the optimizer",
                                                     [TSR_PHASE_ZERO_GRAD] = "zero_grad"};
  assert((unsigned)phase < TSR_PHASE_COUNT);
  return words[phase];
}

void tsr__emit_stop(tsr__emitter *emitter, const tsr_step_stop *stop, tsr_steps_unit unit) {
  char event[TSR__FORMAT_BYTES], bytes[TSR__FORMAT_BYTES], step[TSR__FORMAT_BYTES];
  const char *where = tsr__phase_words(stop->phase);
  tsr__buffer *out = &emitter->scratch;
  if (stop->event < 0 || !tsr__emitter_is_text(emitter)) return;
  tsr__buffer_text(out, "Memory ran out");
  if (where) tsr__buffer_printf(out, " in %s", where);
  if (stop->step)
    tsr__buffer_printf(out, "%s %s %s", where ? " of" : " in", tsr_steps_unit_name(unit),
                       tsr__format_count(stop->step, step));
  tsr__buffer_printf(out, ", at event %s, with %s allocated; `tessera why` explains it.",
                     tsr__format_count((uint64_t)stop->event, event),
                     tsr__format_size(stop->allocated_bytes, bytes));
  tsr__emit_line(emitter, TSR__VERDICT, 0);
}

void tsr__emit_stop_fields(tsr__emitter *emitter, const tsr_step_stop *stop) {
  if (tsr__emitter_is_text(emitter)) return;
  if (stop->event < 0) {
    tsr__emit_field(emitter, "out_of_memory", NULL, tsr__nothing());
    return;
  }
  tsr__emit_object(emitter, "out_of_memory");
  tsr__emit_field(emitter, "event", NULL, tsr__index(stop->event));
  tsr__emit_field(emitter, "phase", NULL, tsr__string(tsr_phase_name(stop->phase)));
  tsr__emit_field(emitter, "step", NULL, stop->step ? tsr__count(stop->step) : tsr__nothing());
  tsr__emit_field(emitter, "pass", NULL, tsr__count(stop->pass));
  tsr__emit_field(emitter, "allocated_bytes", NULL, tsr__bytes(stop->allocated_bytes));
  tsr__emit_end(emitter);
}
