/* unit_fast.h - the fast kernels of one instruction set, which fast_table.c lists, and functions that several of
 * them use. */
#ifndef TSR_KERNELS_UNIT_FAST_H
#define TSR_KERNELS_UNIT_FAST_H

#include "kernels/unit.h"

/* Set out[i] to 1 if a random number, from `first` on, is at least `chance`, else to 0: the same as with
 * tsr__random_uniform. fast_random.c. */
#define unit_keeps TSR__UNIT(tsr__unit_keeps)
void unit_keeps(uint64_t key, uint64_t first, size_t count, double chance, float *out);

/* The fast kernel of this set, or NULL. `has_bf16`: use the processor's products of bf16. fast_table.c. */
tsr__kernel_fn *TSR__UNIT(tsr__fast_table)(tsr__kernel kernel, bool has_bf16);

/* Multiply a single row by a matrix, if both are plain floats and no library is to do it. False: another product. fast_row.c. */
bool TSR__UNIT(tsr__fast_row)(const tsr__kernel_args *args);

/* fast_each.c */
tsr__kernel_fn TSR__UNIT(tsr__fast_add), TSR__UNIT(tsr__fast_mul), TSR__UNIT(tsr__fast_div),
    TSR__UNIT(tsr__fast_sub), TSR__UNIT(tsr__fast_neg), TSR__UNIT(tsr__fast_pow),
    TSR__UNIT(tsr__fast_sqrt), TSR__UNIT(tsr__fast_rsqrt), TSR__UNIT(tsr__fast_reciprocal),
    TSR__UNIT(tsr__fast_tanh), TSR__UNIT(tsr__fast_tanh_backward), TSR__UNIT(tsr__fast_gelu),
    TSR__UNIT(tsr__fast_gelu_backward), TSR__UNIT(tsr__fast_silu),
    TSR__UNIT(tsr__fast_silu_backward), TSR__UNIT(tsr__fast_silu_gate),
    TSR__UNIT(tsr__fast_silu_gate_backward), TSR__UNIT(tsr__fast_drop), TSR__UNIT(tsr__fast_where),
    TSR__UNIT(tsr__fast_and), TSR__UNIT(tsr__fast_not), TSR__UNIT(tsr__fast_dropout),
    TSR__UNIT(tsr__fast_dropout_noise), TSR__UNIT(tsr__fast_dropout_backward),
    TSR__UNIT(tsr__fast_lerp), TSR__UNIT(tsr__fast_addcmul), TSR__UNIT(tsr__fast_addcdiv),
    TSR__UNIT(tsr__fast_copy), TSR__UNIT(tsr__fast_cat), TSR__UNIT(tsr__fast_repeat),
    TSR__UNIT(tsr__fast_zeros), TSR__UNIT(tsr__fast_ones), TSR__UNIT(tsr__fast_full),
    TSR__UNIT(tsr__fast_slice_backward);
/* fast_rows.c */
tsr__kernel_fn TSR__UNIT(tsr__fast_sum), TSR__UNIT(tsr__fast_mean), TSR__UNIT(tsr__fast_softmax),
    TSR__UNIT(tsr__fast_softmax_backward), TSR__UNIT(tsr__fast_log_softmax),
    TSR__UNIT(tsr__fast_log_softmax_backward), TSR__UNIT(tsr__fast_layer_norm),
    TSR__UNIT(tsr__fast_layer_norm_backward), TSR__UNIT(tsr__fast_rms_norm),
    TSR__UNIT(tsr__fast_rms_norm_backward), TSR__UNIT(tsr__fast_rotate);
/* fast_loss.c */
tsr__kernel_fn TSR__UNIT(tsr__fast_nll_loss_backward), TSR__UNIT(tsr__fast_cross_entropy),
    TSR__UNIT(tsr__fast_loss), TSR__UNIT(tsr__fast_loss_backward), TSR__UNIT(tsr__fast_embedding),
    TSR__UNIT(tsr__fast_embedding_backward), TSR__UNIT(tsr__fast_embedding_add);
/* fast_optimizer.c */
tsr__kernel_fn TSR__UNIT(tsr__fast_fused_adamw), TSR__UNIT(tsr__fast_adamw),
    TSR__UNIT(tsr__fast_norm), TSR__UNIT(tsr__fast_unscale);
/* fast_product.c */
tsr__kernel_fn TSR__UNIT(tsr__fast_product), TSR__UNIT(tsr__fast_products);
#if TSR__UNIT_ISA == 2 /* the instruction set with products of bf16 */
tsr__kernel_fn TSR__UNIT(tsr__fast_product_bf16), TSR__UNIT(tsr__fast_products_bf16);
#endif
/* fast_attention.c */
tsr__kernel_fn TSR__UNIT(tsr__fast_efficient), TSR__UNIT(tsr__fast_efficient_backward),
    TSR__UNIT(tsr__fast_flash), TSR__UNIT(tsr__fast_flash_backward),
    TSR__UNIT(tsr__fast_chunk_softmax), TSR__UNIT(tsr__fast_chunk_weights),
    TSR__UNIT(tsr__fast_chunk_backward);

#endif
