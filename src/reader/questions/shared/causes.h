/* causes.h - a live set by category and by the line that allocated it. */
#ifndef TSR_QUESTIONS_SHARED_CAUSES_H
#define TSR_QUESTIONS_SHARED_CAUSES_H

#include "attribution/category.h"
#include "attribution/labels.h"
#include "attribution/places.h"
#include "tessera/unstable/causes.h"
#include "timeline/timeline.h"

/* A live set by kind and by cause, both largest first. Released with tsr__free. */
typedef struct tsr__held_groups {
  tsr_category_share
      categories[TSR_CATEGORY_COUNT]; /* those that occur, `category_count` of them */
  size_t category_count;
  tsr_cause *causes;
  size_t cause_count;
  tsr_named *names;                                            /* of all causes, or NULL */
  uint64_t omitted_causes, omitted_bytes, omitted_block_bytes; /* what `top` left out */
} tsr__held_groups;

/* The lines of a snapshot: their names (TSR__LABEL_LINE), which divide the memory, and their frames. */
typedef struct tsr__lines {
  const tsr__labels *names;
  const tsr__places *places;
} tsr__lines;

/* `lines` are the snapshot's, `categories` and `names` the timeline's; `names` may be NULL. Bytes are requested bytes, as in tsr__shares_of:
 * a category holds the same in every question. Bytes of blocks add up to what is active. At most `top`
 * causes, 0 for all. Fails with TSR_ERROR_MEMORY. */
int tsr__held_by(const tsr__lines *lines, const tsr__timeline *timeline,
                 const tsr__categories *categories, const tsr__names *names,
                 const tsr__live_set *live, size_t top, tsr__held_groups *out, tsr_error *error);

#endif
