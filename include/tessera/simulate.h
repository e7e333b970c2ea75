/* tessera/simulate.h - what a training step will need, before anything has run.
 *
 * A model description and the options of a training run (batch, optimizer, types, kernels,
 * checkpointing) become a program of ops. The program is run without data on the model of PyTorch's
 * caching allocator, with the same requests as PyTorch, byte for byte. The result contains the peak,
 * what that memory is for and which moment decides, and also a snapshot with
 * the events, stacks and segments that PyTorch would have recorded.
 *
 *   tsr_model *model;
 *   tsr_simulation *simulation;
 *   tsr_simulate_options options = TSR_OPTIONS_INIT(tsr_simulate_options);
 *   options.batch = 4, options.sequence = 512, options.steps = 5;
 *   int status = tsr_model_named("gpt2", &model, &error);
 *   if (status == 0) status = tsr_simulate(model, &options, &simulation, &error);
 *
 * Nothing is executed and no device is used. Sizes are bytes. A model is immutable; any number of
 * threads may simulate it.
 */
#ifndef TESSERA_SIMULATE_H
#define TESSERA_SIMULATE_H

#include "tessera/allocator.h"
#include "tessera/effort.h"
#include "tessera/model.h"
#include "tessera/rates.h"
#include "tessera/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What happens to what calls of a module of a step graph save. */
typedef enum tsr_module_how {
  TSR_MODULE_CHECKPOINT, /* it is computed again: checkpoint(..., use_reentrant=False) */
  TSR_MODULE_OFFLOAD     /* the host keeps it: save_on_cpu() */
} tsr_module_how;

typedef struct tsr_module_choice {
  const char *name; /* or class, with * for any text; borrowed */
  tsr_module_how how;
} tsr_module_choice;

/* Where tensors are placed. The choice does not affect results. */
typedef enum tsr_memory {
  TSR_MEMORY_CACHING, /* at the addresses that PyTorch's allocator would choose */
  TSR_MEMORY_PLACED /* at addresses chosen before the run, in one range that all steps reuse: what a training runs and
                         plans are measured for, and `tsr_simulate` refuses, since no allocator has events then */
} tsr_memory;

/* How the optimizer of a step graph works: as it was traced, on lists of tensors, on one parameter after another, or in one kernel. */
typedef enum tsr_optimizer_form {
  TSR_OPTIMIZER_FORM_TRACED,
  TSR_OPTIMIZER_FORM_FOREACH,
  TSR_OPTIMIZER_FORM_LOOP,
  TSR_OPTIMIZER_FORM_FUSED
} tsr_optimizer_form;

