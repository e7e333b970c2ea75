/* model.c - models by name, and from the text of a config.json.
 *
 * A name stands for a description too, one of the few lines of `named`: what it leaves out is what
 * the class takes by default (transformers' configuration_gpt2.py, _llama.py, _mistral.py,
 * _qwen2.py), so a model that is read and one that is named cannot differ in rules. */
#include "engine/model.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

/* Past these nothing trains, and products of sizes could overflow. */
enum { MOST_LAYERS = 4096, LARGEST_SIZE = 1 << 24 };

static const struct {
  const char *name, *config;
} named[] = {
    {"gpt2", "{\"model_type\":\"gpt2\"}"},
    {"gpt2-medium", "{\"model_type\":\"gpt2\",\"n_embd\":1024,\"n_layer\":24,\"n_head\":16}"},
    {"gpt2-large", "{\"model_type\":\"gpt2\",\"n_embd\":1280,\"n_layer\":36,\"n_head\":20}"},
    {"gpt2-xl", "{\"model_type\":\"gpt2\",\"n_embd\":1600,\"n_layer\":48,\"n_head\":25}"},
    {"llama-2-7b", "{\"model_type\":\"llama\",\"max_position_embeddings\":4096}"},
    {"llama-2-13b",
     "{\"model_type\":\"llama\",\"max_position_embeddings\":4096,\"hidden_size\":5120,"
     "\"intermediate_size\":13824,\"num_hidden_layers\":40,\"num_attention_heads\":40}"},
    {"llama-2-70b",
     "{\"model_type\":\"llama\",\"max_position_embeddings\":4096,\"hidden_size\":8192,"
     "\"intermediate_size\":28672,\"num_hidden_layers\":80,\"num_attention_heads\":64,"
     "\"num_key_value_heads\":8}"},
    {"llama-3-8b",
     "{\"model_type\":\"llama\",\"vocab_size\":128256,\"max_position_embeddings\":8192,"
     "\"intermediate_size\":14336,\"num_key_value_heads\":8}"},
    {"llama-3-70b",
     "{\"model_type\":\"llama\",\"vocab_size\":128256,\"max_position_embeddings\":8192,"
     "\"hidden_size\":8192,\"intermediate_size\":28672,\"num_hidden_layers\":80,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8}"},
    {"llama-3-405b",
     "{\"model_type\":\"llama\",\"vocab_size\":128256,\"max_position_embeddings\":131072,"
     "\"hidden_size\":16384,\"intermediate_size\":53248,\"num_hidden_layers\":126,"
     "\"num_attention_heads\":128,\"num_key_value_heads\":8}"},
    {"llama-3.2-1b",
     "{\"model_type\":\"llama\",\"vocab_size\":128256,\"max_position_embeddings\":131072,"
     "\"hidden_size\":2048,\"intermediate_size\":8192,\"num_hidden_layers\":16,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"head_dim\":64,"
     "\"tie_word_embeddings\":true}"},
    {"mistral-7b", "{\"model_type\":\"mistral\"}"},
    {"qwen2.5-7b",
     "{\"model_type\":\"qwen2\",\"vocab_size\":152064,\"hidden_size\":3584,"
     "\"intermediate_size\":18944,\"num_hidden_layers\":28,\"num_attention_heads\":28,"
     "\"num_key_value_heads\":4}"},
};
enum { NAMED = sizeof named / sizeof *named };

const char *const *tsr_model_names(void) {
  static const char *const names[NAMED + 1] = {
      "gpt2",         "gpt2-medium", "gpt2-large", "gpt2-xl",     "llama-2-7b",
      "llama-2-13b",  "llama-2-70b", "llama-3-8b", "llama-3-70b", "llama-3-405b",
      "llama-3.2-1b", "mistral-7b",  "qwen2.5-7b", NULL};
  return names;
}

/* ---- reading ---- */

typedef struct reader {
  const json_t *root;
  tsr_error *error;
  int status; /* sticky */
} reader;

static const json_t *find(const reader *r, const char *key) {
  const json_t *value = json_object_get(r->root, key);
  return value && !json_is_null(value) ? value : NULL;
}

static void refuse(reader *r, tsr_status status, const char *key, const char *why) {
  if (!r->status) r->status = tsr__fail(r->error, status, TSR_OFFSET_NONE, "\"%s\" %s", key, why);
}

static uint64_t read_size(reader *r, const char *key, uint64_t fallback) {
  const json_t *value = find(r, key);
  if (!value) return fallback;
  json_int_t number = json_integer_value(value);
  if (!json_is_integer(value) || number < 1 || number > LARGEST_SIZE) {
    refuse(r, TSR_ERROR_FORMAT, key, "is not a size");
    return fallback;
  }
  return (uint64_t)number;
}

static bool read_bool(reader *r, const char *key, bool fallback) {
  const json_t *value = find(r, key);
  if (!value) return fallback;
  if (!json_is_boolean(value)) refuse(r, TSR_ERROR_FORMAT, key, "is neither true nor false");
  return json_is_true(value);
}

