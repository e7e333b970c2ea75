/* profile.h - what the faces of a profile share: text, JSON and the page. */
#ifndef TSR_REPORT_PROFILE_H
#define TSR_REPORT_PROFILE_H

#include "base/buffer.h"
#include "tessera/answers.h"

/* "category", as --by spells it; and as a column's title. */
const char *tsr__profile_by_name(tsr_profile_by by);
const char *tsr__profile_column(tsr_profile_by by);
/* A group's name for people; NULL is the series of all that are not told apart. */
const char *tsr__profile_group_name(tsr_profile_by by, const char *name);
/* "498.2 ms", of a time after the first event; "-" where there is none. */
void tsr__profile_since(tsr__buffer *out, int64_t time_us, int64_t first_us);
/* One sentence: the peak, and what most of it is. */
void tsr__profile_verdict(tsr__buffer *out, tsr_profile_by by, const tsr_profile_device *device);

#endif
