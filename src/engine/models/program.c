/* program.c - the training loop around a model, and the parts that models share.
 *
 *   for batch in dataloader:
 *       batch = {k: v.to(device) for k, v in batch.items()}   # frees the previous batch
 *       optimizer.zero_grad()                                 # frees the previous gradients
 *       outputs = model(**batch)                              # frees the previous outputs, afterwards
 *       outputs.loss.backward()
 *       optimizer.step()
 *
 * What the variables hold when a step ends - the batch, gradients, outputs with logits and cached keys and values -
 * stays in memory while the next step runs, up to the line that binds them again.
 *
 * Invariants: `outputs`, `cache` and `hidden` hold each tensor they list, once per entry; while a block runs,
 * tape->block is its number, and TSR_NONE otherwise. */
#include "models/program.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"

/* ---- pieces of models ---- */

/* Hold a tensor beyond the forward, as the outputs or their graph do. */
static void output(tsr__program *p, tsr__tensor_id tensor) {
  if (!tensor) return;
  tsr__tensor_hold(p->tape, tensor);
  tsr__tensor_set_category(p->tape, tensor, TSR_CATEGORY_ACTIVATION);
  if (!TSR__VECTOR_PUSH(&p->outputs, tensor)) tsr__tape_fail(p->tape, TSR_ERROR_MEMORY);
}

static tsr__tensor_id parameter_of(tsr__program *p, tsr__dtype dtype, tsr__shape shape) {
  return tsr__tensor_declare(p->tape, dtype, shape, TSR_CATEGORY_PARAMETER);
}

tsr__tensor_id tsr__program_parameter(tsr__program *p, tsr__shape shape) {
  return parameter_of(p, p->dtype, shape);
}

tsr__model_linear tsr__program_declare_linear(tsr__program *p, tsr__program_place place,
                                              uint64_t inputs, uint64_t outputs, bool has_bias) {
  tsr__model_linear linear = {.inputs = inputs, .features = outputs, .place = place};
  assert(inputs && outputs && place != TSR__PLACE_NONE);
  if (tsr__program_quantises(p)) {
    tsr__program_declare_quantised(p, &linear);
    if (has_bias) linear.bias = parameter_of(p, p->compute_dtype, TSR__SHAPE(outputs));
    return linear;
  }
  linear.weight = tsr__program_parameter(p, TSR__SHAPE(outputs, inputs));
  if (has_bias) linear.bias = tsr__program_parameter(p, TSR__SHAPE(outputs));
  return linear;
}

tsr__model_linear tsr__program_declare_conv1d(tsr__program *p, tsr__program_place place,
                                              uint64_t inputs, uint64_t outputs) {
  /* bitsandbytes and TransformerEngine replace the module by their own linear layers. */
  if (tsr__program_quantises(p) || p->options->fp8)
    return tsr__program_declare_linear(p, place, inputs, outputs, true);
  tsr__model_linear linear = {
      .inputs = inputs, .features = outputs, .place = place, .is_conv1d = true};
  linear.weight = tsr__program_parameter(p, TSR__SHAPE(inputs, outputs));
  linear.bias = tsr__program_parameter(p, TSR__SHAPE(outputs));
  return linear;
}

tsr__model_norm tsr__program_declare_norm(tsr__program *p, tsr__program_place place,
                                          bool has_bias) {
  tsr__model_norm norm = {.place = place};
  assert(place != TSR__PLACE_NONE);
  norm.weight = tsr__program_parameter(p, TSR__SHAPE(p->model->width));
  if (has_bias) norm.bias = tsr__program_parameter(p, TSR__SHAPE(p->model->width));
  return norm;
}

void tsr__program_declare_head(tsr__program *p) {
  const tsr_model *m = p->model;
  assert(p->tape->status || (p->embedding && !p->head.weight));
  p->head = (tsr__model_linear){.features = m->vocabulary, .place = TSR__PLACE_HEAD};
  p->head.weight =
      m->is_tied ? p->embedding : tsr__program_parameter(p, TSR__SHAPE(m->vocabulary, m->width));
}

tsr__tensor_id tsr__program_linear_of(tsr__program *p, const tsr__model_linear *linear,
                                      tsr__tensor_id x) {
  tsr__tape *t = p->tape;
  tsr__op_attributes attributes = {.features = linear->features};
  tsr__tensor_id with_bias[] = {linear->bias, x, linear->weight};
  tsr__op_kind kind = linear->is_conv1d ? TSR__OP_CONV1D
                      : linear->bias    ? TSR__OP_LINEAR
                                        : TSR__OP_LINEAR_PLAIN;
  assert(linear->weight && linear->features);
  tsr__scope_enter(t, linear->place);
  tsr__tensor_id result = linear->bias
                              ? tsr__op_apply(t, kind, &attributes, with_bias, 3, NULL)
                              : tsr__op_apply(t, kind, &attributes, with_bias + 1, 2, NULL);
  return tsr__scope_leave(t, result);
}

tsr__tensor_id tsr__program_cast(tsr__program *p, tsr__tensor_id x, tsr__dtype dtype) {
  tsr__op_attributes attributes = {.dtype = (uint8_t)dtype};
  return tsr__op_apply(p->tape, TSR__OP_CAST, &attributes, &x, 1, NULL);
}

tsr__tensor_id tsr__program_scale(tsr__program *p, tsr__tensor_id x, double factor) {
  tsr__op_attributes attributes = {.factor = factor};
  return tsr__op_apply(p->tape, TSR__OP_SCALE, &attributes, &x, 1, NULL);
}

/* A copy of a weight is no activation, although it is saved: its size does not depend on the batch. */
static void count_as_cast(tsr__tape *tape, tsr__tensor_id copy) {
  tsr__slot *slot = &tape->schedule.slots.items[tsr__tensor_at(tape, copy)->slot];
  if (copy && slot->category == TSR_CATEGORY_ACTIVATION) slot->category = TSR_CATEGORY_CAST;
}

