/* stacks.h - a stack as JSON, as one line, and as the indented list a person reads. */
#ifndef TSR_REPORT_STACKS_H
#define TSR_REPORT_STACKS_H

#include "report/emitter.h"

/* What printing many stacks of one snapshot shares. */
typedef struct tsr__stack_printer {
  tsr__emitter *emitter;
  const tsr_snapshot *snapshot;
  uint8_t *origins; /* by frame id: 1 + tsr_origin, 0 = not judged yet; NULL: judge each time */
  uint32_t origin_count;
} tsr__stack_printer;

/* Needs memory for folding only, and does without (slower) when there is none. */
void tsr__stack_printer_init(tsr__stack_printer *printer, tsr__emitter *emitter,
                             const tsr_snapshot *snapshot);
void tsr__stack_printer_release(tsr__stack_printer *printer);

/* JSON: the member "frames", innermost first, one frame a line; [] for TSR_NONE. With
 * options.stack_frames folded, and followed by the member "folded_frames". */
void tsr__stack_emit(tsr__stack_printer *printer, uint32_t stack);

/* Append to the emitter's scratch the place a person would look at: `model.py:382 forward`, the
 * innermost frame of the program's own; where that called a library that is not torch, also
 * ` > modeling_llama.py:120 forward`, the layer. */
void tsr__stack_append_name(tsr__stack_printer *printer, uint32_t stack);

/* Append a place: `model.py:382 forward`, and ` > modeling.py:120 forward` where `layer` is not
 * TSR_NONE; "(no stack recorded)" where `frame` is. */
void tsr__place_append_name(tsr__stack_printer *printer, uint32_t frame, uint32_t layer);
/* JSON: the frame as the member `key`, null for TSR_NONE. */
void tsr__frame_emit(tsr__stack_printer *printer, const char *key, uint32_t frame);

/* Text: one frame a line, outermost first, two spaces deeper each, down to half the width. Folded
 * as stacks.c says unless options.full_stacks. */
void tsr__stack_print(tsr__stack_printer *printer, uint32_t stack);

#endif
