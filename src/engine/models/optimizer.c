/* optimizer.c - the optimizer's step, function by function as in torch/optim/adam.py and sgd.py.
 *
 * State is made in the first step, parameter by parameter, and never released. The op table
 * (src/engine/ops/op_optimizer.c) has a row for each variant's work on a parameter.
 *
 * Other optimizers, which are simulated only, are in optimizer_others.c.
 *
 * All parameters are updated at the end of a step, or each one in backward, as soon as its gradient is complete.
 * Both update a range of parameters.
 *
 * An optimizer whose state is on the host runs there: gradients are copied to the host, parameters to the host and
 * back. The tape adds these copies by itself (graph/spaces.c). */
#include <assert.h>

#include "models/optimizer.h"

typedef tsr__update_range range;

const char *tsr__optimizer_class(tsr_simulate_optimizer optimizer) {
  switch (optimizer) {
  case TSR_OPTIMIZER_SGD:
  case TSR_OPTIMIZER_SGD_MOMENTUM: return "SGD";
  case TSR_OPTIMIZER_ADAFACTOR: return "Adafactor";
  case TSR_OPTIMIZER_MUON: return "Muon";
  case TSR_OPTIMIZER_ADAMW_8BIT: return "AdamW8bit";
  case TSR_OPTIMIZER_LION: return "Lion";
  case TSR_OPTIMIZER_ADAMW:
  case TSR_OPTIMIZER_ADAMW_FOREACH:
  case TSR_OPTIMIZER_ADAMW_FUSED:
  case TSR_OPTIMIZER_ADAMW_LOOP: break;
  }
  return "AdamW";
}

/* torch._foreach_norm sums the squares of this many elements at a time. */
enum { NORM_CHUNK = 65536 };

/* Make one tensor of state, which the optimizer holds. */
static tsr__tensor_id hold_state(tsr__tape *t, tsr__op_kind kind, tsr__tensor_id parameter) {
  tsr__tensor_id state = TSR__OP_APPLY(t, kind, parameter);
  tsr__tensor_hold(t, state);
  tsr__tensor_set_category(t, state, TSR_CATEGORY_OPTIMIZER_STATE);
  return state;
}

static tsr__tensor_id make_state(tsr__tape *t, tsr__program_place place, tsr__op_kind kind,
                                 tsr__tensor_id parameter) {
  tsr__trace_at(t, place);
  return hold_state(t, kind, parameter);
}

/* Make room in the list of states. */
static void init_states(tsr__tape *t) {
  while (t->schedule.states.count < tsr__schedule_updated_count(&t->schedule) && !t->status)
    if (!TSR__VECTOR_PUSH(&t->schedule.states, (tsr__optimizer_state){0}))
      tsr__tape_fail(t, TSR_ERROR_MEMORY);
}

tsr__tensor_id tsr__update_target(const tsr__tape *t, size_t parameter) {
  tsr__tensor_id master = t->schedule.states.items[parameter].master;
  return master ? master : tsr__schedule_updated(&t->schedule, parameter);
}

tsr__tensor_id tsr__update_gradient(const tsr__tape *t, size_t parameter) {
  tsr__tensor_id gradient = t->schedule.states.items[parameter].gradient;
  return gradient ? gradient
                  : tsr__tensor_at(t, tsr__schedule_updated(&t->schedule, parameter))->grad;
}

static bool is_of_block(const tsr__tape *t, tsr__tensor_id tensor) {
  for (size_t i = 0; i < t->schedule.blocks.count; i++)
    if (t->schedule.blocks.items[i].tensor == tensor) return true;
  return false;
}

bool tsr__update_is_there(const tsr__tape *t, range r, size_t i) {
  bool is_near = tsr__tensor_at(t, tsr__schedule_updated(&t->schedule, i))->stays_near;
  return r.where == TSR__PLACE_ANY || is_near == (r.where == TSR__NEAR);
}