static tsr__tensor_id linear_fp8(tsr__program *p, const tsr__model_linear *linear,
                                 tsr__tensor_id x) {
  tsr__op_attributes attributes = {.features = linear->features,
                                   .takes_both_orders = p->fp8_takes_both_orders,
                                   .is_made_again = p->options->zero == 3};
  tsr__tensor_id inputs[] = {x, linear->weight, linear->bias};
  tsr__scope_enter(p->tape, linear->place);
  tsr__tensor_id result =
      tsr__op_apply(p->tape, TSR__OP_LINEAR_FP8, &attributes, inputs, linear->bias ? 3 : 2, NULL);
  uint32_t op = result ? tsr__tensor_at(p->tape, result)->op : TSR_NONE;
  for (size_t i = 1; i <= 2 && op != TSR_NONE; i++)
    count_as_cast(p->tape, p->tape->ops.items[op].saved[i]);
  return tsr__scope_leave(p->tape, result);
}

tsr__tensor_id tsr__program_linear(tsr__program *p, const tsr__model_linear *linear,
                                   tsr__tensor_id x) {
  if (linear->lora_a) return tsr__program_adapted(p, linear, x);
  if (p->options->fp8 && linear != &p->head) return linear_fp8(p, linear, x);
  return linear->scales ? tsr__program_quantised(p, linear, x)
                        : tsr__program_linear_of(p, linear, x);
}

tsr__tensor_id tsr__program_norm(tsr__program *p, const tsr__model_norm *norm, tsr__tensor_id x) {
  tsr__tape *t = p->tape;
  tsr__op_attributes attributes = {.epsilon = p->model->epsilon};
  tsr__tensor_id inputs[] = {x, norm->weight, norm->bias};
  tsr__scope_enter(t, norm->place);
  return tsr__scope_leave(
      t, norm->bias ? tsr__op_apply(t, TSR__OP_LAYER_NORM, &attributes, inputs, 3, NULL)
                    : tsr__op_apply(t, TSR__OP_RMS_NORM, &attributes, inputs, 2, NULL));
}

bool tsr__program_asks_in_place(tsr__program *p, tsr_in_place which) {
  p->in_place |= p->options->in_place & which;
  return p->options->in_place & which;
}

tsr__tensor_id tsr__program_add(tsr__program *p, tsr__tensor_id a, tsr__tensor_id b,
                                uint8_t spent) {
  bool is_asked = spent && tsr__program_asks_in_place(p, TSR_IN_PLACE_ADD);
  tsr__op_attributes attributes = {.spent = p->is_own || is_asked ? spent : 0,
                                   .is_in_place = is_asked};
  return tsr__op_apply(p->tape, TSR__OP_ADD, &attributes, (tsr__tensor_id[]){a, b}, 2, NULL);
}

/* With adapters and checkpointed blocks, peft makes the embedding's result a leaf that needs a gradient, because a checkpoint whose
 * inputs need none passes none on (enable_input_require_grads). It is kept with its gradient until the graph goes. */
static void require_gradient(tsr__program *p, tsr__tensor_id words) {
  bool is_checkpointed = tsr__plan_has(&p->plan, TSR__PLAN_RECOMPUTE) ||
                         tsr__plan_has(&p->plan, TSR__PLAN_RECOMPUTE_RUN);
  if (!p->options->lora_rank || !is_checkpointed || !p->tape->grad_enabled || !words) return;
  /* prepare_model_for_kbit_training does so for reentrant checkpoints alone. */
  if (tsr__program_quantises(p) && p->options->non_reentrant) return;
  tsr__tensor_at(p->tape, words)->requires_grad = true;
  p->first_leaf = words;
  output(p, words);
}

/* Move the gradient of that leaf, which no kernel reads, to what the outputs and their graph hold. */
static void keep_leaf_gradient(tsr__program *p) {
  tsr__tape_tensor *leaf = tsr__tensor_at(p->tape, p->first_leaf);
  if (!p->first_leaf || p->tape->status) return;
  if (leaf->grad) {
    p->tape->schedule.slots.items[tsr__tensor_at(p->tape, leaf->grad)->slot].is_root = true;
    if (!TSR__VECTOR_PUSH(&p->outputs, leaf->grad)) tsr__tape_fail(p->tape, TSR_ERROR_MEMORY);
  }
  leaf->grad = p->first_leaf = 0;
}

tsr__tensor_id tsr__program_embedding(tsr__program *p, tsr__program_place place,
                                      tsr__tensor_id weight, tsr__tensor_id ids) {
  tsr__scope_enter(p->tape, place);
  tsr__tensor_id words = TSR__OP_APPLY(p->tape, TSR__OP_EMBEDDING, weight, ids);
  if (weight == p->embedding) require_gradient(p, words);
  return tsr__scope_leave(p->tape, words);
}

void tsr__program_positions(tsr__program *p) {
  assert(p->sequence);
  tsr__op_attributes attributes = {.features = p->sequence, .position = p->position};
  tsr__tensor_id positions = tsr__op_apply(p->tape, TSR__OP_ARANGE, &attributes, NULL, 0, NULL);
  p->position_ids =
      tsr__scope_bind(p->tape, tsr__tensor_reshape(p->tape, positions, TSR__SHAPE(1, p->sequence)));
}

tsr__tensor_id tsr__program_cache(tsr__program *p, tsr__program_place place, tsr__tensor_id states,
                                  tsr__tensor_id keys) {
  tsr__tape *t = p->tape;
  tsr__dtype dtype = tsr__dtype_promote(tsr__tensor_dtype(t, states), tsr__tensor_dtype(t, keys));
  tsr__op_attributes attributes = {.dtype = (uint8_t)dtype};
  tsr__trace_enter(t, place);
  tsr__tensor_id cached = tsr__op_apply(t, TSR__OP_CACHE, &attributes, &states, 1, NULL);
  tsr__trace_leave(t);
  tsr__tensor_hold(t, cached);
  tsr__tensor_set_category(t, cached, TSR_CATEGORY_ACTIVATION);
  if (!TSR__VECTOR_PUSH(&p->cache, cached)) tsr__tape_fail(t, TSR_ERROR_MEMORY);
  return cached;
}

