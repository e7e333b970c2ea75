/* op_fp8.c - a linear layer that multiplies in FP8, as TransformerEngine's does (commit d0067d0da6cb).
 *
 * The weight stays in its own type. Each forward makes copies with a byte for each number, of the weight and of what the
 * layer reads:
 *
 *   by rows      forward multiplies these, and frees that of the input
 *   transposed   for backward, because tensor cores for FP8 take operands of one order alone; cards of compute capability
 *                10.0 take both, so that backward reads the copies by rows
 *
 * A layer's copies of its weight exist from its forward to its backward, so without recomputation those of all layers
 * exist at once: FP8 takes more memory than the 16 bits that it multiplies instead. What a layer saves of its input
 * takes half of it. Backward makes the same copies of the gradient. Results, gradients of weights and biases are in
 * the input's type. With FSDP2, which frees weights after forward, backward makes the weight's copy again.
 *
 * Not modelled: scales, a few numbers of each copy; is_first_microbatch, with which copies of weights stay for
 * all micro-batches of a step; and fp8_model_init, with which the weight itself is in FP8.
 *
 * Inputs: x, a weight (outputs, inputs), and a bias, or 0. */
#include "graph/table.h"

#define X      IN(0)
#define WEIGHT IN(1)
#define BIAS   IN(2)

/* Copies by rows and transposed: T(0) and T(1) of the input or the gradient, T(2) and T(3) of the weight. */

static tsr__shape result(const tsr__op_call *call) {
  tsr__shape shape = tsr__op_shape(call, X);
  assert(shape.rank);
  shape.dim[shape.rank - 1] = call->attributes->features;
  return shape;
}

static tsr__shape transposed(tsr__shape shape) {
  uint64_t columns = shape.dim[shape.rank - 1];
  return TSR__SHAPE(columns, tsr__shape_elements(shape) / columns);
}
static tsr__shape transposed_input(const tsr__op_call *call) {
  return transposed(tsr__op_shape(call, X));
}
static tsr__shape transposed_weight(const tsr__op_call *call) {
  return transposed(tsr__op_shape(call, WEIGHT));
}
static tsr__shape transposed_gradient(const tsr__op_call *call) {
  return transposed(tsr__op_shape(call, GRAD_OUT(0)));
}

/* ---- when ---- */

static bool takes_both(const tsr__op_call *call) {
  return call->attributes->takes_both_orders;
}
static bool is_made_again(const tsr__op_call *call) {
  return call->attributes->is_made_again;
}
static bool keeps_input(const tsr__op_call *call) {
  return call->is_recorded && tsr__op_trains_1(call);
}
static bool keeps_input_rows(const tsr__op_call *call) {
  return keeps_input(call) && takes_both(call);
}
static bool keeps_input_transposed(const tsr__op_call *call) {
  return keeps_input(call) && !takes_both(call);
}
static bool keeps_weight(const tsr__op_call *call) {
  return call->is_recorded && tsr__op_trains_0(call) && !is_made_again(call);
}
static bool keeps_weight_transposed(const tsr__op_call *call) {
  return keeps_weight(call) && !takes_both(call);
}
static bool keeps_original(const tsr__op_call *call) {
  return call->is_recorded && is_made_again(call);
}
static bool makes_again_transposed(const tsr__op_call *call) {
  return is_made_again(call) && call->needs[0] && !takes_both(call);
}
static bool makes_again_rows(const tsr__op_call *call) {
  return is_made_again(call) && call->needs[0] && takes_both(call);
}
static bool has_weight_rows(const tsr__op_call *call) {
  return !is_made_again(call) && takes_both(call);
}
static bool has_weight_transposed(const tsr__op_call *call) {
  return !is_made_again(call) && !takes_both(call);
}
static bool transposes_gradient(const tsr__op_call *call) {
  return call->needs[1] && !takes_both(call);
}

/* ---- steps ---- */

