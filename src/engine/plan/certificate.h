/* certificate.h - an answer of the search, with what a reader needs to check every sum in it. */
#ifndef TSR_PLAN_CERTIFICATE_H
#define TSR_PLAN_CERTIFICATE_H

#include "emit/emitter.h"
#include "plan/planner.h"

/* What the certificate contains in addition to the answer. */
typedef struct tsr__certificate {
  tsr_memory_profile *peak; /* what is in memory at the plan's peak; owned */
  bool has_other;           /* the plan's way is `other`, which the search did not consider */
  tsr__way other;
} tsr__certificate;

/* Simulate the plan once more for its peak, and survey its way unless the search did. Returns 0, or
 * TSR_ERROR_MEMORY. */
int tsr__certify(tsr_planning *planning, const tsr_planned *planned, tsr__certificate *out,
                 tsr_error *error);
/* Accepts a zeroed certificate. */
void tsr__certificate_release(tsr__certificate *certificate);
/* Emit the members of the open object (docs/plan.md, "The certificate"). JSON only. */
void tsr__emit_certificate(tsr__emitter *emitter, const tsr_planning *planning,
                           const tsr_planned *planned, const tsr__certificate *certificate);

/* Emit the limit at which a search ended, if it did. JSON only. */
void tsr__emit_stopped(tsr__emitter *emitter, tsr_effort_end stopped_by);

/* Emit what a plan takes on the host. JSON only. */
void tsr__emit_host_bytes(tsr__emitter *emitter, const tsr_run_plan_cost *cost);

/* The word for a verdict: "fits_with_changes". */
const char *tsr__verdict_word(tsr_planning_verdict verdict);

/* Write "activation: linear, addmm": the category of some memory, and what made it. Returns `out`. */
const char *tsr__name_memory(char *out, size_t room_bytes, tsr_category category, const char *op,
                             const char *kernel);

#endif