tsr__tensor_id tsr__program_keep(tsr__program *p, tsr__tensor_id cache, tsr__tensor_id states) {
  tsr__op_attributes attributes = {.position = p->position};
  return tsr__op_apply(p->tape, TSR__OP_KEEP, &attributes, (tsr__tensor_id[]){states, cache}, 2,
                       NULL);
}

void tsr__program_note_hidden(tsr__program *p, tsr__tensor_id hidden) {
  if (!p->model->module_count) return;
  tsr__tensor_hold(p->tape, hidden);
  if (!TSR__VECTOR_PUSH(&p->hidden, hidden)) tsr__tape_fail(p->tape, TSR_ERROR_MEMORY);
}

/* masking_utils.py, _preprocess_mask_arguments(): where the positions to attend to come from. */
static tsr__mask_form mask_form(const tsr__program *p) {
  if (p->has_attention_mask) return TSR__MASK_PADDED;
  return p->uses_cache ? TSR__MASK_PLAIN : TSR__MASK_PACKED;
}

void tsr__program_mask(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__op_attributes attributes = {.features = p->batch,
                                   .dtype = TSR__DTYPE_BOOL,
                                   .which = (uint8_t)mask_form(p),
                                   .window = p->model->window};
  tsr__tensor_id inputs[] = {p->position_ids, p->attention_mask};
  p->mask = 0;
  if (!p->has_mask && !p->checks_mask) return;
  if (p->is_eager) attributes.dtype = (uint8_t)p->dtype;
  tsr__trace_enter(t, p->is_eager ? TSR__PLACE_MASK_EAGER : TSR__PLACE_MASK);
  if (p->has_mask)
    p->mask = tsr__op_apply(t, TSR__OP_CAUSAL_MASK, &attributes, inputs, 2, NULL);
  else
    (void)tsr__op_apply(t, TSR__OP_MASK_CHECK, NULL, &p->attention_mask, 1, NULL);
  tsr__trace_leave(t);
}

/* ---- attention ---- */

enum { ATTENTION_INPUTS = 5 };

static tsr__tensor_id repeat(tsr__program *p, tsr__tensor_id states) {
  tsr__op_attributes attributes = {.repeats = p->model->heads / p->model->kv_heads};
  assert(p->model->heads % p->model->kv_heads == 0 && attributes.repeats > 1);
  tsr__tensor_id repeated = tsr__op_apply(p->tape, TSR__OP_REPEAT, &attributes, &states, 1, NULL);
  return repeated;
}

/* inputs: q, k, v, the mask and the layer's causal table, or 0 if this attention lacks them. index: whether q, k
 * and v are parts of one tensor. */
static tsr__tensor_id attention_segment(void *context, tsr__tape *t, uint32_t index,
                                        const tsr__tensor_id *inputs) {
  tsr__program *p = context;
  const tsr_model *m = p->model;
  tsr__op_attributes attributes = {.chunk = p->query_rows,
                                   .dropout = tsr__program_dropout(p, m->attention_dropout),
                                   .window = m->window,
                                   .position = p->position,
                                   .is_packed = index != 0};
  tsr__tensor_id given[ATTENTION_INPUTS];
  memcpy(given, inputs, sizeof given);
  tsr__scope_enter(t, p->is_eager ? TSR__PLACE_ATTEND_EAGER : TSR__PLACE_ATTEND);
  if (p->repeats_heads) {
    given[1] = repeat(p, given[1]);
    given[2] = repeat(p, given[2]);
  }
  tsr__tensor_id weights[TSR__OP_OUTPUTS] = {0};
  tsr__tensor_id result =
      tsr__op_apply(t, p->attention, &attributes, given, ATTENTION_INPUTS, weights);
  bool holds_weights = p->is_eager && weights[1];
  if (holds_weights) tsr__tensor_hold(t, weights[1]);
  result = tsr__scope_leave(t, result);
  if (holds_weights) tsr__scope_bind(t, weights[1]); /* eager attention also returns its weights */
  p->attention_weights = holds_weights ? weights[1] : 0;
  return result;
}

static tsr__tensor_id checkpoint(tsr__program *p, tsr__program_place place,
                                 tsr__tape_segment_fn *segment, uint32_t index,
                                 const tsr__tensor_id *inputs, uint32_t count) {
  tsr__tape *t = p->tape;
  tsr__op_attributes attributes = {
      .segment = segment, .program = p, .index = index, .is_autocast = t->is_autocast};
  bool is_kept = p->options->non_reentrant && t->grad_enabled; /* its graph is kept */
  if (is_kept)
    place = place == TSR__PLACE_CHECKPOINT ? TSR__PLACE_CHECKPOINT_KEPT
                                           : TSR__PLACE_CHECKPOINT_KEPT_BLOCK;
  tsr__trace_enter(t, place);
  tsr__tensor_id result =
      is_kept ? tsr__checkpoint_run(t, &attributes, inputs, count)
              : tsr__op_apply(t, TSR__OP_CHECKPOINT, &attributes, inputs, count, NULL);
  tsr__trace_leave(t);
  return result;
}

tsr__tensor_id tsr__program_attention(tsr__program *p, tsr__tensor_id q, tsr__tensor_id k,
                                      tsr__tensor_id v, tsr__tensor_id causal, bool is_packed) {
  tsr__tape *t = p->tape;
  tsr__tensor_id inputs[ATTENTION_INPUTS] = {q, k, v, p->has_mask ? p->mask : 0,
                                             p->is_eager ? causal : 0};
  assert(t->status || t->block < p->plan.block_count);
  if (!t->status && tsr__plan_choice_of(&p->plan, t->block) == TSR__PLAN_RECOMPUTE_ATTENTION) {
    tsr__tensor_id result = checkpoint(p, TSR__PLACE_CHECKPOINT, attention_segment, is_packed,
                                       inputs, ATTENTION_INPUTS);
    p->attention_weights = 0; /* a checkpoint does not return them */
    return result;
  }
  return attention_segment(p, t, is_packed, inputs);
}

