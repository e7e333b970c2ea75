/* llama.c - Llama, Mistral and Qwen2, whose modules differ in biases and line numbers alone.
 *
 * As transformers/models/llama/modeling_llama.py has them; see gpt2.c for the manner. */
#include "engine/program.h"

/* Where the calls stand in a class's file. */
typedef struct lines {
  const char *file;
  uint16_t mlp, q, k, v, rotary, cache, attention, out;     /* MLP and attention */
  uint16_t norm_1, self, add_1, norm_2, feed, add_2, scale; /* layer and norm */
  uint16_t embed, positions, mask, table, layer, norm;      /* model */
  uint16_t turned, cosine, body, head, loss;
} lines;

#define FILE_OF(name) TSR__TRANSFORMERS "models/" name "/modeling_" name ".py"
static const lines all_lines[TSR__CLASS_COUNT] = {
    [TSR__LLAMA] = {.file = FILE_OF("llama"),
                    .mlp = 155,
                    .q = 236,
                    .k = 237,
                    .v = 238,
                    .rotary = 241,
                    .cache = 246,
                    .attention = 252,
                    .out = 264,
                    .norm_1 = 292,
                    .self = 294,
                    .add_1 = 304,
                    .norm_2 = 308,
                    .feed = 309,
                    .add_2 = 310,
                    .scale = 67,
                    .embed = 368,
                    .positions = 375,
                    .mask = 382,
                    .table = 392,
                    .layer = 395,
                    .norm = 405,
                    .turned = 138,
                    .cosine = 103,
                    .body = 459,
                    .head = 473,
                    .loss = 477},
    [TSR__MISTRAL] = {.file = FILE_OF("mistral"),
                      .mlp = 47,
                      .q = 153,
                      .k = 154,
                      .v = 155,
                      .rotary = 158,
                      .cache = 163,
                      .attention = 169,
                      .out = 182,
                      .norm_1 = 229,
                      .self = 231,
                      .add_1 = 241,
                      .norm_2 = 245,
                      .feed = 246,
                      .add_2 = 247,
                      .scale = 201,
                      .embed = 341,
                      .positions = 348,
                      .mask = 356,
                      .table = 366,
                      .layer = 369,
                      .norm = 379,
                      .turned = 75,
                      .cosine = 300,
                      .body = 433,
                      .head = 447,
                      .loss = 451},
    [TSR__QWEN2] = {.file = FILE_OF("qwen2"),
                    .mlp = 46,
                    .q = 153,
                    .k = 154,
                    .v = 155,
                    .rotary = 158,
                    .cache = 163,
                    .attention = 169,
                    .out = 182,
                    .norm_1 = 232,
                    .self = 234,
                    .add_1 = 244,
                    .norm_2 = 248,
                    .feed = 249,
                    .add_2 = 250,
                    .scale = 201,
                    .embed = 345,
                    .positions = 352,
                    .mask = 372,
                    .table = 381,
                    .layer = 384,
                    .norm = 395,
                    .turned = 74,
                    .cosine = 303,
                    .body = 449,
                    .head = 463,
                    .loss = 467},
};
#undef FILE_OF

static const lines *lines_of(const tsr_model *model) {
  return &all_lines[model->class];
}

