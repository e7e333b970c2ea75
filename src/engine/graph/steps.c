/* steps.c - running a list of steps (op.h): tensors made, kernels noted, tensors let go.
 *
 * A kernel with several results is a few MAKE steps and the RUN that writes them, perhaps with other kernels between.
 * Loops do not nest. This file asserts that lists are well-formed (no temporary is left, registers are used where
 * they are allowed); the validator checks that a program can be computed. */
#include <assert.h>

#include "graph/table.h"
#include "kernels/scratch.h"

/* ---- what a kernel does, noted ---- */

static uint64_t elements(const tsr__tape *tape, tsr__tensor_id tensor) {
  return tsr__shape_elements(tsr__tensor_shape(tape, tensor));
}

/* The first result that something needs. */
static tsr__tensor_id first_write(const tsr__tape *tape, const tsr__kernel_run *run) {
  const tsr__tensor_id *writes = tsr__run_writes(&tape->schedule, run);
  for (uint32_t i = 0; i < run->write_count; i++)
    if (writes[i]) return writes[i];
  return 0;
}

/* A product does two operations for each element of its first operand and each of its columns: 2 m k
 * times n. That holds for operands that are transposed or have fewer heads, too. */
static uint64_t flops_of(const tsr__tape *tape, const tsr__kernel_run *run) {
  const tsr__kernel_row *row = tsr__kernel_row_of((tsr__kernel)run->kernel);
  const tsr__tensor_id *reads = tsr__run_reads(&tape->schedule, run);
  tsr__tensor_id first = first_write(tape, run);
  switch ((tsr__kernel_work)row->work) {
  case TSR__WORK_NONE: break;
  case TSR__WORK_RESULTS: return tsr__product_u64(row->operations, elements(tape, first));
  case TSR__WORK_READS: return tsr__product_u64(row->operations, elements(tape, reads[0]));
  case TSR__WORK_PRODUCT:
    return tsr__product_u64(2 * elements(tape, reads[0]),
                            tsr__shape_from_end(tsr__tensor_shape(tape, first), 0));
  case TSR__WORK_PAIRS: /* q and k are the first operands */
    return tsr__product_u64(
        row->operations,
        tsr__product_u64(elements(tape, reads[0]),
                         tsr__shape_from_end(tsr__tensor_shape(tape, reads[1]), 1)));
  }
  return 0;
}

/* Sums saturate: they are estimates of absurd runs then. */
static void add_to(uint64_t *sum, uint64_t more) {
  *sum = *sum > UINT64_MAX - more ? UINT64_MAX : *sum + more;
}

/* Append tensors, without the absent ones at the end, for which there is room. Returns their number. */
static uint8_t add_operands(tsr__schedule *s, const tsr__tensor_id *tensors, uint32_t most) {
  uint32_t count = most;
  while (count && !tensors[count - 1]) count--;
  for (uint32_t i = 0; i < count; i++) s->operands.items[s->operands.count++] = tensors[i];
  return (uint8_t)count;
}

static uint8_t add_scalars(tsr__schedule *s, const tsr__scalar *scalars) {
  uint8_t count = 0;
  for (; count < TSR__KERNEL_SCALARS && scalars[count].kind != TSR__SCALAR_NONE; count++)
    s->scalars.items[s->scalars.count++] = scalars[count];
  return count;
}

/* Room for a run, whatever it has. */
static bool has_room(tsr__tape *tape) {
  tsr__schedule *s = &tape->schedule;
  if (s->operands.count > TSR_NONE - 32 || s->scalars.count > TSR_NONE - 32)
    return tsr__tape_fail(tape, TSR_ERROR_LIMIT);
  return (TSR__VECTOR_RESERVE(&s->operands,
                              TSR__KERNEL_READS + TSR__KERNEL_WRITES + TSR__KERNEL_SCRATCH) &&
          TSR__VECTOR_RESERVE(&s->scalars, TSR__KERNEL_SCALARS) &&
          TSR__VECTOR_RESERVE(&s->runs, 1)) ||
         tsr__tape_fail(tape, TSR_ERROR_MEMORY);
}

