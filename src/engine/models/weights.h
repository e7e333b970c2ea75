/* weights.h - transformers' names for the parameters of a model, and the arrays of a file that contain them.
 *
 * GPT-2's "transformer.h.0.attn.c_attn.weight" is (inputs, outputs), because it is a Conv1D; the linear layers of
 * the Llama family are (outputs, inputs). The program's parameters have the same shapes, so nothing is transposed.
 * Files of the model without its head, which are also common, lack "transformer." or "model.". */
#ifndef TSR_MODELS_WEIGHTS_H
#define TSR_MODELS_WEIGHTS_H

#include "models/program.h"
#include "models/safetensors.h"

/* Longer than any name of a parameter. */
enum { TSR__WEIGHT_NAME_BYTES = 160 };

typedef struct tsr__weight {
  tsr__tensor_id tensor;
  bool is_adapter;                   /* of LoRA; its name is that of peft's files */
  char name[TSR__WEIGHT_NAME_BYTES]; /* its name in a saved model with its head */
} tsr__weight;

typedef TSR__VECTOR(tsr__weight) tsr__weight_list;

/* List the parameters, each once; tied weights have the embedding's name, as in files of transformers. The caller
 * frees the vector. Fails with TSR_ERROR_MEMORY. */
int tsr__weights_list(const tsr__program *program, tsr__weight_list *out, tsr_error *error);

/* Find the array of a parameter. Fails with TSR_ERROR_FORMAT if it is absent or has another shape than the
 * parameter, and with TSR_ERROR_UNSUPPORTED if its type is not a floating-point type; the message names it. */
int tsr__weights_find(const tsr__program *program, const tsr__weight *weight,
                      const tsr__weight_files *files, const tsr__array **array,
                      const tsr__safetensors **file, tsr_error *error);
/* Fails with TSR_ERROR_FORMAT if the files have an array that is not part of the model. Buffers that older versions
 * of transformers saved, and a tied head, are allowed. */
int tsr__weights_check_names(const tsr__program *program, const tsr__weight_list *weights,
                             const tsr__weight_files *files, tsr_error *error);

/* Convert between the type of a tensor and of an array with its elements; -1 if a weight cannot have that type. */
tsr__array_type tsr__weight_array_type(tsr__dtype dtype);
int tsr__weight_dtype(tsr__array_type type);

#endif
