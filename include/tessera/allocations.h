/* tessera/allocations.h - every allocation of a trace, and what each stack took: the data under the
 * answers, for programs with questions of their own, and the formats in which such programs read it.
 *
 *   tsr_weights   what each stack held at a moment, or took over a range: flame graphs
 *   tsr_lives     every allocation from birth to death, and the totals in between: tables, time lines
 *
 * Both are released by their _free function, which accepts NULL, and refer to stacks by the ids of
 * the snapshot, which must outlive their use. The computing functions fail with TSR_ERROR_MEMORY,
 * or with TSR_ERROR_ARGUMENT for a device or a moment that the snapshot does not have, are thread
 * safe for a shared snapshot and take time linear in events.
 */
#ifndef TESSERA_ALLOCATIONS_H
#define TESSERA_ALLOCATIONS_H

#include "tessera/answers.h"
#include "tessera/report.h"

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
  uint32_t stack; /* stack id, or TSR_NONE: memory whose stack was not recorded */
  tsr_kind kind;  /* one stack may have memory of several, a row each */
  uint64_t allocations;
  uint64_t bytes; /* requested, of all of them together */
  /* A window's: the sum of requested bytes x milliseconds within it. Where events have no times, and
   * where the window is one of events, bytes x events. Saturates. */
  uint64_t byte_time;
} tsr_stack_weight;

typedef struct tsr_weights_device {
  uint32_t device;
  int64_t first, last;       /* events: of the window; both the moment otherwise */
  int64_t first_us, last_us; /* their times, or TSR_TIME_NONE */
  tsr_stack_weight *stacks;  /* largest byte_time, then bytes, first */
  size_t stack_count;
} tsr_weights_device;

typedef struct tsr_weights {
  tsr_weigh what;
  bool is_timed;               /* byte_time counts milliseconds */
  tsr_weights_device *devices; /* those that have the moment, or an event in the window */
  size_t device_count;
} tsr_weights;

/* `options` may be NULL: the peak. tsr_query.top does not apply. */
int tsr_weights_compute(const tsr_snapshot *snapshot, const tsr_weigh_options *options,
                        const tsr_query *query, tsr_weights **out, tsr_error *error);
void tsr_weights_free(tsr_weights *weights);

/* ---- lives ---- */

typedef struct tsr_life {
  int64_t birth; /* event that made it; -1: before the first */
  int64_t death; /* event after which its memory was free; the number of events: live at the end */
  uint64_t address;
  uint64_t requested_bytes, block_bytes; /* what was asked for, and the block that served it */
  uint32_t stack;                        /* or TSR_NONE */
  uint32_t stream; /* id for tsr_snapshot_stream, TSR_NONE for memory from before the first event */
  tsr_kind kind;
  tsr_phase phase; /* in which it was made, as far as that is known */
  tsr_evidence evidence;
} tsr_life;

/* One device's. Immutable: any number of threads may read it. */
typedef struct tsr_lives tsr_lives;

/* The lives of one device's allocations; `*out` is the caller's, to be given to tsr_lives_free. */
int tsr_lives_compute(const tsr_snapshot *snapshot, uint32_t device, tsr_lives **out,
                      tsr_error *error);
/* Release them. */
void tsr_lives_free(tsr_lives *lives);

/* How many allocations; by birth. */
size_t tsr_lives_count(const tsr_lives *lives);
/* Number `index` below that. O(1). */
tsr_life tsr_lives_at(const tsr_lives *lives, size_t index);

/* An event, the totals after it, and what it made (TSR_NONE: nothing) and freed, by index. */
typedef struct tsr_turn {
  int64_t event;
  tsr_totals totals;
  uint32_t born;
  const uint32_t *died;
  size_t died_count;
} tsr_turn;

/* Receives the turns in order; answers 0, or anything else to stop. */
typedef int tsr_turn_fn(void *context, const tsr_turn *turn);

/* Call `turn` for the state before the first event (-1; nothing born) and for every event. Answers
 * what `turn` answered, or TSR_ERROR_MEMORY. */
int tsr_lives_walk(const tsr_lives *lives, tsr_turn_fn *turn, void *context, tsr_error *error);

/* ---- formats ---- */

typedef enum tsr_stacks_format {
  /* A line a stack, outermost frame first: `main (train.py:40);step (train.py:31) 8804794368`. */
  TSR_STACKS_FOLDED,
  TSR_STACKS_SPEEDSCOPE, /* https://www.speedscope.app/file-format-schema.json */
  TSR_STACKS_PPROF       /* profile.proto, gzipped: a heap profile, with categories as labels */
} tsr_stacks_format;

/* Write weights in a format that flame graph programs read. Frames of the interpreter, the loader and
 * the unwinder are left out unless `full_stacks`; of the options only that counts, and they may be
 * NULL. Fails with TSR_ERROR_MEMORY or _WRITE. */
int tsr_report_weights(const tsr_report_input *input, const tsr_weights *weights,
                       tsr_stacks_format format, const tsr_report_options *options,
                       tsr_write_fn *write, void *context, tsr_error *error);

typedef enum tsr_lives_format {
  TSR_LIVES_CSV, /* RFC 4180: a row an allocation; `full_stacks`: with all its frames */
  /* Trace events in JSON, for Perfetto and chrome://tracing, on the trace's own clock (microseconds
   * since 1970, as Kineto has it): counters of the totals and of each category, thinned out to some
   * 50,000 points that keep every extreme, and the 1,000 largest allocations as slices. */
  TSR_LIVES_PERFETTO
} tsr_lives_format;

/* Write the allocations of the devices that the query means. Computes them device by device, so that
 * one at a time is in memory. Fails as tsr_lives_compute does, or with TSR_ERROR_WRITE. */
int tsr_report_lives(const tsr_report_input *input, const tsr_query *query, tsr_lives_format format,
                     const tsr_report_options *options, tsr_write_fn *write, void *context,
                     tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
