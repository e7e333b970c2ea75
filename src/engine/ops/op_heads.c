/* op_heads.c - operations between projections and attention: splitting, caching, repeating and turning heads.
 *
 * Heads are (batch, heads, rows, width), mostly views of (batch, rows, heads * width). */
#include "graph/table.h"

/* ---- split: one tensor, as three views of its last dimension ---- */

static tsr__layout third(tsr__layout layout, uint64_t index) {
  uint32_t last = layout.shape.rank - 1;
  uint64_t size = layout.shape.dim[last] / 3;
  assert(layout.shape.rank && layout.shape.dim[last] % 3 == 0);
  return tsr__layout_slice(layout, last, index * size, size);
}
#define THIRD(i)                                                               \
  static tsr__layout third_##i(const tsr__op_call *call, tsr__layout layout) { \
    (void)call;                                                                \
    return third(layout, (i));                                                 \
  }                                                                            \
  static bool has_##i(const tsr__op_call *call) {                              \
    return call->reg[GRAD_OUT(i)] != 0;                                        \
  }                                                                            \
  static bool lacks_##i(const tsr__op_call *call) {                            \
    return !has_##i(call);                                                     \
  }
THIRD(0)
THIRD(1)
THIRD(2)
#undef THIRD

static const tsr__op_step split_forward[] = {{VIEW(OUT(0), IN(0), third_0)},
                                             {VIEW(OUT(1), IN(0), third_1)},
                                             {VIEW(OUT(2), IN(0), third_2)},
                                             {.action = TSR__DO_END}};
