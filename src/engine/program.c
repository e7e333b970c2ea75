/* program.c - the training loop around a model, and what the models share.
 *
 *   for batch in dataloader:
 *       batch = {k: v.to(device) for k, v in batch.items()}   # the last batch goes
 *       optimizer.zero_grad()                                 # the last gradients go
 *       outputs = model(**batch)                              # the last outputs go, afterwards
 *       outputs.loss.backward()
 *       optimizer.step()
 *
 * What the variables hold when a step ends - the batch, gradients, outputs with logits and cached
 * keys and values - is there while the next one runs, up to the line that binds them anew. */
#include "engine/program.h"

#include "base/memory.h"

#define SCRIPT "train.py"

/* Lines of the script. */
enum {
  LINE_MAIN = 71,
  LINE_BATCH = 52,
  LINE_ZERO_GRAD = 54,
  LINE_MODEL = 57,
  LINE_BACKWARD = 59,
  LINE_STEP = 62,
  LINE_BASE = 22,
  LINE_PROJECT = 29,
  LINE_MEAN = 31,
  LINE_LOSS = 33
};

static const tsr__family_row *family_of(const tsr__program *p) {
  return p->family;
}

/* ---- pieces of models ---- */

/* What the outputs, or the graph behind them, hold beyond the forward. */
static void output(tsr__program *p, tsr__tid tensor) {
  if (!tensor) return;
  tsr__hold(p->tape, tensor);
  tsr__set_role(p->tape, tensor, TSR_ROLE_ACTIVATION);
  if (!TSR__VECTOR_PUSH(&p->outputs, tensor)) tsr__tape_fail(p->tape, TSR_ERROR_MEMORY);
}

tsr__linear tsr__declare_linear(tsr__program *p, uint64_t inputs, uint64_t outputs, bool has_bias) {
  tsr__linear linear = {.features = outputs};
  linear.weight = tsr__declare(p->tape, p->dtype, TSR__SHAPE(inputs, outputs), TSR_ROLE_PARAMETER);
  if (has_bias)
    linear.bias = tsr__declare(p->tape, p->dtype, TSR__SHAPE(outputs), TSR_ROLE_PARAMETER);
  return linear;
}

tsr__tid tsr__call_linear(tsr__program *p, const tsr__linear *linear, tsr__tid x, bool is_conv1d) {
  tsr__tape *t = p->tape;
  tsr__attributes attributes = {.features = linear->features};
  tsr__enter_module(t, is_conv1d ? TSR__TRANSFORMERS "pytorch_utils.py"
                                 : TSR__TORCH "nn/modules/linear.py");
  tsr__line(t, is_conv1d ? 122 : 134);
  tsr__tid with_bias[] = {linear->bias, x, linear->weight};
  tsr__tid result = linear->bias ? tsr__apply(t, TSR__OP_ADDMM, &attributes, with_bias, 3, NULL)
                                 : tsr__apply(t, TSR__OP_MM, &attributes, with_bias + 1, 2, NULL);
  return tsr__leave(t, result);
}

tsr__tid tsr__call_cache(tsr__program *p, tsr__tid states, uint64_t line) {
  tsr__tape *t = p->tape;
  tsr__push_frame(t, "update", TSR__TRANSFORMERS "cache_utils.py", 776);
  tsr__push_frame(t, "update", TSR__TRANSFORMERS "cache_utils.py", line);
  tsr__tid cached = TSR__APPLY(t, TSR__OP_CACHE, states);
  tsr__pop_frames(t, 2);
  tsr__hold(t, cached);
  tsr__set_role(t, cached, TSR_ROLE_ACTIVATION);
  if (!TSR__VECTOR_PUSH(&p->cache, cached)) tsr__tape_fail(t, TSR_ERROR_MEMORY);
  return cached;
}

void tsr__note_hidden(tsr__program *p, tsr__tid hidden) {
  if (!p->model->module_count) return;
  tsr__hold(p->tape, hidden);
  if (!TSR__VECTOR_PUSH(&p->hidden, hidden)) tsr__tape_fail(p->tape, TSR_ERROR_MEMORY);
}

