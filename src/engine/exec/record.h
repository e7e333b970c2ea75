/* record.h - a dry run as a snapshot: the events, stacks, annotations and final state that PyTorch would
 * have recorded. */
#ifndef TSR_EXEC_RECORD_H
#define TSR_EXEC_RECORD_H

#include "exec/dry.h"
#include "tessera/unstable/columns.h"

typedef struct tsr__recorder tsr__recorder;

typedef struct tsr__record_options {
  const tsr_allocator_settings *settings;
  const char *optimizer; /* its class, for annotations */
  bool has_categories;   /* write each slot's category into its events */
  const char *plan_hash; /* of the run's plan, or NULL */
} tsr__record_options;

/* A recorder of runs of `schedule`, which must outlive it, and whose labels supply the stacks, if it has any.
 * `options` is copied, what it points to is not. NULL when out of memory. */
tsr__recorder *tsr__recorder_new(const tsr__schedule *schedule, const tsr__record_options *options);
/* NULL is fine. */
void tsr__recorder_free(tsr__recorder *recorder);
/* For tsr__dry_options; valid as long as the recorder. */
const tsr__dry_observer *tsr__recorder_observer(const tsr__recorder *recorder);
/* After the run: the snapshot, which is the caller's. Once. TSR_ERROR_MEMORY or TSR_ERROR_LIMIT. */
int tsr__recorder_finish(tsr__recorder *recorder, tsr_snapshot **out, tsr_error *error);

#endif
