/* report.c - prints what `train` reports while it runs and at its end: lines of text, or events in JSON. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "questions/plan/plan.h"
#include "tessera/unstable/train_report.h"

struct tsr_train_report {
  tsr__emitter emitter;
};

int tsr_train_report_new(const tsr_report_options *options, tsr_write_fn *write, void *context,
                         tsr_train_report **out, tsr_error *error) {
  tsr_report_options how;
  int status = tsr__options_read(options, &how, sizeof how, error);
  if (status) return status;
  tsr_train_report *report = TSR__NEW(tsr_train_report);
  if (!report) return tsr__fail_memory(error);
  tsr__emitter_init(&report->emitter, &how, write, context);
  report->emitter.has_ended_line = true; /* a stream without events is empty */
  *out = report;
  return 0;
}

int tsr_train_report_finish(tsr_train_report *report, tsr_error *error) {
  if (!report) return 0;
  int status = tsr__emitter_finish(&report->emitter, error);
  tsr__free(report);
  return status;
}

static void begin(tsr__emitter *e, const char *event) {
  tsr__emit_json_line(e, NULL);
  tsr__emit_field(e, "event", NULL, tsr__string(event));
}

/* ---- the plan ---- */

bool tsr_train_report_plan(tsr_train_report *report, const char *model, const tsr_planned *p) {
  tsr__emitter *e = &report->emitter;
  begin(e, "plan");
  tsr__emit_field(e, "verdict", NULL, tsr__string(tsr__verdict_word(p->verdict)));
  tsr__emit_field(e, "budget_bytes", NULL, tsr__bytes(p->budget_bytes));
  tsr__emit_field(e, "plan_hash", NULL, tsr__string(tsr_run_plan_hash(p->plan)));
  tsr__emit_field(e, "peak_allocated_bytes", NULL, tsr__bytes(p->with.peak_bytes));
  tsr__emit_field(e, "peak_reserved_bytes", NULL, tsr__bytes(p->with.reserved_bytes));
  tsr__emit_field(e, "bound_bytes", NULL, tsr__bytes(p->bound_bytes));
  tsr__emit_field(e, "is_proved", NULL, tsr__bool(p->is_proved));
  tsr__emit_end(e);
  tsr__emit_found(e, model, p, p->budget_bytes);
  if (p->verdict != TSR_PLANNING_DOES_NOT_FIT) tsr__emit_unbroken(e, TSR__PLAIN, 0);
  return tsr__emitter_flush(e);
}
