/* op_linear.c - embeddings and matrix products.
 *
 * torch.nn.functional.linear with a bias is one addmm (aten/src/ATen/native/Linear.cpp), and so is transformers'
 * Conv1D, whose weight is transposed: (inputs, outputs). Without a bias, a linear layer is an mm. Each saves its
 * input and its weight. Gradients (tools/autograd/derivatives.yaml) are the input's, then the weight's, each a
 * matrix product; the bias's is the output's, summed over rows. Inputs are saved before the product runs, as in
 * PyTorch's generated code, so a checkpoint that needs only the inputs skips the product (checkpoint.c). Autograd
 * sees views of them: x as a matrix, and nn.Linear's weight transposed. */
#include "graph/table.h"
#include "kernels/scratch.h"

static tsr__shape with_features(tsr__shape shape, uint64_t features) {
  assert(shape.rank);
  shape.dim[shape.rank - 1] = features;
  return shape;
}

/* ---- embedding: weight, indices ---- */

static tsr__shape embedded(const tsr__op_call *call) {
  tsr__shape shape = tsr__op_shape(call, IN(1));
  assert(shape.rank < TSR__SHAPE_RANK);
  shape.dim[shape.rank++] = tsr__op_shape(call, IN(0)).dim[1];
  return shape;
}

static tsr__shape indices(const tsr__op_call *call) {
  return TSR__SHAPE(tsr__shape_elements(tsr__op_shape(call, IN(1))));
}

static tsr__shape indexed_rows(const tsr__op_call *call) {
  return TSR__SHAPE(tsr__shape_elements(tsr__op_shape(call, IN(1))),
                    tsr__op_shape(call, IN(0)).dim[1]);
}

/* The number of segments depends on the data; it is at most the number of indices. */
static bool sorts(const tsr__op_call *call) {
  return tsr__scratch_sorts(tsr__shape_elements(tsr__op_shape(call, IN(1))));
}

static const tsr__op_step embedding_forward[] = {
    {RUN(EMBEDDING), .to = OUT(0), .reads = {IN(0), IN(1)}, .shape = embedded},
    {SAVE(0, IN(1))},
    {.action = TSR__DO_END}};
