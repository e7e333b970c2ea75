/* program.h - a training program: the model of a description, and a loop around it.
 *
 * program.c has the loop and what all models share: linear layers, attention, recomputation, the loss. gpt2.c and
 * llama.c have the modules of the two families, function by function as transformers has them, because a function's
 * variables decide how long tensors live. The program reports its current place to the tape (graph/place.h);
 * PyTorch's names for places are in src/engine/torch. */
#ifndef TSR_MODELS_PROGRAM_H
#define TSR_MODELS_PROGRAM_H

#include "graph/op.h"
#include "graph/plan.h"
#include "models/family.h"
#include "models/model.h"
#include "tessera/simulate.h"

/* Parts of a model: their parameters, and which part they are. */
typedef struct tsr__model_linear {
  tsr__tensor_id weight, bias; /* bias 0: none */
  uint64_t features;           /* of the result */
  bool is_conv1d;              /* the weight is (inputs, outputs); else (outputs, inputs) */
  tsr__program_place place;
} tsr__model_linear;

typedef struct tsr__model_norm {
  tsr__tensor_id weight, bias;
  tsr__program_place place;
} tsr__model_norm;

/* One block; which parts it has depends on the family. */
typedef struct tsr__model_layer {
  tsr__model_norm norm_1, norm_2;
  tsr__model_linear qkv, q, k, v, out; /* qkv: GPT-2's three in one */
  tsr__model_linear up, gate, down;
  tsr__tensor_id causal; /* GPT-2's causal mask as a table */
} tsr__model_layer;

typedef TSR__VECTOR(tsr__tensor_id) tsr__tensor_ids;

/* A unit's gradients while ranks sum them. */
typedef struct tsr__unit_sum {
  uint32_t unit, move;
  tsr__tensor_id bucket, part, staging; /* held; part may be the bucket */
  bool is_open;
} tsr__unit_sum;

/* What differs between forwards that train and forwards that evaluate: fields of the program by the same names. transformers
 * turns the cache off where blocks are recomputed, which they are in training alone; without a cache there may be a mask, and who
 * attends depends on the mask. */
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
  tsr__tensor_id loss_scale, good_steps; /* a GradScaler's */
  tsr__model_linear head;
  tsr__model_norm last_norm;
  uint64_t batch, sequence, accumulate;
  /* Choices, resolved. */
  tsr__dtype dtype; /* of parameters */
  bool is_autocast;
  bool is_own;            /* by tessera's own rule book, with what that makes possible */
  bool divides_loss;      /* the loss divides its gradient by the micro-batches */
  uint64_t query_rows;    /* of chunked attention */
  bool uses_cache;        /* keys and values go through a cache, which the outputs hold */
  bool is_eager;          /* attention written out */
  tsr__op_kind attention; /* the op that attends */
  tsr__tensor_id
      attention_weights;        /* eager attention's, while the function that attends runs; or 0 */
  bool has_mask;                /* transformers makes one */
  bool checks_mask;             /* ... or looks whether the batch's masks anything */
  bool has_attention_mask;      /* the batch brings one, of ones */
  bool repeats_heads;           /* keys and values are copied for all heads */
  tsr__plan plan;               /* for each layer */
  unsigned in_place;            /* flags of tsr_in_place that some op has met */
  bool is_evaluating;           /* without gradients, dropout and recomputation */
  tsr__forward_mode evaluation; /* of forwards that evaluate; of those that train, while one does */
  /* Of the forward that runs. */
  tsr__tensor_id
      loss_sum; /* of the micro-batches so far, if one backward follows them all; bound */
  tsr__tensor_id ids, labels, attention_mask, loss, cosine, sine, mask, position_ids;
  tsr__tensor_ids outputs;      /* what the outputs hold, and their graph */
  tsr__tensor_id logits;        /* held by the outputs; 0 with a chunked loss */
  tsr__tensor_ids cache;        /* keys and values, which the outputs hold too */
  tsr__tensor_ids hidden;       /* the hidden states that were requested, held */
  tsr__tensor_id gradient_norm; /* before clipping; 0: they are not clipped */
  tsr__tensor_ids losses;       /* of each micro-batch, in their order; most are gone at the end */
  bool is_last_backward;        /* of the step: no micro-batch follows */
  uint32_t *stored;  /* by unit: gradients that this backward pass has completed; owned */
  tsr__unit_sum sum; /* over ranks, under way */
} tsr__program;

/* Resolve the options, check that they suit the model, and declare what exists before the recording:
 * parameters, buffers, workspaces. `plan` has a choice for each layer; NULL makes the plan that
 * options->checkpoint names. It is copied; `model`, `options` and `tape` must outlive the program, which must be
 * released either way. TSR_ERROR_ARGUMENT, TSR_ERROR_UNSUPPORTED, TSR_ERROR_LIMIT or TSR_ERROR_MEMORY,
 * as tsr_simulate has them. */
int tsr__program_init(tsr__program *program, const tsr_model *model,
                      const tsr_simulate_options *options, const tsr__plan *plan, tsr__tape *tape,
                      tsr_error *error);
/* A zeroed program is fine. */
void tsr__program_release(tsr__program *program);
/* Run one step on the tape, whose status shows whether it worked. */
void tsr__program_step(tsr__program *program);
/* Run a forward pass alone on the tape, without gradients, of a model without a cache and added modules:
 * program->logits, (batch, sequence, vocabulary), are there when the step is over. */
void tsr__program_infer(tsr__program *program);

