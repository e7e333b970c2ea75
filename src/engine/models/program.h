/* program.h - a training program: a model and a loop around it.
 *
 * program.c has the loop and what all models share: linear layers, attention, recomputation, the loss. gpt2.c and
 * llama.c have the modules of the two families, function by function as in transformers, because a function's
 * variables decide how long tensors live. The program reports its current place to the tape (graph/place.h);
 * PyTorch's names for places are in src/engine/torch. */
#ifndef TSR_MODELS_PROGRAM_H
#define TSR_MODELS_PROGRAM_H

#include "graph/op.h"
#include "graph/plan.h"
#include "models/family.h"
#include "models/model.h"
#include "tessera/simulate.h"

/* The parts of a model, with their parameters. */
typedef struct tsr__model_linear {
  tsr__tensor_id weight, bias;   /* bias: 0 if absent */
  tsr__tensor_id lora_a, lora_b; /* of its adapter, (rank, inputs) and (outputs, rank); or 0 */
  /* Of a weight in 4 bits, whose `weight` are codes: its scales, and if these are quantised, too, their scales and offset. */
  tsr__tensor_id scales, nested_scales, offset;
  uint64_t inputs, features; /* of x and of the result */
  bool is_conv1d;            /* the weight is (inputs, outputs) instead of (outputs, inputs) */
  tsr__program_place place;
} tsr__model_linear;

typedef struct tsr__model_norm {
  tsr__tensor_id weight, bias;
  tsr__program_place place;
} tsr__model_norm;

/* One block; the family determines which parts it has. */
typedef struct tsr__model_layer {
  tsr__model_norm norm_1, norm_2;
  tsr__model_linear qkv, q, k, v, out; /* qkv: GPT-2's three projections in one */
  tsr__model_linear up, gate, down;
  tsr__tensor_id causal;       /* GPT-2's causal mask as a table */
  tsr__tensor_id keys, values; /* the key-value cache of a generation, or 0 */
} tsr__model_layer;

typedef TSR__VECTOR(tsr__tensor_id) tsr__tensor_ids;

/* The gradients of a unit while ranks sum them. */
typedef struct tsr__unit_sum {
  uint32_t unit, move;
  tsr__tensor_id bucket, part, staging; /* held; `part` may be the bucket */
  bool is_open;
} tsr__unit_sum;

/* The fields of the program that differ between training and evaluation. transformers turns the cache off while it
 * recomputes blocks, which happens only in training. Without a cache there may be a mask, and the mask decides
 * which kernel attends. */
typedef struct tsr__forward_mode {
  uint64_t batch;
  bool uses_cache, has_mask, checks_mask, repeats_heads;
  tsr__op_kind attention;
  tsr__plan plan;
} tsr__forward_mode;

