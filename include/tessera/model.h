/* tessera/model.h - descriptions of models, and the choices that a training run makes.
 *
 * A model is known by name or read from its config.json. It is immutable; any number of threads may use
 * it. tessera/simulate.h says what training it takes.
 */
#ifndef TESSERA_MODEL_H
#define TESSERA_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/registry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Models ---- */

typedef struct tsr_model tsr_model;

/* A model known by name: gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-2-7b, llama-2-13b,
 * llama-2-70b, llama-3-8b, llama-3-70b, llama-3-405b, llama-3.2-1b, mistral-7b, qwen2.5-7b,
 * and gpt2-bytes, a small one for texts of bytes.
 * Fails with TSR_ERROR_ARGUMENT, listing the known names, or TSR_ERROR_MEMORY. */
int tsr_model_named(const char *name, tsr_model **out, tsr_error *error);
/* The names, ended by NULL. */
const char *const *tsr_model_names(void);
/* A model from the text of its config.json, in Hugging Face's format: model_type gpt2, llama, mistral
 * or qwen2; absent keys have the defaults of that class. The key "tessera_modules"
 * adds modules (docs/simulate.md). Or a GPT-2 from the first 1024 bytes of a checkpoint of llm.c. Or a step graph
 * (docs/step-graph.md), which can be simulated but not trained. Fails with TSR_ERROR_FORMAT if it is none of these,
 * TSR_ERROR_UNSUPPORTED for a feature that is not modelled, or TSR_ERROR_MEMORY. */
int tsr_model_read(const char *json, size_t size_bytes, tsr_model **out, tsr_error *error);
/* Whether a file that begins with these bytes is a checkpoint of llm.c, and so has weights too. */
bool tsr_model_is_checkpoint(const char *bytes, size_t size_bytes);
/* Release it. NULL is fine. */
void tsr_model_free(tsr_model *model);
/* The type of parameters that are models: a name, or a file as above. */
extern const tsr_parameter_type tsr_model_type;
/* The number of elements in model.parameters(), tied weights counted once; 0 if memory runs out. */
uint64_t tsr_model_parameter_count(const tsr_model *model);
/* Whether it is a step graph: a traced step of any program, instead of a description. */
bool tsr_model_is_traced(const tsr_model *model);
/* The text of a config.json that describes it: what it was read from, with "architectures". NULL for a step graph.
 * Lives as long as the model. */
const char *tsr_model_config(const tsr_model *model);
/* Its name, or its model_type if it was read from a description. */
const char *tsr_model_name(const tsr_model *model);

/* What a description says of a model's shape. */
typedef struct tsr_model_sizes {
  uint64_t vocabulary, positions; /* tokens */
  uint64_t layers, width, inner;  /* inner: width within a block's feed-forward part */
  uint64_t heads, kv_heads, head_width;
  bool is_gated; /* that part has a gate: three products instead of two */
} tsr_model_sizes;

/* False, with `*out` zeroed, for a step graph, which has none. */
bool tsr_model_sizes_of(const tsr_model *model, tsr_model_sizes *out);

/* ---- How it is trained ---- */

typedef enum tsr_simulate_optimizer {
  TSR_OPTIMIZER_ADAMW, /* the default of torch.optim.AdamW: foreach */
  TSR_OPTIMIZER_ADAMW_FOREACH,
  TSR_OPTIMIZER_ADAMW_FUSED,
  TSR_OPTIMIZER_ADAMW_LOOP,
  TSR_OPTIMIZER_SGD, /* without momentum, foreach */
  /* These are simulated, but do not train. */
  TSR_OPTIMIZER_SGD_MOMENTUM, /* of 0.9, foreach */
  TSR_OPTIMIZER_ADAFACTOR,    /* torch.optim.Adafactor */
  TSR_OPTIMIZER_MUON,         /* torch.optim.Muon for matrices of blocks, and AdamW for the rest */
  TSR_OPTIMIZER_ADAMW_8BIT,   /* bitsandbytes' AdamW8bit */
  TSR_OPTIMIZER_LION          /* bitsandbytes' Lion, with 32 bits */
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
  TSR_ATTENTION_EFFICIENT, /* the memory-efficient kernel, which cards before Ampere use */
  TSR_ATTENTION_CHUNKED    /* attention_chunk query rows at a time */
} tsr_simulate_attention;

/* Where tensors are kept while no kernel needs them. */
typedef enum tsr_space { TSR_SPACE_DEVICE, TSR_SPACE_HOST, TSR_SPACE_DISK } tsr_space;

/* What is kept elsewhere than on the device. Copies are counted where they are, those under way included. */
typedef struct tsr_offload {
  tsr_space optimizer;   /* its state, and where it runs: device or host */
  tsr_space gradients;   /* of parameters, from backward to the optimizer: device or host */
  tsr_space parameters;  /* of blocks, fetched block by block: device or host */
  tsr_space activations; /* what backward needs of forward: any */
} tsr_offload;

/* Parameters to which an optimizer applies no weight decay: flags. */
typedef enum tsr_no_decay {
  TSR_NO_DECAY_NORMS = 1, /* weights and biases of norms */
  TSR_NO_DECAY_BIASES = 2 /* all biases */
} tsr_no_decay;

