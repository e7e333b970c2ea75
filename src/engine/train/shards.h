/* shards.h - between steps, splits whole arrays into the parts that ranks keep (when a run starts), and joins the
 * parts to whole arrays (when it is saved).
 *
 * Only rank 0 uses files. It decides what happens after a step, and the other ranks follow its commands.
 *
 *   rank 0      see the step ─► save: GATHER unit 0, GATHER unit 1, ... ─► END, continue or not
 *   the others  serve: gather along until END */
#ifndef TSR_TRAIN_SHARDS_H
#define TSR_TRAIN_SHARDS_H

#include "exec/run.h"
#include "models/program.h"

/* The tensors that belong to a parameter. */
typedef enum tsr__kept {
  TSR__KEPT_PARAMETER,
  TSR__KEPT_FIRST,
  TSR__KEPT_SECOND,
  TSR__KEPT_MASTER,
  TSR__KEPT_COUNT
} tsr__kept;

/* The units gathered last. May be zeroed. */
typedef struct tsr__gathered {
  char *data[TSR__KEPT_COUNT];
  uint32_t unit[TSR__KEPT_COUNT];
} tsr__gathered;

/* Set the padding of units to 0. Parameters are already in memory. */
void tsr__shards_clear(const tsr__schedule *schedule, const tsr__executor *executor);
/* Copy what this rank keeps of a parameter. `whole`: its elements, without gaps; `part`: the rank's part of the unit. */
void tsr__shards_put(const tsr__schedule *schedule, size_t parameter,
                     const tsr__kernel_tensor *whole, const tsr__kernel_tensor *part);
/* On rank 0: the elements of a parameter, or of its state, which live until another unit's of that kind. TSR_ERROR_MEMORY, or
 * TSR_ERROR_IO if a rank is gone. */
int tsr__shards_read(tsr__comm *comm, const tsr__schedule *schedule, const tsr__executor *executor,
                     tsr__kept kind, size_t parameter, tsr__gathered *gathered, const void **out,
                     tsr_error *error);
/* On rank 0: end the step on all ranks. */
int tsr__shards_end(tsr__comm *comm, bool goes_on, tsr_error *error);
/* On other ranks: follow rank 0's commands until the step is over. */
int tsr__shards_serve(tsr__comm *comm, const tsr__schedule *schedule, const tsr__executor *executor,
                      bool *goes_on, tsr_error *error);
void tsr__gathered_release(tsr__gathered *gathered);

#endif