static void declare(tsr__program *p) {
  const tsr_model *m = p->model;
  tsr__tape *t = p->tape;
  uint64_t queries = m->heads * m->head_width, keys = m->kv_heads * m->head_width;
#define PARAMETER(...) tsr__declare(t, p->dtype, TSR__SHAPE(__VA_ARGS__), TSR_ROLE_PARAMETER)
  p->embedding = PARAMETER(m->vocabulary, m->width);
  for (uint64_t i = 0; i < m->layers; i++) {
    tsr__layer *layer = &p->layers[i];
    layer->q = tsr__declare_linear(p, m->width, queries, m->has_qkv_bias);
    layer->k = tsr__declare_linear(p, m->width, keys, m->has_qkv_bias);
    layer->v = tsr__declare_linear(p, m->width, keys, m->has_qkv_bias);
    layer->out = tsr__declare_linear(p, queries, m->width, m->has_out_bias);
    layer->gate = tsr__declare_linear(p, m->width, m->inner, m->has_mlp_bias);
    layer->up = tsr__declare_linear(p, m->width, m->inner, m->has_mlp_bias);
    layer->down = tsr__declare_linear(p, m->inner, m->width, m->has_mlp_bias);
    layer->norm_1.weight = PARAMETER(m->width);
    layer->norm_2.weight = PARAMETER(m->width);
  }
  p->last_norm.weight = PARAMETER(m->width);
  (void)tsr__declare(t, TSR__F32, TSR__SHAPE(m->head_width / 2), TSR_ROLE_BUFFER);
  p->head = m->is_tied ? p->embedding : PARAMETER(m->vocabulary, m->width);
#undef PARAMETER
}

static tsr__tid call_norm(tsr__program *p, const tsr__norm *norm, tsr__tid x) {
  tsr__tape *t = p->tape;
  tsr__enter_module(t, lines_of(p->model)->file);
  tsr__line(t, lines_of(p->model)->scale);
  return tsr__leave(t, TSR__APPLY(t, TSR__OP_RMS_NORM, x, norm->weight));
}

/* A projection as heads: (batch, heads, rows, width), a view. */
static tsr__tid project(tsr__program *p, const tsr__linear *linear, tsr__tid hidden,
                        uint64_t heads) {
  tsr__tape *t = p->tape;
  tsr__shape shape = TSR__SHAPE(p->batch, heads, p->sequence, p->model->head_width);
  tsr__tid flat = tsr__call_linear(p, linear, hidden, false);
  tsr__tid view = tsr__bind(t, tsr__view(t, flat, shape, false));
  tsr__unbind(t, flat);
  return view;
}

static tsr__tid attention(tsr__program *p, const tsr__layer *layer, tsr__tid hidden) {
  tsr__tape *t = p->tape;
  const tsr_model *m = p->model;
  const lines *at = lines_of(m);
  tsr__tid turned[TSR__OP_OUTPUTS];
  tsr__enter_module(t, at->file);
  tsr__line(t, at->q);
  tsr__tid q = project(p, &layer->q, hidden, m->heads);
  tsr__line(t, at->k);
  tsr__tid k = project(p, &layer->k, hidden, m->kv_heads);
  tsr__line(t, at->v);
  tsr__tid v = project(p, &layer->v, hidden, m->kv_heads);
  tsr__line(t, at->rotary);
  tsr__push_frame(t, "apply_rotary_pos_emb", at->file, at->turned);
  (void)tsr__apply(t, TSR__OP_ROTARY, NULL, (tsr__tid[]){q, k, p->cosine, p->sine}, 4, turned);
  tsr__pop_frames(t, 1);
  tsr__unbind(t, q);
  tsr__unbind(t, k);
  k = turned[1];
  if (p->uses_cache) {
    tsr__line(t, at->cache);
    k = tsr__call_cache(p, turned[1], 119);
    tsr__tid cached = tsr__call_cache(p, v, 120);
    tsr__unbind(t, turned[1]);
    tsr__unbind(t, v);
    v = cached;
  }
  tsr__line(t, at->attention);
  tsr__tid result = tsr__call_attention(p, turned[0], k, v, false);
  tsr__line(t, at->out);
  tsr__tid out = tsr__call_linear(p, &layer->out, result, false);
  tsr__unbind(t, result);
  return tsr__leave(t, out);
}

