/* outside.h - what questions about a card say of the memory outside of PyTorch's allocator. */
#ifndef TSR_QUESTIONS_OUTSIDE_H
#define TSR_QUESTIONS_OUTSIDE_H

#include "ask/question.h"
#include "emit/emitter.h"
#include "emit/fields.h"
#include "exec/outside.h"

extern const tsr_record tsr__fields_outside;

/* The card that the user has named, or that the step was traced for; NULL without one. `model` may be NULL. */
const tsr__data_sheet *tsr__params_card(const tsr_params *params, const tsr_model *model);

/* Answer the parameters tsr_run_outside, for the limit in the parameter `limit` (NULL: none), and a run of `how`: ranks, replicas, ranks_per_node and the book.
 * Fails with TSR_ERROR_ARGUMENT, TSR_ERROR_FORMAT for the machine's file, or TSR_ERROR_MEMORY. */
int tsr__params_outside(const tsr_params *params, const tsr_model *model, const char *limit,
                        const tsr_simulate_options *how, tsr_outside *out, tsr_error *error);

/* Emit it as the object "outside", or null where nothing is counted. `reserved_bytes`: of the run or plan; 0: no run. */
void tsr__emit_outside(tsr__emitter *e, const tsr_outside *outside, uint64_t reserved_bytes);

enum { TSR__OUTSIDE_TEXT_BYTES = 384 };

/* "640.00 MiB (480.00 MiB to 850.00 MiB): context, libraries". Returns `text`. */
const char *tsr__outside_words(const tsr_outside *outside, char text[TSR__OUTSIDE_TEXT_BYTES]);
/* "about 6.01 GiB; PyTorch can have 22.66 GiB of 24.00 GiB" of a run that reserves so much. */
const char *tsr__outside_card_words(const tsr_outside *outside, uint64_t reserved_bytes,
                                    char text[TSR__OUTSIDE_TEXT_BYTES]);
/* Why a limit is taken for a card that nobody has named; false if that is not so. */
bool tsr__outside_note(const tsr_outside *outside, char text[TSR__OUTSIDE_TEXT_BYTES]);

/* Whether less than the limit is left to PyTorch. */
bool tsr__outside_lowers(const tsr_outside *outside);

#endif
