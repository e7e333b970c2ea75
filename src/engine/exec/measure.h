/* measure.h - the memory and time of a run, without recording it: the same figures as tsr_simulate, for searches. */
#ifndef TSR_EXEC_MEASURE_H
#define TSR_EXEC_MEASURE_H

#include "exec/build.h"
#include "exec/survey.h"
#include "tessera/unstable/plans.h"
#include "tessera/unstable/simulation.h"

/* When to stop. */
typedef struct tsr__measure_limit {
  uint64_t most_reserved_bytes; /* as soon as more are reserved; 0: never */
  double most_seconds;          /* before it runs, if a step takes longer; 0: never */
  uint64_t over_bytes;          /* out: reserved when it stopped; 0 if it ran to completion */
  bool is_slower;               /* out: it was not run, and no memory is known */
} tsr__measure_limit;

/* Run without data, and without stacks and events. `limit` NULL: to completion; else `*out` has the figures until it stopped.
 * Fails as tsr_simulate does, with which it agrees in every figure; `*out` is then not possible. A few milliseconds for a
 * model of 12 blocks. */
int tsr__measure(const tsr_model *model, const tsr_simulate_options *options,
                 tsr__measure_limit *limit, tsr_run_plan_cost *out, tsr_error *error);

/* Measure to completion, and profile the peak: what tsr_simulate gives with `options->profile`. The caller owns `*profile`. */
int tsr__measure_peak(const tsr_model *model, const tsr_simulate_options *options,
                      tsr_run_plan_cost *out, tsr_memory_profile **profile, tsr_error *error);

/* Survey a step (survey.h), in which modules of a step graph are as they were traced: any schedule of the same ops takes
 * the same time. `layers`: the number of blocks, instead of the model's own; 0 keeps that. `wanted`: what to find, and
 * what may be done; its rates are those that the options name. The caller releases `*out` unless it fails. */
int tsr__measure_survey(const tsr_model *model, const tsr_simulate_options *options,
                        uint64_t layers, const tsr__survey_options *wanted, tsr__survey *out,
                        tsr_error *error);

/* A tensor that an op of a kind saves for backward, in the first block of a step that keeps everything. */
typedef struct tsr__saved_name {
  char name
      [64]; /* of a plan: "layer norm#1.0", or "GELU.0" of an op that no other of the block is like */
  uint32_t storage; /* two that share it have the same number */
} tsr__saved_name;

/* List them, one for each op of the block: in micro-batches after the first, names repeat, with storages of their own. The caller frees `*out` with
 * tsr__free. */
int tsr__measure_saved(const tsr_model *model, const tsr_simulate_options *options,
                       tsr__saved_name **out, size_t *count, tsr_error *error);

#endif
