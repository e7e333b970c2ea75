/* model.c - reads models by name, and from the text of a config.json.
 *
 * A name stands for a short description, one of the lines of `named`; keys that it lacks have the defaults of the
 * class (transformers' configuration_gpt2.py, _llama.py, _mistral.py, _qwen2.py). So named models and descriptions
 * from files follow the same rules. The keys of a family are read in gpt2.c or llama.c. */
#include "models/model.h"
#include "base/json.h"
#include "traced/step_graph.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/memory.h"
#include "models/family.h"
#include "models/llmc.h"
#include "tessera/unstable/runs.h"
#include "tessera/unstable/suggest.h"

/* No model that can be trained is larger. */
enum { MOST_LAYERS = 4096 };

static const struct {
  const char *name, *hub, *config; /* hub: where Hugging Face has its weights; NULL: nowhere */
} named[] = {
    {"gpt2", "openai-community/gpt2", "{\"model_type\":\"gpt2\"}"},
    {"gpt2-medium", "openai-community/gpt2-medium",
     "{\"model_type\":\"gpt2\",\"n_embd\":1024,\"n_layer\":24,\"n_head\":16}"},
    {"gpt2-large", "openai-community/gpt2-large",
     "{\"model_type\":\"gpt2\",\"n_embd\":1280,\"n_layer\":36,\"n_head\":20}"},
    {"gpt2-xl", "openai-community/gpt2-xl",
     "{\"model_type\":\"gpt2\",\"n_embd\":1600,\"n_layer\":48,\"n_head\":25}"},
    {"llama-2-7b", "meta-llama/Llama-2-7b-hf",
     "{\"model_type\":\"llama\",\"max_position_embeddings\":4096}"},
    {"llama-2-13b", "meta-llama/Llama-2-13b-hf",
     "{\"model_type\":\"llama\",\"max_position_embeddings\":4096,\"hidden_size\":5120,"
     "\"intermediate_size\":13824,\"num_hidden_layers\":40,\"num_attention_heads\":40}"},
    {"llama-2-70b", "meta-llama/Llama-2-70b-hf",
     "{\"model_type\":\"llama\",\"max_position_embeddings\":4096,\"hidden_size\":8192,"
     "\"intermediate_size\":28672,\"num_hidden_layers\":80,\"num_attention_heads\":64,"
     "\"num_key_value_heads\":8}"},
    {"llama-3-8b", "meta-llama/Meta-Llama-3-8B",
     "{\"model_type\":\"llama\",\"rope_theta\":500000,\"vocab_size\":128256,\"max_"
     "position_embeddings\":8192,"
     "\"intermediate_size\":14336,\"num_key_value_heads\":8}"},
    {"llama-3-70b", "meta-llama/Meta-Llama-3-70B",
     "{\"model_type\":\"llama\",\"rope_theta\":500000,\"vocab_size\":128256,\"max_"
     "position_embeddings\":8192,"
     "\"hidden_size\":8192,\"intermediate_size\":28672,\"num_hidden_layers\":80,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8}"},
    {"llama-3-405b", "meta-llama/Llama-3.1-405B",
     "{\"model_type\":\"llama\",\"rope_theta\":500000,\"vocab_size\":128256,\"max_"
     "position_embeddings\":131072,"
     "\"hidden_size\":16384,\"intermediate_size\":53248,\"num_hidden_layers\":126,"
     "\"num_attention_heads\":128,\"num_key_value_heads\":8}"},
    {"llama-3.2-1b", "meta-llama/Llama-3.2-1B",
     "{\"model_type\":\"llama\",\"rope_theta\":500000,\"vocab_size\":128256,\"max_"
     "position_embeddings\":131072,"
     "\"hidden_size\":2048,\"intermediate_size\":8192,\"num_hidden_layers\":16,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"head_dim\":64,"
     "\"tie_word_embeddings\":true,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32,"
     "\"low_freq_factor\":1,\"high_freq_factor\":4,"
     "\"original_max_position_embeddings\":8192}}"},
    {"llama-3.2-3b", "meta-llama/Llama-3.2-3B",
     "{\"model_type\":\"llama\",\"rope_theta\":500000,\"vocab_size\":128256,\"max_"
     "position_embeddings\":131072,"
     "\"hidden_size\":3072,\"intermediate_size\":8192,\"num_hidden_layers\":28,"
     "\"num_attention_heads\":24,\"num_key_value_heads\":8,\"head_dim\":128,"
     "\"tie_word_embeddings\":true,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32,"
     "\"low_freq_factor\":1,\"high_freq_factor\":4,"
     "\"original_max_position_embeddings\":8192}}"},
    {"mistral-7b", "mistralai/Mistral-7B-v0.1", "{\"model_type\":\"mistral\"}"},
    {"qwen2.5-7b", "Qwen/Qwen2.5-7B",
     "{\"model_type\":\"qwen2\",\"rope_theta\":1000000,\"vocab_size\":152064,\"hidden_size\":3584,"
     "\"intermediate_size\":18944,\"num_hidden_layers\":28,\"num_attention_heads\":28,"
     "\"num_key_value_heads\":4}"},
    /* Not a published model: small enough to learn a text on a laptop, byte by byte. */
    {"gpt2-bytes", NULL,
     "{\"model_type\":\"gpt2\",\"vocab_size\":256,\"n_positions\":256,\"n_embd\":128,"
     "\"n_layer\":4,\"n_head\":4,\"resid_pdrop\":0,\"embd_pdrop\":0,\"attn_pdrop\":0,"
     "\"bos_token_id\":null,\"eos_token_id\":null}"},
};
enum { NAMED = sizeof named / sizeof *named };

