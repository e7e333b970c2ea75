/* tessera/unstable/runs.h - a training run as users describe it: what `simulate` predicts and `train` runs.
 *
 * The parameters that both have, spelled once, and the options that they stand for. */
#ifndef TESSERA_UNSTABLE_RUNS_H
#define TESSERA_UNSTABLE_RUNS_H

#include "tessera/output.h"
#include "tessera/simulate.h"
#include "tessera/unstable/params.h"
#include "tessera/unstable/simulation.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of an array of tsr_parameter (C only). The words of a choice are in the order of its enum, except for
 * `attention`. */
#define TSR_RUN_PARAMETERS                                                                         \
  {.name = "accumulate",                                                                           \
   .kind = TSR_PARAMETER_COUNT,                                                                    \
   .argument = "K",                                                                                \
   .help = "Batches per step, whose gradients are accumulated (default: 1).",                      \
   .fallback = 1,                                                                                  \
   .least = 1},                                                                                    \
      {.name = "optimizer",                                                                        \
       .kind = TSR_PARAMETER_CHOICE,                                                               \
       .argument = "NAME",                                                                         \
       .help = "adamw (default): torch.optim.AdamW with its defaults, which is adamw-foreach; "    \
               "adamw-fused; adamw-loop, parameter by parameter; or sgd, without momentum.",       \
       .choices = (const char *const[]){"adamw", "adamw-foreach", "adamw-fused", "adamw-loop",     \
                                        "sgd", NULL}},                                             \
      {.name = "dtype",                                                                            \
       .kind = TSR_PARAMETER_CHOICE,                                                               \
       .argument = "TYPE",                                                                         \
       .help = "fp32 (default), bf16, fp16; autocast-bf16, autocast-fp16: fp32 under autocast.",   \
       .choices =                                                                                  \
           (const char *const[]){"fp32", "bf16", "fp16", "autocast-bf16", "autocast-fp16", NULL}}, \
      {.name = "attention",                                                                        \
       .kind = TSR_PARAMETER_CHOICE,                                                               \
       .argument = "KERNEL",                                                                       \
       .help =                                                                                     \
           "sdpa (default): what scaled_dot_product_attention chooses on an A100; eager; flash; "  \
           "efficient, the kernel of cards before Ampere; or chunked:N, N query rows at a time.",  \
       .choices =                                                                                  \
           (const char *const[]){"sdpa", "eager", "flash", "efficient", "chunked:N", NULL}},       \
      {.name = "gelu",                                                                             \
       .kind = TSR_PARAMETER_CHOICE,                                                               \
       .argument = "FORM",                                                                         \
       .help = "eager (default): eight operations, if the class has them; fused: one kernel.",     \
       .choices = (const char *const[]){"eager", "fused", NULL}},                                  \
      {.name = "checkpoint",                                                                       \
       .kind = TSR_PARAMETER_CHOICE,                                                               \
       .argument = "WHAT",                                                                         \
       .help =                                                                                     \
           "What is recomputed in backward: none (default); full, each block; selective, each "    \
           "attention; or every:K, K blocks at a time.",                                           \
       .choices = (const char *const[]){"none", "full", "selective", "every:K", NULL}},            \
      {.name = "loss",                                                                             \
       .kind = TSR_PARAMETER_CHOICE,                                                               \
       .argument = "FORM",                                                                         \
       .help = "full (default), or chunked:N, head and cross-entropy of N tokens at a time.",      \
       .choices = (const char *const[]){"full", "chunked:N", NULL}},                               \
      {.name = "profile",                                                                          \
       .kind = TSR_PARAMETER_FLAG,                                                                 \
       .help = "Also list what is in memory at the peak: by phase, block and saved tensor."},      \
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
      {.name = "offload",                                                                          \
       .kind = TSR_PARAMETER_TEXT,                                                                 \
       .argument = "LIST",                                                                         \
       .example = "optimizer,activations:disk",                                                    \
       .help = "What is kept in the host's memory instead of the device's: any of optimizer "      \
               "(its state, and where it runs), gradients, parameters (of blocks, fetched block "  \
               "by block) and activations; activations:disk keeps these in a file."},              \
  {                                                                                                \
    .name = "no_kv_cache", .option = "no-kv-cache", .kind = TSR_PARAMETER_FLAG,                    \
    .help = "Do not keep keys and values in a cache, as transformers does even in training."       \
  }

/* Read the words of `offload`: "optimizer,gradients,parameters,activations", each of them optional and perhaps followed by
 * ":host" or, activations, ":disk". NULL is nothing. `*out` is untouched by a failure, which is TSR_ERROR_ARGUMENT. */
int tsr_offload_parse(const char *text, tsr_offload *out, tsr_error *error);

/* What these parameters, and `batch`, `seq`, `steps` and `capacity`, which each command has with defaults of
 * its own, come to. All of them must be among the rows of `params`; what tsr_offload_parse refuses is
 * ignored. O(1). */
void tsr_simulate_options_of(const tsr_params *params, tsr_simulate_options *out);

/* Print what is in memory at the peak: by phase, by block and by saved tensor, `top` rows each (0: all). As
 * JSON it is one line. Fails with TSR_ERROR_WRITE or TSR_ERROR_MEMORY. */
int tsr_memory_profile_write(const tsr_memory_profile *profile, uint64_t top,
                             const tsr_report_options *options, tsr_write_fn *write, void *context,
                             tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
