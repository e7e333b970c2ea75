/* model.h - a model description: shapes and the choices of its class. */
#ifndef TSR_ENGINE_MODEL_H
#define TSR_ENGINE_MODEL_H

#include <stdbool.h>

#include "tessera/simulate.h"

typedef enum tsr__family { TSR__FAMILY_GPT2, TSR__FAMILY_LLAMA } tsr__family;
/* Which class of the family: they differ in defaults, biases and line numbers. */
typedef enum tsr__class {
  TSR__GPT2,
  TSR__LLAMA,
  TSR__MISTRAL,
  TSR__QWEN2,
  TSR__CLASS_COUNT
} tsr__class;

typedef enum tsr__activation {
  TSR__ACTIVATION_GELU_EAGER, /* gelu_new: eight operations */
  TSR__ACTIVATION_GELU,       /* one kernel */
  TSR__ACTIVATION_SILU
} tsr__activation;

/* Something a description adds: for each layer, a linear on its hidden states whose mean joins the
 * loss, in a wrapper around the model. */
typedef struct tsr__module {
  char name[64];
  uint64_t features;
  bool has_bias;
} tsr__module;

enum { TSR__MODULES = 8 };

struct tsr_model {
  char name[64];
  tsr__class class;
  tsr__activation activation;
  uint64_t vocabulary, width, layers, heads, kv_heads, head_width, inner, positions;
  uint64_t window; /* of sliding attention; 0: none */
  bool is_tied, has_qkv_bias, has_out_bias, has_mlp_bias, uses_cache;
  bool has_embedding_dropout, has_residual_dropout, has_attention_dropout;
  tsr__module modules[TSR__MODULES];
  size_t module_count;
};

static inline tsr__family tsr__family_of(const struct tsr_model *model) {
  return model->class == TSR__GPT2 ? TSR__FAMILY_GPT2 : TSR__FAMILY_LLAMA;
}

#endif