typedef struct tsr__program {
  const tsr_model *model;
  const tsr__model_family *family;
  const tsr_simulate_options *options;
  tsr__tape *tape; /* NULL once the step is recorded */
  /* The tape's, and from then on the finished one: for names and shapes of parameters. */
  const tsr__schedule *schedule;
  tsr__model_layer *layers; /* model->layers of them */
  tsr__model_linear *added; /* modules x layers, in the order of modules */
  tsr__tensor_id embedding, position_embedding, frequencies;
  tsr__tensor_id loss_scale, good_steps; /* of a GradScaler */
  tsr__model_linear head;
  tsr__model_norm last_norm;
  uint64_t batch, sequence, accumulate;
  /* Resolved options. */
  tsr__dtype dtype;         /* of parameters, */
  tsr__dtype adapter_dtype; /* and of those that are trained, if these are adapters */
  tsr__dtype loaded_dtype;  /* of the model before weights were quantised and others were cast, */

  tsr__dtype
      compute_dtype; /* and in which weights in 4 bits are multiplied: bnb_4bit_compute_dtype */
  bool is_autocast;
  bool is_own;            /* uses tessera's own rule book */
  bool divides_loss;      /* the loss divides its gradient by the number of micro-batches */
  uint64_t query_rows;    /* in chunked attention */
  bool uses_cache;        /* keys and values go through a cache, which the outputs hold */
  bool is_eager;          /* attention is written out in several operations */
  tsr__op_kind attention; /* the op that attends */
  tsr__tensor_id attention_weights; /* of eager attention, while its function runs; or 0 */
  bool has_mask;                    /* transformers makes a mask */
  bool checks_mask;        /* transformers checks whether the batch's mask hides anything */
  bool has_attention_mask; /* the batch contains a mask of ones */
  bool repeats_heads;      /* keys and values are copied for all heads */
  tsr__plan plan;          /* of each layer */
  unsigned in_place;       /* flags of tsr_in_place that some op has used */
  bool is_evaluating;      /* no gradients, dropout or recomputation */
  tsr__forward_mode
      evaluation; /* the fields for evaluation; while evaluating, those for training */
  /* State of the forward pass. */
  tsr__tensor_id
      loss_sum; /* of the micro-batches so far, with one backward after them all; bound */
  tsr__tensor_id ids, labels, attention_mask, loss, cosine, sine, mask, position_ids;
  bool fp8_takes_both_orders;    /* of operands: see tsr__op_attributes */
  tsr__tensor_id first_leaf;     /* the embedding's result, if it is to have a gradient; or 0 */
  tsr__tensor_ids outputs;       /* what the outputs and their graph hold */
  tsr__tensor_id logits;         /* held by the outputs; 0 with a chunked loss */
  tsr__tensor_id next_logits[2]; /* of a generation: after the prompt, and after a token */
  uint64_t
      position; /* of the first token of the pass under way; later rounds of a generation are further on */
  tsr__tensor_ids cache;        /* keys and values, which the outputs hold too */
  tsr__tensor_ids hidden;       /* the hidden states that were requested, held */
  tsr__tensor_id gradient_norm; /* before clipping; 0: they are not clipped */
  tsr__tensor_ids losses;       /* of each micro-batch, in their order; most are gone at the end */
  tsr__tensor_ids evaluation_losses; /* of each batch of the evaluation that is recorded */
  bool is_last_backward;             /* of the step: no micro-batch follows */
  bool has_8bit_tables;              /* of an 8-bit optimizer */
  size_t last_updated;               /* the parameter that was last updated in backward */
  uint32_t *stored;  /* by unit: gradients that this backward pass has completed; owned */
  uint32_t *numbers; /* of parameters of several ranks, by tensor; owned */
  tsr__unit_sum sum; /* over ranks, under way */
} tsr__program;

/* Resolve the options, check that they suit the model, and declare what exists before the recording: parameters,
 * buffers, workspaces. `plan` has a choice for each layer and is copied; NULL selects the plan that
 * options->checkpoint names. `model`, `options` and `tape` must outlive the program, which must be released even
 * after a failure. Fails with TSR_ERROR_ARGUMENT, TSR_ERROR_UNSUPPORTED, TSR_ERROR_LIMIT or TSR_ERROR_MEMORY, as
 * tsr_simulate does. */
int tsr__program_init(tsr__program *program, const tsr_model *model,
                      const tsr_simulate_options *options, const tsr__plan *plan, tsr__tape *tape,
                      tsr_error *error);
/* Accepts a zeroed program. */
void tsr__program_release(tsr__program *program);
/* Run one step on the tape, whose status shows whether it worked. */
void tsr__program_step(tsr__program *program);
/* Afterwards: TSR_ERROR_ARGUMENT if the plan chooses for an op by a number that no block has. O(choices). */
int tsr__program_check_saved(const tsr__program *program, tsr_error *error);
/* Run, without gradients, a forward pass of a text of as many tokens as the program's sequence; with `has_rounds` also,
 * as a generation, one of a token that follows. Keys and values stay in caches with room for `positions` tokens; with 0
 * nothing is kept. Sets program->next_logits, (batch, 1, vocabulary), of the last token of each pass. For a model without
 * transformers' cache and added modules. */
void tsr__program_generate(tsr__program *program, uint64_t positions, bool has_rounds);

/* Switch the program between training and evaluation. */
void tsr__program_swap_modes(tsr__program *program);

/* Whether the plan recomputes whole blocks. */
static inline bool tsr__program_recomputes_blocks(const tsr__program *program) {
  return tsr__plan_has(&program->plan, TSR__PLAN_RECOMPUTE) ||
         tsr__plan_has(&program->plan, TSR__PLAN_RECOMPUTE_RUN);
}

/* ---- What is in memory before the first step ---- */