const char *const *tsr_model_names(void) {
  static const char *const names[NAMED + 1] = {
      "gpt2",        "gpt2-medium",  "gpt2-large",   "gpt2-xl",
      "llama-2-7b",  "llama-2-13b",  "llama-2-70b",  "llama-3-8b",
      "llama-3-70b", "llama-3-405b", "llama-3.2-1b", "llama-3.2-3b",
      "mistral-7b",  "qwen2.5-7b",   "gpt2-bytes",   NULL};
  return names;
}

/* ---- classes ---- */

static const tsr__model_class_row classes[TSR__CLASS_COUNT] = {
    [TSR__CLASS_GPT2] = {"gpt2", "GPT2LMHeadModel", &tsr__gpt2_family},
    [TSR__CLASS_LLAMA] = {"llama", "LlamaForCausalLM", &tsr__llama_family},
    [TSR__CLASS_MISTRAL] = {"mistral", "MistralForCausalLM", &tsr__llama_family},
    [TSR__CLASS_QWEN2] = {"qwen2", "Qwen2ForCausalLM", &tsr__llama_family},
};

const tsr__model_class_row *tsr__model_class_row_of(tsr__model_class class) {
  assert(class < TSR__CLASS_COUNT && classes[class].family);
  return &classes[class];
}

/* ---- reading ---- */

static void read_module(tsr__config *config, tsr_model *model, const json_t *value) {
  static const char *const keys[] = {"name", "kind", "features", "bias"};
  tsr__config inner = {value, config->error, config->status};
  assert(model->module_count < TSR__MODEL_MODULES);
  tsr__model_module *module = &model->modules[model->module_count];
  const char *name = json_string_value(json_object_get(value, "name"));
  const char *kind = json_string_value(json_object_get(value, "kind"));
  const char *key;
  json_t *unused;
  json_object_foreach((json_t *)(uintptr_t)value, key, unused) {
    bool is_known = false;
    (void)unused;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) is_known |= strcmp(keys[i], key) == 0;
    if (!is_known)
      tsr__config_refuse(&inner, TSR_ERROR_FORMAT, key, "is not a key of tessera_modules");
  }
  if (!name || !kind || strcmp(kind, "linear-per-layer") != 0)
    tsr__config_refuse(&inner, TSR_ERROR_UNSUPPORTED, "tessera_modules",
                       "may only add modules that have a name and the kind \"linear-per-layer\"");
  (void)snprintf(module->name, sizeof module->name, "%s", name ? name : "");
  module->features = tsr__config_size(&inner, "features", 4 * model->width);
  module->has_bias = tsr__config_bool(&inner, "bias", true);
  model->module_count++;
  config->status = inner.status;
}

