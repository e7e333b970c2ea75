/* tessera/unstable/steps.h - what repeats and what grows: the steps of a program, found without markers.
 *
 * As in tessera/unstable/answers.h, an answer is a struct that owns its arrays, refers to the snapshot's stacks
 * and strings by id, and is released by its _free function, which accepts NULL. The functions are
 * thread safe for a shared snapshot, take time linear in events, and fail only with TSR_ERROR_MEMORY
 * or _ARGUMENT (a device that the snapshot does not have). */
#ifndef TESSERA_UNSTABLE_STEPS_H
#define TESSERA_UNSTABLE_STEPS_H

#include "tessera/unstable/answers.h"
#include "tessera/unstable/attribution.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- steps ---- */

typedef struct tsr_step {
  uint64_t first_event, last_event; /* inclusive */
  int64_t first_time_us, last_time_us;
  uint64_t allocations;
  uint64_t start_bytes, end_bytes; /* allocated before it, and after it */
  uint64_t peak_bytes;             /* the most allocated in it */
  uint64_t peak_event;             /* the first event after which that was so */
  bool is_whole;                   /* not cut by the recording, and did not end early */
  bool is_dead;   /* memory ran out in it for good: it is tsr_steps_device.stop's */
  bool is_steady; /* whole, and past the warm-up of its loop */
  uint32_t loop;  /* index of its loop */
} tsr_step;

/* Steps that are rounds of one loop: of one line, and doing the same. */
typedef struct tsr_steps_loop {
  tsr_steps_unit unit;
  uint32_t frame; /* the line that tells it from others, or runs it; TSR_NONE: not known */
  bool is_main;   /* the figures of its device are those of its steps */
  bool is_listed; /* its steps are in tsr_steps_device.steps */
  uint64_t first_step, last_step;   /* numbers as in `steps`; if not listed, from 1 */
  uint64_t first_event, last_event; /* of these two */
  uint64_t step_count, whole_count, steady_count;
  uint64_t peak_bytes, peak_event, peak_step; /* the most in any of its steps */
  uint64_t steady_peak_bytes,
      steady_peak_event;     /* the highest peak of a steady step, 0 if absent */
  uint64_t steady_low_bytes; /* the lowest peak of a steady step */
  /* By how much more is allocated before each steady step than before the last one; 0 unless it is in nearly all. */
  uint64_t growth_bytes;
  bool is_leaking;            /* tsr_leaks_compute finds leaks in it; known only where it grows */
  uint64_t warmup_peak_bytes; /* the highest peak of whole steps before the steady ones */
  uint64_t warmup_surplus_bytes; /* how far that is above the steady peak, 0 if below */
  uint64_t step_allocations;     /* of a steady step, median */
  int64_t step_time_us;          /* median from one steady step to the next, or TSR_TIME_NONE */
} tsr_steps_loop;

/* Where the peak of all of a trace is. */
typedef struct tsr_steps_peak {
  int64_t event; /* -1: before the first */
  uint64_t bytes;
  tsr_phase phase;
  uint32_t loop; /* index of the loop that it is in; TSR_NONE: outside of all */
  uint64_t step; /* its step, numbered as the loop's; 0 if outside */
} tsr_steps_peak;

/* A phase over all steady steps of the main loop (over all its steps if none is steady). */
typedef struct tsr_step_phase {
  tsr_phase phase;
  uint64_t steps;      /* number of steps that have it */
  uint64_t peak_bytes; /* the most allocated in it */
  uint64_t peak_event;
} tsr_step_phase;

/* Annotations of one name compared with the steps found. */
typedef struct tsr_step_annotations {
  const char *name; /* "Optimizer.step" or "ProfilerStep" */
  uint64_t ranges;  /* number of ranges that contain an event */
  /* Ranges that agree. An optimizer's step: the only one in its step, and nothing that comes before it follows it;
   * a ProfilerStep: nine tenths of it are in one step and cover two thirds of that step. */
  uint64_t matched;
} tsr_step_annotations;

