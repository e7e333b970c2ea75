/* tessera/unstable/runs.h - a training run as users describe it: what `simulate` predicts and `train` runs.
 *
 * The parameters that both have, spelled once, and the options that they stand for. */
#ifndef TESSERA_UNSTABLE_RUNS_H
#define TESSERA_UNSTABLE_RUNS_H

#include <stddef.h>

#include "tessera/output.h"
#include "tessera/rates.h"
#include "tessera/simulate.h"
#include "tessera/unstable/params.h"
#include "tessera/unstable/plans.h"
#include "tessera/unstable/simulation.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A row of an array of tsr_parameter (C only): whose ops run. `standard` is the word that is the command's
 * default, in brackets: a command that is not `simulate` sets it itself. */
#define TSR_RUN_BOOK(standard)                                                                   \
  {                                                                                              \
    .name = "book", .kind = TSR_PARAMETER_CHOICE, .argument = "OPS",                             \
    .help = "Whose ops run: those of PyTorch and transformers (torch), or tessera's own (own), " \
            "which are fused and need less memory. With own, --gelu and --no-kv-cache have no "  \
            "effect, every AdamW is the fused one, and --attention sdpa and efficient mean "     \
            "flash (default: " standard ").",                                                    \
    .choices = (const char *const[]){"torch", "own", NULL},                                      \
  }

/* Of a parameter "gpu": the names of tsr_gpu_at, in its order (C only). */
#define TSR_GPU_CHOICES                                                                      \
  (const char *const[]) {                                                                    \
    "t4", "v100", "l4", "a10", "a100-40", "a100", "h100", "h200", "rtx3090", "rtx4090", NULL \
  }
#define TSR_GPU_WORDS "t4, v100, l4, a10, a100-40, a100, h100, h200, rtx3090 or rtx4090"
/* The card that such a parameter names, or NULL; a constant. */
const char *tsr_params_gpu(const tsr_params *params);

/* What a parameter "rates" has, a FILE: NULL if it was not given. The caller owns `*out`. Fails as tsr_rates_parse
 * does. */
int tsr_params_rates(const tsr_params *params, tsr_rates **out, tsr_error *error);

/* How fast ranks send, for the time of a step: a table of one row, which ends at a row without a name. */
extern const tsr_parameter tsr_run_link[];
/* Set how->link_bytes_per_s to what such a parameter has, 0 if it was not given: "50GB/s" and "400Gb/s" are the same. Fails with
 * TSR_ERROR_ARGUMENT, also without ranks in `how`. */
int tsr_params_link(const tsr_params *params, tsr_simulate_options *how, tsr_error *error);

/* The options of a run that a plan decides; each is a key of plans. The table ends at a row without a name. */
extern const tsr_parameter tsr_run_options[];
/* What `simulate` and `train` have in common: the options of a run, and what is no part of a plan: the plan that those are shorthands of,
 * where to write it, a mistake to plant, and what is printed. Ends as above. */
extern const tsr_parameter tsr_run_parameters[];
/* A DeepSpeed configuration, of commands that have tsr_run_options and "batch" (tsr_ds_config_apply). Ends as above. */
extern const tsr_parameter tsr_ds_config_parameter[];

/* Read the words of `offload`: "optimizer,gradients,parameters,activations", each of them optional and perhaps followed by
 * ":host" or, activations, ":disk". NULL is nothing. `*out` is untouched by a failure, which is TSR_ERROR_ARGUMENT. */
int tsr_offload_parse(const char *text, tsr_offload *out, tsr_error *error);

/* Read the words of `in_place`, "add,dropout,gelu,silu,product", as flags of tsr_in_place. NULL is nothing. `*out` is untouched by
 * a failure, which is TSR_ERROR_ARGUMENT. */
int tsr_in_place_parse(const char *text, unsigned *out, tsr_error *error);
/* The word of a flag. */
const char *tsr_in_place_word(tsr_in_place which);

/* What these parameters, and `batch`, `seq`, `steps` and `capacity`, which each command has with defaults of
 * its own, come to. All of them, and "plan", must be among the rows of `params`. `*plan` is the caller's, for
 * tsr_run_plan_free, and has what `*out` points to. Fails as tsr_run_plan_of. */
int tsr_simulate_options_of(const tsr_params *params, tsr_run_plan **plan,
                            tsr_simulate_options *out, tsr_error *error);

/* How a DeepSpeed configuration is taken. */
typedef struct tsr_ds_config_how {
  uint64_t ranks; /* that a launcher has started; 0: the parameter's, or one */
  bool trains;    /* the parameters have lr, betas, eps and weight_decay, too */
  /* Hears of each key without effect, and why: "no effect here: KEY, because ...". May be NULL. */
  void (*note)(void *context, const char *text);
  void *context;
} tsr_ds_config_how;

/* Set parameters that are not given from a DeepSpeed configuration, a JSON object: src/engine/plan/ds_config.c has the table of its
 * keys. tsr_run_options and "batch" must be among the rows of `params`. Fails with TSR_ERROR_FORMAT, whose message names the
 * key, or TSR_ERROR_MEMORY; some parameters may be set then. */
int tsr_ds_config_apply(const char *text, size_t size_bytes, const tsr_ds_config_how *how,
                        tsr_params *params, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
