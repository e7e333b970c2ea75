/* random.h - random numbers without a state: the n-th number of a key is a function of both.
 *
 * Philox4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; SC11). So a
 * dropout mask can be made again, in any order and by any number of threads. */
#ifndef TSR_KERNELS_RANDOM_H
#define TSR_KERNELS_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Numbers 4 * block to 4 * block + 3 of a key. */
void tsr__random_block(uint64_t key, uint64_t block, uint32_t out[4]);
/* Numbers `first` to `first` + `count` - 1 of a key, as multiples of 2^-32 in [0, 1). */
void tsr__random_uniform(uint64_t key, uint64_t first, size_t count, double *out);
/* The same for normally distributed numbers. Each uses two numbers of the key. */
void tsr__random_normal(uint64_t key, uint64_t first, size_t count, double *out);
/* The key of a part of what `key` is for: of a step within a run, of a draw within a step. */
uint64_t tsr__random_key(uint64_t key, uint64_t part);

#endif