void tsr__call_mask(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__attributes attributes = {.features = p->batch, .dtype = TSR__BOOL8};
  p->mask = 0;
  if (!p->has_mask) return;
  if (p->is_eager) attributes.dtype = (uint8_t)p->dtype;
  tsr__push_frame(t, "create_causal_mask", TSR__TRANSFORMERS "masking_utils.py", 825);
  tsr__push_frame(t, p->is_eager ? "eager_mask" : "sdpa_mask_recent_torch",
                  TSR__TRANSFORMERS "masking_utils.py", p->is_eager ? 508 : 391);
  p->mask = tsr__apply(t, TSR__OP_CAUSAL_MASK, &attributes, &p->position_ids, 1, NULL);
  tsr__pop_frames(t, 2);
}

/* ---- attention ---- */

static tsr__tid repeat(tsr__program *p, tsr__tid states) {
  tsr__attributes attributes = {.repeats = p->model->heads / p->model->kv_heads};
  tsr__tid repeated = tsr__apply(p->tape, TSR__OP_REPEAT, &attributes, &states, 1, NULL);
  return repeated;
}

/* inputs: q, k, v and, if there is one, the mask; index: whether q, k and v are of one tensor. */
static tsr__tid attention_segment(void *context, tsr__tape *t, uint32_t index,
                                  const tsr__tid *inputs) {
  tsr__program *p = context;
  const tsr_model *m = p->model;
  bool is_gpt2 = tsr__family_of(m) == TSR__FAMILY_GPT2;
  tsr__attributes attributes = {.chunk = p->options->attention_chunk,
                                .has_dropout = m->has_attention_dropout,
                                .is_packed = index != 0};
  tsr__tid given[4] = {inputs[0], inputs[1], inputs[2], p->has_mask ? inputs[3] : 0};
  tsr__enter(t, p->is_eager ? "eager_attention_forward" : "sdpa_attention_forward",
             p->is_eager ? family_of(p)->head_lines(m).file
                         : TSR__TRANSFORMERS "integrations/sdpa_attention.py");
  tsr__line(t, p->is_eager ? (is_gpt2 ? 98 : 191) : 96);
  if (p->repeats_heads) {
    given[1] = repeat(p, given[1]);
    given[2] = repeat(p, given[2]);
  }
  tsr__tid weights[TSR__OP_OUTPUTS] = {0};
  tsr__tid result = tsr__apply(t, p->attention, &attributes, given, p->has_mask ? 4 : 3, weights);
  bool holds_weights = p->is_eager && weights[1];
  if (holds_weights) tsr__hold(t, weights[1]);
  result = tsr__leave(t, result);
  if (holds_weights) tsr__bind(t, weights[1]); /* the calling function has them too */
  return result;
}

static tsr__tid checkpoint(tsr__program *p, tsr__segment_fn *segment, uint32_t index,
                           const tsr__tid *inputs, uint32_t count) {
  tsr__tape *t = p->tape;
  tsr__attributes attributes = {
      .segment = segment, .program = p, .index = index, .is_autocast = t->is_autocast};
  tsr__push_frame(t, "checkpoint", TSR__TORCH "utils/checkpoint.py", 496);
  tsr__push_frame(t, "apply", TSR__TORCH "autograd/function.py", 581);
  tsr__push_frame(t, "forward", TSR__TORCH "utils/checkpoint.py", 262);
  tsr__tid result = tsr__apply(t, TSR__OP_CHECKPOINT, &attributes, inputs, count, NULL);
  tsr__pop_frames(t, 3);
  return result;
}

tsr__tid tsr__call_attention(tsr__program *p, tsr__tid q, tsr__tid k, tsr__tid v, bool is_packed) {
  tsr__tid inputs[] = {q, k, v, p->mask};
  if (p->checkpoint == TSR_CHECKPOINT_SELECTIVE)
    return checkpoint(p, attention_segment, is_packed, inputs, p->has_mask ? 4 : 3);
  return attention_segment(p, p->tape, is_packed, inputs);
}

/* ---- blocks ---- */

/* inputs: the hidden state and, for GPT-2, positions and mask, which its checkpoints are given. */
static tsr__tid block_segment(void *context, tsr__tape *t, uint32_t index, const tsr__tid *inputs) {
  tsr__program *p = context;
  tsr__tid hidden = inputs[0], mask = p->mask;
  if (tsr__family_of(p->model) == TSR__FAMILY_GPT2 && p->has_mask) p->mask = inputs[2];
  uint64_t first = index * p->segment_blocks, end = first + p->segment_blocks;
  if (end > p->model->layers) end = p->model->layers;
  for (uint64_t i = first; i < end && !t->status; i++) {
    tsr__tid result = family_of(p)->block(p, (uint32_t)i, hidden);
    if (i > first) tsr__unbind(t, hidden);
    hidden = result;
  }
  p->mask = mask;
  return hidden;
}

