/* flame.h - shared by the writers of flame graph formats: frames as text, and one writer per format. */
#ifndef TSR_EXPORT_FLAME_H
#define TSR_EXPORT_FLAME_H

#include "base/buffer.h"
#include "tessera/unstable/formats.h"

/* A graph to be written. */
typedef struct tsr__flame {
  const tsr_report_input *input;
  const tsr_snapshot *snapshot;
  const tsr_weights *weights;
  bool *is_noise; /* by frame id: of no interest to readers; NULL: nothing is noise */
} tsr__flame;

/* An entry's weight in a graph: its bytes, or in a window its bytes x time. */
uint64_t tsr__flame_weight(const tsr__flame *flame, const tsr_stack_weight *weight);

/* Fill `shown` with the frames of a stack to show, innermost first, and return their number; it must
 * have room for all frames of the stack. Noise is omitted unless the stack has nothing else. */
uint32_t tsr__flame_frames(const tsr__flame *flame, tsr_stack stack, uint32_t *shown);

/* The name of memory without a recorded stack. */
#define TSR__NO_STACK "(no stack recorded)"

/* A frame as text on one line, without semicolons: `forward (model.py:382)`. */
void tsr__append_frame(tsr__buffer *out, const tsr_snapshot *snapshot, uint32_t id);

/* Append one file in pprof's format to `out`, which records whether memory ran out.
 * `shown` must have room for the frames of the deepest stack. */
void tsr__flame_pprof(const tsr__flame *flame, uint32_t *shown, tsr__buffer *out);

#endif