tsr__tensor_id tsr__program_leave_attention(tsr__program *p, tsr__tensor_id result) {
  tsr__tensor_id weights = p->attention_weights;
  p->attention_weights = 0;
  if (weights) tsr__tensor_hold(p->tape, weights);
  result = tsr__scope_leave(p->tape, result);
  if (weights) tsr__scope_bind(p->tape, weights);
  return result;
}

/* ---- blocks ---- */

/* Tensors that blocks use in addition to their input. */
typedef struct closure {
  tsr__tensor_id mask, cosine, sine, position_ids;
} closure;

static closure closure_of(const tsr__program *p) {
  return (closure){p->mask, p->cosine, p->sine, p->position_ids};
}

static void set_closure(tsr__program *p, closure c) {
  p->mask = c.mask;
  p->cosine = c.cosine;
  p->sine = c.sine;
  p->position_ids = c.position_ids;
}

/* Whether a checkpoint holds the tensors that its function uses. Otherwise the outputs hold them, which takes
 * equally long for the reentrant form with one forward before each backward. */
static bool has_closure(const tsr__program *p) {
  return !p->family->passes_positions && (p->options->non_reentrant || p->options->backward_once);
}

/* Run the blocks that the plan treats as one, from `index` on. inputs: the hidden state and, in families that pass
 * them, positions and mask. */
static tsr__tensor_id block_segment(void *context, tsr__tape *t, uint32_t index,
                                    const tsr__tensor_id *inputs) {
  tsr__program *p = context;
  tsr__tensor_id hidden = inputs[0];
  closure outside = closure_of(p);
  uint32_t outer = t->block;
  uint64_t end = tsr__plan_segment_end(&p->plan, index);
  assert(end <= p->model->layers && hidden);
  if (p->family->passes_positions && p->has_mask) p->mask = inputs[2];
  if (has_closure(p)) set_closure(p, (closure){inputs[1], inputs[2], inputs[3], inputs[4]});
  for (uint64_t i = index; i < end && !t->status; i++) {
    tsr__tape_begin_block(t, (uint32_t)i);
    tsr__tensor_id result = p->family->block(p, (uint32_t)i, hidden);
    if (i > index) tsr__scope_unbind(t, hidden);
    hidden = result;
  }
  t->block = outer;
  set_closure(p, outside);
  return hidden;
}

/* Run a segment, which is recomputed in backward if the plan chooses that. */
static tsr__tensor_id call_segment(tsr__program *p, uint32_t first, tsr__tensor_id hidden) {
  tsr__tensor_id inputs[] = {hidden, p->position_ids, p->mask, 0, 0};
  uint32_t given = p->family->passes_positions ? (p->has_mask ? 3 : 2) : 1;
  if (has_closure(p)) {
    closure c = closure_of(p);
    inputs[given++] = c.mask;
    inputs[given++] = c.cosine;
    inputs[given++] = c.sine;
    inputs[given++] = c.position_ids;
  }
  switch (tsr__plan_choice_of(&p->plan, first)) {
  case TSR__PLAN_RECOMPUTE:
    return checkpoint(p, TSR__PLACE_CHECKPOINT_BLOCK, block_segment, first, inputs, given);
  case TSR__PLAN_RECOMPUTE_RUN:
    return checkpoint(p, TSR__PLACE_CHECKPOINT, block_segment, first, inputs, given);
  case TSR__PLAN_KEEP:
  case TSR__PLAN_RECOMPUTE_ATTENTION:
  case TSR__PLAN_CHOICE_COUNT: break;
  }
  return block_segment(p, p->tape, first, inputs);
}

tsr__tensor_id tsr__program_blocks(tsr__program *p, tsr__tensor_id hidden, bool is_spent) {
  tsr__tape *t = p->tape;
  uint64_t layers = p->model->layers;
  tsr__tensor_id first = hidden;
  assert(p->plan.block_count == layers);
  if (tsr__program_recomputes_blocks(p) && !p->family->passes_positions && !has_closure(p)) {
    output(p, p->mask); /* the closure of recomputed blocks holds it */
    output(p, p->cosine);
    output(p, p->sine);
    output(p, p->position_ids);
  }
  for (uint64_t i = 0, end; i < layers && !t->status; i = end) {
    end = tsr__plan_segment_end(&p->plan, i);
    tsr__tensor_id result = call_segment(p, (uint32_t)i, hidden);
    if (end < layers) tsr__program_note_hidden(p, result);
    if (hidden != first || is_spent) tsr__scope_unbind(t, hidden);
    hidden = result;
  }
  return hidden;
}

/* ---- the head and the loss ---- */

static tsr__tensor_id shift_labels(tsr__program *p) {
  tsr__tensor_id shifted[TSR__OP_OUTPUTS];
  return tsr__op_apply(p->tape, TSR__OP_SHIFT_LABELS, NULL, &p->labels, 1, shifted);
}

static tsr__tensor_id full_loss(tsr__program *p, tsr__tensor_id logits) {
  tsr__tape *t = p->tape;
  tsr__shape flat = TSR__SHAPE(p->batch * p->sequence, p->model->vocabulary);
  tsr__op_attributes wide = {.dtype = TSR__DTYPE_F32};
  tsr__scope_enter(t, TSR__PLACE_LOSS);
  if (tsr__tensor_dtype(t, logits) != TSR__DTYPE_F32)
    logits = tsr__op_apply(t, TSR__OP_CAST, &wide, &logits, 1, NULL);
  tsr__tensor_id labels = shift_labels(p);
  tsr__tensor_id rows = tsr__scope_bind(t, tsr__tensor_reshape(t, logits, flat));
  tsr__scope_enter(t, TSR__PLACE_CROSS_ENTROPY);
  tsr__tensor_id log_softmax = TSR__OP_APPLY(t, TSR__OP_LOG_SOFTMAX, rows);
  tsr__tensor_id loss = TSR__OP_APPLY(t, TSR__OP_NLL_LOSS, log_softmax, labels);
  return tsr__scope_leave(t, tsr__scope_leave(t, loss));
}

