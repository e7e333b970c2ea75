/* dry.h - walking a schedule: every allocation goes to the allocator model, nothing is computed.
 *
 * The result is only numbers: peaks, what they consist of, whether memory ran out. A caller that needs more (such as
 * a snapshot: record.h; or to compute: run.h) passes an observer; without one no text is made and nothing is kept per
 * event, so that a search can try many schedules.
 *
 * A schedule may use any number of devices, each with its own allocator, and any number of streams
 * on each: a slot names its own. Slots of the host and of a disk are allocated by the same rules, each space with
 * an allocator of its own; results and events of a space have the number that follows those of the devices. */
#ifndef TSR_EXEC_DRY_H
#define TSR_EXEC_DRY_H

#include "base/effort.h"
#include "graph/schedule.h"
#include "tessera/allocator.h"

/* Before the first step; other values of a moment's phase are tsr__phase_kind. */
#define TSR__DRY_LOADING TSR__PHASE_COUNT

/* A moment of the run, on one device. */
typedef struct tsr__dry_moment {
  uint64_t event_count; /* the device's recorded events before and at it */
  uint64_t step;        /* from 1; 0: before the first */
  uint8_t phase;
  uint32_t op;    /* that was running: index into the schedule's ops, or TSR_NONE */
  uint32_t stack; /* of the last allocation or free, or TSR_NONE */
  tsr_allocator_totals totals;
  uint64_t category_bytes[TSR_CATEGORY_COUNT]; /* requested */
} tsr__dry_moment;

/* "forward", "backward", ...: of a moment's phase. Static text. */
const char *tsr__phase_word(uint8_t phase);

/* What a device saw. */
typedef struct tsr__dry_device {
  tsr__dry_moment start;                    /* before the first event */
  tsr__dry_moment peak;                     /* the first at which most is allocated */
  tsr__dry_moment phases[TSR__PHASE_COUNT]; /* each one's own peak; step 0: never reached */
  tsr__dry_moment ends[TSR__PHASE_COUNT];   /* the end of each, in the last step that had it */
  uint64_t peak_reserved_bytes, event_count;
  bool is_over; /* most_reserved_bytes: the run ended there */
  bool is_out_of_memory;
  tsr__dry_moment out_of_memory;
  uint64_t oom_request_bytes, oom_segment_bytes; /* requested by the program; from the driver */
  uint64_t oom_device_free_bytes;                /* that the driver had */
} tsr__dry_device;

/* An observer. Any function may be NULL; one that returns false ends the run with TSR_ERROR_MEMORY. */
typedef struct tsr__dry_observer {
  void *context;
  bool (*phase)(void *context, tsr__phase_kind phase, uint64_t step, bool is_start);
  bool (*op)(void *context, uint32_t op);
  /* The allocator did something for a slot: see tsr_allocator_sink. `event->cause` is the stack
   * of the instruction, a label. Events of loading are not shown. */
  bool (*event)(void *context, uint32_t device, uint32_t slot, const tsr_allocator_event *event);
  /* The same, those of loading and of other memory spaces included: `device` may be tsr__dry_place. */
  bool (*memory)(void *context, uint32_t device, const tsr_allocator_event *event);
  /* Static slots have been loaded. `addresses`, here and below: each slot's, 0 of one that is absent
   * or has no bytes. */
  bool (*loaded)(void *context, const uint64_t *addresses);
  /* A kernel is to run; all its tensors are there. Index into the schedule's runs. */
  bool (*run)(void *context, uint32_t run, uint64_t step, const uint64_t *addresses);
  /* A move begins, or is waited for. Index into the schedule's moves. */
  bool (*move)(void *context, uint32_t move, bool is_start, uint64_t step,
               const uint64_t *addresses);
  /* A step is complete; what it carries into the next one is still there. */
  bool (*step)(void *context, uint64_t step, const uint64_t *addresses);
  /* Whether no more rounds of an evaluation or a generation are wanted in this step. */
  bool (*has_enough)(void *context);
  /* Whether to end the run after a complete step, without an error. */
  bool (*is_done)(void *context, uint64_t step);
  /* The run is over, with or without running out of memory; once for each device. */
  int (*end)(void *context, uint32_t device, const tsr_allocator *allocator, tsr_error *error);
} tsr__dry_observer;

/* What is walked of a run that repeats itself: memory repeats from the third step on, and from the second batch of an evaluation. */
enum {
  TSR__WALKED_STEPS = 4,
  TSR__WALKED_AFTER = 3,
  TSR__WALKED_EVALUATIONS = 3,
  TSR__WALKED_ROUNDS = 3
};

/* Memory spaces besides the devices: host and disk. */
enum { TSR__DRY_SPACES = TSR__SPACE_COUNT - 1 };

/* The number of a space among allocators. */
static inline uint32_t tsr__dry_place(uint32_t device_count, tsr__memory_space space) {
  assert(space != TSR__SPACE_DEVICE);
  return device_count + (uint32_t)space - 1;
}

typedef struct tsr__dry_options {
  tsr_allocator_settings settings; /* of every device */
  uint64_t capacity_bytes;         /* of each; 0: unlimited */
  uint64_t most_reserved_bytes;    /* end the run once a device reserves more; 0: never */
  uint64_t steps;                  /* 0 = 1 */
  uint64_t
      steps_before;    /* of a resumed run: evaluations follow steps that are counted from there */
  uint64_t rounds;     /* how often the schedule's evaluation or generation runs each time; 0 = 1 */
  bool evaluates_last; /* the last step has an evaluation, whatever its number */
  /* Leave out what repeats: of a run without leaks, only the first steps and evaluations, and the steps after each evaluation, are
   * walked, and only some rounds of an evaluation. */
  bool is_abridged;
  uint32_t device_count;             /* every slot's device is below it; 0 = 1 */
  uint64_t host_bytes, disk_bytes;   /* the capacity of these spaces; 0: unlimited */
  struct tsr__dry_device *spaces;    /* what host and disk saw, TSR__DRY_SPACES results; or NULL */
  const tsr__dry_observer *observer; /* or NULL */
  tsr_effort *effort;                /* or NULL: unlimited */
  /* Of the results only peak.totals.allocated_bytes, peak_reserved_bytes, is_over and is_out_of_memory are of interest: others are not
   * kept. Without an observer. */
  bool wants_peaks_only;
} tsr__dry_options;

/* Load what exists before the recording, then run the schedule `steps` times. `devices` has room
 * for device_count results. Running out of memory, of a device or of another space, ends the run and is not an error;
 * nor is more than most_reserved_bytes.
 * `*steps_done` counts the complete ones. TSR_ERROR_ARGUMENT for settings that make no sense, as
 * tsr__effort_fail, or TSR_ERROR_MEMORY. O(instructions * steps), each O(log of the device's blocks). */
int tsr__dry_run(const tsr__schedule *schedule, const tsr__dry_options *options,
                 tsr__dry_device *devices, uint64_t *steps_done, tsr_error *error);

#endif