static void read_modules(tsr__config *config, tsr_model *model) {
  const json_t *list = tsr__config_find(config, "tessera_modules");
  if (!list) return;
  if (!json_is_array(list) || json_array_size(list) > TSR__MODEL_MODULES)
    tsr__config_refuse(config, TSR_ERROR_FORMAT, "tessera_modules",
                       "is not a list of at most 8 modules");
  for (size_t i = 0; !config->status && i < json_array_size(list); i++)
    read_module(config, model, json_array_get(list, i));
}

static bool ends_with(const char *text, const char *ending) {
  size_t length = strlen(text), end = strlen(ending);
  return length >= end && strcmp(text + length - end, ending) == 0;
}

/* A model whose blocks are under another head (a classifier, a reward) has other outputs and another loss. */
static void check_architecture(tsr__config *config) {
  const json_t *names = json_object_get(config->root, "architectures"), *name;
  size_t i;
  bool is_causal = json_array_size(names) == 0;
  json_array_foreach(names, i, name) {
    const char *text = json_is_string(name) ? json_string_value(name) : "";
    is_causal |= ends_with(text, "ForCausalLM") || ends_with(text, "LMHeadModel");
  }
  if (!is_causal)
    tsr__config_refuse(config, TSR_ERROR_UNSUPPORTED, "architectures",
                       "does not name a causal language model (...ForCausalLM, ...LMHeadModel)");
}

static void read_model(tsr__config *config, tsr_model *model) {
  const char *type = json_string_value(json_object_get(config->root, "model_type"));
  size_t class = 0;
  while (type && class < TSR__CLASS_COUNT && strcmp(classes[class].type, type) != 0) class ++;
  if (!type || class == TSR__CLASS_COUNT) {
    tsr__config_refuse(
        config, type ? TSR_ERROR_UNSUPPORTED : TSR_ERROR_FORMAT, "model_type",
        type ? "is not gpt2, llama, mistral or qwen2; others are traced with PyTorch: "
               "pip install torch transformers, then tessera trace CONFIG -o FILE "
               "(in Python: tessera.trace)"
             : "is not gpt2, llama, mistral or qwen2");
    return;
  }
  model->class = (tsr__model_class) class;
  (void)snprintf(model->name, sizeof model->name, "%s", type);
  model->initial_deviation = tsr__config_number(config, "initializer_range", 0.02);
  classes[class].family->read(config, model);
  if (model->layers > MOST_LAYERS)
    tsr__config_refuse(config, TSR_ERROR_LIMIT, "number of layers", "is beyond 4096");
  read_modules(config, model);
  check_architecture(config);
}

/* Keep the description as it was read, with the class name that transformers looks for. */
static int keep_config(json_t *root, tsr_model *model, tsr_error *error) {
  const size_t flags = JSON_INDENT(2) | JSON_ENSURE_ASCII;
  const char *architecture = tsr__model_class_row_of(model->class)->architecture;
  if (!json_object_get(root, "architectures") &&
      json_object_set_new(root, "architectures", json_pack("[s]", architecture)))
    return tsr__fail_memory(error);
  tsr__buffer text = {0};
  (void)tsr__json_append(&text, root, flags);
  tsr__buffer_append(&text, "\n", 2); /* with its zero byte */
  model->config = text.data;
  if (text.failed) return tsr__fail_memory(error);
  tsr__sha256_text(text.data, strlen(text.data), model->sha256);
  return 0;
}

/* Read the header of a checkpoint of llm.c. */
static int read_checkpoint(const char *bytes, size_t size_bytes, tsr_model **out,
                           tsr_error *error) {
  tsr__llmc_header header;
  tsr__buffer json = {0};
  int status = tsr__llmc_read((const unsigned char *)bytes, size_bytes, &header, error);
  if (status) return status;
  tsr__llmc_config(&header, &json);
  status = json.failed ? tsr__fail_memory(error) : tsr_model_read(json.data, json.size, out, error);
  tsr__buffer_release(&json);
  return status;
}

/* Read a traced step instead of a description. */
static int read_graph(const json_t *root, const char *text, size_t size_bytes, tsr_model **out,
                      tsr_error *error) {
  tsr_model *model = TSR__NEW(tsr_model);
  if (!model) return tsr__fail_memory(error);
  int status = tsr__step_graph_read(root, &model->graph, error);
  (void)snprintf(model->name, sizeof model->name, "step graph");
  tsr__sha256_text(text, size_bytes, model->sha256);
  if (status)
    tsr_model_free(model);
  else
    *out = model;
  return status;
}

