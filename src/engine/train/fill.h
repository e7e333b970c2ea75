/* fill.h - fills a tensor with its values before the first step (tsr__program_initials). */
#ifndef TSR_TRAIN_FILL_H
#define TSR_TRAIN_FILL_H

#include "exec/run.h"
#include "models/program.h"

/* Fill a tensor that is in memory without gaps. The same key gives the same random numbers for any number of
 * threads of the executor's pool. O(elements). */
void tsr__fill(const tsr__executor *executor, tsr__tensor_id tensor,
               const tsr__initial_value *initial, uint64_t key);
/* The same for a kernel tensor. `pool` may be NULL. */
void tsr__fill_tensor(const tsr__kernel_tensor *to, struct tsr__thread_pool *pool,
                      const tsr__initial_value *initial, uint64_t key);

#endif
