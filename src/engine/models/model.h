/* model.h - a model description: its sizes, and the choices of its class.
 *
 * Invariants of a model that was read: sizes are at least 1 and at most 2^24, layers at most 4096,
 * kv_heads divides heads, head_width is even in the Llama family. */
#ifndef TSR_MODELS_MODEL_H
#define TSR_MODELS_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/sha256.h"
#include "models/rotary.h"
#include "tessera/model.h"

/* Values of model_type; see family.h for the family of each. */
typedef enum tsr__model_class {
  TSR__CLASS_GPT2,
  TSR__CLASS_LLAMA,
  TSR__CLASS_MISTRAL,
  TSR__CLASS_QWEN2,
  TSR__CLASS_COUNT
} tsr__model_class;

typedef enum tsr__model_activation {
  TSR__MODEL_GELU_EAGER, /* gelu_new: eight operations */
  TSR__MODEL_GELU,       /* one kernel, exact */
  TSR__MODEL_GELU_TANH,  /* one kernel, approximated as gelu_new does */
  TSR__MODEL_SILU
} tsr__model_activation;

/* A module that the description adds around the model: in each layer, a linear layer on its hidden states, whose
 * mean is added to the loss. */
typedef struct tsr__model_module {
  char name[64];
  uint64_t features;
  bool has_bias;
} tsr__model_module;

enum { TSR__MODEL_MODULES = 8 };

struct tsr__step_graph;

struct tsr_model {
  atomic_uint more_owners; /* owners in addition to the first */
  char name[64];
  const char *hub; /* of a model by name: what Hugging Face calls it, a constant; or NULL */
  struct tsr__step_graph *graph;       /* a traced step; if set, nothing below is; owned */
  char *config;                        /* the text of config.json; owned */
  char sha256[TSR__SHA256_TEXT_BYTES]; /* of that text, or of the step graph's */
  tsr__model_class class;
  tsr__model_activation activation;
  uint64_t vocabulary, width, layers, heads, kv_heads, head_width, inner, positions;
  uint64_t window; /* of sliding attention, or 0 */
  bool is_tied, has_qkv_bias, has_out_bias, has_mlp_bias, uses_cache;
  double embedding_dropout, residual_dropout, attention_dropout; /* probabilities */
  double epsilon;                                                /* in norms */
  double initial_deviation;                                      /* of random weights */
  tsr__rotary rotary; /* in the Llama family; does not affect memory */
  tsr__model_module modules[TSR__MODEL_MODULES];
  size_t module_count;
};

/* Add an owner of a model, which is immutable. Each owner calls tsr_model_free. */
tsr_model *tsr__model_share(const tsr_model *model);

/* Make the same description with other numbers of layers and heads. The width of a head, and the number of query
 * heads per key head, stay the same. The model's width and its feed-forward width change in proportion; if a width
 * is not whole then, it is rounded to a multiple of the power of two (up to 64) that divides the model's. `heads`
 * must be a multiple of the query heads per key head. The caller owns `*out`. Fails as tsr_model_read does if a
 * size is too large. */
int tsr__model_resized(const tsr_model *model, uint64_t layers, uint64_t heads, tsr_model **out,
                       tsr_error *error);

/* The words for flags of tsr_lora_target, as tsr_lora_parse reads them; truncated to the room. */
void tsr__lora_text(unsigned targets, char *text, size_t room_bytes);

/* Fails with TSR_ERROR_UNSUPPORTED if the model's memory can be predicted but its numbers cannot be computed. */
int tsr__model_check_computed(const tsr_model *model, tsr_error *error);

#endif
