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

/* Write the whole report. Fails with TSR_ERROR_MEMORY or TSR_ERROR_WRITE. */
int tsr__report_ranks(const tsr_report_input *input, const tsr_ranks *ranks,
                      const tsr_report_options *options, tsr_write_fn *write, void *context,
                      tsr_error *error);

#endif
