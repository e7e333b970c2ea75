/* tessera/unstable/runs.h - a training run as users describe it: what `simulate` predicts and `train` runs.
 *
 * Contains the parameters that both commands have, and the options that they set. Tables of parameters end at a row
 * without a name. */
#ifndef TESSERA_UNSTABLE_RUNS_H
#define TESSERA_UNSTABLE_RUNS_H

#include <stddef.h>

#include "tessera/output.h"
#include "tessera/query.h"
#include "tessera/rates.h"
#include "tessera/simulate.h"
#include "tessera/unstable/params.h"
#include "tessera/unstable/plans.h"
#include "tessera/unstable/simulation.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A row of an array of tsr_parameter (C only): the rule book. `standard` is the default's name for the help text,
 * in brackets: a command other than `simulate` sets its default itself. */
#define TSR_RUN_BOOK(standard)                                                                     \
  {                                                                                                \
    .name = "book", .kind = TSR_PARAMETER_CHOICE, .argument = "OPS",                               \
    .help = "Which kernels are modelled: those of PyTorch and transformers (torch), or tessera's " \
            "own (own), "                                                                          \
            "which are fused and need less memory. With own, --gelu and --no-kv-cache have no "    \
            "effect, every AdamW is the fused one, and --attention sdpa and efficient mean "       \
            "flash (default: " standard ").",                                                      \
    .choices = (const char *const[]){"torch", "own", NULL}, .is_resumed = true,                    \
  }

/* The choices of a parameter "gpu": the names of tsr_gpu_at, in the same order, and NULL. */
extern const char *const tsr_gpu_names[];
/* The name with this index, or NULL past the last: tsr_parameter.word. */
const char *tsr_gpu_word(size_t index);
/* The card that such a parameter names, or NULL. The result is a constant. */
const char *tsr_params_gpu(const tsr_params *params);
/* What PyTorch's allocator may reserve on that card, or on each of several (parameters "gpus" and "ranks"), so that what is outside of it
 * has room (parameters tsr_run_outside); 0 without a card. */
uint64_t tsr_params_gpu_bytes(const tsr_params *params);
/* Refuse a number of bytes, the parameter `limit`, that is more than the memory of that card. Fails with TSR_ERROR_ARGUMENT. */
int tsr_params_check_card(const tsr_params *params, const char *limit, tsr_error *error);

/* Read the file in a parameter "rates"; `*out` is NULL if the parameter is not set. The caller owns `*out`. Fails
 * as tsr_rates_parse does. */
int tsr_params_rates(const tsr_params *params, tsr_rates **out, tsr_error *error);

/* The parameters for the links between ranks, which step times depend on. */
extern const tsr_parameter tsr_run_link[];
/* Set link_bytes_per_s and what follows ranks_per_node in `how` from such parameters, or to 0 if they are not set: "50GB/s" and "400Gb/s" are the same.
 * Fails with TSR_ERROR_ARGUMENT, also without ranks in `how`. */
int tsr_params_link(const tsr_params *params, tsr_simulate_options *how, tsr_error *error);

/* Parameters of commands that trace models that are not built in: the Python that does, and what built-in models do not have. */
extern const tsr_parameter tsr_run_traced[];
/* Parameters of commands that count what is outside of PyTorch's allocator (tessera/unstable/outside.h). */
extern const tsr_parameter tsr_run_outside[];
/* The limits of a search for a plan. */
extern const tsr_parameter tsr_run_limits[];
/* Make the effort that these limits allow, or an unlimited one if the parameters lack them, which the query's `progress` can stop. `query`
 * may be NULL. The caller frees `*out` with tsr_effort_free. Fails with TSR_ERROR_MEMORY. */
int tsr_params_effort(const tsr_params *params, const tsr_query *query, tsr_effort **out,
                      tsr_error *error);
