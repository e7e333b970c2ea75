/* tessera/simulate.h - what a training step will need, before anything has run.
 *
 * A model description and the choices of a training run (batch, optimizer, types, kernels,
 * checkpointing) become a program of ops; the program is run without data, byte for byte as PyTorch
 * would ask for memory, on the model of its caching allocator. The result says what the run needs
 * at its highest, what that memory is for and which moment binds, and is a snapshot as well, with
 * the events, stacks and segments that PyTorch would have recorded.
 *
 *   tsr_model *model;
 *   tsr_simulation *simulation;
 *   tsr_simulate_options options = {.batch = 4, .sequence = 512, .steps = 5};
 *   int status = tsr_model_named("gpt2", &model, &error);
 *   if (status == 0) status = tsr_simulate(model, &options, &simulation, &error);
 *
 * Nothing is executed and no device is asked. Sizes are bytes. A model is immutable; any number of
 * threads may simulate it.
 */
#ifndef TESSERA_SIMULATE_H
#define TESSERA_SIMULATE_H

#include "tessera/allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Models ---- */

typedef struct tsr_model tsr_model;

/* A model known by name: gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-2-7b, llama-2-13b,
 * llama-2-70b, llama-3-8b, llama-3-70b, llama-3-405b, llama-3.2-1b, mistral-7b, qwen2.5-7b.
 * TSR_ERROR_ARGUMENT, naming those there are, or TSR_ERROR_MEMORY. */
int tsr_model_named(const char *name, tsr_model **out, tsr_error *error);
/* The names, ended by NULL. */
const char *const *tsr_model_names(void);
/* A model from the text of its config.json, as Hugging Face has it: model_type gpt2, llama, mistral
 * or qwen2, and what that class takes by default for what is absent. The key "tessera_modules"
 * adds modules (docs/simulate.md). TSR_ERROR_FORMAT for what is no such description,
 * TSR_ERROR_UNSUPPORTED for a feature that is not modelled, or TSR_ERROR_MEMORY. */