/* Whether a dropout of that probability does anything. */
static bool read_dropout(reader *r, const char *key, bool fallback) {
  const json_t *value = find(r, key);
  if (!value) return fallback;
  double p = json_number_value(value);
  if (!json_is_number(value) || !(p >= 0 && p < 1))
    refuse(r, TSR_ERROR_FORMAT, key, "is not a probability");
  return p > 0;
}

static void must_be_off(reader *r, const char *key) {
  if (read_bool(r, key, false)) refuse(r, TSR_ERROR_UNSUPPORTED, key, "is not modelled");
}

static tsr__activation read_activation(reader *r, const char *key, const char *fallback) {
  static const struct {
    const char *name;
    tsr__activation activation;
  } known[] = {{"gelu_new", TSR__ACTIVATION_GELU_EAGER},
               {"gelu", TSR__ACTIVATION_GELU},
               {"gelu_pytorch_tanh", TSR__ACTIVATION_GELU},
               {"silu", TSR__ACTIVATION_SILU},
               {"swish", TSR__ACTIVATION_SILU}};
  const json_t *value = find(r, key);
  const char *name = value ? json_string_value(value) : fallback;
  for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].name, name) == 0) return known[i].activation;
  refuse(r, TSR_ERROR_UNSUPPORTED, key, "names an activation function that is not modelled");
  return TSR__ACTIVATION_GELU;
}

static void read_module(reader *r, tsr_model *model, const json_t *value) {
  static const char *const keys[] = {"name", "kind", "features", "bias"};
  reader inner = {value, r->error, r->status};
  tsr__module *module = &model->modules[model->module_count];
  const char *name = json_string_value(json_object_get(value, "name"));
  const char *kind = json_string_value(json_object_get(value, "kind"));
  const char *key;
  json_t *unused;
  json_object_foreach((json_t *)(uintptr_t)value, key, unused) {
    bool is_known = false;
    (void)unused;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) is_known |= strcmp(keys[i], key) == 0;
    if (!is_known) refuse(&inner, TSR_ERROR_FORMAT, key, "means nothing in tessera_modules");
  }
  if (!name || !kind || strcmp(kind, "linear-per-layer") != 0)
    refuse(&inner, TSR_ERROR_UNSUPPORTED, "tessera_modules",
           "may add modules with a name whose kind is \"linear-per-layer\"");
  (void)snprintf(module->name, sizeof module->name, "%s", name ? name : "");
  module->features = read_size(&inner, "features", 4 * model->width);
  module->has_bias = read_bool(&inner, "bias", true);
  model->module_count++;
  r->status = inner.status;
}

static void read_modules(reader *r, tsr_model *model) {
  const json_t *list = find(r, "tessera_modules");
  if (!list) return;
  if (!json_is_array(list) || json_array_size(list) > TSR__MODULES)
    refuse(r, TSR_ERROR_FORMAT, "tessera_modules", "is not a list of at most 8 modules");
  for (size_t i = 0; !r->status && i < json_array_size(list); i++)
    read_module(r, model, json_array_get(list, i));
}

static void read_gpt2(reader *r, tsr_model *model) {
  model->vocabulary = read_size(r, "vocab_size", 50257);
  model->positions = read_size(r, "n_positions", 1024);
  model->width = read_size(r, "n_embd", 768);
  model->layers = read_size(r, "n_layer", 12);
  model->heads = model->kv_heads = read_size(r, "n_head", 12);
  model->inner = read_size(r, "n_inner", 4 * model->width);
  model->head_width = model->width / model->heads;
  model->activation = read_activation(r, "activation_function", "gelu_new");
  model->has_embedding_dropout = read_dropout(r, "embd_pdrop", true);
  model->has_residual_dropout = read_dropout(r, "resid_pdrop", true);
  model->has_attention_dropout = read_dropout(r, "attn_pdrop", true);
  model->is_tied = read_bool(r, "tie_word_embeddings", true);
  model->uses_cache = read_bool(r, "use_cache", true);
  must_be_off(r, "add_cross_attention");
  must_be_off(r, "scale_attn_by_inverse_layer_idx");
  must_be_off(r, "reorder_and_upcast_attn");
  if (model->width % model->heads) refuse(r, TSR_ERROR_FORMAT, "n_head", "does not divide n_embd");
}

