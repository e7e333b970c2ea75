/* checkpoint.c - recomputes a segment of the program in backward, as torch.utils.checkpoint does.
 *
 * The reentrant form is an op. Forward runs the segment without recording gradients, and saves only the segment's
 * inputs. Backward detaches those inputs, runs the segment again with gradients, runs a backward pass within the
 * backward pass, and passes on the gradients that arrived at the detached inputs. During that time its Python
 * function holds the inputs, the segment's result and the gradient that it was given (torch/utils/checkpoint.py,
 * CheckpointFunction).
 *
 * The other form is not an op. Forward runs the segment with gradients, and a holder replaces each tensor that its
 * ops save (graph/saved.c). The first op whose backward needs one runs the segment again; what is saved then goes
 * into the holders, in the same order. With the last one the segment stops, wherever it is: by an exception in
 * PyTorch, by tape->is_stopped here. Each op takes its tensors out of their holders, so they are freed one by one.
 * The segment's inputs are held until all holders are used up (_checkpoint_without_reentrant_generator,
 * _checkpoint_hook, _recomputation_hook). */
#include <assert.h>
#include <string.h>

#include "graph/table.h"

static void forward(tsr__op_call *call) {
  tsr__tape *tape = call->tape;
  bool grad_enabled = tape->grad_enabled;
  tsr__op_attributes attributes = *call->attributes;
  assert(attributes.segment && call->input_count);
  for (uint32_t i = 0; i < call->input_count; i++) tsr__op_save(call, i, call->reg[IN(i)]);
  tape->grad_enabled = false;
  tape->ops.items[call->op].attributes.draws = tape->schedule.draws;
  tsr__tensor_id result =
      attributes.segment(attributes.program, tape, attributes.index, &call->reg[IN(0)]);
  tape->grad_enabled = grad_enabled;
  tsr__tensor_hold(tape, result);
  tsr__scope_unbind(tape, result);
  call->reg[OUT(0)] = result;
}

/* A segment, and the tape's state when it started. */
typedef struct segment {
  tsr__tape_segment_fn *run;
  void *program;
  const tsr__tensor_id *inputs;
  uint32_t index, block, draws;
  bool is_autocast;
} segment;

/* Run the segment again; its result is bound to the current function. */
static tsr__tensor_id recompute(tsr__tape *tape, const segment *what) {
  bool is_autocast = tape->is_autocast, was_backward = tape->is_backward;
  bool grad_enabled = tape->grad_enabled;
  size_t casts = tape->casts.count;
  uint32_t block = tape->block;
  uint32_t draws = tape->schedule.draws;
  tape->is_autocast = what->is_autocast;
  tape->is_backward = false;
  tape->grad_enabled = true;
  tape->schedule.draws = what->draws; /* preserve_rng_state: the same masks again */
  tape->recomputing++;
  tape->block = what->block;
  tsr__tensor_id result = what->run(what->program, tape, what->index, what->inputs);
  assert(tape->recomputing);
  tape->recomputing--;
  tape->block = block;
  tape->schedule.draws = draws;
  tape->grad_enabled = grad_enabled;
  tape->is_backward = was_backward;
  tape->is_autocast = is_autocast;
  if (what->is_autocast) tsr__trace_enter(tape, TSR__PLACE_AUTOCAST_EXIT);
  while (tape->casts.count > casts)
    tsr__tensor_release(tape, tape->casts.items[--tape->casts.count].to);
  if (what->is_autocast) tsr__trace_leave(tape);
  return result;
}

/* Run the inner backward pass. The engine runs it on the thread of the node that asks for it (engine.cpp). */
static void run_within(tsr__tape *tape, tsr__tensor_id root, tsr__tensor_id grad) {
  tsr__trace_enter(tape, TSR__PLACE_RECOMPUTE_BACKWARD);
  tsr__tape_backward(tape, root, grad);
  tsr__trace_leave(tape);
}

/* Get the gradient for the inner pass. Python keeps holding it, so that nothing is added to it in place. With
 * tessera's own rule book it is released, so that sums are made in the same way, and have the same bits, with and
 * without a checkpoint. */