int tsr_model_read(const char *json, size_t size_bytes, tsr_model **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_model_free(tsr_model *model);
/* How many numbers model.parameters() has, each tied one once. */
uint64_t tsr_model_parameter_count(const tsr_model *model);
/* Its name, or its model_type where it was read. */
const char *tsr_model_name(const tsr_model *model);

/* ---- Simulation ---- */

typedef enum tsr_simulate_optimizer {
  TSR_OPTIMIZER_ADAMW, /* what torch.optim.AdamW does by itself: foreach */
  TSR_OPTIMIZER_ADAMW_FOREACH,
  TSR_OPTIMIZER_ADAMW_FUSED,
  TSR_OPTIMIZER_ADAMW_LOOP,
  TSR_OPTIMIZER_SGD /* without momentum, foreach */
} tsr_simulate_optimizer;

typedef enum tsr_simulate_dtype {
  TSR_SIMULATE_FP32,
  TSR_SIMULATE_BF16, /* the whole model in that type */
  TSR_SIMULATE_FP16,
  TSR_SIMULATE_AUTOCAST_BF16, /* fp32 weights under torch.autocast */
  TSR_SIMULATE_AUTOCAST_FP16  /* ... with a GradScaler */
} tsr_simulate_dtype;

typedef enum tsr_simulate_attention {
  TSR_ATTENTION_SDPA, /* what scaled_dot_product_attention chooses on an A100 */
  TSR_ATTENTION_EAGER,
  TSR_ATTENTION_FLASH,
  TSR_ATTENTION_CHUNKED,  /* attention_chunk query rows at a time */
  TSR_ATTENTION_EFFICIENT /* the memory-efficient kernel, which is what a card before Ampere has */
} tsr_simulate_attention;

typedef enum tsr_simulate_checkpoint {
  TSR_CHECKPOINT_NONE,
  TSR_CHECKPOINT_FULL,      /* each block */
  TSR_CHECKPOINT_SELECTIVE, /* the attention of each block, between its projections */
  TSR_CHECKPOINT_EVERY      /* each run of checkpoint_every blocks */
} tsr_simulate_checkpoint;

/* A zeroed struct is one step of one token in fp32 with PyTorch's defaults. */
typedef struct tsr_simulate_options {
  uint64_t batch, sequence, steps; /* 0 = 1 */
  uint64_t accumulate;             /* micro-batches of `batch` a step; 0 = 1 */
  tsr_simulate_optimizer optimizer;
  tsr_simulate_dtype dtype;
  tsr_simulate_attention attention;
  uint64_t attention_chunk; /* query rows */
  tsr_simulate_checkpoint checkpoint;
  uint64_t checkpoint_every; /* blocks */
  uint64_t loss_chunk;       /* tokens; 0 = the whole loss at once */
  bool gelu_fused;           /* one kernel where the model's class would use eight operations */
  bool no_kv_cache;          /* use_cache=False */
  bool fresh_process;        /* cuBLAS takes its workspaces within the recording, not before it */
  bool categories;           /* write what each allocation is for into its `category` */
  tsr_allocator_settings settings;
  uint64_t capacity_bytes; /* device memory that PyTorch may have; 0 = unlimited */
} tsr_simulate_options;

/* What memory is for. */
typedef enum tsr_memory_role {
  TSR_ROLE_TEMPORARY, /* of forward or the optimizer: nothing keeps it for backward */
  TSR_ROLE_PARAMETER,
  TSR_ROLE_BUFFER, /* of the model, without gradient */
  TSR_ROLE_INPUT,
  TSR_ROLE_ACTIVATION, /* saved for backward, or held by the model's outputs */
  TSR_ROLE_GRADIENT,   /* of a parameter */
  TSR_ROLE_BACKWARD,   /* gradients of activations, and temporaries of backward */
  TSR_ROLE_OPTIMIZER,  /* state */
  TSR_ROLE_WORKSPACE,  /* of cuBLAS */
  TSR_ROLE_COUNT
} tsr_memory_role;

/* "parameter", "activation", ...: static text. */
const char *tsr_memory_role_name(tsr_memory_role role);

/* A moment of the simulated run. */
typedef struct tsr_simulate_moment {
  int64_t event;     /* number in the snapshot's trace; -1: before the first */
  uint64_t step;     /* from 1; 0: before the first */
  const char *phase; /* "forward", "backward", ...; static text */
  const char *op;    /* the op that was running: static text, or "" */
  tsr_allocator_totals totals;
  uint64_t role_bytes[TSR_ROLE_COUNT]; /* requested */
} tsr_simulate_moment;

#define TSR_SIMULATE_NOTES 8

/* Allocations, frees and ops of a whole run: some gigabyte of trace, made in seconds. */
#define TSR_SIMULATE_MOST_INSTRUCTIONS (UINT64_C(16) << 20)

typedef enum tsr_simulate_phase {
  TSR_SIMULATE_FORWARD,
  TSR_SIMULATE_BACKWARD,
  TSR_SIMULATE_OPTIMIZER,
  TSR_SIMULATE_PHASES
} tsr_simulate_phase;

typedef struct tsr_simulation {
  tsr_snapshot *snapshot; /* owned: goes with the simulation */
  uint64_t parameter_count;
  uint64_t event_count, steps_done;
  tsr_simulate_moment peak;                        /* the first at which most is allocated */
  tsr_simulate_moment phases[TSR_SIMULATE_PHASES]; /* each one's own peak; step 0: never reached */
  uint64_t peak_reserved_bytes;
  uint64_t start_allocated_bytes;            /* before the first event, */
  uint64_t start_role_bytes[TSR_ROLE_COUNT]; /* and for what: requested */
  bool is_out_of_memory;
  tsr_simulate_moment out_of_memory;
  uint64_t oom_request_bytes;
  uint64_t oom_segment_bytes;     /* what the allocator asked the driver for, to serve it */
  uint64_t oom_device_free_bytes; /* what the driver had */
  uint64_t step_flops;            /* of one step, with what is computed again */
  uint64_t step_recomputed_flops;
  const char *notes[TSR_SIMULATE_NOTES]; /* what the reader must know: static texts */
  size_t note_count;
} tsr_simulation;

/* Simulate. `options` NULL is a zeroed struct. `*out` is the caller's, for tsr_simulation_free.
 * Running out of the simulated device's memory is an answer, not an error: the trace ends in an oom
 * event then. TSR_ERROR_ARGUMENT for options that contradict one another or the model,
 * TSR_ERROR_UNSUPPORTED for what is not modelled, TSR_ERROR_LIMIT for a tensor beyond 2^48 bytes or a
 * run of more than TSR_SIMULATE_MOST_INSTRUCTIONS, or TSR_ERROR_MEMORY. Time: one step's ops, then
 * its events times the steps. */
int tsr_simulate(const tsr_model *model, const tsr_simulate_options *options, tsr_simulation **out,
                 tsr_error *error);
#define TSR_SIMULATE_TEXT_BYTES 512
/* What PyTorch's exception would say of a run that is out of memory, as PyTorch 2.9 words it without
 * its advice; "" of any other. `text` is cut where it does not fit; TSR_SIMULATE_TEXT_BYTES are
 * enough. */
void tsr_simulation_message(const tsr_simulation *simulation, uint64_t capacity_bytes, char *text,
                            size_t size_bytes);
/* Release it. NULL is fine. */
void tsr_simulation_free(tsr_simulation *simulation);

#ifdef __cplusplus
}
#endif
#endif
