/* backward.c - the backward pass, in the order and with the lifetimes of PyTorch's engine.
 *
 *   ready   ops all of whose output gradients have arrived; the one recorded last runs first
 *           (sequence numbers, torch/csrc/autograd/engine.cpp)
 *   leaves  run at once: a gradient that nothing else holds becomes their .grad, another is copied;
 *           if there is a .grad already, it is added in place (functions/accumulate_grad.h)
 *
 * After an op's backward, in this order: the gradients it was given are released, what it saved is
 * released, and its own gradients are passed on - stored, or added to what has arrived: in place if
 * its storage has no other holder, else into a new tensor (input_buffer.cpp). A view's base is one.
 *
 * An op may also add to a gradient that is there, instead of making one (op.h, JOIN).
 *
 * A gradient whose shape was broadcast is summed, and one of another type is cast, before that
 * (engine.cpp, validate_outputs). */
#include <assert.h>

#include "graph/table.h"

/* ---- the heap of ready ops ---- */

static void push_ready(tsr__tape *tape, uint32_t op) {
  if (!TSR__VECTOR_PUSH(&tape->ready, op)) {
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
    return;
  }
  uint32_t *heap = tape->ready.items + tape->ready_bottom;
  for (size_t i = tape->ready.count - tape->ready_bottom - 1; i && heap[(i - 1) / 2] < heap[i];
       i = (i - 1) / 2) {
    uint32_t other = heap[(i - 1) / 2];
    heap[(i - 1) / 2] = heap[i];
    heap[i] = other;
  }
}

static uint32_t pop_ready(tsr__tape *tape) {
  uint32_t *heap = tape->ready.items + tape->ready_bottom, top = heap[0];
  size_t count = --tape->ready.count - tape->ready_bottom, i = 0;
  uint32_t last = heap[count];
  assert(tape->ready.count >= tape->ready_bottom);
  for (size_t child = 1; child < count; child = 2 * i + 1) {
    if (child + 1 < count && heap[child + 1] > heap[child]) child++;
    if (heap[child] <= last) break;
    heap[i] = heap[child];
    i = child;
  }
  if (count) heap[i] = last;
  assert(!count || heap[0] < top); /* the latest is at the top, and each op occurs once */
  return top;
}

/* ---- who will contribute ---- */

/* One more gradient will arrive for `tensor`. Returns the op to visit next, or TSR_NONE. */
static uint32_t expect(tsr__tape *tape, tsr__tensor_id tensor) {
  tsr__tape_tensor *t = tsr__tensor_at(tape, tsr__tensor_root(tape, tensor));
  if (!t->requires_grad) return TSR_NONE;
  if (t->op == TSR_NONE) {
    t->expected++;
    return TSR_NONE;
  }
  tsr__tape_op *op = &tape->ops.items[t->op];
  op->expected++;
  if (op->is_reached) return TSR_NONE;
  op->is_reached = true;
  return t->op;
}

static void find_contributors(tsr__tape *tape, tsr__tensor_id root) {
  tape->search.count = 0;
  uint32_t next = expect(tape, root);
  while (next != TSR_NONE) {
    for (uint32_t i = 0; i < tape->ops.items[next].input_count; i++) {
      uint32_t op = expect(tape, tape->ops.items[next].in[i]);
      if (op != TSR_NONE && !TSR__VECTOR_PUSH(&tape->search, op))
        tsr__tape_fail(tape, TSR_ERROR_MEMORY);
    }
    next = tape->search.count ? tape->search.items[--tape->search.count] : TSR_NONE;
  }
}

/* ---- gradients on their way ---- */

tsr__tensor_id tsr__tape_gradient_so_far(const tsr__tape *tape, tsr__tensor_id tensor) {
  const tsr__tape_tensor *t = tsr__tensor_at(tape, tensor);
  tsr__tensor_id before = t->op == TSR_NONE && !tape->is_grouped ? t->grad : 0;
  tsr__tensor_id sum = t->incoming ? t->incoming : before;
  if (!sum || t->base || t->through || !tsr__tensor_is_sole(tape, sum)) return 0;
  return sum;
}