/* The default is one step of one token in fp32 with PyTorch's defaults (tessera/options.h). */
typedef struct tsr_simulate_options {
  size_t struct_bytes;
  uint64_t batch, sequence, steps; /* 0 = 1 */
  uint64_t accumulate;             /* micro-batches of `batch` per step; 0 = 1 */
  tsr_simulate_optimizer optimizer;
  tsr_simulate_dtype dtype;
  tsr_simulate_attention attention;
  uint64_t attention_chunk; /* query rows */
  tsr_simulate_checkpoint checkpoint;
  uint64_t checkpoint_every; /* blocks */
  uint64_t loss_chunk;       /* tokens; 0 = the whole loss at once */
  bool master_weights; /* parameters of 16 bits have masters in fp32, which the optimizer updates */
  double loss_scale;   /* of fp16, at first; 0 = 65536, where losses are scaled */
  uint64_t loss_scale_window; /* good steps after which it doubles; 0 = 2000 */
  tsr_offload offload;        /* what is kept elsewhere than on the device */
  bool gelu_fused;            /* one kernel instead of the eight operations of the model's class */
  bool no_kv_cache;           /* use_cache=False */
  bool fresh_process;         /* cuBLAS allocates its workspaces during the recording, not before */
  bool categories;            /* write the true category of each allocation into its `category` */
  tsr_allocator_settings settings;
  uint64_t capacity_bytes; /* device memory that PyTorch may use; 0 = unlimited */
  tsr_simulate_leak leak;  /* a mistake to plant in the program */
  bool profile;            /* also list what is in memory at the peak */
  uint64_t
      micro_batch; /* sequences of a forward and its backward, which divide a batch; 0 = batch */
  tsr_simulate_accumulation accumulation;
  bool
      backward_once; /* the losses of all micro-batches are summed, and one backward pass follows */
  bool non_reentrant;             /* the form of checkpoints: use_reentrant=False */
  const tsr_block_choice *blocks; /* borrowed; of a block that several name, the last one counts */
  size_t block_count;
  const char
      *plan_hash; /* of the plan that these options are, for the snapshot; borrowed, or NULL */
  tsr_simulate_book book;  /* whose ops run */
  double clip_norm;        /* of all gradients, as clip_grad_norm_ clips them; 0: none */
  bool update_in_backward; /* each parameter as soon as its gradient is complete, which goes then */
  const tsr_rates *
      rates; /* what a run measured (tessera/rates.h), to predict the time of a step; borrowed, or NULL */
  const char
      *gpu; /* a card's name (tsr_gpu_at): its kernels, its workspaces, and an estimate of time;
                      NULL: the memory of the card that a step graph was traced for, otherwise an A100's, and
                      no time. TSR_ERROR_UNSUPPORTED if the graph's card is unknown */
  unsigned in_place; /* ops that write over an operand: flags of tsr_in_place */
  /* Of a step graph alone; borrowed, or NULL. Modules by name or class, * for any text, several with commas between: */
  const char *checkpoint_modules;   /* each call is checkpointed, with use_reentrant=False */
  const char *offload_modules;      /* what each call saves is kept by the host: save_on_cpu() */
  const tsr_module_choice *modules; /* the same, one by one, as a plan has them; borrowed */
  size_t module_count;
  tsr_optimizer_form optimizer_form; /* of a step graph alone */
  /* Processes that train together, each with a batch of its own, and which of them this is, from 0; 0 ranks: one alone. */
  uint64_t ranks, rank;
  uint64_t zero;            /* what is spread over ranks: ZeRO's stage, 0 to 3 */
  uint64_t bucket_elements; /* of gradients that ranks sum at once; 0: all of a block's */
  bool no_overlap;          /* backward waits for each of these sums */
  double
      link_bytes_per_s; /* what a rank sends to others in a second, for the time of a step; 0: as the card
                           does by its data sheet, or as `rates` have it */
  /* Evaluate after every `eval_steps` steps (0: never), without gradients or dropout: batches of `eval_batch` sequences (0 = batch),
   * each of which replaces the one before, as in a loop over a data loader. */
  uint64_t eval_steps, eval_batch;
  tsr_memory memory;
  /* LoRA (Hu et al. 2021), as peft's LoraConfig has it: the model's own parameters stay as they are, and linear layers of blocks get
   * a product of two matrices of this rank, times alpha / rank. 0: the model itself is trained. */
  uint64_t lora_rank;
  double lora_alpha; /* 0 = 8 */
  unsigned
      lora_targets; /* flags of tsr_lora_target; 0: those that peft chooses for the model's class */
  /* What this and other simulations may take together; borrowed, or NULL: unlimited. */
  tsr_effort *effort;
  /* Flags of tsr_no_decay: AdamW has a second group of parameters, without weight decay. */
  unsigned no_decay;
  bool nesterov; /* of sgd with momentum */
  uint64_t
      replicas; /* groups of ranks / replicas neighbours, each of which spreads state over its own ranks (`zero`), so that there are
                        that many copies (HSDP); 0 = 1 */
  /* Where ranks are, for the time of a step: this many on each machine, 0: all on one; what each sends to other machines in a second,
   * where link_bytes_per_s is what it sends to its neighbours; and what a message takes besides its bytes. */
  uint64_t ranks_per_node;
  double network_bytes_per_s;
  bool has_latency; /* instead of NCCL's table for the card's links, and of 0 with `rates`: */
  double latency_s, network_latency_s;
  /* More of LoRA, and QLoRA (Dettmers et al. 2023). Weights in 4 bits are simulated with PyTorch's ops, and need adapters. */
  double lora_dropout; /* on what adapters read: 0 to below 1 */
  tsr_adapter_dtype adapter_dtype;
  tsr_quantize quantize;
  bool
      double_quant; /* the scales of weights in 4 bits are kept in 8 bits: bnb_4bit_use_double_quant */
  tsr_kbit_training kbit_training;
  tsr_fp8 fp8; /* products of linear layers of blocks in FP8; simulated only, with PyTorch's ops */
  uint64_t
      offload_blocks; /* `offload` applies to tensors of the first N blocks alone; 0: to all tensors */
} tsr_simulate_options;

