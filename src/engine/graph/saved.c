/* saved.c - the tensors that an op saves for backward, and where they are until then.
 *
 *   kept        the op holds the tensor itself
 *   elsewhere   the same, and its storage's home is another memory space (spaces.c)
 *   narrowed    the op holds a copy in bfloat16, or in 8 bits with a scale for each row, which backward widens again
 *   computed    the op holds nothing: backward runs the op that made it once more, from that op's inputs, which
 *               are themselves alive or computed again
 *   packed      it belongs to a checkpoint that is not reentrant (ops/checkpoint.c): a holder stands for it, which
 *               running the checkpoint's segment again fills
 *
 * The tape's plan chooses among the first four, for ops outside of checkpoints.
 *
 * An op that may run again pins those inputs that no op of its block made: they stay alive until its own backward, so
 * nothing outside of the block has to be computed again. All ops that may need its results run their backward before
 * that, because backward runs consumers first. The second run draws the same random numbers, because each op draws
 * from its own count.
 *
 * Invariants: a bit of op->narrowed or op->remade, or a number in op->holder, is set for each tensor that op->saved
 * names without holding the tensor itself; op->pinned has a bit for each input that is held. */
#include <assert.h>

#include "graph/plan.h"
#include "graph/table.h"

/* ---- what may be done with a tensor ---- */

static const tsr__slot *slot_of(const tsr__tape *tape, tsr__tensor_id tensor) {
  return &tape->schedule.slots.items[tsr__tensor_at(tape, tensor)->slot];
}

/* Set the home of a tensor that is kept for backward. Weights and their casts stay where they are. */
static void keep_in(tsr__tape *tape, tsr__tensor_id tensor, tsr__memory_space space) {
  const tsr__slot *slot = slot_of(tape, tensor);
  if (slot->category == TSR_CATEGORY_ACTIVATION && !slot->is_static)
    tsr__tensor_set_home(tape, tensor, space);
}

static bool is_input(const tsr__op_call *call, tsr__tensor_id tensor) {
  uint32_t slot = tsr__tensor_at(call->tape, tensor)->slot;
  for (uint32_t i = 0; i < call->input_count; i++)
    if (call->reg[IN(i)] && tsr__tensor_at(call->tape, call->reg[IN(i)])->slot == slot) return true;
  return false;
}

/* Whether the op can be run again: its row is a list of steps. */
static bool is_list(const tsr__tape *tape, uint32_t op) {
  const tsr__op_row *row = tsr__op_row_of(tape->book, (tsr__op_kind)tape->ops.items[op].kind);
  return row->forward && !row->run_forward;
}

/* The op of the same block that made it, or TSR_NONE. */
static uint32_t maker_of(const tsr__tape *tape, tsr__tensor_id tensor, uint32_t block) {
  uint32_t op = tsr__tensor_at(tape, tsr__tensor_root(tape, tensor))->op;
  if (op == TSR_NONE || tape->ops.items[op].block != block || !is_list(tape, op)) return TSR_NONE;
  return op;
}

/* ---- computed again ---- */

/* Whether everything that the op needs to run again is still alive, or made by ops that can run again. O(ops of a
 * block). */
static bool can_pin(const tsr__tape *tape, uint32_t index) {
  const tsr__tape_op *op = &tape->ops.items[index];
  if (op->is_pinned) return true;
  for (uint32_t i = 0; i < op->input_count; i++) {
    tsr__tensor_id in = op->in[i];
    if (!in || slot_of(tape, in)->is_static) continue;
    uint32_t maker = maker_of(tape, in, op->block);
    bool is_there =
        maker != TSR_NONE ? can_pin(tape, maker) : tsr__tensor_at(tape, in)->holders > 0;
    if (!is_there) return false;
  }
  return true;
}

/* Make sure that the op, and the ops that made its inputs, can run again. */
static void pin(tsr__tape *tape, uint32_t index) {
  tsr__tape_op *op = &tape->ops.items[index];
  if (op->is_pinned) return;
  op->is_pinned = true;
  for (uint32_t i = 0; i < op->input_count; i++) {
    tsr__tensor_id in = op->in[i];
    if (!in || slot_of(tape, in)->is_static) continue;
    uint32_t maker = maker_of(tape, in, op->block);
    if (maker != TSR_NONE) {
      pin(tape, maker);
    } else {
      tsr__tensor_hold(tape, in);
      tsr__tensor_set_category(tape, in, TSR_CATEGORY_ACTIVATION);
      op->pinned |= (uint8_t)(1u << i);
    }
  }
}

