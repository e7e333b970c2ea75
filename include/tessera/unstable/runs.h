/* tessera/unstable/runs.h - a training run as users describe it: what `simulate` predicts and `train` runs.
 *
 * The parameters that both have, spelled once, and the options that they stand for. */
#ifndef TESSERA_UNSTABLE_RUNS_H
#define TESSERA_UNSTABLE_RUNS_H

#include <stddef.h>

#include "tessera/output.h"
#include "tessera/simulate.h"
#include "tessera/unstable/params.h"
#include "tessera/unstable/plans.h"
#include "tessera/unstable/rates.h"
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

/* A row of an array of tsr_parameter (C only): how fast ranks send, for the time of a step. */
#define TSR_RUN_LINK                                                                          \
  {                                                                                           \
    .name = "link", .kind = TSR_PARAMETER_TEXT, .argument = "RATE", .example = "50GB/s",      \
    .help = "What each rank sends to others in a second, for the time of a step: 50GB/s, or " \
            "400Gb/s (default: 80 % of the card's NVLink, or PCIe, by its data sheet)."       \
  }
/* Set how->link_bytes_per_s to what such a parameter has, 0 if it was not given: "50GB/s" and "400Gb/s" are the same. Fails with
 * TSR_ERROR_ARGUMENT, also without ranks in `how`. */
int tsr_params_link(const tsr_params *params, tsr_simulate_options *how, tsr_error *error);

/* The field of tsr_simulate_options that an option is kept in. */
#define TSR_RUN_FIELD(kind, name) \
  .stored = TSR_STORED_##kind, .stored_at = offsetof(tsr_simulate_options, name)
#define TSR_RUN_NUMBER(name) .number_at = offsetof(tsr_simulate_options, name)

