/* flame.h - what the writers of flame graph formats share: frames as text, and one writer a format. */
#ifndef TSR_REPORT_FLAME_H
#define TSR_REPORT_FLAME_H

#include "base/buffer.h"
#include "tessera/allocations.h"

/* A graph to be written. */
typedef struct tsr__flame {
  const tsr_report_input *input;
  const tsr_snapshot *snapshot;
  const tsr_weights *weights;
  bool *is_noise; /* by frame id: no one looks for it; NULL: nothing is noise */
} tsr__flame;

/* What an entry weighs in a graph: its bytes, or in a window its bytes x time. */
uint64_t tsr__flame_weight(const tsr__flame *flame, const tsr_stack_weight *weight);

/* The frames to show of a stack, innermost first, and how many; `shown` has room for all of the
 * stack's. Those that are noise are left out where any others remain. */
uint32_t tsr__flame_frames(const tsr__flame *flame, tsr_stack stack, uint32_t *shown);

/* What memory without a recorded stack is called. */
#define TSR__NO_STACK "(no stack recorded)"

/* A frame as text on one line, without semicolons: `forward (model.py:382)`. */
void tsr__append_frame(tsr__buffer *out, const tsr_snapshot *snapshot, uint32_t id);

/* One file in pprof's format: append it to `out`, which says at the end whether memory ran out.
 * `shown` has room for the frames of the deepest stack. */
void tsr__flame_pprof(const tsr__flame *flame, uint32_t *shown, tsr__buffer *out);

#endif
