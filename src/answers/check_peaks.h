/* check_peaks.h - the most that each kind, and each function's memory of a kind, held. */
#ifndef TSR_ANSWERS_CHECK_PEAKS_H
#define TSR_ANSWERS_CHECK_PEAKS_H

#include "answers/causes.h"
#include "base/arena.h"
#include "tessera/check.h"

/* Functions of a snapshot, by the place a stack stands for: file and function make one, and those of
 * the layer, whatever the lines and folders. */
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

/* Fill kinds and causes of `device` (names are the functions' own). Time is linear in events. Fails
 * with TSR_ERROR_MEMORY. */
int tsr__check_peaks(const tsr__timeline *timeline, const tsr__kinds *kinds,
                     const tsr__functions *functions, tsr_check_device *device, tsr_error *error);

/* The order of causes: by the most they held, largest first. For qsort. */
int tsr__compare_check_causes(const void *a, const void *b);

#endif
