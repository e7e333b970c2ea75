/* apply.c - running an op forward: autocast, the op's row, and the note of it on the tape.
 *
 * Autocast (aten/src/ATen/autocast_mode.h) casts an op's inputs before the op sees them, each cast
 * an op of its own on the tape. Casts of parameters to the 16-bit type are kept until autocast
 * ends, so that a weight used twice is cast once. */
#include <stdio.h>

#include "engine/op.h"

tsr__tid tsr__make(tsr__call *call, const char *what, tsr__dtype dtype, tsr__shape shape) {
  return tsr__allocate(call->tape, what, dtype, shape);
}

tsr__tid tsr__make_like(tsr__call *call, const char *what, tsr__tid tensor) {
  return tsr__make(call, what, tsr__dtype_of(call->tape, tensor),
                   tsr__shape_of(call->tape, tensor));
}

void tsr__drop(tsr__call *call, tsr__tid tensor) {
  tsr__release(call->tape, tensor);
}

void tsr__save(tsr__call *call, tsr__tid tensor) {
  if (!call->is_recorded || !tensor || call->saved_count == TSR__OP_SAVED) return;
  tsr__hold(call->tape, tensor);
  tsr__set_role(call->tape, tensor, TSR_ROLE_ACTIVATION);
  call->saved[call->saved_count++] = tensor;
}

void tsr__pass(tsr__call *call, uint32_t i, tsr__tid tensor) {
  if (!call->needs[i]) return;
  tsr__hold(call->tape, tensor);
  call->grad_in[i] = tensor;
}

void tsr__done_with_grad(tsr__call *call, uint32_t output) {
  tsr__release(call->tape, call->grad_out[output]);
  call->grad_out[output] = 0;
}

void tsr__done_with(tsr__call *call, uint32_t saved) {
  tsr__release(call->tape, call->saved[saved]);
  call->saved[saved] = 0;
}

tsr__tid tsr__make_in(tsr__call *call, const char *function, const char *what, tsr__dtype dtype,
                      tsr__shape shape) {
  char name[128];
  (void)snprintf(name, sizeof name, "torch::autograd::generated::details::%s", function);
  tsr__push_frame(call->tape, name, "FunctionsManual.cpp", 0);
  tsr__tid tensor = tsr__make(call, what, dtype, shape);
  tsr__pop_frames(call->tape, 1);
  return tensor;
}

tsr__dtype tsr__promote(tsr__dtype a, tsr__dtype b) {
  return a == b ? a : TSR__F32;
}

void tsr__workspace(tsr__call *call) {
  tsr__tid *workspace = &call->tape->workspace[call->tape->is_backward];
  if (*workspace) return;
  *workspace = tsr__allocate_once(call->tape, "getCUDABlasWorkspace", TSR__BOOL8,
                                  TSR__SHAPE(TSR__WORKSPACE_BYTES));
  tsr__set_role(call->tape, *workspace, TSR_ROLE_WORKSPACE);
}

/* ---- autocast ---- */

static bool is_real(tsr__dtype dtype) {
  return dtype == TSR__F32 || tsr__is_half(dtype);
}

static tsr__tid cached_cast(const tsr__tape *tape, tsr__tid tensor) {
  for (size_t i = 0; i < tape->casts.count; i++)
    if (tape->casts.items[i].from == tensor) return tape->casts.items[i].to;
  return 0;
}

/* The input as the op wants it; held by the caller where it is not `tensor` itself. */
static tsr__tid cast_input(tsr__tape *tape, tsr__autocast policy, tsr__tid tensor) {
  tsr__dtype from = tsr__dtype_of(tape, tensor);
  tsr__dtype to = policy == TSR__AUTOCAST_LOW ? (tsr__dtype)tape->low_dtype : TSR__F32;
  if (!tensor || !is_real(from) || from == to) return tensor;
  tsr__tid root = tsr__root(tape, tensor);
  bool is_weight = tsr__tensor_at(tape, root)->is_parameter && to != TSR__F32;
  tsr__tid cast = is_weight ? cached_cast(tape, root) : 0;
  if (cast) {
    tsr__hold(tape, cast);
    return cast;
  }
  tsr__attributes attributes = {.dtype = (uint8_t)to};
  cast = tsr__apply(tape, TSR__OP_CAST, &attributes, &tensor, 1, NULL);
  tsr__hold(tape, cast);
  tsr__unbind(tape, cast);
  if (!is_weight || !cast) return cast;
  tsr__hold(tape, cast);
  if (!TSR__VECTOR_PUSH(&tape->casts, (tsr__cast){root, cast}))
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  return cast;
}