/* The number of micro-batches of all ranks: a step's gradient is the mean over them. */
static uint64_t micro_batches(const tsr__program *p) {
  return p->accumulate * (p->options->ranks ? p->options->ranks : 1);
}

/* The attributes of a loss with tessera's own rule book. */
static tsr__op_attributes loss_attributes(const tsr__program *p) {
  return (tsr__op_attributes){.chunk = p->options->loss_chunk,
                              .repeats = p->divides_loss ? micro_batches(p) : 1,
                              .is_scaled = p->loss_scale || !p->divides_loss};
}

/* Compute the loss in one op, which reads the logits in their own type. */
static tsr__tensor_id fused_loss(tsr__program *p, tsr__tensor_id logits) {
  tsr__tape *t = p->tape;
  tsr__shape flat = TSR__SHAPE(p->batch * p->sequence, p->model->vocabulary);
  tsr__op_attributes attributes = loss_attributes(p);
  tsr__scope_enter(t, TSR__PLACE_LOSS);
  tsr__tensor_id labels = shift_labels(p);
  tsr__tensor_id rows = tsr__scope_bind(t, tsr__tensor_reshape(t, logits, flat));
  tsr__tensor_id loss = tsr__op_apply(t, TSR__OP_CROSS_ENTROPY, &attributes,
                                      (tsr__tensor_id[]){rows, labels}, 2, NULL);
  return tsr__scope_leave(t, loss);
}

static tsr__tensor_id chunked_loss(tsr__program *p, tsr__tensor_id hidden) {
  tsr__tape *t = p->tape;
  tsr__op_attributes attributes = loss_attributes(p);
  tsr__shape flat = TSR__SHAPE(p->batch * p->sequence, p->model->width);
  tsr__scope_enter(t, TSR__PLACE_CHUNKED_LOSS);
  tsr__tensor_id labels = shift_labels(p);
  tsr__tensor_id rows = tsr__scope_bind(t, tsr__tensor_reshape(t, hidden, flat));
  tsr__tensor_id loss = tsr__op_apply(t, TSR__OP_CHUNKED_LOSS, &attributes,
                                      (tsr__tensor_id[]){rows, p->head.weight, labels}, 3, NULL);
  return tsr__scope_leave(t, loss);
}

/* Whether outputs hold the logits, as in transformers. With tessera's own rule book the loss overwrites the logits
 * with their gradient, so outputs only hold them if a planted mistake needs them. */
static bool holds_logits(const tsr__program *p) {
  return !p->is_own || p->options->leak != TSR_LEAK_NONE;
}

/* Run body, head and loss; the loss is bound to the calling function. */
static tsr__tensor_id call_model(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__tensor_id loss;
  tsr__scope_enter(t, TSR__PLACE_MODEL);
  tsr__tensor_id hidden = p->family->body(p, p->ids);
  if (p->options->loss_chunk &&
      (p->is_own || !p->is_evaluating)) { /* PyTorch evaluates with logits */
    loss = chunked_loss(p, hidden);
  } else {
    p->logits = tsr__program_linear(p, &p->head, hidden);
    if (holds_logits(p)) output(p, p->logits);
    loss = p->is_own ? fused_loss(p, p->logits) : full_loss(p, p->logits);
  }
  return tsr__scope_leave(t, loss);
}

/* ---- added modules ---- */

/* Project every layer's hidden state, and add the means to the loss. */
static tsr__tensor_id call_added(tsr__program *p, tsr__tensor_id loss) {
  tsr__tape *t = p->tape;
  size_t layers = p->model->layers, count = p->model->module_count * layers;
  TSR__VECTOR(tsr__tensor_id) projected = {0};
  tsr__tensor_id sum = 0;
  const tsr__tensor_id *hidden = p->hidden.items;
  if (t->status || !hidden || p->hidden.count < layers) return loss; /* the tape has failed */
  for (size_t i = 0; i < count && !t->status; i++) {
    tsr__tensor_id result = tsr__program_linear(p, &p->added[i], hidden[i % layers]);
    if (!TSR__VECTOR_PUSH(&projected, result)) tsr__tape_fail(t, TSR_ERROR_MEMORY);
  }
  tsr__trace_at(t, TSR__PLACE_ADDED_MEANS);
  for (size_t i = 0; i < projected.count && !t->status; i++) {
    tsr__tensor_id mean = TSR__OP_APPLY(t, TSR__OP_MEAN, projected.items[i]);
    tsr__tensor_id more =
        i ? TSR__OP_APPLY(t, TSR__OP_ADD, sum, mean) : tsr__program_scale(p, mean, 1);
    tsr__scope_unbind(t, mean);
    tsr__scope_unbind(t, sum);
    sum = more;
  }
  TSR__VECTOR_FREE(&projected);
  tsr__tensor_id term = tsr__program_scale(p, sum, 1);
  tsr__trace_at(t, TSR__PLACE_ADDED_LOSS);
  return TSR__OP_APPLY(t, TSR__OP_ADD, loss, term);
}

/* Run a wrapper's forward, which returns only the loss and the logits. */
static tsr__tensor_id call_wrapper(tsr__program *p) {
  tsr__tape *t = p->tape;
  size_t cached = p->cache.count;
  tsr__scope_enter(t, TSR__PLACE_WRAPPER);
  tsr__tensor_id loss = call_added(p, call_model(p));
  while (p->cache.count > cached) tsr__tensor_release(t, p->cache.items[--p->cache.count]);
  while (p->hidden.count) tsr__tensor_release(t, p->hidden.items[--p->hidden.count]);
  return tsr__scope_leave(t, loss);
}

/* ---- the step ---- */

