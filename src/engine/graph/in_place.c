/* in_place.c - ops that write their result over an operand.
 *
 * The program knows which operand no statement reads afterwards (attributes.spent). Whether its memory may be used
 * follows from the tape: nothing else may hold it - not what an op saved for backward, this one or another, and not
 * the program - and the result must have its type and shape. If that is not possible, the result is a new tensor, or,
 * if the options require it to be in place (attributes.is_in_place), the tape fails and names what needs the operand.
 *
 *   before the op   held by others, another type    tsr__op_choose_place
 *   after it        saved by the op itself          tsr__op_check_place
 *
 * An overwritten tensor may still be held by a variable of a function that has not returned; such a holder does not
 * count. An op that is computed again never runs in place, because other ops may need its operand. */
#include <stdio.h>
#include <string.h>

#include "graph/table.h"

void tsr__clash_note(tsr__tape *tape, tsr__clash clash) {
  assert(clash.reason != TSR__CLASH_NONE);
  if (!tape->status) tape->clash = clash;
  tsr__tape_fail(tape, TSR_ERROR_ARGUMENT);
}

/* ---- who is in the way ---- */

static bool is_in_slot(const tsr__tape *tape, tsr__tensor_id tensor, uint32_t slot) {
  return tensor && tsr__tensor_at(tape, tensor)->slot == slot;
}

/* Whether the op holds something of the slot for its backward, other than `result`. */
static bool holds(const tsr__tape *tape, const tsr__tape_op *op, uint32_t slot,
                  tsr__tensor_id result) {
  if (op->is_done) return false;
  for (uint32_t i = 0; i < op->saved_count; i++) {
    tsr__tensor_id saved = op->saved[i];
    if (op->holder[i]) saved = tape->holders.items[op->holder[i] - 1].tensor;
    if (op->remade & 1u << i || saved == result) continue;
    if (is_in_slot(tape, saved, slot)) return true;
  }
  for (uint32_t i = 0; i < op->input_count; i++)
    if (op->pinned & 1u << i && is_in_slot(tape, op->in[i], slot)) return true;
  return false;
}

/* The first op that holds something of the slot, or TSR_NONE. */
static uint32_t saver_of(const tsr__tape *tape, uint32_t slot, tsr__tensor_id result) {
  for (size_t i = 0; i < tape->ops.count; i++)
    if (holds(tape, &tape->ops.items[i], slot, result)) return (uint32_t)i;
  return TSR_NONE;
}

static void note_holder(const tsr__op_call *call, uint32_t saver) {
  tsr__clash_reason reason = saver == TSR_NONE ? TSR__CLASH_HELD : TSR__CLASH_SAVED;
  tsr__clash_note(call->tape, (tsr__clash){(uint8_t)reason, call->op, saver, NULL});
}

/* ---- before and after an op ---- */

/* How many tensors that may still be read share the memory. */
static uint32_t readable(const tsr__tape *tape, tsr__tensor_id tensor) {
  const tsr__tape_slot *slot = &tape->slots.items[tsr__tensor_at(tape, tensor)->slot];
  return slot->tensors - slot->overwritten;
}

/* Whether the result of an elementwise op has the operand's type and shape. */
static bool fits(const tsr__op_call *call, uint32_t operand) {
  tsr__dtype dtype = tsr__op_dtype(call, operand);
  uint64_t elements = tsr__shape_elements(tsr__op_shape(call, operand));
  for (uint32_t i = 0; i < call->input_count; i++) {
    dtype = tsr__dtype_promote(dtype, tsr__op_dtype(call, IN(i)));
    if (tsr__shape_elements(tsr__op_shape(call, IN(i))) > elements) return false;
  }
  return dtype == tsr__op_dtype(call, operand) &&
         tsr__layout_is_dense(tsr__op_layout(call, operand));
}

void tsr__op_choose_place(tsr__op_call *call) {
  tsr__tape *tape = call->tape;
  uint8_t spent = call->attributes->spent;
  bool is_asked = call->attributes->is_in_place;
  assert(spent <= call->input_count && (spent || !is_asked));
  if (!spent || tape->replaying || tape->status) return;
  tsr__tensor_id operand = call->reg[IN(spent - 1)];
  const tsr__tape_tensor *t = tsr__tensor_at(tape, operand);
  bool is_fit = fits(call, IN(spent - 1));
  bool is_sole = t->holders == 1 && readable(tape, operand) == 1 && !t->has_base &&
                 !tape->schedule.slots.items[t->slot].is_static;
  if (is_fit && is_sole)
    call->over = spent;
  else if (is_asked && is_fit)
    note_holder(call, saver_of(tape, t->slot, 0));
  else if (is_asked)
    tsr__clash_note(tape, (tsr__clash){TSR__CLASH_TYPE, call->op, TSR_NONE, NULL});
}

/* The op itself is not recorded yet, so its saved tensors are in registers. */
void tsr__op_check_place(tsr__op_call *call) {
  tsr__tape *tape = call->tape;
  if (!call->over || tape->status) return;
  if (!call->reg[OUT(0)]) return; /* a segment that runs again has ended before it */
  tsr__tensor_id operand = call->reg[IN(call->over - 1)];
  tsr__tape_tensor *t = tsr__tensor_at(tape, operand);
  if (t->holders == 1 && readable(tape, operand) == 2) { /* it and the result */
    t->is_overwritten = true;
    tape->slots.items[t->slot].overwritten++;
    return;
  }
  uint32_t saver = saver_of(tape, t->slot, call->reg[OUT(0)]);
  note_holder(call, saver == TSR_NONE ? call->op : saver);
}

/* ---- in words ---- */

/* "GELU of block 3". */
static void name_op(const tsr__tape *tape, uint32_t index, char *out, size_t room) {
  const tsr__tape_op *op = &tape->ops.items[index];
  const char *name = tsr__op_row_of(tape->book, (tsr__op_kind)op->kind)->name;
  if (op->block == TSR_NONE)
    (void)snprintf(out, room, "%s", name);
  else
    (void)snprintf(out, room, "%s of block %u", name, op->block);
}

void tsr__clash_describe(const tsr__tape *tape, char *out, size_t room) {
  const tsr__clash *c = &tape->clash;
  char op[80] = "", saver[80] = "";
  assert(tape->status == TSR_ERROR_ARGUMENT && c->reason != TSR__CLASH_NONE);
  if (c->reason == TSR__CLASH_ABSENT) {
    (void)snprintf(out, room, "nothing to do in place: the model has no %s", c->absent);
    return;
  }
  name_op(tape, c->op, op, sizeof op);
  if (c->reason == TSR__CLASH_SAVED) name_op(tape, c->saver, saver, sizeof saver);
  if (c->reason == TSR__CLASH_TYPE)
    (void)snprintf(out, room,
                   "%s cannot be in place: its result has another type or shape than the "
                   "operand that it would be in",
                   op);
  else if (c->reason == TSR__CLASH_HELD)
    (void)snprintf(out, room, "%s cannot be in place: the program still holds its operand", op);
  else if (strcmp(op, saver) == 0) /* perhaps when it ran for the first time, in a checkpoint */
    (void)snprintf(out, room,
                   "%s cannot be in place: it saves what it would write over for its own "
                   "backward",
                   op);
  else
    (void)snprintf(out, room,
                   "%s cannot be in place: %s saved what it would write over for backward", op,
                   saver);
}
