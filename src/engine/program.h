/* program.h - a training program: the model of a description, and a loop around it.
 *
 * program.c has the loop, and what all models share: parameters, checkpointing, the loss. gpt2.c and
 * llama.c have the modules of the two families, function by function as transformers has them, so
 * that variables live as long as they do there. */
#ifndef TSR_ENGINE_PROGRAM_H
#define TSR_ENGINE_PROGRAM_H

#include "engine/model.h"
#include "engine/op.h"

#define TSR__TORCH        "/usr/local/lib/python3.12/dist-packages/torch/"
#define TSR__TRANSFORMERS "/usr/local/lib/python3.12/dist-packages/transformers/"

typedef struct tsr__linear {
  tsr__tid weight, bias; /* bias 0: none */
  uint64_t features;
} tsr__linear;

typedef struct tsr__norm {
  tsr__tid weight, bias;
} tsr__norm;

/* Parameters of one block; which are used depends on the family. */
typedef struct tsr__layer {
  tsr__norm norm_1, norm_2;
  tsr__linear qkv, q, k, v, out; /* qkv: GPT-2's three in one */
  tsr__linear up, gate, down;
} tsr__layer;

typedef TSR__VECTOR(tsr__tid) tsr__tids;

struct tsr__family_row;

typedef struct tsr__program {
  const tsr_model *model;
  const struct tsr__family_row *family;
  const tsr_simulate_options *options;
  tsr__tape *tape;
  tsr__layer *layers; /* model->layers of them */
  tsr__linear *added; /* modules x layers, in the order of modules */
  tsr__tid embedding, position_embedding, head;
  tsr__norm last_norm;
  uint64_t batch, sequence, accumulate;
  /* Choices, resolved. */
  tsr__dtype dtype; /* of parameters */
  bool is_autocast;
  bool uses_cache;         /* keys and values go through a cache, which the outputs hold */
  bool is_eager;           /* attention written out */
  tsr__op_kind attention;  /* the op that attends */
  bool has_mask;           /* transformers makes one */
  bool has_attention_mask; /* the batch brings one, of ones */
  bool repeats_heads;      /* keys and values are copied for all heads */
  tsr_simulate_checkpoint checkpoint;
  uint64_t segment_blocks; /* in one checkpoint */
  /* Of the forward that runs. */
  tsr__tid ids, labels, attention_mask, loss, cosine, sine, mask, position_ids;
  tsr__tids outputs; /* what the outputs hold, and their graph */
  tsr__tids cache;   /* keys and values, which the outputs hold too */
  tsr__tids hidden;  /* the hidden states that were asked for, held */
} tsr__program;

/* Declare what is there before the recording, and check that the options suit the model. */
int tsr__program_init(tsr__program *program, const tsr_model *model,
                      const tsr_simulate_options *options, tsr__tape *tape, tsr_error *error);
void tsr__program_release(tsr__program *program);
/* Run one step on the tape. */
void tsr__program_step(tsr__program *program);

/* ---- Shared by the families ---- */

tsr__linear tsr__declare_linear(tsr__program *program, uint64_t inputs, uint64_t outputs,
                                bool has_bias);
/* x times a linear's weight; Conv1D's or nn.Linear's module, called at the current line. */
tsr__tid tsr__call_linear(tsr__program *program, const tsr__linear *linear, tsr__tid x,
                          bool is_conv1d);
/* Attention on q, k, v (k and v of kv_heads heads), within its function; checkpointed on its own
 * where that is asked for. Answers (batch, rows, width). */
tsr__tid tsr__call_attention(tsr__program *program, tsr__tid q, tsr__tid k, tsr__tid v,
                             bool is_packed);
/* Call the blocks, from the model's forward at the current line; answers the last one's result. */
tsr__tid tsr__call_blocks(tsr__program *program, tsr__tid hidden);
/* Put keys or values through the cache. */
tsr__tid tsr__call_cache(tsr__program *program, tsr__tid states, uint64_t line);
/* One step of the optimizer, and of a gradient scaler (optimizer.c). */
void tsr__call_optimizer(tsr__program *program);
/* Make the mask, if there is one. */
void tsr__call_mask(tsr__program *program);

/* A hidden state that the model's caller asked for. */
void tsr__note_hidden(tsr__program *program, tsr__tid hidden);

/* ---- The families ---- */

/* Lines of a causal LM's forward. */
typedef struct tsr__head_lines {
  const char *file;
  uint64_t body, head, loss; /* calls of the model, the head and the loss */
} tsr__head_lines;

typedef struct tsr__family_row {
  void (*declare)(tsr__program *program);
  tsr__tid (*model)(tsr__program *program, tsr__tid ids);
  tsr__tid (*block)(tsr__program *program, uint32_t layer, tsr__tid hidden);
  tsr__head_lines (*head_lines)(const tsr_model *model);
} tsr__family_row;

extern const tsr__family_row tsr__gpt2_family, tsr__llama_family;

#endif
