/* view_groups.h - the groupings by which a picture can be coloured. */
#ifndef TSR_PAGE_VIEW_GROUPS_H
#define TSR_PAGE_VIEW_GROUPS_H

#include "attribution/category.h"
#include "study/grouping.h"
#include "tessera/unstable/view.h"
#include "timeline/timeline.h"

/* Shared by the devices of a snapshot. */
typedef struct tsr__view_shared {
  tsr__grouper annotations, contexts, rules; /* rules: without rules if none were given */
  tsr__grouper labels;                       /* without a study if not asked for */
  tsr__grouper metadata;
} tsr__view_shared;

/* `options` may be NULL; their rules must outlive it. Fails as tsr__grouper_init does. */
int tsr__view_shared_init(tsr__view_shared *shared, tsr_study *study,
                          const tsr_view_options *options, tsr_error *error);
/* A zeroed one is fine. */
void tsr__view_shared_release(tsr__view_shared *shared);

/* Fill in every grouping that is useful for this device; `kinds` are the timeline's. Fails with TSR_ERROR_MEMORY;
 * the groupings must be released in any case. */
int tsr__view_groupings(const tsr__timeline *timeline, const tsr__view_shared *shared,
                        const tsr__categories *kinds, tsr_view_device *out, tsr_error *error);
void tsr__view_grouping_release(tsr_view_grouping *grouping);

#endif