/* The tensors of a batch. */
enum { BATCH_IDS, BATCH_LABELS, BATCH_ATTENTION_MASK, BATCH_TENSORS };

static tsr__tensor_id to_device(tsr__program *p, int which) {
  tsr__kernel_use use = {.kernel = TSR__KERNEL_BATCH,
                         .op = TSR_NONE,
                         .scalars = {{TSR__SCALAR_NUMBER, (double)which}}};
  tsr__tensor_id tensor = tsr__tape_run_new(p->tape, &use, TSR__DTYPE_I64,
                                            tsr__layout_dense(TSR__SHAPE(p->batch, p->sequence)));
  tsr__tensor_set_category(p->tape, tensor, TSR_CATEGORY_INPUT);
  return tensor;
}

static void release_batch(tsr__tape *t, const tsr__tensor_id *batch) {
  for (size_t i = 0; i < BATCH_TENSORS; i++) tsr__tensor_release(t, batch[i]);
}

/* Load a batch, which replaces the one before it, possibly of the previous step. */
static void load_batch(tsr__program *p) {
  tsr__tape *t = p->tape;
  const tsr__tensor_id last[BATCH_TENSORS] = {p->ids, p->labels, p->attention_mask};
  tsr__trace_at(t, TSR__PLACE_LOAD_BATCH);
  p->ids = to_device(p, BATCH_IDS);
  p->labels = to_device(p, BATCH_LABELS);
  p->attention_mask = p->has_attention_mask ? to_device(p, BATCH_ATTENTION_MASK) : 0;
  tsr__tape_carry_here(t, TSR__CARRY_BATCH);
  release_batch(t, last);
}

/* Release tensors `from` to `end` - 1 of a list. */
static void release_some(tsr__tape *t, tsr__tensor_ids *list, size_t from, size_t end) {
  assert(t->status || (from <= end && end <= list->count));
  if (t->status || from == end) return;
  for (size_t i = from; i < end; i++) tsr__tensor_release(t, list->items[i]);
  memmove(list->items + from, list->items + end, (list->count - end) * sizeof *list->items);
  list->count -= end - from;
}

/* ---- leaks ---- */

/* The tensors that the op's node holds, without those that are computed again. */
static void leak_graph(tsr__tape *t, const tsr__tape_op *op) {
  for (uint32_t k = 0; k < op->saved_count; k++)
    if (!op->holder[k] && !(op->remade & 1u << k)) tsr__tape_leak(t, op->saved[k]);
  for (uint32_t k = 0; k < op->input_count; k++)
    if (op->pinned & 1u << k) tsr__tape_leak(t, op->in[k]);
}

/* Keep what the forward pass has made, as the planted mistake does. The pass started at `first_op` and
 * `first_frame`. */
static void leak(tsr__program *p, size_t first_op, size_t first_frame) {
  tsr__tape *t = p->tape;
  switch (p->options->leak) {
  case TSR_LEAK_NONE: return;
  case TSR_LEAK_GRAPH:
    tsr__tape_leak(t, p->loss);
    for (size_t i = first_op; i < t->ops.count; i++) leak_graph(t, &t->ops.items[i]);
    for (size_t i = first_frame; i < t->frames.count; i++)
      for (uint32_t k = 0; k < t->frames.items[i].input_count; k++)
        tsr__tape_leak(t, t->frames.items[i].inputs[k]);
    return;
  case TSR_LEAK_OUTPUTS:
    tsr__tape_leak(t, p->loss);
    tsr__tape_leak(t, p->logits);
    for (size_t i = 0; i < p->cache.count; i++) tsr__tape_leak(t, p->cache.items[i]);
    return;
  case TSR_LEAK_SHELL: tsr__tape_leak(t, p->logits ? p->logits : p->loss); return;
  case TSR_LEAK_BATCHES:
    tsr__tape_leak(t, p->ids);
    tsr__tape_leak(t, p->labels);
    tsr__tape_leak(t, p->attention_mask);
    return;
  }
}

static void forward(tsr__program *p) {
  tsr__tape *t = p->tape;
  size_t outputs = p->outputs.count, cached = p->cache.count; /* of the previous micro-batch */
  size_t first_op = t->ops.count, first_frame = t->frames.count;
  tsr__tape_begin(t, TSR__PHASE_FORWARD);
  if (p->is_autocast) tsr__tape_autocast_begin(t);
  tsr__tensor_id loss = p->model->module_count ? call_wrapper(p) : call_model(p);
  if (p->is_autocast) tsr__tape_autocast_end(t);
  tsr__tape_carry_here(t, TSR__CARRY_OUTPUTS);
  release_some(t, &p->outputs, 0, outputs);
  release_some(t, &p->cache, 0, cached);
  output(p, loss);
  p->loss = loss;
  if (!TSR__VECTOR_PUSH(&p->losses, loss)) tsr__tape_fail(t, TSR_ERROR_MEMORY);
  tsr__scope_unbind(t, loss);
  leak(p, first_op, first_frame);
  tsr__tape_end(t, TSR__PHASE_FORWARD);
}

/* Add this micro-batch's part to the sum of losses, whose graph keeps it until backward. */
static void add_loss(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__tensor_id part = tsr__program_scale(p, p->loss, 1 / (double)micro_batches(p)),
                 before = p->loss_sum;
  p->loss_sum = before ? TSR__OP_APPLY(t, TSR__OP_ADD, before, part) : part;
  if (!before) return;
  tsr__scope_unbind(t, before);
  tsr__scope_unbind(t, part);
}

