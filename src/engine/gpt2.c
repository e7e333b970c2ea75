/* gpt2.c - GPT-2, as transformers/models/gpt2/modeling_gpt2.py has it.
 *
 * Each function below is one there; what it binds lives until it returns. A name that is bound anew
 * lets go of what it named: tsr__unbind. */
#include "engine/program.h"

#define GPT2 TSR__TRANSFORMERS "models/gpt2/modeling_gpt2.py"
#define NN   TSR__TORCH "nn/modules/"

static void declare(tsr__program *p) {
  const tsr_model *m = p->model;
  tsr__tape *t = p->tape;
  tsr__shape width = TSR__SHAPE(m->width);
#define PARAMETER(shape) tsr__declare(t, p->dtype, (shape), TSR_ROLE_PARAMETER)
  p->embedding = PARAMETER(TSR__SHAPE(m->vocabulary, m->width));
  p->position_embedding = PARAMETER(TSR__SHAPE(m->positions, m->width));
  for (uint64_t i = 0; i < m->layers; i++) {
    tsr__layer *layer = &p->layers[i];
    layer->norm_1.weight = PARAMETER(width);
    layer->norm_1.bias = PARAMETER(width);
    layer->qkv = tsr__declare_linear(p, m->width, 3 * m->width, true);
    layer->out = tsr__declare_linear(p, m->width, m->width, true);
    (void)tsr__declare(t, TSR__BOOL8, TSR__SHAPE(m->positions, m->positions), TSR_ROLE_BUFFER);
    (void)tsr__declare(t, TSR__F32, TSR__SCALAR, TSR_ROLE_BUFFER);
    layer->norm_2.weight = PARAMETER(width);
    layer->norm_2.bias = PARAMETER(width);
    layer->up = tsr__declare_linear(p, m->width, m->inner, true);
    layer->down = tsr__declare_linear(p, m->inner, m->width, true);
  }
  p->last_norm.weight = PARAMETER(width);
  p->last_norm.bias = PARAMETER(width);
  p->head = m->is_tied ? p->embedding : PARAMETER(TSR__SHAPE(m->vocabulary, m->width));
#undef PARAMETER
}

/* ---- modules of torch.nn ---- */

static tsr__tid call_layer_norm(tsr__program *p, const tsr__norm *norm, tsr__tid x) {
  tsr__tape *t = p->tape;
  tsr__enter_module(t, NN "normalization.py");
  tsr__line(t, 229);
  tsr__push_frame(t, "layer_norm", TSR__TORCH "nn/functional.py", 2901);
  return tsr__leave(t, TSR__APPLY(t, TSR__OP_LAYER_NORM, x, norm->weight, norm->bias));
}

static tsr__tid call_dropout(tsr__program *p, tsr__tid x, bool is_on) {
  tsr__tape *t = p->tape;
  if (!is_on) { /* answers its input */
    tsr__hold(t, x);
    return tsr__bind(t, x);
  }
  tsr__enter_module(t, NN "dropout.py");
  tsr__line(t, 73);
  tsr__push_frame(t, "dropout", TSR__TORCH "nn/functional.py", 1418);
  return tsr__leave(t, TSR__APPLY(t, TSR__OP_DROPOUT, x));
}

static tsr__tid call_embedding(tsr__program *p, tsr__tid weight, tsr__tid ids) {
  tsr__tape *t = p->tape;
  tsr__enter_module(t, NN "sparse.py");
  tsr__line(t, 192);
  tsr__push_frame(t, "embedding", TSR__TORCH "nn/functional.py", 2542);
  return tsr__leave(t, TSR__APPLY(t, TSR__OP_EMBEDDING, weight, ids));
}

/* ---- the block ---- */

static tsr__tid attention(tsr__program *p, const tsr__layer *layer, tsr__tid hidden) {
  tsr__tape *t = p->tape;
  const tsr_model *m = p->model;
  tsr__tid parts[TSR__OP_OUTPUTS];
  tsr__shape heads = TSR__SHAPE(p->batch, m->heads, p->sequence, m->head_width);
  tsr__enter_module(t, GPT2);
  tsr__line(t, 313);
  tsr__tid qkv = tsr__call_linear(p, &layer->qkv, hidden, true);
  (void)tsr__apply(t, TSR__OP_SPLIT, NULL, &qkv, 1, parts);
  tsr__unbind(t, qkv);
  for (uint32_t i = 0; i < 3; i++) {
    tsr__tid view = tsr__bind(t, tsr__view(t, parts[i], heads, false));
    tsr__unbind(t, parts[i]);
    parts[i] = view;
  }
  tsr__line(t, 326);
  for (uint32_t i = 1; i < 3 && p->uses_cache; i++) {
    tsr__tid cached = tsr__call_cache(p, parts[i], 118 + i);
    tsr__unbind(t, parts[i]);
    parts[i] = cached;
  }
  tsr__line(t, 345);
  tsr__tid result = tsr__call_attention(p, parts[0], parts[1], parts[2], !p->uses_cache);
  tsr__line(t, 358);
  tsr__tid projected = tsr__call_linear(p, &layer->out, result, true);
  tsr__unbind(t, result);
  tsr__line(t, 359);
  tsr__tid dropped = call_dropout(p, projected, m->has_residual_dropout);
  tsr__unbind(t, projected);
  return tsr__leave(t, dropped);
}