/* ---- the op ---- */

static void note_cost(const tsr__op_row *row, const tsr__call *call, tsr__op *op) {
  tsr__cost forward = {0, 0}, backward = {0, 0};
  if (row->cost) {
    row->cost(call, &forward, &backward);
  } else {
    for (uint32_t i = 0; i < call->input_count; i++)
      forward.bytes += tsr__tensor_bytes(call->tape, call->in[i]);
    for (uint32_t i = 0; i < TSR__OP_OUTPUTS; i++)
      forward.bytes += tsr__tensor_bytes(call->tape, call->out[i]);
    forward.flops = call->out[0] ? tsr__elements(tsr__shape_of(call->tape, call->out[0])) : 0;
    backward = forward;
  }
  op->flops = forward.flops;
  op->bytes_moved = forward.bytes;
  op->backward_flops = row->backward && row->node ? backward.flops : 0;
  op->backward_bytes_moved = row->backward && row->node ? backward.bytes : 0;
}

/* Write down what the op made and kept. */
static void note_outputs(tsr__tape *tape, const tsr__call *call, tsr__op *op) {
  for (uint32_t i = 0; i < TSR__OP_OUTPUTS; i++) {
    op->out[i] = call->out[i];
    if (!call->out[i]) continue;
    op->output_count = (uint8_t)(i + 1);
    tsr__tensor *out = tsr__tensor_at(tape, call->out[i]);
    out->op = call->is_recorded ? call->op : TSR_NONE;
    out->requires_grad = call->is_recorded && is_real((tsr__dtype)out->dtype);
    out->base = 0;
    tsr__bind(tape, call->out[i]);
  }
  op->saved_count = (uint8_t)call->saved_count;
  memcpy(op->saved, call->saved, sizeof op->saved);
}

tsr__tid tsr__apply(tsr__tape *tape, tsr__op_kind kind, const tsr__attributes *attributes,
                    const tsr__tid *inputs, uint32_t input_count, tsr__tid *outputs) {
  static const tsr__attributes none = {0};
  const tsr__op_row *row = tsr__op_row_of(kind);
  tsr__call call = {.tape = tape, .input_count = input_count};
  tsr__op record = {.kind = (uint8_t)kind, .input_count = (uint8_t)input_count};
  if (outputs) memset(outputs, 0, sizeof call.out);
  if (tape->status) return 0;
  record.attributes = attributes ? *attributes : none;
  call.attributes = &record.attributes;
  for (uint32_t i = 0; i < input_count; i++) {
    bool casts = tape->is_autocast && row->autocast != TSR__AUTOCAST_NONE;
    call.in[i] = casts ? cast_input(tape, row->autocast, inputs[i]) : inputs[i];
    call.is_recorded |= tsr__tensor_at(tape, call.in[i])->requires_grad;
  }
  call.is_recorded = call.is_recorded && tape->grad_enabled && row->node;
  memcpy(record.in, call.in, sizeof record.in);
  if (!TSR__VECTOR_PUSH(&tape->ops, record))
    return (tsr__tid)tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  call.op = (uint32_t)tape->ops.count - 1;
  tsr__emit_instr(tape, TSR__RUN, call.op, TSR_NONE);
  if (tape->status) return 0; /* an input may not have come to be */
  row->forward(&call);
  if (tape->status) return 0;
  note_cost(row, &call, &tape->ops.items[call.op]);
  note_outputs(tape, &call, &tape->ops.items[call.op]);
  uint64_t flops = tape->ops.items[call.op].flops;
  tape->flops += flops;
  if (tape->recomputing) tape->recomputed_flops += flops;
  for (uint32_t i = 0; i < input_count; i++)
    if (call.in[i] != inputs[i]) tsr__release(tape, call.in[i]);
  if (outputs) memcpy(outputs, call.out, sizeof call.out);
  return call.out[0];
}
