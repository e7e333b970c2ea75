/* stacks.h - a stack as JSON, as one line, and as an indented list for people. */
#ifndef TSR_STACKS_STACKS_H
#define TSR_STACKS_STACKS_H

#include <stddef.h>

#include "attribution/labels.h"
#include "emit/emitter.h"

/* State shared when printing many stacks of one snapshot. */
typedef struct tsr__stack_printer {
  tsr__emitter *emitter;
  const tsr_snapshot *snapshot;
  uint8_t *origins; /* by frame id: 1 + tsr_origin, 0 = not computed yet; NULL: not kept */
  uint32_t origin_count;
  tsr__namer namer; /* set up when the first stack is named */
} tsr__stack_printer;

/* Without memory for it the emitter fails, as its close reports. */
void tsr__stack_printer_init(tsr__stack_printer *printer, tsr__emitter *emitter,
                             const tsr_snapshot *snapshot);
void tsr__stack_printer_release(tsr__stack_printer *printer);

/* What names stacks; NULL when out of memory, which the emitter then reports. */
tsr__namer *tsr__stack_namer(tsr__stack_printer *printer);

/* JSON: the member "frames", innermost first, one frame per line; [] for TSR_NONE. With
 * options.stack_frames folded, and followed by the member "folded_frames". */
void tsr__stack_emit(tsr__stack_printer *printer, uint32_t stack);

/* Append to the emitter's scratch what attribution/labels.h calls a stack: of TSR__LABEL_STACK the line and
 * the operation, of TSR__LABEL_LINE the line alone. Rows of a table are named with tsr__stack_names. */
void tsr__stack_append_name(tsr__stack_printer *printer, tsr__label_kind kind, uint32_t stack);

/* Append a frame's name likewise: `model.py:382`. `frame` is not TSR_NONE. */
void tsr__frame_append_name(tsr__stack_printer *printer, uint32_t frame);

/* What the rows of a table are called, so that no two read alike; of TSR_NONE "(no stack recorded)". Rows
 * may be of several printers. When out of memory, which the emitter then reports, or in JSON, names
 * are empty. The caller releases `out`. */
typedef struct tsr__stack_row {
  tsr__stack_printer *printer;
  uint32_t stack;
} tsr__stack_row;
void tsr__stack_names(const tsr__stack_row *rows, size_t count, tsr__row_names *out);
/* The same for an array of structs that each have a member `stack`. */
#define TSR__STACK_NAMES(printer, type, items, count, out) \
  tsr__stack_names_in((printer), (items), (count), sizeof(type), offsetof(type, stack), (out))
void tsr__stack_names_in(tsr__stack_printer *printer, const void *items, size_t count,
                         size_t item_bytes, size_t stack_at, tsr__row_names *out);
/* A row's name; empty text if they could not be made. */
tsr_text tsr__stack_name(const tsr__row_names *names, size_t row);

/* The Python frames of a folded stack, outermost first; returns how many, 0 if C++ or the standard library
 * represents it. `frames` has room for all of the stack. */
size_t tsr__stack_shown(tsr__stack_printer *printer, uint32_t stack, uint32_t *frames);
/* JSON: the frame as the member `key`, null for TSR_NONE. */
void tsr__frame_emit(tsr__stack_printer *printer, const char *key, uint32_t frame);

/* Text: one frame per line, outermost first, each indented two spaces more, up to half the width.
 * Folded as described in stacks.c unless options.full_stacks. */
void tsr__stack_print(tsr__stack_printer *printer, uint32_t stack);

#endif
