/* match.h - from annotations to stages: which START belongs to which END, and what is in what. The
 * rules are in tessera/unstable/stages.h. */
#ifndef TSR_QUESTIONS_STAGES_MATCH_H
#define TSR_QUESTIONS_STAGES_MATCH_H

#include "base/buffer.h"
#include "base/error.h"
#include "base/vector.h"
#include "tessera/unstable/stages.h"

/* What is reported about annotations that do not match. */
typedef enum tsr__stage_oddity {
  TSR__STAGE_ODD,      /* neither START nor END, or without a time */
  TSR__STAGE_NO_END,   /* START without END */
  TSR__STAGE_NO_START, /* END without START */
  TSR__STAGE_OVERLAP,  /* stages that overlap, neither inside the other */
  TSR__STAGE_TWICE,    /* recorded twice */
  TSR__STAGE_ODDITIES
} tsr__stage_oddity;

/* The stages without their memory: `stages[i].id` is i, the events of their moments are not set.
 * Where an end was not recorded, `ends_us` has the time it is taken to have: TSR_TIME_NONE for the
 * end of the trace. */
typedef struct tsr__stage_list {
  tsr_stage *stages;
  int64_t *ends_us;
  size_t count;
  uint64_t matched_count; /* annotations taken */
  uint64_t oddities[TSR__STAGE_ODDITIES];
} tsr__stage_list;

/* Match the annotations that the options mean. Expected linear time, and that of sorting. Fails with
 * TSR_ERROR_MEMORY; `out` is released with the function below in any case. */
int tsr__stages_match(const tsr_snapshot *snapshot, const tsr_stages_options *options,
                      tsr__stage_list *out, tsr_error *error);
void tsr__stage_list_release(tsr__stage_list *list);

/* Append the name with each run of digits as '*': what repetitions that are numbered have in
 * common. */
void tsr__stage_pattern(tsr__buffer *out, tsr_text name);

#endif
