/* apply.c - running an op forward: autocast, the op's row, and its record on the tape.
 *
 * Autocast (aten/src/ATen/autocast_mode.h) casts an op's inputs before the op sees them, each cast
 * its own op on the tape; tessera's own products take weights as they are. Casts of parameters to the 16-bit type are kept until autocast ends, so
 * that a weight used twice is cast once. */
#include <assert.h>

#include "graph/table.h"

bool tsr__op_is_update(tsr__op_kind kind) {
  switch (kind) {
  case TSR__OP_ADAMW_LOOP:
  case TSR__OP_ADAMW_FOREACH:
  case TSR__OP_ADAMW_FUSED:
  case TSR__OP_SGD:
  case TSR__OP_SGD_MOMENTUM:
  case TSR__OP_SGD_NESTEROV:
  case TSR__OP_MASTER_STORE: return true;
  default: return false;
  }
}

bool tsr__op_is_optimizer(tsr__op_kind kind) {
  return tsr__op_is_update(kind) || kind == TSR__OP_ADAMW_STATE || kind == TSR__OP_ADAMW_COUNT ||
         kind == TSR__OP_SGD_STATE || kind == TSR__OP_MASTER;
}

/* ---- autocast ---- */

static bool is_real(tsr__dtype dtype) {
  return dtype == TSR__DTYPE_F32 || tsr__dtype_is_half(dtype);
}

static tsr__tensor_id cached_cast(const tsr__tape *tape, tsr__tensor_id tensor) {
  for (size_t i = 0; i < tape->casts.count; i++)
    if (tape->casts.items[i].from == tensor) return tape->casts.items[i].to;
  return 0;
}

/* The input in the type that the op works in; if that is not `tensor` itself, the caller holds it. */
static tsr__tensor_id cast_input(tsr__tape *tape, tsr__op_autocast policy, tsr__tensor_id tensor) {
  tsr__dtype from = tsr__tensor_dtype(tape, tensor);
  tsr__dtype to = policy == TSR__AUTOCAST_FULL ? TSR__DTYPE_F32 : (tsr__dtype)tape->low_dtype;
  if (!tensor || !is_real(from) || from == to) return tensor;
  tsr__tensor_id root = tsr__tensor_root(tape, tensor);
  if (policy == TSR__AUTOCAST_LOW_BUT_WEIGHTS && tsr__tensor_at(tape, root)->is_parameter)
    return tensor;
  bool is_weight = tsr__tensor_at(tape, root)->is_parameter && to != TSR__DTYPE_F32;
  bool is_cached = is_weight && tsr__tensor_at(tape, root)->requires_grad; /* not of a frozen one */
  tsr__tensor_id cast = is_cached ? cached_cast(tape, root) : 0;
  if (cast) {
    tsr__tensor_hold(tape, cast);
    return cast;
  }
  tsr__op_attributes attributes = {.dtype = (uint8_t)to};
  tsr__trace_enter(tape, TSR__PLACE_AUTOCAST_CAST);
  cast = tsr__op_apply(tape, TSR__OP_CAST, &attributes, &tensor, 1, NULL);
  tsr__trace_leave(tape);
  tsr__tensor_hold(tape, cast);
  tsr__scope_unbind(tape, cast);
  if (!is_weight || !cast) return cast;
  /* A weight's cast is no activation, although backward may save it: its size does not depend on the batch. */
  tsr__tensor_set_category(tape, cast, TSR_CATEGORY_CAST);
  if (!is_cached) return cast;
  tsr__tensor_hold(tape, cast);
  if (!TSR__VECTOR_PUSH(&tape->casts, (tsr__tape_cast){root, cast}))
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  return cast;
}

/* The input that is cast in this turn. Inputs that the row's order lacks come in order, after the others. */
static uint32_t cast_turn(const tsr__op_row *row, uint32_t input_count, uint32_t turn) {
  uint32_t next = turn < TSR__OP_CASTS ? row->casts[turn] : 0;
  assert(next <= input_count && turn < input_count);
  if (!row->casts[0]) return input_count - 1 - turn;
  return next ? next - 1 : turn;
}

/* ---- the op ---- */

