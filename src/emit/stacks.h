/* stacks.h - a stack as JSON, as one line, and as an indented list for people. */
#ifndef TSR_EMIT_STACKS_H
#define TSR_EMIT_STACKS_H

#include "emit/emitter.h"

/* State shared when printing many stacks of one snapshot. */
typedef struct tsr__stack_printer {
  tsr__emitter *emitter;
  const tsr_snapshot *snapshot;
  uint8_t *origins; /* by frame id: 1 + tsr_origin, 0 = not computed yet; NULL: compute each time */
  uint32_t origin_count;
} tsr__stack_printer;

/* Memory is needed for folding only; if there is none, folding is slower. */
void tsr__stack_printer_init(tsr__stack_printer *printer, tsr__emitter *emitter,
                             const tsr_snapshot *snapshot);
void tsr__stack_printer_release(tsr__stack_printer *printer);

/* JSON: the member "frames", innermost first, one frame per line; [] for TSR_NONE. With
 * options.stack_frames folded, and followed by the member "folded_frames". */
void tsr__stack_emit(tsr__stack_printer *printer, uint32_t stack);

/* Append to the emitter's scratch the place a person would look at: `model.py:382 forward`, the
 * program's innermost frame; if that called a library other than torch, also
 * ` > modeling_llama.py:120 forward`, the layer. */
void tsr__stack_append_name(tsr__stack_printer *printer, uint32_t stack);

/* Append a place: `model.py:382 forward`, and ` > modeling.py:120 forward` if `layer` is not
 * TSR_NONE; "(no stack recorded)" if `frame` is TSR_NONE. */
void tsr__place_append_name(tsr__stack_printer *printer, uint32_t frame, uint32_t layer);
/* JSON: the frame as the member `key`, null for TSR_NONE. */
void tsr__frame_emit(tsr__stack_printer *printer, const char *key, uint32_t frame);

/* Text: one frame per line, outermost first, each indented two spaces more, up to half the width.
 * Folded as described in stacks.c unless options.full_stacks. */
void tsr__stack_print(tsr__stack_printer *printer, uint32_t stack);

#endif
