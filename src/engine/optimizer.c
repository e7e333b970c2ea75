/* optimizer.c - the optimizer's step, function by function as torch/optim/adam.py and sgd.py have it.
 *
 * State is made in the first step, parameter by parameter, and held for good. What each form does
 * with a parameter is a row of the op table (op_optimizer.c). */
#include "engine/program.h"

#define ADAM      TSR__TORCH "optim/adam.py"
#define OPTIMIZER TSR__TORCH "optim/optimizer.py"

static bool has_grad(const tsr__tape *t, size_t parameter) {
  return tsr__tensor_at(t, t->parameters.items[parameter])->grad != 0;
}

/* One tensor of state, which the optimizer holds. */
static tsr__tid make_state(tsr__tape *t, uint64_t line, tsr__op_kind kind, tsr__tid parameter) {
  tsr__line(t, line);
  tsr__tid state = TSR__APPLY(t, kind, parameter);
  tsr__hold(t, state);
  tsr__set_role(t, state, TSR_ROLE_OPTIMIZER);
  return state;
}

static void init_group(tsr__program *p) {
  tsr__tape *t = p->tape;
  bool is_fused = p->options->optimizer == TSR_OPTIMIZER_ADAMW_FUSED;
  tsr__line(t, 237);
  tsr__enter(t, "_init_group", ADAM);
  for (size_t i = 0; i < t->parameters.count && !t->status; i++) {
    tsr__tid parameter = t->parameters.items[i];
    tsr__state state = {0};
    if (has_grad(t, i)) {
      if (is_fused) state.count = make_state(t, 168, TSR__OP_ADAMW_COUNT, parameter);
      state.first = make_state(t, 177, TSR__OP_ADAMW_STATE, parameter);
      state.second = make_state(t, 181, TSR__OP_ADAMW_STATE, parameter);
    }
    if (!TSR__VECTOR_PUSH(&t->states, state)) tsr__tape_fail(t, TSR_ERROR_MEMORY);
  }
  (void)tsr__leave(t, 0);
}

/* The op of every parameter that has a gradient. What it answers lives until the function returns,
 * or, as the variable of a loop, until the next is there. */
static void update(tsr__program *p, tsr__op_kind kind, bool is_loop) {
  tsr__tape *t = p->tape;
  tsr__tid last = 0;
  for (size_t i = 0; i < t->parameters.count && !t->status; i++) {
    tsr__state state = i < t->states.count ? t->states.items[i] : (tsr__state){0};
    tsr__tid parameter = t->parameters.items[i], grad = tsr__tensor_at(t, parameter)->grad;
    if (!grad) continue;
    tsr__tid made =
        tsr__apply(t, kind, NULL,
                   (tsr__tid[]){parameter, grad, state.first, state.second, state.count}, 5, NULL);
    if (is_loop) tsr__unbind(t, last);
    last = made;
  }
}

static void adamw(tsr__program *p, const char *function, uint64_t line, tsr__op_kind kind) {
  tsr__tape *t = p->tape;
  tsr__enter(t, "wrapper", OPTIMIZER);
  tsr__line(t, 517);
  tsr__push_frame(t, "_use_grad", OPTIMIZER, 81);
  tsr__push_frame(t, "step", ADAM, 0);
  init_group(p);
  tsr__line(t, 247);
  tsr__push_frame(t, "maybe_fallback", OPTIMIZER, 150);
  tsr__push_frame(t, "adam", ADAM, 953);
  tsr__push_frame(t, function, ADAM, line);
  update(p, kind, kind == TSR__OP_ADAMW_LOOP);
  (void)tsr__leave(t, 0);
}

/* Of parameters and gradients alone: nothing is allocated. */
static void sgd(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__enter(t, "step", TSR__TORCH "optim/sgd.py");
  update(p, TSR__OP_SGD, false);
  (void)tsr__leave(t, 0);
}

void tsr__call_optimizer(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__tid scaler[TSR__OP_OUTPUTS] = {0};
  if (p->options->dtype == TSR_SIMULATE_AUTOCAST_FP16) {
    tsr__push_frame(t, "unscale_", TSR__TORCH "amp/grad_scaler.py", 343);
    (void)tsr__apply(t, TSR__OP_UNSCALE, NULL, NULL, 0, scaler);
    tsr__pop_frames(t, 1);
  }
  switch (p->options->optimizer) {
  case TSR_OPTIMIZER_ADAMW:
  case TSR_OPTIMIZER_ADAMW_FOREACH:
    adamw(p, "_multi_tensor_adam", 777, TSR__OP_ADAMW_FOREACH);
    break;
  case TSR_OPTIMIZER_ADAMW_LOOP: adamw(p, "_single_tensor_adam", 535, TSR__OP_ADAMW_LOOP); break;
  case TSR_OPTIMIZER_ADAMW_FUSED: adamw(p, "_fused_adam", 0, TSR__OP_ADAMW_FUSED); break;
  case TSR_OPTIMIZER_SGD: sgd(p); break;
  }
  for (size_t i = 0; i < TSR__OP_OUTPUTS; i++) tsr__unbind(t, scaler[i]);
}
