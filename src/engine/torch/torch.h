/* torch.h - a tracer whose stacks look like those that PyTorch records. */
#ifndef TSR_TORCH_TORCH_H
#define TSR_TORCH_TORCH_H

#include "graph/tracer.h"
#include "models/model.h"

/* A tracer for programs of the model's class, as transformers 4.57 spells them under PyTorch 2.9. NULL
 * when out of memory. Free it with tsr__torch_free, after every tape that uses it; the model is not
 * needed any more. Not thread safe. */
tsr__tracer *tsr__torch_new(const tsr_model *model);
/* NULL is fine. */
void tsr__torch_free(tsr__tracer *tracer);

#endif
