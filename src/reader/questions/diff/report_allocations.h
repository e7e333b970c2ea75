/* report_allocations.h - the part of the report of `diff` that is about pairs of allocations. */
#ifndef TSR_QUESTIONS_DIFF_REPORT_ALLOCATIONS_H
#define TSR_QUESTIONS_DIFF_REPORT_ALLOCATIONS_H

#include "emit/emitter.h"
#include "stacks/stacks.h"
#include "tessera/unstable/answers.h"

/* Print the verdict of a device that has an alignment. Text only. */
void tsr__alignment_verdict(tsr__emitter *emitter, const tsr_diff_device *device);
/* Emit the member "alignment" of the current object. `stacks`: of the old and of the new snapshot. O(rows). */
void tsr__alignment_emit(tsr__emitter *emitter, tsr__stack_printer *const stacks[2],
                         const tsr_alignment *alignment);

#endif
