/* kernel.c - the kernels. See kernel.h. */
#include "engine/kernel.h"

#include <stddef.h>

#define EACH(n)  TSR__WORK_RESULTS, (n), false
#define READS(n) TSR__WORK_READS, (n), false
#define MOVES    TSR__WORK_NONE, 0, false
#define PAIRS(n) TSR__WORK_PAIRS, (n), false
#define PRODUCT  TSR__WORK_PRODUCT, 0, true
#define FILE(n)  "VariableType_" #n ".cpp"
static const tsr__kernel_row rows[TSR__KERNEL_COUNT] = {
    [TSR__KERNEL_NONE] = {"", MOVES, NULL},
    [TSR__KERNEL_ADD] = {"add_Tensor", EACH(1), FILE(2)},
    [TSR__KERNEL_MUL] = {"mul_Tensor", EACH(1), FILE(0)},
    [TSR__KERNEL_DIV] = {"div_Tensor", EACH(1), FILE(1)},
    [TSR__KERNEL_SUB] = {"sub_Tensor", EACH(1), NULL},
    [TSR__KERNEL_NEG] = {"neg", EACH(1), FILE(0)},
    [TSR__KERNEL_POW] = {"pow_Tensor_Scalar", EACH(1), FILE(0)},
    [TSR__KERNEL_SQRT] = {"sqrt", EACH(1), NULL},
    [TSR__KERNEL_RSQRT] = {"rsqrt", EACH(1), FILE(2)},
    [TSR__KERNEL_RECIPROCAL] = {"reciprocal", EACH(1), NULL},
    [TSR__KERNEL_TANH] = {"tanh", EACH(1), NULL},
    [TSR__KERNEL_TANH_BACKWARD] = {"tanh_backward", EACH(3), NULL},
    [TSR__KERNEL_COS] = {"cos", EACH(1), FILE(0)},
    [TSR__KERNEL_SIN] = {"sin", EACH(1), FILE(0)},
    [TSR__KERNEL_GELU] = {"gelu", EACH(8), NULL},
    [TSR__KERNEL_GELU_BACKWARD] = {"gelu_backward", EACH(16), NULL},
    [TSR__KERNEL_SILU] = {"silu", EACH(4), NULL},
    [TSR__KERNEL_SILU_BACKWARD] = {"silu_backward", EACH(8), NULL},
    [TSR__KERNEL_WHERE] = {"where_self", EACH(1), FILE(0)},
    [TSR__KERNEL_NE] = {"ne_Scalar", EACH(1), NULL},
    [TSR__KERNEL_LE] = {"le_Tensor", EACH(1), NULL},
    [TSR__KERNEL_EQ] = {"eq_Tensor", EACH(1), NULL},
    [TSR__KERNEL_AND] = {"bitwise_and_Tensor", EACH(1), NULL},
    [TSR__KERNEL_NOT] = {"logical_not", EACH(1), NULL},
    [TSR__KERNEL_DROPOUT] = {"native_dropout", EACH(2), NULL},
    [TSR__KERNEL_DROPOUT_BACKWARD] = {"native_dropout_backward", EACH(2), NULL},
    [TSR__KERNEL_TO_COPY] = {"_to_copy", MOVES, FILE(0)},
    [TSR__KERNEL_CLONE] = {"clone", MOVES, FILE(1)},
    [TSR__KERNEL_CAT] = {"cat", MOVES, FILE(0)},
    [TSR__KERNEL_PAD] = {"constant_pad_nd", MOVES, NULL},
    [TSR__KERNEL_SLICE_BACKWARD] = {"slice_backward", MOVES, FILE(3)},
    [TSR__KERNEL_ZEROS] = {"zeros", MOVES, NULL},
    [TSR__KERNEL_ZEROS_LIKE] = {"zeros_like", MOVES, NULL},
    [TSR__KERNEL_ONES_LIKE] = {"ones_like", MOVES, NULL},
    [TSR__KERNEL_EMPTY_LIKE] = {"empty_like", MOVES, NULL},
    [TSR__KERNEL_FULL] = {"full", MOVES, NULL},
    [TSR__KERNEL_ARANGE] = {"arange", MOVES, NULL},
    [TSR__KERNEL_MASKED_FILL] = {"masked_fill__Scalar", MOVES, NULL},
    [TSR__KERNEL_SUM] = {"sum_dim_IntList", READS(1), FILE(2)},
    [TSR__KERNEL_MEAN] = {"mean", READS(1), FILE(3)},
    [TSR__KERNEL_MEAN_DIM] = {"mean_dim", READS(1), FILE(3)},
    [TSR__KERNEL_CUMSUM] = {"cumsum", READS(1), NULL},
    [TSR__KERNEL_SOFTMAX] = {"_softmax", EACH(5), NULL},
    [TSR__KERNEL_SOFTMAX_BACKWARD] = {"_softmax_backward_data", EACH(4), NULL},
    [TSR__KERNEL_LOG_SOFTMAX] = {"_log_softmax", EACH(5), NULL},
    [TSR__KERNEL_LOG_SOFTMAX_BACKWARD] = {"_log_softmax_backward_data", EACH(4), NULL},
    [TSR__KERNEL_LAYER_NORM] = {"native_layer_norm", EACH(8), NULL},
    [TSR__KERNEL_LAYER_NORM_BACKWARD] = {"native_layer_norm_backward", EACH(12), NULL},
    [TSR__KERNEL_NLL_LOSS] = {"nll_loss_forward", EACH(1), NULL},
    [TSR__KERNEL_NLL_LOSS_BACKWARD] = {"nll_loss_backward", EACH(1), NULL},
    [TSR__KERNEL_EMBEDDING] = {"embedding", MOVES, NULL},
    [TSR__KERNEL_EMBEDDING_BACKWARD] = {"embedding_dense_backward", READS(1), NULL},
    [TSR__KERNEL_ADDMM] = {"addmm", PRODUCT, NULL},
    [TSR__KERNEL_MM] = {"mm", PRODUCT, NULL},
    [TSR__KERNEL_BMM] = {"bmm", PRODUCT, FILE(3)},
    [TSR__KERNEL_EFFICIENT] = {"_scaled_dot_product_efficient_attention", PAIRS(4), NULL},
    [TSR__KERNEL_EFFICIENT_BACKWARD] = {"_scaled_dot_product_efficient_attention_backward",
                                        PAIRS(10), NULL},
    [TSR__KERNEL_FLASH] = {"_scaled_dot_product_flash_attention", PAIRS(4), NULL},
    [TSR__KERNEL_FLASH_BACKWARD] = {"_scaled_dot_product_flash_attention_backward", PAIRS(10),
                                    NULL},
    [TSR__KERNEL_CHUNKED_BACKWARD] = {"chunked_attention_backward", MOVES, NULL},
    [TSR__KERNEL_LERP] = {"_foreach_lerp__Scalar", EACH(3), NULL},
    [TSR__KERNEL_ADDCMUL] = {"_foreach_addcmul__Scalar", EACH(3), NULL},
    [TSR__KERNEL_ADDCDIV] = {"_foreach_addcdiv__ScalarList", EACH(3), NULL},
    [TSR__KERNEL_FOREACH_SQRT] = {"_foreach_sqrt", EACH(1), NULL},
    [TSR__KERNEL_WORKSPACE] = {"getCUDABlasWorkspace", MOVES, NULL},
    [TSR__KERNEL_FUSED_ADAMW] = {"_fused_adamw_", EACH(14), NULL},
};
#undef EACH
#undef READS
#undef MOVES
#undef PAIRS
#undef PRODUCT
#undef FILE

const tsr__kernel_row *tsr__kernel_row_of(tsr__kernel kernel) {
  return &rows[kernel];
}
