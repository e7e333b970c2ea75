/* fast.h - kernels that take less time than their references, for the types and layouts that matter;
 * for all others they call the reference.
 *
 * There is one table of them for each set of instructions (unit.h), and the caller chooses a set. They
 * compute in fp32 whatever the type of their operands is, and round once to the result's. Sums have a
 * fixed order, so that a result depends on neither the number of threads nor how work is split among
 * them; it does depend on the set. Against the reference, which computes in double, an element of an
 * fp32 result is off by a few units in the last place of what it was computed from. */
#ifndef TSR_KERNELS_FAST_H
#define TSR_KERNELS_FAST_H

#include "kernels/kernel.h"

/* Sets of instructions; each contains those before it. The last one adds products of bf16. */
typedef enum tsr__isa {
  TSR__ISA_PLAIN,
  TSR__ISA_AVX2,        /* with FMA */
  TSR__ISA_AVX512,      /* F, BW, DQ, VL */
  TSR__ISA_AVX512_BF16, /* BF16 */
  TSR__ISA_COUNT
} tsr__isa;

/* The best one that this processor has. */
tsr__isa tsr__isa_best(void);
/* Its name, such as "avx512"; a constant. */
const char *tsr__isa_name(tsr__isa isa);
/* The set with a name. False if no set has it. */
bool tsr__isa_of_name(const char *name, tsr__isa *isa);

/* The fast kernel of a set, which the processor must have; NULL if only the reference exists. */
tsr__kernel_fn *tsr__kernel_fast(tsr__kernel kernel, tsr__isa isa);

#endif
