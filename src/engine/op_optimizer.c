/* op_optimizer.c - what an optimizer's step does to memory (torch/optim/adam.py, sgd.py).
 *
 * State is made in the first step. The foreach form of AdamW has, for a moment, a tensor as large
 * as each parameter, all at once: the root of the second moment. The loop has two of one
 * parameter's, the fused kernel none. SGD without momentum adds in place. */
#include "engine/op.h"

#define TORCH "/usr/local/lib/python3.12/dist-packages/torch/"

static bool has_grad(const tsr__tape *tape, size_t parameter) {
  return tsr__tensor_at(tape, tape->parameters.items[parameter])->grad != 0;
}

static void make_state(tsr__tape *tape, uint64_t line, const char *what, tsr__dtype dtype,
                       tsr__shape shape) {
  tsr__line(tape, line);
  tsr__set_role(tape, tsr__allocate_once(tape, what, dtype, shape), TSR_ROLE_OPTIMIZER);
}

static void init_group(tsr__call *call, bool has_device_steps) {
  tsr__tape *tape = call->tape;
  tsr__line(tape, 237);
  tsr__enter(tape, "_init_group", TORCH "optim/adam.py");
  for (size_t i = 0; i < tape->parameters.count && !tape->status; i++) {
    tsr__tid parameter = tape->parameters.items[i];
    if (!has_grad(tape, i)) continue;
    tsr__dtype dtype = tsr__dtype_of(tape, parameter);
    tsr__shape shape = tsr__shape_of(tape, parameter);
    if (has_device_steps) make_state(tape, 168, "zeros", TSR__F32, TSR__SCALAR);
    make_state(tape, 177, "zeros_like", dtype, shape);
    make_state(tape, 181, "zeros_like", dtype, shape);
  }
  (void)tsr__leave(tape, 0);
}

/* Enter step, make the state, and enter the function of this form. */
static void enter_step(tsr__call *call, const char *function, bool has_device_steps) {
  tsr__tape *tape = call->tape;
  tsr__enter(tape, "wrapper", TORCH "optim/optimizer.py");
  tsr__line(tape, 517);
  tsr__push_frame(tape, "_use_grad", TORCH "optim/optimizer.py", 81);
  tsr__push_frame(tape, "step", TORCH "optim/adam.py", 0);
  init_group(call, has_device_steps);
  tsr__line(tape, 247);
  tsr__push_frame(tape, "maybe_fallback", TORCH "optim/optimizer.py", 150);
  tsr__push_frame(tape, "adam", TORCH "optim/adam.py", 953);
  tsr__push_frame(tape, function, TORCH "optim/adam.py", 0);
}

void tsr__adamw_foreach_forward(tsr__call *call) {
  tsr__tape *tape = call->tape;
  enter_step(call, "_multi_tensor_adam", false);
  tsr__line(tape, 777);
  for (size_t i = 0; i < tape->parameters.count; i++)
    if (has_grad(tape, i))
      tsr__bind(tape, tsr__make_like(call, "_foreach_sqrt", tape->parameters.items[i]));
  (void)tsr__leave(tape, 0);
}

void tsr__adamw_loop_forward(tsr__call *call) {
  tsr__tape *tape = call->tape;
  tsr__tid last = 0;
  enter_step(call, "_single_tensor_adam", false);
  tsr__line(tape, 535);
  for (size_t i = 0; i < tape->parameters.count; i++) {
    if (!has_grad(tape, i)) continue;
    tsr__tid root = tsr__make_like(call, "sqrt", tape->parameters.items[i]);
    tsr__tid denominator = tsr__make_like(call, "div_Tensor", tape->parameters.items[i]);
    tsr__drop(call, root);
    tsr__drop(call, last);
    last = denominator;
  }
  tsr__drop(call, last);
  (void)tsr__leave(tape, 0);
}

void tsr__adamw_fused_forward(tsr__call *call) {
  enter_step(call, "_fused_adam", true);
  (void)tsr__leave(call->tape, 0);
}

void tsr__sgd_forward(tsr__call *call) {
  (void)call;
}

/* GradScaler.unscale_: whether anything overflowed, and one over the scale
 * (torch/amp/grad_scaler.py). */
void tsr__unscale_forward(tsr__call *call) {
  tsr__tid twice = tsr__make(call, "_to_copy", TSR__I64, TSR__SCALAR); /* a double */
  tsr__tid inverse = tsr__make(call, "reciprocal", TSR__I64, TSR__SCALAR);
  tsr__drop(call, twice);
  call->out[0] = tsr__make(call, "_to_copy", TSR__F32, TSR__SCALAR);
  tsr__drop(call, inverse);
  call->out[1] = tsr__make(call, "full", TSR__F32, TSR__SCALAR);
}