typedef enum tsr__initial_kind {
  TSR__INITIAL_CONSTANT, /* `number` everywhere */
  TSR__INITIAL_NORMAL,   /* random, of mean 0; `number` is the standard deviation */
  TSR__INITIAL_UNIFORM,  /* random, between -number and number */
  TSR__INITIAL_CAUSAL,   /* true for columns up to the row */
  TSR__INITIAL_ROTARY    /* the frequency of each pair (rotary.h) */
} tsr__initial_kind;

typedef struct tsr__initial_value {
  tsr__initial_kind kind;
  double number;
  const tsr__rotary *rotary; /* for ROTARY: of the model */
  uint64_t sequence;         /* for ROTARY: in tokens */
} tsr__initial_value;

/* Call `call` for each parameter, and each buffer that is read, with its initial value in transformers. Tied
 * weights are reported once. */
void tsr__program_initials(const tsr__program *program,
                           void (*call)(void *context, tsr__tensor_id tensor,
                                        const tsr__initial_value *initial),
                           void *context);

/* ---- Declaring parts ---- */

tsr__tensor_id tsr__program_parameter(tsr__program *program, tsr__shape shape);
tsr__model_linear tsr__program_declare_linear(tsr__program *program, tsr__program_place place,
                                              uint64_t inputs, uint64_t outputs, bool has_bias);
/* Declare GPT-2's linear layer, which has a bias. */
tsr__model_linear tsr__program_declare_conv1d(tsr__program *program, tsr__program_place place,
                                              uint64_t inputs, uint64_t outputs);
/* Declare a norm over the model's width. */
tsr__model_norm tsr__program_declare_norm(tsr__program *program, tsr__program_place place,
                                          bool has_bias);

/* Declare program->head, whose weight is the embedding's if the model ties them. */
void tsr__program_declare_head(tsr__program *program);

/* ---- Adapters and weights in 4 bits: adapters.c ---- */

/* Whether weights of linear layers of blocks are in 4 bits. */
static inline bool tsr__program_quantises(const tsr__program *program) {
  return program->options->quantize != TSR_QUANTIZE_NONE;
}
/* Fail with TSR_ERROR_ARGUMENT, TSR_ERROR_LIMIT or TSR_ERROR_UNSUPPORTED if options for these suit neither each other nor the model. */
int tsr__program_check_adapters(const tsr__program *program, tsr_error *error);
/* Choose the types of adapters and of weights in 4 bits, and change that of other parameters as peft's preparation does. */
void tsr__program_choose_adapter_types(tsr__program *program);
/* Declare the weight of a linear layer in 4 bits. */
void tsr__program_declare_quantised(tsr__program *program, tsr__model_linear *linear);
/* Note that a parameter is of a block: it is kept where the options say. */
void tsr__program_put_in_block(tsr__program *program, tsr__tensor_id tensor, uint32_t block);
/* Declare the adapters, once the blocks are declared, and train nothing else. */
void tsr__program_declare_adapters(tsr__program *program);
/* What adapters are multiplied by: alpha / rank. */
double tsr__program_adapter_scale(const tsr__program *program);
/* What tsr__program_linear does for a layer with an adapter, and for a weight in 4 bits without one. */
tsr__tensor_id tsr__program_adapted(tsr__program *program, const tsr__model_linear *linear,
                                    tsr__tensor_id x);
tsr__tensor_id tsr__program_quantised(tsr__program *program, const tsr__model_linear *linear,
                                      tsr__tensor_id x);

/* ---- Running parts. Results are bound to the calling function. ---- */

/* Convert x. */
tsr__tensor_id tsr__program_cast(tsr__program *program, tsr__tensor_id x, tsr__dtype dtype);
/* Multiply x by a number. */
tsr__tensor_id tsr__program_scale(tsr__program *program, tsr__tensor_id x, double factor);
/* Multiply x by the layer's weight alone, whether it has an adapter or not. The weight is not in 4 bits. */
tsr__tensor_id tsr__program_linear_of(tsr__program *program, const tsr__model_linear *linear,
                                      tsr__tensor_id x);
/* Multiply x (..., inputs) by the layer's weight, and add its bias and its adapter's product: (..., features). */
tsr__tensor_id tsr__program_linear(tsr__program *program, const tsr__model_linear *linear,
                                   tsr__tensor_id x);
/* Normalise x: layer norm if `norm` has a bias, else RMS norm. */
tsr__tensor_id tsr__program_norm(tsr__program *program, const tsr__model_norm *norm,
                                 tsr__tensor_id x);
