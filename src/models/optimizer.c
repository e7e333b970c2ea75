/* optimizer.c - the optimizer's step, function by function as torch/optim/adam.py and sgd.py have it.
 *
 * State is made in the first step, parameter by parameter, and never released. What each variant does
 * with a parameter is a row of the op table (src/ops/op_optimizer.c).
 *
 * An optimizer whose state is on the host runs there: gradients are copied out, parameters there and back, which
 * the tape adds by itself (graph/spaces.c). */
#include <assert.h>

#include "models/program.h"

static bool has_grad(const tsr__tape *t, size_t parameter) {
  return tsr__tensor_at(t, t->parameters.items[parameter])->grad != 0;
}

/* One tensor of state, which the optimizer holds. */
static tsr__tensor_id make_state(tsr__tape *t, tsr__program_place place, tsr__op_kind kind,
                                 tsr__tensor_id parameter) {
  tsr__trace_at(t, place);
  tsr__tensor_id state = TSR__OP_APPLY(t, kind, parameter);
  tsr__tensor_hold(t, state);
  tsr__tensor_set_category(t, state, TSR_CATEGORY_OPTIMIZER_STATE);
  return state;
}

static void init_group(tsr__program *p) {
  tsr__tape *t = p->tape;
  bool counts = p->options->optimizer == TSR_OPTIMIZER_ADAMW_FUSED && !p->is_own;
  tsr__scope_enter(t, TSR__PLACE_ADAMW_STATE);
  for (size_t i = 0; i < t->parameters.count && !t->status; i++) {
    tsr__tensor_id parameter = t->parameters.items[i];
    tsr__optimizer_state state = {0};
    if (has_grad(t, i)) {
      if (counts)
        state.count = make_state(t, TSR__PLACE_STATE_COUNT, TSR__OP_ADAMW_COUNT, parameter);
      state.first = make_state(t, TSR__PLACE_STATE_FIRST, TSR__OP_ADAMW_STATE, parameter);
      state.second = make_state(t, TSR__PLACE_STATE_SECOND, TSR__OP_ADAMW_STATE, parameter);
    }
    if (!TSR__VECTOR_PUSH(&t->states, state)) tsr__tape_fail(t, TSR_ERROR_MEMORY);
  }
  (void)tsr__scope_leave(t, 0);
}

/* Run the op for every parameter that has a gradient. Its result lives until the function returns
 * or, as the variable of a loop, until the next result exists. */
static void update(tsr__program *p, tsr__op_kind kind, bool is_loop) {
  tsr__tape *t = p->tape;
  tsr__tensor_id last = 0;
  assert(!t->grad_enabled &&
         (!t->states.count || t->states.count == t->parameters.count || t->status));
  for (size_t i = 0; i < t->parameters.count && !t->status; i++) {
    tsr__optimizer_state state =
        i < t->states.count ? t->states.items[i] : (tsr__optimizer_state){0};
    tsr__tensor_id parameter = t->parameters.items[i], grad = tsr__tensor_at(t, parameter)->grad;
    if (!grad) continue;
    tsr__tensor_id made = tsr__op_apply(
        t, kind, NULL, (tsr__tensor_id[]){parameter, grad, state.first, state.second, state.count},
        5, NULL);
    if (is_loop) tsr__scope_unbind(t, last);
    last = made;
  }
}

static void adamw(tsr__program *p, tsr__program_place place, tsr__op_kind kind) {
  tsr__tape *t = p->tape;
  tsr__scope_enter(t, TSR__PLACE_ADAMW);
  init_group(p);
  tsr__scope_enter(t, place);
  update(p, kind, kind == TSR__OP_ADAMW_LOOP);
  (void)tsr__scope_leave(t, 0);
  (void)tsr__scope_leave(t, 0);
}

/* SGD needs only parameters and gradients: nothing is allocated. */
static void sgd(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__scope_enter(t, TSR__PLACE_SGD);
  update(p, TSR__OP_SGD, false);
  (void)tsr__scope_leave(t, 0);
}

/* Divide all gradients by the loss's scale, and note whether one overflowed. `scaler`: one over the
 * scale, and that note. */
static void unscale(tsr__program *p, tsr__tensor_id *scaler) {
  tsr__tape *t = p->tape;
  t->space = t->homes.gradients;
  tsr__trace_enter(t, TSR__PLACE_UNSCALE);
  (void)tsr__op_apply(t, TSR__OP_UNSCALE, NULL, &p->loss_scale, 1, scaler);
  tsr__trace_leave(t);
  for (size_t i = 0; i < t->parameters.count && !t->status; i++) {
    tsr__tensor_id grad = tsr__tensor_at(t, t->parameters.items[i])->grad;
    if (!grad) continue;
    tsr__tape_run(t, &(tsr__kernel_use){.kernel = TSR__KERNEL_UNSCALE,
                                        .op = TSR_NONE,
                                        .reads = {grad, scaler[0], scaler[1]},
                                        .writes = {grad, scaler[1]}});
  }
  t->space = TSR__SPACE_DEVICE;
}

/* The scale grows after many good steps, and shrinks after an overflow. */
static void update_scale(tsr__program *p, const tsr__tensor_id *scaler) {
  tsr__tape_run(p->tape, &(tsr__kernel_use){.kernel = TSR__KERNEL_UPDATE_SCALE,
                                            .op = TSR_NONE,
                                            .reads = {p->loss_scale, p->good_steps, scaler[1]},
                                            .writes = {p->loss_scale, p->good_steps}});
}

void tsr__program_optimizer(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__tensor_id scaler[TSR__OP_OUTPUTS] = {0};
  if (p->loss_scale) unscale(p, scaler);
  t->space = t->homes.optimizer;
  switch (p->options->optimizer) {
  case TSR_OPTIMIZER_ADAMW:
  case TSR_OPTIMIZER_ADAMW_FOREACH:
    adamw(p, TSR__PLACE_UPDATE_FOREACH, TSR__OP_ADAMW_FOREACH);
    break;
  case TSR_OPTIMIZER_ADAMW_LOOP: adamw(p, TSR__PLACE_UPDATE_LOOP, TSR__OP_ADAMW_LOOP); break;
  case TSR_OPTIMIZER_ADAMW_FUSED: adamw(p, TSR__PLACE_UPDATE_FUSED, TSR__OP_ADAMW_FUSED); break;
  case TSR_OPTIMIZER_SGD: sgd(p); break;
  }
  t->space = TSR__SPACE_DEVICE;
  if (p->loss_scale) update_scale(p, scaler);
  for (size_t i = 0; i < TSR__OP_OUTPUTS; i++) tsr__scope_unbind(t, scaler[i]);
}
