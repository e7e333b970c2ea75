/* cuda_functions.h - answers for PyTorch's C++ where there is no driver, by the names of the virtual functions that they replace. */
#ifndef TESSERA_CUDA_FUNCTIONS_H
#define TESSERA_CUDA_FUNCTIONS_H

typedef void any_function(void);

typedef struct cuda_function {
  const char *name; /* as in the header; NULL at the end of the table */
  any_function *function;
} cuda_function;

extern const cuda_function tessera_cuda_functions[];

#endif
