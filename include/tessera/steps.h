/* tessera/steps.h - what repeats and what grows: the steps of a program, found without markers.
 *
 * As in tessera/answers.h: an answer is a struct that owns its arrays, refers to the snapshot's stacks
 * and strings by id, and is released by its own _free function, which accepts NULL. The functions are
 * thread safe for a shared snapshot, take time linear in events, and fail only with TSR_ERROR_MEMORY
 * or _ARGUMENT (a device that the snapshot does not have). */
#ifndef TESSERA_STEPS_H
#define TESSERA_STEPS_H

#include "tessera/answers.h"
#include "tessera/attribution.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the steps were found. */
typedef enum tsr_steps_basis {
  TSR_STEPS_NONE,     /* there are none */
  TSR_STEPS_PHASES,   /* each ends with the optimizer's step, or with backward where none is seen */
  TSR_STEPS_SEQUENCE, /* the same stacks and sizes come again */
  TSR_STEPS_BASIS_COUNT
} tsr_steps_basis;

/* "phases", "sequence", "none"; static text, never NULL. */
const char *tsr_steps_basis_name(tsr_steps_basis basis);

/* ---- steps ---- */

typedef struct tsr_step {
  uint64_t first_event, last_event; /* both included */
  int64_t first_time_us, last_time_us;
  uint64_t allocations;
  uint64_t start_bytes, end_bytes; /* allocated before it, and after it */
  uint64_t peak_bytes;             /* the most that was allocated in it */
  uint64_t peak_event;             /* the first event after which it was */
  bool is_whole;                   /* neither cut by the recording nor ended early */
  bool is_steady;                  /* whole, and past the warm-up */
} tsr_step;

/* A phase over all steady steps (over all steps, where none is steady). */
typedef struct tsr_step_phase {
  tsr_phase phase;
  uint64_t steps;      /* that have it */
  uint64_t peak_bytes; /* the most that was allocated in it */
  uint64_t peak_event;
} tsr_step_phase;

/* Annotations of one kind against the steps found. */
typedef struct tsr_step_annotations {
  const char *name; /* "Optimizer.step" or "ProfilerStep" */
  uint64_t ranges;  /* how many, with an event in them */
  uint64_t matched; /* those that agree: the only one in its step and at its end or, for
                        ProfilerStep, nine tenths in one step and two thirds of it */
} tsr_step_annotations;

typedef struct tsr_steps_device {
  uint32_t device;
  uint64_t event_count;
  tsr_steps_basis basis;
  tsr_step *steps; /* in order */
  size_t step_count;
  uint64_t whole_count, steady_count;
  uint64_t steady_peak_bytes; /* the highest peak of a steady step, 0 without one */
  uint64_t steady_peak_event;
  uint64_t steady_low_bytes;     /* the lowest peak of a steady step */
  uint64_t warmup_peak_bytes;    /* the highest peak of whole steps before the steady ones */
  uint64_t warmup_surplus_bytes; /* what that is above the steady peak, 0 where it is below */
  uint64_t step_allocations;     /* of a steady step, the median */
  int64_t step_time_us;          /* the median, or TSR_TIME_NONE */
  tsr_step_phase phases[TSR_PHASE_COUNT]; /* those that occur, in the order of tsr_phase */
  size_t phase_count;
  tsr_step_annotations annotations[2]; /* those that occur */
  size_t annotation_count;
  tsr_warning *warnings;
  size_t warning_count;
} tsr_steps_device;

typedef struct tsr_steps {
  tsr_steps_device *devices;
  size_t device_count;
} tsr_steps;

/* Find the steps of each device the query means. A trace with one step has one. */
int tsr_steps_compute(const tsr_snapshot *snapshot, const tsr_query *query, tsr_steps **out,
                      tsr_error *error);
void tsr_steps_free(tsr_steps *steps);

/* ---- leaks ---- */

/* Memory that survives step after step, and is more after each. */
typedef struct tsr_leak {
  uint32_t stack;          /* stack id, or TSR_NONE: allocations without a stack, of one size */
  uint64_t bytes_per_step; /* requested bytes: the growth divided by the steps it took */
  uint64_t bytes;          /* leaked by the last step's end */
  uint64_t allocations;    /* the same, counted */
  uint64_t since_step;     /* index in the steps: the first that left something behind */
  uint64_t growing_steps;  /* in how many steps it grew */
  uint64_t first_event;    /* of the first allocation that was left */
  int64_t first_time_us;
} tsr_leak;

typedef struct tsr_leaks_device {
  uint32_t device;
  uint64_t event_count;
  tsr_steps_basis basis;
  uint64_t step_count; /* whole steps that were compared */
  bool is_answered;    /* three whole steps or more: growth can be told */
  tsr_leak *leaks;     /* by bytes per step, largest first */
  size_t leak_count;
  uint64_t omitted_leaks, omitted_bytes; /* left out by tsr_query.top; bytes: per step */
  uint64_t bytes_per_step;               /* of all leaks together */
  tsr_warning *warnings;
  size_t warning_count;
} tsr_leaks_device;

typedef struct tsr_leaks {
  tsr_leaks_device *devices;
  size_t device_count;
} tsr_leaks;

/* Find what grows on each device the query means. What is made once (parameters, optimizer state) or
 * stops growing (caches) is none, whatever it is made by. */
int tsr_leaks_compute(const tsr_snapshot *snapshot, const tsr_query *query, tsr_leaks **out,
                      tsr_error *error);
void tsr_leaks_free(tsr_leaks *leaks);

#ifdef __cplusplus
}
#endif
#endif
