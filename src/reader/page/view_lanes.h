/* view_lanes.h - what a picture shows in addition to allocations: times, segments, annotations, marks. */
#ifndef TSR_PAGE_VIEW_LANES_H
#define TSR_PAGE_VIEW_LANES_H

#include "attribution/cycle.h"
#include "tessera/unstable/view.h"
#include "timeline/timeline.h"

/* The first moment that is not before a time. O(log events). */
uint32_t tsr__view_moment(const tsr_events *events, int64_t time_us);
/* Each fills its part of `out` from a timeline. False if out of memory. */
bool tsr__view_times(const tsr__timeline *timeline, tsr_view_device *out);
bool tsr__view_spans(const tsr__timeline *timeline, tsr_view_device *out);
bool tsr__view_marks(const tsr__timeline *timeline, tsr_view_device *out);
bool tsr__view_ranges(const tsr__timeline *timeline, const tsr__phases *phases,
                      const tsr__cycle *cycle, tsr_view_device *out);

#endif
