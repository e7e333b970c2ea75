/* op_heads.c - what comes between projections and attention: splitting, caching, repeating and
 * turning heads, and the mask.
 *
 * Heads are (batch, heads, rows, width). */
#include "engine/table.h"

/* ---- split: one tensor, as three views ---- */

static tsr__shape third(const tsr__call *call) {
  tsr__shape shape = tsr__shape_in(call, IN(0));
  shape.dim[shape.rank - 1] /= 3;
  return shape;
}

static bool lacks_0(const tsr__call *call) {
  return !call->reg[GRAD_OUT(0)];
}
static bool lacks_1(const tsr__call *call) {
  return !call->reg[GRAD_OUT(1)];
}
static bool lacks_2(const tsr__call *call) {
  return !call->reg[GRAD_OUT(2)];
}

static const tsr__step split_forward[] = {{VIEW(OUT(0), IN(0)), .shape = third},
                                          {VIEW(OUT(1), IN(0)), .shape = third},
                                          {VIEW(OUT(2), IN(0)), .shape = third},
                                          {.action = TSR__DO_END}};
#define MISSING(i)                                                                      \
  {                                                                                     \
    RUN(ZEROS), .to = T(i), .like = OUT(i), .typed = IN(0), .within = "split_backward", \
                .when = lacks_##i                                                       \
  }
