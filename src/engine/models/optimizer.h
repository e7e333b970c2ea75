/* optimizer.h - what the optimizers' files share. */
#ifndef TSR_MODELS_OPTIMIZER_H
#define TSR_MODELS_OPTIMIZER_H

#include "models/program.h"

/* Parameters `first` to `end` - 1, or some of them. */
typedef struct tsr__update_range {
  size_t first, end;
  enum { TSR__UPDATES_ALL, TSR__UPDATES_MATRICES, TSR__UPDATES_OTHERS } which;
  enum { TSR__DECAY_ANY, TSR__DECAYED, TSR__UNDECAYED } decay; /* for AdamW: a group */
  enum {
    TSR__PLACE_ANY,
    TSR__FAR,
    TSR__NEAR
  } where; /* those whose state is where --offload puts it, or the others */
} tsr__update_range;

/* The tensor that the optimizer updates: the parameter, or its master. */
tsr__tensor_id tsr__update_target(const tsr__tape *tape, size_t parameter);
/* The gradient that the optimizer uses, 0 if absent. */
tsr__tensor_id tsr__update_gradient(const tsr__tape *tape, size_t parameter);
/* Whether parameter `i` of the range has a gradient and is updated. Matrices are those of blocks; others are embeddings, heads and vectors. */
bool tsr__updates(const tsr__tape *tape, tsr__update_range range, size_t i);

/* Whether the parameter's state and gradient are where the range's are. */
bool tsr__update_is_there(const tsr__tape *tape, tsr__update_range range, size_t i);

/* The step of an optimizer for which no real run exists: what it allocates, and how long it takes (optimizer_others.c). Of Muon, the matrices. */
void tsr__program_update_otherwise(tsr__program *program, tsr__update_range range);

#endif
