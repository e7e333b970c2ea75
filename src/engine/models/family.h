/* family.h - the one table of model classes and the families that they belong to.
 *
 * A class is a model_type of config.json. Classes of one family share their code and differ in defaults
 * and biases. A new family is a file with a tsr__model_family, and its classes are rows of the table
 * in model.c. */
#ifndef TSR_MODELS_FAMILY_H
#define TSR_MODELS_FAMILY_H

#include "graph/op.h"
#include "models/config.h"
#include "models/model.h"

struct tsr__program;

/* The names of keys for sizes; NULL if the family lacks the key. */
typedef struct tsr__model_keys {
  const char *layers, *width, *inner, *heads, *kv_heads;
} tsr__model_keys;

typedef struct tsr__model_family {
  const tsr__model_keys *keys;
  /* Read the keys of a description of this family. Records failures in the config. */
  void (*read)(tsr__config *config, tsr_model *model);
  /* Declare parameters and buffers, in the order of the modules. */
  void (*declare)(struct tsr__program *program);
  /* Run the model below its head: from token ids (batch, sequence) to hidden states (batch, sequence, width). */
  tsr__tensor_id (*body)(struct tsr__program *program, tsr__tensor_id ids);
  /* Run one block, from hidden states to hidden states. */
  tsr__tensor_id (*block)(struct tsr__program *program, uint32_t layer, tsr__tensor_id hidden);
  tsr__op_kind eager_attention; /* the op that attends if no single kernel does */
  bool has_position_table;      /* sequences are limited to model->positions */
  /* Whether positions and mask are inputs of a recomputed block. Otherwise the block reads them, and the rotary
   * table, from the program, and they live as long as the block. */
  bool passes_positions;
} tsr__model_family;

typedef struct tsr__model_class_row {
  const char *type;         /* model_type */
  const char *architecture; /* transformers' class with a head for language */
  const tsr__model_family *family;
} tsr__model_class_row;

const tsr__model_class_row *tsr__model_class_row_of(tsr__model_class class);

extern const tsr__model_family tsr__gpt2_family, tsr__llama_family;

#endif