static const tsr__step split_backward[] = {
    MISSING(0),
    MISSING(1),
    MISSING(2),
    {RUN(CAT), .to = GRAD_IN(0), .from = {GRAD_OUT(0), GRAD_OUT(1), GRAD_OUT(2)}, .like = IN(0),
     .within = "split_with_sizes_backward", .done = {T(0), T(1), T(2)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_split = {.name = "split",
                                   .node = "SplitBackward0",
                                   .forward = split_forward,
                                   .backward = split_backward};

/* ---- cache: keys or values, appended to none ---- */

static const tsr__step cache_forward[] = {{RUN(CAT), .to = OUT(0), .from = {IN(0)}},
                                          {.action = TSR__DO_END}};
static const tsr__step cache_backward[] = {{PASS(0, GRAD_OUT(0))}, {.action = TSR__DO_END}};
const tsr__op_row tsr__op_cache = {.name = "key-value cache",
                                   .node = "CatBackward0",
                                   .forward = cache_forward,
                                   .backward = cache_backward};

/* ---- repeat: each head, `repeats` times ---- */

static tsr__shape repeated(const tsr__call *call) {
  tsr__shape shape = tsr__shape_in(call, IN(0));
  shape.dim[1] *= call->attributes->repeats;
  return shape;
}

static const tsr__step repeat_forward[] = {
    {RUN(CLONE), .to = OUT(0), .from = {IN(0)}, .shape = repeated}, {.action = TSR__DO_END}};
static const tsr__step repeat_backward[] = {
    {RUN(SUM), .to = GRAD_IN(0), .from = {GRAD_OUT(0)}, .like = IN(0), .within = "expand_backward"},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_repeat = {.name = "repeated heads",
                                    .node = "ExpandBackward0",
                                    .forward = repeat_forward,
                                    .backward = repeat_backward};

/* ---- rotary table: positions; `features` is the heads' width ----
 *
 * transformers': in fp32, and then in the model's type, `dtype`. */

static tsr__shape position_row(const tsr__call *call) {
  return TSR__SHAPE(1, tsr__elements(tsr__shape_in(call, IN(0))), 1);
}

static tsr__shape angles(const tsr__call *call) {
  return TSR__SHAPE(1, tsr__elements(tsr__shape_in(call, IN(0))), call->attributes->features / 2);
}

static tsr__shape table(const tsr__call *call) {
  return TSR__SHAPE(1, tsr__elements(tsr__shape_in(call, IN(0))), call->attributes->features);
}

static const tsr__step rotary_table_forward[] = {
    {RUN(TO_COPY), .to = T(0), .from = {IN(0)}, F32, .shape = position_row},
    {RUN(BMM), .to = T(1), .from = {T(0)}, .shape = angles},
    {RUN(CAT), .to = T(2), .from = {T(1), T(1)}, .shape = table},
    {RUN(COS), .to = T(3), .from = {T(2)}},
    {RUN(MUL), .to = OUT(0), .from = {T(3)}, .done = {T(3)}},
    {RUN(SIN), .to = T(3), .from = {T(2)}},
    {RUN(MUL), .to = OUT(1), .from = {T(3)}, .done = {T(3)}},
    {CAST(OUT(0), OUT(0)), ASKED},
    {CAST(OUT(1), OUT(1)), ASKED},
    {FREE(T(2), T(1), T(0))},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_rotary_table = {.name = "rotary table", .forward = rotary_table_forward};

/* ---- rotary embedding: q, k, cos, sin ----
 *
 * x * cos + rotate_half(x) * sin, for q and then for k. */

#define COSINE SAVED(0)
#define SINE   SAVED(1)

static tsr__shape half_of(tsr__shape shape) {
  shape.dim[3] /= 2;
  return shape;
}
static tsr__shape half_0(const tsr__call *call) {
  return half_of(tsr__shape_in(call, IN(0)));
}
static tsr__shape half_1(const tsr__call *call) {
  return half_of(tsr__shape_in(call, IN(1)));
}

static bool turns_0(const tsr__call *call) {
  return call->reg[GRAD_OUT(0)] != 0;
}
static bool turns_1(const tsr__call *call) {
  return call->reg[GRAD_OUT(1)] != 0;
}

#define TURN(i)                                                                              \
  {RUN(MUL), .to = T(0), .from = {IN(i), IN(2)}, PROMOTED},                                  \
      {RUN(NEG), .to = T(1), .from = {IN(i)}, .shape = half_##i},                            \
      {RUN(CAT), .to = T(2), .from = {T(1), IN(i)}, .like = IN(i), .done = {T(1)}},          \
      {RUN(MUL), .to = T(3), .from = {T(2), IN(3)}, PROMOTED, .done = {T(2)}}, {             \
    RUN(ADD), .to = OUT(i), .from = {T(0), T(3)}, .is_strided = true, .done = { T(3), T(0) } \
  }
static const tsr__step rotary_forward[] = {
    TURN(0), TURN(1), {SAVE(0, IN(2))}, {SAVE(1, IN(3))}, {.action = TSR__DO_END}};

#define TURN_BACK(i)                                                                            \
  {RUN(MUL),                                                                                    \
   .to = T(0),                                                                                  \
   .from = {GRAD_OUT(i), SINE},                                                                 \
   .within = "mul_tensor_backward",                                                             \
   .node = "MulBackward0",                                                                      \
   .when = turns_##i},                                                                          \
      {CAST(T(0), T(0)), .typed = IN(i), .when = turns_##i},                                    \
      {RUN(NEG),         .to = T(1), .from = {T(0)}, .shape = half_##i, .node = "NegBackward0", \
       .when = turns_##i},                                                                      \
      {RUN(SLICE_BACKWARD),      .to = T(2),     .from = {T(1)},   .like = IN(i),               \
       .node = "SliceBackward0", .done = {T(1)}, .when = turns_##i},                            \
      {RUN(SLICE_BACKWARD), .to = T(3),     .from = {T(0)},                                     \
       .like = IN(i),       .done = {T(0)}, .when = turns_##i},                                 \
      {INTO(ADD), .from = {T(2), T(3)}, .done = {T(3)}, .when = turns_##i},                     \
      {RUN(MUL),                                                                                \
       .to = T(4),                                                                              \
       .from = {GRAD_OUT(i), COSINE},                                                           \
       .within = "mul_tensor_backward",                                                         \
       .node = "MulBackward0",                                                                  \
       .when = turns_##i},                                                                      \
      {CAST(T(4), T(4)), .typed = IN(i), .done = {GRAD_OUT(i)}, .when = turns_##i},             \
      {INTO(ADD), .from = {T(2), T(4)}, .done = {T(4)}}, {                                      \
    MOVE(GRAD_IN(i), T(2))                                                                      \
  }
static const tsr__step rotary_backward[] = {TURN_BACK(1), TURN_BACK(0), {.action = TSR__DO_END}};
const tsr__op_row tsr__op_rotary = {.name = "rotary embedding",
                                    .node = "AddBackward0",
                                    .forward = rotary_forward,
                                    .backward = rotary_backward};

/* ---- causal mask: positions; `features` is the batch, `dtype` boolean or an additive mask's ----
 *
 * What transformers makes where it does not leave causality to the kernel: which sequence a
 * position belongs to, compared for all pairs (masking_utils.py). */

static uint64_t row_count(const tsr__call *call) {
  return tsr__elements(tsr__shape_in(call, IN(0)));
}
static tsr__shape batch_rows(const tsr__call *call) {
  return TSR__SHAPE(call->attributes->features, row_count(call));
}
static tsr__shape columns(const tsr__call *call) {
  return TSR__SHAPE(row_count(call));
}
static tsr__shape pairs(const tsr__call *call) {
  return TSR__SHAPE(row_count(call), row_count(call));
}
static tsr__shape batch_pairs(const tsr__call *call) {
  return TSR__SHAPE(call->attributes->features, 1, row_count(call), row_count(call));
}

static bool is_additive(const tsr__call *call) {
  return call->attributes->dtype != TSR__BOOL8;
}

static const tsr__step causal_mask_forward[] = {
    {RUN(SUB), .to = T(0), .from = {IN(0)}, I64, .shape = batch_rows},
    {RUN(NE), .to = T(1), .from = {T(0)}, BOOL, .shape = batch_rows}, /* where sequences begin */
    {RUN(CUMSUM), .to = T(2), .from = {T(1)}, I64, .shape = batch_rows, .done = {T(1), T(0)}},
    {RUN(ARANGE), .to = T(3), I64, .shape = columns},
    {RUN(LE), .to = T(4), .from = {T(3), T(3)}, BOOL, .shape = pairs},
    {RUN(EQ), .to = T(5), .from = {T(2), T(2)}, BOOL, .shape = batch_pairs},
    {RUN(AND), .to = OUT(0), .from = {T(4), T(5)}, .shape = batch_pairs,
     .done = {T(5), T(4), T(3), T(2)}},
    {RUN(WHERE), .to = OUT(0), .from = {OUT(0)}, ASKED, .when = is_additive},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_causal_mask = {.name = "causal mask", .forward = causal_mask_forward};