/* Bytes, and whether some are of numbers of 16 bits. */
static void note_operands(const tsr__tape *tape, tsr__kernel_run *run) {
  const tsr__tensor_id *operands = tsr__run_reads(&tape->schedule, run);
  uint32_t count = tsr__run_operand_count(run), data = count - run->scratch_count;
  for (uint32_t i = 0; i < count; i++) {
    const tsr__tape_tensor *t = tsr__tensor_at(tape, operands[i]);
    add_to(&run->bytes_moved, t->bytes);
    run->is_half |= operands[i] && i < data && tsr__dtype_is_half((tsr__dtype)t->dtype);
  }
}

void tsr__tape_run(tsr__tape *tape, const tsr__kernel_use *use) {
  tsr__schedule *s = &tape->schedule;
  if (tape->status || !has_room(tape)) return;
  tsr__kernel_run run = {.kernel = (uint8_t)use->kernel,
                         .transposed = use->transposed,
                         .space = tape->space,
                         .is_once = use->is_once,
                         .is_again = tape->replaying || tape->filling,
                         .op = use->op,
                         .draw = use->draw,
                         .first_operand = (uint32_t)s->operands.count,
                         .first_scalar = (uint32_t)s->scalars.count};
  assert(use->kernel > TSR__KERNEL_NONE && use->kernel < TSR__KERNEL_COUNT);
  assert(use->op == TSR_NONE || use->op < tape->ops.count);
  const tsr__tape_op *op = use->op == TSR_NONE ? NULL : &tape->ops.items[use->op];
  run.block = op ? op->block : TSR_NONE;
  run.is_optimizer = op && tsr__op_is_optimizer((tsr__op_kind)op->kind);
  run.is_update = run.is_optimizer && tsr__op_is_update((tsr__op_kind)op->kind);
  run.read_count = add_operands(s, use->reads, TSR__KERNEL_READS);
  run.write_count = add_operands(s, use->writes, TSR__KERNEL_WRITES);
  run.scratch_count = add_operands(s, use->scratch, TSR__KERNEL_SCRATCH);
  run.scalar_count = add_scalars(s, use->scalars);
  run.flops = flops_of(tape, &run);
  note_operands(tape, &run);
  add_to(&s->flops, run.flops);
  if (tape->recomputing) add_to(&s->recomputed_flops, run.flops);
  s->runs.items[s->runs.count++] = run;
  tsr__tape_emit(tape, TSR__INSTR_RUN, (uint32_t)s->runs.count - 1, TSR_NONE);
}

/* Room of a kernel, which it allocates after its result and frees before it returns. */
static tsr__tensor_id room(tsr__tape *tape, tsr__kernel kernel, uint64_t numbers) {
  tsr__tensor_id made =
      numbers ? tsr__tensor_new(tape, kernel, TSR__DTYPE_F32, TSR__SHAPE(numbers)) : 0;
  if (made) tape->schedule.slots.items[tsr__tensor_at(tape, made)->slot].is_room = true;
  return made;
}

/* What PyTorch's kernel adds up in while it makes `sum` of all of `of` that belongs to an element (scratch.h). Layouts without gaps
 * are assumed: the last dimension is the narrowest. */
static void use_room_of_sum(tsr__tape *tape, tsr__tensor_id of, tsr__tensor_id sum) {
  tsr__shape from = tsr__tensor_shape(tape, of), to = tsr__tensor_shape(tape, sum);
  uint64_t outputs = tsr__shape_elements(to), all = tsr__shape_elements(from);
  if (!tape->book->is_torch || !outputs || !all) return;
  bool is_along = !to.rank || !from.rank || to.dim[to.rank - 1] != from.dim[from.rank - 1];
  tsr__reduced reduction = {.outputs = outputs,
                            .inputs = all / outputs,
                            .outputs_at_once = outputs % 4 == 0   ? 4
                                               : outputs % 2 == 0 ? 2
                                                                  : 1,
                            .inputs_at_once = is_along ? 4 : 0,
                            .processors = tape->processors,
                            .threads = tape->threads};
  uint64_t numbers, semaphores;
  tsr__scratch_reduction(&reduction, &numbers, &semaphores);
  tsr__tensor_id partial = room(tape, TSR__KERNEL_SUM, numbers);
  tsr__tensor_id finished = room(tape, TSR__KERNEL_SUM, semaphores);
  if (finished) tsr__tensor_release(tape, finished);
  if (partial) tsr__tensor_release(tape, partial);
}

