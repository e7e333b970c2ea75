/* causes.h - a device's timeline with what each allocation is for and which line took it. */
#ifndef TSR_ANSWERS_CAUSES_H
#define TSR_ANSWERS_CAUSES_H

#include "attribution/kind.h"
#include "attribution/places.h"
#include "tessera/causes.h"
#include "timeline/timeline.h"

/* What is the same for all devices of a snapshot. */
typedef struct tsr__purposes {
  tsr__roles roles;
  tsr__places places;
} tsr__purposes;

/* Time is linear in frames' text and stacks' depth. `out` is released by the function below, also
 * when zeroed. Fails with TSR_ERROR_MEMORY. */
int tsr__purposes_compute(const tsr_snapshot *snapshot, tsr__purposes *out, tsr_error *error);
void tsr__purposes_release(tsr__purposes *purposes);

/* The kind of every allocation of a timeline; `out` is released by tsr__kinds_release, also when
 * zeroed. Time is linear in events. Fails with TSR_ERROR_MEMORY. */
int tsr__purposes_kinds(const tsr__purposes *purposes, const tsr__timeline *timeline,
                        tsr__kinds *out, tsr_error *error);

/* A live set by kind and by cause, both largest first. Released with tsr__free. */
typedef struct tsr__held {
  tsr_kind_share kinds[TSR_KIND_COUNT]; /* those that occur, `kind_count` of them */
  size_t kind_count;
  tsr_cause *causes;
  size_t cause_count;
  uint64_t omitted_causes, omitted_bytes; /* what `top` left out */
} tsr__held;

/* Bytes are those of blocks, rounding included, so that they add up to what is active. `top`: at
 * most so many causes, 0 = all. Fails with TSR_ERROR_MEMORY. */
int tsr__held_by(const tsr__purposes *purposes, const tsr__timeline *timeline,
                 const tsr__kinds *kinds, const tsr__live_set *live, size_t top, tsr__held *out,
                 tsr_error *error);

#endif
