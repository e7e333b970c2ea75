/* op_pointwise.c - ops that work element by element.
 *
 * GELU has two forms. transformers' NewGELU is eight operations in Python:
 *
 *   half = 0.5 * x            kept by the last product
 *   cube = x ** 3             keeps x
 *   inner = 0.044715 * cube; sum = x + inner; scaled = c * sum
 *   tanh                      keeps itself
 *   one = 1 + tanh            kept by the last product
 *   half * one
 *
 * so that four tensors of its width stay for backward, in addition to the product, which the next op keeps. Under
 * autocast pow runs in fp32, and so does everything after it. The fused form is one kernel that keeps its input. */
#include "graph/table.h"

/* ---- in place: the result is in the memory of an operand ---- */

static bool is_over_0(const tsr__op_call *call) {
  return call->over == 1;
}
static bool is_over_1(const tsr__op_call *call) {
  return call->over == 2;
}
static bool is_apart(const tsr__op_call *call) {
  return !call->over;
}
static tsr__layout itself(const tsr__op_call *call, tsr__layout layout) {
  (void)call;
  return layout;
}

/* ---- dropout ---- */

static double dropout(const tsr__op_call *call) {
  assert(call->attributes->dropout > 0 && call->attributes->dropout < 1);
  return call->attributes->dropout;
}
static double kept(const tsr__op_call *call) {
  return 1 / (1 - dropout(call));
}

/* In place it is another function (_dropout_impl of aten/src/ATen/native/Dropout.cpp), which multiplies by noise in
 * the input's type and saves that: four bytes an element in fp32, where a mask takes one. */
static bool has_noise(const tsr__op_call *call) {
  return call->attributes->is_in_place;
}
static bool has_mask(const tsr__op_call *call) {
  return !has_noise(call);
}
static bool has_noise_apart(const tsr__op_call *call) {
  return has_noise(call) && is_apart(call);
}

static const tsr__op_step dropout_forward[] = {
    {MAKE(DROPOUT), .to = OUT(0), .like = IN(0), .when = has_mask},
    {MAKE(DROPOUT), .to = OUT(1), .like = IN(0), BOOL, .when = has_mask},
    {RUN(DROPOUT), .reads = {IN(0)}, .writes = {OUT(0), OUT(1)}, .scalars = {RULE(dropout)},
     .when = has_mask},
    {SAVE(0, OUT(1)), .when = has_mask},
    {RUN(DROPOUT_NOISE), .to = T(0), .like = IN(0), .scalars = {RULE(dropout)}, .when = has_noise},
    {SAVE(0, T(0)), .when = has_noise},
    {VIEW(OUT(0), IN(0), itself), .when = is_over_0},
    {INTO(MUL), .reads = {IN(0), T(0)}, .writes = {OUT(0)}, .when = is_over_0},
    {RUN(MUL), .to = OUT(0), .reads = {IN(0), T(0)}, .when = has_noise_apart},
    {FREE(T(0)), .when = has_noise},
    {.action = TSR__DO_END}};