bool tsr__updates(const tsr__tape *t, range r, size_t i) {
  if (!tsr__update_gradient(t, i) || !tsr__update_is_there(t, r, i)) return false;
  if (r.which == TSR__UPDATES_ALL) return true;
  tsr__tensor_id parameter = tsr__schedule_updated(&t->schedule, i);
  bool is_matrix = tsr__tensor_shape(t, parameter).rank == 2 && is_of_block(t, parameter);
  return is_matrix == (r.which == TSR__UPDATES_MATRICES);
}

/* ---- weight decay ---- */

/* What a norm has in a parameter: its weight, its bias, or nothing. */
enum { NORM_NOTHING, NORM_WEIGHT, NORM_BIAS };

static int part_of_norm(const tsr__model_norm *norm, tsr__tensor_id tensor) {
  return tensor == norm->weight ? NORM_WEIGHT : tensor == norm->bias ? NORM_BIAS : NORM_NOTHING;
}

static int find_norm(const tsr__program *p, tsr__tensor_id tensor) {
  int part = part_of_norm(&p->last_norm, tensor);
  for (size_t i = 0; !part && i < p->model->layers; i++) {
    part = part_of_norm(&p->layers[i].norm_1, tensor);
    if (!part) part = part_of_norm(&p->layers[i].norm_2, tensor);
  }
  return part;
}

/* Vectors are weights of norms, and biases. */
static bool decays(const tsr__program *p, tsr__tensor_id parameter) {
  unsigned without = p->options->no_decay;
  if (!without || tsr__tensor_shape(p->tape, parameter).rank != 1) return true;
  int norm = find_norm(p, parameter);
  if (norm && without & TSR_NO_DECAY_NORMS) return false;
  return norm == NORM_WEIGHT || !(without & TSR_NO_DECAY_BIASES);
}

/* Whether the optimizer updates a parameter with the others of its group. */
static bool is_in(const tsr__program *p, range r, size_t i) {
  if (!tsr__updates(p->tape, r, i)) return false;
  if (r.decay == TSR__DECAY_ANY) return true;
  return decays(p, tsr__schedule_updated(&p->tape->schedule, i)) == (r.decay == TSR__DECAYED);
}

/* Numbers of kernels that depend on the decay, from `first` on. */
static void omit_decay(tsr__tape *t, size_t first) {
  for (size_t i = first; i < t->schedule.scalars.count; i++) {
    tsr__scalar *s = &t->schedule.scalars.items[i];
    if (s->kind == TSR__SCALAR_KEPT) *s = (tsr__scalar){TSR__SCALAR_NUMBER, 1};
    if (s->kind == TSR__SCALAR_WEIGHT_DECAY) *s = (tsr__scalar){TSR__SCALAR_NUMBER, 0};
  }
}

static void init_group(tsr__program *p, range r) {
  tsr__tape *t = p->tape;
  bool counts = p->options->optimizer == TSR_OPTIMIZER_ADAMW_FUSED && !p->is_own;
  tsr__scope_enter(t, TSR__PLACE_ADAMW_STATE);
  for (size_t i = r.first; i < r.end && !t->status; i++) {
    tsr__tensor_id target = tsr__update_target(t, i);
    tsr__optimizer_state state = t->schedule.states.items[i];
    if (!is_in(p, r, i)) continue;
    if (counts) state.count = make_state(t, TSR__PLACE_STATE_COUNT, TSR__OP_ADAMW_COUNT, target);
    state.first = make_state(t, TSR__PLACE_STATE_FIRST, TSR__OP_ADAMW_STATE, target);
    state.second = make_state(t, TSR__PLACE_STATE_SECOND, TSR__OP_ADAMW_STATE, target);
    t->schedule.states.items[i] = state;
  }
  (void)tsr__scope_leave(t, 0);
}

/* Run the op for every parameter that has a gradient. Its result lives until the function returns
 * or, as the variable of a loop, until the next result exists. */