typedef struct tsr_steps_device {
  uint32_t device;
  uint64_t event_count;
  bool
      has_history; /* false: at most one event changes what is allocated, so the file shows one moment */
  tsr_steps_basis basis;
  tsr_steps_unit unit; /* ITERATION: nothing runs backward */
  /* No optimizer's step, zero_grad or mark of a step is visible: each backward pass counts as a step, even if
   * gradients accumulate over several. */
  bool counts_backwards;
  tsr_step *steps; /* in order */
  size_t step_count;
  uint64_t whole_count, steady_count; /* of `steps` */
  tsr_steps_loop *loops;              /* by first step, with those that are not among `steps` */
  size_t loop_count;
  /* The main loop: of those that train, if any, the one whose steps peak highest. NULL without steps. */
  const tsr_steps_loop *main_loop;
  tsr_steps_peak peak;
  tsr_step_phase phases[TSR_PHASE_COUNT]; /* those that occur, in the order of tsr_phase */
  size_t phase_count;
  tsr_step_annotations annotations[2]; /* those that occur */
  size_t annotation_count;
  tsr_step_stop stop; /* where memory ran out for good; `why` explains it */
  tsr_warning *warnings;
  size_t warning_count;
} tsr_steps_device;

typedef struct tsr_steps {
  tsr_steps_device *devices;
  size_t device_count;
} tsr_steps;

/* Find the steps of each device that the query selects. */
int tsr_steps_compute(tsr_study *study, const tsr_query *query, tsr_steps **out, tsr_error *error);
void tsr_steps_free(tsr_steps *steps);

/* ---- leaks ---- */

/* Memory that survives every step of a loop and grows with each. */
typedef struct tsr_leak {
  uint32_t loop;           /* index of the loop in which it grows */
  uint32_t stack;          /* stack id, or TSR_NONE: allocations without a stack, of one size */
  uint64_t bytes_per_step; /* requested bytes: the growth divided by the number of steps */
  uint64_t bytes;          /* leaked until the end of the last step */
  uint64_t allocations;    /* their number */
  uint64_t since_step;     /* the first step that left something, from 1, as `steps` counts */
  uint64_t growing_steps;  /* number of steps in which it grew */
  uint64_t first_event;    /* of the first allocation that was not freed */
  int64_t first_time_us;
  tsr_name_range names; /* what the program called the leaked allocations */
} tsr_leak;

/* A loop, judged by itself; loops are those of tsr_steps_device. If more grows from round to round of loops that take
 * turns (epochs) than within them, these rounds are one loop more, the last, of the unit ROUND. */
typedef struct tsr_leaks_loop {
  tsr_steps_unit unit;
  uint32_t frame;          /* as in tsr_steps_loop */
  uint64_t step_count;     /* whole steps, which were compared */
  bool is_answered;        /* at least three whole steps, enough to see growth */
  uint64_t leak_count;     /* the stacks that grow in it */
  uint64_t bytes_per_step; /* of all of them together */
} tsr_leaks_loop;

typedef struct tsr_leaks_device {
  uint32_t device;
  uint64_t event_count;
  bool
      has_history; /* false: at most one event changes what is allocated, so the file shows one moment */
  tsr_steps_basis basis;
  tsr_steps_unit unit; /* ITERATION: nothing runs backward */
  tsr_leaks_loop *loops;
  size_t loop_count;
  /* The loop in which most grows in a step; if nothing does, the one with most steps. NULL without steps. The next
   * three are those of that loop. */
  const tsr_leaks_loop *main_loop;
  uint64_t step_count;
  bool is_answered;
  uint64_t bytes_per_step;
  tsr_leak *leaks; /* of all loops, by bytes per step, largest first */
  size_t leak_count;
  tsr_named *names;                      /* of all leaks; NULL if the program named nothing */
  uint64_t omitted_leaks, omitted_bytes; /* omitted by tsr_query.top; bytes: per step */
  tsr_step_stop stop;                    /* as in tsr_steps_device */
  tsr_warning *warnings;
  size_t warning_count;
} tsr_leaks_device;

typedef struct tsr_leaks {
  tsr_leaks_device *devices;
  size_t device_count;
} tsr_leaks;

/* Find what grows on each device that the query selects. Memory that is allocated once (parameters,
 * optimizer state) or stops growing (caches) is not a leak, whatever code allocates it. */
int tsr_leaks_compute(tsr_study *study, const tsr_query *query, tsr_leaks **out, tsr_error *error);
void tsr_leaks_free(tsr_leaks *leaks);

#ifdef __cplusplus
}
#endif
#endif