/* A gradient that one of autograd's own kernels computes from others. */
static tsr__tensor_id make_gradient(tsr__tape *tape, tsr__program_place place, tsr__kernel_use use,
                                    tsr__dtype dtype, tsr__layout layout) {
  use.op = TSR_NONE;
  tsr__trace_enter(tape, place);
  tsr__tensor_id made = tsr__tape_run_new(tape, &use, dtype, layout);
  tsr__trace_leave(tape);
  return made;
}

static tsr__tensor_id add_gradients(tsr__tape *tape, tsr__tensor_id old, tsr__tensor_id more) {
  tsr__tensor_id sum = old;
  assert(tsr__shape_is_same(tsr__tensor_shape(tape, old), tsr__tensor_shape(tape, more)));
  if (!tsr__tensor_is_sole(tape, old)) {
    tsr__kernel_use use = {.kernel = TSR__KERNEL_ADD, .reads = {old, more}};
    sum = make_gradient(tape, TSR__PLACE_SUM_GRADIENTS, use, tsr__tensor_dtype(tape, old),
                        tsr__layout_like(tsr__tensor_layout(tape, old)));
    tsr__tensor_release(tape, old);
  } else {
    tsr__tape_run_add(tape, old, more);
  }
  tsr__tensor_release(tape, more);
  return sum;
}

/* Another view of a gradient that the caller holds; the gradient itself is released. */
static tsr__tensor_id view_gradient(tsr__tape *tape, tsr__tensor_id grad, tsr__layout layout) {
  tsr__tensor_id view = tsr__tensor_view(tape, grad, layout);
  tsr__gradient_is_view(tape, view);
  tsr__tensor_release(tape, grad);
  return view;
}

/* The layout of a gradient of a view, as a gradient of the tensor under the view. Returns false if no layout of the same
 * elements is. */
static bool as_root(const tsr__tape *tape, tsr__tensor_id view, tsr__tensor_id grad,
                    tsr__layout *layout) {
  return tsr__layout_unview(tsr__tensor_layout(tape, view),
                            tsr__tensor_layout(tape, tsr__tensor_root(tape, view)),
                            tsr__tensor_layout(tape, grad), layout);
}

/* A copy of a view's gradient, in the layout that makes it a view of the root's gradient. */
static tsr__tensor_id copy_through(tsr__tape *tape, tsr__tensor_id view, tsr__tensor_id grad) {
  tsr__kernel_use use = {.kernel = TSR__KERNEL_CLONE, .op = TSR_NONE, .reads = {grad}};
  tsr__layout layout = tsr__layout_like(tsr__tensor_layout(tape, view));
  tsr__trace_enter(tape, TSR__PLACE_EVALUATE);
  tsr__trace_enter(tape, TSR__PLACE_NODE);
  if (tape->tracer) tape->tracer->node(tape->tracer, "ViewBackward0");
  tsr__tensor_id copy = tsr__tape_run_new(tape, &use, tsr__tensor_dtype(tape, grad), layout);
  tsr__trace_leave(tape);
  tsr__trace_leave(tape);
  tsr__tensor_release(tape, grad);
  if (tape->status) return 0;
  bool is_view = as_root(tape, view, copy, &layout);
  assert(is_view);
  (void)is_view;
  tsr__tensor_id made =
      tsr__tensor_view(tape, copy, layout); /* autograd does not hold it as a view */
  tsr__tensor_at(tape, made)->base = 0;
  tsr__tensor_release(tape, copy);
  return made;
}

/* What has arrived for a tensor, in its own shape. A view's backward copies when its turn comes, which is just before that
 * of the op whose result is viewed. */
static void finish_view(tsr__tape *tape, tsr__tensor_id root) {
  tsr__tensor_id view = tsr__tensor_at(tape, root)->through;
  if (!view || tape->status) return;
  tsr__tensor_id copy = copy_through(tape, view, tsr__tensor_at(tape, root)->incoming);
  tsr__tensor_at(tape, root)->incoming = copy;
  tsr__tensor_at(tape, root)->through = 0;
}

/* Turn the gradient of a view, held by the caller, into one of the tensor under the view: the same elements in another
 * shape, if the layouts allow it. Otherwise the first gradient waits as it is, to be copied later, and any other is copied now. */
