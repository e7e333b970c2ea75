/* peaks.h - the maximum of each category, and of each function in a category. */
#ifndef TSR_QUESTIONS_CHECK_PEAKS_H
#define TSR_QUESTIONS_CHECK_PEAKS_H

#include "base/arena.h"
#include "questions/shared/causes.h"
#include "tessera/unstable/check.h"

/* Functions of a snapshot, by the place of a stack: file and function identify one, with those of
 * the layer, ignoring lines and folders. */
typedef struct tsr__functions {
  const tsr__places *places; /* not owned */
  uint32_t *of_place;        /* by place */
  const char **names;        /* by function; live in `arena` */
  uint32_t count;            /* at least 1 */
  tsr__arena arena;
} tsr__functions;

/* `places` must outlive it. Time is linear in places. `out` is released by the function below, also when zeroed.
 * Fails with TSR_ERROR_MEMORY. */
int tsr__functions_compute(const tsr_snapshot *snapshot, const tsr__places *places,
                           tsr__functions *out, tsr_error *error);
void tsr__functions_release(tsr__functions *functions);

/* Fill categories and causes of `device` (names are the functions' own), in requested bytes, or if
 * `counts_blocks` in bytes of blocks. Time is linear in events. Fails with TSR_ERROR_MEMORY. */
int tsr__check_peaks(const tsr__timeline *timeline, const tsr__categories *categories,
                     const tsr__functions *functions, bool counts_blocks, tsr_check_device *device,
                     tsr_error *error);

/* The order of causes: by their maximum, largest first. For qsort. */
int tsr__compare_check_causes(const void *a, const void *b);

#endif
