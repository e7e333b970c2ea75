/* op_norm.c - normalisations over the last dimension.
 *
 * LayerNorm is one kernel, which saves its input, its weight and, for each row in fp32, the mean and the reciprocal
 * of the deviation (aten/src/ATen/native/cuda/layer_norm_kernel.cu).
 *
 * RMS norm is what LlamaRMSNorm writes out in Python, in fp32: a copy of the input if that has 16 bits, its square,
 * its mean, plus epsilon, its reciprocal root, the product, a cast back, times the weight. */
#include "graph/table.h"

static tsr__shape rows(const tsr__op_call *call) {
  tsr__shape shape = tsr__op_shape(call, IN(0));
  assert(shape.rank);
  shape.dim[shape.rank - 1] = 1;
  return shape;
}

static double epsilon(const tsr__op_call *call) {
  assert(call->attributes->epsilon > 0);
  return call->attributes->epsilon;
}

static double width(const tsr__op_call *call) {
  return (double)tsr__shape_from_end(tsr__op_shape(call, IN(0)), 0);
}

/* ---- layer norm: x, weight, bias ---- */

static const tsr__op_step layer_norm_forward[] = {
    {MAKE(LAYER_NORM), .to = OUT(0), .like = IN(0)},
    {MAKE(LAYER_NORM), .to = OUT(1), F32, .shape = rows}, /* mean */
    {MAKE(LAYER_NORM), .to = OUT(2), F32, .shape = rows}, /* 1 / deviation */
    {RUN(LAYER_NORM), .reads = {IN(0), IN(1), IN(2)}, .writes = {OUT(0), OUT(1), OUT(2)},
     .scalars = {RULE(epsilon)}},
    {SAVE(0, IN(0))},
    {SAVE(1, OUT(1))},
    {SAVE(2, OUT(2))},
    {SAVE(3, IN(1))},
    {.action = TSR__DO_END}};