static tsr__tensor_id undo_view(tsr__tape *tape, tsr__tensor_id tensor, tsr__tensor_id root,
                                tsr__tensor_id grad) {
  tsr__layout layout;
  if (tape->status) return grad;
  finish_view(tape, root);
  if (tensor == root || tape->status) return grad;
  if (as_root(tape, tensor, grad, &layout)) return view_gradient(tape, grad, layout);
  if (tsr__tensor_at(tape, root)->incoming) return copy_through(tape, tensor, grad);
  tsr__tensor_at(tape, root)->through = tensor;
  return grad;
}

void tsr__tape_give_gradient(tsr__tape *tape, tsr__tensor_id input, tsr__tensor_id part) {
  tsr__tensor_id root = tsr__tensor_root(tape, input);
  part = undo_view(tape, input, root, part);
  if (tape->status) return;
  tsr__tensor_id before = tsr__tensor_at(tape, root)->incoming;
  tsr__tensor_id sum = before ? add_gradients(tape, before, part) : part;
  tsr__tensor_at(tape, root)->incoming = sum; /* adding may move tensors */
}

/* Pass on a gradient of `tensor`, held by the caller; 0 means no contribution. */
static void hand_on(tsr__tape *tape, tsr__tensor_id tensor, tsr__tensor_id grad) {
  tsr__tensor_id root = tsr__tensor_root(tape, tensor);
  if (grad) tsr__tape_give_gradient(tape, tensor, grad);
  if (tape->status) return;
  tsr__tape_tensor *t = tsr__tensor_at(tape, root);
  assert(t->op == TSR_NONE ? t->expected : tape->ops.items[t->op].expected);
  if (t->op != TSR_NONE) {
    assert(tape->ops.items[t->op].expected);
    if (!--tape->ops.items[t->op].expected) push_ready(tape, t->op);
  } else {
    assert(t->expected);
    if (!--t->expected && !TSR__VECTOR_PUSH(&tape->ready_leaves, root))
      tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  }
}

static void accumulate_leaf(tsr__tape *tape, tsr__tensor_id leaf) {
  finish_view(tape, leaf);
  tsr__tape_tensor *t = tsr__tensor_at(tape, leaf);
  tsr__tensor_id grad = t->incoming;
  t->incoming = 0;
  if (!grad) return;
  assert(tsr__shape_is_same(t->layout.shape, tsr__tensor_shape(tape, grad)));
  if (t->grad) {
    if (t->is_parameter) tape->space = tsr__home_of_parameter(tape, tape->homes.gradients, leaf);
    tsr__tape_run_add(tape, tsr__tensor_at(tape, leaf)->grad, grad);
    tape->space = TSR__SPACE_DEVICE;
    tsr__tensor_release(tape, grad);
    return;
  }
  if (tsr__tensor_at(tape, grad)->holders > 1) {
    tsr__kernel_use use = {.kernel = TSR__KERNEL_CLONE, .reads = {grad}};
    tsr__tensor_id own = make_gradient(tape, TSR__PLACE_STORE_GRADIENT, use, (tsr__dtype)t->dtype,
                                       tsr__layout_like(t->layout));
    tsr__tensor_release(tape, grad);
    grad = own;
  }
  t = tsr__tensor_at(tape, leaf);
  t->grad = grad;
  if (!t->is_parameter) return;
  /* Its category was another one if, for example, a loss made it in forward. */
  tape->schedule.slots.items[tsr__tensor_at(tape, grad)->slot].category = TSR_CATEGORY_GRADIENT;
  tsr__tensor_set_home(
      tape, grad, (tsr__memory_space)tsr__home_of_parameter(tape, tape->homes.gradients, leaf));
  if (!tape->gradient_stored) return;
  tape->is_backward = false; /* what it runs belongs to no op's backward */
  tape->gradient_stored(tape->program, leaf);
  tape->is_backward = true;
}

static void finish_leaf(tsr__tape *tape, tsr__tensor_id leaf) {
  accumulate_leaf(tape, leaf);
  const tsr__tape_tensor *t = tsr__tensor_at(tape, leaf);
  if (!tape->gradient_complete || !t->is_parameter || !t->grad || tape->status) return;
  tape->is_backward = false; /* what it runs belongs to no op's backward */
  tape->gradient_complete(tape->program, leaf);
  tape->is_backward = true;
}