tsr__tensor_id tsr__tape_run_new(tsr__tape *tape, tsr__kernel_use *use, tsr__dtype dtype,
                                 tsr__layout layout) {
  tsr__tensor_id result = tsr__tensor_make(tape, TSR__INSTR_NEW, use->kernel, dtype, &layout);
  if (!result) return 0;
  use->writes[0] = result;
  tsr__tape_run(tape, use);
  if (use->kernel == TSR__KERNEL_SUM) use_room_of_sum(tape, use->reads[0], result);
  return result;
}

void tsr__tape_run_add(tsr__tape *tape, tsr__tensor_id sum, tsr__tensor_id more) {
  tsr__tape_run(
      tape, &(tsr__kernel_use){
                .kernel = TSR__KERNEL_ADD, .op = TSR_NONE, .reads = {sum, more}, .writes = {sum}});
}

/* ---- steps ---- */

static bool is_unwanted(const tsr__op_call *call, uint32_t reg) {
  return reg >= GRAD_IN(0) && reg < GRAD_IN(TSR__OP_INPUTS) && !call->needs[reg - GRAD_IN(0)];
}

static void drop(tsr__op_call *call, uint32_t reg) {
  if (!reg) return;
  tsr__tensor_release(call->tape, call->reg[reg]);
  call->reg[reg] = 0;
}

static void assign(tsr__op_call *call, uint32_t reg, tsr__tensor_id tensor) {
  tsr__tensor_release(call->tape, call->reg[reg]);
  call->reg[reg] = tensor;
}

static uint32_t model_of(const tsr__op_step *step) {
  return step->like ? step->like : step->reads[0];
}

static tsr__dtype type_of(const tsr__op_call *call, const tsr__op_step *step) {
  uint32_t model = step->typed ? step->typed : model_of(step);
  switch ((tsr__op_type_rule)step->type) {
  case TSR__TYPE_F32: return TSR__DTYPE_F32;
  case TSR__TYPE_I64: return TSR__DTYPE_I64;
  case TSR__TYPE_F64: return TSR__DTYPE_F64;
  case TSR__TYPE_BOOL: return TSR__DTYPE_BOOL;
  case TSR__TYPE_ASKED: return (tsr__dtype)call->attributes->dtype;
  case TSR__TYPE_PROMOTED:
    return tsr__dtype_promote(tsr__op_dtype(call, step->reads[0]),
                              tsr__op_dtype(call, step->reads[1]));
  case TSR__TYPE_WIDE:
    if (call->tape->is_autocast) return TSR__DTYPE_F32;
    break;
  case TSR__TYPE_LOW:
    if (call->tape->is_autocast) return (tsr__dtype)call->tape->low_dtype;
    break;
  case TSR__TYPE_LIKE: break;
  }
  return tsr__op_dtype(call, model);
}

/* The register of the input whose gradient this register will hold, or 0. */
static uint32_t input_of(uint32_t reg) {
  return reg >= GRAD_IN(0) && reg < GRAD_IN(TSR__OP_INPUTS) ? reg - GRAD_IN(0) + IN(0) : 0;
}

static tsr__layout rows_last(tsr__shape shape) {
  uint32_t last = shape.rank - 1;
  assert(shape.rank >= 2);
  uint64_t columns = shape.dim[last];
  shape.dim[last] = shape.dim[last - 1];
  shape.dim[last - 1] = columns;
  return tsr__layout_swap(tsr__layout_dense(shape), last - 1, last);
}

