/* rerun.h - a recorded trace given again to the allocator model. */
#ifndef TSR_ANSWERS_RERUN_H
#define TSR_ANSWERS_RERUN_H

#include "tessera/whatif.h"
#include "timeline/timeline.h"

/* What a rerun is asked for. */
typedef struct tsr__rerun_options {
  tsr_allocator_settings settings;
  uint64_t capacity_bytes;
  int64_t until; /* stop after this event; INT64_MAX for all */
  /* Steps that searches of the allocator may take, those of other reruns included; the run is given
   * up then. What it took is subtracted. NULL for any number. */
  uint64_t *patience;
} tsr__rerun_options;

/* Run the events of `timeline` through a new allocator. Fills the run's peak, end and out-of-memory
 * parts; `*out_allocator` is as it is after `until`, and the caller's to go on with and to destroy. Fails with
 * TSR_ERROR_MEMORY or as tsr_allocator_new does. */
int tsr__rerun(const tsr__timeline *timeline, const tsr__rerun_options *options,
               tsr_whatif_run *run, tsr_allocator **out_allocator, tsr_error *error);

/* Steps that searches of the allocator may take in all, for reruns of these devices. Real traces
 * take a few an event; a made one may have each event search through everything. */
uint64_t tsr__rerun_patience(const tsr_snapshot *snapshot, const uint32_t *devices, size_t count);

#endif
