/* tessera/stages.h - memory at the stages that a program marked.
 *
 * torch.profiler.record_function, the profiler's steps and PyTorch's optimizers leave annotations in
 * a snapshot: a name, START or END, and a time. A stage is a START and the END that belongs to it.
 * There is neither a thread nor a range in an annotation, so they are matched by name: an END closes
 * the latest START of its name that is still open. A stage lies inside another when that one begins
 * before it and ends after it; stages of several threads may also overlap.
 *
 *   not paired              how it counts
 *   END without START       began before the recording
 *   START without END       ends with the stage it began in, or lasts to the end of the trace
 *   the same twice          START after START and END after END of one name, within a millisecond
 *                           (PyTorch before mid-2025 could record every one twice): one stage
 *
 * A moment is the state after the last event up to its time. Annotations name the device that was
 * current in their thread, which is not where memory was used: every stage is told of every device.
 */
#ifndef TESSERA_STAGES_H
#define TESSERA_STAGES_H

#include "tessera/answers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* No stage: for ids. */
#define TSR_STAGE_NONE UINT32_MAX

/* A zeroed struct, or NULL, takes every annotation. */
typedef struct tsr_stages_options {
  const char *const
      *matches; /* take annotations whose name contains one of these; 0 of them: all */
  size_t match_count;
} tsr_stages_options;

typedef struct tsr_stage {
  uint32_t id;     /* stages are numbered from 0, in the order in which they begin */
  uint32_t parent; /* id of the innermost stage around it, or TSR_STAGE_NONE */
  uint32_t depth;  /* stages around it */
  uint32_t name;   /* string id or TSR_NONE */
  uint32_t repetition, repetitions; /* the how manieth of this name, from 1, of how many */
  uint32_t annotation_device;       /* as recorded; see above */
  bool has_start, has_end;          /* that annotation was recorded */
  /* Their time_us is the annotation's, TSR_TIME_NONE where it was not recorded. */
  tsr_moment start, end;
  tsr_moment peak; /* the first event at which most is allocated, from `start` to `end` */
} tsr_stage;

/* Stages of one name, numbers in it aside, under one group of stages. */
typedef struct tsr_stage_group {
  uint32_t name;     /* of its first stage, string id or TSR_NONE */
  bool is_pattern;   /* names differ, in their numbers */
  uint32_t depth;    /* groups around it */
  uint64_t count;    /* stages in it */
  tsr_stage largest; /* the first of those with the highest peak */
} tsr_stage_group;

typedef struct tsr_stages_device {
  uint32_t device;
  uint64_t event_count;
  tsr_moment peak; /* as in tsr_peak_device */
  /* The stages that the peak lies in, outermost first; none when it lies in no stage. A stage holds
   * a moment when its event comes after the START and not after the END. */
  tsr_stage *path;
  size_t path_count;
  tsr_stage highest; /* the first of those with the highest peak inside; meaningful when there
                              is a stage */
  tsr_stage *stages; /* by id; with tsr_query.top those with the highest peaks, which
                              the ones around them always are too */
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
  uint64_t matched_count;    /* of them taken */
  tsr_stages_device *devices;
  size_t device_count;
  tsr_warning *warnings; /* about the annotations */
  size_t warning_count;
} tsr_stages;

/* Tell of every stage on each device the query means; `*out` is the caller's, to be given to the
 * function below. Time is linear in events, and O(log events) a stage; memory 32 bytes an event.
 * Fails with TSR_ERROR_MEMORY or _ARGUMENT. */
int tsr_stages_compute(const tsr_snapshot *snapshot, const tsr_stages_options *options,
                       const tsr_query *query, tsr_stages **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_stages_free(tsr_stages *stages);

#ifdef __cplusplus
}
#endif
#endif