#define PART_OR_ZEROS(i)                                                                     \
  {RUN(ZEROS),       .to = T(i), .like = OUT(i), .typed = IN(0), .within = "split_backward", \
   .when = lacks_##i},                                                                       \
  {                                                                                          \
    PASS(T(i), GRAD_OUT(i)), .when = has_##i                                                 \
  }
static const tsr__op_step split_backward[] = {
    PART_OR_ZEROS(0),
    PART_OR_ZEROS(1),
    PART_OR_ZEROS(2),
    {RUN(CAT), .to = GRAD_IN(0), .reads = {T(0), T(1), T(2)}, .scalars = {NUMBER(-1)},
     .like = IN(0), .within = "split_with_sizes_backward", .done = {T(0), T(1), T(2)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_split = {.name = "split",
                                   .node = "SplitBackward0",
                                   .forward = split_forward,
                                   .backward = split_backward};

/* ---- cache: keys or values; `dtype` is the type of the cache ----
 *
 * DynamicCache starts with empty tensors of the keys' type, and cat uses the larger type of both: under autocast,
 * keys that rotary positions made fp32 turn values into fp32 too. */

static const tsr__op_step cache_forward[] = {
    {RUN(CAT), .to = OUT(0), .reads = {IN(0)}, .scalars = {NUMBER(-2)}, ASKED},
    {.action = TSR__DO_END}};
static const tsr__op_step cache_backward[] = {{PASS(GRAD_IN(0), GRAD_OUT(0))},
                                              {.action = TSR__DO_END}};
const tsr__op_row tsr__op_cache = {.name = "key-value cache",
                                   .node = "CatBackward0",
                                   .forward = cache_forward,
                                   .backward = cache_backward};

/* ---- keep: keys or values, and the cache, (batch, heads, positions, width); `position` is the first one's ----
 *
 * The result is the cache itself, with all positions: attention sees those up to its own rows'. */

static double position(const tsr__op_call *call) {
  return (double)call->attributes->position;
}
static tsr__layout itself(const tsr__op_call *call, tsr__layout layout) {
  (void)call;
  return layout;
}

static const tsr__op_step keep_forward[] = {
    {INTO(SET_ROWS), .reads = {IN(0)}, .writes = {IN(1)}, .scalars = {POSITION(position)}},
    {VIEW(OUT(0), IN(1), itself)},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__own_keep = {.name = "key-value cache", .forward = keep_forward};

/* ---- repeat: each head, `repeats` times ---- */

static tsr__shape repeated(const tsr__op_call *call) {
  tsr__shape shape = tsr__op_shape(call, IN(0));
  assert(shape.rank == 4 && call->attributes->repeats);
  shape.dim[1] *= call->attributes->repeats;
  return shape;
}

static bool is_one_head(const tsr__op_call *call) {
  return tsr__op_shape(call, IN(0)).dim[1] == 1;
}
static bool has_heads(const tsr__op_call *call) {
  return !is_one_head(call);
}
static tsr__layout same_for_all(const tsr__op_call *call, tsr__layout layout) {
  return tsr__layout_broadcast(layout, repeated(call));
}

/* Expand and reshape; with a single head this is a view. */
static const tsr__op_step repeat_forward[] = {
    {VIEW(OUT(0), IN(0), same_for_all), .when = is_one_head},
    {RUN(REPEAT), .to = OUT(0), .reads = {IN(0)}, .shape = repeated, .when = has_heads},
    {.action = TSR__DO_END}};
static const tsr__op_step repeat_backward[] = {{RUN(SUM_GROUPS), .to = GRAD_IN(0),
                                                .reads = {GRAD_OUT(0)}, .like = IN(0), IN_ORDER,
                                                .within = "expand_backward"},
                                               {.action = TSR__DO_END}};
const tsr__op_row tsr__op_repeat = {.name = "repeated heads",
                                    .node = "ExpandBackward0",
                                    .forward = repeat_forward,
                                    .backward = repeat_backward};

/* ---- rotary table: positions, frequencies; `features` is the heads' width ----
 *
 * As in transformers: in fp32, then converted to the model's type, `dtype`. */

static tsr__shape position_row(const tsr__op_call *call) {
  return TSR__SHAPE(1, tsr__shape_elements(tsr__op_shape(call, IN(0))), 1);
}

static tsr__layout frequency_row(const tsr__op_call *call, tsr__layout layout) {
  (void)call;
  return tsr__layout_broadcast(layout, TSR__SHAPE(1, 1, tsr__shape_elements(layout.shape)));
}

static tsr__shape angles(const tsr__op_call *call) {
  return TSR__SHAPE(1, tsr__shape_elements(tsr__op_shape(call, IN(0))),
                    call->attributes->features / 2);
}

static tsr__shape table(const tsr__op_call *call) {
  return TSR__SHAPE(1, tsr__shape_elements(tsr__op_shape(call, IN(0))), call->attributes->features);
}

static double magnitude(const tsr__op_call *call) {
  assert(call->attributes->factor > 0);
  return call->attributes->factor;
}

static const tsr__op_step rotary_table_forward[] = {
    {RUN(TO_COPY), .to = T(0), .reads = {IN(0)}, F32, .shape = position_row},
    {VIEW(T(4), IN(1), frequency_row)},
    {RUN(BMM), .to = T(1), .reads = {T(0), T(4)}, .shape = angles, .done = {T(4)}},
    {RUN(CAT), .to = T(2), .reads = {T(1), T(1)}, .scalars = {NUMBER(-1)}, .shape = table},
    {RUN(COS), .to = T(3), .reads = {T(2)}},
    {RUN(MUL), .to = T(5), .reads = {T(3)}, .scalars = {RULE(magnitude)}, .done = {T(3)}},
    {RUN(SIN), .to = T(3), .reads = {T(2)}},
    {RUN(MUL), .to = T(6), .reads = {T(3)}, .scalars = {RULE(magnitude)}, .done = {T(3)}},
    {CAST(OUT(0), T(5)), ASKED},
    {CAST(OUT(1), T(6)), ASKED},
    {FREE(T(0), T(1), T(2))}, /* variables of forward, like cos and sin before they are cast */
    {FREE(T(5), T(6))},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_rotary_table = {.name = "rotary table", .forward = rotary_table_forward};

/* ---- rotary embedding: q, k, cos, sin ----
 *
 * x * cos + (- second half of x, first half of x) * sin, for q and then for k. */

#define COSINE SAVED(0)
#define SINE   SAVED(1)

static tsr__shape half_of(tsr__shape shape) {
  assert(shape.rank == 4 && shape.dim[3] % 2 == 0);
  shape.dim[3] /= 2;
  return shape;
}
static tsr__shape half_0(const tsr__op_call *call) {
  return half_of(tsr__op_shape(call, IN(0)));
}
static tsr__shape half_1(const tsr__op_call *call) {
  return half_of(tsr__op_shape(call, IN(1)));
}
static tsr__layout first_half(const tsr__op_call *call, tsr__layout layout) {
  (void)call;
  return tsr__layout_slice(layout, 3, 0, layout.shape.dim[3] / 2);
}
static tsr__layout second_half(const tsr__op_call *call, tsr__layout layout) {
  (void)call;
  return tsr__layout_slice(layout, 3, layout.shape.dim[3] / 2, layout.shape.dim[3] / 2);
}
static double half_width(const tsr__op_call *call) {
  uint64_t half = tsr__op_shape(call, IN(0)).dim[3] / 2;
  return (double)half;
}

/* PyTorch has an op for each of the two, and none to go back to a tensor that is not trained. */
static bool stays_0(const tsr__op_call *call) {
  return !tsr__op_trains_0(call);
}
static bool stays_1(const tsr__op_call *call) {
  return !tsr__op_trains_1(call);
}
static bool turns_0(const tsr__op_call *call) {
  return call->reg[GRAD_OUT(0)] != 0 && tsr__op_trains_0(call);
}
static bool turns_1(const tsr__op_call *call) {
  return call->reg[GRAD_OUT(1)] != 0 && tsr__op_trains_1(call);
}

#define TURN(i)                                                                                  \
  {RUN(MUL), .to = T(0), .reads = {IN(i), IN(2)}, PROMOTED}, {VIEW(T(4), IN(i), second_half)},   \
      {RUN(NEG), .to = T(1), .reads = {T(4)}, .shape = half_##i, .done = {T(4)}},                \
      {VIEW(T(4), IN(i), first_half)},                                                           \
      {RUN(CAT),      .to = T(2),          .reads = {T(1), T(4)}, .scalars = {NUMBER(-1)},       \
       .like = IN(i), .done = {T(4), T(1)}},                                                     \
      {RUN(MUL), .to = T(3), .reads = {T(2), IN(3)}, PROMOTED, .done = {T(2)}}, {                \
    RUN(ADD), .to = OUT(i), .reads = {T(0), T(3)}, .typed = T(0), .like = IN(i), LIKE, .done = { \
      T(3),                                                                                      \
      T(0)                                                                                       \
    }                                                                                            \
  }
static const tsr__op_step rotary_forward[] = {
    TURN(0), TURN(1), {SAVE(0, IN(2))}, {SAVE(1, IN(3))}, {.action = TSR__DO_END}};

/* `last_sine` and `last_cosine` are what the last products of the table release. */
#define TURN_BACK(i, last_sine, last_cosine)                                                     \
  {RUN(MUL),                                                                                     \
   .to = T(0),                                                                                   \
   .reads = {GRAD_OUT(i), SINE},                                                                 \
   .within = "mul_tensor_backward",                                                              \
   .node = "MulBackward0",                                                                       \
   .when = turns_##i},                                                                           \
      {CAST(T(0), T(0)), .typed = IN(i), .when = turns_##i, .done = {last_sine}},                \
      {VIEW(T(5), T(0), first_half), .when = turns_##i}, {RUN(NEG),                              \
                                                          .to = T(1),                            \
                                                          .reads = {T(5)},                       \
                                                          .shape = half_##i,                     \
                                                          .node = "NegBackward0",                \
                                                          .done = {T(5)},                        \
                                                          .when = turns_##i},                    \
      {RUN(SLICE_BACKWARD), .to = T(2),                                                          \
       .reads = {T(1)},     .scalars = {RULE(half_width)},                                       \
       .like = IN(i),       .node = "SliceBackward0",                                            \
       .done = {T(1)},      .when = turns_##i},                                                  \
      {VIEW(T(5), T(0), second_half), .when = turns_##i},                                        \
      {RUN(SLICE_BACKWARD), .to = T(3),           .reads = {T(5)},  .scalars = {NUMBER(0)},      \
       .like = IN(i),       .done = {T(5), T(0)}, .when = turns_##i},                            \
      {INTO(ADD), .reads = {T(2), T(3)}, .writes = {T(2)}, .done = {T(3)}, .when = turns_##i},   \
      {RUN(MUL),                                                                                 \
       .to = T(4),                                                                               \
       .reads = {GRAD_OUT(i), COSINE},                                                           \
       .within = "mul_tensor_backward",                                                          \
       .node = "MulBackward0",                                                                   \
       .when = turns_##i},                                                                       \
      {CAST(T(4), T(4)), .typed = IN(i), .done = {GRAD_OUT(i), last_cosine}, .when = turns_##i}, \
      {INTO(ADD), .reads = {T(2), T(4)}, .writes = {T(2)}, .done = {T(4)}}, {                    \
    MOVE(GRAD_IN(i), T(2))                                                                       \
  }
static const tsr__op_step rotary_backward[] = {{FREE(GRAD_OUT(0)), .when = stays_0},
                                               {FREE(GRAD_OUT(1)), .when = stays_1},
                                               TURN_BACK(1, 0, 0),
                                               TURN_BACK(0, SINE, COSINE),
                                               {.action = TSR__DO_END}};
const tsr__op_row tsr__op_rotary = {.name = "rotary embedding",
                                    .node = "AddBackward0",
                                    .forward = rotary_forward,
                                    .backward = rotary_backward};

/* ---- tessera's own ---- */

/* Whether the gradients of the parts are in one tensor, at the places of the parts. */
static bool are_parts(const tsr__op_call *call) {
  for (uint32_t i = 0; i < 3; i++) {
    if (!call->reg[GRAD_OUT(i)]) return false;
    tsr__layout part = tsr__op_layout(call, GRAD_OUT(i)), first = tsr__op_layout(call, GRAD_OUT(0));
    uint64_t size = part.shape.dim[part.shape.rank - 1];
    first.offset += i * size;
    if (!tsr__layout_is_same(part, first) || part.shape.rank != 3 || part.stride[2] != 1 ||
        part.stride[1] != 3 * size ||
        tsr__tensor_at(call->tape, call->reg[GRAD_OUT(i)])->slot !=
            tsr__tensor_at(call->tape, call->reg[GRAD_OUT(0)])->slot)
      return false;
  }
  return true;
}
static bool are_apart(const tsr__op_call *call) {
  return !are_parts(call);
}
static tsr__layout whole(const tsr__op_call *call, tsr__layout layout) {
  (void)call;
  assert(layout.shape.rank == 3 && 3 * layout.shape.dim[2] == tsr__op_shape(call, IN(0)).dim[2]);
  layout.shape.dim[2] *= 3;
  return layout;
}

static const tsr__op_step own_split_backward[] = {
    {VIEW(GRAD_IN(0), GRAD_OUT(0), whole), .when = are_parts},
    {RUN(CAT), .to = GRAD_IN(0), .reads = {GRAD_OUT(0), GRAD_OUT(1), GRAD_OUT(2)},
     .scalars = {NUMBER(-1)}, .like = IN(0), .when = are_apart},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__own_split = {.name = "split",
                                    .node = "SplitBackward",
                                    .forward = split_forward,
                                    .backward = own_split_backward};

/* q and k are turned in place: they are results of projections, which do not need them in backward. Their gradients
 * are turned back in the same way. */
static const tsr__op_step own_rotary_forward[] = {
    {VIEW(OUT(0), IN(0), itself)},
    {VIEW(OUT(1), IN(1), itself)},
    {INTO(ROTATE), .reads = {IN(0), IN(1), IN(2), IN(3)}, .writes = {OUT(0), OUT(1)},
     .scalars = {NUMBER(1)}},
    {SAVE(0, IN(2))},
    {SAVE(1, IN(3))},
    {.action = TSR__DO_END}};
/* The kernel turns both, whether or not one of them is trained. */
static bool turns_both(const tsr__op_call *call) {
  return tsr__op_trains_0(call) && tsr__op_trains_1(call);
}

static const tsr__op_step own_rotary_backward[] = {
    {REUSE(ROTATE, GRAD_IN(0), GRAD_OUT(0))},
    {REUSE(ROTATE, GRAD_IN(1), GRAD_OUT(1))},
    {REUSE(ROTATE, T(0), GRAD_OUT(0)), .when = stays_0},
    {REUSE(ROTATE, T(1), GRAD_OUT(1)), .when = stays_1},
    {INTO(ROTATE), .reads = {GRAD_OUT(0), GRAD_OUT(1), COSINE, SINE},
     .writes = {GRAD_IN(0), GRAD_IN(1)}, .scalars = {NUMBER(-1)}, .when = turns_both},
    {INTO(ROTATE), .reads = {GRAD_OUT(0), GRAD_OUT(1), COSINE, SINE}, .writes = {T(0), GRAD_IN(1)},
     .scalars = {NUMBER(-1)}, .when = stays_0},
    {INTO(ROTATE), .reads = {GRAD_OUT(0), GRAD_OUT(1), COSINE, SINE}, .writes = {GRAD_IN(0), T(1)},
     .scalars = {NUMBER(-1)}, .when = stays_1, .done = {T(0), T(1)}},
    {FREE(T(0), T(1))},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__own_rotary = {.name = "rotary embedding",
                                     .node = "RotaryBackward",
                                     .forward = own_rotary_forward,
                                     .backward = own_rotary_backward};
