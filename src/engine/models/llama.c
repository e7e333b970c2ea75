/* llama.c - Llama, Mistral and Qwen2, as in transformers; they differ in defaults and biases.
 *
 *   ids ─► token embedding ─► blocks ─► norm ─► hidden states
 *
 *   block:      x + attention(norm_1(x)), then x + mlp(norm_2(x))
 *   attention:  projections to q, k and v ─► rotary position embedding ─► attend ─► projection
 *   mlp:        down(SiLU(gate(x)) * up(x))
 *
 * gpt2.c explains how functions and variables are written. */
#include <assert.h>

#include "models/program.h"

/* The defaults of a class, for keys that a description lacks. */
static const struct {
  uint64_t vocabulary, positions, inner;
  uint64_t kv_heads; /* 0: equal to the number of heads */
} defaults[TSR__CLASS_COUNT] = {
    [TSR__CLASS_LLAMA] = {32000, 2048, 11008, 0},
    [TSR__CLASS_MISTRAL] = {32000, 131072, 14336, 8},
    [TSR__CLASS_QWEN2] = {151936, 32768, 22016, 32},
};

static void check_config(tsr__config *config, const tsr_model *model) {
  if (model->activation != TSR__MODEL_SILU)
    tsr__config_refuse(config, TSR_ERROR_UNSUPPORTED, "hidden_act",
                       "is not silu, the only one that is modelled");
  if (model->heads % model->kv_heads)
    tsr__config_refuse(config, TSR_ERROR_FORMAT, "num_key_value_heads",
                       "does not divide num_attention_heads");
  if (!tsr__config_find(config, "head_dim") && model->width % model->heads)
    tsr__config_refuse(config, TSR_ERROR_FORMAT, "num_attention_heads",
                       "does not divide hidden_size");
  if (model->head_width % 2) tsr__config_refuse(config, TSR_ERROR_FORMAT, "head_dim", "is odd");
  if (tsr__config_find(config, "quantization_config"))
    tsr__config_refuse(config, TSR_ERROR_UNSUPPORTED, "quantization_config", "is not modelled");
}

static void read_config(tsr__config *config, tsr_model *model) {
  tsr__model_class class = model->class;
  uint64_t kv_heads = defaults[class].kv_heads;
  assert(defaults[class].vocabulary);
  model->vocabulary = tsr__config_size(config, "vocab_size", defaults[class].vocabulary);
  model->positions = tsr__config_size(config, "max_position_embeddings", defaults[class].positions);
  model->width = tsr__config_size(config, "hidden_size", 4096);
  model->layers = tsr__config_size(config, "num_hidden_layers", 32);
  model->heads = tsr__config_size(config, "num_attention_heads", 32);
  model->kv_heads =
      tsr__config_size(config, "num_key_value_heads", kv_heads ? kv_heads : model->heads);
  model->head_width = tsr__config_size(config, "head_dim", model->width / model->heads);
  model->inner = tsr__config_size(config, "intermediate_size", defaults[class].inner);
  model->activation = tsr__config_activation(config, "hidden_act", "silu");
  model->is_tied = tsr__config_bool(config, "tie_word_embeddings", false);
  model->uses_cache = tsr__config_bool(config, "use_cache", true);
  model->attention_dropout = tsr__config_dropout(config, "attention_dropout", 0);
  model->epsilon = tsr__config_epsilon(config, "rms_norm_eps", 1e-6);
  tsr__rotary_read(config, model->head_width, model->positions, &model->rotary);
  model->has_qkv_bias = class == TSR__CLASS_QWEN2;
  if (class == TSR__CLASS_LLAMA) {
    model->has_qkv_bias = model->has_out_bias = tsr__config_bool(config, "attention_bias", false);
    model->has_mlp_bias = tsr__config_bool(config, "mlp_bias", false);
  }
  /* An absent key has the class's default; null means no window. */
  if (class == TSR__CLASS_MISTRAL && !json_is_null(json_object_get(config->root, "sliding_window")))
    model->window = tsr__config_size(config, "sliding_window", 4096);
  if (class == TSR__CLASS_QWEN2) tsr__config_must_be_off(config, "use_sliding_window");
  check_config(config, model);
}

/* ---- parameters ---- */

