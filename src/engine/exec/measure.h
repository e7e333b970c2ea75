/* measure.h - the memory and time of a run, without recording it: the same figures as tsr_simulate, for searches. */
#ifndef TSR_EXEC_MEASURE_H
#define TSR_EXEC_MEASURE_H

#include "exec/graph_survey.h"
#include "exec/survey.h"

typedef struct tsr__figures {
  uint64_t peak_bytes, reserved_bytes;
  uint64_t step_flops, recomputed_flops;
  double step_seconds;   /* 0 without a card and rates */
  uint64_t sent_bytes;   /* to other ranks, in a step */
  double stall_seconds;  /* of step_seconds, for ranks */
  bool is_out_of_memory; /* of options->capacity_bytes: the peaks are those until then */
  bool is_over;          /* of the limit: the same */
} tsr__figures;

/* Run without data, and without stacks and events. Fails as tsr_simulate does, with which it agrees in every
 * figure; the model may be a step graph. A few milliseconds for a model of 12 blocks. */
int tsr__measure(const tsr_model *model, const tsr_simulate_options *options, tsr__figures *out,
                 tsr_error *error);

/* The same, which ends as soon as more than `most_reserved_bytes` are reserved; 0: never. */
int tsr__measure_within(const tsr_model *model, const tsr_simulate_options *options,
                        uint64_t most_reserved_bytes, tsr__figures *out, tsr_error *error);

/* Survey a step (survey.h). `layers`: the number of blocks, in place of the model's own; 0 keeps that. The model is no step
 * graph. The caller releases `*out` unless it fails. */
int tsr__measure_survey(const tsr_model *model, const tsr_simulate_options *options,
                        uint64_t layers, tsr__survey *out, tsr_error *error);

/* The same for a step graph, ignoring the options for modules (graph_survey.h). TSR_ERROR_ARGUMENT without a card and
 * rates. The caller releases `*out`, also after a failure. */
int tsr__measure_graph_survey(const tsr_model *model, const tsr_simulate_options *options,
                              bool may_recompute, bool may_offload, tsr__survey *out,
                              tsr_error *error);
/* The modules of a step graph (graph_survey.h). */
int tsr__measure_parts(const tsr_model *model, const tsr_simulate_options *options,
                       tsr__graph_parts *out, tsr_error *error);

/* A tensor that an op of a kind saves for backward, in the first block of a step that keeps everything. */
typedef struct tsr__saved_name {
  char name[64];    /* "layer norm.0": of a plan */
  uint32_t storage; /* two that share it have the same number */
} tsr__saved_name;

/* List them, one for each op of the block: names repeat, with storages of their own. The caller frees `*out` with
 * tsr__free. */
int tsr__measure_saved(const tsr_model *model, const tsr_simulate_options *options,
                       tsr__saved_name **out, size_t *count, tsr_error *error);

#endif
