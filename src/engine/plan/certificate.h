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
  TSR__VECTOR(tsr_run_plan *) plans; /* after each change; owned */
} tsr__certificate;

/* What the question has besides what a search knows of it. */
typedef struct tsr__asked_text {
  tsr_text options; /* those that were given: a JSON object */
  tsr_text rates;   /* of --rates, a JSON object; empty without --rates */
} tsr__asked_text;

/* Simulate the plan once more for its peak, and survey its way unless the search did. Returns 0, or
 * TSR_ERROR_MEMORY. */
int tsr__certify(tsr_planning *planning, const tsr_planned *planned, tsr__certificate *out,
                 tsr_error *error);
/* List the ways of a question without searching, and simulate and survey the plan to begin with, if it is possible. Fails as
 * tsr_planning_solve does. */
int tsr__certify_ways(tsr_planning *planning, tsr__certificate *out, tsr_error *error);
/* Accepts a zeroed certificate. */
void tsr__certificate_release(tsr__certificate *certificate);
/* Emit the members of the open object (docs/plan.md, "The certificate"). JSON only. */
void tsr__emit_certificate(tsr__emitter *emitter, const tsr_planning *planning,
                           const tsr_planned *planned, const tsr__certificate *certificate,
                           const tsr__asked_text *asked);
/* Emit the part of a certificate that does not depend on a budget, and so on no search: the question, its ways, and what is in memory at the peak of
 * the plan to begin with. Members have the same names and values. JSON only. */
void tsr__emit_ways(tsr__emitter *emitter, const tsr_planning *planning,
                    const tsr__certificate *certificate, const tsr__asked_text *asked);

/* Emit a config.json without its line breaks and indentation. JSON only. */
void tsr__emit_config(tsr__emitter *emitter, const char *key, const char *config);

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