/* Whether the text begins as a pickle of protocol 2 or later, which a snapshot from PyTorch is. */
static bool is_pickle(const char *text, size_t size_bytes) {
  return size_bytes >= 2 && (unsigned char)text[0] == 0x80 && text[1] >= 2 && text[1] <= 5;
}

static int refuse_snapshot(const char *what, tsr_error *error) {
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "%s, not a model: 'tessera peak' and 'tessera why' explain a snapshot, and "
                   "'tessera plan MODEL --from' compares one with its model",
                   what);
}

int tsr_model_read(const char *json, size_t size_bytes, tsr_model **out, tsr_error *error) {
  if (is_pickle(json, size_bytes))
    return refuse_snapshot("a pickle, such as a memory snapshot", error);
  if (tsr__llmc_is((const unsigned char *)json, size_bytes))
    return read_checkpoint(json, size_bytes, out, error);
  json_t *root = NULL;
  const char *what = tsr__step_graph_begins(json, size_bytes)
                         ? "step graph: damaged or incomplete JSON"
                         : "not a model description";
  int loaded = tsr_json_load(json, size_bytes, JSON_REJECT_DUPLICATES, what, &root, error);
  if (loaded) return loaded;
  if (tsr__step_graph_is(root)) {
    int status = read_graph(root, json, size_bytes, out, error);
    json_decref(root);
    return status;
  }
  if (json_object_get(root, "device_traces")) {
    json_decref(root);
    return refuse_snapshot("a memory snapshot", error);
  }
  tsr__config config = {root, error, 0};
  tsr_model *model = TSR__NEW(tsr_model);
  if (!json_is_object(root))
    config.status = tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                              "not a model description: not a JSON object");
  else if (model)
    read_model(&config, model);
  else
    config.status = tsr__fail_memory(error);
  if (!config.status) config.status = keep_config(root, model, error);
  json_decref(root);
  if (config.status) {
    tsr_model_free(model);
    return config.status;
  }
  assert(model->layers && model->heads && model->kv_heads && model->heads % model->kv_heads == 0);
  *out = model;
  return 0;
}

bool tsr_model_is_hub_id(const char *name) {
  static const char *const endings[] = {".json", ".graph", ".bin", ".py"};
  const char *slash = strchr(name, '/');
  if (!slash || slash == name || !slash[1] || *name == '.') return false;
  for (const char *at = name; *at; at++)
    if (at != slash && !isalnum((unsigned char)*at) && !strchr("-_.", *at)) return false;
  const char *ending = strrchr(slash, '.');
  for (size_t i = 0; ending && i < sizeof endings / sizeof *endings; i++)
    if (strcasecmp(ending, endings[i]) == 0) return false;
  return true;
}

/* The built-in model with exactly this name, but for case and what stands between the letters; NULL if absent. */
static const char *nearest_model(const char *name, size_t most_edits) {
  tsr_suggestion nearest = tsr_suggestion_start(name, strlen(name));
  for (size_t i = 0; i < NAMED; i++) tsr_suggestion_offer(&nearest, named[i].name);
  return nearest.best && nearest.distance <= most_edits ? nearest.best : NULL;
}

static int fail_hub(const char *name, tsr_error *error) {
  const char *known = nearest_model(strchr(name, '/') + 1, 0);
  char built_in[80] = "";
  if (known) (void)snprintf(built_in, sizeof built_in, "; '%s' is built in", known);
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                   "no such file; for a model of Hugging Face, save its config.json "
                   "(https://huggingface.co/%s/resolve/main/config.json) and pass that file%s",
                   name, built_in);
}

static int fail_unknown(const char *name, tsr_error *error) {
  const char *meant = nearest_model(name, SIZE_MAX);
  char question[80] = "the";
  if (meant) (void)snprintf(question, sizeof question, "did you mean '%s'? The", meant);
  return tsr__fail(
      error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
      "no model '%s'; %s models are gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-2-7b, -13b, "
      "-70b, llama-3-8b, -70b, -405b, llama-3.2-1b, -3b, mistral-7b, qwen2.5-7b, gpt2-bytes; pass "
      "the config.json of any other",
      name, question);
}