static tsr__tid mlp(tsr__program *p, const tsr__layer *layer, tsr__tid x) {
  tsr__tape *t = p->tape;
  tsr__enter_module(t, lines_of(p->model)->file);
  tsr__line(t, lines_of(p->model)->mlp);
  tsr__tid gate = tsr__call_linear(p, &layer->gate, x, false);
  tsr__enter_module(t, TSR__TORCH "nn/modules/activation.py");
  tsr__line(t, 473);
  tsr__push_frame(t, "silu", TSR__TORCH "nn/functional.py", 2371);
  tsr__tid active = tsr__leave(t, TSR__APPLY(t, TSR__OP_SILU, gate));
  tsr__unbind(t, gate);
  tsr__tid up = tsr__call_linear(p, &layer->up, x, false);
  tsr__tid product = TSR__APPLY(t, TSR__OP_MUL, active, up);
  tsr__unbind(t, active);
  tsr__unbind(t, up);
  tsr__tid down = tsr__call_linear(p, &layer->down, product, false);
  tsr__unbind(t, product);
  return tsr__leave(t, down);
}

static tsr__tid block(tsr__program *p, uint32_t index, tsr__tid hidden) {
  tsr__tape *t = p->tape;
  const tsr__layer *layer = &p->layers[index];
  const lines *at = lines_of(p->model);
  tsr__enter_module(t, at->file);
  tsr__line(t, at->norm_1);
  tsr__tid normal = call_norm(p, &layer->norm_1, hidden);
  tsr__line(t, at->self);
  tsr__tid attended = attention(p, layer, normal);
  tsr__unbind(t, normal);
  tsr__line(t, at->add_1);
  tsr__tid residual = TSR__APPLY(t, TSR__OP_ADD, hidden, attended);
  tsr__unbind(t, attended);
  tsr__line(t, at->norm_2);
  normal = call_norm(p, &layer->norm_2, residual);
  tsr__line(t, at->feed);
  tsr__tid fed = mlp(p, layer, normal);
  tsr__unbind(t, normal);
  tsr__line(t, at->add_2);
  tsr__tid result = TSR__APPLY(t, TSR__OP_ADD, residual, fed);
  return tsr__leave(t, result);
}

/* cos and sin, bound to the model's forward. */
static void call_rotary(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__tid tables[TSR__OP_OUTPUTS];
  tsr__attributes attributes = {.features = p->model->head_width, .dtype = (uint8_t)p->dtype};
  tsr__enter_module(t, lines_of(p->model)->file);
  tsr__line(t, lines_of(p->model)->cosine);
  p->cosine = tsr__apply(t, TSR__OP_ROTARY_TABLE, &attributes, &p->position_ids, 1, tables);
  p->sine = tables[1];
  tsr__hold(t, p->sine);
  p->cosine = tsr__leave(t, p->cosine);
  (void)tsr__bind(t, p->sine);
}

static tsr__tid model(tsr__program *p, tsr__tid ids) {
  tsr__tape *t = p->tape;
  const lines *at = lines_of(p->model);
  tsr__attributes attributes = {.features = p->sequence};
  tsr__enter_module(t, at->file);
  tsr__line(t, at->embed);
  tsr__enter_module(t, TSR__TORCH "nn/modules/sparse.py");
  tsr__line(t, 192);
  tsr__push_frame(t, "embedding", TSR__TORCH "nn/functional.py", 2542);
  tsr__tid hidden = tsr__leave(t, TSR__APPLY(t, TSR__OP_EMBEDDING, p->embedding, ids));
  tsr__line(t, at->positions);
  tsr__tid positions = tsr__apply(t, TSR__OP_ARANGE, &attributes, NULL, 0, NULL);
  p->position_ids = tsr__bind(t, tsr__view(t, positions, TSR__SHAPE(1, p->sequence), true));
  tsr__line(t, at->mask);
  tsr__call_mask(p);
  tsr__line(t, at->table);
  call_rotary(p);
  tsr__line(t, at->layer);
  tsr__tid last = tsr__call_blocks(p, hidden);
  tsr__line(t, at->norm);
  tsr__tid normal = call_norm(p, &p->last_norm, last);
  tsr__unbind(t, last);
  tsr__note_hidden(p, normal);
  return tsr__leave(t, normal);
}

static tsr__head_lines head_lines(const tsr_model *m) {
  const lines *at = lines_of(m);
  return (tsr__head_lines){at->file, at->body, at->head, at->loss};
}

const tsr__family_row tsr__llama_family = {declare, model, block, head_lines};
