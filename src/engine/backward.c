/* backward.c - the backward pass, in the order and with the lifetimes of PyTorch's engine.
 *
 *   ready   ops all of whose output gradients have arrived; the one recorded last runs first
 *           (sequence numbers, torch/csrc/autograd/engine.cpp)
 *   leaves  run at once: their .grad takes the gradient over where nothing else holds it, else it
 *           is added in place (functions/accumulate_grad.h)
 *
 * After an op's backward, in this order: the gradients it was given go, what it saved goes, and its
 * own gradients are handed on - stored, or added to what is there: in place where that has no other
 * holder, else into a new tensor (input_buffer.cpp).
 *
 * A gradient whose shape was broadcast is summed, and one of another type is cast, before that
 * (engine.cpp, validate_outputs). */
#include <stdio.h>

#include "engine/table.h"

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
  for (size_t child = 1; child < count; child = 2 * i + 1) {
    if (child + 1 < count && heap[child + 1] > heap[child]) child++;
    if (heap[child] <= last) break;
    heap[i] = heap[child];
    i = child;
  }
  if (count) heap[i] = last;
  return top;
}

/* ---- who will contribute ---- */

/* One more gradient is to come for `tensor`; answers the op to go on with, or TSR_NONE. */
static uint32_t expect(tsr__tape *tape, tsr__tid tensor) {
  tsr__tensor *t = tsr__tensor_at(tape, tsr__root(tape, tensor));
  if (!t->requires_grad) return TSR_NONE;
  if (t->op == TSR_NONE) {
    t->expected++;
    return TSR_NONE;
  }
  tsr__op *op = &tape->ops.items[t->op];
  op->expected++;
  if (op->is_reached) return TSR_NONE;
  op->is_reached = true;
  return t->op;
}

