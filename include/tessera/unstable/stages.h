/* tessera/unstable/stages.h - memory in the stages that a program marked.
 *
 * torch.profiler.record_function, the profiler's steps and PyTorch's optimizers leave annotations in
 * a snapshot: a name, START or END, and a time. A stage is a START and its matching END.
 * An annotation contains no thread and no range id, so they are matched by name: an END closes
 * the latest START of its name that is still open. A stage is inside another if that one begins
 * before it and ends after it; stages of several threads may also overlap.
 *
 *   unpaired                how it counts
 *   END without START       began before the recording
 *   START without END       ends with the stage in which it began, or lasts to the end of the trace
 *   duplicates              START after START and END after END of one name, within a millisecond
 *                           (PyTorch before mid-2025 could record each one twice): one stage
 *
 * A moment is the state after the last event up to its time. Annotations contain the current device of
 * their thread, which is not where memory was used: every stage is reported for every device.
 */
#ifndef TESSERA_UNSTABLE_STAGES_H
#define TESSERA_UNSTABLE_STAGES_H

#include "tessera/unstable/answers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* No stage: for ids. */
#define TSR_STAGE_NONE UINT32_MAX

/* A zeroed struct, or NULL, takes every annotation. */
typedef struct tsr_stages_options {
  const char *const
      *matches; /* take annotations whose name contains one of these; match_count 0: all */
  size_t match_count;
} tsr_stages_options;

typedef struct tsr_stage {
  uint32_t id;     /* stages are numbered from 0, in the order in which they begin */
  uint32_t parent; /* id of the innermost stage around it, or TSR_STAGE_NONE */
  uint32_t depth;  /* stages around it */
  uint32_t name;   /* string id or TSR_NONE */
  uint32_t repetition, repetitions; /* its number among stages of this name, from 1; their count */
  uint32_t annotation_device;       /* as recorded; see above */
  bool has_start, has_end;          /* whether that annotation was recorded */
  /* Their time_us is the annotation's, TSR_TIME_NONE if it was not recorded. */
  tsr_moment start, end;
  tsr_moment peak; /* from `start` to `end`, the first event at which most is allocated */
} tsr_stage;

/* Stages with the same name, ignoring numbers in it, within one outer group of stages. */
typedef struct tsr_stage_group {
  uint32_t name;     /* of its first stage, string id or TSR_NONE */
  bool is_pattern;   /* names differ in their numbers */
  uint32_t depth;    /* groups around it */
  uint64_t count;    /* number of stages */
  tsr_stage largest; /* the stage with the highest peak, the first if several */
} tsr_stage_group;

typedef struct tsr_stages_device {
  uint32_t device;
  uint64_t event_count;
  bool
      has_history; /* false: at most one event changes what is allocated, so the file shows one moment */
  tsr_moment peak; /* as in tsr_peak_device */
  /* The stages that contain the peak, outermost first; empty if none does. A stage contains
   * a moment if its event is after the START and not after the END. */
  tsr_stage *path;
  size_t path_count;
  tsr_stage
      highest; /* the stage with the highest peak, the first if several; valid if stages exist */
  tsr_stage *stages; /* by id; with tsr_query.top those with the highest peaks, which always include
                        the stages around them */
  size_t stage_count;
  uint64_t omitted_stages;
  tsr_stage_group *groups; /* each before those inside it; with `top` as above */
  size_t group_count;
  uint64_t omitted_groups;
  tsr_warning *warnings; /* where trace and segments disagree */
  size_t warning_count;
} tsr_stages_device;

typedef struct tsr_stages {
  uint64_t annotation_count; /* in the snapshot */
  uint64_t matched_count;    /* number that match the options */
  tsr_stages_device *devices;
  size_t device_count;
  tsr_warning *warnings; /* about the annotations */
  size_t warning_count;
} tsr_stages;

/* Compute every stage on each device that the query selects. The caller owns `*out` and passes it to
 * tsr_stages_free. Time is linear in events, and O(log events) per stage; memory 32 bytes per event.
 * Fails with TSR_ERROR_MEMORY or _ARGUMENT. */
int tsr_stages_compute(tsr_study *study, const tsr_stages_options *options, const tsr_query *query,
                       tsr_stages **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_stages_free(tsr_stages *stages);

#ifdef __cplusplus
}
#endif
#endif