static tsr__layout layout_of(const tsr__op_call *call, const tsr__op_step *step, tsr__shape shape) {
  uint32_t input = step->lies == TSR__LIES_LIKE ? 0 : input_of(step->to);
  tsr__layout model = tsr__op_layout(call, input ? input : model_of(step));
  switch ((tsr__op_nesting)step->lies) {
  case TSR__LIES_ROWS_FIRST: return tsr__layout_rows_first(shape);
  case TSR__LIES_IN_ORDER: return tsr__layout_dense(shape);
  case TSR__LIES_ROWS_LAST: return rows_last(shape);
  case TSR__LIES_LIKE: break;
  case TSR__LIES_DENSE:
    if (!input) return tsr__layout_dense(shape);
    break;
  }
  return tsr__shape_is_same(model.shape, shape) ? tsr__layout_like(model)
                                                : tsr__layout_dense(shape);
}

static tsr__shape shape_of(const tsr__op_call *call, const tsr__op_step *step) {
  assert(step->shape || model_of(step));
  return step->shape ? step->shape(call) : tsr__op_shape(call, model_of(step));
}

/* Allocate the step's result. */
static tsr__tensor_id make(tsr__op_call *call, const tsr__op_step *step) {
  bool is_once = step->action == TSR__DO_ONCE;
  if (call->tape->status) return 0;
  tsr__layout layout = layout_of(call, step, shape_of(call, step));
  tsr__tensor_id tensor =
      tsr__tensor_make(call->tape, is_once ? TSR__INSTR_NEW_ONCE : TSR__INSTR_NEW,
                       (tsr__kernel)step->kernel, type_of(call, step), &layout);
  if (!tensor) return 0;
  if (step->is_viewed) tsr__gradient_is_view(call->tape, tensor);
  if (step->is_unread)
    call->tape->schedule.slots.items[tsr__tensor_at(call->tape, tensor)->slot].is_root = true;
  return tensor;
}

static tsr__scalar scalar_of(const tsr__op_call *call, const tsr__op_scalar *scalar) {
  assert(scalar->kind < TSR__SCALAR_KIND_COUNT);
  return (tsr__scalar){scalar->kind, scalar->rule ? scalar->rule(call) : scalar->number};
}

/* The kernel, on tensors that are there now. */
static void run(tsr__op_call *call, const tsr__op_step *step) {
  const tsr__kernel_row *row = tsr__kernel_row_of((tsr__kernel)step->kernel);
  tsr__tensor_id result = step->to ? make(call, step) : 0;
  tsr__kernel_use use = {.kernel = (tsr__kernel)step->kernel,
                         .op = call->op,
                         .is_once = step->action == TSR__DO_ONCE,
                         .transposed = step->transposed};
  assert(!step->to || !step->writes[0]);
  for (uint32_t i = 0; i < TSR__KERNEL_READS; i++) use.reads[i] = call->reg[step->reads[i]];
  for (uint32_t i = 0; i < TSR__KERNEL_WRITES; i++) use.writes[i] = call->reg[step->writes[i]];
  for (uint32_t i = 0; i < TSR__KERNEL_SCRATCH; i++) use.scratch[i] = call->reg[step->scratch[i]];
  for (uint32_t i = 0; i < TSR__KERNEL_SCALARS; i++)
    use.scalars[i] = scalar_of(call, &step->scalars[i]);
  if (result) use.writes[0] = result;
  if (row->draws) use.draw = ++call->draws;
  if (row->has_blas) tsr__tape_workspace(call->tape);
  tsr__tape_run(call->tape, &use);
  if (use.kernel == TSR__KERNEL_SUM && result) use_room_of_sum(call->tape, use.reads[0], result);
  if (step->to) assign(call, step->to, result);
}

static bool only_makes(const tsr__op_step *step) {
  return step->action == TSR__DO_MAKE || step->action == TSR__DO_JOIN ||
         step->action == TSR__DO_REUSE;
}