/* Record what the op made and saved. */
static void note_outputs(tsr__tape *tape, const tsr__op_call *call, tsr__tape_op *op) {
  for (uint32_t i = 0; i < TSR__OP_OUTPUTS; i++) {
    op->out[i] = call->reg[OUT(i)];
    if (!op->out[i]) continue;
    op->output_count = (uint8_t)(i + 1);
    tsr__tape_tensor *out = tsr__tensor_at(tape, op->out[i]);
    out->op = call->is_recorded ? call->op : TSR_NONE;
    out->requires_grad = call->is_recorded && is_real((tsr__dtype)out->dtype);
    out->base = 0;
    tsr__scope_bind(tape, op->out[i]);
  }
  memcpy(op->saved, &call->reg[SAVED(0)], sizeof op->saved);
  for (uint32_t i = 0; i < TSR__OP_SAVED; i++)
    if (op->saved[i]) op->saved_count = (uint8_t)(i + 1);
}

/* The op has computed everything that is needed: release the rest. */
static void abandon(tsr__op_call *call, const tsr__tape_op *record, const tsr__tensor_id *inputs) {
  for (uint32_t i = 0; i < TSR__OP_OUTPUTS; i++) tsr__tensor_release(call->tape, call->reg[OUT(i)]);
  for (uint32_t i = 0; i < call->input_count; i++)
    if (record->in[i] != inputs[i]) tsr__tensor_release(call->tape, record->in[i]);
}

tsr__tensor_id tsr__op_apply(tsr__tape *tape, tsr__op_kind kind,
                             const tsr__op_attributes *attributes, const tsr__tensor_id *inputs,
                             uint32_t input_count, tsr__tensor_id *outputs) {
  static const tsr__op_attributes none = {0};
  const tsr__op_row *row = tsr__op_row_of(tape->book, kind);
  tsr__op_call call = {.tape = tape, .input_count = input_count};
  tsr__tape_op record = {
      .kind = (uint8_t)kind, .input_count = (uint8_t)input_count, .block = tape->block};
  static_assert((int)TSR__OP_KIND_COUNT <= (int)TSR__OP_KINDS, "a tape counts all kinds");
  record.number = tape->of_kind[kind];
  if (tape->of_kind[kind] < TSR__OP_NUMBERS) tape->of_kind[kind]++;
  if (tape->block != TSR_NONE && tape->of_kind[kind] > tape->most_of_kind[kind])
    tape->most_of_kind[kind] = tape->of_kind[kind];
  if (outputs) memset(outputs, 0, TSR__OP_OUTPUTS * sizeof *outputs);
  assert(kind < TSR__OP_KIND_COUNT && row && input_count <= TSR__OP_INPUTS);
  if (tape->status || tape->is_stopped) return 0;
  if (tape->tracer) tape->tracer->begin_op(tape->tracer, (uint32_t)kind);
  assert(input_count <= TSR__OP_INPUTS);
  call.draws = record.draws = tape->schedule.draws;
  record.is_autocast = tape->is_autocast;
  record.attributes = attributes ? *attributes : none;
  call.attributes = &record.attributes;
  for (uint32_t turn = 0; turn < input_count; turn++) {
    uint32_t i = cast_turn(row, input_count, turn);
    bool casts = tape->is_autocast && row->autocast != TSR__AUTOCAST_NONE;
    tsr__tensor_id in =
        casts ? cast_input(tape, (tsr__op_autocast)row->autocast, inputs[i]) : inputs[i];
    record.in[i] = call.reg[IN(i)] = in;
    call.is_recorded |= tsr__tensor_at(tape, in)->requires_grad;
  }
  call.is_recorded = call.is_recorded && tape->grad_enabled && row->node;
  if (!TSR__VECTOR_PUSH(&tape->ops, record))
    return (tsr__tensor_id)tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  call.op = (uint32_t)tape->ops.count - 1;
  tsr__tape_emit(tape, TSR__INSTR_OP, call.op, TSR_NONE);
  if (tape->status) return 0; /* if the tape has failed, an input may be absent */
  if (row->run_forward) {
    row->run_forward(&call);
  } else {
    tsr__op_choose_place(&call);
    tsr__op_run_steps(&call, row->forward);
    tsr__op_check_place(&call);
    tape->schedule.draws = call.draws;
  }
  if (tape->status) return 0;
  if (tape->is_stopped) {
    abandon(&call, &record, inputs);
    return 0;
  }
  note_outputs(tape, &call, &tape->ops.items[call.op]);
  for (uint32_t i = 0; i < input_count; i++)
    if (record.in[i] != inputs[i]) tsr__tensor_release(tape, record.in[i]);
  if (outputs) memcpy(outputs, &call.reg[OUT(0)], TSR__OP_OUTPUTS * sizeof *outputs);
  return call.reg[OUT(0)];
}
