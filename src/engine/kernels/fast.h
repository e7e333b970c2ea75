/* fast.h - kernels that are faster than their references, for common types and layouts; for all others they call
 * the reference.
 *
 * There is a table of kernels for each set of instructions (unit.h), and the caller chooses a set. Fast kernels
 * compute in fp32, whatever the type of their operands, and round once to the type of the result. Sums have a fixed
 * order, so that a result does not depend on the number of threads or on how work is split among them; it does
 * depend on the set. Compared with the reference, which computes in double, an fp32 result differs by a few units
 * in the last place of its operands. */
#ifndef TSR_KERNELS_FAST_H
#define TSR_KERNELS_FAST_H

#include "kernels/kernel.h"

/* Instruction sets; each contains those before it. The last one adds products of bf16. */
typedef enum tsr__isa {
  TSR__ISA_PLAIN,
  TSR__ISA_AVX2,        /* with FMA */
  TSR__ISA_AVX512,      /* F, BW, DQ, VL */
  TSR__ISA_AVX512_BF16, /* BF16 */
  TSR__ISA_COUNT
} tsr__isa;

/* The best set that this processor supports. */
tsr__isa tsr__isa_best(void);
/* The name of a set, such as "avx512"; a constant. */
const char *tsr__isa_name(tsr__isa isa);
/* Find a set by name. False if the name is unknown. */
bool tsr__isa_of_name(const char *name, tsr__isa *isa);

/* The fast kernel of a set, which the processor must support; NULL if only the reference exists. */
tsr__kernel_fn *tsr__kernel_fast(tsr__kernel kernel, tsr__isa isa);

#endif
