/* diff.h - between the files that compute a difference: see diff.c. */
#ifndef TSR_ANSWERS_DIFF_H
#define TSR_ANSWERS_DIFF_H

#include "base/error.h"
#include "tessera/answers.h"

/* New less old; stops at the ends of its range. */
int64_t tsr__diff_delta(uint64_t old_bytes, uint64_t new_bytes);

/* The groups of both sides of a device as changes, unequal or not, into `*rows` (tsr__free), and what
 * their names live in into out->names. Either side may be absent. Fails as tsr_profile_compute. */
int tsr__diff_groups(const tsr_snapshot *const snapshots[2], tsr_diff_by by, tsr_diff_device *out,
                     tsr_change **rows, size_t *row_count, tsr_error *error);

#endif