/* Run backward, from the loss of a micro-batch or from the sum of all. */
static void backward(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__tensor_id root = p->loss_sum ? p->loss_sum : p->loss, scaled = p->loss_sum;
  tsr__tape_begin(t, TSR__PHASE_BACKWARD);
  if (micro_batches(p) > 1 && !p->loss_sum && !p->divides_loss)
    root = scaled = tsr__program_scale(p, root, 1 / (double)micro_batches(p));
  if (p->loss_scale) root = TSR__OP_APPLY(t, TSR__OP_SCALE, root, p->loss_scale);
  tsr__trace_enter(t, TSR__PLACE_BACKWARD);
  tsr__trace_enter(t, TSR__PLACE_BACKWARD_SEED);
  tsr__kernel_use ones = {.kernel = TSR__KERNEL_ONES_LIKE, .op = TSR_NONE};
  tsr__tensor_id grad = tsr__tape_run_new(t, &ones, TSR__DTYPE_F32, tsr__layout_dense(TSR__SCALAR));
  tsr__trace_leave(t);
  tsr__trace_enter(t, TSR__PLACE_BACKWARD_ENGINE);
  tsr__trace_enter(t, TSR__PLACE_BACKWARD_THREAD);
  tsr__tensor_hold(t, grad); /* Python holds it until the pass is over */
  tsr__tape_backward(t, root, grad);
  tsr__trace_leave(t);
  tsr__tensor_release(t, grad);
  tsr__trace_leave(t);
  tsr__trace_leave(t);
  if (root != scaled && root != p->loss) tsr__scope_unbind(t, root);
  tsr__scope_unbind(t, scaled);
  tsr__program_end_sums(p);
  keep_leaf_gradient(p);
  tsr__tape_end(t, TSR__PHASE_BACKWARD);
}

/* Run the optimizer, unless backward has updated the parameters or failed. */
static void optimize(tsr__program *p) {
  tsr__tape *t = p->tape;
  if (p->options->update_in_backward || t->status) return;
  tsr__tape_begin(t, TSR__PHASE_OPTIMIZER);
  t->grad_enabled = false;
  tsr__program_optimizer(p);
  t->grad_enabled = true;
  tsr__tape_end(t, TSR__PHASE_OPTIMIZER);
}

/* ---- evaluation ---- */

void tsr__program_swap_modes(tsr__program *p) {
  tsr__forward_mode other = p->evaluation;
  p->evaluation = (tsr__forward_mode){.batch = p->batch,
                                      .uses_cache = p->uses_cache,
                                      .has_mask = p->has_mask,
                                      .checks_mask = p->checks_mask,
                                      .repeats_heads = p->repeats_heads,
                                      .attention = p->attention,
                                      .plan = p->plan};
  p->batch = other.batch;
  p->uses_cache = other.uses_cache;
  p->has_mask = other.has_mask;
  p->checks_mask = other.checks_mask;
  p->repeats_heads = other.repeats_heads;
  p->attention = other.attention;
  p->plan = other.plan;
  p->is_evaluating = !p->is_evaluating;
}

/* The ends of the lists of held tensors before a forward: it adds its own after them. */
typedef struct held {
  size_t outputs, cache;
} held;

/* Run a forward of the next batch, whose outputs replace those from `first` on. */
static void evaluate_batch(tsr__program *p, held first) {
  tsr__tape *t = p->tape;
  held last = {p->outputs.count, p->cache.count};
  load_batch(p);
  if (p->is_autocast) tsr__tape_autocast_begin(t);
  tsr__tensor_id loss = p->model->module_count ? call_wrapper(p) : call_model(p);
  if (p->is_autocast) tsr__tape_autocast_end(t);
  release_some(t, &p->outputs, first.outputs, last.outputs);
  release_some(t, &p->cache, first.cache, last.cache);
  output(p, loss);
  if (!TSR__VECTOR_PUSH(&p->evaluation_losses, loss)) tsr__tape_fail(t, TSR_ERROR_MEMORY);
  if (!t->status)
    t->schedule.slots.items[tsr__tensor_at(t, loss)->slot].is_root = true; /* it is printed */
  tsr__scope_unbind(t, loss);
}

/* Evaluate two batches. The second one, like all later ones, runs while the outputs of the one before are in
 * memory. With tessera's own rule book one batch, like all others, since outputs are just the loss. What the training loop holds
 * stays: its batch, outputs and gradients. */
static void evaluate(tsr__program *p) {
  tsr__tape *t = p->tape;
  held first = {p->outputs.count, p->cache.count};
  const tsr__tensor_id ids = p->ids, labels = p->labels, mask = p->attention_mask,
                       logits = p->logits;
  uint64_t flops = t->schedule.flops;
  uint32_t draws = t->schedule.draws;
  if (!p->options->eval_steps) return;
  tsr__tape_begin(t, TSR__PHASE_EVALUATION);
  tsr__scope_enter(t, TSR__PLACE_EVALUATION);
  t->grad_enabled = false;
  tsr__program_swap_modes(p);
  p->ids = p->labels = p->attention_mask = 0;
  for (int i = 0; i < (p->is_own ? 1 : 2) && !t->status; i++) evaluate_batch(p, first);
  release_some(t, &p->outputs, first.outputs, p->outputs.count);
  release_some(t, &p->cache, first.cache, p->cache.count);
  release_batch(t, (const tsr__tensor_id[BATCH_TENSORS]){p->ids, p->labels, p->attention_mask});
  p->ids = ids;
  p->labels = labels;
  p->attention_mask = mask;
  p->logits = logits;
  tsr__program_swap_modes(p);
  t->grad_enabled = true;
  (void)tsr__scope_leave(t, 0);
  tsr__tape_end(t, TSR__PHASE_EVALUATION);
  t->schedule.flops = flops; /* those of a step; */
  t->schedule.draws =
      draws; /* without dropout no number is used, and other ranks draw as they do without an evaluation */
}

