/* simulate.h - from the options of tsr_simulate to a program, and to its tape: what tsr_simulate and
 * tsr_train have in common. */
#ifndef TSR_EXEC_SIMULATE_H
#define TSR_EXEC_SIMULATE_H

#include "exec/cost.h"
#include "exec/dry.h"
#include "models/program.h"
#include "tessera/simulate.h"
#include "tessera/unstable/simulation.h"

/* One step of a training, on its tape. It points into itself: it is not to be copied. */
typedef struct tsr__built {
  tsr__tape tape;
  tsr__program program;
  tsr_simulate_options run;   /* with the kernels that suit the card */
  tsr__tracer *tracer;        /* NULL: instructions have no stacks */
  const tsr__data_sheet *gpu; /* NULL: none was named */
} tsr__built;

/* Build the step that the options describe, of a model that is no step graph. `model` and `options` must outlive
 * `*out`, which must be released either way. Fails as tsr_simulate does. */
int tsr__build(const tsr_model *model, const tsr_simulate_options *options, bool has_stacks,
               tsr__built *out, tsr_error *error);
void tsr__built_release(tsr__built *built);

struct tsr__step_graph;

/* One step of a step graph, on its tape. It points into itself: it is not to be copied. */
typedef struct tsr__built_graph {
  tsr__tape tape;
  struct tsr__step_graph *graph; /* the model's own, or `owned` */
  struct tsr__step_graph *owned; /* with modules rewritten, or NULL */
  uint64_t workspace_bytes;      /* cuBLAS's, of each */
  size_t workspaces;             /* how many */
} tsr__built_graph;

/* Build the step of a step graph as the options rewrite it. As tsr__build, and `model` is a step graph. */
int tsr__build_graph(const tsr_model *model, const tsr_simulate_options *options,
                     tsr__built_graph *out, tsr_error *error);
void tsr__built_graph_release(tsr__built_graph *built);
/* Choose a card if the options name neither one nor rates: the one that a step graph was traced for, else an A100. Fails with
 * TSR_ERROR_UNSUPPORTED, and leaves the options, if they name no card and that of the graph is not known. */
int tsr__choose_gpu(const tsr_model *model, tsr_simulate_options *options, tsr_error *error);
/* Seconds of its step on the card or with the rates that options name; 0 without either. */
double tsr__graph_seconds(const struct tsr__step_graph *graph, const tsr_simulate_options *options);

/* The rates that options name: those that were measured, or else the card's. False without either. */
bool tsr__rates_for(const tsr_simulate_options *options, const tsr__data_sheet *gpu,
                    tsr__machine_rates *out);

/* A moment as users see it. */
/* What a space besides the device saw. */
tsr_space_peak tsr__space_peak_of(const tsr__dry_device *space);
tsr_simulate_moment tsr__public_moment(const tsr__tape *tape, const tsr__dry_moment *moment);
/* "forward", "backward", ...: of a moment's phase. Static text. */
const char *tsr__phase_word(uint8_t phase);

/* Run one step of the program on its tape, and finish that. `is_recorded`: all steps together must
 * not be longer than a snapshot can be. 0, TSR_ERROR_LIMIT or TSR_ERROR_MEMORY. */
int tsr__program_record(tsr__program *program, bool is_recorded, tsr_error *error);
/* The same of a forward pass alone. */
int tsr__program_record_infer(tsr__program *program, tsr_error *error);

#endif
