/* op_mask.c - the causal mask that transformers makes if the kernel does not handle causality (masking_utils.py of
 * 4.57.1): create_causal_mask() with sdpa_mask() or eager_mask().
 *
 * A mask is a function of positions, called for all pairs at once. Its parts depend on what the model was given
 * (tsr__mask_form):
 *
 *   plain    with a cache: a position attends to itself and to those before it
 *   padded   with a mask of the batch: ... if that does not hide them
 *   packed   otherwise: ... if they belong to the same sequence, as their positions show
 *
 * Inputs: positions (rows), and the mask of the batch (batch, rows). `features` is the batch, `dtype` boolean, or
 * the type of a mask that is added. The mask is (batch, 1, rows, rows); a plain boolean one is a view that
 * repeats. */
#include "graph/table.h"

#define POSITIONS IN(0)
#define BATCH     IN(1)

/* ---- shapes ---- */

static uint64_t row_count(const tsr__op_call *call) {
  return tsr__shape_elements(tsr__op_shape(call, POSITIONS));
}
static uint64_t batch_size(const tsr__op_call *call) {
  assert(call->attributes->features);
  return call->attributes->features;
}
static tsr__shape batch_rows(const tsr__op_call *call) {
  return TSR__SHAPE(batch_size(call), row_count(call));
}
static tsr__shape batch_rows_and_one(const tsr__op_call *call) {
  return TSR__SHAPE(batch_size(call), row_count(call) + 1);
}
static tsr__shape firsts(const tsr__op_call *call) {
  return TSR__SHAPE(batch_size(call), 1);
}
static tsr__shape batches(const tsr__op_call *call) {
  return TSR__SHAPE(batch_size(call));
}
static tsr__shape one(const tsr__op_call *call) {
  (void)call;
  return TSR__SHAPE(1);
}
static tsr__shape scalar(const tsr__op_call *call) {
  (void)call;
  return TSR__SCALAR;
}
static tsr__shape columns(const tsr__op_call *call) {
  return TSR__SHAPE(row_count(call));
}
static tsr__shape pairs(const tsr__op_call *call) {
  return TSR__SHAPE(row_count(call), row_count(call));
}
static tsr__shape batch_pairs(const tsr__op_call *call) {
  return TSR__SHAPE(batch_size(call), 1, row_count(call), row_count(call));
}

/* ---- views ---- */

static tsr__layout each_of_batch(const tsr__op_call *call, tsr__layout layout) {
  return tsr__layout_broadcast(layout, batch_rows(call));
}
static tsr__layout first_column(const tsr__op_call *call, tsr__layout layout) {
  (void)call;
  return tsr__layout_slice(layout, 1, 0, 1);
}
static tsr__layout without_first(const tsr__op_call *call, tsr__layout layout) {
  return tsr__layout_slice(layout, 1, 1, row_count(call));
}
static tsr__layout without_last(const tsr__op_call *call, tsr__layout layout) {
  return tsr__layout_slice(layout, 1, 0, row_count(call));
}
/* View a list of numbers as a column; and (batch, rows) as columns and as rows of each batch's pairs. */
static tsr__layout as_column(const tsr__op_call *call, tsr__layout layout) {
  return tsr__layout_swap(tsr__layout_broadcast(layout, TSR__SHAPE(1, row_count(call))), 0, 1);
}
static tsr__layout batch_columns(const tsr__op_call *call, tsr__layout layout) {
  tsr__layout made = {.offset = layout.offset,
                      .stride = {layout.stride[0], 0, 0, layout.stride[1]}};
  made.shape = TSR__SHAPE(batch_size(call), 1, 1, row_count(call));
  return made;
}
static tsr__layout batch_column(const tsr__op_call *call, tsr__layout layout) {
  return tsr__layout_swap(batch_columns(call, layout), 2, 3);
}

/* View (rows, rows) as repeated for the whole batch. */
static tsr__layout for_batch(const tsr__op_call *call, tsr__layout layout) {
  return tsr__layout_broadcast(layout, batch_pairs(call));
}

/* ---- numbers, conditions ---- */