tsr__tid tsr__call_blocks(tsr__program *p, tsr__tid hidden) {
  tsr__tape *t = p->tape;
  bool is_gpt2 = tsr__family_of(p->model) == TSR__FAMILY_GPT2;
  bool has_checkpoints =
      p->checkpoint == TSR_CHECKPOINT_FULL || p->checkpoint == TSR_CHECKPOINT_EVERY;
  uint64_t count = (p->model->layers + p->segment_blocks - 1) / p->segment_blocks;
  tsr__tid first = hidden;
  if (has_checkpoints && !is_gpt2) { /* bound into the function that a checkpoint would call */
    output(p, p->mask);
    output(p, p->cosine);
    output(p, p->sine);
    output(p, p->position_ids);
  }
  for (uint64_t i = 0; i < count && !t->status; i++) {
    tsr__tid inputs[] = {hidden, p->position_ids, p->mask}, result;
    uint32_t given = is_gpt2 ? (p->has_mask ? 3 : 2) : 1;
    if (has_checkpoints) {
      if (p->checkpoint == TSR_CHECKPOINT_FULL)
        tsr__push_frame(t, "__call__", TSR__TRANSFORMERS "modeling_layers.py", 93);
      result = checkpoint(p, block_segment, (uint32_t)i, inputs, given);
      if (p->checkpoint == TSR_CHECKPOINT_FULL) tsr__pop_frames(t, 1);
    } else {
      result = block_segment(p, t, (uint32_t)i, inputs);
    }
    if (i + 1 < count) tsr__note_hidden(p, result);
    if (hidden != first) tsr__unbind(t, hidden);
    hidden = result;
  }
  return hidden;
}

/* ---- the head and the loss ---- */

static tsr__tid shift_labels(tsr__program *p) {
  tsr__tid shifted[TSR__OP_OUTPUTS];
  return tsr__apply(p->tape, TSR__OP_SHIFT_LABELS, NULL, &p->labels, 1, shifted);
}

static tsr__tid full_loss(tsr__program *p, tsr__tid logits) {
  tsr__tape *t = p->tape;
  tsr__shape flat = TSR__SHAPE(p->batch * p->sequence, p->model->vocabulary);
  tsr__attributes wide = {.dtype = TSR__F32};
  tsr__enter(t, "ForCausalLMLoss", TSR__TRANSFORMERS "loss/loss_utils.py");
  tsr__line(t, 55);
  if (tsr__dtype_of(t, logits) != TSR__F32)
    logits = tsr__apply(t, TSR__OP_CAST, &wide, &logits, 1, NULL);
  tsr__line(t, 59);
  tsr__tid labels = shift_labels(p);
  tsr__tid rows = tsr__bind(t, tsr__view(t, logits, flat, true));
  tsr__line(t, 67);
  tsr__enter(t, "fixed_cross_entropy", TSR__TRANSFORMERS "loss/loss_utils.py");
  tsr__line(t, 36);
  tsr__push_frame(t, "cross_entropy", TSR__TORCH "nn/functional.py", 3458);
  tsr__tid log_softmax = TSR__APPLY(t, TSR__OP_LOG_SOFTMAX, rows);
  tsr__tid loss = TSR__APPLY(t, TSR__OP_NLL_LOSS, log_softmax, labels);
  return tsr__leave(t, tsr__leave(t, loss));
}

static tsr__tid chunked_loss(tsr__program *p, tsr__tid hidden) {
  tsr__tape *t = p->tape;
  tsr__attributes attributes = {.chunk = p->options->loss_chunk};
  tsr__shape flat = TSR__SHAPE(p->batch * p->sequence, p->model->width);
  tsr__enter(t, "chunked_cross_entropy", SCRIPT);
  tsr__line(t, 12);
  tsr__push_frame(t, "forward", SCRIPT, 7);
  tsr__tid labels = shift_labels(p);
  tsr__tid rows = tsr__bind(t, tsr__view(t, hidden, flat, true));
  tsr__tid loss = tsr__apply(t, TSR__OP_CHUNKED_LOSS, &attributes,
                             (tsr__tid[]){rows, p->head, labels}, 3, NULL);
  return tsr__leave(t, loss);
}

