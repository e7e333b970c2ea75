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

/* Which part of a trace; a zeroed struct, or NULL, is all of it. Events before the window count
 * towards usage, but are not the peak. An event without time is at that of the one before it. */
typedef struct tsr_mosaic_window {
  bool has_first, has_last, has_stop;
  int64_t first_us, last_us; /* times, both included */
  tsr_mosaic_moment stop;    /* the last event; of no effect where the window has no such event */
} tsr_mosaic_window;

/* Live allocations whose stacks have the same text of file names and lines. */
typedef struct tsr_mosaic_group {
  uint64_t bytes; /* as requested */
  uint64_t allocations;
  uint32_t stack; /* of the member that became live first */
} tsr_mosaic_group;

/* Largest first; equal ones in the order in which they became live. */
typedef struct tsr_mosaic_groups {
  tsr_mosaic_group *items;
  size_t count;
} tsr_mosaic_groups;

/* Another device that has a trace, and the peak of that. */
typedef struct tsr_mosaic_other {
  uint32_t device;
  uint64_t bytes;
} tsr_mosaic_other;

typedef struct tsr_mosaic_peak {
  uint32_t device;  /* the first that has a trace; TSR_NONE: none has */
  int64_t event;    /* the first of the window at which usage is largest; -1: there is none */
  uint64_t version; /* of its address, as Mosaic prints it: see mosaic_peak.c */
  uint64_t bytes;   /* usage there, counted from zero */
  uint64_t
      static_bytes; /* allocated blocks, of all devices, whose address no alloc or free names */
  tsr_mosaic_groups groups; /* live at that event, those whose event has stacks */
  tsr_mosaic_other *others; /* in the same window */
  size_t other_count;
} tsr_mosaic_peak;

/* The peak of the first device that has a trace; `*out` is the caller's, for the function below. */
int tsr_mosaic_peak_compute(const tsr_snapshot *snapshot, const tsr_mosaic_window *window,
                            tsr_mosaic_peak **out, tsr_error *error);
void tsr_mosaic_peak_free(tsr_mosaic_peak *peak);

typedef struct tsr_mosaic_usage {
  uint32_t device; /* as in tsr_mosaic_peak, or the first that has the moment */
  tsr_mosaic_moment moment;
  int64_t event; /* -1: no device has the moment; nothing below is filled then */
  int64_t bytes; /* usage after it */
  tsr_mosaic_groups groups;
} tsr_mosaic_usage;

/* What is live at an event; `*out` is the caller's, for the function below. */
int tsr_mosaic_usage_compute(const tsr_snapshot *snapshot, const tsr_mosaic_moment *moment,
                             tsr_mosaic_usage **out, tsr_error *error);
void tsr_mosaic_usage_free(tsr_mosaic_usage *usage);

#ifdef __cplusplus
}
#endif
#endif