/* The options of a run that a plan decides: rows of an array of tsr_parameter (C only); each is a key of plans. */
#define TSR_RUN_PARAMETERS \
  {.name = "accumulate", TSR_RUN_FIELD(COUNT, accumulate), \
   .kind = TSR_PARAMETER_COUNT, \
   .argument = "K", \
   .help = "Batches per step, whose gradients are accumulated (default: 1).", \
   .fallback = 1, \
   .least = 1}, \
      {.name = "micro_batch", TSR_RUN_FIELD(COUNT, micro_batch), \
       .option = "micro-batch", \
       .kind = TSR_PARAMETER_COUNT, \
       .argument = "N", \
       .help = "Split each batch into micro-batches of N sequences, each with its own forward " \
               "and backward, and accumulate their gradients (default: the whole batch)."}, \
      {.name = "accumulation", TSR_RUN_FIELD(WORD, accumulation), \
       .kind = TSR_PARAMETER_CHOICE, \
       .argument = "MODE", \
       .help = "How the gradients of micro-batches are added up: grouped computes each one " \
               "separately and then adds it; flat adds in the order of one large batch; auto " \
               "(default) does what the ops of --book do.", \
       .choices = (const char *const[]){"auto", "flat", "grouped", NULL}}, \
      {.name = "backward", TSR_RUN_FIELD(FLAG, backward_once), \
       .kind = TSR_PARAMETER_CHOICE, \
       .argument = "WHEN", \
       .help = "When backward runs: after the forward of each micro-batch (each, default), or " \
               "after all of them, on the sum of their losses (once), which saves no memory.", \
       .choices = (const char *const[]){"each", "once", NULL}}, \
      {.name = "optimizer", TSR_RUN_FIELD(WORD, optimizer), \
       .kind = TSR_PARAMETER_CHOICE, \
       .argument = "NAME", \
       .help = "adamw (default): torch.optim.AdamW with its defaults, which is adamw-foreach; " \
               "adamw-fused; adamw-loop, parameter by parameter; or sgd, without momentum.", \
       .choices = (const char *const[]){"adamw", "adamw-foreach", "adamw-fused", "adamw-loop", \
                                        "sgd", NULL}}, \
      {.name = "optimizer_in_backward", TSR_RUN_FIELD(FLAG, update_in_backward), \
       .option = "optimizer-in-backward", \
       .kind = TSR_PARAMETER_FLAG, \
       .help = "Update each parameter in backward, as soon as its gradient is complete, and " \
               "free the gradient (register_post_accumulate_grad_hook). Not possible with " \
               "clipping, accumulation or a scaled loss."}, \
      {.name = "clip", TSR_RUN_FIELD(REAL, clip_norm), \
       .kind = TSR_PARAMETER_TEXT, \
       .argument = "NORM", \
       .example = "1.0", \
       .help = "Clip the gradients of a step to this norm, all together, as " \
               "torch.nn.utils.clip_grad_norm_ does (default: no clipping)."}, \
      {.name = "dtype", TSR_RUN_FIELD(WORD, dtype), \
       .kind = TSR_PARAMETER_CHOICE, \
       .argument = "TYPE", \
       .help = "fp32 (default), bf16, fp16; autocast-bf16, autocast-fp16: fp32 under autocast.", \
       .choices = \
           (const char *const[]){"fp32", "bf16", "fp16", "autocast-bf16", "autocast-fp16", NULL}}, \
      {.name = "attention", TSR_RUN_FIELD(WORD, attention), TSR_RUN_NUMBER(attention_chunk), \
       .kind = TSR_PARAMETER_CHOICE, \
       .argument = "KERNEL", \
       .help = \
           "sdpa (default): what scaled_dot_product_attention chooses on an A100; eager; flash; " \
           "efficient, the kernel of cards before Ampere; or chunked:N, N query rows at a time.", \
       .choices = \
           (const char *const[]){"sdpa", "eager", "flash", "efficient", "chunked:N", NULL}}, \
      {.name = "gelu", TSR_RUN_FIELD(FLAG, gelu_fused), \
       .kind = TSR_PARAMETER_CHOICE, \
       .argument = "FORM", \
       .help = "How GELU runs: as eight operations, if the model's class does that (eager, " \
               "default), or as one kernel (fused).", \
       .choices = (const char *const[]){"eager", "fused", NULL}}, \
      {.name = "in_place", TSR_RUN_FIELD(IN_PLACE, in_place), \
       .option = "in-place", \
       .kind = TSR_PARAMETER_TEXT, \
       .argument = "LIST", \
       .example = "add,dropout", \
       .help = "Ops that write their result over an operand: any of add, dropout, gelu, silu " \
               "and product. Refused if backward or the program still needs that operand; the " \
               "message names what needs it."}, \
      {.name = "checkpoint", TSR_RUN_FIELD(WORD, checkpoint), TSR_RUN_NUMBER(checkpoint_every), \
       .kind = TSR_PARAMETER_CHOICE, \
       .argument = "WHAT", \
       .help = \
           "What backward recomputes: nothing (none, default), each block (full), each " \
           "attention (selective), K blocks at a time (every:K; with sqrt, K is the square root " \
           "of the number of blocks), or only these blocks (blocks:LIST, such as blocks:0-5,8).", \
       .choices = (const char *const[]){"none", "full", "selective", "every:K", "sqrt", \
                                        "blocks:KEY", NULL}}, \
      {.name = "checkpoint_form", TSR_RUN_FIELD(FLAG, non_reentrant), \
       .option = "checkpoint-form", \
       .kind = TSR_PARAMETER_CHOICE, \
       .argument = "FORM", \
       .help = "reentrant (default), or non-reentrant: torch.utils.checkpoint with " \
               "use_reentrant=False, which stops as soon as it has computed what was saved.", \
       .choices = (const char *const[]){"reentrant", "non-reentrant", NULL}}, \
      {.name = "loss", TSR_RUN_FIELD(COUNT, loss_chunk), \
       .kind = TSR_PARAMETER_CHOICE, \
       .argument = "FORM", \
       .help = "full (default), or chunked:N, head and cross-entropy of N tokens at a time.", \
       .choices = (const char *const[]){"full", "chunked:N", NULL}}, \
      {.name = "master_weights", TSR_RUN_FIELD(FLAG, master_weights), \
       .option = "master-weights", \
       .kind = TSR_PARAMETER_FLAG, \
       .help = "With bf16 or fp16: the optimizer keeps and updates fp32 copies of the " \
               "parameters. With fp16, the loss is then scaled, too, as PyTorch's GradScaler " \
               "does."}, \
      {.name = "loss_scale", TSR_RUN_FIELD(REAL, loss_scale), \
       .option = "loss-scale", \
       .kind = TSR_PARAMETER_COUNT, \
       .argument = "N", \
       .help = "The initial loss scale, for fp16 and autocast-fp16 (default: 65536 if the loss " \
               "is scaled). An overflow halves it and skips the step."}, \
      {.name = "loss_scale_window", TSR_RUN_FIELD(COUNT, loss_scale_window), \
       .option = "loss-scale-window", \
       .kind = TSR_PARAMETER_COUNT, \
       .argument = "N", \
       .help = "Steps in a row without an overflow after which the loss scale doubles (default: " \
               "2000)."}, \
      {.name = "offload", TSR_RUN_FIELD(OFFLOAD, offload), \
       .kind = TSR_PARAMETER_TEXT, \
       .argument = "LIST", \
       .example = "optimizer,activations:disk", \
       .help = "What is kept in the host's memory instead of the device's: any of optimizer " \
               "(its state, and where it runs), gradients, parameters (of blocks, fetched block " \
               "by block) and activations; activations:disk keeps these in a file."}, \
      {.name = "ranks", TSR_RUN_FIELD(COUNT, ranks), \
       .kind = TSR_PARAMETER_COUNT, \
       .argument = "N", \
       .help = "Processes that train together, each with a batch of its own; their gradients are " \
               "summed in the order of their numbers."}, \
      {.name = "zero", TSR_RUN_FIELD(COUNT, zero), \
       .kind = TSR_PARAMETER_COUNT, \
       .argument = "STAGE", \
       .help = "What ranks keep only a part of each: nothing (0, default), optimizer state (1), " \
               "gradients, too (2), or parameters, too (3)."}, \
      {.name = "bucket", TSR_RUN_FIELD(COUNT, bucket_elements), \
       .kind = TSR_PARAMETER_COUNT, \
       .argument = "N", \
       .help = "Elements of a gradient that ranks sum at once (default: all of a block's)."}, \
      {.name = "no_overlap", TSR_RUN_FIELD(FLAG, no_overlap), \
       .option = "no-overlap", \
       .kind = TSR_PARAMETER_FLAG, \
       .help = "Backward waits for each sum over ranks, instead of going on."}, \
  { \
    .name = "no_kv_cache", TSR_RUN_FIELD(FLAG, no_kv_cache), .option = "no-kv-cache", .kind = TSR_PARAMETER_FLAG, \
    .help = "Do not use the key-value cache, which transformers fills even in training." \
  }