/* The causal LM's forward: its loss, bound to the calling function. */
static tsr__tid call_model(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__head_lines at = family_of(p)->head_lines(p->model);
  tsr__linear head = {.weight = p->head, .features = p->model->vocabulary};
  tsr__enter_module(t, at.file);
  tsr__line(t, at.body);
  tsr__tid hidden = family_of(p)->model(p, p->ids), loss;
  if (p->options->loss_chunk) {
    tsr__line(t, at.loss);
    loss = chunked_loss(p, hidden);
  } else {
    tsr__line(t, at.head);
    tsr__tid logits = tsr__call_linear(p, &head, hidden, false);
    output(p, logits);
    tsr__line(t, at.loss);
    loss = full_loss(p, logits);
  }
  return tsr__leave(t, loss);
}

/* ---- added modules ---- */

/* All layers' projections, and their means into the loss. */
static tsr__tid call_added(tsr__program *p, tsr__tid loss) {
  tsr__tape *t = p->tape;
  size_t layers = p->model->layers, count = p->model->module_count * layers;
  TSR__VECTOR(tsr__tid) projected = {0};
  tsr__tid sum = 0;
  const tsr__tid *hidden = p->hidden.items;
  if (t->status || !hidden || p->hidden.count < layers) return loss; /* the tape has failed */
  tsr__line(t, LINE_PROJECT);
  for (size_t i = 0; i < count && !t->status; i++) {
    tsr__tid result = tsr__call_linear(p, &p->added[i], hidden[i % layers], false);
    if (!TSR__VECTOR_PUSH(&projected, result)) tsr__tape_fail(t, TSR_ERROR_MEMORY);
  }
  tsr__line(t, LINE_MEAN);
  for (size_t i = 0; i < projected.count && !t->status; i++) {
    tsr__tid mean = TSR__APPLY(t, TSR__OP_MEAN, projected.items[i]);
    tsr__tid more = i ? TSR__APPLY(t, TSR__OP_ADD, sum, mean) : TSR__APPLY(t, TSR__OP_SCALE, mean);
    tsr__unbind(t, mean);
    tsr__unbind(t, sum);
    sum = more;
  }
  TSR__VECTOR_FREE(&projected);
  tsr__tid term = TSR__APPLY(t, TSR__OP_SCALE, sum);
  tsr__line(t, LINE_LOSS);
  return TSR__APPLY(t, TSR__OP_ADD, loss, term);
}

/* A wrapper's forward, which returns the loss and the logits alone. */
static tsr__tid call_wrapper(tsr__program *p) {
  tsr__tape *t = p->tape;
  size_t cached = p->cache.count;
  tsr__enter_module(t, SCRIPT);
  tsr__line(t, LINE_BASE);
  tsr__tid loss = call_added(p, call_model(p));
  while (p->cache.count > cached) tsr__release(t, p->cache.items[--p->cache.count]);
  while (p->hidden.count) tsr__release(t, p->hidden.items[--p->hidden.count]);
  return tsr__leave(t, loss);
}

/* ---- the step ---- */

static tsr__tid to_device(tsr__program *p) {
  tsr__tid tensor =
      tsr__allocate(p->tape, TSR__KERNEL_TO_COPY, TSR__I64, TSR__SHAPE(p->batch, p->sequence));
  tsr__set_role(p->tape, tensor, TSR_ROLE_INPUT);
  return tensor;
}

static void load_batch(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__tid last[] = {p->ids, p->labels, p->attention_mask};
  tsr__line(t, LINE_BATCH);
  p->ids = to_device(p);
  p->labels = to_device(p);
  p->attention_mask = p->has_attention_mask ? to_device(p) : 0;
  tsr__carry_here(t, TSR__CARRY_BATCH);
  for (size_t i = 0; i < sizeof last / sizeof *last; i++) tsr__release(t, last[i]);
}

/* The first `count` tensors of a list are let go of. */
static void release_first(tsr__tape *t, tsr__tids *list, size_t count) {
  if (t->status || !count) return;
  for (size_t i = 0; i < count; i++) tsr__release(t, list->items[i]);
  list->count -= count;
  memmove(list->items, list->items + count, list->count * sizeof *list->items);
}