/* Whether the tensor that the op saves can be computed again. If so, the inputs that this takes are pinned. */
static bool can_remake(tsr__op_call *call, tsr__tensor_id tensor) {
  tsr__tape *tape = call->tape;
  uint32_t block = tape->ops.items[call->op].block, maker = call->op;
  if (block == TSR_NONE || slot_of(tape, tensor)->is_static) return false;
  if (is_input(call, tensor)) maker = maker_of(tape, tensor, block);
  if (maker == TSR_NONE || !is_list(tape, maker) || !can_pin(tape, maker)) return false;
  pin(tape, maker);
  return true;
}

static tsr__tensor_id remake(tsr__tape *tape, tsr__tensor_id tensor);

/* Run the op's forward again. With `wanted` 0 its outputs are the caller's; else the tensors that it saves with
 * these bits, and it ends with the last of them. */
static void replay(tsr__tape *tape, uint32_t index, uint16_t wanted, tsr__op_call *call,
                   tsr__op_attributes *attributes) {
  tsr__tape_op op = tape->ops.items[index]; /* ops may move */
  bool was_backward = tape->is_backward, was_autocast = tape->is_autocast;
  uint16_t was_remaking = tape->remaking;
  *attributes = op.attributes;
  *call = (tsr__op_call){.tape = tape,
                         .op = index,
                         .attributes = attributes,
                         .input_count = op.input_count,
                         .is_recorded = wanted != 0,
                         .draws = op.draws};
  for (uint32_t i = 0; i < op.input_count; i++)
    if (op.in[i]) call->reg[IN(i)] = remake(tape, op.in[i]);
  if (tape->status) return;
  tape->remaking = wanted;
  tape->is_backward = false;
  tape->is_autocast = op.is_autocast;
  tape->recomputing++;
  tape->replaying++;
  if (tape->tracer) tape->tracer->begin_op(tape->tracer, op.kind);
  tsr__tape_emit(tape, TSR__INSTR_OP, index, TSR_NONE);
  tsr__op_run_steps(call, tsr__op_row_of(tape->book, (tsr__op_kind)op.kind)->forward);
  tape->replaying--;
  tape->recomputing--;
  tape->is_autocast = was_autocast;
  tape->is_backward = was_backward;
  assert(tape->status || !tape->remaking);
  tape->is_stopped = false;
  tape->remaking = was_remaking;
  for (uint32_t i = 0; i < op.input_count; i++) tsr__tensor_release(tape, call->reg[IN(i)]);
}

/* Other outputs of the op may be needed, too, before this op's backward begins. */
static void keep_outputs(tsr__tape *tape, uint32_t index, const tsr__op_call *call) {
  for (uint32_t i = 0; i < TSR__OP_OUTPUTS && !tape->status; i++) {
    tsr__tensor_id was = tape->ops.items[index].out[i], is = call->reg[OUT(i)];
    if (!is) continue;
    assert(was);
    tsr__tensor_at(tape, was)->again = is;
    tsr__tensor_set_category(tape, is, TSR_CATEGORY_ACTIVATION);
    if (!TSR__VECTOR_PUSH(&tape->remade, is)) tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  }
}

/* Make a root that was released again, by running its op. The caller holds it. */
static tsr__tensor_id remake_root(tsr__tape *tape, tsr__tensor_id root) {
  uint32_t index = tsr__tensor_at(tape, root)->op;
  tsr__op_attributes attributes;
  tsr__op_call call;
  assert(index != TSR_NONE && is_list(tape, index));
  replay(tape, index, 0, &call, &attributes);
  if (!tape->status) keep_outputs(tape, index, &call);
  if (tape->status) return 0;
  tsr__tensor_id again = tsr__tensor_at(tape, root)->again;
  tsr__tensor_hold(tape, again);
  return again;
}