static const tsr__op_step embedding_backward[] = {
    {MAKE(EMBEDDING_BACKWARD), .to = T(0), I64, .shape = indices, .when = sorts}, /* sorted */
    {MAKE(EMBEDDING_BACKWARD), .to = T(1), I64, .shape = indices,
     .when = sorts}, /* original positions */
    {MAKE(EMBEDDING_BACKWARD), .to = GRAD_IN(0), .like = IN(0), .typed = GRAD_OUT(0)},
    {MAKE(EMBEDDING_BACKWARD), .to = T(2), I64, .shape = indices, .when = sorts}, /* segments */
    {MAKE(EMBEDDING_BACKWARD), .to = T(3), F32, .shape = indexed_rows, .when = sorts},
    {RUN(EMBEDDING_BACKWARD), .reads = {GRAD_OUT(0), SAVED(0)}, .writes = {GRAD_IN(0)},
     .scratch = {T(0), T(1), T(2), T(3)}, .done = {T(3), T(2), T(1), T(0)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_embedding = {.name = "embedding",
                                       .node = "EmbeddingBackward0",
                                       .forward = embedding_forward,
                                       .backward = embedding_backward};

/* ---- with a bias: bias, x, weight ---- */

static tsr__shape addmm_result(const tsr__op_call *call) {
  return with_features(tsr__op_shape(call, IN(1)), call->attributes->features);
}

static const tsr__op_step conv1d_forward[] = {
    {SAVE(0, IN(1)), .when = tsr__op_trains_2},
    {SAVE(1, IN(2)), .when = tsr__op_trains_1},
    {RUN(ADDMM), .to = OUT(0), .reads = {IN(1), IN(2), IN(0)}, .shape = addmm_result},
    {.action = TSR__DO_END}};
static const tsr__op_step conv1d_backward[] = {
    {RUN(MM), .to = GRAD_IN(1), .reads = {GRAD_OUT(0), SAVED(1)}, SECOND_TRANSPOSED, .like = IN(1),
     .typed = GRAD_OUT(0), VIEWED, .within = "mm_mat1_backward"},
    {RUN(MM), .to = GRAD_IN(2), .reads = {SAVED(0), GRAD_OUT(0)}, FIRST_TRANSPOSED, .like = IN(2),
     .typed = GRAD_OUT(0), .within = "mm_mat2_backward"},
    {PASS(GRAD_IN(0), GRAD_OUT(0))},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_conv1d = {.name = "linear",
                                    .node = "AddmmBackward0",
                                    .autocast = TSR__AUTOCAST_LOW,
                                    .forward = conv1d_forward,
                                    .backward = conv1d_backward};

static const tsr__op_step linear_forward[] = {{SAVE(0, IN(1)), .when = tsr__op_trains_2},
                                              {SAVE(1, IN(2)), .when = tsr__op_trains_1},
                                              {RUN(ADDMM), .to = OUT(0),
                                               .reads = {IN(1), IN(2), IN(0)}, SECOND_TRANSPOSED,
                                               .shape = addmm_result},
                                              {.action = TSR__DO_END}};
static const tsr__op_step linear_backward[] = {
    {RUN(MM), .to = GRAD_IN(1), .reads = {GRAD_OUT(0), SAVED(1)}, .like = IN(1),
     .typed = GRAD_OUT(0), VIEWED, .within = "mm_mat1_backward"},
    {RUN(MM), .to = GRAD_IN(2), .reads = {GRAD_OUT(0), SAVED(0)}, FIRST_TRANSPOSED, .like = IN(2),
     .typed = GRAD_OUT(0), VIEWED, .within = "mm_mat2_backward"},
    {PASS(GRAD_IN(0), GRAD_OUT(0))},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_linear = {.name = "linear",
                                    .node = "AddmmBackward0",
                                    .autocast = TSR__AUTOCAST_LOW,
                                    .casts = {1, 3, 2},
                                    .forward = linear_forward,
                                    .backward = linear_backward};

/* ---- without: x, weight ---- */

static tsr__shape mm_result(const tsr__op_call *call) {
  return with_features(tsr__op_shape(call, IN(0)), call->attributes->features);
}

static const tsr__op_step linear_plain_forward[] = {
    {SAVE(0, IN(0)), .when = tsr__op_trains_1},
    {SAVE(1, IN(1)), .when = tsr__op_trains_0},
    {RUN(MM), .to = OUT(0), .reads = {IN(0), IN(1)}, SECOND_TRANSPOSED, .shape = mm_result},
    {.action = TSR__DO_END}};
static const tsr__op_step linear_plain_backward[] = {
    {RUN(MM), .to = GRAD_IN(1), .reads = {GRAD_OUT(0), SAVED(0)}, FIRST_TRANSPOSED, .like = IN(1),
     .typed = GRAD_OUT(0), VIEWED, .within = "mm_mat2_backward"},
    {RUN(MM), .to = GRAD_IN(0), .reads = {GRAD_OUT(0), SAVED(1)}, .like = IN(0),
     .typed = GRAD_OUT(0), VIEWED, .within = "mm_mat1_backward"},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_linear_plain = {.name = "linear without bias",
                                          .node = "MmBackward0",
                                          .autocast = TSR__AUTOCAST_LOW,
                                          .forward = linear_plain_forward,
                                          .backward = linear_plain_backward};

/* ---- tessera's own ----
 *
 * Gradients are added to existing ones: a weight's to that of earlier micro-batches or of a head that shares it, an
 * input's to that of other products with it. Under autocast weights are not cast; the product rounds them as it
 * reads them. */

static uint64_t rows_of_table(const tsr__op_call *call) {
  assert(tsr__op_shape(call, IN(0)).rank == 2);
  return tsr__op_shape(call, IN(0)).dim[0];
}
static tsr__shape firsts(const tsr__op_call *call) {
  return TSR__SHAPE(rows_of_table(call));
}

static const tsr__op_step own_embedding_backward[] = {
    {MAKE(EMBEDDING_ADD), .to = T(0), .like = SAVED(0), I64, .shape = indices},
    {MAKE(EMBEDDING_ADD), .to = T(1), .like = SAVED(0), I64, .shape = firsts},
    {JOIN(EMBEDDING_ADD, GRAD_IN(0), IN(0))},
    {INTO(EMBEDDING_ADD), .reads = {GRAD_OUT(0), SAVED(0), SO_FAR(0)}, .writes = {GRAD_IN(0)},
     .scratch = {T(0), T(1)}, .done = {T(1), T(0)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__own_embedding = {.name = "embedding",
                                        .node = "EmbeddingBackward",
                                        .forward = embedding_forward,
                                        .backward = own_embedding_backward};

#define BIAS_BACK                                                          \
  {JOIN(SUM, GRAD_IN(0), IN(0))}, {                                        \
    INTO(SUM), .reads = {GRAD_OUT(0), SO_FAR(0)}, .writes = { GRAD_IN(0) } \
  }

static const tsr__op_step own_conv1d_backward[] = {
    {JOIN(MM, GRAD_IN(1), IN(1))},
    {INTO(MM), .reads = {GRAD_OUT(0), SAVED(1), SO_FAR(1)}, SECOND_TRANSPOSED,
     .writes = {GRAD_IN(1)}},
    {JOIN(MM, GRAD_IN(2), IN(2))},
    {INTO(MM), .reads = {SAVED(0), GRAD_OUT(0), SO_FAR(2)}, FIRST_TRANSPOSED,
     .writes = {GRAD_IN(2)}},
    BIAS_BACK,
    {.action = TSR__DO_END}};
const tsr__op_row tsr__own_conv1d = {.name = "linear",
                                     .node = "LinearBackward",
                                     .autocast = TSR__AUTOCAST_LOW_BUT_WEIGHTS,
                                     .forward = conv1d_forward,
                                     .backward = own_conv1d_backward};

static const tsr__op_step own_linear_backward[] = {
    {JOIN(MM, GRAD_IN(1), IN(1))},
    {INTO(MM), .reads = {GRAD_OUT(0), SAVED(1), SO_FAR(1)}, .writes = {GRAD_IN(1)}},
    {JOIN(MM, GRAD_IN(2), IN(2))},
    {INTO(MM), .reads = {GRAD_OUT(0), SAVED(0), SO_FAR(2)}, FIRST_TRANSPOSED,
     .writes = {GRAD_IN(2)}},
    BIAS_BACK,
    {.action = TSR__DO_END}};
const tsr__op_row tsr__own_linear = {.name = "linear",
                                     .node = "LinearBackward",
                                     .autocast = TSR__AUTOCAST_LOW_BUT_WEIGHTS,
                                     .forward = linear_forward,
                                     .backward = own_linear_backward};

static const tsr__op_step own_linear_plain_backward[] = {
    {JOIN(MM, GRAD_IN(0), IN(0))},
    {INTO(MM), .reads = {GRAD_OUT(0), SAVED(1), SO_FAR(0)}, .writes = {GRAD_IN(0)}},
    {JOIN(MM, GRAD_IN(1), IN(1))},
    {INTO(MM), .reads = {GRAD_OUT(0), SAVED(0), SO_FAR(1)}, FIRST_TRANSPOSED,
     .writes = {GRAD_IN(1)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__own_linear_plain = {.name = "linear without bias",
                                           .node = "LinearBackward",
                                           .autocast = TSR__AUTOCAST_LOW_BUT_WEIGHTS,
                                           .forward = linear_plain_forward,
                                           .backward = own_linear_plain_backward};