static double window_less_one(const tsr__op_call *call) {
  return (double)call->attributes->window - 1;
}
/* The number added to a hidden score: the smallest of the type. */
static double lowest(const tsr__op_call *call) {
  return tsr__dtype_lowest((tsr__dtype)call->attributes->dtype);
}
static bool is_additive(const tsr__op_call *call) {
  return call->attributes->dtype != TSR__DTYPE_BOOL;
}
static bool is_packed(const tsr__op_call *call) {
  return call->attributes->which == TSR__MASK_PACKED;
}
static bool is_padded(const tsr__op_call *call) {
  return call->attributes->which == TSR__MASK_PADDED;
}
static bool is_plain(const tsr__op_call *call) {
  return call->attributes->which == TSR__MASK_PLAIN;
}
static bool has_window(const tsr__op_call *call) {
  return call->attributes->window != 0;
}
static bool is_everything(const tsr__op_call *call) {
  return !has_window(call);
}
static bool is_joined(const tsr__op_call *call) {
  return is_packed(call) || is_padded(call);
}

/* ---- the mask ---- */

#define SEQUENCES T(3) /* the sequence number of each position, or the mask of the batch */
#define NUMBERS   T(4)

/* find_packed_sequence_indices(): a sequence starts where a position is not one more than the one before. */
#define FIND_SEQUENCES                                                                           \
  {VIEW(T(6), POSITIONS, each_of_batch), .when = is_packed},                                     \
      {VIEW(T(7), T(6), first_column), .when = is_packed},                                       \
      {RUN(SUB),        .to = T(0),     .reads = {T(7)},  .scalars = {NUMBER(1)},                \
       .shape = firsts, .done = {T(7)}, .when = is_packed},                                      \
      {RUN(CAT),                                                                                 \
       .to = T(1),                                                                               \
       .reads = {T(0), T(6)},                                                                    \
       .scalars = {NUMBER(-1)},                                                                  \
       .shape = batch_rows_and_one,                                                              \
       .done = {T(6)},                                                                           \
       .when = is_packed},                                                                       \
      {VIEW(T(6), T(1), without_first), .when = is_packed},                                      \
      {VIEW(T(7), T(1), without_last), .when = is_packed},                                       \
      {RUN(SUB),                                                                                 \
       .to = T(2),                                                                               \
       .reads = {T(6), T(7)},                                                                    \
       .shape = batch_rows,                                                                      \
       .done = {T(7), T(6), T(1)},                                                               \
       .when = is_packed},                                                                       \
      {RUN(NE), .to = T(1), .reads = {T(2)}, .scalars = {NUMBER(1)}, BOOL, .when = is_packed}, { \
    RUN(CUMSUM), .to = SEQUENCES, .reads = {T(1)}, I64, .done = {T(1), T(0), T(2)},              \
                 .when = is_packed                                                               \
  }

/* Compute the part that does not depend on the batch. transformers joins a list of mask functions starting with an
 * all-true tensor, for each such list: first the window's function with "this position and those before it", then
 * both with the batch's function. */
#define ATTEND                                                                                \
  {                                                                                           \
      RUN(FULL),         .to = T(0),                                                          \
      .like = POSITIONS, BOOL,                                                                \
      .shape = columns,  .scalars = {NUMBER(1)},                                              \
      .when = is_joined},                                                                     \
      {RUN(FULL),         .to = T(2),                                                         \
       .like = POSITIONS, BOOL,                                                               \
       .shape = columns,  .scalars = {NUMBER(1)},                                             \
       .when = has_window},                                                                   \
      {RUN(SUB), .to = T(1), .reads = {NUMBERS}, .scalars = {RULE(window_less_one)},          \
       .when = has_window},                                                                   \
      {VIEW(T(6), T(1), as_column), .when = has_window},                                      \
      {RUN(ATTENDS), .to = T(7),     .reads = {T(6), NUMBERS}, .scalars = {NUMBER(0)},        \
       BOOL,         .shape = pairs, .done = {T(6), T(1)},     .when = has_window},           \
      {RUN(AND),       .to = T(1),           .reads = {T(7), T(2)},                           \
       .shape = pairs, .done = {T(2), T(7)}, .when = has_window},                             \
      {VIEW(T(6), NUMBERS, as_column)},                                                       \
      {RUN(ATTENDS),   .to = T(2),    .reads = {NUMBERS, T(6)}, .scalars = {NUMBER(0)}, BOOL, \
       .shape = pairs, .done = {T(6)}},                                                       \
      {RUN(AND),       .to = T(7),           .reads = {T(1), T(2)},                           \
       .shape = pairs, .done = {T(1), T(2)}, .when = has_window},                             \
      {MOVE(T(7), T(2)), .when = is_everything},                                              \
      {RUN(AND),       .to = T(1),           .reads = {T(7), T(0)},                           \
       .shape = pairs, .done = {T(0), T(7)}, .when = is_joined},                              \
  {                                                                                           \
    VIEW(OUT(0), T(7), for_batch), .done = {T(7)}, .when = is_plain                           \
  }