static tsr__tid call_activation(tsr__program *p, tsr__tid x) {
  tsr__tape *t = p->tape;
  tsr__activation activation = p->model->activation;
  if (p->options->gelu_fused && activation == TSR__ACTIVATION_GELU_EAGER)
    activation = TSR__ACTIVATION_GELU;
  tsr__enter_module(t, TSR__TRANSFORMERS "activations.py");
  tsr__line(t, activation == TSR__ACTIVATION_GELU_EAGER ? 62 : 51);
  tsr__op_kind kind = activation == TSR__ACTIVATION_GELU_EAGER ? TSR__OP_GELU
                      : activation == TSR__ACTIVATION_GELU     ? TSR__OP_GELU_FUSED
                                                               : TSR__OP_SILU;
  return tsr__leave(t, TSR__APPLY(t, kind, x));
}

static tsr__tid mlp(tsr__program *p, const tsr__layer *layer, tsr__tid hidden) {
  tsr__tape *t = p->tape;
  tsr__enter_module(t, GPT2);
  tsr__line(t, 374);
  tsr__tid wide = tsr__call_linear(p, &layer->up, hidden, true);
  tsr__line(t, 375);
  tsr__tid active = call_activation(p, wide);
  tsr__unbind(t, wide);
  tsr__line(t, 376);
  tsr__tid narrow = tsr__call_linear(p, &layer->down, active, true);
  tsr__unbind(t, active);
  tsr__line(t, 377);
  tsr__tid dropped = call_dropout(p, narrow, p->model->has_residual_dropout);
  tsr__unbind(t, narrow);
  return tsr__leave(t, dropped);
}

static tsr__tid block(tsr__program *p, uint32_t index, tsr__tid hidden) {
  tsr__tape *t = p->tape;
  const tsr__layer *layer = &p->layers[index];
  tsr__enter_module(t, GPT2);
  tsr__line(t, 412);
  tsr__tid normal = call_layer_norm(p, &layer->norm_1, hidden);
  tsr__line(t, 413);
  tsr__tid attended = attention(p, layer, normal);
  tsr__line(t, 424);
  tsr__tid residual = TSR__APPLY(t, TSR__OP_ADD, attended, hidden);
  tsr__unbind(t, normal);
  tsr__line(t, 448);
  normal = call_layer_norm(p, &layer->norm_2, residual);
  tsr__line(t, 449);
  tsr__tid forward = mlp(p, layer, normal);
  tsr__line(t, 451);
  tsr__tid result = TSR__APPLY(t, TSR__OP_ADD, residual, forward);
  tsr__unbind(t, normal);
  return tsr__leave(t, result);
}

/* ---- GPT2Model ---- */

static tsr__tid model(tsr__program *p, tsr__tid ids) {
  tsr__tape *t = p->tape;
  const tsr_model *m = p->model;
  tsr__attributes attributes = {.features = p->sequence};
  tsr__enter_module(t, GPT2);
  tsr__line(t, 855);
  tsr__tid embedded = call_embedding(p, p->embedding, ids);
  tsr__line(t, 859);
  tsr__tid positions = tsr__apply(t, TSR__OP_ARANGE, &attributes, NULL, 0, NULL);
  p->position_ids = tsr__bind(t, tsr__view(t, positions, TSR__SHAPE(1, p->sequence), true));
  tsr__line(t, 865);
  tsr__tid places = call_embedding(p, p->position_embedding, p->position_ids);
  tsr__line(t, 866);
  tsr__tid sum = TSR__APPLY(t, TSR__OP_ADD, embedded, places);
  tsr__line(t, 873);
  tsr__call_mask(p);
  tsr__line(t, 909);
  tsr__tid hidden = call_dropout(p, sum, m->has_embedding_dropout);
  tsr__unbind(t, sum);
  tsr__line(t, 925);
  tsr__tid last = tsr__call_blocks(p, hidden);
  tsr__unbind(t, hidden);
  tsr__line(t, 951);
  tsr__tid normal = call_layer_norm(p, &p->last_norm, last);
  tsr__note_hidden(p, normal);
  return tsr__leave(t, normal);
}

static tsr__head_lines head_lines(const tsr_model *unused) {
  (void)unused;
  return (tsr__head_lines){GPT2, 1068, 1092, 1097};
}

const tsr__family_row tsr__gpt2_family = {declare, model, block, head_lines};
