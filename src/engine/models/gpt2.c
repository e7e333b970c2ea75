/* gpt2.c - GPT-2, as in transformers/models/gpt2/modeling_gpt2.py.
 *
 *   ids ─► token embedding + position embedding ─► dropout ─► blocks ─► norm ─► hidden states
 *
 *   block:      x + attention(norm_1(x)), then x + mlp(norm_2(x))
 *   attention:  one projection to q, k and v ─► attend ─► projection ─► dropout
 *   mlp:        up ─► GELU ─► down ─► dropout
 *
 * Each function below is a forward() of that file, with the same variables, because these decide how long tensors
 * live: a variable holds its tensor until the function returns, or until something else is assigned to it.
 * tsr__scope_unbind stands for that assignment. */
#include <assert.h>

#include "models/program.h"

static void read_config(tsr__config *config, tsr_model *model) {
  model->vocabulary = tsr__config_size(config, "vocab_size", 50257);
  model->positions = tsr__config_size(config, "n_positions", 1024);
  model->width = tsr__config_size(config, "n_embd", 768);
  model->layers = tsr__config_size(config, "n_layer", 12);
  model->heads = model->kv_heads = tsr__config_size(config, "n_head", 12);
  model->inner = tsr__config_size(config, "n_inner", 4 * model->width);
  model->head_width = model->width / model->heads;
  model->activation = tsr__config_activation(config, "activation_function", "gelu_new");
  model->embedding_dropout = tsr__config_dropout(config, "embd_pdrop", 0.1);
  model->residual_dropout = tsr__config_dropout(config, "resid_pdrop", 0.1);
  model->attention_dropout = tsr__config_dropout(config, "attn_pdrop", 0.1);
  model->epsilon = tsr__config_epsilon(config, "layer_norm_epsilon", 1e-5);
  model->is_tied = tsr__config_bool(config, "tie_word_embeddings", true);
  model->uses_cache = tsr__config_bool(config, "use_cache", true);
  tsr__config_must_be_off(config, "add_cross_attention");
  tsr__config_must_be_off(config, "scale_attn_by_inverse_layer_idx");
  if (!tsr__config_bool(config, "scale_attn_weights", true))
    tsr__config_refuse(config, TSR_ERROR_UNSUPPORTED, "scale_attn_weights",
                       "is false, which is not modelled");
  tsr__config_must_be_off(config, "reorder_and_upcast_attn");
  if (model->width % model->heads)
    tsr__config_refuse(config, TSR_ERROR_FORMAT, "n_head", "does not divide n_embd");
}

/* ---- parameters ---- */

/* The causal mask as a table, and the number that it masks with. */
static void declare_causal(tsr__program *p, tsr__model_layer *layer) {
  uint64_t positions = p->model->positions;
  layer->causal = tsr__tensor_declare(p->tape, TSR__DTYPE_BOOL, TSR__SHAPE(positions, positions),
                                      TSR_CATEGORY_BUFFER);
  (void)tsr__tensor_declare(p->tape, p->loaded_dtype, TSR__SCALAR, TSR_CATEGORY_BUFFER);
}

static void declare(tsr__program *p) {
  const tsr_model *m = p->model;
  p->embedding = tsr__program_parameter(p, TSR__SHAPE(m->vocabulary, m->width));
  p->position_embedding = tsr__program_parameter(p, TSR__SHAPE(m->positions, m->width));
  for (uint64_t i = 0; i < m->layers; i++) {
    tsr__model_layer *layer = &p->layers[i];
    layer->norm_1 = tsr__program_declare_norm(p, TSR__PLACE_NORM_1, true);
    layer->qkv = tsr__program_declare_conv1d(p, TSR__PLACE_QKV, m->width, 3 * m->width);
    layer->out = tsr__program_declare_conv1d(p, TSR__PLACE_OUT, m->width, m->width);
    if (!p->is_own) declare_causal(p, layer);
    layer->norm_2 = tsr__program_declare_norm(p, TSR__PLACE_NORM_2, true);
    layer->up = tsr__program_declare_conv1d(p, TSR__PLACE_UP, m->width, m->inner);
    layer->down = tsr__program_declare_conv1d(p, TSR__PLACE_DOWN, m->inner, m->width);
  }
  p->last_norm = tsr__program_declare_norm(p, TSR__PLACE_LAST_NORM, true);
  tsr__program_declare_head(p);
}

