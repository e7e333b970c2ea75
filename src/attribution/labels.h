/* labels.h - what each stack was doing, in one name: the operation, the module, or the line of code.
 *
 *   operation  aten::einsum; aten::bmm in BmmBackward0; without C++ frames the innermost Python
 *              function, torch.nn.functional.softmax or nn_utils.py softmax
 *   module     the innermost nn.Module that is being called, by its file and where it is called:
 *              nn.linear at model.py:39, or forward at model.py:382
 *   line       the program's innermost line, model.py:434 scaled_dot_product_attention, and
 *              the library's that it called, train.py:57 train > activations.py:62 forward; in
 *              autograd's threads the node, MmBackward0 (autograd)
 *   stack      that line and the stack's number
 *
 * A stack without such a name gets one in brackets: its phase, "(backward)", or "(no stack
 * recorded)". */
#ifndef TSR_ATTRIBUTION_LABELS_H
#define TSR_ATTRIBUTION_LABELS_H

#include "attribution/phase.h"
#include "base/intern.h"

/* For memory from before the recording that has no stack; the places' users give it. */
#define TSR__LABEL_BEFORE "(before the recording)"

typedef enum tsr__label_kind {
  TSR__LABEL_OP,
  TSR__LABEL_MODULE,
  TSR__LABEL_LINE,
  TSR__LABEL_STACK
} tsr__label_kind;

/* Names by stack id; the last, number `count`, is that of an absent stack. Equal names are stored once. */
typedef struct tsr__labels {
  tsr__intern names;
  uint32_t *of_stack; /* ids in names */
  uint32_t count;
} tsr__labels;

/* Time is linear in distinct frames' text and distinct stacks' depth. The program's files of one
 * name are distinguished by their folders. Fails with TSR_ERROR_MEMORY. */
int tsr__labels_compute(const tsr_snapshot *snapshot, const tsr__roles *roles, tsr__label_kind kind,
                        tsr__labels *out, tsr_error *error);
/* A zeroed one is fine. */
void tsr__labels_release(tsr__labels *labels);

static inline uint32_t tsr__label_of(const tsr__labels *labels, uint32_t stack) {
  return labels->of_stack[stack < labels->count ? stack : labels->count];
}
static inline tsr_text tsr__label_name(const tsr__labels *labels, uint32_t label) {
  const tsr__interned *item = &labels->names.items[label];
  return (tsr_text){(const char *)item->data, item->size_bytes};
}

#endif
