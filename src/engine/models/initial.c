/* initial.c - the contents of a model's memory before the first step, as transformers initialises it.
 *
 * Weights are random with one standard deviation (initializer_range), biases 0, norms 1. GPT-2 divides the deviation
 * of projections into the residual stream by the square root of their number (modeling_gpt2.py, _init_weights).
 * Modules added around the model are initialised as nn.Linear does it. */
#include <assert.h>
#include <math.h>

#include "models/program.h"

typedef struct setter {
  const tsr__program *program;
  void (*set)(void *context, tsr__tensor_id tensor, const tsr__initial_value *initial);
  void *context;
} setter;

static void set(const setter *s, tsr__tensor_id tensor, tsr__initial_kind kind, double number) {
  const tsr__program *p = s->program;
  const tsr__initial_value initial = {
      .kind = kind, .number = number, .rotary = &p->model->rotary, .sequence = p->sequence};
  if (tensor) s->set(s->context, tensor, &initial);
}

static void set_norm(const setter *s, const tsr__model_norm *norm) {
  set(s, norm->weight, TSR__INITIAL_CONSTANT, 1);
  set(s, norm->bias, TSR__INITIAL_CONSTANT, 0);
}

static void set_linear(const setter *s, const tsr__model_linear *linear, double deviation) {
  set(s, linear->weight, TSR__INITIAL_NORMAL, deviation);
  set(s, linear->bias, TSR__INITIAL_CONSTANT, 0);
  if (!linear->lora_a) return;
  /* As peft does: A like nn.Linear, uniform up to 1 / sqrt(inputs), and B zero, so that an adapter changes nothing at first. */
  tsr__shape shape = tsr__schedule_shape(s->program->schedule, linear->lora_a);
  set(s, linear->lora_a, TSR__INITIAL_UNIFORM, 1 / sqrt((double)shape.dim[1]));
  set(s, linear->lora_b, TSR__INITIAL_CONSTANT, 0);
}

static void set_layer(const setter *s, const tsr__model_layer *layer) {
  const tsr_model *m = s->program->model;
  double deviation = m->initial_deviation;
  bool is_gpt2 = m->class == TSR__CLASS_GPT2;
  double residual = is_gpt2 ? deviation / sqrt(2 * (double)m->layers) : deviation;
  set_norm(s, &layer->norm_1);
  set_norm(s, &layer->norm_2);
  set_linear(s, &layer->qkv, deviation);
  set_linear(s, &layer->q, deviation);
  set_linear(s, &layer->k, deviation);
  set_linear(s, &layer->v, deviation);
  set_linear(s, &layer->out, residual);
  set_linear(s, &layer->gate, deviation);
  set_linear(s, &layer->up, deviation);
  set_linear(s, &layer->down, residual);
  set(s, layer->causal, TSR__INITIAL_CAUSAL, 0);
}

/* Initialise as nn.Linear does: uniform, up to 1 / sqrt(inputs). */
static void set_added(const setter *s, const tsr__model_linear *linear) {
  double bound = 1 / sqrt((double)s->program->model->width);
  set(s, linear->weight, TSR__INITIAL_UNIFORM, bound);
  set(s, linear->bias, TSR__INITIAL_UNIFORM, bound);
}

void tsr__program_initials(const tsr__program *p,
                           void (*call)(void *context, tsr__tensor_id tensor,
                                        const tsr__initial_value *initial),
                           void *context) {
  const setter s = {p, call, context};
  const tsr_model *m = p->model;
  assert(p->layers && m->initial_deviation > 0);
  set(&s, p->embedding, TSR__INITIAL_NORMAL, m->initial_deviation);
  set(&s, p->position_embedding, TSR__INITIAL_NORMAL, m->initial_deviation);
  for (uint64_t i = 0; i < m->layers; i++) set_layer(&s, &p->layers[i]);
  set_norm(&s, &p->last_norm);
  if (!m->is_tied) set_linear(&s, &p->head, m->initial_deviation);
  for (uint64_t i = 0; i < m->module_count * m->layers; i++) set_added(&s, &p->added[i]);
  for (uint64_t i = 0; i < m->layers; i++) {
    set(&s, p->layers[i].keys, TSR__INITIAL_CONSTANT, 0);
    set(&s, p->layers[i].values, TSR__INITIAL_CONSTANT, 0);
  }
  set(&s, p->frequencies, TSR__INITIAL_ROTARY, 0);
  double scale = p->options->loss_scale;
  set(&s, p->loss_scale, TSR__INITIAL_CONSTANT, scale > 0 ? scale : 65536);
  set(&s, p->good_steps, TSR__INITIAL_CONSTANT, 0);
}