static const tsr__op_step forward[] = {
    {MAKE(QUANTISE_FP8), .to = T(0), .like = X, BOOL},
    {MAKE(QUANTISE_FP8), .to = T(1), BOOL, .shape = transposed_input,
     .when = keeps_input_transposed},
    {INTO(QUANTISE_FP8), .reads = {X}, .writes = {T(0), T(1)}},
    {MAKE(QUANTISE_FP8), .to = T(2), .like = WEIGHT, BOOL},
    {MAKE(QUANTISE_FP8), .to = T(3), BOOL, .shape = transposed_weight,
     .when = keeps_weight_transposed},
    {INTO(QUANTISE_FP8), .reads = {WEIGHT}, .writes = {T(2), T(3)}},
    {RUN(SCALED_MM), .to = OUT(0), .reads = {T(0), T(2), BIAS}, SECOND_TRANSPOSED, .typed = X,
     .shape = result},
    {SAVE(0, T(0)), .is_exact = true, .when = keeps_input_rows},
    {SAVE(0, T(1)), .is_exact = true, .when = keeps_input_transposed},
    {SAVE(1, T(2)), .is_exact = true, .when = keeps_weight},
    {SAVE(2, T(3)), .is_exact = true, .when = keeps_weight_transposed},
    {SAVE(3, WEIGHT), .when = keeps_original},
    {FREE(T(0), T(1), T(2), T(3))},
    {.action = TSR__DO_END}};
static const tsr__op_step backward[] = {
    {MAKE(QUANTISE_FP8), .to = T(0), .like = GRAD_OUT(0), BOOL},
    {MAKE(QUANTISE_FP8), .to = T(1), BOOL, .shape = transposed_gradient,
     .when = transposes_gradient},
    {INTO(QUANTISE_FP8), .reads = {GRAD_OUT(0)}, .writes = {T(0), T(1)}},
    {RUN(QUANTISE_FP8), .to = T(3), .reads = {SAVED(3)}, BOOL, .shape = transposed_weight,
     .when = makes_again_transposed},
    {RUN(QUANTISE_FP8), .to = T(2), .reads = {SAVED(3)}, BOOL, .when = makes_again_rows},
    {RUN(SCALED_MM), .to = GRAD_IN(0), .reads = {T(0), SAVED(2)}, SECOND_TRANSPOSED, .like = X,
     .typed = GRAD_OUT(0), .when = has_weight_transposed},
    {RUN(SCALED_MM), .to = GRAD_IN(0), .reads = {T(0), SAVED(1)}, .like = X, .typed = GRAD_OUT(0),
     .when = has_weight_rows},
    {RUN(SCALED_MM), .to = GRAD_IN(0), .reads = {T(0), T(3)}, SECOND_TRANSPOSED, .like = X,
     .typed = GRAD_OUT(0), .done = {T(3)}, .when = makes_again_transposed},
    {RUN(SCALED_MM), .to = GRAD_IN(0), .reads = {T(0), T(2)}, .like = X, .typed = GRAD_OUT(0),
     .done = {T(2)}, .when = makes_again_rows},
    {RUN(SCALED_MM), .to = GRAD_IN(1), .reads = {T(1), SAVED(0)}, SECOND_TRANSPOSED, .like = WEIGHT,
     .typed = GRAD_OUT(0), .when = transposes_gradient},
    {RUN(SCALED_MM), .to = GRAD_IN(1), .reads = {T(0), SAVED(0)}, FIRST_TRANSPOSED, .like = WEIGHT,
     .typed = GRAD_OUT(0), .when = takes_both},
    {PASS(GRAD_IN(2), GRAD_OUT(0))},
    {FREE(T(1), T(0))},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_linear_fp8 = {.name = "linear in FP8",
                                        .node = "_LinearBackward",
                                        .autocast = TSR__AUTOCAST_LOW_BUT_WEIGHTS,
                                        .forward = forward,
                                        .backward = backward};