/* Ops that write their result over an operand that nothing else needs: flags. */
typedef enum tsr_in_place {
  TSR_IN_PLACE_ADD = 1,
  TSR_IN_PLACE_DROPOUT = 2,
  TSR_IN_PLACE_GELU = 4, /* as one kernel */
  TSR_IN_PLACE_SILU = 8, /* or its product with what it gates, where that is one op */
  TSR_IN_PLACE_PRODUCT = 16
} tsr_in_place;

/* Linear layers of a block that get an adapter, by their names in transformers: flags. */
typedef enum tsr_lora_target {
  TSR_LORA_C_ATTN = 1, /* of GPT-2 */
  TSR_LORA_C_PROJ = 2, /* both of them */
  TSR_LORA_C_FC = 4,
  TSR_LORA_Q_PROJ = 8,
  TSR_LORA_K_PROJ = 16,
  TSR_LORA_V_PROJ = 32,
  TSR_LORA_O_PROJ = 64,
  TSR_LORA_GATE_PROJ = 128,
  TSR_LORA_UP_PROJ = 256,
  TSR_LORA_DOWN_PROJ = 512,
  TSR_LORA_ALL = 1023
} tsr_lora_target;

/* The type of LoRA's adapters, peft's autocast_adapter_dtype. */
typedef enum tsr_adapter_dtype {
  TSR_ADAPTERS_FP32, /* whatever the model's type is: peft's default */
  TSR_ADAPTERS_BASE /* the model's type; with weights in 4 bits, the type in which these multiply */
} tsr_adapter_dtype;

/* The weights of linear layers of blocks in 4 bits, as bitsandbytes has them: bnb_4bit_quant_type. */
typedef enum tsr_quantize { TSR_QUANTIZE_NONE, TSR_QUANTIZE_NF4, TSR_QUANTIZE_FP4 } tsr_quantize;

/* peft's prepare_model_for_kbit_training: the 16-bit parameters that are not in 4 bits become fp32. */
typedef enum tsr_kbit_training {
  TSR_KBIT_NONE, /* it is not called */
  TSR_KBIT_CHECKPOINTING, /* called with its defaults: each block is computed again, unless another checkpoint is chosen */
  TSR_KBIT_CASTS /* called with use_gradient_checkpointing=False */
} tsr_kbit_training;

/* Products of linear layers of blocks in FP8, whose weights and results keep their types. */
typedef enum tsr_fp8 {
  TSR_FP8_NONE,
  TSR_FP8_TE /* as TransformerEngine's layers under fp8_autocast */
} tsr_fp8;

typedef enum tsr_simulate_book {
  TSR_BOOK_TORCH, /* what PyTorch's and transformers' ops allocate */
  TSR_BOOK_OWN    /* tessera's own, which are fused */
} tsr_simulate_book;

typedef enum tsr_simulate_checkpoint {
  TSR_CHECKPOINT_NONE,
  TSR_CHECKPOINT_FULL,      /* each block */
  TSR_CHECKPOINT_SELECTIVE, /* the attention of each block, between its projections */
  TSR_CHECKPOINT_EVERY,     /* each run of checkpoint_every blocks */
  TSR_CHECKPOINT_SQRT       /* the same, of as many blocks as the root of their number, rounded */
} tsr_simulate_checkpoint;

/* A mistake of the training script, which grows with every step. */
typedef enum tsr_simulate_leak {
  TSR_LEAK_NONE,
  TSR_LEAK_GRAPH,   /* a list of losses, whose graphs backward(retain_graph=True) kept */
  TSR_LEAK_OUTPUTS, /* a list of the model's outputs: loss, logits, keys and values */
  TSR_LEAK_SHELL,   /* the logits that a notebook's cell displays, which its Out variable keeps */
  TSR_LEAK_BATCHES  /* a list of batches, on the device */
} tsr_simulate_leak;
/* Where what an op saved for backward is until then. */
typedef enum tsr_saved_place {
  TSR_SAVED_KEEP,      /* where it was made */
  TSR_SAVED_RECOMPUTE, /* nowhere: it is computed again */
  TSR_SAVED_HOST,      /* in another memory, and copied back */
  TSR_SAVED_DISK,
  TSR_SAVED_NARROW16, /* rounded to bfloat16 */
  TSR_SAVED_NARROW8   /* rounded to 8 bits */
} tsr_saved_place;

/* A choice for one thing that an op saves: the op's name, or the name and which of the tensors that it saves
 * ("gelu.2"). */
typedef struct tsr_saved_choice {
  const char *name;
  tsr_saved_place place;
} tsr_saved_choice;

/* What blocks `first` to `last` of a model do, instead of what the rest does. */
typedef struct tsr_block_choice {
  uint64_t first, last;
  tsr_simulate_checkpoint checkpoint;
  uint64_t checkpoint_every;
  const tsr_saved_choice *saved;
  size_t saved_count;
} tsr_block_choice;

/* How the gradients of micro-batches become one. */
typedef enum tsr_simulate_accumulation {
  TSR_ACCUMULATION_AUTO,    /* as the rule book does: PyTorch groups */
  TSR_ACCUMULATION_FLAT,    /* tokens are summed in one order, whatever micro-batch they are in */
  TSR_ACCUMULATION_GROUPED, /* each micro-batch's gradient is made, and then added */
} tsr_simulate_accumulation;

#ifdef __cplusplus
}
#endif
#endif
