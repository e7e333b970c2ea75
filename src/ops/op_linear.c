/* op_linear.c - embeddings and matrix products.
 *
 * torch.nn.functional.linear with a bias is one addmm (aten/src/ATen/native/Linear.cpp), and so is
 * transformers' Conv1D, whose weight is transposed: (inputs, outputs). Without a bias a linear is
 * an mm. Each saves its input and its weight. Their gradients (tools/autograd/derivatives.yaml):
 * the input's, then the weight's, each a matrix product; the bias's is the output's, summed over
 * rows. What autograd sees of them are views: x as a matrix, and nn.Linear's weight transposed. */
#include "graph/table.h"

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

/* aten/src/ATen/native/cuda/Embedding.cu, embedding_dense_backward_cuda: up to 3072 indices go
 * straight into the gradient; more are sorted, and summed in segments, whose number depends on the
 * data: as many as there are indices is the most. */
static bool sorts(const tsr__op_call *call) {
  return tsr__shape_elements(tsr__op_shape(call, IN(1))) > 3072;
}

static const tsr__op_step embedding_forward[] = {
    {RUN(EMBEDDING), .to = OUT(0), .reads = {IN(0), IN(1)}, .shape = embedded},
    {SAVE(0, IN(1))},
    {.action = TSR__DO_END}};
static const tsr__op_step embedding_backward[] = {
    {MAKE(EMBEDDING_BACKWARD), .to = T(0), I64, .shape = indices, .when = sorts}, /* sorted */
    {MAKE(EMBEDDING_BACKWARD), .to = T(1), I64, .shape = indices, .when = sorts}, /* from where */
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
    {RUN(ADDMM), .to = OUT(0), .reads = {IN(1), IN(2), IN(0)}, .shape = addmm_result},
    {SAVE(0, IN(1))},
    {SAVE(1, IN(2))},
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

static const tsr__op_step linear_forward[] = {{RUN(ADDMM), .to = OUT(0),
                                               .reads = {IN(1), IN(2), IN(0)}, SECOND_TRANSPOSED,
                                               .shape = addmm_result},
                                              {SAVE(0, IN(1))},
                                              {SAVE(1, IN(2))},
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
                                    .forward = linear_forward,
                                    .backward = linear_backward};

/* ---- without: x, weight ---- */

static tsr__shape mm_result(const tsr__op_call *call) {
  return with_features(tsr__op_shape(call, IN(0)), call->attributes->features);
}

static const tsr__op_step linear_plain_forward[] = {
    {RUN(MM), .to = OUT(0), .reads = {IN(0), IN(1)}, SECOND_TRANSPOSED, .shape = mm_result},
    {SAVE(0, IN(0))},
    {SAVE(1, IN(1))},
    {.action = TSR__DO_END}};
static const tsr__op_step linear_plain_backward[] = {
    {RUN(MM), .to = GRAD_IN(0), .reads = {GRAD_OUT(0), SAVED(1)}, .like = IN(0),
     .typed = GRAD_OUT(0), VIEWED, .within = "mm_mat1_backward"},
    {RUN(MM), .to = GRAD_IN(1), .reads = {GRAD_OUT(0), SAVED(0)}, FIRST_TRANSPOSED, .like = IN(1),
     .typed = GRAD_OUT(0), VIEWED, .within = "mm_mat2_backward"},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_linear_plain = {.name = "linear without bias",
                                          .node = "MmBackward0",
                                          .autocast = TSR__AUTOCAST_LOW,
                                          .forward = linear_plain_forward,
                                          .backward = linear_plain_backward};