static const tsr__op_step layer_norm_backward[] = {
    {MAKE(LAYER_NORM_BACKWARD), .to = GRAD_IN(0), .like = IN(0)},
    {MAKE(LAYER_NORM_BACKWARD), .to = GRAD_IN(1), .like = IN(1)},
    {MAKE(LAYER_NORM_BACKWARD), .to = GRAD_IN(2), .like = IN(2)},
    {RUN(LAYER_NORM_BACKWARD), .reads = {GRAD_OUT(0), SAVED(0), SAVED(1), SAVED(2), SAVED(3)},
     .writes = {GRAD_IN(0), GRAD_IN(1), GRAD_IN(2)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_layer_norm = {.name = "layer norm",
                                        .node = "NativeLayerNormBackward0",
                                        .autocast = TSR__AUTOCAST_FULL,
                                        .forward = layer_norm_forward,
                                        .backward = layer_norm_backward};

/* ---- RMS norm: x, weight ---- */

static bool is_narrow(const tsr__op_call *call) {
  return tsr__op_dtype(call, IN(0)) != TSR__DTYPE_F32;
}

static bool is_wide(const tsr__op_call *call) {
  return !is_narrow(call);
}

/* What a checkpoint recomputed for a node is freed when the node's function returns, before the engine sums
 * gradients. */
static bool is_recomputed(const tsr__op_call *call) {
  return call->tape->ops.items[call->op].holder[2] != 0;
}

#define WIDE_X     SAVED(0)
#define ROOT       SAVED(1)
#define NORMALISED SAVED(2)
#define WEIGHT     SAVED(3)

static const tsr__op_step rms_norm_forward[] = {
    {CAST(T(0), IN(0)), F32},
    {RUN(POW), .to = T(1), .reads = {T(0)}, .scalars = {NUMBER(2)}},
    {RUN(MEAN_DIM), .to = T(2), .reads = {T(1)}, .shape = rows, .done = {T(1)}},
    {RUN(ADD), .to = T(3), .reads = {T(2)}, .scalars = {RULE(epsilon)}},
    {RUN(RSQRT), .to = T(4), .reads = {T(3)}, .done = {T(3)}},
    {SAVE(0, T(0))},
    {SAVE(1, T(4))},
    {RUN(MUL), .to = T(5), .reads = {T(0), T(4)}, .done = {T(0), T(4)}},
    {CAST(T(6), T(5)), .typed = IN(0)},
    {RUN(MUL), .to = OUT(0), .reads = {T(6), IN(1)}, PROMOTED},
    {SAVE(2, T(6)), .when = tsr__op_trains_1},
    {SAVE(3, IN(1)), .when = tsr__op_trains_0},
    {FREE(T(6), T(5), T(2))}, /* the variance is a variable of forward */
    {.action = TSR__DO_END}};
/* With y = x r w, where r = (mean of x squared + epsilon) to the power of -1/2:
 *   dw = sum of g x r        dx = g w r + 2 x / width * (sum of g w x) * (-1/2 r^3) */
static const tsr__op_step rms_norm_backward[] = {
    {RUN(MUL), .to = T(1), .reads = {GRAD_OUT(0), WEIGHT}, .within = "mul_tensor_backward"},
    {RUN(MUL), .to = T(0), .reads = {GRAD_OUT(0), NORMALISED}, .within = "mul_tensor_backward",
     .when = tsr__op_trains_1},
    {FREE(NORMALISED), .when = is_recomputed},
    {RUN(SUM), .to = GRAD_IN(1), .reads = {T(0)}, .like = IN(1), .typed = GRAD_OUT(0),
     .done = {T(0), GRAD_OUT(0), NORMALISED, WEIGHT}},
    {HAND(GRAD_IN(1))},
    {RUN(TO_COPY), .to = T(1), .reads = {T(1)}, F32, .when = is_narrow, .node = "ToCopyBackward0"},
    {RUN(MUL), .to = T(3), .reads = {T(1), WIDE_X}, .node = "MulBackward0",
     .within = "mul_tensor_backward"},
    {RUN(MUL), .to = T(2), .reads = {T(1), ROOT}, .within = "mul_tensor_backward"},
    {RUN(SUM), .to = T(4), .reads = {T(3)}, .shape = rows, .done = {T(3), T(1)}},
    {GIVE(GRAD_IN(0), T(2)), .when = is_wide},
    {RUN(POW), .to = T(5), .reads = {ROOT}, .scalars = {NUMBER(3)}, .node = "RsqrtBackward0",
     .within = "rsqrt_backward"},
    {RUN(MUL), .to = T(7), .reads = {T(4)}, .scalars = {NUMBER(-0.5)}, .within = "rsqrt_backward"},
    {RUN(MUL), .to = T(6), .reads = {T(7), T(5)}, .within = "rsqrt_backward",
     .done = {T(7), T(5), T(4), ROOT}},
    {RUN(DIV), .to = T(7), .reads = {T(6)}, .scalars = {RULE(width)}, .like = WIDE_X,
     .node = "MeanBackward1", .within = "mean_backward", .done = {T(6)}},
    {RUN(POW), .to = T(0), .reads = {WIDE_X}, .scalars = {NUMBER(1)}, .node = "PowBackward0",
     .within = "pow_backward"},
    {RUN(MUL), .to = T(1), .reads = {T(0)}, .scalars = {NUMBER(2)}, .within = "pow_backward"},
    {RUN(MUL), .to = T(3), .reads = {T(1), T(7)}, .within = "pow_backward",
     .done = {T(1), T(0), T(7)}},
    {INTO(ADD), .reads = {T(2), T(3)}, .writes = {T(2)}, .when = is_narrow, .done = {T(3), WIDE_X}},
    {CLOSE}, /* a checkpoint need not compute anything after WIDE_X */
    {RUN(TO_COPY), .to = GRAD_IN(0), .reads = {T(2)}, .typed = IN(0), .when = is_narrow,
     .node = "ToCopyBackward0", .done = {T(2)}},
    {MOVE(GRAD_IN(0), T(3)), .when = is_wide},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_rms_norm = {.name = "RMS norm",
                                      .node = "MulBackward0",
                                      .forward = rms_norm_forward,
                                      .backward = rms_norm_backward};

/* ---- tessera's own: one kernel each way; under autocast, its result has the type that a product needs ---- */

static const tsr__op_step own_layer_norm_forward[] = {
    {MAKE(LAYER_NORM), .to = OUT(0), .like = IN(0), LOW},
    {MAKE(LAYER_NORM), .to = OUT(1), .like = IN(0), F32, .shape = rows}, /* mean */
    {MAKE(LAYER_NORM), .to = OUT(2), .like = IN(0), F32, .shape = rows}, /* 1 / deviation */
    {RUN(LAYER_NORM), .reads = {IN(0), IN(1), IN(2)}, .writes = {OUT(0), OUT(1), OUT(2)},
     .scalars = {RULE(epsilon)}},
    {SAVE(0, IN(0))},
    {SAVE(1, OUT(1))},
    {SAVE(2, OUT(2))},
    {SAVE(3, IN(1))},
    {.action = TSR__DO_END}};
static const tsr__op_step own_layer_norm_backward[] = {
    {JOIN(LAYER_NORM_BACKWARD, GRAD_IN(0), IN(0))},
    {JOIN(LAYER_NORM_BACKWARD, GRAD_IN(1), IN(1))},
    {JOIN(LAYER_NORM_BACKWARD, GRAD_IN(2), IN(2))},
    {RUN(LAYER_NORM_BACKWARD),
     .reads = {GRAD_OUT(0), SAVED(0), SAVED(1), SAVED(2), SAVED(3), SO_FAR(0), SO_FAR(1),
               SO_FAR(2)},
     .writes = {GRAD_IN(0), GRAD_IN(1), GRAD_IN(2)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__own_layer_norm = {.name = "layer norm",
                                         .node = "LayerNormBackward",
                                         .forward = own_layer_norm_forward,
                                         .backward = own_layer_norm_backward};

static const tsr__op_step own_rms_norm_forward[] = {
    {MAKE(RMS_NORM), .to = OUT(0), .like = IN(0), LOW},
    {MAKE(RMS_NORM), .to = OUT(1), .like = IN(0), F32, .shape = rows}, /* 1 / root */
    {RUN(RMS_NORM), .reads = {IN(0), IN(1)}, .writes = {OUT(0), OUT(1)},
     .scalars = {RULE(epsilon)}},
    {SAVE(0, IN(0))},
    {SAVE(1, OUT(1))},
    {SAVE(2, IN(1))},
    {.action = TSR__DO_END}};
static const tsr__op_step own_rms_norm_backward[] = {
    {JOIN(RMS_NORM_BACKWARD, GRAD_IN(0), IN(0))},
    {JOIN(RMS_NORM_BACKWARD, GRAD_IN(1), IN(1))},
    {RUN(RMS_NORM_BACKWARD),
     .reads = {GRAD_OUT(0), SAVED(0), SAVED(1), SAVED(2), SO_FAR(0), SO_FAR(1)},
     .writes = {GRAD_IN(0), GRAD_IN(1)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__own_rms_norm = {.name = "RMS norm",
                                       .node = "RMSNormBackward",
                                       .forward = own_rms_norm_forward,
                                       .backward = own_rms_norm_backward};
