/* report.h - shared by the formats of a profile: text, JSON and the page. */
#ifndef TSR_QUESTIONS_PROFILE_REPORT_H
#define TSR_QUESTIONS_PROFILE_REPORT_H

#include "base/buffer.h"
#include "tessera/unstable/answers.h"

/* The title of a column of groups. */
const char *tsr__profile_column(tsr_profile_by by);
/* A group's name for people; NULL is the series that combines several groups. */
const char *tsr__profile_group_name(tsr_profile_by by, const char *name);
/* "498.2 ms", of a time after the first event; "-" if absent. */
void tsr__profile_since(tsr__buffer *out, int64_t time_us, int64_t first_us);
/* One sentence: the peak, and its largest part. */
void tsr__profile_verdict(tsr__buffer *out, tsr_profile_by by, const tsr_profile_device *device);

#endif