static void find_contributors(tsr__tape *tape, tsr__tid root) {
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

static bool is_sole(const tsr__tape *tape, tsr__tid tensor) {
  const tsr__tensor *t = tsr__tensor_at(tape, tensor);
  return t->holders == 1 && tape->slots.items[t->slot].tensors == 1;
}

static tsr__tid add_gradients(tsr__tape *tape, tsr__tid old, tsr__tid more) {
  tsr__tid sum = old;
  if (!is_sole(tape, old)) {
    tsr__push_frame(tape, "torch::autograd::InputBuffer::accumulate", "input_buffer.cpp", 0);
    sum = tsr__run_kernel(tape, TSR__KERNEL_ADD, tsr__dtype_of(tape, old), tsr__shape_of(tape, old),
                          old, more);
    tsr__pop_frames(tape, 1);
    tsr__release(tape, old);
  } else {
    tsr__run_add(tape, old, more);
  }
  tsr__release(tape, more);
  return sum;
}

/* `grad`, held by the caller, is a gradient of `tensor`; 0 where there is none. */
static void hand_on(tsr__tape *tape, tsr__tid tensor, tsr__tid grad) {
  tsr__tid root = tsr__root(tape, tensor);
  tsr__tid before = tsr__tensor_at(tape, root)->incoming;
  tsr__tid sum = before && grad ? add_gradients(tape, before, grad) : grad ? grad : before;
  tsr__tensor *t = tsr__tensor_at(tape, root);
  t->incoming = sum;
  if (t->op != TSR_NONE) {
    if (!--tape->ops.items[t->op].expected) push_ready(tape, t->op);
  } else if (!--t->expected && !TSR__VECTOR_PUSH(&tape->ready_leaves, root)) {
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  }
}

static void accumulate_leaf(tsr__tape *tape, tsr__tid leaf) {
  tsr__tensor *t = tsr__tensor_at(tape, leaf);
  tsr__tid grad = t->incoming;
  t->incoming = 0;
  if (!grad) return;
  if (t->grad) {
    tsr__run_add(tape, t->grad, grad);
    tsr__release(tape, grad);
    return;
  }
  if (tsr__tensor_at(tape, grad)->holders > 1) {
    tsr__push_frame(tape, "torch::autograd::AccumulateGrad::apply", "accumulate_grad.cpp", 0);
    tsr__tid own =
        tsr__run_kernel(tape, TSR__KERNEL_CLONE, (tsr__dtype)t->dtype, t->shape, grad, 0);
    tsr__pop_frames(tape, 1);
    tsr__release(tape, grad);
    grad = own;
  }
  t = tsr__tensor_at(tape, leaf);
  t->grad = grad;
  if (t->is_parameter) /* whatever it was made for: a loss may make it in forward */
    tape->slots.items[tsr__tensor_at(tape, grad)->slot].role = TSR_ROLE_GRADIENT;
}

/* ---- one op ---- */

/* PyTorch numbers the nodes it generates; one without a number is a function written in Python, of
 * which C++ sees no name (python_function.cpp). */
static bool is_python_node(const char *node) {
  size_t size = strlen(node);
  return size && (node[size - 1] < '0' || node[size - 1] > '9');
}

static void push_node(tsr__tape *tape, const char *node) {
  char name[128];
  if (is_python_node(node)) {
    tsr__push_frame(tape, "torch::autograd::PyNode::apply(std::vector<at::Tensor>&&)", "", 0);
    return;
  }
  (void)snprintf(name, sizeof name,
                 "torch::autograd::generated::%s::apply(std::vector<at::Tensor>&&)", node);
  tsr__push_frame(tape, name, "??", 0);
}

void tsr__node(tsr__call *call, const char *node) {
  if (call->node == node) return;
  tsr__pop_frames(call->tape, 1);
  push_node(call->tape, node);
  call->node = node;
}

/* Bring a gradient to the shape and type of what it is for. */
static tsr__tid validate(tsr__tape *tape, tsr__tid grad, tsr__tid input) {
  if (!grad) return 0;
  uint64_t wanted = tsr__elements(tsr__shape_of(tape, input));
  if (tsr__elements(tsr__shape_of(tape, grad)) > wanted) {
    tsr__push_frame(tape, "torch::autograd::validate_outputs", "engine.cpp", 0);
    tsr__tid sum = tsr__run_kernel(tape, TSR__KERNEL_SUM, tsr__dtype_of(tape, grad),
                                   tsr__shape_of(tape, input), grad, 0);
    tsr__pop_frames(tape, 1);
    tsr__release(tape, grad);
    grad = sum;
  }
  if (tsr__dtype_of(tape, grad) != tsr__dtype_of(tape, input)) {
    tsr__push_frame(tape, "torch::autograd::validate_outputs", "engine.cpp", 0);
    tsr__tid cast = tsr__run_kernel(tape, TSR__KERNEL_TO_COPY, tsr__dtype_of(tape, input),
                                    tsr__shape_of(tape, input), grad, 0);
    tsr__pop_frames(tape, 1);
    tsr__release(tape, grad);
    grad = cast;
  }
  return grad;
}

static tsr__call begin_call(tsr__tape *tape, uint32_t index) {
  const tsr__op *op = &tape->ops.items[index];
  tsr__call call = {.tape = tape, .op = index, .input_count = op->input_count};
  memcpy(&call.reg[IN(0)], op->in, sizeof op->in);
  memcpy(&call.reg[OUT(0)], op->out, sizeof op->out);
  memcpy(&call.reg[SAVED(0)], op->saved, sizeof op->saved);
  for (uint32_t i = 0; i < op->output_count; i++) {
    call.reg[GRAD_OUT(i)] = tsr__tensor_at(tape, op->out[i])->incoming;
    tsr__tensor_at(tape, op->out[i])->incoming = 0;
  }
  for (uint32_t i = 0; i < op->input_count; i++)
    call.needs[i] = tsr__tensor_at(tape, tsr__root(tape, op->in[i]))->requires_grad;
  return call;
}

/* The gradients it was given go, then what it saved; then its own are handed on. */
static void end_call(tsr__tape *tape, tsr__call *call) {
  for (uint32_t i = 0; i < call->input_count; i++)
    if (call->needs[i])
      call->reg[GRAD_IN(i)] = validate(tape, call->reg[GRAD_IN(i)], call->reg[IN(i)]);
  for (uint32_t i = 0; i < TSR__OP_OUTPUTS; i++) tsr__release(tape, call->reg[GRAD_OUT(i)]);
  for (uint32_t i = 0; i < TSR__OP_SAVED; i++) tsr__release(tape, call->reg[SAVED(i)]);
  memset(tape->ops.items[call->op].saved, 0, sizeof tape->ops.items[call->op].saved);
  tape->ops.items[call->op].saved_count = 0;
  for (uint32_t i = 0; i < call->input_count && !tape->status; i++)
    if (call->needs[i]) hand_on(tape, call->reg[IN(i)], call->reg[GRAD_IN(i)]);
}

static void run_op(tsr__tape *tape, uint32_t index) {
  tsr__call call = begin_call(tape, index);
  tsr__attributes attributes = tape->ops.items[index].attributes; /* ops may move */
  const tsr__op_row *row = tsr__op_row_of((tsr__op_kind)tape->ops.items[index].kind);
  size_t depth = tape->frames.count;
  call.attributes = &attributes;
  call.node = row->node;
  tsr__emit_instr(tape, TSR__OP, index, TSR_NONE);
  tsr__push_frame(tape, "torch::autograd::Engine::evaluate_function", "??", 0);
  tsr__push_frame(tape, "torch::autograd::Node::operator()", "??", 0);
  push_node(tape, row->node);
  if (row->run_backward)
    row->run_backward(&call);
  else
    tsr__run_steps(&call, row->backward);
  tape->frames.count = depth + 1;
  end_call(tape, &call);
  for (size_t i = 0; i < tape->ready_leaves.count; i++)
    accumulate_leaf(tape, tape->ready_leaves.items[i]);
  tape->ready_leaves.count = 0;
  tape->frames.count = depth;
}

void tsr__backward(tsr__tape *tape, tsr__tid root, tsr__tid grad) {
  bool grad_enabled = tape->grad_enabled, is_backward = tape->is_backward;
  size_t bottom = tape->ready_bottom; /* a backward within a backward has a heap of its own */
  if (tape->status) return;
  tape->ready_bottom = tape->ready.count;
  tape->grad_enabled = false;
  tape->is_backward = true;
  find_contributors(tape, root);
  hand_on(tape, root, grad);
  while (!tape->status && tape->ready.count > tape->ready_bottom) run_op(tape, pop_ready(tape));
  tape->ready_bottom = bottom;
  tape->grad_enabled = grad_enabled;
  tape->is_backward = is_backward;
}
