/* findings.h - what a user can do about the memory, as part of an answer and of its report. */
#ifndef TSR_QUESTIONS_SHARED_FINDINGS_H
#define TSR_QUESTIONS_SHARED_FINDINGS_H

#include "stacks/stacks.h"
#include "study/study.h"

/* A device's findings (study/findings.h), and those that `leaks` and `whatif` add. The caller frees `*out` with
 * tsr__free, also on failure; NULL if none. Fails with TSR_ERROR_MEMORY. */
int tsr__findings_of(tsr_study *study, uint32_t device, tsr_finding **out, size_t *count,
                     tsr_error *error);

typedef TSR__VECTOR(uint32_t) tsr__allocations;

/* What `leaks` finds and is alive at the peak: `saved_bytes` is 0 if that is not worth a change. Its
 * allocations are added to `rows`, if not NULL. Fails with TSR_ERROR_MEMORY. */
int tsr__leak_find(tsr_study *study, uint32_t device, tsr_finding *out, tsr__allocations *rows,
                   tsr_error *error);

/* Of CHECKPOINT, what to checkpoint; the change that a finding advises, as a sentence; its evidence; and where most of its memory is allocated, or
 * nothing. The namer is of the finding's snapshot. Out of memory marks the buffer. */
void tsr__finding_append_block(tsr__namer *namer, const tsr_finding *finding, tsr__buffer *out);
void tsr__finding_append_change(tsr__namer *namer, const tsr_finding *finding, tsr__buffer *out);
void tsr__finding_append_evidence(const tsr_finding *finding, tsr__buffer *out);
/* What would save how much of parameters, gradients and states, in a sentence; nothing for other rules. */
void tsr__finding_append_options(const tsr_finding *finding, tsr__buffer *out);
void tsr__finding_append_place(tsr__namer *namer, const tsr_finding *finding, tsr__buffer *out);

/* How to get a trace, for a file without events, or what such a file is, if its format has no trace: a sentence or two. */
const char *tsr__how_to_record(const tsr_snapshot *snapshot);

/* The member "findings" in JSON; nothing in text. */
void tsr__findings_emit(tsr__stack_printer *printer, const tsr_finding *findings, size_t count);
/* The evidence and the line of most of one finding, below its change; nothing in JSON. */
void tsr__finding_print_evidence(tsr__stack_printer *printer, const tsr_finding *finding);
/* The heading, unless it is NULL, and for each the change, the evidence, and the line of most of it; nothing in JSON, or without
 * any. */
void tsr__findings_print(tsr__stack_printer *printer, const char *heading,
                         const tsr_finding *findings, size_t count);
/* How many lines that takes, with the empty one before it. */
size_t tsr__findings_lines(const tsr_snapshot *snapshot, const tsr_finding *findings, size_t count);

#endif