static void declare(tsr__program *p) {
  const tsr_model *m = p->model;
  uint64_t width = m->width, queries = m->heads * m->head_width, keys = m->kv_heads * m->head_width;
  bool has_qkv_bias = m->has_qkv_bias, has_mlp_bias = m->has_mlp_bias;
  p->embedding = tsr__program_parameter(p, TSR__SHAPE(m->vocabulary, width));
  for (uint64_t i = 0; i < m->layers; i++) {
    tsr__model_layer *layer = &p->layers[i];
    layer->q = tsr__program_declare_linear(p, TSR__PLACE_Q, width, queries, has_qkv_bias);
    layer->k = tsr__program_declare_linear(p, TSR__PLACE_K, width, keys, has_qkv_bias);
    layer->v = tsr__program_declare_linear(p, TSR__PLACE_V, width, keys, has_qkv_bias);
    layer->out = tsr__program_declare_linear(p, TSR__PLACE_OUT, queries, width, m->has_out_bias);
    layer->gate = tsr__program_declare_linear(p, TSR__PLACE_GATE, width, m->inner, has_mlp_bias);
    layer->up = tsr__program_declare_linear(p, TSR__PLACE_UP, width, m->inner, has_mlp_bias);
    layer->down = tsr__program_declare_linear(p, TSR__PLACE_DOWN, m->inner, width, has_mlp_bias);
    layer->norm_1 = tsr__program_declare_norm(p, TSR__PLACE_NORM_1, false);
    layer->norm_2 = tsr__program_declare_norm(p, TSR__PLACE_NORM_2, false);
  }
  p->last_norm = tsr__program_declare_norm(p, TSR__PLACE_LAST_NORM, false);
  /* Rotary frequencies. */
  p->frequencies = tsr__tensor_declare(p->tape, TSR__DTYPE_F32, TSR__SHAPE(m->head_width / 2),
                                       TSR_CATEGORY_BUFFER);
  tsr__program_declare_head(p);
}

/* ---- the block ---- */

/* Project the hidden states; the result is a view by head, (batch, heads, rows, width). */
static tsr__tensor_id project(tsr__program *p, const tsr__model_linear *linear,
                              tsr__tensor_id hidden, uint64_t heads) {
  tsr__tape *t = p->tape;
  tsr__tensor_id flat = tsr__program_linear(p, linear, hidden);
  tsr__tensor_id view = tsr__scope_bind(t, tsr__tensor_heads(t, flat, heads));
  tsr__scope_unbind(t, flat);
  return view;
}

/* PyTorch's ops turn queries and keys one by one, so that adapters may train one without the other: then nothing of the other
 * is saved for its gradient, and a cast of it has no backward. */
static void train_turned(tsr__program *p, tsr__tensor_id from, tsr__tensor_id turned) {
  if (p->is_own || p->tape->status) return;
  tsr__tensor_at(p->tape, turned)->requires_grad &=
      tsr__tensor_at(p->tape, tsr__tensor_root(p->tape, from))->requires_grad;
}

static tsr__tensor_id attention(tsr__program *p, const tsr__model_layer *layer,
                                tsr__tensor_id hidden) {
  tsr__tape *t = p->tape;
  const tsr_model *m = p->model;
  tsr__tensor_id turned[TSR__OP_OUTPUTS];
  tsr__scope_enter(t, TSR__PLACE_ATTENTION);
  tsr__tensor_id q = project(p, &layer->q, hidden, m->heads);
  tsr__tensor_id k = project(p, &layer->k, hidden, m->kv_heads);
  tsr__tensor_id v = project(p, &layer->v, hidden, m->kv_heads);
  tsr__trace_enter(t, TSR__PLACE_ROTARY);
  (void)tsr__op_apply(t, TSR__OP_ROTARY, NULL, (tsr__tensor_id[]){q, k, p->cosine, p->sine}, 4,
                      turned);
  tsr__trace_leave(t);
  train_turned(p, q, turned[0]);
  train_turned(p, k, turned[1]);
  tsr__scope_unbind(t, q);
  tsr__scope_unbind(t, k);
  q = turned[0];
  k = turned[1];
  if (p->uses_cache) {
    k = tsr__program_cache(p, TSR__PLACE_CACHE_KEYS, turned[1], turned[1]);
    tsr__tensor_id cached = tsr__program_cache(p, TSR__PLACE_CACHE_VALUES, v, k);
    tsr__scope_unbind(t, turned[1]);
    tsr__scope_unbind(t, v);
    v = cached;
  }
  if (layer->keys) {
    tsr__tensor_id kept = tsr__program_keep(p, layer->values, v);
    k = tsr__program_keep(p, layer->keys, turned[1]);
    tsr__scope_unbind(t, turned[1]);
    tsr__scope_unbind(t, v);
    v = kept;
  }
  tsr__tensor_id result = tsr__program_attention(p, q, k, v, 0, false);
  tsr__tensor_id out = tsr__program_linear(p, &layer->out, result);
  tsr__scope_unbind(t, result);
  return tsr__program_leave_attention(p, out);
}

/* Apply an op of one or two operands that may overwrite the first one, because nothing reads it afterwards. */
static tsr__tensor_id apply(tsr__program *p, tsr__op_kind kind, tsr_in_place which,
                            tsr__tensor_id first, tsr__tensor_id second) {
  bool is_in_place = tsr__program_asks_in_place(p, which);
  tsr__op_attributes attributes = {.spent = is_in_place, .is_in_place = is_in_place};
  return tsr__op_apply(p->tape, kind, &attributes, (tsr__tensor_id[]){first, second},
                       second ? 2 : 1, NULL);
}

static tsr__tensor_id activate(tsr__program *p, tsr__tensor_id x) {
  tsr__scope_enter(p->tape, TSR__PLACE_ACTIVATION);
  return tsr__scope_leave(p->tape, apply(p, TSR__OP_SILU, TSR_IN_PLACE_SILU, x, 0));
}

