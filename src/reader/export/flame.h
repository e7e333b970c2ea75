/* flame.h - shared by the writers of flame graph formats. */
#ifndef TSR_EXPORT_FLAME_H
#define TSR_EXPORT_FLAME_H

#include "base/buffer.h"
#include "export/shown.h"
#include "tessera/unstable/formats.h"

/* A graph to be written. */
typedef struct tsr__flame {
  const tsr_report_input *input;
  const tsr_weights *weights;
  tsr__shown *shown;
} tsr__flame;

/* An entry's weight in a graph: its bytes, or in a window its bytes x time. */
uint64_t tsr__flame_weight(const tsr__flame *flame, const tsr_stack_weight *weight);

/* Append one file in pprof's format to `out`, which records whether memory ran out. */
void tsr__flame_pprof(const tsr__flame *flame, tsr__buffer *out);

#endif