/* Explain that a limit was reached before anything was found, and which to raise. Returns TSR_ERROR_ARGUMENT. */
int tsr_params_effort_fail(const tsr_params *params, const tsr_effort *effort, tsr_error *error);

/* The options of a run that a plan decides; each is a key of plans. */
extern const tsr_parameter tsr_run_options[];
/* The parameters that `simulate` and `train` share: the options of a run, and what is not part of a plan: the plan
 * file that the options modify, where to write the plan, an injected error, and what to print. */
extern const tsr_parameter tsr_run_parameters[];
/* The parameter for a DeepSpeed configuration (tsr_ds_config_apply), for commands that have tsr_run_options and
 * "batch". */
extern const tsr_parameter tsr_ds_config_parameter[];

/* Read the words of `offload`: "optimizer,gradients,parameters,activations", each optional and possibly followed by
 * ":host" or, for activations, ":disk". NULL means none. Fails with TSR_ERROR_ARGUMENT and leaves `*out`
 * untouched. */
int tsr_offload_parse(const char *text, tsr_offload *out, tsr_error *error);

/* Read the words of `in_place`, "add,dropout,gelu,silu,product", as flags of tsr_in_place. NULL means none. Fails
 * with TSR_ERROR_ARGUMENT and leaves `*out` untouched. */
int tsr_in_place_parse(const char *text, unsigned *out, tsr_error *error);
/* The word for a flag. */
const char *tsr_in_place_word(tsr_in_place which);

/* Read names of linear layers, as peft's target_modules has them ("q_proj,v_proj", "all-linear"), as flags of tsr_lora_target. NULL
 * means none. Fails with TSR_ERROR_ARGUMENT and leaves `*out` untouched. */
int tsr_lora_parse(const char *text, unsigned *out, tsr_error *error);

/* Make the options from these parameters and from `batch`, `seq`, `steps` and `capacity`, which each command
 * declares with its own defaults. All of them, and "plan", must be among the rows of `params`. The caller frees
 * `*plan` with tsr_run_plan_free; `*out` points into it. Fails as tsr_run_plan_of does. */
int tsr_simulate_options_of(const tsr_params *params, tsr_run_plan **plan,
                            tsr_simulate_options *out, tsr_error *error);
/* Whether a step graph leaves the parameter `name` of `simulate` open: it fixes all others. */
bool tsr_simulate_is_open_to_traced(const char *name);

/* Whether tsr_model_read refuses the text of a file because it describes a model, or a feature of one, that is not built in: one that can
 * be traced. Returns 0, or TSR_ERROR_MEMORY. */
int tsr_model_is_foreign(const char *json, size_t size_bytes, bool *out);
/* Whether the name may be that of a model of Hugging Face, such as "openai-community/gpt2", which can also be the path of a file.
 * tsr_model_named refuses it with advice. */
bool tsr_model_is_hub_id(const char *name);
/* Whether a parameter is decided when such a model is traced, so that it no longer applies to the step graph: "batch" and others, and
 * tsr_run_options. */
bool tsr_parameter_is_traced(const char *name);

/* How to apply a DeepSpeed configuration. */
typedef struct tsr_ds_config_how {
  uint64_t ranks; /* started by a launcher; 0: by the parameter, or one */
  bool trains;    /* the parameters include lr, betas, eps and weight_decay */
  /* Called for each key without effect: "no effect here: KEY, because ...". May be NULL. */
  void (*note)(void *context, const char *text);
  void *context;
} tsr_ds_config_how;

/* Set parameters that are not set yet from a DeepSpeed configuration, a JSON object: src/engine/plan/ds_config.c
 * has the table of its keys. tsr_run_options and "batch" must be among the rows of `params`. Fails with
 * TSR_ERROR_FORMAT, whose message names the key, or TSR_ERROR_MEMORY; some parameters may be set then. */
int tsr_ds_config_apply(const char *text, size_t size_bytes, const tsr_ds_config_how *how,
                        tsr_params *params, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