static void forward(tsr__program *p) {
  tsr__tape *t = p->tape;
  size_t outputs = p->outputs.count, cached = p->cache.count; /* of the micro-batch before */
  tsr__line(t, LINE_MODEL);
  tsr__begin(t, TSR__PHASE_FORWARD);
  if (p->is_autocast) tsr__autocast_begin(t);
  tsr__tid loss = p->model->module_count ? call_wrapper(p) : call_model(p);
  if (p->is_autocast) tsr__autocast_end(t);
  tsr__carry_here(t, TSR__CARRY_OUTPUTS);
  release_first(t, &p->outputs, outputs);
  release_first(t, &p->cache, cached);
  output(p, loss);
  p->loss = loss;
  tsr__unbind(t, loss);
  tsr__end(t, TSR__PHASE_FORWARD);
}

static void backward(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__tid root = p->loss, scaled = 0;
  tsr__line(t, LINE_BACKWARD);
  tsr__begin(t, TSR__PHASE_BACKWARD);
  if (p->accumulate > 1) root = scaled = TSR__APPLY(t, TSR__OP_SCALE, root);
  if (p->options->dtype == TSR_SIMULATE_AUTOCAST_FP16) root = TSR__APPLY(t, TSR__OP_SCALE, root);
  tsr__push_frame(t, "backward", TSR__TORCH "_tensor.py", 625);
  tsr__push_frame(t, "backward", TSR__TORCH "autograd/__init__.py", 347);
  tsr__push_frame(t, "_make_grads", TSR__TORCH "autograd/__init__.py", 221);
  tsr__tid grad = tsr__allocate(t, TSR__KERNEL_ONES_LIKE, TSR__F32, TSR__SCALAR);
  tsr__set_role(t, grad, TSR_ROLE_BACKWARD);
  tsr__pop_frames(t, 1);
  tsr__line(t, 354);
  tsr__push_frame(t, "_engine_run_backward", TSR__TORCH "autograd/graph.py", 841);
  size_t before = tsr__enter_thread(t);
  tsr__hold(t, grad); /* by Python, until the pass is over */
  tsr__backward(t, root, grad);
  tsr__leave_thread(t, before);
  tsr__release(t, grad);
  tsr__pop_frames(t, 3);
  if (root != scaled && root != p->loss) tsr__unbind(t, root);
  tsr__unbind(t, scaled);
  tsr__end(t, TSR__PHASE_BACKWARD);
}

static void optimize(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__line(t, LINE_STEP);
  tsr__begin(t, TSR__PHASE_OPTIMIZER);
  t->grad_enabled = false;
  tsr__call_optimizer(p);
  t->grad_enabled = true;
  tsr__end(t, TSR__PHASE_OPTIMIZER);
}

void tsr__program_step(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__enter(t, "<module>", SCRIPT);
  tsr__line(t, LINE_MAIN);
  tsr__enter(t, "train", SCRIPT);
  tsr__begin(t, TSR__PHASE_STEP);
  for (uint64_t i = 0; i < p->accumulate && !t->status; i++) {
    load_batch(p);
    if (i == 0) {
      tsr__line(t, LINE_ZERO_GRAD);
      tsr__begin(t, TSR__PHASE_ZERO_GRAD);
      tsr__carry_here(t, TSR__CARRY_GRADS);
      tsr__end(t, TSR__PHASE_ZERO_GRAD);
    }
    forward(p);
    backward(p);
    if (t->schedule.count > TSR_SIMULATE_MOST_INSTRUCTIONS / p->accumulate) {
      t->is_too_long |= t->status == 0;
      tsr__tape_fail(t, TSR_ERROR_LIMIT); /* the others will not be fewer */
    }
  }
  optimize(p);
  tsr__end(t, TSR__PHASE_STEP);
  tsr__hold_until(t, p->ids, TSR__CARRY_BATCH);
  tsr__hold_until(t, p->labels, TSR__CARRY_BATCH);
  tsr__hold_until(t, p->attention_mask, TSR__CARRY_BATCH);
  for (size_t i = 0; i < p->outputs.count; i++)
    tsr__hold_until(t, p->outputs.items[i], TSR__CARRY_OUTPUTS);
  for (size_t i = 0; i < p->cache.count; i++)
    tsr__hold_until(t, p->cache.items[i], TSR__CARRY_OUTPUTS);
  for (size_t i = 0; i < t->parameters.count; i++)
    tsr__hold_until(t, tsr__tensor_at(t, t->parameters.items[i])->grad, TSR__CARRY_GRADS);
  (void)tsr__leave(t, 0);
  (void)tsr__leave(t, 0);
}
