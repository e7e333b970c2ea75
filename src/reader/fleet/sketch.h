/* sketch.h - what a snapshot says about its rank, in at most 64 KiB.
 *
 *   snapshot ─► tsr__sketch_make ─► sketch ─► tsr__sketch_encode ─► bytes ─► tsr__sketch_decode ─► sketch
 *
 * It is a function of the file (and its sidecar) alone, so a thousand of them can be made anywhere and in any order. docs/sketch.md
 * describes the bytes. */
#ifndef TSR_FLEET_SKETCH_H
#define TSR_FLEET_SKETCH_H

#include "base/buffer.h"
#include "base/vector.h"
#include "study/study.h"
#include "tessera/unstable/sidecar.h"

#define TSR__SKETCH_MOST_BYTES ((size_t)64 << 10)
/* Parts of a device's time. */
enum {
  TSR__SKETCH_PARTS = 48,
  TSR__SKETCH_FRAMES = 12,
  TSR__SKETCH_STEPS = 64,
  TSR__SKETCH_MOMENTS = 5,
  TSR__SKETCH_DEVICES = 64
};

/* Texts are offsets in `texts`, each of which ends with a zero byte. */
typedef struct tsr__sketch_frame {
  uint32_t name, file;
  uint64_t line;
} tsr__sketch_frame;

/* The frames that a reader of the stack would look at, innermost first: the program's, and what names them. Stacks of the snapshot with
 * the same of them are one here. */
typedef struct tsr__sketch_stack {
  uint32_t first_frame, depth; /* of `frames` */
} tsr__sketch_stack;

/* What a stack held for one category. */
typedef struct tsr__sketch_share {
  uint32_t stack;   /* or TSR_NONE: no stack was recorded */
  uint8_t category; /* tsr_category */
  uint64_t bytes, count;
} tsr__sketch_share;

typedef TSR__VECTOR(tsr__sketch_share) tsr__sketch_shares;

/* When the first event of a step was, and those that end each quarter of its events: the last one ends the step. */
typedef struct tsr__sketch_step {
  int64_t at_us[TSR__SKETCH_MOMENTS];
  uint64_t peak_bytes, end_bytes;
} tsr__sketch_step;

/* Where memory ran out for good; event -1: it did not. */
typedef struct tsr__sketch_stop {
  int64_t event, time_us;
  uint64_t request_bytes, free_bytes;
  uint32_t stack;
} tsr__sketch_stop;

typedef struct tsr__sketch_device {
  uint32_t device;
  uint64_t event_count;
  int64_t first_us, last_us; /* of the trace; TSR_TIME_NONE: without times */
  int64_t peak_event, peak_us;
  uint64_t peak_bytes, peak_reserved_bytes; /* allocated, and the most that was reserved */
  uint64_t end_bytes, end_reserved_bytes;
  /* As the sidecar has them; 0: unknown. What PyTorch can have of the card, and the most that it had. */
  uint64_t limit_bytes, known_peak_bytes;
  tsr__sketch_stop stop;
  tsr__sketch_shares shares; /* at the peak, largest first */
  /* What each stack, or what is without one each category, held at most, which does not depend on when the
   * peak was, as requested: how blocks were cut differs from rank to rank. With the category that it held most for. Largest first. */
  tsr__sketch_shares highs;
  int64_t rest_bytes;                          /* of the peak, in no share */
  uint64_t category_highs[TSR_CATEGORY_COUNT]; /* what each category held at most, as requested */
  /* At the end, largest first; empty if that is the peak, where the shares of the peak are those of the end. */
  tsr__sketch_shares ends;
  tsr__sketch_shares
      kept; /* allocated in a middle step and live at the end; `kept_steps` of them */
  uint64_t kept_steps;
  uint64_t step_count, whole_steps;
  TSR__VECTOR(tsr__sketch_step) steps; /* the last whole ones */
  uint64_t
      parts[TSR__SKETCH_PARTS]; /* the most allocated in each part of the time from first to last */
} tsr__sketch_device;

typedef struct tsr__sketch {
  uint64_t input_bytes;
  tsr_rank_place place;
  int64_t taken_us,
      started_us;  /* when the snapshot was taken, and its recording began, by its sidecar */
  bool is_partial; /* the file is truncated or damaged, or a part could not be read */
  tsr__buffer texts;
  TSR__VECTOR(tsr__sketch_frame) frames;
  TSR__VECTOR(tsr__sketch_stack) stacks;
  TSR__VECTOR(tsr__sketch_device) devices;
} tsr__sketch;

/* Time is that of replaying each device. `out` is released by tsr__sketch_release, also when zeroed. Fails with TSR_ERROR_MEMORY. */
int tsr__sketch_make(tsr_study *study, tsr__sketch *out, tsr_error *error);
void tsr__sketch_release(tsr__sketch *sketch);

/* Append the bytes, at most TSR__SKETCH_MOST_BYTES: the smallest shares are left out, and counted in `rest_bytes`, until they fit. The same
 * sketch gives the same bytes. False when out of memory. */
bool tsr__sketch_encode(const tsr__sketch *sketch, tsr__buffer *out);
/* The reverse, of bytes that may be anything. TSR_ERROR_FORMAT with a message, or TSR_ERROR_MEMORY. */
int tsr__sketch_decode(const void *data, size_t size_bytes, tsr__sketch *out, tsr_error *error);

#endif