static void update(tsr__program *p, range r, tsr__op_kind kind, bool is_loop) {
  tsr__tape *t = p->tape;
  tsr__tensor_id last = 0;
  assert(!t->grad_enabled &&
         (t->schedule.states.count == tsr__schedule_updated_count(&t->schedule) || t->status));
  for (size_t i = r.first; i < r.end && !t->status; i++) {
    const tsr__optimizer_state state = t->schedule.states.items[i];
    tsr__tensor_id grad = tsr__update_gradient(t, i);
    size_t scalars = t->schedule.scalars.count;
    if (!is_in(p, r, i)) continue;
    tsr__tensor_id made = tsr__op_apply(
        t, kind, NULL,
        (tsr__tensor_id[]){tsr__update_target(t, i), grad, state.first, state.second, state.count},
        5, NULL);
    if (r.decay == TSR__UNDECAYED) omit_decay(t, scalars);
    if (is_loop) tsr__scope_unbind(t, last);
    last = made;
  }
}

/* ---- master weights ---- */

/* Convert gradients to fp32, and divide them by the loss scale if there is one. The 16-bit gradients are released one
 * after another. `scaler`: as in unscale. */
static void widen_gradients(tsr__program *p, range r, const tsr__tensor_id *scaler) {
  tsr__tape *t = p->tape;
  for (size_t i = r.first; i < r.end && !t->status; i++) {
    tsr__tape_tensor *parameter = tsr__tensor_at(t, tsr__schedule_updated(&t->schedule, i));
    tsr__tensor_id grad = parameter->grad;
    if (!grad || !tsr__update_is_there(t, r, i)) continue;
    tsr__kernel_use use = {.kernel = TSR__KERNEL_TO_COPY, .op = TSR_NONE, .reads = {grad}};
    if (scaler[0])
      use = (tsr__kernel_use){.kernel = TSR__KERNEL_UNSCALE,
                              .op = TSR_NONE,
                              .reads = {grad, scaler[0], scaler[1]},
                              .writes = {0, scaler[1]}};
    tsr__tensor_id wide =
        tsr__tape_run_new(t, &use, TSR__DTYPE_F32, tsr__layout_like(tsr__tensor_layout(t, grad)));
    if (!wide) return;
    tsr__tensor_set_category(t, wide, TSR_CATEGORY_GRADIENT);
    t->schedule.states.items[i].gradient = wide;
    tsr__tensor_at(t, tsr__schedule_updated(&t->schedule, i))->grad = 0;
    tsr__tensor_release(t, grad);
  }
}

static void make_masters(tsr__program *p, range r) {
  tsr__tape *t = p->tape;
  for (size_t i = r.first; i < r.end && !t->status; i++)
    if (tsr__update_gradient(t, i) && tsr__update_is_there(t, r, i))
      t->schedule.states.items[i].master = make_state(t, TSR__PLACE_STATE_FIRST, TSR__OP_MASTER,
                                                      tsr__schedule_updated(&t->schedule, i));
}

/* Set parameters to their rounded masters, and release the gradients in fp32. */
static void store_masters(tsr__program *p, range r) {
  tsr__tape *t = p->tape;
  for (size_t i = r.first; i < r.end && !t->status; i++) {
    tsr__tensor_id parameter = tsr__schedule_updated(&t->schedule, i),
                   master = t->schedule.states.items[i].master;
    if (!master || !tsr__update_is_there(t, r, i)) continue;
    (void)TSR__OP_APPLY(t, TSR__OP_MASTER_STORE, parameter, master);
    tsr__tensor_release(t, t->schedule.states.items[i].gradient);
  }
}

static void adamw_group(tsr__program *p, range r, tsr__program_place place, tsr__op_kind kind) {
  tsr__tape *t = p->tape;
  tsr__scope_enter(t, TSR__PLACE_ADAMW);
  init_group(p, r);
  tsr__scope_enter(t, place);
  update(p, r, kind, kind == TSR__OP_ADAMW_LOOP);
  (void)tsr__scope_leave(t, 0);
  (void)tsr__scope_leave(t, 0);
}

/* One group after the other, as torch.optim's step takes them. */
static void adamw(tsr__program *p, range r, tsr__program_place place, tsr__op_kind kind) {
  if (p->options->no_decay) {
    bool has[2] = {false};
    for (size_t i = r.first; i < r.end; i++)
      has[decays(p, tsr__schedule_updated(&p->tape->schedule, i))] = true;
    r.decay = TSR__DECAYED;
    if (has[1]) adamw_group(p, r, place, kind);
    r.decay = TSR__UNDECAYED;
    if (!has[0]) return;
  }
  adamw_group(p, r, place, kind);
}

