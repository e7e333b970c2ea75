/* categories.h - categories in the reports that list stacks. */
#ifndef TSR_QUESTIONS_SHARED_CATEGORIES_H
#define TSR_QUESTIONS_SHARED_CATEGORIES_H

#include "emit/emitter.h"
#include "tessera/unstable/answers.h"

/* The largest category, and the number of others: "activation", "optimizer_state +3". */
void tsr__append_category(tsr__buffer *out, const tsr_stack_share *share);

/* "activation", or each kind with its bytes, largest first: "optimizer_state 3.15 GiB, parameter
 * 1.58 GiB". */
void tsr__append_categories(tsr__buffer *out, const tsr_stack_share *share);

/* Text: "made in forward and alive when backward began (sure)". */
void tsr__append_reason(tsr__buffer *out, tsr_evidence evidence);

/* JSON, of an open object: `phase`, `evidence` and `confidence`, as tsr_phase_name and its like spell
 * them. */
void tsr__emit_reason(tsr__emitter *emitter, tsr_phase phase, tsr_evidence evidence);

/* JSON: those, and `categories`, the bytes of each kind there is. */
void tsr__emit_categories(tsr__emitter *emitter, const tsr_stack_share *share);

#endif
