/* fast_table.c - the table of fast kernels of one instruction set. Compiled for each (unit.h). */
#include "kernels/unit_fast.h"

#define FAST(kernel, name) [TSR__KERNEL_##kernel] = TSR__UNIT(tsr__fast_##name)

static tsr__kernel_fn *const kernels[TSR__KERNEL_COUNT] = {
    FAST(ADD, add),
    FAST(MUL, mul),
    FAST(DIV, div),
    FAST(SUB, sub),
    FAST(NEG, neg),
    FAST(POW, pow),
    FAST(SQRT, sqrt),
    FAST(RSQRT, rsqrt),
    FAST(RECIPROCAL, reciprocal),
    FAST(TANH, tanh),
    FAST(TANH_BACKWARD, tanh_backward),
    FAST(GELU, gelu),
    FAST(GELU_BACKWARD, gelu_backward),
    FAST(SILU, silu),
    FAST(SILU_BACKWARD, silu_backward),
    FAST(SILU_GATE, silu_gate),
    FAST(SILU_GATE_BACKWARD, silu_gate_backward),
    FAST(WHERE, where),
    FAST(AND, and),
    FAST(NOT, not ),
    FAST(DROPOUT, dropout),
    FAST(DROPOUT_NOISE, dropout_noise),
    FAST(DROPOUT_BACKWARD, dropout_backward),
    FAST(DROP, drop),
    FAST(TO_COPY, copy),
    FAST(CLONE, copy),
    FAST(REPEAT, repeat),
    FAST(CAT, cat),
    FAST(SLICE_BACKWARD, slice_backward),
    FAST(ZEROS, zeros),
    FAST(ZEROS_LIKE, zeros),
    FAST(ONES_LIKE, ones),
    FAST(FULL, full),
    FAST(SUM, sum),
    FAST(MEAN, mean),
    FAST(MEAN_DIM, mean),
    FAST(SOFTMAX, softmax),
    FAST(SOFTMAX_BACKWARD, softmax_backward),
    FAST(LOG_SOFTMAX, log_softmax),
    FAST(LOG_SOFTMAX_BACKWARD, log_softmax_backward),
    FAST(LAYER_NORM, layer_norm),
    FAST(LAYER_NORM_BACKWARD, layer_norm_backward),
    FAST(RMS_NORM, rms_norm),
    FAST(RMS_NORM_BACKWARD, rms_norm_backward),
    FAST(ROTATE, rotate),
    FAST(LOSS, loss),
    FAST(LOSS_BACKWARD, loss_backward),
    FAST(NLL_LOSS_BACKWARD, nll_loss_backward),
    FAST(CROSS_ENTROPY, cross_entropy),
    FAST(EMBEDDING, embedding),
    FAST(EMBEDDING_BACKWARD, embedding_backward),
    FAST(EMBEDDING_ADD, embedding_add),
    FAST(ADDMM, product),
    FAST(MM, product),
    FAST(BMM, products),
    FAST(EFFICIENT, efficient),
    FAST(EFFICIENT_BACKWARD, efficient_backward),
    FAST(FLASH, flash),
    FAST(FLASH_BACKWARD, flash_backward),
    FAST(CHUNK_SOFTMAX, chunk_softmax),
    FAST(CHUNK_WEIGHTS, chunk_weights),
    FAST(CHUNK_BACKWARD, chunk_backward),
    FAST(LERP, lerp),
    FAST(ADDCMUL, addcmul),
    FAST(ADDCDIV, addcdiv),
    FAST(FOREACH_SQRT, sqrt),
    FAST(FUSED_ADAMW, fused_adamw),
    FAST(ADAMW, adamw),
    FAST(FOREACH_NORM, norm),
    FAST(NORM, norm),
    FAST(UNSCALE, unscale),
};

tsr__kernel_fn *TSR__UNIT(tsr__fast_table)(tsr__kernel kernel, bool has_bf16) {
#if TSR__UNIT_ISA == 2
  bool is_product = kernel == TSR__KERNEL_ADDMM || kernel == TSR__KERNEL_MM;
  if (has_bf16 && is_product) return TSR__UNIT(tsr__fast_product_bf16);
  if (has_bf16 && kernel == TSR__KERNEL_BMM) return TSR__UNIT(tsr__fast_products_bf16);
#endif
  (void)has_bf16;
  return kernels[kernel];
}