/* SGD needs only parameters and gradients, and one tensor for momentum. */
static void sgd(tsr__program *p, range r) {
  tsr__tape *t = p->tape;
  bool has_momentum = p->options->optimizer == TSR_OPTIMIZER_SGD_MOMENTUM;
  tsr__op_kind with = p->options->nesterov ? TSR__OP_SGD_NESTEROV : TSR__OP_SGD_MOMENTUM;
  tsr__scope_enter(t, TSR__PLACE_SGD);
  for (size_t i = r.first; has_momentum && i < r.end && !t->status; i++) {
    if (!tsr__updates(t, r, i)) continue;
    tsr__tensor_id buffer = hold_state(t, TSR__OP_SGD_STATE, tsr__update_target(t, i));
    t->schedule.states.items[i].first = buffer;
  }
  update(p, r, has_momentum ? with : TSR__OP_SGD, false);
  (void)tsr__scope_leave(t, 0);
}

/* Make one over the loss scale, and a flag for overflowing gradients: `scaler`. */
static void begin_unscale(tsr__program *p, tsr__tensor_id *scaler) {
  tsr__trace_enter(p->tape, TSR__PLACE_UNSCALE);
  (void)tsr__op_apply(p->tape, TSR__OP_UNSCALE, NULL, &p->loss_scale, 1, scaler);
  tsr__trace_leave(p->tape);
}

/* Divide gradients by the loss scale, and set the flag if one overflowed. */
static void unscale(tsr__program *p, range r, const tsr__tensor_id *scaler) {
  tsr__tape *t = p->tape;
  for (size_t i = r.first; i < r.end && !t->status; i++) {
    tsr__tensor_id grad = tsr__tensor_at(t, tsr__schedule_updated(&t->schedule, i))->grad;
    if (!grad || !tsr__update_is_there(t, r, i)) continue;
    tsr__tape_run(t, &(tsr__kernel_use){.kernel = TSR__KERNEL_UNSCALE,
                                        .op = TSR_NONE,
                                        .reads = {grad, scaler[0], scaler[1]},
                                        .writes = {grad, scaler[1]}});
  }
}

/* ---- clipping ---- */

typedef struct gradients {
  size_t count;
  uint64_t most_chunks; /* of the largest gradient */
} gradients;

static gradients measure_gradients(const tsr__tape *t, range r) {
  gradients g = {0};
  for (size_t i = r.first; i < r.end; i++) {
    tsr__tensor_id grad = tsr__update_is_there(t, r, i) ? tsr__update_gradient(t, i) : 0;
    uint64_t elements = grad ? tsr__shape_elements(tsr__tensor_shape(t, grad)) : 0;
    uint64_t chunks = (elements + NORM_CHUNK - 1) / NORM_CHUNK;
    g.count += grad != 0;
    if (chunks > g.most_chunks) g.most_chunks = chunks;
  }
  return g;
}

/* The space in which gradients are unscaled, clipped and widened. */
static uint8_t space_of_gradients(const tsr__program *p, range r) {
  const tsr__homes *homes = &p->tape->homes;
  if (r.where == TSR__NEAR) return TSR__SPACE_DEVICE;
  return p->options->master_weights && homes->optimizer ? homes->optimizer : homes->gradients;
}

uint8_t tsr__program_space_of_gradient(const tsr__program *p, size_t i) {
  const tsr__tape *t = p->tape;
  bool is_near = tsr__tensor_at(t, tsr__schedule_updated(&t->schedule, i))->stays_near;
  return space_of_gradients(p, (range){.where = is_near ? TSR__NEAR : TSR__FAR});
}

/* All parameters, by where their gradients and states are: first those that --offload puts elsewhere, as torch.optim's functions group
 * tensors by device. */