/* ---- one op ---- */

void tsr__op_node(tsr__op_call *call, const char *node) {
  if (call->node == node) return;
  if (call->tape->tracer) call->tape->tracer->node(call->tape->tracer, node);
  call->node = node;
}

/* Bring a gradient to the shape and type of the tensor that it belongs to. */
static tsr__tensor_id validate(tsr__tape *tape, tsr__tensor_id grad, tsr__tensor_id input) {
  if (!grad) return 0;
  tsr__shape wanted = tsr__tensor_shape(tape, input), given = tsr__tensor_shape(tape, grad);
  tsr__layout like_input = tsr__layout_like(tsr__tensor_layout(tape, input));
  if (tsr__shape_elements(given) > tsr__shape_elements(wanted) || given.rank > wanted.rank) {
    tsr__kernel_use use = {.kernel = TSR__KERNEL_SUM, .reads = {grad}};
    tsr__tensor_id sum = make_gradient(tape, TSR__PLACE_MATCH_GRADIENT, use,
                                       tsr__tensor_dtype(tape, grad), like_input);
    tsr__tensor_release(tape, grad);
    grad = sum;
  } else if (!tsr__shape_is_same(given, wanted)) { /* dimensions of size 1 */
    grad = view_gradient(tape, grad, tsr__layout_reshaped(tsr__tensor_layout(tape, grad), wanted));
  }
  if (tsr__tensor_dtype(tape, grad) != tsr__tensor_dtype(tape, input)) {
    tsr__kernel_use use = {.kernel = TSR__KERNEL_TO_COPY, .reads = {grad}};
    tsr__tensor_id cast =
        make_gradient(tape, TSR__PLACE_MATCH_GRADIENT, use, tsr__tensor_dtype(tape, input),
                      tsr__layout_like(tsr__tensor_layout(tape, grad)));
    tsr__tensor_release(tape, grad);
    grad = cast;
  }
  return grad;
}

/* The views of an op's results: that which was made last comes first. */
static void finish_views(tsr__tape *tape, const tsr__tape_op *op) {
  for (uint32_t turn = 0; turn < op->output_count; turn++) {
    tsr__tensor_id last = 0;
    for (uint32_t i = 0; i < op->output_count; i++)
      if (tsr__tensor_at(tape, op->out[i])->through > tsr__tensor_at(tape, last)->through)
        last = op->out[i];
    finish_view(tape, last);
  }
}

static tsr__op_call begin_call(tsr__tape *tape, uint32_t index) {
  const tsr__tape_op *op = &tape->ops.items[index];
  assert(op->is_reached && !op->expected);
  finish_views(tape, op);
  tsr__op_call call = {
      .tape = tape, .op = index, .input_count = op->input_count, .draws = op->draws};
  memcpy(&call.reg[IN(0)], op->in, sizeof op->in);
  memcpy(&call.reg[OUT(0)], op->out, sizeof op->out);
  memcpy(&call.reg[SAVED(0)], op->saved, sizeof op->saved);
  for (uint32_t i = 0; i < op->output_count; i++) {
    call.reg[GRAD_OUT(i)] = tsr__tensor_at(tape, op->out[i])->incoming;
    tsr__tensor_at(tape, op->out[i])->incoming = 0;
  }
  for (uint32_t i = 0; i < op->input_count; i++)
    call.needs[i] = tsr__tensor_at(tape, tsr__tensor_root(tape, op->in[i]))->requires_grad;
  return call;
}

/* Gradients that were added to an existing one are passed on already. */
static void release_joined(tsr__tape *tape, tsr__op_call *call) {
  for (uint32_t i = 0; i < TSR__OP_INPUTS; i++) {
    if (!call->reg[SO_FAR(i)]) continue;
    assert(tape->status || call->reg[SO_FAR(i)] == call->reg[GRAD_IN(i)]);
    tsr__tensor_release(tape, call->reg[GRAD_IN(i)]);
    tsr__tensor_release(tape, call->reg[SO_FAR(i)]);
    call->reg[GRAD_IN(i)] = call->reg[SO_FAR(i)] = 0;
  }
}

