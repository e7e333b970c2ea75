/* tessera/mosaic.h - Mosaic's questions, answered as Mosaic answers them.
 *
 * Mosaic is Meta's tool for the same snapshots, and its commands and numbers are in scripts and in
 * people's heads. Its questions are not quite those of tessera/answers.h: memory is counted from zero
 * at the first event of the trace, `alloc` adds an event's size and `free_completed` of an address
 * allocated in the trace subtracts it, and stacks are told apart by files and lines alone. Where
 * Mosaic stops with an exception - an out-of-memory event, an event without address or time, a file
 * without a trace - these functions answer. docs/decisions/006-mosaic.md lists the differences.
 *
 * As everywhere: answers own their arrays, refer to the ids of their snapshot, and are released by
 * their own functions, which accept NULL; functions are thread safe for a shared snapshot, take time
 * linear in events, and fail with TSR_ERROR_MEMORY or, printing, TSR_ERROR_WRITE.
 */
#ifndef TESSERA_MOSAIC_H
#define TESSERA_MOSAIC_H

#include "tessera/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An event as Mosaic names it: an address, how often it was freed before, and what happens to it. */
typedef struct tsr_mosaic_moment {
  uint64_t address, version;
  tsr_action action;
} tsr_mosaic_moment;

/* Which part of which trace; a zeroed struct, or NULL, is all of that of the first device that has
 * one. Events before the window count towards usage, but are not the peak. An event without time is at
 * that of the one before it. */
typedef struct tsr_mosaic_window {
  bool has_device, has_first, has_last, has_stop;
  uint32_t device;
  int64_t first_us, last_us; /* times, both included */
  tsr_mosaic_moment stop;    /* the last event; of no effect where the window has no such event */
} tsr_mosaic_window;

/* Live allocations whose stacks have the same text of file names and lines. */
typedef struct tsr_mosaic_group {
  uint64_t bytes; /* as requested */
  uint64_t allocations;
  uint32_t stack; /* of the member that became live first */
  size_t first;   /* index of that member in tsr_mosaic_groups.events; the others follow */
} tsr_mosaic_group;

/* Largest first; equal ones in the order in which they became live. */
typedef struct tsr_mosaic_groups {
  tsr_mosaic_group *items;
  size_t count;
  tsr_mosaic_group rest; /* what has no stack, and is in no group */
  uint64_t *events;      /* by group, in the order in which they became live; NULL in a diff */
} tsr_mosaic_groups;

/* Another device that has a trace, and the peak of that. */
typedef struct tsr_mosaic_other {
  uint32_t device;
  uint64_t bytes;
} tsr_mosaic_other;

/* Release the arrays, which the struct owns. */
void tsr_mosaic_groups_release(tsr_mosaic_groups *groups);

/* ---- peak ---- */

typedef struct tsr_mosaic_peak {
  uint32_t device;  /* the window's, else the first that has a trace; TSR_NONE: none has */
  int64_t event;    /* the first of the window at which usage is largest; -1: there is none */
  uint64_t version; /* of its address, as Mosaic prints it: see mosaic_peak.c */
  uint64_t bytes;   /* usage there, counted from zero */
  uint64_t
      static_bytes; /* allocated blocks, of all devices, whose address no alloc or free names */
  tsr_mosaic_groups groups; /* live at that event, those whose event has stacks */
  uint64_t nameless_count;  /* allocs and frees of the window without an address, passed over */
  tsr_mosaic_other *others; /* in the same window */
  size_t other_count;
} tsr_mosaic_peak;

/* The peak of one device; `*out` is the caller's, for the function below. */
int tsr_mosaic_peak_compute(const tsr_snapshot *snapshot, const tsr_mosaic_window *window,
                            tsr_mosaic_peak **out, tsr_error *error);
void tsr_mosaic_peak_free(tsr_mosaic_peak *peak);

/* ---- diff ---- */

typedef struct tsr_mosaic_diff {
  tsr_mosaic_groups groups; /* of the second peak: those that the first has not, in its order */
  uint64_t grown_count;     /* what that hides: groups of both that are larger in the second, */
  uint64_t grown_bytes;     /* and by how much, together */
} tsr_mosaic_diff;