/* The tensor, or its elements computed again. The caller holds it. */
static tsr__tensor_id remake(tsr__tape *tape, tsr__tensor_id tensor) {
  tsr__tensor_id root = tsr__tensor_root(tape, tensor);
  if (tape->status) return 0;
  if (tsr__tensor_at(tape, tensor)->holders) {
    tsr__tensor_hold(tape, tensor);
    return tensor;
  }
  tsr__tensor_id again =
      tsr__tensor_at(tape, root)->holders ? root : tsr__tensor_at(tape, root)->again;
  if (again && tsr__tensor_at(tape, again)->holders)
    tsr__tensor_hold(tape, again);
  else
    again = remake_root(tape, root);
  if (tape->status) return 0;
  if (tensor == root) return again;
  tsr__tensor_id view = tsr__tensor_view(tape, again, tsr__tensor_layout(tape, tensor));
  tsr__tensor_release(tape, again);
  return view;
}

/* Compute again what the op made and saved; outputs that are still alive are used. */
static void remake_internal(tsr__op_call *call) {
  tsr__tape *tape = call->tape;
  uint16_t wanted = tape->ops.items[call->op].internal;
  tsr__op_attributes attributes;
  tsr__op_call again;
  for (uint32_t i = 0; i < TSR__OP_SAVED; i++) {
    if (!(wanted & 1u << i) || !tsr__tensor_at(tape, call->reg[SAVED(i)])->holders) continue;
    tsr__tensor_hold(tape, call->reg[SAVED(i)]);
    wanted &= (uint16_t) ~(1u << i);
  }
  if (!wanted) return;
  replay(tape, call->op, wanted, &again, &attributes);
  for (uint32_t i = 0; i < TSR__OP_OUTPUTS; i++) tsr__tensor_release(tape, again.reg[OUT(i)]);
  for (uint32_t i = 0; i < TSR__OP_SAVED && !tape->status; i++)
    if (wanted & 1u << i) call->reg[SAVED(i)] = again.reg[SAVED(i)];
}

/* ---- narrowed ---- */

/* For shorter rows, the scales take more bytes than narrowing saves. */
enum { LEAST_COLUMNS = 16, SCALE_BYTES = 4 };

static bool can_narrow(const tsr__tape *tape, tsr__tensor_id tensor, tsr__dtype to) {
  tsr__dtype from = tsr__tensor_dtype(tape, tensor);
  tsr__shape shape = tsr__tensor_shape(tape, tensor);
  if (slot_of(tape, tensor)->is_static || slot_of(tape, tensor)->category == TSR_CATEGORY_CAST)
    return false;
  if (to == TSR__DTYPE_BF16) return from == TSR__DTYPE_F32;
  return (from == TSR__DTYPE_F32 || tsr__dtype_is_half(from)) && shape.rank &&
         tsr__shape_from_end(shape, 0) >= LEAST_COLUMNS;
}

static tsr__tensor_id convert(tsr__tape *tape, uint32_t op, tsr__tensor_id from, tsr__dtype dtype) {
  tsr__kernel_use use = {.kernel = TSR__KERNEL_TO_COPY, .op = op, .reads = {from}};
  return tsr__tape_run_new(tape, &use, dtype, tsr__layout_like(tsr__tensor_layout(tape, from)));
}

static tsr__tensor_id quantise(tsr__tape *tape, uint32_t op, tsr__tensor_id from) {
  tsr__kernel_use use = {.kernel = TSR__KERNEL_QUANTISE, .op = op, .reads = {from}};
  tsr__shape shape = tsr__tensor_shape(tape, from);
  uint64_t columns = tsr__shape_from_end(shape, 0), rows = tsr__shape_elements(shape) / columns;
  tsr__tensor_id codes = tsr__tape_run_new(
      tape, &use, TSR__DTYPE_I8, tsr__layout_dense(TSR__SHAPE(rows, columns + SCALE_BYTES)));
  if (codes) tsr__tensor_at(tape, codes)->wide = from;
  return codes;
}

static tsr__tensor_id dequantise(tsr__tape *tape, uint32_t op, tsr__tensor_id codes) {
  tsr__kernel_use use = {.kernel = TSR__KERNEL_DEQUANTISE, .op = op, .reads = {codes}};
  tsr__tensor_id was = tsr__tensor_at(tape, codes)->wide;
  return tsr__tape_run_new(tape, &use, tsr__tensor_dtype(tape, was),
                           tsr__layout_like(tsr__tensor_layout(tape, was)));
}

