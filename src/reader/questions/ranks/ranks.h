/* ranks.h - between the files of the question "ranks". */
#ifndef TSR_QUESTIONS_RANKS_H
#define TSR_QUESTIONS_RANKS_H

#include "emit/fields.h"
#include "stacks/stacks.h"
#include "tessera/output.h"
#include "tessera/unstable/fleet.h"
#include "tessera/unstable/input.h"

/* Changes that are listed of each outlier, if nobody asks for a number. */
enum { TSR__RANKS_CHANGES = 10 };

extern const tsr_record tsr__fields_ranks;

/* The growth of ranks from dump to dump, in text with the stacks of the one whose card is full first, or that grew most. */
void tsr__ranks_emit_growth(tsr__stack_printer *printer, const tsr_ranks *ranks);
/* Append a sentence about the first growth, which has a time at which the card is full. */
void tsr__ranks_append_forecast(tsr__buffer *out, const tsr_ranks *ranks);

/* What was checked, if there are budgets: in text a verdict and a table before everything else, in JSON fields. */
void tsr__ranks_emit_checks(tsr__stack_printer *printer, const tsr_ranks *ranks);
/* "failed: 1 of 2 checks", "inconclusive: 2 checks passed, but 1 rank has no snapshot". */
void tsr__ranks_check_verdict(tsr__buffer *out, const tsr_ranks *ranks);
/* "the peak of rank 17 is 72.10 GiB, 2.10 GiB above its budget of 70.00 GiB". */
void tsr__ranks_check_sentence(tsr__buffer *out, const tsr_ranks *ranks,
                               const tsr_rank_check *check);
/* "peak", "activation", "reserved", "spread". */
const char *tsr__ranks_check_subject(const tsr_rank_check *check);
/* Why a check that did not fail does not pass: "1 rank has no snapshot"; nothing if there is no doubt. */
void tsr__ranks_doubt_words(tsr__buffer *out, const tsr_ranks *ranks);

/* The formats for other programs, in the order of tsr__ranks_forms. `path` is what was asked about. */
extern const char *const tsr__ranks_forms[];
int tsr__ranks_write_form(size_t number, const char *path, const tsr_ranks *ranks,
                          tsr_write_fn *write, void *context, tsr_error *error);

/* Write the whole report. Fails with TSR_ERROR_MEMORY or TSR_ERROR_WRITE. */
int tsr__report_ranks(const tsr_report_input *input, const tsr_ranks *ranks,
                      const tsr_report_options *options, tsr_write_fn *write, void *context,
                      tsr_error *error);

#endif
