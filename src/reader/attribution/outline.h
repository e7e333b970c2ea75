/* outline.h - the functions and classes of a Python source, and which lines they are.
 *
 * A reader of indentation, not of the grammar: it knows strings, comments, brackets and continued
 * lines, and accepts any bytes. For text that is not Python the result is meaningless but valid. */
#ifndef TSR_ATTRIBUTION_OUTLINE_H
#define TSR_ATTRIBUTION_OUTLINE_H

#include "base/error.h"
#include "base/vector.h"
#include "tessera/unstable/columns.h"

typedef struct tsr__definition {
  tsr_text name; /* in the source */
  bool is_class, is_async;
  bool is_direct;                 /* in the body of its parent or module itself, not in an `if` or
                                     other block of it */
  uint32_t parent;                /* index of the function or class around it, or TSR_NONE */
  uint32_t first_line, last_line; /* from the `def` or `class` to the last statement's last line */
} tsr__definition;

typedef struct tsr__outline {
  TSR__VECTOR(tsr__definition) definitions; /* in the order of the source */
  TSR__VECTOR(tsr_text) lines; /* of the source, by line from 0, without the ends of lines */
  uint32_t *owner;             /* by line from 0: the innermost definition around it, or TSR_NONE */
} tsr__outline;

/* Read a source. Lines end with \n, \r\n or \r. Linear in its size. `out` refers to `source`, and must be
 * released with the function below in any case. Fails with TSR_ERROR_MEMORY, or _LIMIT for 4 GiB and
 * more. */
int tsr__outline_read(tsr_text source, tsr__outline *out, tsr_error *error);
void tsr__outline_release(tsr__outline *outline);

/* The innermost definition around a line counted from 1, or TSR_NONE. */
static inline uint32_t tsr__outline_at(const tsr__outline *outline, uint64_t line) {
  return line && line <= outline->lines.count ? outline->owner[line - 1] : TSR_NONE;
}

#endif
