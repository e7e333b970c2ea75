/* tessera/unstable/allocations.h - every allocation of a trace, and what each stack allocated: the data on which
 * answers are based, for programs with other questions, and the file formats that they read.
 *
 *   tsr_weights   what each stack held at a moment, or over a range: flame graphs
 *   tsr_lives     every allocation with its lifetime, and the totals in between: tables, time lines
 *   tsr_stack_place   the line that stands for a stack
 *
 * Both are released by their _free function, which accepts NULL, and refer to stacks by the ids of
 * the snapshot, which must outlive their use. The computing functions fail with TSR_ERROR_MEMORY,
 * or with TSR_ERROR_ARGUMENT for a device or a moment that the snapshot does not have, are thread
 * safe for a shared snapshot and take time linear in events.
 */
#ifndef TESSERA_UNSTABLE_ALLOCATIONS_H
#define TESSERA_UNSTABLE_ALLOCATIONS_H

#include "tessera/unstable/answers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- weights ---- */

typedef enum tsr_weigh {
  TSR_WEIGH_PEAK,   /* what is live at each device's peak */
  TSR_WEIGH_MOMENT, /* ... at `where` */
  TSR_WEIGH_WINDOW  /* what was live at any time in `window`, by how long it was */
} tsr_weigh;

typedef struct tsr_weigh_options {
  tsr_weigh what;
  tsr_at_where where;
  tsr_window window;
} tsr_weigh_options;

typedef struct tsr_stack_weight {
  uint32_t stack;        /* stack id, or TSR_NONE: memory whose stack was not recorded */
  tsr_category category; /* a stack with several categories or names has one row for each */
  tsr_text name;         /* what the program called it; empty if nothing. Owned by the weights */
  uint64_t allocations;
  uint64_t bytes; /* requested, of all of them together */
  /* TSR_WEIGH_WINDOW: the sum of requested bytes x milliseconds within the window. If events have no
   * times, or the window is given in events, bytes x events. Saturates. */
  uint64_t byte_time;
} tsr_stack_weight;

typedef struct tsr_weights_device {
  uint32_t device;
  int64_t first, last;       /* events of the window; otherwise both are the moment */
  int64_t first_us, last_us; /* their times, or TSR_TIME_NONE */
  tsr_stack_weight *stacks;  /* largest byte_time, then bytes, first */
  size_t stack_count;
  void *names; /* owns the texts */
} tsr_weights_device;

typedef struct tsr_weights {
  tsr_weigh what;
  bool is_timed;               /* byte_time counts milliseconds */
  tsr_weights_device *devices; /* those that have the moment, or an event in the window */
  size_t device_count;
} tsr_weights;

/* `options` NULL selects the peak. tsr_query.top does not apply. */
int tsr_weights_compute(tsr_study *study, const tsr_weigh_options *options, const tsr_query *query,
                        tsr_weights **out, tsr_error *error);
void tsr_weights_free(tsr_weights *weights);

/* ---- places ---- */

/* The program's line that stands for a stack in lists. */
typedef struct tsr_stack_place {
  uint32_t frame; /* a frame id; TSR_NONE if no frame was recorded */
  uint32_t
      number; /* stacks have one number if and only if they have one text; below their count + 1 */
  tsr_text
      text; /* the name of its group in a profile by line, "model.py:39 forward"; the study's */
} tsr_stack_place;

/* The place of a stack; of TSR_NONE that of an absent one. The first call takes time linear in the frames'
 * text and the stacks' depth, later ones O(1). Thread safe. Fails with TSR_ERROR_MEMORY. */
int tsr_stack_place_find(tsr_study *study, uint32_t stack, tsr_stack_place *out, tsr_error *error);

/* ---- lives ---- */

typedef struct tsr_life {
  int64_t birth; /* event that allocated it; -1: before the first */
  int64_t
      death; /* event after which its memory was free; equal to the event count if live at the end */
  uint64_t address;
  uint64_t requested_bytes, block_bytes; /* the request, and the block that served it */
  uint32_t stack;                        /* or TSR_NONE */
  uint32_t stream; /* id for tsr_snapshot_stream, TSR_NONE for memory from before the first event */
  tsr_category category;
  tsr_phase phase; /* in which it was allocated, if known */
  tsr_evidence evidence;
} tsr_life;

/* The lives of one or more devices. Immutable: any number of threads may read it. It refers to what
 * its study keeps, so the study must outlive it. */
typedef struct tsr_lives tsr_lives;

/* The lives of the allocations of every device that the query selects; tsr_query.top does not apply.
 * The caller owns `*out` and passes it to tsr_lives_free. */
int tsr_lives_compute(tsr_study *study, const tsr_query *query, tsr_lives **out, tsr_error *error);
/* NULL is fine. */
void tsr_lives_free(tsr_lives *lives);

/* The selected devices, in the order of the query. */
size_t tsr_lives_device_count(const tsr_lives *lives);
/* The device index at `place`, which is below that count. */
uint32_t tsr_lives_device(const tsr_lives *lives, size_t place);

/* The number of allocations of the device at `place`. They are numbered in order of allocation. */
size_t tsr_lives_count(const tsr_lives *lives, size_t place);
/* Allocation `index` of the device at `place`, below its count. O(1). */
tsr_life tsr_lives_at(const tsr_lives *lives, size_t place, size_t index);

/* An event, the totals after it, and the indexes of what it allocated (TSR_NONE: nothing) and freed. */
typedef struct tsr_turn {
  int64_t event;
  tsr_totals totals;
  uint32_t born, died;
} tsr_turn;

/* Receives the turns in order; returns 0, or anything else to stop. */
typedef int tsr_turn_fn(void *context, const tsr_turn *turn);

/* Call `turn` for the state before the first event (-1; nothing allocated) and for every event of the
 * device at `place`. Returns what `turn` returned, or TSR_ERROR_MEMORY. */
int tsr_lives_walk(const tsr_lives *lives, size_t place, tsr_turn_fn *turn, void *context,
                   tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