static size_t list_places(const tsr__program *p, range places[2]) {
  const tsr__tape *t = p->tape;
  const range all = {.end = tsr__schedule_updated_count(&t->schedule)};
  places[0] = places[1] = all;
  if (!t->homes.blocks) return 1;
  places[0].where = TSR__FAR;
  places[1].where = TSR__NEAR;
  return 2;
}

static tsr__kernel_use use_of(tsr__kernel kernel, tsr__tensor_id from) {
  return (tsr__kernel_use){.kernel = kernel, .op = TSR_NONE, .reads = {from}};
}

/* The type of the gradients that the optimizer gets. */
static tsr__dtype norm_type(const tsr__program *p) {
  return p->options->master_weights || p->options->lora_rank ? TSR__DTYPE_F32 : p->dtype;
}

/* Make a scalar, bound to the current function. */
static tsr__tensor_id make_scalar(tsr__program *p, tsr__kernel_use use) {
  tsr__layout layout = tsr__layout_dense(TSR__SCALAR);
  return tsr__scope_bind(p->tape, tsr__tape_run_new(p->tape, &use, norm_type(p), layout));
}

static tsr__kernel_use use_with(tsr__kernel kernel, tsr__tensor_id from, double number) {
  tsr__kernel_use use = use_of(kernel, from);
  use.scalars[0] = (tsr__scalar){TSR__SCALAR_NUMBER, number};
  return use;
}

/* Compute the norm of each parameter's gradient when its parts are on different ranks. */
static void shared_norms(tsr__program *p, tsr__tensor_ids *norms) {
  tsr__tape *t = p->tape;
  tsr__tensor_id sums = tsr__program_shared_squares(p);
  for (size_t i = 0; i < t->schedule.parameters.count && !t->status; i++) {
    tsr__layout row = tsr__layout_dense(TSR__SHAPE(TSR__NORM_SUMS));
    row.offset = i * TSR__NORM_SUMS;
    tsr__tensor_id sum = tsr__tensor_view(t, sums, row);
    tsr__tensor_id norm = make_scalar(p, use_of(TSR__KERNEL_NORM_END, sum));
    tsr__tensor_release(t, sum);
    if (!TSR__VECTOR_PUSH(norms, norm)) tsr__tape_fail(t, TSR_ERROR_MEMORY);
  }
  tsr__scope_unbind(t, sums);
}

/* torch._foreach_norm: computes sums of parts, which are freed when it returns, and then the norm of each
 * gradient. */
static void each_norm(tsr__program *p, range r, tsr__tensor_ids *norms) {
  tsr__tape *t = p->tape;
  gradients g = measure_gradients(t, r);
  if (!g.count) return;
  t->space = space_of_gradients(p, r);
  tsr__shape chunks = TSR__SHAPE(g.count * g.most_chunks);
  tsr__tensor_id parts =
      tsr__scope_bind(t, tsr__tensor_new(t, TSR__KERNEL_ZEROS, TSR__DTYPE_F32, chunks));
  for (size_t i = r.first; i < r.end && !t->status; i++) {
    tsr__tensor_id grad = tsr__update_gradient(t, i);
    if (!grad || !tsr__update_is_there(t, r, i)) continue;
    tsr__kernel_use use = use_of(TSR__KERNEL_FOREACH_NORM, grad);
    use.scratch[0] = parts;
    tsr__tensor_id norm = make_scalar(p, use);
    if (!TSR__VECTOR_PUSH(norms, norm)) tsr__tape_fail(t, TSR_ERROR_MEMORY);
  }
  tsr__scope_unbind(t, parts);
}

/* torch.stack: each scalar is an element of a vector. */
static tsr__tensor_id stack(tsr__program *p, const tsr__tensor_ids *scalars) {
  tsr__tape *t = p->tape;
  if (t->status) return 0;
  tsr__tensor_id all =
      tsr__tensor_new(t, TSR__KERNEL_CAT, norm_type(p), TSR__SHAPE((uint64_t)scalars->count));
  for (size_t i = 0; i < scalars->count && !t->status; i++) {
    tsr__layout place = tsr__layout_dense(TSR__SCALAR);
    place.offset = i;
    tsr__tensor_id element = tsr__tensor_view(t, all, place);
    tsr__tape_run(t, &(tsr__kernel_use){.kernel = TSR__KERNEL_TO_COPY,
                                        .op = TSR_NONE,
                                        .reads = {scalars->items[i]},
                                        .writes = {element}});
    tsr__tensor_release(t, element);
  }
  return tsr__scope_bind(t, all);
}

