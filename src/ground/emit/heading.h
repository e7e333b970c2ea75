/* heading.h - what every report has around its answer: inputs before, warnings after. */
#ifndef TSR_EMIT_HEADING_H
#define TSR_EMIT_HEADING_H

#include "emit/emitter.h"

/* Begin the report whose JSON has `fields`, which name the question, on `input`: opens the root object and its "devices" array. */
void tsr__heading_open(tsr__emitter *emitter, const tsr_record *fields,
                       const tsr_report_input *input);
/* The same for an answer with members before its devices: the caller opens that array. */
void tsr__heading_begin(tsr__emitter *emitter, const tsr_record *fields,
                        const tsr_report_input *input);
/* The same for an answer about two inputs. */
void tsr__heading_open_pair(tsr__emitter *emitter, const tsr_record *fields,
                            const tsr_report_input *first, const tsr_report_input *second);
/* Warnings of an answer, over all its devices; those with the same code are combined. */
typedef struct tsr__warning_list {
  tsr_warning items[64];
  size_t count;
} tsr__warning_list;

void tsr__warnings_add(tsr__warning_list *list, const tsr_warning *warnings, size_t count);
/* Pass warnings to the caller's function, if there is one and it is not to be quiet. `options` may be NULL. */
void tsr__warnings_tell(const tsr_report_options *options, const tsr_warning *warnings,
                        size_t count);

/* Close both, with the snapshot's warnings and the answer's in between (`more` may be NULL), and
 * finish the emitter: returns the result of tsr__emitter_finish. */
int tsr__heading_close(tsr__emitter *emitter, const tsr_report_input *input,
                       const tsr__warning_list *more, tsr_error *error);
/* The same for two inputs; a warning of both is printed once. */
int tsr__heading_close_pair(tsr__emitter *emitter, const tsr_report_input *first,
                            const tsr_report_input *second, const tsr__warning_list *more,
                            tsr_error *error);

/* "s" unless `count` is 1. */
const char *tsr__plural(uint64_t count);

#endif
