/* build.h - from a model or a step graph, and the options of tsr_simulate, to a schedule. */
#ifndef TSR_EXEC_BUILD_H
#define TSR_EXEC_BUILD_H

#include "exec/cost.h"
#include "models/program.h"
#include "tessera/simulate.h"

struct tsr__step_graph;

/* One step of a training, and what it was made from: its labels refer to that. It points into itself: it is not to be
 * copied. */
typedef struct tsr__built {
  tsr__schedule schedule;
  tsr_simulate_options run;   /* as given, with the kernels that suit the card */
  const tsr__data_sheet *gpu; /* NULL: none was named */
  const char *optimizer;      /* its class */
  /* Of a model: */
  tsr__program program;
  tsr__tracer *tracer; /* owned; NULL: instructions have no stacks */
  /* Of a step graph: */
  const struct tsr__step_graph *graph; /* the model's own, or `rewritten`; NULL: it is of a model */
  struct tsr__step_graph *rewritten;   /* owned, or NULL */
  size_t workspace_count;              /* of cuBLAS */
} tsr__built;

/* What is wanted of a model's step; that of a step graph always has all that it can have. */
typedef enum tsr__build_detail {
  TSR__BUILD_FIGURES, /* peaks, times and sums: a brief schedule */
  TSR__BUILD_WHOLE,   /* without stacks */
  TSR__BUILD_STACKS
} tsr__build_detail;

/* Build the step that the options describe. `model` and `options` must outlive `*out`, which must be released either way.
 * Fails as tsr_simulate does. */
int tsr__build(const tsr_model *model, const tsr_simulate_options *options,
               tsr__build_detail detail, tsr__built *out, tsr_error *error);
void tsr__built_release(tsr__built *built);

/* Run one step of the program on its tape, and finish that: the tape can then be released. `is_recorded`: all steps
 * together must not be longer than a snapshot can be. 0, TSR_ERROR_LIMIT, TSR_ERROR_ARGUMENT or TSR_ERROR_MEMORY. */
int tsr__program_record(tsr__program *program, bool is_recorded, tsr__schedule *out,
                        tsr_error *error);
/* The same of tsr__program_generate. */
int tsr__program_record_generate(tsr__program *program, uint64_t positions, bool has_rounds,
                                 tsr__schedule *out, tsr_error *error);

/* Choose a card if the options name neither one nor rates: the one that a step graph was traced for, else an A100, or an H100 for products in FP8. Fails with
 * TSR_ERROR_UNSUPPORTED, and leaves the options, if they name no card and that of the graph is not known. */
int tsr__choose_gpu(const tsr_model *model, tsr_simulate_options *options, tsr_error *error);

/* The rates that options name: those that were measured, or else those of the card, which may be NULL. False without
 * either. */
bool tsr__rates_for(const tsr_simulate_options *options, const tsr__data_sheet *gpu,
                    tsr__machine_rates *out);
/* The card that options name; NULL if they name none, or an unknown one. */
const tsr__data_sheet *tsr__gpu_of(const tsr_simulate_options *options);

/* What all ranks of a machine take of its memory if each takes `rank_bytes`; saturates. */
uint64_t tsr__machine_bytes(const tsr_simulate_options *options, uint64_t rank_bytes);

#endif
