/* listing.h - how PyTorch and transformers spell the places of a program.
 *
 * A listing says what a place (graph/place.h) looks like on a stack: the frames that a call of it
 * pushes, and on which line of the innermost of them each further call is made, in the order of the
 * source file:
 *
 *   [TSR__PLACE_MLP] = {MODULE, FRAMES({"forward", NULL, 374}),
 *                       LINES({374, AT(UP)}, {375, AT(ACTIVATION)}, {376, AT(DOWN)})}
 *
 * means: a module's forward, in the class's own file; it begins on line 374, calls the projection
 * up there, the activation on line 375, and so on. A program is followed along these lines: what it
 * does next is looked for from the current line on, then from the top, as in a loop. What is not
 * listed happens on the current line.
 *
 * Two tables are asked in turn: that of the model's class, then the common one. In a class whose
 * relatives differ in line numbers alone, numbers are indices into its own column. */
#ifndef TSR_TORCH_LISTING_H
#define TSR_TORCH_LISTING_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "graph/op.h"

/* Where a Debian image with pip has its packages. */
#define TSR__TORCH_FILE(file)        "/usr/local/lib/python3.12/dist-packages/torch/" file
#define TSR__TRANSFORMERS_FILE(file) "/usr/local/lib/python3.12/dist-packages/transformers/" file

typedef struct tsr__listed_frame {
  const char *name;
  const char *file; /* NULL: the class's own */
  uint16_t line;
} tsr__listed_frame;

/* Something the function does, and where. */
typedef struct tsr__listed_line {
  uint16_t line;
  uint16_t event; /* AT, OP or PHASE, below; 0 ends the list */
} tsr__listed_line;

typedef enum tsr__listed_call {
  TSR__LISTED_NOT, /* the table does not know this place */
  TSR__LISTED_FUNCTION,
  TSR__LISTED_MODULE, /* called through nn.Module.__call__ */
  TSR__LISTED_THREAD  /* its stack begins again */
} tsr__listed_call;

typedef struct tsr__listing {
  tsr__listed_call call;
  const tsr__listed_frame *frames; /* outermost first; a NULL name ends them */
  const tsr__listed_line *lines;   /* of the last frame; NULL: it has only one */
} tsr__listing;

/* A class of models. */
typedef struct tsr__listed_class {
  const char *file;
  const uint16_t *numbers; /* what lines within `file` are indices into; NULL: they are lines */
  const tsr__listing *listings; /* by place: TSR__PLACE_COUNT of them */
} tsr__listed_class;

enum { TSR__LISTED_OP = 0x100, TSR__LISTED_PHASE = 0x200 };
static_assert(TSR__PLACE_COUNT <= (int)TSR__LISTED_OP, "events share one number space");
static_assert(TSR__OP_KIND_COUNT <= (int)TSR__LISTED_PHASE - (int)TSR__LISTED_OP, "as above");

extern const tsr__listing tsr__listings[TSR__PLACE_COUNT]; /* common.c */
extern const tsr__listed_class tsr__listed_gpt2;           /* gpt2.c */
extern const tsr__listed_class tsr__listed_llama, tsr__listed_mistral,
    tsr__listed_qwen2; /* llama.c */

#endif
