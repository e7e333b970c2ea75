/* tessera/unstable/mosaic.h - Mosaic's questions, with Mosaic's answers.
 *
 * Mosaic is Meta's tool for the same snapshots; people have its commands in scripts and its numbers
 * in their heads. Its questions differ from those of tessera/unstable/answers.h: memory is counted from zero
 * at the first event of the trace, `alloc` adds an event's size and `free_completed` of an address
 * allocated in the trace subtracts it, and stacks are distinguished by files and lines only. Where
 * Mosaic stops with an exception - an out-of-memory event, an event without address or time, a file
 * without a trace - these functions return an answer. docs/decisions/006-mosaic.md lists the
 * differences.
 *
 * As in the other headers, answers own their arrays, refer to the ids of their snapshot, and are
 * released by their _free functions, which accept NULL. Functions are thread safe for a shared study,
 * take time linear in events, and fail with TSR_ERROR_MEMORY or, when printing, TSR_ERROR_WRITE. The
 * caller owns each `*out` and passes it to the _free function declared after it.
 */
#ifndef TESSERA_UNSTABLE_MOSAIC_H
#define TESSERA_UNSTABLE_MOSAIC_H

#include "tessera/study.h"
#include "tessera/unstable/attribution.h"
#include "tessera/unstable/columns.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The category of every stack of a snapshot, by stack id. `categories` must have room for
 * tsr_snapshot_stack_count entries. Fails with TSR_ERROR_MEMORY. */
int tsr_mosaic_category_of_stacks(tsr_study *study, uint8_t *categories, tsr_error *error);

/* An event as Mosaic identifies it: an address, the number of earlier frees there, and an action. */
typedef struct tsr_mosaic_moment {
  uint64_t address, version;
  tsr_action action;
} tsr_mosaic_moment;

/* Which part of which trace. A zeroed struct, or NULL, selects the whole trace of the first device
 * that has one. Events before the window count towards usage, but cannot be the peak. An event without
 * a time has that of the previous event. */
typedef struct tsr_mosaic_window {
  bool has_device, has_first, has_last, has_stop;
  uint32_t device;
  int64_t first_us, last_us; /* times, inclusive */
  tsr_mosaic_moment stop;    /* the last event; ignored if the window has no such event */
} tsr_mosaic_window;

/* Live allocations whose stacks have the same text of file names and lines. */
typedef struct tsr_mosaic_group {
  uint64_t bytes; /* requested */
  uint64_t allocations;
  uint32_t stack; /* of the member that became live first */
  size_t first;   /* index of that member in tsr_mosaic_groups.events; the others follow */
} tsr_mosaic_group;

/* Largest first; ties in the order in which they became live. */
typedef struct tsr_mosaic_groups {
  tsr_mosaic_group *items;
  size_t count;
  tsr_mosaic_group rest; /* memory without a stack, which is in no group */
  uint64_t *events;      /* by group, in the order in which they became live; NULL in a diff */
} tsr_mosaic_groups;

/* Another device with a trace, and its peak. */
typedef struct tsr_mosaic_other {
  uint32_t device;
  uint64_t bytes;
} tsr_mosaic_other;

/* Release the arrays, which the struct owns. */
void tsr_mosaic_groups_release(tsr_mosaic_groups *groups);

/* ---- peak ---- */

typedef struct tsr_mosaic_peak {
  uint32_t device;       /* the window's, or the first with a trace; TSR_NONE: none has one */
  int64_t event;         /* the first in the window at which usage is largest; -1: none */
  uint64_t version;      /* of its address, as Mosaic prints it: see src/mosaic/peak.c */
  uint64_t bytes;        /* usage there, counted from zero */
  uint64_t static_bytes; /* allocated blocks of all devices whose address is in no alloc or free */
  tsr_mosaic_groups groups; /* live at that event; only allocations that have a stack */
  uint64_t nameless_count;  /* allocs and frees in the window without an address, skipped */
  tsr_mosaic_other *others; /* in the same window */
  size_t other_count;
} tsr_mosaic_peak;

