/* apply.c - running an op forward: autocast, the op's row, and the note of it on the tape.
 *
 * Autocast (aten/src/ATen/autocast_mode.h) casts an op's inputs before the op sees them, each cast
 * an op of its own on the tape. Casts of parameters to the 16-bit type are kept until autocast
 * ends, so that a weight used twice is cast once. */
#include "engine/table.h"

void tsr__save(tsr__call *call, uint32_t i, tsr__tid tensor) {
  if (!call->is_recorded || !tensor) return;
  tsr__hold(call->tape, tensor);
  tsr__set_role(call->tape, tensor, TSR_ROLE_ACTIVATION);
  call->reg[SAVED(i)] = tensor;
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

/* Write down what the op made and kept. */
static void note_outputs(tsr__tape *tape, const tsr__call *call, tsr__op *op) {
  for (uint32_t i = 0; i < TSR__OP_OUTPUTS; i++) {
    op->out[i] = call->reg[OUT(i)];
    if (!op->out[i]) continue;
    op->output_count = (uint8_t)(i + 1);
    tsr__tensor *out = tsr__tensor_at(tape, op->out[i]);
    out->op = call->is_recorded ? call->op : TSR_NONE;
    out->requires_grad = call->is_recorded && is_real((tsr__dtype)out->dtype);
    out->base = 0;
    tsr__bind(tape, op->out[i]);
  }
  memcpy(op->saved, &call->reg[SAVED(0)], sizeof op->saved);
  for (uint32_t i = 0; i < TSR__OP_SAVED; i++)
    if (op->saved[i]) op->saved_count = (uint8_t)(i + 1);
}

tsr__tid tsr__apply(tsr__tape *tape, tsr__op_kind kind, const tsr__attributes *attributes,
                    const tsr__tid *inputs, uint32_t input_count, tsr__tid *outputs) {
  static const tsr__attributes none = {0};
  const tsr__op_row *row = tsr__op_row_of(kind);
  tsr__call call = {.tape = tape, .input_count = input_count};
  tsr__op record = {.kind = (uint8_t)kind, .input_count = (uint8_t)input_count};
  if (outputs) memset(outputs, 0, TSR__OP_OUTPUTS * sizeof *outputs);
  if (tape->status) return 0;
  record.attributes = attributes ? *attributes : none;
  call.attributes = &record.attributes;
  for (uint32_t i = 0; i < input_count; i++) {
    bool casts = tape->is_autocast && row->autocast != TSR__AUTOCAST_NONE;
    tsr__tid in = casts ? cast_input(tape, (tsr__autocast)row->autocast, inputs[i]) : inputs[i];
    record.in[i] = call.reg[IN(i)] = in;
    call.is_recorded |= tsr__tensor_at(tape, in)->requires_grad;
  }
  call.is_recorded = call.is_recorded && tape->grad_enabled && row->node;
  if (!TSR__VECTOR_PUSH(&tape->ops, record))
    return (tsr__tid)tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  call.op = (uint32_t)tape->ops.count - 1;
  tsr__emit_instr(tape, TSR__OP, call.op, TSR_NONE);
  if (tape->status) return 0; /* an input may not have come to be */
  if (row->run_forward)
    row->run_forward(&call);
  else
    tsr__run_steps(&call, row->forward);
  if (tape->status) return 0;
  note_outputs(tape, &call, &tape->ops.items[call.op]);
  for (uint32_t i = 0; i < input_count; i++)
    if (record.in[i] != inputs[i]) tsr__release(tape, record.in[i]);
  if (outputs) memcpy(outputs, &call.reg[OUT(0)], TSR__OP_OUTPUTS * sizeof *outputs);
  return call.reg[OUT(0)];
}