static const tsr__op_step causal_mask_forward[] = {
    FIND_SEQUENCES,
    {RUN(TO_COPY), .to = SEQUENCES, .reads = {BATCH}, BOOL, .when = is_padded},
    {RUN(ARANGE), .to = NUMBERS, I64, .shape = columns, .scalars = {NUMBER(0), NUMBER(1)}},
    {RUN(ARANGE), .to = T(5), I64, .shape = batches, .scalars = {NUMBER(0), NUMBER(1)},
     .is_unread = true}, /* indices of the batch and of heads, which no mask here uses */
    {RUN(ARANGE), .to = T(8), I64, .shape = one, .scalars = {NUMBER(0), NUMBER(1)},
     .is_unread = true},
    ATTEND,
    {RUN(INDEX), .to = T(0), .reads = {SEQUENCES}, .when = is_joined},
    {RUN(INDEX), .to = T(9), .reads = {SEQUENCES}, .when = is_packed},
    {VIEW(T(6), T(0), batch_columns), .when = is_joined},
    {VIEW(T(7), T(9), batch_column), .when = is_packed},
    {RUN(EQ), .to = T(2), .reads = {T(6), T(7)}, BOOL, .shape = batch_pairs,
     .done = {T(6), T(7), T(0), T(9)}, .when = is_packed},
    {MOVE(T(2), T(6)), .when = is_padded},
    {RUN(AND), .to = OUT(0), .reads = {T(1), T(2)}, .shape = batch_pairs,
     .done = {T(2), T(1), T(0)}, .when = is_joined},
    {FREE(NUMBERS, T(5), T(8))},
    {RUN(FULL), .to = T(0), .like = POSITIONS, ASKED, .shape = scalar, .scalars = {NUMBER(0)},
     .when = is_additive},
    {RUN(FULL), .to = T(1), .like = POSITIONS, ASKED, .shape = scalar, .scalars = {RULE(lowest)},
     .when = is_additive},
    {RUN(WHERE), .to = OUT(0), .reads = {OUT(0), T(0), T(1)}, ASKED, .shape = batch_pairs,
     .done = {T(1), T(0)}, .when = is_additive},
    {FREE(SEQUENCES)},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_causal_mask = {.name = "causal mask", .forward = causal_mask_forward};

static tsr__layout as_one_row(const tsr__op_call *call, tsr__layout layout) {
  (void)call;
  return tsr__layout_reshaped(layout, TSR__SHAPE(tsr__shape_elements(layout.shape)));
}

/* A mask of the batch that hides nothing is not needed: _ignore_causal_mask_sdpa(). Only the host reads the
 * result. */
static const tsr__op_step mask_check_forward[] = {
    {RUN(TO_COPY), .to = T(0), .reads = {IN(0)}, BOOL},
    {VIEW(T(2), T(0), as_one_row)},
    {RUN(ALL), .to = T(1), .reads = {T(2)}, .shape = scalar, .is_unread = true,
     .done = {T(2), T(1), T(0)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_mask_check = {.name = "check of the mask", .forward = mask_check_forward};