/* A card that runs are simulated for: what users type, its title, and its memory by its data sheet. */
typedef struct tsr_gpu {
  const char *name, *title;
  uint64_t memory_bytes;
} tsr_gpu;

/* The i-th card, from 0; false past the last. O(1). */
bool tsr_gpu_at(size_t i, tsr_gpu *out);

/* Allocations, frees and ops of a whole run: about a gigabyte of trace, made in seconds. */
#define TSR_SIMULATE_MOST_INSTRUCTIONS (UINT64_C(16) << 20)

/* A finished run: what was simulated, and the snapshot that PyTorch would have written. Immutable. */
typedef struct tsr_simulation tsr_simulation;

/* Why a run with these options is likely to diverge, as a sentence without a full stop; NULL if nothing is known against them: AdamW with
 * moments in fp16. Plan and choices of blocks do not matter. A constant. */
const char *tsr_simulate_caution(const tsr_simulate_options *options);

/* Simulate. `options` NULL means the default. The caller owns `*out` and passes it to
 * tsr_simulation_free. If the simulated device runs out of memory, that is an answer, not an error:
 * the trace ends in an oom event. Fails with TSR_ERROR_ARGUMENT for options that contradict one another
 * or the model, TSR_ERROR_UNSUPPORTED for features that are not modelled, TSR_ERROR_LIMIT for a tensor
 * beyond 2^48 bytes, a run of more than TSR_SIMULATE_MOST_INSTRUCTIONS or a limit of `effort`, TSR_ERROR_IO if its
 * `progress` stopped it, or TSR_ERROR_MEMORY. Time is
 * linear in one step's ops plus its events times the steps. */
int tsr_simulate(const tsr_model *model, const tsr_simulate_options *options, tsr_simulation **out,
                 tsr_error *error);
/* What PyTorch would have recorded; it lives as long as the simulation. */
const tsr_snapshot *tsr_simulation_snapshot(const tsr_simulation *simulation);
/* The totals at the first moment at which most is allocated. */
tsr_allocator_totals tsr_simulation_peak(const tsr_simulation *simulation);
/* Whether the simulated device ran out of memory, at which the run ended. */
bool tsr_simulation_is_out_of_memory(const tsr_simulation *simulation);

#define TSR_SIMULATE_TEXT_BYTES 512
/* The text of PyTorch's exception for a run that is out of memory, as in PyTorch 2.9 but without
 * its advice; "" for any other run. Truncated if it does not fit in `size_bytes`, for which
 * TSR_SIMULATE_TEXT_BYTES is enough. */
void tsr_simulation_message(const tsr_simulation *simulation, uint64_t capacity_bytes, char *text,
                            size_t size_bytes);
/* Release it. NULL is fine. */
void tsr_simulation_free(tsr_simulation *simulation);

#ifdef __cplusplus
}
#endif
#endif
