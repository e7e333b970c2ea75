/* plan.h - the answer of "plan", as shared by its files. */
#ifndef TSR_QUESTIONS_PLAN_PLAN_H
#define TSR_QUESTIONS_PLAN_PLAN_H

#include "ask/question.h"
#include "base/buffer.h"
#include "emit/emitter.h"
#include "exec/card.h"
#include "plan/certificate.h"
#include "tessera/rates.h"
#include "tessera/unstable/planning.h"

/* The value, and what it owns. */
typedef struct tsr__plan_value {
  tsr_plan_answer about; /* first: tsr_answer_value returns it */
  tsr_model *model;      /* NULL if only formulas are evaluated, or a plan is shown */
  tsr_run_plan *plan;
  tsr_run_plan *
      asked; /* the same before it was replaced by one that the targets can express; NULL: it was not */
  tsr_rates *rates;
  tsr_effort *effort;
  tsr_simulate_options how;
  tsr_outside outside; /* for the budget and the ranks of the plan to begin with */
  tsr__buffer given;   /* the parameters that were given: a JSON object */
  bool is_calibrated;
  tsr_calibration calibration;
  tsr_planning *planning;
  tsr_planned found;
  tsr_largest largest;
  tsr__certificate certificate; /* of `found`, or of the largest size */
  bool lists_ways;              /* of `planning`, instead of a search */
  tsr_run_plan_effects effects;
  tsr_techniques techniques;
  tsr_estimate_question compared_with;
  tsr_estimate estimates[TSR_ESTIMATES];
  uint64_t compared_peak_bytes, compared_reserved_bytes; /* simulated; 0 without a model */
  uint64_t compared_host_bytes;                          /* the same, of a machine */
  tsr_front front;
  tsr_pasted *pasted; /* for each target */
  tsr__card_notes card_notes;
  const char *
      card_lacks; /* what is wrong with the plan that was found, on the card (tsr__card_lacks_room), or NULL */
  char near_note[1024]; /* how the plan to begin with differs from `asked`; empty: it does not */
} tsr__plan_value;

/* What the answer reserves on a card; 0 if that is not one run, or nothing fits. */
uint64_t tsr__plan_reserved_bytes(const tsr__plan_value *value);
int tsr__ask_plan(const tsr__asked *asked, void **out, tsr_error *error);
void tsr__plan_value_free(tsr__plan_value *answer);
int tsr__report_plan(const tsr__report_call *call, tsr_error *error);
/* Write a plan or a model as a file, or the front as CSV or a page. */
int tsr__form_plan(const tsr__report_call *call, size_t form, const char *root, tsr_error *error);

/* ---- front.c ---- */

void tsr__emit_front(tsr__emitter *emitter, const char *name, const tsr__plan_value *value);
int tsr__write_front(const tsr_plan_answer *answer, const char *name, bool is_page,
                     tsr_write_fn *write, void *context, tsr_error *error);

/* ---- report.c ---- */

/* What a certificate has of the question; lives as long as the value. */
tsr__asked_text tsr__asked_text_of(const tsr__plan_value *value);
/* Emit a line with the plan's ranks, if it has at least two. */
void tsr__emit_ranks(tsr__emitter *emitter, const tsr_run_plan *plan);
/* Emit as text how far real times may be from the estimate of this plan, or of all that were printed. */
void tsr__emit_time_band(tsr__emitter *emitter, const tsr__plan_value *value,
                         const tsr_run_plan_cost *cost, bool is_of_all);
/* Emit a line about a search that ended at a limit, if it did, and about what it may have missed. */
void tsr__emit_end_of_search(tsr__emitter *emitter, tsr_effort_end stopped_by, const char *what);
/* Emit what the answer assumes of a step graph, and what cannot be on the card, if anything. */
void tsr__emit_plan_notes(tsr__emitter *emitter, const tsr__plan_value *value);
/* Emit what was found for a budget, as text: the verdict, the changes and, if nothing fits, the proof. */
void tsr__emit_found(tsr__emitter *emitter, const char *name, const tsr_planned *planned,
                     uint64_t budget_bytes);

#endif