/* By the op's own inputs: when it runs again, it works on others that stand for them. */
static bool trains(const tsr__op_call *call, uint32_t input) {
  const tsr__tape *tape = call->tape;
  tsr__tensor_id in = tape->ops.items[call->op].in[input];
  return tsr__tensor_at(tape, tsr__tensor_root(tape, in))->requires_grad;
}

bool tsr__op_trains_0(const tsr__op_call *call) {
  return trains(call, 0);
}

bool tsr__op_trains_1(const tsr__op_call *call) {
  return trains(call, 1);
}

bool tsr__op_trains_2(const tsr__op_call *call) {
  return trains(call, 2);
}

static void run_kernel(tsr__op_call *call, const tsr__op_step *step) {
  if (step->action == TSR__DO_INTO && !call->reg[step->writes[0]]) return; /* nothing needs it */
  if (step->node) tsr__op_node(call, step->node);
  if (call->tape->tracer) call->tape->tracer->begin_step(call->tape->tracer, step);
  if (only_makes(step))
    assign(call, step->to, make(call, step));
  else
    run(call, step);
  if (call->tape->tracer) call->tape->tracer->end_step(call->tape->tracer);
}

/* Whether a tensor has the shape, type and layout of the step's result. */
static bool is_like_made(const tsr__op_call *call, const tsr__op_step *step,
                         tsr__tensor_id tensor) {
  return tsr__tensor_dtype(call->tape, tensor) == type_of(call, step) &&
         tsr__layout_is_same(tsr__tensor_layout(call->tape, tensor),
                             layout_of(call, step, shape_of(call, step)));
}

/* The existing gradient, to be added to; otherwise a new one. */
static void join(tsr__op_call *call, const tsr__op_step *step) {
  uint32_t input = input_of(step->to);
  assert(input && !call->reg[step->to]);
  tsr__tensor_id sum = tsr__tape_gradient_so_far(call->tape, call->reg[input]);
  if (!sum || !is_like_made(call, step, sum)) {
    run_kernel(call, step);
    return;
  }
  tsr__tensor_hold(call->tape, sum);
  tsr__tensor_hold(call->tape, sum);
  call->reg[step->to] = call->reg[SO_FAR(input - IN(0))] = sum;
}

/* The memory of a tensor that only its register holds, and that is not kept elsewhere; else a new one. */
static void reuse(tsr__op_call *call, const tsr__op_step *step) {
  tsr__tensor_id tensor = call->reg[step->reads[0]];
  assert(tensor && step->reads[0] >= SAVED(0)); /* inputs and results may be read by others */
  bool is_here = call->tape->schedule.slots.items[tsr__tensor_at(call->tape, tensor)->slot].space ==
                 call->tape->space;
  if (!is_here || !tsr__tensor_is_sole(call->tape, tensor) || !is_like_made(call, step, tensor)) {
    run_kernel(call, step);
    return;
  }
  tsr__tensor_id made =
      tsr__tensor_view(call->tape, tensor, tsr__tensor_layout(call->tape, tensor));
  tsr__gradient_is_view(call->tape, made);
  assign(call, step->to, made);
}

static void pass(tsr__op_call *call, const tsr__op_step *step) {
  tsr__tensor_hold(call->tape, call->reg[step->reads[0]]);
  assign(call, step->to, call->reg[step->reads[0]]);
}

/* The tensor in the form that is needed: itself, or the result of the kernel. */
static void convert(tsr__op_call *call, const tsr__op_step *step, bool is_same) {
  if (is_same)
    pass(call, step);
  else
    run_kernel(call, step);
}

/* Whether all dimensions but the last two can be viewed as one, as in a list of matrices. Others' elements must lie in order. */
static bool is_list(tsr__layout layout) {
  tsr__shape s = layout.shape;
  if (s.rank != 4) return tsr__layout_is_dense(layout);
  return tsr__layout_reshape(layout, TSR__SHAPE(s.dim[0] * s.dim[1], s.dim[2], s.dim[3]), &layout);
}