/* What one snapshot's peak has that another's, `base`, has not; `*out` is the caller's, for the
 * function below. The groups are `snapshot`'s. */
int tsr_mosaic_diff_compute(const tsr_snapshot *base_snapshot, const tsr_mosaic_peak *base,
                            const tsr_snapshot *snapshot, const tsr_mosaic_peak *peak,
                            tsr_mosaic_diff **out, tsr_error *error);
void tsr_mosaic_diff_free(tsr_mosaic_diff *diff);

/* ---- usage at an event ---- */

typedef struct tsr_mosaic_usage {
  tsr_mosaic_moment moment; /* as it was asked for */
  uint32_t first_device;    /* the first that has a trace, or TSR_NONE: where Mosaic looks */
  uint32_t device;          /* the first that has the moment */
  int64_t event;            /* -1: no device has it; nothing below is filled then */
  int64_t bytes;            /* usage after it; negative where frees are larger than their allocs */
  tsr_mosaic_groups groups;
} tsr_mosaic_usage;

/* What is live at an event; `*out` is the caller's, for the function below. */
int tsr_mosaic_usage_compute(const tsr_snapshot *snapshot, const tsr_mosaic_moment *moment,
                             tsr_mosaic_usage **out, tsr_error *error);
void tsr_mosaic_usage_free(tsr_mosaic_usage *usage);

/* ---- stages ---- */

typedef struct tsr_mosaic_stage {
  size_t annotation; /* index of tsr_snapshot_annotations */
  uint64_t repeat;   /* how often its name and stage came before */
  int64_t bytes;     /* usage after all events up to its time */
} tsr_mosaic_stage;

typedef struct tsr_mosaic_stages {
  uint32_t device;         /* whose usage; TSR_NONE: none has a trace, and there are no items */
  uint32_t other_count;    /* further devices that have one */
  tsr_mosaic_stage *items; /* in the order of the file */
  size_t count;
} tsr_mosaic_stages;

/* Which annotations: those whose name contains one of the texts, or all where there are none. And
 * whose usage; a zeroed struct means the first device that has a trace. */
typedef struct tsr_mosaic_stages_options {
  const char *const *texts;
  size_t text_count;
  bool has_device;
  uint32_t device;
} tsr_mosaic_stages_options;

/* Usage at each of the annotations; `*out` is the caller's, for the function below. */
int tsr_mosaic_stages_of(const tsr_snapshot *snapshot, const tsr_mosaic_stages_options *options,
                         tsr_mosaic_stages **out, tsr_error *error);
/* The same for the first device that has a trace. */
int tsr_mosaic_stages_compute(const tsr_snapshot *snapshot, const char *const *texts,
                              size_t text_count, tsr_mosaic_stages **out, tsr_error *error);
void tsr_mosaic_stages_free(tsr_mosaic_stages *stages);

/* ---- as text ---- */

/* What Mosaic prints on standard output. With `is_shown` a terminal is to show it, and control
 * characters in names become '?'; else texts are as the file has them. */
int tsr_mosaic_print_groups(const tsr_snapshot *snapshot, const tsr_mosaic_groups *groups,
                            bool is_shown, tsr_write_fn *write, void *context, tsr_error *error);
int tsr_mosaic_print_stages(const tsr_snapshot *snapshot, const tsr_mosaic_stages *stages,
                            bool is_shown, tsr_write_fn *write, void *context, tsr_error *error);

/* What Mosaic logs, lines that begin with "INFO:root:"; and what it hides, as "WARNING:root:". */
int tsr_mosaic_log_peak(const tsr_snapshot *snapshot, const tsr_mosaic_peak *peak,
                        tsr_write_fn *write, void *context, tsr_error *error);
int tsr_mosaic_log_diff(const tsr_mosaic_diff *diff, tsr_write_fn *write, void *context,
                        tsr_error *error);
int tsr_mosaic_log_usage(const tsr_snapshot *snapshot, const tsr_mosaic_usage *usage,
                         tsr_write_fn *write, void *context, tsr_error *error);
int tsr_mosaic_log_stages(const tsr_mosaic_stages *stages, tsr_write_fn *write, void *context,
                          tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