int tsr_model_named(const char *name, tsr_model **out, tsr_error *error) {
  for (size_t i = 0; i < NAMED; i++) {
    if (strcmp(named[i].name, name) != 0) continue;
    int status = tsr_model_read(named[i].config, strlen(named[i].config), out, error);
    if (status) return status;
    (void)snprintf((*out)->name, sizeof(*out)->name, "%s", name);
    (*out)->hub = named[i].hub;
    return 0;
  }
  return tsr_model_is_hub_id(name) ? fail_hub(name, error) : fail_unknown(name, error);
}

int tsr__model_check_computed(const tsr_model *model, tsr_error *error) {
  if (model->graph)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "a step graph contains what a step allocates, but not how to compute it: it "
                     "can be simulated, not trained");
  if (model->rotary.type != TSR__ROTARY_UNKNOWN) return 0;
  return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                   "rotary positions of the type \"%s\" (rope_scaling) are not computed; linear, "
                   "dynamic, yarn and llama3 are",
                   model->rotary.name);
}

tsr_model *tsr__model_share(const tsr_model *model) {
  tsr_model *shared = (tsr_model *)(uintptr_t)model;
  atomic_fetch_add(&shared->more_owners, 1);
  return shared;
}

void tsr_model_free(tsr_model *model) {
  if (!model || atomic_fetch_sub(&model->more_owners, 1) > 0) return;
  tsr__free(model->config);
  tsr__step_graph_free(model->graph);
  tsr__free(model);
}

bool tsr_model_is_checkpoint(const char *bytes, size_t size_bytes) {
  return tsr__llmc_is((const unsigned char *)bytes, size_bytes);
}

int tsr_model_is_foreign(const char *json, size_t size_bytes, bool *out) {
  json_t *root = NULL;
  tsr_model *model = NULL;
  int status = tsr__llmc_is((const unsigned char *)json, size_bytes) ||
                       tsr__step_graph_begins(json, size_bytes)
                   ? TSR_ERROR_FORMAT
                   : tsr_model_read(json, size_bytes, &model, NULL);
  tsr_model_free(model);
  if (status == TSR_ERROR_MEMORY) return status;
  if (status == TSR_ERROR_UNSUPPORTED && tsr_json_load(json, size_bytes, JSON_REJECT_DUPLICATES,
                                                       NULL, &root, NULL) == TSR_ERROR_MEMORY)
    return TSR_ERROR_MEMORY;
  *out = root && json_is_string(json_object_get(root, "model_type")) && !tsr__step_graph_is(root);
  json_decref(root);
  return 0;
}

bool tsr_model_is_traced(const tsr_model *model) {
  return model->graph != NULL;
}

bool tsr_model_sizes_of(const tsr_model *m, tsr_model_sizes *out) {
  *out = (tsr_model_sizes){.layers = 0};
  if (m->graph) return false;
  *out = (tsr_model_sizes){.vocabulary = m->vocabulary,
                           .positions = m->positions,
                           .layers = m->layers,
                           .width = m->width,
                           .inner = m->inner,
                           .heads = m->heads,
                           .kv_heads = m->kv_heads,
                           .head_width = m->head_width,
                           .is_gated = m->activation == TSR__MODEL_SILU};
  assert(out->layers && out->width && out->heads % out->kv_heads == 0);
  return true;
}

const char *tsr_model_config(const tsr_model *model) {
  return model->config;
}

const char *tsr_model_name(const tsr_model *model) {
  return model->name;
}

static int read_object(const char *text, size_t size_bytes, void **out, tsr_error *error) {
  tsr_model *model = NULL;
  int status = tsr_model_read(text, size_bytes, &model, error);
  if (status == 0) *out = model;
  return status;
}

static int name_object(const char *text, size_t size_bytes, void **out, tsr_error *error) {
  (void)size_bytes;
  tsr_model *model = NULL;
  int status = tsr_model_named(text, &model, error);
  if (status == 0) *out = model;
  return status;
}

static void free_object(void *model) {
  tsr_model_free(model);
}

const tsr_parameter_type tsr_model_type = {
    .name = "model", .parse = read_object, .parse_typed = name_object, .free = free_object};
