/* diff.h - between the files that compute a difference: see diff.c. */
#ifndef TSR_QUESTIONS_DIFF_DIFF_H
#define TSR_QUESTIONS_DIFF_DIFF_H

#include "attribution/labels.h"
#include "questions/diff/match.h"
#include "study/study.h"
#include "tessera/unstable/answers.h"

/* New less old; saturates. */
int64_t tsr__diff_delta(uint64_t old_bytes, uint64_t new_bytes);

/* One side of a device; NULL: it does not have it. */
typedef struct tsr__diff_peaks {
  const tsr_peak_device *sides[2];
  const tsr__labels *places[2]; /* by operation or line; not needed by category */
} tsr__diff_peaks;

/* Store the groups of both sides as changes, equal ones included, in `*rows` (tsr__free), and the owner
 * of their names in out->names[0]. Time is linear in stacks and their names. Fails with
 * TSR_ERROR_MEMORY. */
int tsr__diff_groups(const tsr__diff_peaks *peaks, tsr_diff_by by, tsr_diff_device *out,
                     tsr_change **rows, size_t *row_count, tsr_error *error);

/* Pair the allocations of the last whole step of both studies, on the two devices that `device` names; both sides are there. At most
 * `top` changes, 0 for all. Time is linear in the traces, and in the square of the number of differences. Fails with TSR_ERROR_MEMORY;
 * on success *out is released by tsr__alignment_free. */
int tsr__diff_align(tsr_study *const studies[2], const tsr__match *match, size_t top,
                    const tsr_diff_device *device, tsr_alignment **out, tsr_error *error);
/* NULL is fine. */
void tsr__alignment_free(tsr_alignment *alignment);

#endif