/* ---- the block ---- */

/* A dropout of probability 0 returns its input, which nothing reads afterwards. */
static tsr__tensor_id dropout(tsr__program *p, tsr__tensor_id x, double probability) {
  tsr__tape *t = p->tape;
  probability = tsr__program_dropout(p, probability);
  bool is_in_place = probability > 0 && tsr__program_asks_in_place(p, TSR_IN_PLACE_DROPOUT);
  tsr__op_attributes attributes = {
      .dropout = probability, .spent = is_in_place, .is_in_place = is_in_place};
  tsr__scope_enter(t, TSR__PLACE_DROPOUT);
  if (probability > 0) x = tsr__op_apply(t, TSR__OP_DROPOUT, &attributes, &x, 1, NULL);
  return tsr__scope_leave(t, x);
}

/* Let each row of hidden (batch, rows, width) attend to the rows before it and to itself. */
static tsr__tensor_id attention(tsr__program *p, const tsr__model_layer *layer,
                                tsr__tensor_id hidden) {
  tsr__tape *t = p->tape;
  const tsr_model *m = p->model;
  tsr__tensor_id parts[TSR__OP_OUTPUTS]; /* q, k, v: first as parts of one tensor, then by head */
  tsr__scope_enter(t, TSR__PLACE_ATTENTION);
  tsr__tensor_id qkv = tsr__program_linear(p, &layer->qkv, hidden);
  (void)tsr__op_apply(t, TSR__OP_SPLIT, NULL, &qkv, 1, parts);
  tsr__scope_unbind(t, qkv);
  for (uint32_t i = 1; i <= 3; i++) { /* keys, values, then queries */
    tsr__tensor_id *part = &parts[i % 3], view = tsr__tensor_heads(t, *part, m->heads);
    view = tsr__scope_bind(t, view);
    tsr__scope_unbind(t, *part);
    *part = view;
  }
  tsr__tensor_id q = parts[0], k = parts[1], v = parts[2];
  if (p->uses_cache) {
    k = tsr__program_cache(p, TSR__PLACE_CACHE_KEYS, parts[1], parts[1]);
    tsr__scope_unbind(t, parts[1]);
    v = tsr__program_cache(p, TSR__PLACE_CACHE_VALUES, parts[2], k);
    tsr__scope_unbind(t, parts[2]);
  }
  if (layer->keys) {
    k = tsr__program_keep(p, layer->keys, parts[1]);
    tsr__scope_unbind(t, parts[1]);
    v = tsr__program_keep(p, layer->values, parts[2]);
    tsr__scope_unbind(t, parts[2]);
  }
  tsr__tensor_id result = tsr__program_attention(p, q, k, v, layer->causal, !p->uses_cache);
  tsr__tensor_id projected = tsr__program_linear(p, &layer->out, result);
  tsr__scope_unbind(t, result);
  tsr__tensor_id dropped = dropout(p, projected, m->residual_dropout);
  tsr__scope_unbind(t, projected);
  return tsr__program_leave_attention(p, dropped);
}

/* Apply GELU, as one kernel or as the eight operations of the model's class. */
static tsr__tensor_id activate(tsr__program *p, tsr__tensor_id x) {
  tsr__tape *t = p->tape;
  bool is_eager = p->model->activation == TSR__MODEL_GELU_EAGER && !p->options->gelu_fused;
  tsr__op_kind fused = p->model->activation == TSR__MODEL_SILU ? TSR__OP_SILU : TSR__OP_GELU_FUSED;
  bool is_in_place =
      !is_eager &&
      tsr__program_asks_in_place(p, fused == TSR__OP_SILU ? TSR_IN_PLACE_SILU : TSR_IN_PLACE_GELU);
  tsr__op_attributes attributes = {.is_tanh = p->model->activation != TSR__MODEL_GELU,
                                   .spent = is_in_place,
                                   .is_in_place = is_in_place};
  tsr__scope_enter(t, is_eager ? TSR__PLACE_ACTIVATION_EAGER : TSR__PLACE_ACTIVATION);
  return tsr__scope_leave(
      t, tsr__op_apply(t, is_eager ? TSR__OP_GELU : fused, &attributes, &x, 1, NULL));
}

