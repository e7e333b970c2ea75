/* callers.h - the Python frames of every stack, outermost first, and what each frame is: what finding a loop in
 * the user's code needs. */
#ifndef TSR_ATTRIBUTION_CALLERS_H
#define TSR_ATTRIBUTION_CALLERS_H

#include "attribution/phase.h"

/* What a Python frame is. */
enum {
  TSR__CALLER_MODULE = 1, /* a forward, or the call of a module */
  TSR__CALLER_CONTAINER = 2,
  TSR__CALLER_TORCH = 4,
  TSR__CALLER_PYTHON = 8,
  TSR__CALLER_FORWARD = 16,
  TSR__CALLER_DYNAMO = 32
};

typedef struct tsr__callers {
  uint8_t *kind;    /* by frame; 0: not Python */
  uint32_t *frames; /* Python frames of each stack, outermost first, one stack after another */
  uint32_t *at;     /* by stack: where its frames begin in `frames`; one more at the end */
  uint64_t *inner;  /* by stack: its frames from the outermost forward on, hashed */
} tsr__callers;

/* Time is linear in distinct frames' text and distinct stacks' depth. False if out of memory; to be released
 * in any case. */
bool tsr__callers_read(const tsr_snapshot *snapshot, tsr__callers *out);
void tsr__callers_release(tsr__callers *callers);

/* How many frames of a stack, from the outside, call its first module: those of the program itself. */
uint32_t tsr__callers_depth(const tsr__callers *callers, uint32_t stack);

#endif