static tsr__tensor_id take_gradient(tsr__op_call *call) {
  tsr__tensor_id grad = call->reg[GRAD_OUT(0)];
  if (call->tape->book->is_torch)
    tsr__tensor_hold(call->tape, grad);
  else
    call->reg[GRAD_OUT(0)] = 0;
  return grad;
}

static void backward(tsr__op_call *call) {
  tsr__tape *tape = call->tape;
  tsr__tensor_id inputs[TSR__OP_INPUTS] = {0};
  tsr__scope_enter(tape, TSR__PLACE_RECOMPUTE);
  for (uint32_t i = 0; i < call->input_count; i++)
    inputs[i] = tsr__scope_bind(tape, tsr__tensor_detach(tape, call->reg[IN(i)], call->needs[i]));
  tsr__tensor_id result = recompute(tape, &(segment){.run = call->attributes->segment,
                                                     .program = call->attributes->program,
                                                     .inputs = inputs,
                                                     .index = call->attributes->index,
                                                     .block = tape->ops.items[call->op].block,
                                                     .draws = call->attributes->draws,
                                                     .is_autocast = call->attributes->is_autocast});
  run_within(tape, result, take_gradient(call));
  for (uint32_t i = 0; i < call->input_count; i++) {
    if (!inputs[i] || tape->status) continue;
    call->reg[GRAD_IN(i)] = tsr__tensor_at(tape, inputs[i])->grad;
    tsr__tensor_at(tape, inputs[i])->grad = 0;
  }
  (void)tsr__scope_leave(tape, 0);
}

/* The ops inside the segment count their own work. */
const tsr__op_row tsr__op_checkpoint = {.name = "checkpoint",
                                        .node = "CheckpointFunctionBackward",
                                        .run_forward = forward,
                                        .run_backward = backward};

/* ---- the form that is not reentrant ---- */

tsr__tensor_id tsr__checkpoint_run(tsr__tape *tape, const tsr__op_attributes *attributes,
                                   const tsr__tensor_id *inputs, uint32_t count) {
  tsr__tape_frame frame = {.segment = attributes->segment,
                           .program = attributes->program,
                           .index = attributes->index,
                           .block = tape->block,
                           .draws = tape->schedule.draws,
                           .input_count = count,
                           .first_holder = (uint32_t)tape->holders.count,
                           .is_autocast = tape->is_autocast};
  assert(!tape->packing && !tape->filling && count <= TSR__OP_INPUTS);
  memcpy(frame.inputs, inputs, count * sizeof *inputs);
  if (tape->status) return 0;
  for (uint32_t i = 0; i < count; i++) {
    tsr__tensor_hold(tape, inputs[i]);
    if (inputs[i]) tsr__tensor_set_category(tape, inputs[i], TSR_CATEGORY_ACTIVATION);
  }
  if (!TSR__VECTOR_PUSH(&tape->frames, frame))
    return (tsr__tensor_id)tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  tape->packing = (uint32_t)tape->frames.count;
  tsr__tensor_id result = attributes->segment(attributes->program, tape, attributes->index, inputs);
  tape->packing = 0;
  return result;
}

void tsr__checkpoint_refill(tsr__tape *tape, uint32_t number) {
  tsr__tape_frame frame = tape->frames.items[number]; /* frames may move */
  uint32_t filling = tape->filling;
  assert(!frame.is_filled && frame.holder_count && !filling);
  tape->frames.items[number].is_filled = true;
  tsr__scope_enter(tape, TSR__PLACE_REFILL);
  tape->filling = number + 1;
  (void)recompute(tape, &(segment){.run = frame.segment,
                                   .program = frame.program,
                                   .inputs = frame.inputs,
                                   .index = frame.index,
                                   .block = frame.block,
                                   .draws = frame.draws,
                                   .is_autocast = frame.is_autocast});
  assert(tape->status || tape->is_stopped); /* everything was saved again */
  tape->filling = filling;
  tape->is_stopped = false;
  (void)tsr__scope_leave(tape, 0);
}
