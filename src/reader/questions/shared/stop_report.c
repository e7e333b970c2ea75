/* stop_report.c - where memory ran out for good, as text and JSON. See stepping.h.
 *
 * For answers that show something else, such as the steps or the peak: it is one line that points to `tessera why`,
 * unless that is on the same page. */
#include <assert.h>

#include "base/format.h"
#include "questions/shared/stepping.h"

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
  tsr__buffer_printf(out, ", at event %s, with %s allocated%s.",
                     tsr__format_count((uint64_t)stop->event, event),
                     tsr__format_size(stop->allocated_bytes, bytes),
                     emitter->options.is_on_page ? "" : "; see `tessera why`");
  tsr__emit_line(emitter, TSR__ALARM, 0);
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