/* Read the words of `offload`: "optimizer,gradients,parameters,activations", each of them optional and perhaps followed by
 * ":host" or, activations, ":disk". NULL is nothing. `*out` is untouched by a failure, which is TSR_ERROR_ARGUMENT. */
int tsr_offload_parse(const char *text, tsr_offload *out, tsr_error *error);

/* Read the words of `in_place`, "add,dropout,gelu,silu,product", as flags of tsr_in_place. NULL is nothing. `*out` is untouched by
 * a failure, which is TSR_ERROR_ARGUMENT. */
int tsr_in_place_parse(const char *text, unsigned *out, tsr_error *error);
/* The word of a flag. */
const char *tsr_in_place_word(tsr_in_place which);

/* A DeepSpeed configuration, of commands that have TSR_RUN_PARAMETERS and "batch" (tsr_ds_config_apply). */
#define TSR_DS_CONFIG_PARAMETER                                                                 \
  {                                                                                             \
    .name = "ds_config", .option = "ds-config", .kind = TSR_PARAMETER_PATH,                     \
    .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON, .argument = "FILE",                \
    .help = "Take options from FILE, a DeepSpeed configuration (ds_config.json); options that " \
            "are given override it. Keys that have no effect are listed."                       \
  }

/* Rows that are no part of a plan: the plan that the others are shorthands of, where to write it, a mistake to plant, and what
 * is printed. */
#define TSR_PLAN_PARAMETERS                                                                        \
  {.name = "profile",                                                                              \
   .kind = TSR_PARAMETER_FLAG,                                                                     \
   .help = "Also list what is in memory at the peak: by phase, block and saved tensor."},          \
      {.name = "top",                                                                              \
       .kind = TSR_PARAMETER_COUNT,                                                                \
       .argument = "N",                                                                            \
       .help = "Rows of each list of --profile (default: 10; 0: all). JSON has all.",              \
       .fallback = 10},                                                                            \
      {.name = "leak",                                                                             \
       .kind = TSR_PARAMETER_CHOICE,                                                               \
       .argument = "WHAT",                                                                         \
       .help = "Plant a mistake that keeps memory of every step, to see how it shows: graph, a "   \
               "list of losses with their graphs; outputs, a list of the model's outputs; shell, " \
               "logits that a notebook's Out keeps; batches, a list of batches.",                  \
       .choices = (const char *const[]){"none", "graph", "outputs", "shell", "batches", NULL}},    \
      {.name = "plan",                                                                             \
       .kind = TSR_PARAMETER_FILE,                                                                 \
       .type = &tsr_run_plan_type,                                                                 \
       .argument = "FILE",                                                                         \
       .help = "Take the options of this group, and choices for single blocks, from FILE, a "      \
               "plan (docs/plan.md); options that are given override it."},                        \
      TSR_DS_CONFIG_PARAMETER, {                                                                   \
    .name = "write_plan", .option = "write-plan", .kind = TSR_PARAMETER_PATH, .is_written = true,  \
    .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON, .argument = "FILE",                   \
    .help = "Write the plan of this run to FILE."                                                  \
  }

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
 * keys. TSR_RUN_PARAMETERS and "batch" must be among the rows of `params`. Fails with TSR_ERROR_FORMAT, whose message names the
 * key, or TSR_ERROR_MEMORY; some parameters may be set then. */
int tsr_ds_config_apply(const char *text, size_t size_bytes, const tsr_ds_config_how *how,
                        tsr_params *params, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