/* Several ops that save the same tensor share one narrow copy. */
static tsr__tensor_id narrow(tsr__op_call *call, tsr__tensor_id tensor, tsr__dtype to) {
  tsr__tape *tape = call->tape;
  tsr__tensor_id before = tsr__tensor_at(tape, tensor)->narrow;
  if (before && tsr__tensor_at(tape, before)->holders && tsr__tensor_dtype(tape, before) == to) {
    tsr__tensor_hold(tape, before);
    return before;
  }
  tsr__tensor_id made =
      to == TSR__DTYPE_I8 ? quantise(tape, call->op, tensor) : convert(tape, call->op, tensor, to);
  if (!made) return 0;
  tsr__tensor_at(tape, tensor)->narrow = made;
  tsr__tensor_set_category(tape, made, TSR_CATEGORY_ACTIVATION);
  return made;
}

static tsr__tensor_id widen(tsr__tape *tape, uint32_t op, tsr__tensor_id tensor) {
  tsr__tensor_id wide = tsr__tensor_dtype(tape, tensor) == TSR__DTYPE_I8
                            ? dequantise(tape, op, tensor)
                            : convert(tape, op, tensor, TSR__DTYPE_F32);
  tsr__tensor_release(tape, tensor);
  return wide;
}

/* ---- checkpoints ---- */

/* Create a holder for a tensor that a checkpoint computes again. */
static void pack(tsr__op_call *call, uint32_t i, tsr__tensor_id tensor) {
  tsr__tape *tape = call->tape;
  tsr__tape_frame *frame = &tape->frames.items[tape->packing - 1];
  if (!TSR__VECTOR_PUSH(&tape->holders, (tsr__tape_holder){tape->packing - 1, 0})) {
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
    return;
  }
  frame->holder_count++;
  call->reg[SAVED(i)] = tensor; /* the tensor's name, for checks of the tape */
  assert(frame->first_holder + frame->holder_count == tape->holders.count);
  tape->ops.items[call->op].holder[i] = (uint32_t)tape->holders.count;
}

/* The segment runs again: its saves come in the order in which they came before. After the last one there is nothing
 * left to do. */
static void fill(tsr__op_call *call, tsr__tensor_id tensor) {
  tsr__tape *tape = call->tape;
  tsr__tape_frame *frame = &tape->frames.items[tape->filling - 1];
  assert(frame->filled < frame->holder_count);
  tsr__tensor_set_category(tape, tensor, TSR_CATEGORY_ACTIVATION);
  tsr__tensor_id detached = tsr__tensor_detach(tape, tensor, false);
  tape->holders.items[frame->first_holder + frame->filled++].tensor = detached;
  if (frame->filled == frame->holder_count) tape->is_stopped = true;
}

static tsr__tensor_id unpack(tsr__tape *tape, uint32_t number) {
  uint32_t frame = tape->holders.items[number - 1].frame;
  if (!tape->frames.items[frame].is_filled) tape->book->refill(tape, frame);
  if (tape->status) return 0;
  tsr__tensor_id tensor = tape->holders.items[number - 1].tensor;
  tape->holders.items[number - 1].tensor = 0;
  assert(tensor);
  return tensor;
}

/* When the last holder is used up, the segment's inputs go. */
static void close_holder(tsr__tape *tape, uint32_t number) {
  tsr__tape_frame *frame = &tape->frames.items[tape->holders.items[number - 1].frame];
  if (++frame->unpacked < frame->holder_count) return;
  for (uint32_t i = 0; i < frame->input_count; i++) tsr__tensor_release(tape, frame->inputs[i]);
}

/* ---- saving, and having it back ---- */