static void view(tsr__op_call *call, const tsr__op_step *step) {
  tsr__tensor_id tensor = call->reg[step->reads[0]];
  assert(tensor && step->view);
  tsr__tensor_id made = tsr__tensor_view(call->tape, tensor,
                                         step->view(call, tsr__tensor_layout(call->tape, tensor)));
  if (step->to >= GRAD_IN(0)) tsr__gradient_is_view(call->tape, made);
  assign(call, step->to, made);
}

static void move(tsr__op_call *call, const tsr__op_step *step) {
  assign(call, step->to, call->reg[step->reads[0]]);
  call->reg[step->reads[0]] = 0;
}

/* What autograd does with gradients belongs to no node. */
static void give(tsr__op_call *call, const tsr__op_step *step) {
  uint32_t input = input_of(step->to);
  tsr__tensor_id part = call->reg[step->reads[0]];
  const char *node = call->node;
  assert(input && (part || step->action == TSR__DO_HAND));
  call->reg[step->reads[0]] = 0;
  tsr__trace_leave(call->tape);
  if (step->action == TSR__DO_HAND)
    tsr__op_hand_gradient(call, input - IN(0));
  else
    tsr__tape_give_gradient(call->tape, call->reg[input], part);
  tsr__trace_enter(call->tape, TSR__PLACE_NODE);
  call->node = NULL;
  tsr__op_node(call, node);
}

static void run_step(tsr__op_call *call, const tsr__op_step *step) {
  switch ((tsr__op_action)step->action) {
  case TSR__DO_RUN:
  case TSR__DO_MAKE:
  case TSR__DO_ONCE:
  case TSR__DO_INTO: run_kernel(call, step); break;
  case TSR__DO_JOIN: join(call, step); break;
  case TSR__DO_REUSE: reuse(call, step); break;
  case TSR__DO_TO:
    convert(call, step, tsr__op_dtype(call, step->reads[0]) == type_of(call, step));
    break;
  case TSR__DO_DENSE: convert(call, step, is_list(tsr__op_layout(call, step->reads[0]))); break;
  case TSR__DO_VIEW: view(call, step); break;
  case TSR__DO_MOVE: move(call, step); break;
  case TSR__DO_SAVE:
    call->needs_exact = step->is_exact;
    tsr__op_save(call, step->to - SAVED(0), call->reg[step->reads[0]]);
    break;
  case TSR__DO_PASS: pass(call, step); break;
  case TSR__DO_GIVE:
  case TSR__DO_HAND: give(call, step); break;
  case TSR__DO_CLOSE: tsr__op_close(call); break;
  case TSR__DO_FREE:
  case TSR__DO_LOOP:
  case TSR__DO_AGAIN:
  case TSR__DO_END: break;
  }
}

/* Skip the step once the tape has failed. */
static void run_one(tsr__op_call *call, const tsr__op_step *step) {
  if (call->tape->status || (step->when && !step->when(call))) return;
  if (!is_unwanted(call, step->to))
    run_step(call, step);
  else if (step->action == TSR__DO_MOVE || step->action == TSR__DO_GIVE)
    drop(call, step->reads[0]);
  for (uint32_t i = 0; i < TSR__STEP_DONE; i++) drop(call, step->done[i]);
}

void tsr__op_run_steps(tsr__op_call *call, const tsr__op_step *steps) {
  const tsr__op_step *body = steps;
  for (const tsr__op_step *step = steps; step->action != TSR__DO_END && !call->tape->status;
       step++) {
    if (call->tape->is_stopped) break;
    if (step->action == TSR__DO_LOOP) {
      body = step;
      call->turn = 0;
      call->turns = step->count(call);
    } else if (step->action == TSR__DO_AGAIN) {
      if (++call->turn < call->turns) step = body;
    } else {
      run_one(call, step);
    }
  }
  for (uint32_t i = 0; i < TSR__OP_TEMPORARIES && call->tape->is_stopped; i++) drop(call, T(i));
  for (uint32_t i = 0; i < TSR__OP_TEMPORARIES; i++) assert(call->tape->status || !call->reg[T(i)]);
}