static tsr__tensor_id total_norm(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__tensor_ids norms = {0};
  tsr__scope_enter(t, TSR__PLACE_TOTAL_NORM);
  uint8_t space = t->space;
  range places[2];
  size_t count = list_places(p, places);
  if (t->schedule.sharding.stage) shared_norms(p, &norms);
  for (size_t i = 0; i < count && !t->schedule.sharding.stage; i++) each_norm(p, places[i], &norms);
  t->space = space;
  tsr__tensor_id all = stack(p, &norms);
  tsr__tensor_id total = make_scalar(p, use_of(TSR__KERNEL_NORM, all));
  tsr__scope_unbind(t, all);
  TSR__VECTOR_FREE(&norms);
  return tsr__scope_leave(t, total);
}

/* Multiply gradients by most / (norm + 1e-6), if that is less than 1. */
static void clip_gradients(tsr__program *p, tsr__tensor_id norm) {
  tsr__tape *t = p->tape;
  tsr__scope_enter(t, TSR__PLACE_CLIP_GRADIENTS);
  tsr__tensor_id sum = make_scalar(p, use_with(TSR__KERNEL_ADD, norm, 1e-6));
  tsr__tensor_id inverse = make_scalar(p, use_of(TSR__KERNEL_RECIPROCAL, sum));
  tsr__tensor_id factor = make_scalar(p, use_with(TSR__KERNEL_MUL, inverse, p->options->clip_norm));
  tsr__scope_unbind(t, inverse);
  tsr__scope_unbind(t, sum);
  factor = make_scalar(p, use_with(TSR__KERNEL_AT_MOST, factor, 1));
  uint8_t space = t->space;
  for (size_t i = 0; i < tsr__schedule_updated_count(&t->schedule) && !t->status; i++) {
    tsr__tensor_id grad = tsr__update_gradient(t, i);
    if (!grad) continue;
    t->space = tsr__program_space_of_gradient(p, i);
    tsr__tape_run(t, &(tsr__kernel_use){.kernel = TSR__KERNEL_MUL,
                                        .op = TSR_NONE,
                                        .reads = {grad, factor},
                                        .writes = {grad}});
  }
  t->space = space;
  (void)tsr__scope_leave(t, 0);
}

/* torch.nn.utils.clip_grad_norm_: clips the gradients that the optimizer uses, in the space where they are. The
 * program does not keep the returned norm. */
static void clip(tsr__program *p) {
  tsr__tape *t = p->tape;
  assert(p->options->clip_norm > 0);
  tsr__scope_enter(t, TSR__PLACE_CLIP);
  p->gradient_norm = total_norm(p);
  clip_gradients(p, p->gradient_norm);
  (void)tsr__scope_leave(t, 0);
}

/* The scale grows after many good steps, and shrinks after an overflow. */
static void update_scale(tsr__program *p, const tsr__tensor_id *scaler) {
  uint64_t steps = p->options->loss_scale_window;
  double window = steps ? (double)steps : 2000;
  tsr__tape_run(p->tape, &(tsr__kernel_use){.kernel = TSR__KERNEL_UPDATE_SCALE,
                                            .op = TSR_NONE,
                                            .scalars = {{TSR__SCALAR_NUMBER, window}},
                                            .reads = {p->loss_scale, p->good_steps, scaler[1]},
                                            .writes = {p->loss_scale, p->good_steps}});
}