/* Follow the plan; false if the op should hold the tensor itself. */
static bool place(tsr__op_call *call, uint32_t i, tsr__tensor_id tensor) {
  tsr__tape *tape = call->tape;
  tsr__tape_op *op = &tape->ops.items[call->op];
  bool is_free = is_list(tape, call->op); /* a checkpoint needs its inputs as they are */
  if (!tape->plan || op->block == TSR_NONE || tape->recomputing) return false;
  tsr__plan_place chosen = tsr__plan_place_of(tape->plan, op->block, op->kind, op->number, i);
  tsr__dtype to = chosen == TSR__PLACED_NARROW8 ? TSR__DTYPE_I8 : TSR__DTYPE_BF16;
  switch (chosen) {
  case TSR__PLACED_HOST: tape->saves_to = TSR__SPACE_HOST; return false;
  case TSR__PLACED_DISK: tape->saves_to = TSR__SPACE_DISK; return false;
  case TSR__PLACED_RECOMPUTE:
    if (!is_free || !can_remake(call, tensor)) return false;
    op = &tape->ops.items[call->op];
    if (!is_input(call, tensor)) op->internal |= (uint16_t)(1u << i);
    op->remade |= (uint16_t)(1u << i);
    call->reg[SAVED(i)] = tensor;
    return true;
  case TSR__PLACED_NARROW16:
  case TSR__PLACED_NARROW8:
    if (!is_free || !can_narrow(tape, tensor, to)) return false;
    if (to == TSR__DTYPE_I8 && call->needs_exact) return false;
    call->reg[SAVED(i)] = narrow(call, tensor, to);
    tape->ops.items[call->op].narrowed |= (uint16_t)(1u << i);
    return true;
  case TSR__PLACED_KEEP:
  case TSR__PLACED_COUNT: break;
  }
  return false;
}

/* For an op that runs again to make some of the tensors that it saves. */
static void save_again(tsr__op_call *call, uint32_t i, tsr__tensor_id tensor) {
  tsr__tape *tape = call->tape;
  if (!(tape->remaking & 1u << i)) return;
  tsr__tensor_hold(tape, tensor);
  tsr__tensor_set_category(tape, tensor, TSR_CATEGORY_ACTIVATION);
  call->reg[SAVED(i)] = tensor;
  tape->remaking &= (uint16_t) ~(1u << i);
  if (!tape->remaking) tape->is_stopped = true;
}

void tsr__op_save(tsr__op_call *call, uint32_t i, tsr__tensor_id tensor) {
  tsr__tape *tape = call->tape;
  assert(i < TSR__OP_SAVED);
  if (!call->is_recorded || !tensor || tape->status) return;
  assert(!call->reg[SAVED(i)]);
  if (tape->remaking) {
    save_again(call, i, tensor);
    return;
  }
  if (tape->filling) {
    fill(call, tensor);
    return;
  }
  if (tape->packing) {
    pack(call, i, tensor);
    return;
  }
  const tsr__tape_op *op = &tape->ops.items[call->op];
  bool is_outside = op->block == TSR_NONE && op->attributes.segment; /* a checkpoint of blocks */
  uint32_t block = is_outside ? op->attributes.index : op->block;
  tape->saves_to = tsr__home_in_block(&tape->homes, tape->homes.activations, block);
  if (place(call, i, tensor)) return;
  tsr__tensor_hold(tape, tensor);
  tsr__tensor_set_category(tape, tensor, TSR_CATEGORY_ACTIVATION);
  if (tape->saves_to) keep_in(tape, tensor, (tsr__memory_space)tape->saves_to);
  call->reg[SAVED(i)] = tensor;
}

void tsr__op_unpack(tsr__op_call *call) {
  tsr__tape *tape = call->tape;
  if (tape->ops.items[call->op].internal) remake_internal(call);
  for (uint32_t i = 0; i < TSR__OP_SAVED && !tape->status; i++) {
    const tsr__tape_op *op = &tape->ops.items[call->op];
    if (op->holder[i])
      call->reg[SAVED(i)] = unpack(tape, op->holder[i]);
    else if (op->remade & ~op->internal & 1u << i)
      call->reg[SAVED(i)] = remake(tape, call->reg[SAVED(i)]);
    else if (op->narrowed & 1u << i)
      call->reg[SAVED(i)] = widen(tape, call->op, call->reg[SAVED(i)]);
  }
  while (tape->remade.count && !tape->status)
    tsr__tensor_release(tape, tape->remade.items[--tape->remade.count]);
}

void tsr__op_close(tsr__op_call *call) {
  tsr__tape *tape = call->tape;
  if (call->is_closed) return;
  for (uint32_t i = 0; i < TSR__OP_SAVED && !tape->status; i++)
    if (tape->ops.items[call->op].holder[i])
      close_holder(tape, tape->ops.items[call->op].holder[i]);
  call->is_closed = true;
}

void tsr__op_forget(tsr__op_call *call) {
  tsr__tape *tape = call->tape;
  tsr__op_close(call);
  const tsr__tape_op *op = &tape->ops.items[call->op];
  for (uint32_t i = 0; i < op->input_count; i++)
    if (op->pinned & 1u << i) tsr__tensor_release(tape, op->in[i]);
}