static const tsr__op_step dropout_backward[] = {
    {RUN(DROPOUT_BACKWARD), .to = GRAD_IN(0), .reads = {GRAD_OUT(0), SAVED(0)},
     .scalars = {RULE(kept)}, .when = has_mask},
    {RUN(MUL), .to = GRAD_IN(0), .reads = {GRAD_OUT(0), SAVED(0)}, .node = "MulBackward0",
     .within = "mul_tensor_backward", .when = has_noise},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_dropout = {.name = "dropout",
                                     .node = "NativeDropoutBackward0",
                                     .forward = dropout_forward,
                                     .backward = dropout_backward};

/* ---- sum and product ---- */

static tsr__shape broadcast(const tsr__op_call *call) {
  tsr__shape a = tsr__op_shape(call, IN(0)), b = tsr__op_shape(call, IN(1));
  return tsr__shape_elements(a) >= tsr__shape_elements(b) ? a : b;
}

static const tsr__op_step add_forward[] = {
    {VIEW(OUT(0), IN(0), itself), .when = is_over_0},
    {INTO(ADD), .reads = {IN(0), IN(1)}, .writes = {OUT(0)}, .when = is_over_0},
    {VIEW(OUT(0), IN(1), itself), .when = is_over_1},
    {INTO(ADD), .reads = {IN(1), IN(0)}, .writes = {OUT(0)}, .when = is_over_1},
    {RUN(ADD), .to = OUT(0), .reads = {IN(0), IN(1)}, PROMOTED, .shape = broadcast,
     .when = is_apart},
    {.action = TSR__DO_END}};
static const tsr__op_step add_backward[] = {
    {PASS(GRAD_IN(0), GRAD_OUT(0))}, {PASS(GRAD_IN(1), GRAD_OUT(0))}, {.action = TSR__DO_END}};
const tsr__op_row tsr__op_add = {
    .name = "add", .node = "AddBackward0", .forward = add_forward, .backward = add_backward};

static const tsr__op_step mul_forward[] = {
    {SAVE(0, IN(0))},
    {SAVE(1, IN(1))},
    {RUN(MUL), .to = OUT(0), .reads = {IN(0), IN(1)}, PROMOTED, .when = is_apart},
    {VIEW(OUT(0), IN(0), itself), .when = is_over_0},
    {INTO(MUL), .reads = {IN(0), IN(1)}, .writes = {OUT(0)}, .when = is_over_0},
    {.action = TSR__DO_END}};
/* autograd's MulBackward0 computes the second factor's gradient first. */
static const tsr__op_step mul_backward[] = {
    {RUN(MUL), .to = GRAD_IN(1), .reads = {GRAD_OUT(0), SAVED(0)}, .within = "mul_tensor_backward"},
    {RUN(MUL), .to = GRAD_IN(0), .reads = {GRAD_OUT(0), SAVED(1)}, .within = "mul_tensor_backward"},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_mul = {
    .name = "product", .node = "MulBackward0", .forward = mul_forward, .backward = mul_backward};

/* ---- scale: x, and optionally a scalar tensor, else `factor` ---- */

static bool has_tensor(const tsr__op_call *call) {
  return call->input_count > 1;
}
static bool has_number(const tsr__op_call *call) {
  return !has_tensor(call);
}
static double factor(const tsr__op_call *call) {
  assert(call->attributes->factor != 0);
  return call->attributes->factor;
}

static const tsr__op_step scale_forward[] = {
    {RUN(MUL), .to = OUT(0), .reads = {IN(0), IN(1)}, .when = has_tensor},
    {RUN(MUL), .to = OUT(0), .reads = {IN(0)}, .scalars = {RULE(factor)}, .when = has_number},
    {SAVE(0, IN(1)), .when = has_tensor},
    {.action = TSR__DO_END}};
static const tsr__op_step scale_backward[] = {
    {RUN(MUL), .to = GRAD_IN(0), .reads = {GRAD_OUT(0), SAVED(0)}, .like = IN(0),
     .within = "mul_tensor_backward", .when = has_tensor},
    {RUN(MUL), .to = GRAD_IN(0), .reads = {GRAD_OUT(0)}, .scalars = {RULE(factor)}, .like = IN(0),
     .within = "mul_tensor_backward", .when = has_number},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_scale = {
    .name = "scale", .node = "MulBackward0", .forward = scale_forward, .backward = scale_backward};

/* ---- activation functions ---- */

#define HALF  SAVED(0)
#define INPUT SAVED(1)
#define TANHX SAVED(2)
#define ONE   SAVED(3)

#define CUBIC     NUMBER(0.044715)
#define ROOT_2_PI NUMBER(0.79788456080286535588) /* square root of 2 / pi */

static const tsr__op_step gelu_forward[] = {
    {RUN(MUL), .to = T(0), .reads = {IN(0)}, .scalars = {NUMBER(0.5)}}, /* half */
    {CAST(T(1), IN(0)), WIDE},
    {SAVE(1, T(1))},
    {RUN(POW), .to = T(2), .reads = {T(1)}, .scalars = {NUMBER(3)}, .done = {T(1)}},
    {RUN(MUL), .to = T(3), .reads = {T(2)}, .scalars = {CUBIC}, .done = {T(2)}},
    {RUN(ADD), .to = T(4), .reads = {IN(0), T(3)}, .like = T(3), .done = {T(3)}},
    {RUN(MUL), .to = T(5), .reads = {T(4)}, .scalars = {ROOT_2_PI}, .done = {T(4)}},
    {RUN(TANH), .to = T(6), .reads = {T(5)}, .done = {T(5)}},
    {RUN(ADD), .to = T(7), .reads = {T(6)}, .scalars = {NUMBER(1)}}, /* one */
    {SAVE(0, T(0))},
    {SAVE(2, T(6))},
    {SAVE(3, T(7))},
    {FREE(T(6))},
    {RUN(MUL), .to = OUT(0), .reads = {T(0), T(7)}, .like = T(7), .done = {T(0), T(7)}},
    {.action = TSR__DO_END}};
/* What a checkpoint recomputed is freed with the node's function, before autograd casts its results. */
static bool is_packed(const tsr__op_call *call) {
  return call->tape->ops.items[call->op].holder[0] != 0;
}
/* The gradient of x is that of the sum, to which those of the cube and of half are added. */
static const tsr__op_step gelu_backward[] = {
    {RUN(MUL), .to = T(1), .reads = {GRAD_OUT(0), HALF}, .within = "mul_tensor_backward"},
    {RUN(MUL), .to = T(0), .reads = {GRAD_OUT(0), ONE}, .within = "mul_tensor_backward"},
    {FREE(HALF), .when = is_packed},
    {FREE(ONE), .when = is_packed},
    {CAST(T(0), T(0)), .typed = IN(0), .done = {GRAD_OUT(0), HALF, ONE}},
    {RUN(TANH_BACKWARD), .to = T(2), .reads = {T(1), TANHX}, .node = "TanhBackward0",
     .done = {T(1), TANHX}},
    {RUN(MUL), .to = T(3), .reads = {T(2)}, .scalars = {ROOT_2_PI}, .node = "MulBackward0",
     .within = "mul_tensor_backward", .done = {T(2)}},
    {CAST(GRAD_IN(0), T(3)), .typed = IN(0), .node = "AddBackward0"},
    {RUN(MUL), .to = T(4), .reads = {T(3)}, .scalars = {CUBIC}, .node = "MulBackward0",
     .within = "mul_tensor_backward", .done = {T(3)}},
    {RUN(POW), .to = T(5), .reads = {INPUT}, .scalars = {NUMBER(2)}, .typed = T(4),
     .node = "PowBackward0", .within = "pow_backward"},
    {RUN(MUL), .to = T(6), .reads = {T(5)}, .scalars = {NUMBER(3)}, .within = "pow_backward"},
    {RUN(MUL), .to = T(7), .reads = {T(6), T(4)}, .within = "pow_backward",
     .done = {T(6), T(5), T(4), INPUT}},
    {CAST(T(7), T(7)), .typed = IN(0)},
    {INTO(ADD), .reads = {GRAD_IN(0), T(7)}, .writes = {GRAD_IN(0)}, .done = {T(7)}},
    {RUN(MUL), .to = T(5), .reads = {T(0)}, .scalars = {NUMBER(0.5)}, .node = "MulBackward0",
     .within = "mul_tensor_backward", .done = {T(0)}},
    {INTO(ADD), .reads = {GRAD_IN(0), T(5)}, .writes = {GRAD_IN(0)}, .done = {T(5)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_gelu = {.name = "eager GELU",
                                  .node = "MulBackward0",
                                  .forward = gelu_forward,
                                  .backward = gelu_backward};

static double is_tanh(const tsr__op_call *call) {
  return call->attributes->is_tanh;
}

static const tsr__op_step gelu_fused_forward[] = {
    {SAVE(0, IN(0))},
    {RUN(GELU), .to = OUT(0), .reads = {IN(0)}, .scalars = {RULE(is_tanh)}, .when = is_apart},
    {VIEW(OUT(0), IN(0), itself), .when = is_over_0},
    {INTO(GELU), .reads = {IN(0)}, .writes = {OUT(0)}, .scalars = {RULE(is_tanh)},
     .when = is_over_0},
    {.action = TSR__DO_END}};
static const tsr__op_step gelu_fused_backward[] = {{RUN(GELU_BACKWARD), .to = GRAD_IN(0),
                                                    .reads = {GRAD_OUT(0), SAVED(0)},
                                                    .scalars = {RULE(is_tanh)}},
                                                   {.action = TSR__DO_END}};
const tsr__op_row tsr__op_gelu_fused = {.name = "GELU",
                                        .node = "GeluBackward0",
                                        .forward = gelu_fused_forward,
                                        .backward = gelu_fused_backward};

static const tsr__op_step silu_forward[] = {
    {SAVE(0, IN(0))},
    {RUN(SILU), .to = OUT(0), .reads = {IN(0)}, .when = is_apart},
    {VIEW(OUT(0), IN(0), itself), .when = is_over_0},
    {INTO(SILU), .reads = {IN(0)}, .writes = {OUT(0)}, .when = is_over_0},
    {.action = TSR__DO_END}};
static const tsr__op_step silu_backward[] = {
    {RUN(SILU_BACKWARD), .to = GRAD_IN(0), .reads = {GRAD_OUT(0), SAVED(0)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_silu = {
    .name = "SiLU", .node = "SiluBackward0", .forward = silu_forward, .backward = silu_backward};

/* ---- the rest ---- */

static const tsr__op_step cast_forward[] = {
    {RUN(TO_COPY), .to = OUT(0), .reads = {IN(0)}, ASKED, LIKE}, {.action = TSR__DO_END}};
static const tsr__op_step cast_backward[] = {
    {RUN(TO_COPY), .to = GRAD_IN(0), .reads = {GRAD_OUT(0)}, .typed = IN(0), LIKE},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_cast = {
    .name = "cast", .node = "ToCopyBackward0", .forward = cast_forward, .backward = cast_backward};

static const tsr__op_step clone_forward[] = {{RUN(CLONE), .to = OUT(0), .reads = {IN(0)}, LIKE},
                                             {.action = TSR__DO_END}};
static const tsr__op_step clone_backward[] = {{PASS(GRAD_IN(0), GRAD_OUT(0))},
                                              {.action = TSR__DO_END}};
const tsr__op_row tsr__op_clone = {.name = "clone",
                                   .node = "CloneBackward0",
                                   .forward = clone_forward,
                                   .backward = clone_backward};

static tsr__shape scalar(const tsr__op_call *call) {
  (void)call;
  return TSR__SCALAR;
}
static double elements(const tsr__op_call *call) {
  return (double)tsr__shape_elements(tsr__op_shape(call, IN(0)));
}

/* The gradient of a mean is repeated for all elements, and becomes a full tensor when it is divided by their
 * number. */
static const tsr__op_step mean_forward[] = {
    {RUN(MEAN), .to = OUT(0), .reads = {IN(0)}, .shape = scalar}, {.action = TSR__DO_END}};
static const tsr__op_step mean_backward[] = {{RUN(DIV), .to = GRAD_IN(0), .reads = {GRAD_OUT(0)},
                                              .scalars = {RULE(elements)}, .like = IN(0),
                                              .within = "mean_backward"},
                                             {.action = TSR__DO_END}};
const tsr__op_row tsr__op_mean = {
    .name = "mean", .node = "MeanBackward0", .forward = mean_forward, .backward = mean_backward};

static tsr__shape range(const tsr__op_call *call) {
  return TSR__SHAPE(call->attributes->features);
}

static double position(const tsr__op_call *call) {
  return (double)call->attributes->position;
}

static const tsr__op_step arange_forward[] = {
    {RUN(ARANGE), .to = OUT(0), I64, .shape = range, .scalars = {POSITION(position), NUMBER(1)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_arange = {.name = "arange", .forward = arange_forward};

/* ---- tessera's own ---- */

/* No mask is kept: backward draws the same numbers again. */
static const tsr__op_step own_dropout_forward[] = {
    {RUN(DROP), .to = OUT(0), .reads = {IN(0)}, .scalars = {RULE(dropout)}, .when = is_apart},
    {VIEW(OUT(0), IN(0), itself), .when = is_over_0},
    {INTO(DROP), .reads = {IN(0)}, .writes = {OUT(0)}, .scalars = {RULE(dropout)},
     .when = is_over_0},
    {.action = TSR__DO_END}};
static const tsr__op_step own_dropout_backward[] = {
    {REUSE(DROP, GRAD_IN(0), GRAD_OUT(0))},
    {INTO(DROP), .reads = {GRAD_OUT(0)}, .writes = {GRAD_IN(0)}, .scalars = {RULE(dropout)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__own_dropout = {.name = "dropout",
                                      .node = "DropoutBackward",
                                      .forward = own_dropout_forward,
                                      .backward = own_dropout_backward};

const tsr__op_row tsr__own_add = {
    .name = "add", .node = "AddBackward", .forward = add_forward, .backward = add_backward};

static const tsr__op_step own_gelu_backward[] = {
    {REUSE(GELU_BACKWARD, GRAD_IN(0), GRAD_OUT(0))},
    {INTO(GELU_BACKWARD), .reads = {GRAD_OUT(0), SAVED(0)}, .writes = {GRAD_IN(0)},
     .scalars = {RULE(is_tanh)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__own_gelu = {.name = "GELU",
                                   .node = "GELUBackward",
                                   .forward = gelu_fused_forward,
                                   .backward = own_gelu_backward};

static const tsr__op_step own_silu_backward[] = {
    {REUSE(SILU_BACKWARD, GRAD_IN(0), GRAD_OUT(0))},
    {INTO(SILU_BACKWARD), .reads = {GRAD_OUT(0), SAVED(0)}, .writes = {GRAD_IN(0)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__own_silu = {
    .name = "SiLU", .node = "SiLUBackward", .forward = silu_forward, .backward = own_silu_backward};

/* The gate and what it multiplies are kept for backward, whose results overwrite them. */
static const tsr__op_step own_silu_gate_forward[] = {
    {SAVE(0, IN(0))},
    {SAVE(1, IN(1))},
    {RUN(SILU_GATE), .to = OUT(0), .reads = {IN(0), IN(1)}, .when = is_apart},
    {VIEW(OUT(0), IN(0), itself), .when = is_over_0},
    {INTO(SILU_GATE), .reads = {IN(0), IN(1)}, .writes = {OUT(0)}, .when = is_over_0},
    {.action = TSR__DO_END}};
static const tsr__op_step own_silu_gate_backward[] = {
    {REUSE(SILU_GATE_BACKWARD, GRAD_IN(0), SAVED(0))},
    {REUSE(SILU_GATE_BACKWARD, GRAD_IN(1), SAVED(1))},
    {INTO(SILU_GATE_BACKWARD), .reads = {GRAD_OUT(0), SAVED(0), SAVED(1)},
     .writes = {GRAD_IN(0), GRAD_IN(1)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__own_silu_gate = {.name = "SiLU gate",
                                        .node = "SiLUGateBackward",
                                        .forward = own_silu_gate_forward,
                                        .backward = own_silu_gate_backward};
