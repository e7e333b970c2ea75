/* checkpoint.c - torch.utils.checkpoint, in its reentrant form.
 *
 * Forward runs a segment of the program without gradients, and keeps the segment's inputs alone.
 * Backward runs it again, with gradients, on the inputs detached; runs a backward pass within the
 * backward pass; and hands on what gathered at the detached inputs. While that goes on its Python
 * function holds the inputs, the segment's result and the gradient it was given
 * (torch/utils/checkpoint.py, CheckpointFunction). */
#include "engine/table.h"

#define TORCH "/usr/local/lib/python3.12/dist-packages/torch/"

static void forward(tsr__call *call) {
  tsr__tape *tape = call->tape;
  bool grad_enabled = tape->grad_enabled;
  tsr__attributes attributes = *call->attributes;
  for (uint32_t i = 0; i < call->input_count; i++) tsr__save(call, i, call->reg[IN(i)]);
  tape->grad_enabled = false;
  tsr__tid result =
      attributes.segment(attributes.program, tape, attributes.index, &call->reg[IN(0)]);
  tape->grad_enabled = grad_enabled;
  tsr__hold(tape, result);
  tsr__unbind(tape, result);
  call->reg[OUT(0)] = result;
}

/* Run the segment again; its result is bound to the current function. */
static tsr__tid recompute(tsr__call *call, const tsr__tid *inputs) {
  tsr__tape *tape = call->tape;
  const tsr__attributes *attributes = call->attributes;
  bool is_autocast = tape->is_autocast, was_backward = tape->is_backward;
  bool grad_enabled = tape->grad_enabled;
  size_t casts = tape->casts.count;
  tape->is_autocast = attributes->is_autocast;
  tape->is_backward = false;
  tape->grad_enabled = true;
  tape->recomputing++;
  tsr__tid result = attributes->segment(attributes->program, tape, attributes->index, inputs);
  tape->recomputing--;
  tape->grad_enabled = grad_enabled;
  tape->is_backward = was_backward;
  tape->is_autocast = is_autocast;
  while (tape->casts.count > casts) tsr__release(tape, tape->casts.items[--tape->casts.count].to);
  return result;
}

/* The engine runs a backward pass that a node asks for on the thread of that node (engine.cpp). */
static void run_within(tsr__tape *tape, tsr__tid root, tsr__tid grad) {
  static const struct {
    const char *name, *file;
  } frames[] = {{"THPEngine_run_backward(_object*, _object*, _object*)", ""},
                {"torch::autograd::python::PythonEngine::execute", ""},
                {"torch::autograd::Engine::execute", "??"},
                {"torch::autograd::python::PythonEngine::execute_with_graph_task", ""},
                {"torch::autograd::Engine::execute_with_graph_task", "??"},
                {"torch::autograd::Engine::thread_main", "??"}};
  size_t count = sizeof frames / sizeof *frames;
  for (size_t i = 0; i < count; i++) tsr__push_frame(tape, frames[i].name, frames[i].file, 0);
  tsr__backward(tape, root, grad);
  tsr__pop_frames(tape, count);
}

static void backward(tsr__call *call) {
  tsr__tape *tape = call->tape;
  tsr__tid inputs[TSR__OP_INPUTS] = {0};
  tsr__push_frame(tape, "apply", TORCH "autograd/function.py", 311);
  tsr__enter(tape, "backward", TORCH "utils/checkpoint.py");
  tsr__line(tape, 302);
  for (uint32_t i = 0; i < call->input_count; i++)
    inputs[i] = tsr__bind(tape, tsr__detach(tape, call->reg[IN(i)], call->needs[i]));
  tsr__tid result = recompute(call, inputs);
  tsr__line(tape, 319);
  tsr__hold(tape, call->reg[GRAD_OUT(0)]);
  tsr__push_frame(tape, "backward", TORCH "autograd/__init__.py", 354);
  tsr__push_frame(tape, "_engine_run_backward", TORCH "autograd/graph.py", 841);
  run_within(tape, result, call->reg[GRAD_OUT(0)]);
  tsr__pop_frames(tape, 2);
  for (uint32_t i = 0; i < call->input_count; i++) {
    if (!inputs[i] || tape->status) continue;
    call->reg[GRAD_IN(i)] = tsr__tensor_at(tape, inputs[i])->grad;
    tsr__tensor_at(tape, inputs[i])->grad = 0;
  }
  (void)tsr__leave(tape, 0);
  tsr__pop_frames(tape, 1);
}

/* What is inside is counted on its own. */
const tsr__op_row tsr__op_checkpoint = {.name = "checkpoint",
                                        .node = "CheckpointFunctionBackward",
                                        .run_forward = forward,
                                        .run_backward = backward};
