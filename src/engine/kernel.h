/* kernel.h - the kernels that steps run: PyTorch's names for them, and what they cost.
 *
 * The names are those of the dispatcher (at::_ops::NAME), for the stacks of what they allocate. What
 * one costs follows from the elements it reads and makes; bytes moved are always those of its
 * operands and results. A real executor has one function for each. */
#ifndef TSR_ENGINE_KERNEL_H
#define TSR_ENGINE_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

typedef enum tsr__kernel {
  TSR__KERNEL_NONE,
  /* element by element */
  TSR__KERNEL_ADD,
  TSR__KERNEL_MUL,
  TSR__KERNEL_DIV,
  TSR__KERNEL_SUB,
  TSR__KERNEL_NEG,
  TSR__KERNEL_POW,
  TSR__KERNEL_SQRT,
  TSR__KERNEL_RSQRT,
  TSR__KERNEL_RECIPROCAL,
  TSR__KERNEL_TANH,
  TSR__KERNEL_TANH_BACKWARD,
  TSR__KERNEL_COS,
  TSR__KERNEL_SIN,
  TSR__KERNEL_GELU,
  TSR__KERNEL_GELU_BACKWARD,
  TSR__KERNEL_SILU,
  TSR__KERNEL_SILU_BACKWARD,
  TSR__KERNEL_WHERE,
  TSR__KERNEL_NE,
  TSR__KERNEL_LE,
  TSR__KERNEL_EQ,
  TSR__KERNEL_AND,
  TSR__KERNEL_NOT,
  TSR__KERNEL_DROPOUT,
  TSR__KERNEL_DROPOUT_BACKWARD,
  /* copies and constants */
  TSR__KERNEL_TO_COPY,
  TSR__KERNEL_CLONE,
  TSR__KERNEL_CAT,
  TSR__KERNEL_PAD,
  TSR__KERNEL_SLICE_BACKWARD,
  TSR__KERNEL_ZEROS,
  TSR__KERNEL_ZEROS_LIKE,
  TSR__KERNEL_ONES_LIKE,
  TSR__KERNEL_EMPTY_LIKE,
  TSR__KERNEL_FULL,
  TSR__KERNEL_ARANGE,
  TSR__KERNEL_MASKED_FILL,
  /* over rows */
  TSR__KERNEL_SUM,
  TSR__KERNEL_MEAN,
  TSR__KERNEL_MEAN_DIM,
  TSR__KERNEL_CUMSUM,
  TSR__KERNEL_SOFTMAX,
  TSR__KERNEL_SOFTMAX_BACKWARD,
  TSR__KERNEL_LOG_SOFTMAX,
  TSR__KERNEL_LOG_SOFTMAX_BACKWARD,
  TSR__KERNEL_LAYER_NORM,
  TSR__KERNEL_LAYER_NORM_BACKWARD,
  TSR__KERNEL_NLL_LOSS,
  TSR__KERNEL_NLL_LOSS_BACKWARD,
  TSR__KERNEL_EMBEDDING,
  TSR__KERNEL_EMBEDDING_BACKWARD,
  /* matrix products */
  TSR__KERNEL_ADDMM,
  TSR__KERNEL_MM,
  TSR__KERNEL_BMM,
  /* attention */
  TSR__KERNEL_EFFICIENT,
  TSR__KERNEL_EFFICIENT_BACKWARD,
  TSR__KERNEL_FLASH,
  TSR__KERNEL_FLASH_BACKWARD,
  TSR__KERNEL_CHUNKED_BACKWARD,
  /* optimizers */
  TSR__KERNEL_LERP,
  TSR__KERNEL_ADDCMUL,
  TSR__KERNEL_ADDCDIV,
  TSR__KERNEL_FOREACH_SQRT,
  TSR__KERNEL_FUSED_ADAMW,
  TSR__KERNEL_WORKSPACE, /* no kernel: what cuBLAS takes */
  TSR__KERNEL_COUNT
} tsr__kernel;

/* How operations are counted. */
typedef enum tsr__work {
  TSR__WORK_NONE,    /* it moves bytes */
  TSR__WORK_RESULTS, /* `operations` for each element of the first result */
  TSR__WORK_READS,   /* ... of the first operand */
  TSR__WORK_PRODUCT, /* matrix product: 2 m n k */
  TSR__WORK_PAIRS    /* attention: `operations` for each pair of positions and element of a head */
} tsr__work;

typedef struct tsr__kernel_row {
  const char *name; /* as at::_ops has it */
  uint8_t work, operations;
  bool has_blas;             /* takes cuBLAS's workspace */
  const char *autograd_file; /* where VariableType::NAME lies, as recorded stacks show; or NULL */
} tsr__kernel_row;

const tsr__kernel_row *tsr__kernel_row_of(tsr__kernel kernel);

#endif
