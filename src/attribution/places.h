/* places.h - what each stack was doing, in one name: the operation, the module, or the line of code.
 *
 *   operation  aten::einsum; aten::bmm in BmmBackward0; without C++ frames the innermost Python
 *              function, torch.nn.functional.softmax or nn_utils.py softmax
 *   module     the innermost nn.Module that is being called, by its file and where it is called:
 *              nn.linear at model.py:39, or forward at model.py:382
 *   line       the innermost line of the program's own, model.py:434 scaled_dot_product_attention
 *   stack      that line and the stack's number
 *
 * A stack that has none of its own is named in brackets: by its phase, "(backward)", or "(no stack
 * recorded)". */
#ifndef TSR_ATTRIBUTION_PLACES_H
#define TSR_ATTRIBUTION_PLACES_H

#include "attribution/phase.h"
#include "base/intern.h"

/* For memory from before the recording that has no stack; the places' users give it. */
#define TSR__PLACE_BEFORE "(before the recording)"

typedef enum tsr__place_kind {
  TSR__PLACE_OP,
  TSR__PLACE_MODULE,
  TSR__PLACE_LINE,
  TSR__PLACE_STACK
} tsr__place_kind;

/* Names by stack id; the last, number `count`, is that of an absent stack. Equal names are one. */
typedef struct tsr__places {
  tsr__intern names;
  uint32_t *of_stack; /* ids in names */
  uint32_t count;
} tsr__places;

/* Time is linear in distinct frames' text and distinct stacks' depth. The program's files of one
 * name are told by their folders too. Fails with TSR_ERROR_MEMORY. */
int tsr__places_compute(const tsr_snapshot *snapshot, const tsr__roles *roles, tsr__place_kind kind,
                        tsr__places *out, tsr_error *error);
/* A zeroed one is fine. */
void tsr__places_release(tsr__places *places);

static inline uint32_t tsr__place_of(const tsr__places *places, uint32_t stack) {
  return places->of_stack[stack < places->count ? stack : places->count];
}
static inline tsr_text tsr__place_name(const tsr__places *places, uint32_t place) {
  const tsr__interned *item = &places->names.items[place];
  return (tsr_text){(const char *)item->data, item->size_bytes};
}

#endif