/* Tensors that a checkpoint computed again for the op are released when its function returns. */
static void release_packed(tsr__tape *tape, tsr__op_call *call) {
  for (uint32_t i = 0; i < TSR__OP_SAVED; i++) {
    if (!tape->ops.items[call->op].holder[i]) continue;
    tsr__tensor_release(tape, call->reg[SAVED(i)]);
    call->reg[SAVED(i)] = 0;
  }
}

/* Release the gradients it was given, then what it saved; then pass on its own. */
static void end_call(tsr__tape *tape, tsr__op_call *call) {
  release_joined(tape, call);
  release_packed(tape, call);
  for (uint32_t i = 0; i < call->input_count; i++)
    if (call->needs[i])
      call->reg[GRAD_IN(i)] = validate(tape, call->reg[GRAD_IN(i)], call->reg[IN(i)]);
  for (uint32_t i = 0; i < TSR__OP_OUTPUTS; i++) tsr__tensor_release(tape, call->reg[GRAD_OUT(i)]);
  for (uint32_t i = 0; i < TSR__OP_SAVED; i++) tsr__tensor_release(tape, call->reg[SAVED(i)]);
  tsr__op_forget(call);
  tape->ops.items[call->op].is_done = true;
  for (uint32_t i = 0; i < call->input_count && !tape->status; i++)
    if (call->needs[i]) hand_on(tape, call->reg[IN(i)], call->reg[GRAD_IN(i)]);
}

static void finish_leaves(tsr__tape *tape) {
  for (size_t i = 0; i < tape->ready_leaves.count; i++)
    finish_leaf(tape, tape->ready_leaves.items[i]);
  tape->ready_leaves.count = 0;
}

void tsr__op_hand_gradient(tsr__op_call *call, uint32_t i) {
  tsr__tensor_id grad = call->reg[GRAD_IN(i)];
  assert(i < call->input_count && call->needs[i] && !call->reg[SO_FAR(i)]);
  call->reg[GRAD_IN(i)] = 0;
  call->needs[i] = false;
  hand_on(call->tape, call->reg[IN(i)], validate(call->tape, grad, call->reg[IN(i)]));
  finish_leaves(call->tape);
}

static void run_op(tsr__tape *tape, uint32_t index) {
  tsr__op_call call = begin_call(tape, index);
  tsr__op_attributes attributes = tape->ops.items[index].attributes; /* ops may move */
  const tsr__op_row *row = tsr__op_row_of(tape->book, (tsr__op_kind)tape->ops.items[index].kind);
  call.attributes = &attributes;
  tsr__tape_emit(tape, TSR__INSTR_OP, index, TSR_NONE);
  tsr__trace_enter(tape, TSR__PLACE_EVALUATE);
  tsr__trace_enter(tape, TSR__PLACE_NODE);
  tsr__op_node(&call, row->node);
  tsr__op_unpack(&call);
  if (tape->status) return;
  if (row->run_backward)
    row->run_backward(&call);
  else
    tsr__op_run_steps(&call, row->backward);
  tsr__trace_leave(tape);
  end_call(tape, &call);
  finish_leaves(tape);
  tsr__trace_leave(tape);
}

void tsr__tape_backward(tsr__tape *tape, tsr__tensor_id root, tsr__tensor_id grad) {
  bool grad_enabled = tape->grad_enabled, is_backward = tape->is_backward;
  size_t bottom = tape->ready_bottom; /* a backward within a backward has its own heap */
  if (tape->status) return;
  assert(root && grad && tsr__tensor_at(tape, tsr__tensor_root(tape, root))->requires_grad);
  tape->ready_bottom = tape->ready.count;
  tape->grad_enabled = false;
  tape->is_backward = true;
  tape->schedule.slots.items[tsr__tensor_at(tape, root)->slot].is_root = true;
  find_contributors(tape, root);
  hand_on(tape, root, grad);
  while (!tape->status && tape->ready.count > tape->ready_bottom) run_op(tape, pop_ready(tape));
  assert(tape->status || tape->ready.count == tape->ready_bottom);
  tape->ready_bottom = bottom;
  tape->grad_enabled = grad_enabled;
  tape->is_backward = is_backward;
}