static tsr__tensor_id mlp(tsr__program *p, const tsr__model_layer *layer, tsr__tensor_id hidden) {
  tsr__tape *t = p->tape;
  tsr__scope_enter(t, TSR__PLACE_MLP);
  tsr__tensor_id wide = tsr__program_linear(p, &layer->up, hidden);
  tsr__tensor_id active = activate(p, wide);
  tsr__scope_unbind(t, wide);
  tsr__tensor_id narrow = tsr__program_linear(p, &layer->down, active);
  tsr__scope_unbind(t, active);
  tsr__tensor_id dropped = dropout(p, narrow, p->model->residual_dropout);
  tsr__scope_unbind(t, narrow);
  return tsr__scope_leave(t, dropped);
}

/* residual = hidden + attention(norm_1(hidden)); result = residual + mlp(norm_2(residual)) */
static tsr__tensor_id block(tsr__program *p, uint32_t index, tsr__tensor_id hidden) {
  tsr__tape *t = p->tape;
  const tsr__model_layer *layer = &p->layers[index];
  assert(index < p->model->layers);
  tsr__scope_enter(t, TSR__PLACE_BLOCK);
  tsr__tensor_id normal = tsr__program_norm(p, &layer->norm_1, hidden);
  tsr__tensor_id attended = attention(p, layer, normal);
  tsr__tensor_id residual = tsr__program_add(p, attended, hidden, 1);
  tsr__scope_unbind(t, normal);
  normal = tsr__program_norm(p, &layer->norm_2, residual);
  tsr__tensor_id fed = mlp(p, layer, normal);
  tsr__tensor_id result = tsr__program_add(p, residual, fed, 2);
  tsr__scope_unbind(t, normal);
  return tsr__scope_leave(t, result);
}

/* ---- the model ---- */

/* Make the positions of one sequence. With tessera's own rule book, make one position for each token of the batch,
 * so that gradients of positions are added up in the order of tokens, whatever the batch size. */
static tsr__tensor_id place_ids(tsr__program *p) {
  tsr__tape *t = p->tape;
  if (!p->is_own || t->status) return p->position_ids;
  tsr__layout layout = tsr__layout_broadcast(tsr__tensor_layout(t, p->position_ids),
                                             TSR__SHAPE(p->batch, p->sequence));
  return tsr__scope_bind(t, tsr__tensor_view(t, p->position_ids, layout));
}

static tsr__tensor_id body(tsr__program *p, tsr__tensor_id ids) {
  tsr__tape *t = p->tape;
  tsr__scope_enter(t, TSR__PLACE_BODY);
  tsr__tensor_id words = tsr__program_embedding(p, TSR__PLACE_TOKEN_EMBEDDING, p->embedding, ids);
  tsr__program_positions(p);
  tsr__tensor_id positions =
      tsr__program_embedding(p, TSR__PLACE_POSITION_EMBEDDING, p->position_embedding, place_ids(p));
  tsr__tensor_id sum = tsr__program_add(p, words, positions, 1);
  tsr__program_mask(p);
  tsr__tensor_id hidden = dropout(p, sum, p->model->embedding_dropout);
  tsr__scope_unbind(t, sum);
  tsr__tensor_id last = tsr__program_blocks(p, hidden, true);
  tsr__tensor_id normal = tsr__program_norm(p, &p->last_norm, last);
  tsr__program_note_hidden(p, normal);
  return tsr__scope_leave(t, normal);
}

static const tsr__model_keys size_keys = {
    .layers = "n_layer", .width = "n_embd", .inner = "n_inner", .heads = "n_head"};

const tsr__model_family tsr__gpt2_family = {.keys = &size_keys,
                                            .read = read_config,
                                            .declare = declare,
                                            .body = body,
                                            .block = block,
                                            .eager_attention = TSR__OP_ATTENTION_GPT2,
                                            .has_position_table = true,
                                            .passes_positions = true};