static tsr__tensor_id mlp(tsr__program *p, const tsr__model_layer *layer, tsr__tensor_id x) {
  tsr__tape *t = p->tape;
  tsr__scope_enter(t, TSR__PLACE_MLP);
  tsr__tensor_id gate = tsr__program_linear(p, &layer->gate, x);
  tsr__tensor_id active = activate(p, gate);
  tsr__scope_unbind(t, gate);
  tsr__tensor_id up = tsr__program_linear(p, &layer->up, x);
  tsr__tensor_id product = apply(p, TSR__OP_MUL, TSR_IN_PLACE_PRODUCT, active, up);
  tsr__scope_unbind(t, active);
  tsr__scope_unbind(t, up);
  tsr__tensor_id down = tsr__program_linear(p, &layer->down, product);
  tsr__scope_unbind(t, product);
  return tsr__scope_leave(t, down);
}

/* Run the MLP as one op, which needs gate and up at the same time. */
static tsr__tensor_id fused_mlp(tsr__program *p, const tsr__model_layer *layer, tsr__tensor_id x) {
  tsr__tape *t = p->tape;
  tsr__scope_enter(t, TSR__PLACE_MLP);
  tsr__tensor_id gate = tsr__program_linear(p, &layer->gate, x);
  tsr__tensor_id up = tsr__program_linear(p, &layer->up, x);
  tsr__tensor_id product = apply(p, TSR__OP_SILU_GATE, TSR_IN_PLACE_SILU, gate, up);
  tsr__scope_unbind(t, gate);
  tsr__scope_unbind(t, up);
  tsr__tensor_id down = tsr__program_linear(p, &layer->down, product);
  tsr__scope_unbind(t, product);
  return tsr__scope_leave(t, down);
}

static tsr__tensor_id block(tsr__program *p, uint32_t index, tsr__tensor_id hidden) {
  tsr__tape *t = p->tape;
  const tsr__model_layer *layer = &p->layers[index];
  assert(index < p->model->layers);
  tsr__scope_enter(t, TSR__PLACE_BLOCK);
  tsr__tensor_id normal = tsr__program_norm(p, &layer->norm_1, hidden);
  tsr__tensor_id attended = attention(p, layer, normal);
  tsr__scope_unbind(t, normal);
  tsr__tensor_id residual = tsr__program_add(p, hidden, attended, 2);
  tsr__scope_unbind(t, attended);
  normal = tsr__program_norm(p, &layer->norm_2, residual);
  tsr__tensor_id fed = p->is_own ? fused_mlp(p, layer, normal) : mlp(p, layer, normal);
  tsr__scope_unbind(t, normal);
  tsr__tensor_id result = tsr__program_add(p, residual, fed, 2);
  return tsr__scope_leave(t, result);
}

/* ---- the model ---- */

/* Make program->cosine and ->sine, bound to the calling function. */
static void rotary_table(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__tensor_id tables[TSR__OP_OUTPUTS];
  tsr__op_attributes attributes = {.features = p->model->head_width,
                                   .factor = p->model->rotary.magnitude,
                                   .dtype = (uint8_t)p->dtype};
  tsr__scope_enter(t, TSR__PLACE_ROTARY_TABLE);
  p->cosine = tsr__op_apply(t, TSR__OP_ROTARY_TABLE, &attributes,
                            (tsr__tensor_id[]){p->position_ids, p->frequencies}, 2, tables);
  p->sine = tables[1];
  tsr__tensor_hold(
      t, p->sine); /* a function returns one result; the caller takes the other one here */
  p->cosine = tsr__scope_leave(t, p->cosine);
  (void)tsr__scope_bind(t, p->sine);
}

static tsr__tensor_id body(tsr__program *p, tsr__tensor_id ids) {
  tsr__tape *t = p->tape;
  tsr__scope_enter(t, TSR__PLACE_BODY);
  tsr__tensor_id hidden = tsr__program_embedding(p, TSR__PLACE_TOKEN_EMBEDDING, p->embedding, ids);
  tsr__program_positions(p);
  tsr__program_mask(p);
  rotary_table(p);
  tsr__tensor_id last = tsr__program_blocks(p, hidden, false);
  tsr__tensor_id normal = tsr__program_norm(p, &p->last_norm, last);
  tsr__scope_unbind(t, last);
  tsr__program_note_hidden(p, normal);
  return tsr__scope_leave(t, normal);
}

static const tsr__model_keys size_keys = {.layers = "num_hidden_layers",
                                          .width = "hidden_size",
                                          .inner = "intermediate_size",
                                          .heads = "num_attention_heads",
                                          .kv_heads = "num_key_value_heads"};

const tsr__model_family tsr__llama_family = {.keys = &size_keys,
                                             .read = read_config,
                                             .declare = declare,
                                             .body = body,
                                             .block = block,
                                             .eager_attention = TSR__OP_ATTENTION_LLAMA};
