/* shares.h - a live set summed by stack, as `peak`, `at` and others list it. */
#ifndef TSR_QUESTIONS_SHARED_SHARES_H
#define TSR_QUESTIONS_SHARED_SHARES_H

#include "attribution/category.h"
#include "tessera/unstable/answers.h"
#include "timeline/timeline.h"

/* Owned by the caller; `items` is released with tsr__free. */
typedef struct tsr__shares {
  tsr_stack_share *items; /* largest first */
  size_t count;
  tsr_named *names;                       /* released with tsr__free; NULL where nothing is named */
  uint64_t omitted_stacks, omitted_bytes; /* what `top` left out */
} tsr__shares;

/* One share for each stack, of requested bytes; memory without a stack, or with an empty one, is two: what is
 * older than the recording, and what is not. `categories` and `names` are the timeline's; if NULL, everything is
 * unknown, and nothing is named. At most `top` shares,
 * 0 for all. The shares add up to the live set. Fails with TSR_ERROR_MEMORY. */
int tsr__shares_of(const tsr__timeline *timeline, const tsr__live_set *live,
                   const tsr__categories *categories, const tsr__names *names, size_t top,
                   tsr__shares *out, tsr_error *error);

/* The misfits of a timeline as warnings of an answer, allocated; `*count` may be 0. NULL when out
 * of memory. */
tsr_warning *tsr__copy_warnings(const tsr__timeline *timeline, size_t *count);

#endif
