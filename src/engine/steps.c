/* steps.c - running a list of steps (op.h): tensors made, kernels noted, tensors let go.
 *
 * A kernel with several results is a few MAKE steps and the RUN that names it, perhaps with other
 * kernels between. Loops do not nest. */
#include <assert.h>
#include <stdio.h>

#include "engine/table.h"

/* ---- what a kernel does, noted ---- */

static uint64_t times(uint64_t a, uint64_t b) {
  return b && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

static uint64_t last_of(tsr__shape shape) {
  return shape.rank ? shape.dim[shape.rank - 1] : 1;
}

/* 2 m n k of a product whose k is the first operand's last dimension; in a transposed one (a weight's
 * gradient) its rows. A product into a part of a tensor goes by its operands. */
static uint64_t product_flops(const tsr__tape *tape, const tsr__run *run) {
  uint64_t result = tsr__elements(tsr__shape_of(tape, run->result[0]));
  if (run->is_in_place)
    return times(2 * tsr__elements(tsr__shape_of(tape, run->operand[1])),
                 last_of(tsr__shape_of(tape, run->operand[2])));
  tsr__shape a = tsr__shape_of(tape, run->operand[0]);
  uint64_t inner = last_of(a);
  if (run->is_transposed)
    inner = run->kernel == TSR__KERNEL_BMM && a.rank > 1 ? a.dim[a.rank - 2]
                                                         : tsr__elements(a) / (inner ? inner : 1);
  return times(2 * result, inner);
}

static uint64_t flops_of(const tsr__tape *tape, const tsr__run *run) {
  const tsr__kernel_row *row = tsr__kernel_row_of((tsr__kernel)run->kernel);
  tsr__tid first = run->is_in_place ? run->operand[0] : run->result[0];
  switch ((tsr__work)row->work) {
  case TSR__WORK_NONE: break;
  case TSR__WORK_RESULTS: return times(row->operations, tsr__elements(tsr__shape_of(tape, first)));
  case TSR__WORK_READS:
    return times(row->operations, tsr__elements(tsr__shape_of(tape, run->operand[0])));
  case TSR__WORK_PRODUCT: return product_flops(tape, run);
  case TSR__WORK_PAIRS: /* q and k are the first operands */
    return times(row->operations, times(tsr__elements(tsr__shape_of(tape, run->operand[0])),
                                        tsr__shape_of(tape, run->operand[1]).dim[2]));
  }
  return 0;
}

/* Sums saturate: they are estimates of absurd runs then. */
static void add_to(uint64_t *sum, uint64_t more) {
  *sum = *sum > UINT64_MAX - more ? UINT64_MAX : *sum + more;
}

static void note_run(tsr__tape *tape, tsr__run *run) {
  run->flops = flops_of(tape, run);
  for (uint32_t i = 0; i < TSR__RUN_OPERANDS; i++)
    add_to(&run->bytes_moved, tsr__tensor_bytes(tape, run->operand[i]));
  for (uint32_t i = 0; i < TSR__RUN_RESULTS; i++)
    add_to(&run->bytes_moved, tsr__tensor_bytes(tape, run->result[i]));
  if (run->is_in_place) add_to(&run->bytes_moved, tsr__tensor_bytes(tape, run->operand[0]));
  add_to(&tape->flops, run->flops);
  if (tape->recomputing) add_to(&tape->recomputed_flops, run->flops);
  if (run->op != TSR_NONE) {
    tsr__op *op = &tape->ops.items[run->op];
    add_to(tape->is_backward ? &op->backward_flops : &op->flops, run->flops);
    add_to(tape->is_backward ? &op->backward_bytes_moved : &op->bytes_moved, run->bytes_moved);
  }
  if (!TSR__VECTOR_PUSH(&tape->runs, *run))
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  else
    tsr__emit_instr(tape, TSR__RUN, (uint32_t)tape->runs.count - 1, TSR_NONE);
}

tsr__tid tsr__run_kernel(tsr__tape *tape, tsr__kernel kernel, tsr__dtype dtype, tsr__shape shape,
                         tsr__tid a, tsr__tid b) {
  tsr__tid result = tsr__allocate(tape, kernel, dtype, shape);
  tsr__run run = {.kernel = (uint8_t)kernel, .op = TSR_NONE, .operand = {a, b}, .result = {result}};
  if (result) note_run(tape, &run);
  return result;
}

void tsr__run_add(tsr__tape *tape, tsr__tid sum, tsr__tid more) {
  tsr__run run = {
      .kernel = TSR__KERNEL_ADD, .is_in_place = true, .op = TSR_NONE, .operand = {sum, more}};
  if (!tape->status) note_run(tape, &run);
}

/* ---- steps ---- */

typedef struct runner {
  tsr__call *call;
  uint8_t kernel; /* for which was made */
  tsr__tid made[TSR__RUN_RESULTS];
  uint32_t made_count;
} runner;

static bool is_unwanted(const tsr__call *call, uint32_t reg) {
  return reg >= GRAD_IN(0) && reg < GRAD_IN(TSR__OP_INPUTS) && !call->needs[reg - GRAD_IN(0)];
}

static void drop(tsr__call *call, uint32_t reg) {
  if (!reg) return;
  tsr__release(call->tape, call->reg[reg]);
  call->reg[reg] = 0;
}

static void assign(tsr__call *call, uint32_t reg, tsr__tid tensor) {
  tsr__release(call->tape, call->reg[reg]);
  call->reg[reg] = tensor;
}

static uint32_t model_of(const tsr__step *step) {
  return step->like ? step->like : step->from[0];
}

static tsr__dtype type_of(const tsr__call *call, const tsr__step *step) {
  uint32_t model = step->typed ? step->typed : model_of(step);
  switch ((tsr__type)step->type) {
  case TSR__TYPE_F32: return TSR__F32;
  case TSR__TYPE_I64: return TSR__I64;
  case TSR__TYPE_BOOL: return TSR__BOOL8;
  case TSR__TYPE_ASKED: return (tsr__dtype)call->attributes->dtype;
  case TSR__TYPE_PROMOTED:
    return tsr__promote(tsr__type_in(call, step->from[0]), tsr__type_in(call, step->from[1]));
  case TSR__TYPE_WIDE:
    if (call->tape->is_autocast) return TSR__F32;
    break;
  case TSR__TYPE_LIKE: break;
  }
  return tsr__type_in(call, model);
}

/* Allocate the step's result. */
static tsr__tid make(tsr__call *call, const tsr__step *step) {
  tsr__kernel kernel = (tsr__kernel)step->kernel;
  tsr__shape shape = step->shape ? step->shape(call) : tsr__shape_in(call, model_of(step));
  tsr__dtype dtype = type_of(call, step);
  tsr__tid tensor = step->action == TSR__DO_ONCE
                        ? tsr__allocate_once(call->tape, kernel, dtype, shape)
                        : tsr__allocate(call->tape, kernel, dtype, shape);
  if (step->is_strided && tensor) tsr__tensor_at(call->tape, tensor)->is_dense = false;
  return tensor;
}

static void make_more(runner *r, const tsr__step *step) {
  tsr__tid tensor = make(r->call, step);
  assert(r->made_count < TSR__RUN_RESULTS && (!r->made_count || r->kernel == step->kernel));
  r->kernel = step->kernel;
  r->made[r->made_count++] = tensor;
  assign(r->call, step->to, tensor);
}

/* The kernel, on operands that are there and results that are there now. */
static void run(runner *r, const tsr__step *step) {
  tsr__call *call = r->call;
  bool is_in_place = step->action == TSR__DO_INTO;
  tsr__tid result = step->to && !is_in_place ? make(call, step) : 0;
  tsr__run run = {.kernel = step->kernel,
                  .is_in_place = is_in_place,
                  .is_transposed = step->is_transposed,
                  .op = call->op};
  uint32_t count = 0;
  if (r->made_count && r->kernel == step->kernel) {
    for (; count < r->made_count; count++) run.result[count] = r->made[count];
    r->made_count = 0;
  }
  assert(count < TSR__RUN_RESULTS);
  if (result) run.result[count] = result;
  for (uint32_t i = 0; i < TSR__RUN_OPERANDS; i++) run.operand[i] = call->reg[step->from[i]];
  if (tsr__kernel_row_of((tsr__kernel)step->kernel)->has_blas) tsr__workspace(call->tape);
  if (!call->tape->status) note_run(call->tape, &run);
  if (step->to && !is_in_place) assign(call, step->to, result);
}

/* Frames between the op and the kernel; answers how many. */
static size_t push_frames(tsr__call *call, const tsr__step *step) {
  tsr__tape *tape = call->tape;
  size_t before = tape->frames.count;
  char name[128];
  if (step->within) {
    (void)snprintf(name, sizeof name, "torch::autograd::generated::details::%s", step->within);
    tsr__push_frame(tape, name, "FunctionsManual.cpp", 0);
  }
  if (step->by) {
    const char *caller = tsr__kernel_row_of((tsr__kernel)step->by)->name;
    (void)snprintf(name, sizeof name, "at::_ops::%s::call", caller);
    tsr__push_frame(tape, name, "??", 0);
    (void)snprintf(name, sizeof name, "at::native::%s_cuda", caller);
    tsr__push_frame(tape, name, "??", 0);
  }
  return tape->frames.count - before;
}

static void run_kernel(runner *r, const tsr__step *step) {
  tsr__call *call = r->call;
  if (step->action == TSR__DO_INTO && !call->reg[step->from[0]]) return; /* nobody wants it */
  if (step->node) tsr__node(call, step->node);
  size_t frames = push_frames(call, step);
  if (step->action == TSR__DO_MAKE)
    make_more(r, step);
  else
    run(r, step);
  tsr__pop_frames(call->tape, frames);
}

/* A tensor as it is wanted: itself, or what the kernel makes of it. */
static void convert(runner *r, const tsr__step *step, bool is_same) {
  tsr__call *call = r->call;
  if (!is_same) {
    run_kernel(r, step);
    return;
  }
  tsr__tid tensor = call->reg[step->from[0]];
  tsr__hold(call->tape, tensor);
  assign(call, step->to, tensor);
}

static void view(tsr__call *call, const tsr__step *step) {
  tsr__tid tensor = call->reg[step->from[0]];
  tsr__shape shape = step->shape ? step->shape(call) : tsr__shape_in(call, model_of(step));
  tsr__tid made = tsr__view(call->tape, tensor, shape, !step->is_strided);
  /* A gradient has no gradient: it is no view to autograd. */
  if (step->to >= GRAD_IN(0)) tsr__tensor_at(call->tape, made)->base = 0;
  assign(call, step->to, made);
}

static void pass(tsr__call *call, const tsr__step *step) {
  tsr__hold(call->tape, call->reg[step->from[0]]);
  assign(call, step->to, call->reg[step->from[0]]);
}

static void move(tsr__call *call, const tsr__step *step) {
  assign(call, step->to, call->reg[step->from[0]]);
  call->reg[step->from[0]] = 0;
}

static void run_step(runner *r, const tsr__step *step) {
  tsr__call *call = r->call;
  switch ((tsr__action)step->action) {
  case TSR__DO_RUN:
  case TSR__DO_MAKE:
  case TSR__DO_ONCE:
  case TSR__DO_INTO: run_kernel(r, step); break;
  case TSR__DO_TO:
    convert(r, step, tsr__type_in(call, step->from[0]) == type_of(call, step));
    break;
  case TSR__DO_DENSE:
    convert(r, step, tsr__tensor_at(call->tape, call->reg[step->from[0]])->is_dense);
    break;
  case TSR__DO_VIEW: view(call, step); break;
  case TSR__DO_MOVE: move(call, step); break;
  case TSR__DO_SAVE: tsr__save(call, step->to - SAVED(0), call->reg[step->from[0]]); break;
  case TSR__DO_PASS: pass(call, step); break;
  case TSR__DO_FREE:
  case TSR__DO_LOOP:
  case TSR__DO_AGAIN:
  case TSR__DO_END: break;
  }
}

/* Nothing is run on tensors that did not come to be. */
static void run_one(runner *r, const tsr__step *step) {
  tsr__call *call = r->call;
  if (call->tape->status || (step->when && !step->when(call))) return;
  if (!is_unwanted(call, step->to))
    run_step(r, step);
  else if (step->action == TSR__DO_MOVE)
    drop(call, step->from[0]);
  for (uint32_t i = 0; i < 4; i++) drop(call, step->done[i]);
}

void tsr__run_steps(tsr__call *call, const tsr__step *steps) {
  runner r = {.call = call};
  const tsr__step *body = steps;
  for (const tsr__step *step = steps; step->action != TSR__DO_END && !call->tape->status; step++) {
    if (step->action == TSR__DO_LOOP) {
      body = step;
      call->turn = 0;
      call->turns = step->count(call);
    } else if (step->action == TSR__DO_AGAIN) {
      if (++call->turn < call->turns) step = body;
    } else {
      run_one(&r, step);
    }
  }
  for (uint32_t i = 0; i < 8; i++) assert(call->tape->status || !call->reg[T(i)]);
}