/* The peak of one device. */
int tsr_mosaic_peak_compute(tsr_study *study, const tsr_mosaic_window *window,
                            tsr_mosaic_peak **out, tsr_error *error);
void tsr_mosaic_peak_free(tsr_mosaic_peak *peak);

/* ---- diff ---- */

typedef struct tsr_mosaic_diff {
  tsr_mosaic_groups
      groups;           /* of the second peak: those that the first does not have, in its order */
  uint64_t grown_count; /* what that hides: groups of both peaks that are larger in the second, */
  uint64_t grown_bytes; /* and their total growth */
} tsr_mosaic_diff;

/* The groups of `peak` that the peak `base` of another snapshot does not have. They refer to the
 * snapshot of `study`. */
int tsr_mosaic_diff_compute(tsr_study *base_study, const tsr_mosaic_peak *base, tsr_study *study,
                            const tsr_mosaic_peak *peak, tsr_mosaic_diff **out, tsr_error *error);
void tsr_mosaic_diff_free(tsr_mosaic_diff *diff);

/* ---- usage at an event ---- */

typedef struct tsr_mosaic_usage {
  tsr_mosaic_moment moment; /* as given */
  uint32_t first_device;    /* the first with a trace, or TSR_NONE: where Mosaic looks */
  uint32_t device;          /* the first that has the moment */
  int64_t event;            /* -1: no device has it; then nothing below is set */
  int64_t bytes;            /* usage after it; negative if frees are larger than their allocs */
  tsr_mosaic_groups groups;
} tsr_mosaic_usage;

/* What is live at an event. */
int tsr_mosaic_usage_compute(tsr_study *study, const tsr_mosaic_moment *moment,
                             tsr_mosaic_usage **out, tsr_error *error);
void tsr_mosaic_usage_free(tsr_mosaic_usage *usage);

/* ---- stages ---- */

typedef struct tsr_mosaic_stage {
  size_t annotation; /* index into tsr_snapshot_annotations */
  uint64_t repeat;   /* number of earlier annotations with its name and stage */
  int64_t bytes;     /* usage after all events up to its time */
} tsr_mosaic_stage;

typedef struct tsr_mosaic_stages {
  uint32_t device;         /* the device; TSR_NONE: none has a trace, and there are no items */
  uint32_t other_count;    /* further devices that have a trace */
  tsr_mosaic_stage *items; /* in the order of the file */
  size_t count;
} tsr_mosaic_stages;

/* Selects annotations whose name contains one of the texts (all if there are no texts), and the device
 * whose usage is reported. A zeroed struct selects the first device that has a trace. */
typedef struct tsr_mosaic_stages_options {
  const char *const *texts;
  size_t text_count;
  bool has_device;
  uint32_t device;
} tsr_mosaic_stages_options;

/* Usage at each of the selected annotations. */
int tsr_mosaic_stages_of(tsr_study *study, const tsr_mosaic_stages_options *options,
                         tsr_mosaic_stages **out, tsr_error *error);
/* The same for the first device that has a trace. */
int tsr_mosaic_stages_compute(tsr_study *study, const char *const *texts, size_t text_count,
                              tsr_mosaic_stages **out, tsr_error *error);
void tsr_mosaic_stages_free(tsr_mosaic_stages *stages);

/* ---- as text ---- */

/* What Mosaic prints on standard output. `is_shown` means that a terminal will show it: control
 * characters in names become '?'. Otherwise texts are as in the file. */
int tsr_mosaic_print_groups(const tsr_snapshot *snapshot, const tsr_mosaic_groups *groups,
                            bool is_shown, tsr_write_fn *write, void *context, tsr_error *error);
int tsr_mosaic_print_stages(const tsr_snapshot *snapshot, const tsr_mosaic_stages *stages,
                            bool is_shown, tsr_write_fn *write, void *context, tsr_error *error);

/* What Mosaic logs, in lines that begin with "INFO:root:"; and what it hides, as "WARNING:root:". */
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
