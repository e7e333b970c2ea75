/* question.c - the row of "simulate": what will a training run take, before anything has run? */
#include <assert.h>

#include "base/error.h"
#include "base/memory.h"
#include "questions/question.h"
#include "tessera/unstable/simulation.h"

static const tsr_parameter parameters[] = {
    {.name = "model",
     .is_operand = true,
     .kind = TSR_PARAMETER_MODEL,
     .argument = "MODEL",
     .help = "A model's name, or its config.json."},
    {.name = "settings",
     .option = "set",
     .kind = TSR_PARAMETER_SETTING,
     .argument = "CONF",
     .help = "Allocator settings of the run, in the syntax of PYTORCH_CUDA_ALLOC_CONF."},
    {.name = "capacity",
     .kind = TSR_PARAMETER_BYTES,
     .argument = "SIZE",
     .help = "Memory of the card that PyTorch may use, such as 40GiB (default: unlimited). The "
             "run ends where it is not enough."},
    {.name = "batch",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Sequences per batch (default: 1).",
     .fallback = 1,
     .least = 1},
    {.name = "seq",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Tokens per sequence (default: 512).",
     .fallback = 512,
     .least = 1},
    {.name = "steps",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Optimizer steps (default: 3; the first has no optimizer state yet).",
     .fallback = 3,
     .least = 1},
    {.name = "accumulate",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "K",
     .help = "Batches per step, whose gradients are accumulated (default: 1).",
     .fallback = 1,
     .least = 1},
    {.name = "optimizer",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "NAME",
     .help = "adamw (default): torch.optim.AdamW with its defaults, which is adamw-foreach; "
             "adamw-fused; adamw-loop, parameter by parameter; or sgd, without momentum.",
     .choices =
         (const char *const[]){"adamw", "adamw-foreach", "adamw-fused", "adamw-loop", "sgd", NULL}},
    {.name = "dtype",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "TYPE",
     .help = "fp32 (default), bf16, fp16; autocast-bf16, autocast-fp16: fp32 under autocast.",
     .choices =
         (const char *const[]){"fp32", "bf16", "fp16", "autocast-bf16", "autocast-fp16", NULL}},
    {.name = "attention",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "KERNEL",
     .help = "sdpa (default): what scaled_dot_product_attention chooses on an A100; eager; flash; "
             "efficient, the kernel of cards before Ampere; or chunked:N, N query rows at a time.",
     .choices = (const char *const[]){"sdpa", "eager", "flash", "efficient", "chunked:N", NULL}},
    {.name = "gelu",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "FORM",
     .help = "eager (default): eight operations, if the class has them; fused: one kernel.",
     .choices = (const char *const[]){"eager", "fused", NULL}},
    {.name = "checkpoint",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "WHAT",
     .help = "What is recomputed in backward: none (default); full, each block; selective, each "
             "attention; or every:K, K blocks at a time.",
     .choices = (const char *const[]){"none", "full", "selective", "every:K", NULL}},
    {.name = "loss",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "FORM",
     .help = "full (default), or chunked:N, head and cross-entropy of N tokens at a time.",
     .choices = (const char *const[]){"full", "chunked:N", NULL}},
    {.name = "no_kv_cache",
     .option = "no-kv-cache",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Do not keep keys and values in a cache, as transformers does even in training."},
    {.name = "fresh_process",
     .option = "fresh-process",
     .kind = TSR_PARAMETER_FLAG,
     .help = "cuBLAS allocates its workspaces during the recording, because nothing ran before."},
    {.name = "categories",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Write the true category of each allocation into the snapshot."},
};

static_assert(TSR_OPTIMIZER_ADAMW == 0 && TSR_OPTIMIZER_ADAMW_FOREACH == 1 &&
                  TSR_OPTIMIZER_ADAMW_FUSED == 2 && TSR_OPTIMIZER_ADAMW_LOOP == 3 &&
                  TSR_OPTIMIZER_SGD == 4,
              "the words of `optimizer` are in the order of its enum");
static_assert(TSR_SIMULATE_FP32 == 0 && TSR_SIMULATE_BF16 == 1 && TSR_SIMULATE_FP16 == 2 &&
                  TSR_SIMULATE_AUTOCAST_BF16 == 3 && TSR_SIMULATE_AUTOCAST_FP16 == 4,
              "the words of `dtype` are in the order of its enum");
static_assert(TSR_CHECKPOINT_NONE == 0 && TSR_CHECKPOINT_FULL == 1 &&
                  TSR_CHECKPOINT_SELECTIVE == 2 && TSR_CHECKPOINT_EVERY == 3,
              "the words of `checkpoint` are in the order of its enum");

/* In the order of the words of `attention`. */
static const tsr_simulate_attention attentions[] = {TSR_ATTENTION_SDPA, TSR_ATTENTION_EAGER,
                                                    TSR_ATTENTION_FLASH, TSR_ATTENTION_EFFICIENT,
                                                    TSR_ATTENTION_CHUNKED};

typedef struct simulated {
  tsr_simulation *simulation;
  uint64_t capacity_bytes;
} simulated;

/* The index of the word, 0 unless one was given: the first word is the default. */
static int choice(const tsr_params *params, const char *name) {
  int index = tsr_params_choice(params, name);
  return index < 0 ? 0 : index;
}

static int check(const tsr_params *params, tsr_error *error) {
  if (tsr_params_count(params, "batch") && tsr_params_count(params, "seq") &&
      tsr_params_count(params, "steps") && tsr_params_count(params, "accumulate"))
    return 0;
  return tsr_params_fail(params, error,
                         "{batch}, {seq}, {steps} and {accumulate} must be at least 1");
}

static tsr_simulate_options options_of(const tsr_params *params) {
  size_t settings;
  tsr_simulate_options how = {
      .batch = tsr_params_count(params, "batch"),
      .sequence = tsr_params_count(params, "seq"),
      .steps = tsr_params_count(params, "steps"),
      .accumulate = tsr_params_count(params, "accumulate"),
      .optimizer = (tsr_simulate_optimizer)choice(params, "optimizer"),
      .dtype = (tsr_simulate_dtype)choice(params, "dtype"),
      .attention = attentions[choice(params, "attention")],
      .attention_chunk = tsr_params_choice_number(params, "attention"),
      .checkpoint = (tsr_simulate_checkpoint)choice(params, "checkpoint"),
      .checkpoint_every = tsr_params_choice_number(params, "checkpoint"),
      .loss_chunk = tsr_params_choice_number(params, "loss"),
      .gelu_fused = choice(params, "gelu") == 1,
      .no_kv_cache = tsr_params_flag(params, "no_kv_cache"),
      .fresh_process = tsr_params_flag(params, "fresh_process"),
      .categories = tsr_params_flag(params, "categories"),
      .capacity_bytes = tsr_params_count(params, "capacity"),
  };
  const tsr_allocator_settings *given = tsr_params_settings(params, "settings", &settings);
  if (settings) how.settings = *given;
  return how;
}

static void release(void *value) {
  simulated *run = value;
  tsr_simulation_free(run->simulation);
  tsr__free(run);
}

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  tsr_simulate_options how = options_of(asked->params);
  simulated *run = TSR__NEW(simulated);
  if (!run) return tsr__fail_memory(error);
  run->capacity_bytes = how.capacity_bytes;
  int status = tsr_params_has(asked->params, "settings")
                   ? 0
                   : tsr_allocator_settings_parse(NULL, &how.settings, error);
  if (status == 0)
    status = tsr_simulate(tsr_params_model(asked->params, "model"), &how, &run->simulation, error);
  if (status)
    release(run);
  else
    *out = run;
  return status;
}

static int report(const tsr__report_call *call, tsr_error *error) {
  const simulated *run = call->value;
  return tsr__report_simulate(call->inputs, run->simulation, run->capacity_bytes, call->options,
                              call->write, call->context, error);
}

static const tsr_snapshot *snapshot(const void *value) {
  return ((const simulated *)value)->simulation->snapshot;
}

const tsr__question_row tsr__question_simulate = {
    .about = {.name = "simulate",
              .summary = "what will a training run need, before anything has run?",
              .description =
                  "Runs the training steps of a model without a device, with the same memory "
                  "requests as PyTorch and transformers, byte for byte, and shows the peak, what "
                  "that memory is for, and which moment decides. With -o it writes the snapshot "
                  "that PyTorch would have recorded: every other command, Mosaic and PyTorch's own "
                  "viewer read it.\n\nMODEL is the config.json of a GPT-2, Llama, Mistral or Qwen2 "
                  "model, or one of these names: gpt2, gpt2-medium, gpt2-large, gpt2-xl, "
                  "llama-2-7b, llama-2-13b, llama-2-70b, llama-3-8b, llama-3-70b, llama-3-405b, "
                  "llama-3.2-1b, mistral-7b, qwen2.5-7b.\n\nWith --capacity, a run that does not "
                  "fit ends where PyTorch's would, in an oom event.",
              TSR__PARAMETERS(parameters),
              .examples = {{"tessera simulate gpt2 --batch 4 --seq 512",
                            "what will fine-tuning GPT-2 need?"},
                           {"tessera simulate llama-3-8b --dtype bf16 --seq 4096 --checkpoint full "
                            "--capacity 80GiB",
                            "does it fit on that card?"},
                           {"tessera simulate config.json --batch 8 --steps 5 -o steps.pickle",
                            "a snapshot of five steps"}}},
    .check = check,
    .ask = ask,
    .report = report,
    .free = release,
    .snapshot = snapshot,
};
