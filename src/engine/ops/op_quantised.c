/* op_quantised.c - a linear layer whose weight is in 4 bits, as bitsandbytes 0.50 runs it on shapes of training.
 *
 *   codes     two of the weight's numbers in a byte
 *   scales    the largest number of each 64, in fp32; doubly quantised in 8 bits, with scales of their own for each
 *             256 and an offset
 *
 * Forward (_dequant_linear_fallback of backends/cuda/ops.py) dequantises the whole weight, multiplies, and frees it.
 * A custom autograd function (autograd/_functions.py, MatMul4Bit) keeps codes and scales as attributes, so hooks of
 * saved tensors do not see them, and a checkpoint does not count them: nothing is saved here. Backward dequantises
 * again, to the type that the weight had when it was quantised, casts that to the gradient's type, and multiplies. The
 * weight gets no gradient.
 *
 * Not modelled: the fused kernel that 0.50 has for few rows (at most 1,536, and by card), which leaves out the copy in
 * forward.
 *
 * Inputs: x, codes, scales, the scales' scales and offset (0 if scales are not quantised), and a bias, or 0. */
#include "graph/table.h"

#define X      IN(0)
#define CODES  IN(1)
#define SCALES IN(2)
#define NESTED IN(3)
#define OFFSET IN(4)
#define BIAS   IN(5)

static tsr__shape weight(const tsr__op_call *call) {
  return TSR__SHAPE(call->attributes->features, tsr__shape_from_end(tsr__op_shape(call, X), 0));
}
static tsr__shape result(const tsr__op_call *call) {
  tsr__shape shape = tsr__op_shape(call, X);
  assert(shape.rank);
  shape.dim[shape.rank - 1] = call->attributes->features;
  return shape;
}

static bool is_nested(const tsr__op_call *call) {
  return call->reg[NESTED] != 0;
}
static bool is_flat(const tsr__op_call *call) {
  return !is_nested(call);
}
static bool has_bias(const tsr__op_call *call) {
  return call->reg[BIAS] != 0;
}
static bool has_none(const tsr__op_call *call) {
  return !has_bias(call);
}

static const tsr__op_step forward[] = {
    {RUN(DEQUANTISE_4BIT), .to = T(0), .reads = {SCALES, NESTED}, F32, .when = is_nested},
    {RUN(ADD), .to = T(1), .reads = {T(0), OFFSET}, .when = is_nested},
    {RUN(DEQUANTISE_4BIT), .to = T(2), .reads = {CODES, T(1)}, .typed = X, .shape = weight,
     .when = is_nested},
    {RUN(DEQUANTISE_4BIT), .to = T(2), .reads = {CODES, SCALES}, .typed = X, .shape = weight,
     .when = is_flat},
    {RUN(MM), .to = OUT(0), .reads = {X, T(2)}, SECOND_TRANSPOSED, .shape = result,
     .when = has_none},
    {RUN(ADDMM), .to = OUT(0), .reads = {X, T(2), BIAS}, SECOND_TRANSPOSED, .shape = result,
     .when = has_bias},
    {FREE(T(2))},
    {FREE(T(1), T(0)), .when = is_nested},
    {.action = TSR__DO_END}};
static const tsr__op_step backward[] = {
    {RUN(DEQUANTISE_4BIT), .to = T(0), .like = SCALES, F32, .when = is_nested},
    {INTO(ADD), .reads = {T(0)}, .writes = {T(0)}, .scalars = {NUMBER(0)}, .when = is_nested},
    {RUN(DEQUANTISE_4BIT), .to = T(1), .reads = {0, T(0)}, .like = X, ASKED, .shape = weight},
    {FREE(T(0)), .when = is_nested},
    {CAST(T(2), T(1)), .typed = GRAD_OUT(0), .done = {T(1)}},
    {RUN(MM), .to = GRAD_IN(0), .reads = {GRAD_OUT(0), T(2)}, .like = X, .typed = GRAD_OUT(0),
     .done = {T(2)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_linear_4bit = {.name = "linear in 4 bits",
                                         .node = "MatMul4BitBackward",
                                         .forward = forward,
                                         .backward = backward};
