/* view_groups.h - the groupings a picture can be coloured by: a table of them. */
#ifndef TSR_ANSWERS_VIEW_GROUPS_H
#define TSR_ANSWERS_VIEW_GROUPS_H

#include "attribution/kind.h"
#include "tessera/view.h"
#include "timeline/timeline.h"

/* What a grouping may look at. */
typedef struct tsr__view_source {
  const tsr__timeline *timeline;
  const tsr__kinds *kinds;
  const tsr_view_range *ranges; /* by born */
  size_t range_count;
} tsr__view_source;

/* Every grouping that says something about this device, into `groupings` (room for
 * TSR_VIEW_GROUPINGS_MAX): `group` has a row for each allocation of the timeline. Answers how many,
 * or -1 when out of memory; what is there is to be released either way. */
int tsr__view_groupings(const tsr__view_source *source, tsr_view_grouping *groupings);
void tsr__view_grouping_release(tsr_view_grouping *grouping);

#endif
