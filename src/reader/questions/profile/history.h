/* history.h - live memory by group, at moments chosen so that no peak is lost.
 *
 *   tsr__picker       gets the total after every event and picks the moments
 *   tsr__history      walks the trace again and records the groups, or bands, at those moments
 *
 * tsr_profile_device in tessera/unstable/answers.h defines what a moment holds. */
#ifndef TSR_QUESTIONS_PROFILE_HISTORY_H
#define TSR_QUESTIONS_PROFILE_HISTORY_H

#include "questions/profile/bands.h"
#include "tessera/unstable/answers.h"
#include "timeline/sweep.h"

/* The group of each allocation of a timeline. */
typedef struct tsr__members {
  const tsr__timeline *timeline;
  uint32_t *of; /* by allocation; TSR_NONE: in no group */
  uint32_t count;
} tsr__members;

/* ---- which moments ---- */

/* The events of one range at which the total was least and most, for the first time. */
typedef struct tsr__stretch {
  int64_t least_event, most_event;
  uint64_t least_bytes, most_bytes;
} tsr__stretch;

typedef struct tsr__picker {
  uint64_t first_event, event_count;
  tsr__stretch *stretches;
  size_t stretch_count;
  int64_t *events; /* what was picked, ascending, once finished */
  size_t count;
} tsr__picker;

/* At most `moment_count` moments (four at least) among the events of a window: all of them, or the
 * first, the last, and two of each of as many equal ranges as there is room for. False when out of
 * memory; released by tsr__picker_release in any case. */
bool tsr__picker_init(tsr__picker *picker, uint64_t first_event, uint64_t event_count,
                      size_t moment_count);
/* The total after an event; events come in order. */
void tsr__picker_note(tsr__picker *picker, uint64_t event, uint64_t total_bytes);
void tsr__picker_finish(tsr__picker *picker);
void tsr__picker_release(tsr__picker *picker);

/* ---- what was there ---- */

typedef struct tsr__history_plan {
  const tsr__members *members;
  bool is_ordered;
  const int64_t *events; /* moments, ascending */
  size_t event_count;
  const uint32_t *series_of; /* by group */
  size_t series_count;
  int64_t peak_event;  /* -1: none */
  uint64_t peak_bytes; /* of recorded memory: thin bands are thin compared with it */
} tsr__history_plan;

/* Fill out->moments, cells and bands, and, where ordered, layers; names of layers are by group (see
 * `group_names`). What is filled is tsr_profile_free's to release, also after a failure. Time is
 * linear in events and in moments times what is live in bands then. Fails with TSR_ERROR_MEMORY. */
int tsr__history_compute(const tsr__history_plan *plan, const char *const *group_names,
                         tsr_profile_device *out, tsr_error *error);

#endif