/* The forwards of the program are of the other mode from here on. */
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
  const tsr__rotary *rotary; /* of ROTARY: the model's, */
  uint64_t sequence;         /* for sequences of that many tokens */
} tsr__initial_value;

/* Call `call` for each parameter, and each buffer that is read, with the initial value in transformers. Tied weights
 * are reported once. */
void tsr__program_initials(const tsr__program *program,
                           void (*call)(void *context, tsr__tensor_id tensor,
                                        const tsr__initial_value *initial),
                           void *context);

/* ---- Declaring parts ---- */

tsr__tensor_id tsr__program_parameter(tsr__program *program, tsr__shape shape);
tsr__model_linear tsr__program_declare_linear(tsr__program *program, tsr__program_place place,
                                              uint64_t inputs, uint64_t outputs, bool has_bias);
/* GPT-2's, which has a bias. */
tsr__model_linear tsr__program_declare_conv1d(tsr__program *program, tsr__program_place place,
                                              uint64_t inputs, uint64_t outputs);
/* A norm over the model's width. */
tsr__model_norm tsr__program_declare_norm(tsr__program *program, tsr__program_place place,
                                          bool has_bias);

/* program->head, whose weight is the embedding's if the model ties them. */
void tsr__program_declare_head(tsr__program *program);

/* ---- Running them. Results are bound to the calling function. ---- */

/* x (..., inputs) times the layer's weight, plus its bias: (..., features). */
tsr__tensor_id tsr__program_linear(tsr__program *program, const tsr__model_linear *linear,
                                   tsr__tensor_id x);
/* The layer or RMS norm of x: LAYER_NORM for one with a bias. */
tsr__tensor_id tsr__program_norm(tsr__program *program, const tsr__model_norm *norm,
                                 tsr__tensor_id x);
/* Whether ops of this kind should write over an operand. */
bool tsr__program_asks_in_place(tsr__program *program, tsr_in_place which);
/* a + b. Nothing reads operand number `spent` (from 1; 0: both are read) afterwards, so the sum may overwrite it.
 * With tessera's own rule book that happens whenever it is possible, with PyTorch's if options request it. */
tsr__tensor_id tsr__program_add(tsr__program *program, tsr__tensor_id a, tsr__tensor_id b,
                                uint8_t spent);
/* Rows of a table. */
tsr__tensor_id tsr__program_embedding(tsr__program *program, tsr__program_place place,
                                      tsr__tensor_id weight, tsr__tensor_id ids);
/* program->position_ids: 0, 1, ... (1, sequence). */
void tsr__program_positions(tsr__program *program);
/* Attention on q, k, v (k and v of kv_heads heads), within its function; recomputed on its own if
 * that is requested. `causal` is the layer's table, if the family has one. (batch, rows, width). */
tsr__tensor_id tsr__program_attention(tsr__program *program, tsr__tensor_id q, tsr__tensor_id k,
                                      tsr__tensor_id v, tsr__tensor_id causal, bool is_packed);
/* All blocks, from the model's body; returns the last one's result. is_spent: no variable but the one that blocks
 * replace holds `hidden`. */
tsr__tensor_id tsr__program_blocks(tsr__program *program, tsr__tensor_id hidden, bool is_spent);
/* The probability with which a dropout drops: 0 while the program evaluates. */
static inline double tsr__program_dropout(const tsr__program *program, double probability) {
  return program->is_evaluating ? 0 : probability;
}
/* Append keys or values to the cache, which holds them. `keys`: those that were or are appended, whose
 * type the cache has. */
tsr__tensor_id tsr__program_cache(tsr__program *program, tsr__program_place place,
                                  tsr__tensor_id states, tsr__tensor_id keys);
/* Leave the function that attends. Eager attention's weights are returned with the result, and a variable of the
 * calling function holds them until that returns: the block's, though it has no use for them. */
tsr__tensor_id tsr__program_leave_attention(tsr__program *program, tsr__tensor_id result);

/* program->mask, if the attention needs one. */
void tsr__program_mask(tsr__program *program);
/* One step of the optimizer, and of a gradient scaler (optimizer.c). */
void tsr__program_optimizer(tsr__program *program);
/* The same for one parameter, whose gradient goes. `program`: a tsr__program; the tape's gradient_stored. */
void tsr__program_update(void *program, tsr__tensor_id parameter);
/* ---- With other ranks: shards.c ---- */

/* Put all parameters into units, if the options name ranks. TSR_ERROR_MEMORY. */
int tsr__program_shard(tsr__program *program, tsr_error *error);
/* Called when a parameter's gradient is complete: sums the gradients of its unit if it was the last one. `program`: a
 * tsr__program; the tape's gradient_complete. */
void tsr__program_sum_gradient(void *program, tsr__tensor_id parameter);
/* Backward has ended: wait for its sums. */
void tsr__program_end_sums(tsr__program *program);
/* Send the parameters that each rank has updated to all ranks. */
void tsr__program_share_parameters(tsr__program *program);
/* `overflow`, a number, becomes the sum over ranks, if each of them has looked at its own gradients. */
void tsr__program_share_overflow(tsr__program *program, tsr__tensor_id overflow);
/* The squares of each parameter's gradient, of which ranks have parts, as TSR__KERNEL_NORM_PART sums them; bound to the calling function. */
tsr__tensor_id tsr__program_shared_squares(tsr__program *program);

/* Keep a hidden state that the caller of the model requested. */
void tsr__program_note_hidden(tsr__program *program, tsr__tensor_id hidden);

#endif
