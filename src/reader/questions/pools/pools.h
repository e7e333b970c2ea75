/* pools.h - shared by the files of this question: the pools of a device, and how a moment is measured. */
#ifndef TSR_QUESTIONS_POOLS_POOLS_H
#define TSR_QUESTIONS_POOLS_POOLS_H

#include "base/intern.h"
#include "questions/shared/rerun.h"
#include "study/study.h"
#include "tessera/unstable/pools.h"

/* ---- list.c: which pools there are ---- */

/* The pools of blocks of a device, in the order of the answer. */
typedef struct tsr__pool_list {
  const tsr__timeline *timeline;
  uint32_t *pool_of_span; /* by span: index in the answer's pools */
  size_t count;
} tsr__pool_list;

/* Fill in the answer's pools, but for what they hold at its moment. `list` is released with tsr__pool_list_release,
 * also when zeroed. Time is linear in events. Fails with TSR_ERROR_MEMORY. */
int tsr__pool_list_make(const tsr__timeline *timeline, tsr__pool_list *list, tsr_pools_device *out,
                        tsr_error *error);
void tsr__pool_list_release(tsr__pool_list *list);

/* ---- measure.c: what they hold at a moment ---- */

/* What is measured: all lists are the caller's, who frees them with tsr__free. */
typedef struct tsr__pool_measure {
  tsr_moment moment;
  tsr_pools_sums sums;
  tsr_pools_sums *pools;     /* by pool */
  uint64_t *segments;        /* by pool: spans that are there */
  uint64_t releasable;       /* spans of default pools that are entirely free */
  tsr_pools_holder *holders; /* all, most free memory of their own first */
  size_t holder_count;
  tsr_pools_segment *units; /* all, most free first */
  size_t unit_count;
} tsr__pool_measure;

/* `out` is to be released in any case. Time is that of sorting the live set and the spans. Fails with
 * TSR_ERROR_MEMORY. */
int tsr__pool_measure_at(const tsr__pool_list *list, const tsr_pools_pool *pools, int64_t event,
                         tsr__pool_measure *out, tsr_error *error);
void tsr__pool_measure_release(tsr__pool_measure *measure);

/* ---- trials.c: what other pools would have reserved ---- */

/* Fill in the trials. Fails as tsr__rerun does. */
int tsr__pool_trials(const tsr__pool_list *list, tsr__patience *patience, tsr_pools_device *out,
                     tsr_error *error);

#endif
