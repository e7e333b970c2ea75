/* view_groups.h - the groupings a picture can be coloured by: a table of them. */
#ifndef TSR_ANSWERS_VIEW_GROUPS_H
#define TSR_ANSWERS_VIEW_GROUPS_H

#include "attribution/grouping.h"
#include "attribution/kind.h"
#include "tessera/view.h"
#include "timeline/timeline.h"

/* What the devices of a snapshot share. */
typedef struct tsr__view_shared {
  tsr__grouper annotations, contexts, rules; /* rules: without rules where there are none */
  tsr__grouper labels;                       /* without a snapshot where none is asked for */
} tsr__view_shared;

/* `options` may be NULL; their rules must outlive it. Fails as tsr__grouper_init does. */
int tsr__view_shared_init(tsr__view_shared *shared, const tsr_snapshot *snapshot,
                          const tsr_view_options *options, tsr_error *error);
/* A zeroed one is fine. */
void tsr__view_shared_release(tsr__view_shared *shared);

/* Fill in every grouping that says something about this device; `kinds` are the timeline's. Fails with TSR_ERROR_MEMORY; what is
 * there is to be released either way. */
int tsr__view_groupings(const tsr__timeline *timeline, const tsr__view_shared *shared,
                        const tsr__kinds *kinds, tsr_view_device *out, tsr_error *error);
void tsr__view_grouping_release(tsr_view_grouping *grouping);

#endif