/* torch.optim's step, for a range of parameters, in the space of the state. */
static void step(tsr__program *p, range r) {
  tsr__tape *t = p->tape;
  t->space = r.where == TSR__NEAR ? (uint8_t)TSR__SPACE_DEVICE : t->homes.optimizer;
  if (p->options->master_weights) make_masters(p, r);
  switch (p->options->optimizer) {
  case TSR_OPTIMIZER_ADAMW:
  case TSR_OPTIMIZER_ADAMW_FOREACH:
    adamw(p, r, TSR__PLACE_UPDATE_FOREACH, TSR__OP_ADAMW_FOREACH);
    break;
  case TSR_OPTIMIZER_ADAMW_LOOP: adamw(p, r, TSR__PLACE_UPDATE_LOOP, TSR__OP_ADAMW_LOOP); break;
  case TSR_OPTIMIZER_ADAMW_FUSED: adamw(p, r, TSR__PLACE_UPDATE_FUSED, TSR__OP_ADAMW_FUSED); break;
  case TSR_OPTIMIZER_SGD:
  case TSR_OPTIMIZER_SGD_MOMENTUM: sgd(p, r); break;
  case TSR_OPTIMIZER_MUON:
    r.which = TSR__UPDATES_MATRICES;
    tsr__program_update_otherwise(p, r);
    r.which = TSR__UPDATES_OTHERS;
    adamw(p, r, TSR__PLACE_UPDATE_FOREACH, TSR__OP_ADAMW_FOREACH);
    break;
  case TSR_OPTIMIZER_ADAFACTOR:
  case TSR_OPTIMIZER_ADAMW_8BIT:
  case TSR_OPTIMIZER_LION: tsr__program_update_otherwise(p, r); break;
  }
  if (p->options->master_weights) store_masters(p, r);
  t->space = TSR__SPACE_DEVICE;
}

void tsr__program_optimizer(tsr__program *p) {
  tsr__tape *t = p->tape;
  range places[2];
  size_t count = list_places(p, places);
  tsr__tensor_id scaler[TSR__OP_OUTPUTS] = {0};
  bool has_masters = p->options->master_weights;
  init_states(t);
  if (t->status) return;
  t->space = space_of_gradients(p, places[count - 1]); /* of numbers that all gradients need */
  if (p->loss_scale) begin_unscale(p, scaler);
  for (size_t i = 0; i < count; i++) {
    t->space = space_of_gradients(p, places[i]);
    if (has_masters)
      widen_gradients(p, places[i], scaler);
    else if (p->loss_scale)
      unscale(p, places[i], scaler);
  }
  if (p->loss_scale) tsr__program_share_overflow(p, scaler[1]);
  if (p->options->clip_norm > 0) clip(p);
  for (size_t i = 0; i < count; i++) step(p, places[i]);
  tsr__program_share_parameters(p);
  if (p->loss_scale) update_scale(p, scaler);
  for (size_t i = 0; i < TSR__OP_OUTPUTS; i++) tsr__scope_unbind(t, scaler[i]);
}

/* Called by the parameter's hook: its optimizer's step, and zero_grad. */
void tsr__program_update(void *program, tsr__tensor_id parameter) {
  static const tsr__tensor_id no_scaler[TSR__OP_OUTPUTS] = {0};
  tsr__program *p = program;
  tsr__tape *t = p->tape;
  size_t i = p->last_updated;
  while (tsr__schedule_updated(&t->schedule, i) != parameter)
    i = (i ? i : tsr__schedule_updated_count(&t->schedule)) - 1;
  p->last_updated = i; /* backward goes through parameters about in reverse */
  init_states(t);
  if (t->status) return;
  assert(i < tsr__schedule_updated_count(&t->schedule) && !p->loss_scale &&
         !t->schedule.states.items[i].is_updated);
  t->schedule.states.items[i].is_updated = true;
  tsr__scope_enter(t, TSR__PLACE_UPDATE_HOOK);
  range one = {.first = i, .end = i + 1};
  if (tsr__tensor_at(t, parameter)->stays_near) one.where = TSR__NEAR;
  t->space = space_of_gradients(p, one);
  if (p->options->master_weights) widen_gradients(p, one, no_scaler);
  step(p, one);
  tsr__tensor_release(t, tsr__tensor_at(t, parameter)->grad);
  tsr__tensor_at(t, parameter)->grad = t->schedule.states.items[i].gradient = 0;
  (void)tsr__scope_leave(t, 0);
}
