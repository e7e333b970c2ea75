/* recorded.h - a recorded run, as the engine takes it from the reader. Neither half knows the other, so the file of the
 * rows of questions (src/rows.c), which knows both, names the reader's function. */
#ifndef TSR_ASK_RECORDED_H
#define TSR_ASK_RECORDED_H

#include "tessera/unstable/planning.h"

/* Fill in what a recorded run shows next to the snapshot of its prediction: its steady steps, their measured times (0 without
 * steady steps), both peaks and what is unexplained. `out` is zeroed. Fails with TSR_ERROR_ARGUMENT if the run has
 * no trace or is another one than was predicted, or with TSR_ERROR_MEMORY. */
typedef int tsr__recorded_run_fn(tsr_study *recorded, const tsr_snapshot *predicted,
                                 tsr_calibration *out, tsr_error *error);

/* The reader's. */
tsr__recorded_run_fn tsr__recorded_run_of_study;
/* What the engine calls: the reader's, or NULL in a program without the reader, which has no studies. */
extern tsr__recorded_run_fn *const tsr__recorded_run;

#endif