/* Whether ops of this class should overwrite an operand. */
bool tsr__program_asks_in_place(tsr__program *program, tsr_in_place which);
/* Add a + b. Nothing reads operand number `spent` (from 1; 0: both are read) afterwards, so the sum may overwrite
 * it. tessera's own rule book does this whenever possible, PyTorch's only if the options request it. */
tsr__tensor_id tsr__program_add(tsr__program *program, tsr__tensor_id a, tsr__tensor_id b,
                                uint8_t spent);
/* Look up rows of a table. */
tsr__tensor_id tsr__program_embedding(tsr__program *program, tsr__program_place place,
                                      tsr__tensor_id weight, tsr__tensor_id ids);
/* Make program->position_ids: 0, 1, ... (1, sequence). */
void tsr__program_positions(tsr__program *program);
/* Run attention on q, k, v (k and v of kv_heads heads), within its function; it is recomputed separately if the
 * options request that. `causal` is the layer's table, if the family has one. Returns (batch, rows, width). */
tsr__tensor_id tsr__program_attention(tsr__program *program, tsr__tensor_id q, tsr__tensor_id k,
                                      tsr__tensor_id v, tsr__tensor_id causal, bool is_packed);
/* Run all blocks, from the model's body; returns the last one's result. is_spent: `hidden` is only held by the
 * variable that blocks overwrite. */
tsr__tensor_id tsr__program_blocks(tsr__program *program, tsr__tensor_id hidden, bool is_spent);
/* The probability with which a dropout drops: 0 while the program evaluates. */
static inline double tsr__program_dropout(const tsr__program *program, double probability) {
  return program->is_evaluating ? 0 : probability;
}
/* Keep keys or values in the cache of a generation, and return all that it has: (batch, heads, positions, width). */
tsr__tensor_id tsr__program_keep(tsr__program *program, tsr__tensor_id cache,
                                 tsr__tensor_id states);
/* Append keys or values to the cache, which holds them. `keys`: the keys of the same layer, which determine the
 * type of the cache. */
tsr__tensor_id tsr__program_cache(tsr__program *program, tsr__program_place place,
                                  tsr__tensor_id states, tsr__tensor_id keys);
/* Leave the function that attends. Eager attention also returns its weights, and a variable of the block holds them
 * until the block returns, although it does not use them. */
tsr__tensor_id tsr__program_leave_attention(tsr__program *program, tsr__tensor_id result);

/* Make program->mask, if the attention needs one. */
void tsr__program_mask(tsr__program *program);
/* The class of an optimizer, as annotations have it. */
const char *tsr__optimizer_class(tsr_simulate_optimizer optimizer);
/* Run one step of the optimizer, and of a gradient scaler (optimizer.c). */
void tsr__program_optimizer(tsr__program *program);
/* Update one parameter, and release its gradient. `program` is a tsr__program; this is the tape's
 * gradient_stored. */
void tsr__program_update(void *program, tsr__tensor_id parameter);
/* ---- With other ranks: shards.c ---- */

/* Put all parameters into units, if the options set ranks. Fails with TSR_ERROR_MEMORY. */
int tsr__program_shard(tsr__program *program, tsr_error *error);
/* tsr__memory_space: where the gradient that updates the i-th parameter, or part of a unit, is unscaled, clipped and widened. */
uint8_t tsr__program_space_of_gradient(const tsr__program *program, size_t i);
/* Called when a parameter's gradient is complete: if it was the last one of its unit, sums the unit's gradients.
 * `program` is a tsr__program; this is the tape's gradient_complete. */
void tsr__program_sum_gradient(void *program, tsr__tensor_id parameter);
/* Wait for all sums at the end of backward. */
void tsr__program_end_sums(tsr__program *program);
/* Send the parameters that each rank has updated to all ranks. */
void tsr__program_share_parameters(tsr__program *program);
/* Sum `overflow`, a number, over ranks, if each of them has checked its own gradients. */
void tsr__program_share_overflow(tsr__program *program, tsr__tensor_id overflow);
/* Sum the squares of each parameter's gradient, of which ranks have parts, as TSR__KERNEL_NORM_PART does; the
 * result is bound to the calling function. */
tsr__tensor_id tsr__program_shared_squares(tsr__program *program);

/* Keep a hidden state that the caller of the model requested. */
void tsr__program_note_hidden(tsr__program *program, tsr__tensor_id hidden);

#endif