static void read_llama(reader *r, tsr_model *model) {
  bool is_mistral = model->class == TSR__MISTRAL, is_qwen = model->class == TSR__QWEN2;
  model->vocabulary = read_size(r, "vocab_size", is_qwen ? 151936 : 32000);
  model->positions = read_size(r, "max_position_embeddings",
                               is_mistral ? 131072
                               : is_qwen  ? 32768
                                          : 2048);
  model->width = read_size(r, "hidden_size", 4096);
  model->layers = read_size(r, "num_hidden_layers", 32);
  model->heads = read_size(r, "num_attention_heads", 32);
  model->kv_heads = read_size(r, "num_key_value_heads",
                              is_mistral ? 8
                              : is_qwen  ? 32
                                         : model->heads);
  model->head_width = read_size(r, "head_dim", model->width / model->heads);
  model->inner = read_size(r, "intermediate_size", is_mistral ? 14336 : is_qwen ? 22016 : 11008);
  model->activation = read_activation(r, "hidden_act", "silu");
  model->is_tied = read_bool(r, "tie_word_embeddings", false);
  model->uses_cache = read_bool(r, "use_cache", true);
  model->has_attention_dropout = read_dropout(r, "attention_dropout", false);
  model->has_qkv_bias = is_qwen;
  if (model->class == TSR__LLAMA) {
    model->has_qkv_bias = model->has_out_bias = read_bool(r, "attention_bias", false);
    model->has_mlp_bias = read_bool(r, "mlp_bias", false);
  }
  /* Absent is the class's default, null is none. */
  if (is_mistral && !json_is_null(json_object_get(r->root, "sliding_window")))
    model->window = read_size(r, "sliding_window", 4096);
  if (is_qwen) must_be_off(r, "use_sliding_window");
  if (model->activation != TSR__ACTIVATION_SILU)
    refuse(r, TSR_ERROR_UNSUPPORTED, "hidden_act", "is not silu, which alone is modelled");
  if (model->heads % model->kv_heads)
    refuse(r, TSR_ERROR_FORMAT, "num_key_value_heads", "does not divide num_attention_heads");
  if (!find(r, "head_dim") && model->width % model->heads)
    refuse(r, TSR_ERROR_FORMAT, "num_attention_heads", "does not divide hidden_size");
  if (model->head_width % 2) refuse(r, TSR_ERROR_FORMAT, "head_dim", "is odd");
  if (find(r, "quantization_config"))
    refuse(r, TSR_ERROR_UNSUPPORTED, "quantization_config", "is not modelled");
}

static void read_model(reader *r, tsr_model *model) {
  static const char *const types[TSR__CLASS_COUNT] = {"gpt2", "llama", "mistral", "qwen2"};
  const char *type = json_string_value(json_object_get(r->root, "model_type"));
  size_t class = 0;
  while (type && class < TSR__CLASS_COUNT && strcmp(types[class], type) != 0) class ++;
  if (!type || class == TSR__CLASS_COUNT) {
    refuse(r, type ? TSR_ERROR_UNSUPPORTED : TSR_ERROR_FORMAT, "model_type",
           "is not gpt2, llama, mistral or qwen2");
    return;
  }
  model->class = (tsr__class) class;
  (void)snprintf(model->name, sizeof model->name, "%s", type);
  if (model->class == TSR__GPT2)
    read_gpt2(r, model);
  else
    read_llama(r, model);
  if (model->layers > MOST_LAYERS) refuse(r, TSR_ERROR_LIMIT, "number of layers", "is beyond 4096");
  read_modules(r, model);
}

int tsr_model_read(const char *json, size_t size_bytes, tsr_model **out, tsr_error *error) {
  json_error_t problem;
  json_t *root = json_loadb(json, size_bytes, JSON_REJECT_DUPLICATES, &problem);
  if (!root && json_error_code(&problem) == json_error_out_of_memory)
    return tsr__fail_memory(error);
  if (!root)
    return tsr__fail(error, TSR_ERROR_FORMAT,
                     (uint64_t)(problem.position > 0 ? problem.position : 0),
                     "not a model description: %s", problem.text);
  reader r = {root, error, 0};
  tsr_model *model = TSR__NEW(tsr_model);
  if (!json_is_object(root))
    r.status = tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                         "not a model description: the text is no JSON object");
  else if (model)
    read_model(&r, model);
  else
    r.status = tsr__fail_memory(error);
  json_decref(root);
  if (r.status) {
    tsr_model_free(model);
    return r.status;
  }
  *out = model;
  return 0;
}

int tsr_model_named(const char *name, tsr_model **out, tsr_error *error) {
  for (size_t i = 0; i < NAMED; i++) {
    if (strcmp(named[i].name, name) != 0) continue;
    int status = tsr_model_read(named[i].config, strlen(named[i].config), out, error);
    if (status == 0) (void)snprintf((*out)->name, sizeof(*out)->name, "%s", name);
    return status;
  }
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                   "no model is called '%s'; there are gpt2, gpt2-medium, gpt2-large, gpt2-xl, "
                   "llama-2-7b, -13b, -70b, llama-3-8b, -70b, -405b, llama-3.2-1b, mistral-7b, "
                   "qwen2.5-7b",
                   name);
}

void tsr_model_free(tsr_model *model) {
  tsr__free(model);
}

const char *tsr_model_name(const tsr_model *model) {
  return model->name;
}
