/* labels.h - what each stack was doing, in one name: the operation, the module, or the line of code.
 *
 *   operation  aten::einsum; aten::bmm in BmmBackward0; without C++ frames the innermost Python
 *              function, torch.nn.functional.softmax or nn_utils.py softmax
 *   module     the innermost nn.Module that is being called, by its file and where it is called:
 *              nn.linear at model.py:39, or forward at model.py:382
 *   line       the program's innermost line, model.py:434 scaled_dot_product_attention, and
 *              the library's that it called, train.py:57 train > activations.py:62 forward; in
 *              autograd's threads the node, MmBackward0 (autograd), or the operator, aten::sum
 *   stack      that line and the operation: optimizer.py:78 step (aten::mul)
 *
 * A stack without such a name gets one in brackets: its phase, "(backward)", or "(no stack
 * recorded)". No name is the allocator's, the interpreter's or that of generated code. This is the only
 * place that names stacks: lists of stacks use tsr__row_names, which distinguishes them. */
#ifndef TSR_ATTRIBUTION_LABELS_H
#define TSR_ATTRIBUTION_LABELS_H

#include "attribution/phase.h"
#include "attribution/places.h"
#include "base/buffer.h"
#include "base/intern.h"
#include "base/map.h"

/* For memory from before the recording that has no stack; the places' users give it. */
#define TSR__LABEL_BEFORE "(before the recording)"

typedef enum tsr__label_kind {
  TSR__LABEL_OP,
  TSR__LABEL_MODULE,
  TSR__LABEL_LINE,
  TSR__LABEL_STACK
} tsr__label_kind;

/* ---- One stack at a time ---- */

/* What naming the stacks of a snapshot needs to know of its frames. */
typedef struct tsr__namer {
  const tsr_snapshot *snapshot;
  const tsr__roles *roles; /* the caller's, or `own_roles` once they were needed */
  tsr__roles own_roles;
  uint8_t *origin, *mark, *rank; /* by frame id */
  tsr__map files; /* hash of a base name -> odd hash of the file's path, 0 if several have it */
  uint64_t seed;  /* of those hashes */
} tsr__namer;

/* The program's files of one name are distinguished by their folders. `roles` are the snapshot's; NULL
 * to compute them when a name needs them. Linear in the frames' text. Fails with TSR_ERROR_MEMORY, and
 * then leaves a zeroed namer. */
int tsr__namer_init(tsr__namer *namer, const tsr_snapshot *snapshot, const tsr__roles *roles,
                    tsr_error *error);
/* A zeroed one is fine. */
void tsr__namer_release(tsr__namer *namer);

/* Append the name of stack `id`; TSR_NONE is an absent one. Out of memory marks the buffer. Linear in the
 * stack's depth. */
void tsr__namer_append(tsr__namer *namer, tsr__label_kind kind, uint32_t id, tsr__buffer *out);

/* Append the operation that a stack's C++ frames show, `aten::mul` or `aten::mul in MulBackward0`; false, and
 * nothing, if they show none. Linear in the stack's depth. */
bool tsr__namer_append_op(const tsr__namer *namer, uint32_t stack, tsr__buffer *out);

/* Append one frame, as briefly as a reader can find it: `model.py:39`, `aten::mul`, `MulBackward0`. */
void tsr__namer_append_frame(tsr__namer *namer, uint32_t frame, tsr__buffer *out);

/* ---- The rows of a table ---- */

/* A row that stands for one stack; rows may be of several snapshots. */
typedef struct tsr__named_row {
  tsr__namer *namer;
  uint32_t stack;
} tsr__named_row;

typedef struct tsr__row_names {
  tsr__intern names;
  uint32_t *of_row;
} tsr__row_names;

/* Name rows so that no two of different stacks read alike: by what TSR__LABEL_STACK says, then where they
 * still agree by the nearest caller in which they differ, then by what they called, and at last by the
 * stacks' numbers. Time is linear in the stacks' depth, and count log count. `out` is released by
 * tsr__row_names_release, also when zeroed. Fails with TSR_ERROR_MEMORY. */
int tsr__row_names_compute(const tsr__named_row *rows, size_t count, tsr__row_names *out,
                           tsr_error *error);
void tsr__row_names_release(tsr__row_names *names);

static inline tsr_text tsr__row_name(const tsr__row_names *names, size_t row) {
  const tsr__interned *item = &names->names.items[names->of_row[row]];
  return (tsr_text){(const char *)item->data, item->size_bytes};
}

/* ---- All stacks of a snapshot ---- */

/* Names by stack id; the last, number `count`, is that of an absent stack. Equal names are stored once; those
 * of TSR__LABEL_STACK are made by tsr__row_names_compute, and no two are equal. */
typedef struct tsr__labels {
  tsr__intern names;
  uint32_t *of_stack; /* ids in names */
  uint32_t count;
} tsr__labels;

/* Time is linear in distinct frames' text and distinct stacks' depth. Fails with TSR_ERROR_MEMORY. */
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
