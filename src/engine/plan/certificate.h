/* certificate.h - an answer of the search, with what a reader needs to check every sum of it. */
#ifndef TSR_PLAN_CERTIFICATE_H
#define TSR_PLAN_CERTIFICATE_H

#include "emit/emitter.h"
#include "plan/planner.h"

/* What the answer alone does not contain. */
typedef struct tsr__certificate {
  tsr_memory_profile *peak; /* of the plan: what is in memory at its peak; owned */
  bool has_other;           /* the plan's own way is not among those that were considered */
  tsr__way other;           /* but this one */
} tsr__certificate;

/* Simulate the plan once more for its peak, and survey its way unless the search did. Fails with TSR_ERROR_MEMORY. */
int tsr__certify(tsr_planning *planning, const tsr_planned *planned, tsr__certificate *out,
                 tsr_error *error);
/* Zeroed is fine. */
void tsr__certificate_release(tsr__certificate *certificate);
/* Emit the members of the open object (docs/plan.md, "The certificate"). JSON only. */
void tsr__emit_certificate(tsr__emitter *emitter, const tsr_planning *planning,
                           const tsr_planned *planned, const tsr__certificate *certificate);

/* The word of a verdict: "fits_with_changes". */
const char *tsr__verdict_word(tsr_planning_verdict verdict);

/* "activation: linear, addmm": what some memory is for, and what made it. Returns `out`. */
const char *tsr__name_memory(char *out, size_t room_bytes, tsr_category category, const char *op,
                             const char *kernel);

#endif