/* Fail if the program lacks an op of a class that was requested to run in place. */
static void check_in_place(const tsr__program *p) {
  static const struct {
    tsr_in_place which;
    const char *what;
  } words[] = {{TSR_IN_PLACE_ADD, "sum whose operand is free"},
               {TSR_IN_PLACE_DROPOUT, "dropout outside of attention"},
               {TSR_IN_PLACE_GELU, "GELU as one kernel"},
               {TSR_IN_PLACE_SILU, "SiLU"},
               {TSR_IN_PLACE_PRODUCT, "product of two activations"}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (p->options->in_place & ~p->in_place & words[i].which)
      tsr__clash_note(p->tape, (tsr__clash){TSR__CLASH_ABSENT, TSR_NONE, TSR_NONE, words[i].what});
}

/* About as many kernels run in a block, forward and backward, and in the rest of a step. */
enum { RUNS_OF_BLOCK = 160, RUNS_BESIDES = 128 };

void tsr__program_step(tsr__program *p) {
  tsr__tape *t = p->tape;
  assert(t->status || (!t->schedule.instrs.count && !t->scopes.count)); /* one step per tape */
  tsr__tape_expect(t, RUNS_BESIDES + RUNS_OF_BLOCK * p->model->layers * p->accumulate);
  tsr__scope_enter(t, TSR__PLACE_MAIN);
  tsr__scope_enter(t, TSR__PLACE_TRAIN);
  tsr__tape_begin(t, TSR__PHASE_STEP);
  uint64_t count = p->accumulate;
  assert(count);
  for (uint64_t i = 0; i < count && !t->status; i++) {
    load_batch(p);
    if (i == 0) {
      tsr__tape_begin(t, TSR__PHASE_ZERO_GRAD);
      tsr__tape_carry_here(t, TSR__CARRY_GRADS);
      tsr__tape_end(t, TSR__PHASE_ZERO_GRAD);
    }
    forward(p);
    if (p->options->backward_once && count > 1) add_loss(p);
    p->is_last_backward = i + 1 == count;
    if (!p->loss_sum || i + 1 == count) backward(p);
    if (t->schedule.instrs.count > TSR__MOST_INSTRUCTIONS / count) {
      t->is_too_long |= t->status == 0;
      tsr__tape_fail(t, TSR_ERROR_LIMIT); /* each of the other micro-batches needs as many */
    }
  }
  optimize(p);
  evaluate(p);
  check_in_place(p);
  tsr__tape_end(t, TSR__PHASE_STEP);
  tsr__tape_hold_until(t, p->ids, TSR__CARRY_BATCH);
  tsr__tape_hold_until(t, p->labels, TSR__CARRY_BATCH);
  tsr__tape_hold_until(t, p->attention_mask, TSR__CARRY_BATCH);
  for (size_t i = 0; i < p->outputs.count; i++)
    tsr__tape_hold_until(t, p->outputs.items[i], TSR__CARRY_OUTPUTS);
  for (size_t i = 0; i < p->cache.count; i++)
    tsr__tape_hold_until(t, p->cache.items[i], TSR__CARRY_OUTPUTS);
  for (size_t i = 0; i < t->schedule.parameters.count; i++)
    tsr__tape_hold_until(t, tsr__tensor_at(t, t->schedule.parameters.items[i])->grad,
                         TSR__CARRY_GRADS);
  for (size_t i = 0; i < t->schedule.sharding.owned.count; i++)
    tsr__tape_hold_until(t, tsr__tensor_at(t, t->schedule.sharding.owned.items[i])->grad,
                         TSR__CARRY_GRADS);
  (void)tsr__scope_leave(t, 0);
  (void)tsr__scope_leave(t, 0);
}

/* ---- generation ---- */

static void declare_caches(tsr__program *p, uint64_t positions) {
  const tsr_model *m = p->model;
  tsr__shape shape = TSR__SHAPE(p->batch, m->kv_heads, positions, m->head_width);
  for (uint64_t i = 0; i < m->layers; i++) {
    p->layers[i].keys = tsr__tensor_declare(p->tape, p->dtype, shape, TSR_CATEGORY_BUFFER);
    p->layers[i].values = tsr__tensor_declare(p->tape, p->dtype, shape, TSR_CATEGORY_BUFFER);
  }
}

/* Run the tokens of a batch. Returns the logits after the last one, which only the caller of the executor reads. */
static tsr__tensor_id generate_next(tsr__program *p) {
  tsr__tape *t = p->tape;
  p->ids = to_device(p, BATCH_IDS);
  tsr__scope_enter(t, TSR__PLACE_MODEL);
  tsr__tensor_id hidden = p->family->body(p, p->ids), last = 0;
  if (!t->status) {
    tsr__layout row = tsr__layout_slice(tsr__tensor_layout(t, hidden), 1, p->sequence - 1, 1);
    last = tsr__scope_bind(t, tsr__tensor_view(t, hidden, row));
  }
  tsr__tensor_id logits = tsr__program_linear(p, &p->head, last);
  if (!t->status) t->schedule.slots.items[tsr__tensor_at(t, logits)->slot].is_root = true;
  (void)tsr__scope_leave(t, 0);
  tsr__tensor_release(t, p->ids);
  return logits;
}

void tsr__program_generate(tsr__program *p, uint64_t positions, bool has_rounds) {
  tsr__tape *t = p->tape;
  assert(t->status || (!t->schedule.instrs.count && !t->scopes.count)); /* one step per tape */
  assert(!p->uses_cache && !p->model->module_count);
  assert(positions ? p->sequence <= positions : !has_rounds);
  if (positions) declare_caches(p, positions);
  t->grad_enabled = false;
  tsr__scope_enter(t, TSR__PLACE_MAIN);
  tsr__tape_begin(t, TSR__PHASE_STEP);
  tsr__tape_begin(t, TSR__PHASE_FORWARD);
  p->next_logits[0] = generate_next(p);
  tsr__tape_end(t, TSR__PHASE_FORWARD);
  if (has_rounds) {
    tsr__tape_begin(t, TSR__PHASE_GENERATION);
    p->position = p->sequence;
    p->sequence = 1;
    p->next_logits[1] = generate_next(p);
    tsr__tape_end(t, TSR__PHASE_GENERATION);
  }
  if (positions) p->sequence = positions; /* for what depends on the length of the text */
  tsr__tape_end(t, TSR__PHASE_STEP);
  (void)tsr__scope_leave(t, 0);
  t->grad_enabled = true;
}
