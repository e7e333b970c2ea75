/* weights.c - see weights.h. Names are those of transformers 4.57: modeling_gpt2.py, _llama.py, _mistral.py,
 * _qwen2.py. */
#include "models/weights.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- the names of a model's parameters ---- */

typedef struct lister {
  tsr__weight_list *weights;
  bool has_failed;
  char prefix[TSR__WEIGHT_NAME_BYTES / 2]; /* of the names that follow: "transformer.h.3." */
} lister;

static void add(lister *l, const char *part, const char *last, tsr__tensor_id tensor) {
  tsr__weight weight = {.tensor = tensor};
  if (!tensor) return;
  int length = snprintf(weight.name, sizeof weight.name, "%s%s.%s", l->prefix, part, last);
  assert(length > 0 && (size_t)length < sizeof weight.name);
  (void)length;
  if (!TSR__VECTOR_PUSH(l->weights, weight)) l->has_failed = true;
}

/* peft/utils/save_and_load.py: the name of the module in the wrapped model, without the adapter's own name. */
static void add_adapter(lister *l, const char *part, const char *last, tsr__tensor_id tensor) {
  tsr__weight weight = {.tensor = tensor, .is_adapter = true};
  if (!tensor) return;
  int length =
      snprintf(weight.name, sizeof weight.name, "base_model.model.%s%s.%s", l->prefix, part, last);
  assert(length > 0 && (size_t)length < sizeof weight.name);
  (void)length;
  if (!TSR__VECTOR_PUSH(l->weights, weight)) l->has_failed = true;
}

static void add_linear(lister *l, const char *part, const tsr__model_linear *linear) {
  add(l, part, "weight", linear->weight);
  add(l, part, "bias", linear->bias);
  add_adapter(l, part, "lora_A.weight", linear->lora_a);
  add_adapter(l, part, "lora_B.weight", linear->lora_b);
}

static void add_norm(lister *l, const char *part, const tsr__model_norm *norm) {
  add(l, part, "weight", norm->weight);
  add(l, part, "bias", norm->bias);
}

static void add_gpt2_layer(lister *l, const tsr__model_layer *layer) {
  add_norm(l, "ln_1", &layer->norm_1);
  add_linear(l, "attn.c_attn", &layer->qkv);
  add_linear(l, "attn.c_proj", &layer->out);
  add_norm(l, "ln_2", &layer->norm_2);
  add_linear(l, "mlp.c_fc", &layer->up);
  add_linear(l, "mlp.c_proj", &layer->down);
}

static void add_llama_layer(lister *l, const tsr__model_layer *layer) {
  add_linear(l, "self_attn.q_proj", &layer->q);
  add_linear(l, "self_attn.k_proj", &layer->k);
  add_linear(l, "self_attn.v_proj", &layer->v);
  add_linear(l, "self_attn.o_proj", &layer->out);
  add_linear(l, "mlp.gate_proj", &layer->gate);
  add_linear(l, "mlp.up_proj", &layer->up);
  add_linear(l, "mlp.down_proj", &layer->down);
  add_norm(l, "input_layernorm", &layer->norm_1);
  add_norm(l, "post_attention_layernorm", &layer->norm_2);
}

static bool is_gpt2(const tsr__program *p) {
  return p->model->class == TSR__CLASS_GPT2;
}

/* The prefix of names in the model below its head. */
static const char *base_of(const tsr__program *p) {
  return is_gpt2(p) ? "transformer." : "model.";
}

static void set_prefix(lister *l, const char *base, const char *list, uint64_t index) {
  (void)snprintf(l->prefix, sizeof l->prefix, "%s%s%llu.", base, list, (unsigned long long)index);
}

static void add_body(lister *l, const tsr__program *p) {
  bool gpt2 = is_gpt2(p);
  (void)snprintf(l->prefix, sizeof l->prefix, "%s", base_of(p));
  add(l, gpt2 ? "wte" : "embed_tokens", "weight", p->embedding);
  add(l, "wpe", "weight", p->position_embedding);
  for (uint64_t i = 0; i < p->model->layers; i++) {
    set_prefix(l, base_of(p), gpt2 ? "h." : "layers.", i);
    (gpt2 ? add_gpt2_layer : add_llama_layer)(l, &p->layers[i]);
  }
  (void)snprintf(l->prefix, sizeof l->prefix, "%s", base_of(p));
  add_norm(l, gpt2 ? "ln_f" : "norm", &p->last_norm);
}

/* Add the modules of "tessera_modules", which are lists next to the model. */
static void add_modules(lister *l, const tsr__program *p) {
  const tsr_model *m = p->model;
  for (size_t i = 0; i < m->module_count * m->layers; i++) {
    char part[TSR__WEIGHT_NAME_BYTES / 2];
    l->prefix[0] = '\0';
    (void)snprintf(part, sizeof part, "%s.%llu", m->modules[i / m->layers].name,
                   (unsigned long long)(i % m->layers));
    add_linear(l, part, &p->added[i]);
  }
}

