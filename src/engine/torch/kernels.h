/* kernels.h - PyTorch's names for the engine's kernels. */
#ifndef TSR_TORCH_KERNELS_H
#define TSR_TORCH_KERNELS_H

#include "kernels/kernel.h"

typedef struct tsr__torch_kernel {
  const char *name; /* in the dispatcher: at::_ops::NAME */
  const char
      *autograd_file; /* that has VariableType::NAME, as recorded stacks show; NULL: unknown */
} tsr__torch_kernel;

/* Any kernel but TSR__KERNEL_NONE. */
const tsr__torch_kernel *tsr__torch_kernel_of(tsr__kernel kernel);

#endif
