/* fast.h - kernels that take less time than their references, for the types and layouts that matter;
 * for all others they call the reference.
 *
 * Which instructions they use is decided by what the processor has, at each call. Sums have a fixed
 * order, so that a result depends on neither the number of threads nor how work is split among them;
 * it does depend on the instructions. */
#ifndef TSR_KERNELS_FAST_H
#define TSR_KERNELS_FAST_H

#include "kernels/kernel.h"

/* fast_product.c */
tsr__kernel_fn tsr__fast_product;

/* Sets of instructions. */
typedef enum tsr__isa { TSR__ISA_PLAIN, TSR__ISA_AVX2, TSR__ISA_AVX512, TSR__ISA_COUNT } tsr__isa;

/* The best one that this processor has. */
tsr__isa tsr__isa_best(void);
/* tsr__fast_product with a given set, which the processor must have; operands must be fp32. */
void tsr__fast_product_with(const tsr__kernel_args *args, tsr__isa isa);

#endif