int tsr__weights_list(const tsr__program *p, tsr__weight_list *out, tsr_error *error) {
  lister l = {.weights = out};
  assert(p->layers && p->embedding && !out->count);
  add_body(&l, p);
  l.prefix[0] = '\0';
  if (p->head.weight != p->embedding) add_linear(&l, "lm_head", &p->head);
  add_modules(&l, p);
  assert(l.has_failed || out->count == p->schedule->parameters.count);
  if (!l.has_failed) return 0;
  TSR__VECTOR_FREE(out);
  return tsr__fail_memory(error);
}

/* ---- types ---- */

static const struct {
  tsr__dtype dtype;
  tsr__array_type type;
} types[] = {{TSR__DTYPE_F32, TSR__ARRAY_F32},
             {TSR__DTYPE_BF16, TSR__ARRAY_BF16},
             {TSR__DTYPE_F16, TSR__ARRAY_F16},
             {TSR__DTYPE_F64, TSR__ARRAY_F64}};
enum { TYPES = sizeof types / sizeof *types };

tsr__array_type tsr__weight_array_type(tsr__dtype dtype) {
  size_t i = 0;
  while (i + 1 < TYPES && types[i].dtype != dtype) i++;
  assert(types[i].dtype == dtype);
  return types[i].type;
}

int tsr__weight_dtype(tsr__array_type type) {
  for (size_t i = 0; i < TYPES; i++)
    if (types[i].type == type) return (int)types[i].dtype;
  return -1;
}

/* ---- the arrays of a file ---- */

static const char *without_base(const tsr__program *p, const char *name) {
  size_t length = strlen(base_of(p));
  return strncmp(name, base_of(p), length) == 0 ? name + length : name;
}

static void shape_text(char *text, size_t room, const uint64_t *dim, uint32_t rank) {
  size_t used = (size_t)snprintf(text, room, "[");
  for (uint32_t i = 0; i < rank && used < room; i++)
    used += (size_t)snprintf(text + used, room - used, "%s%llu", i ? ", " : "",
                             (unsigned long long)dim[i]);
  if (used < room) (void)snprintf(text + used, room - used, "]");
}

static int check_array(const tsr__program *p, const tsr__weight *weight, const tsr__array *array,
                       tsr_error *error) {
  tsr__shape shape = tsr__schedule_shape(p->schedule, weight->tensor);
  uint64_t wanted[TSR__ARRAY_RANK];
  char has[96], needs[96];
  bool is_equal = array->rank == shape.rank;
  for (uint32_t i = 0; i < shape.rank; i++) {
    wanted[i] = shape.dim[i];
    is_equal = is_equal && array->dim[i] == wanted[i];
  }
  shape_text(has, sizeof has, array->dim, array->rank);
  shape_text(needs, sizeof needs, wanted, shape.rank);
  if (!is_equal)
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "array \"%s\" has the shape %s, and the model needs %s", array->name, has,
                     needs);
  if (tsr__weight_dtype(array->type) < 0)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "array \"%s\" is of type %s; weights can be F32, BF16, F16 or F64",
                     array->name, tsr__array_type_name(array->type));
  return 0;
}

int tsr__weights_find(const tsr__program *p, const tsr__weight *weight,
                      const tsr__weight_files *files, const tsr__array **array,
                      const tsr__safetensors **file, tsr_error *error) {
  *array = tsr__weight_files_find(files, weight->name, file);
  if (!*array) *array = tsr__weight_files_find(files, without_base(p, weight->name), file);
  if (*array) return check_array(p, weight, *array, error);
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "there is no array \"%s\", which the model needs", weight->name);
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), wanted = strlen(end);
  return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

/* Whether an array may be ignored: constants that the model makes itself, and a head tied to the embedding. */
static bool is_known(const tsr__program *p, const char *name) {
  static const char *const buffers[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
    if (ends_with(name, buffers[i])) return true;
  return p->model->is_tied && strcmp(name, "lm_head.weight") == 0;
}

static bool is_listed(const tsr__program *p, const tsr__weight_list *weights, const char *name) {
  for (size_t i = 0; i < weights->count; i++)
    if (strcmp(weights->items[i].name, name) == 0 ||
        strcmp(without_base(p, weights->items[i].name), name) == 0)
      return true;
  return is_known(p, name);
}

int tsr__weights_check_names(const tsr__program *p, const tsr__weight_list *weights,
                             const tsr__weight_files *files, tsr_error *error) {
  for (size_t i = 0; i < files->file_count; i++)
    for (size_t k = 0; k < files->files[i].count; k++) {
      const char *name = files->files[i].arrays[k].name;
      if (!is_listed(p, weights, name))
        return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                         "array \"%.100s\" is not part of the model", name);
    }
  return 0;
}
