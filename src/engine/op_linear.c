/* op_linear.c - embeddings and matrix products.
 *
 * torch.nn.functional.linear with a bias is one addmm (aten/src/ATen/native/Linear.cpp), and so is
 * Conv1D; without a bias it is an mm. Either saves its input and its weight. Their gradients
 * (tools/autograd/derivatives.yaml): the input's, then the weight's, each a matrix product; the
 * bias's is the output's, summed over rows. */
#include "engine/table.h"

static tsr__shape with_features(tsr__shape shape, uint64_t features) {
  shape.dim[shape.rank - 1] = features;
  return shape;
}

/* ---- embedding: weight, indices ---- */

static tsr__shape embedded(const tsr__call *call) {
  tsr__shape shape = tsr__shape_in(call, IN(1));
  shape.dim[shape.rank++] = tsr__shape_in(call, IN(0)).dim[1];
  return shape;
}

static tsr__shape indices(const tsr__call *call) {
  return TSR__SHAPE(tsr__elements(tsr__shape_in(call, IN(1))));
}

static tsr__shape indexed_rows(const tsr__call *call) {
  return TSR__SHAPE(tsr__elements(tsr__shape_in(call, IN(1))), tsr__shape_in(call, IN(0)).dim[1]);
}

/* aten/src/ATen/native/cuda/Embedding.cu, embedding_dense_backward_cuda: up to 3072 indices go
 * straight into the gradient; more are sorted, and summed in segments, whose number depends on the
 * data: as many as there are indices is the most. */
static bool sorts(const tsr__call *call) {
  return tsr__elements(tsr__shape_in(call, IN(1))) > 3072;
}

static const tsr__step embedding_forward[] = {
    {RUN(EMBEDDING), .to = OUT(0), .from = {IN(0), IN(1)}, .shape = embedded},
    {SAVE(0, IN(1))},
    {.action = TSR__DO_END}};
static const tsr__step embedding_backward[] = {
    {MAKE(EMBEDDING_BACKWARD), .to = T(0), I64, .shape = indices, .when = sorts}, /* sorted */
    {MAKE(EMBEDDING_BACKWARD), .to = T(1), I64, .shape = indices, .when = sorts}, /* from where */
    {MAKE(EMBEDDING_BACKWARD), .to = GRAD_IN(0), .like = IN(0), .typed = GRAD_OUT(0)},
    {MAKE(EMBEDDING_BACKWARD), .to = T(2), I64, .shape = indices, .when = sorts}, /* segments */
    {MAKE(EMBEDDING_BACKWARD), .to = T(3), F32, .shape = indexed_rows, .when = sorts},
    {RUN(EMBEDDING_BACKWARD), .from = {GRAD_OUT(0), SAVED(0)}, .done = {T(3), T(2), T(1), T(0)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_embedding = {.name = "embedding",
                                       .node = "EmbeddingBackward0",
                                       .forward = embedding_forward,
                                       .backward = embedding_backward};

/* ---- linear with a bias: bias, x, weight ---- */

static tsr__shape addmm_result(const tsr__call *call) {
  return with_features(tsr__shape_in(call, IN(1)), call->attributes->features);
}

static const tsr__step addmm_forward[] = {
    {RUN(ADDMM), .to = OUT(0), .from = {IN(1), IN(2), IN(0)}, .shape = addmm_result},
    {SAVE(0, IN(1))},
    {SAVE(1, IN(2))},
    {.action = TSR__DO_END}};
static const tsr__step addmm_backward[] = {
    {RUN(MM), .to = GRAD_IN(1), .from = {GRAD_OUT(0), SAVED(1)}, .like = IN(1),
     .typed = GRAD_OUT(0), .within = "mm_mat1_backward"},
    {RUN(MM), .to = GRAD_IN(2), .from = {SAVED(0), GRAD_OUT(0)}, .like = IN(2),
     .typed = GRAD_OUT(0), .within = "mm_mat2_backward", .is_transposed = true},
    {PASS(0, GRAD_OUT(0))},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_addmm = {.name = "linear",
                                   .node = "AddmmBackward0",
                                   .autocast = TSR__AUTOCAST_LOW,
                                   .forward = addmm_forward,
                                   .backward = addmm_backward};

/* ---- linear without: x, weight ---- */

static tsr__shape mm_result(const tsr__call *call) {
  return with_features(tsr__shape_in(call, IN(0)), call->attributes->features);
}

static const tsr__step mm_forward[] = {
    {RUN(MM), .to = OUT(0), .from = {IN(0), IN(1)}, .shape = mm_result},
    {SAVE(0, IN(0))},
    {SAVE(1, IN(1))},
    {.action = TSR__DO_END}};
static const tsr__step mm_backward[] = {
    {RUN(MM), .to = GRAD_IN(0), .from = {GRAD_OUT(0), SAVED(1)}, .like = IN(0),
     .typed = GRAD_OUT(0), .within = "mm_mat1_backward"},
    {RUN(MM), .to = GRAD_IN(1), .from = {SAVED(0), GRAD_OUT(0)}, .like = IN(1),
     .typed = GRAD_OUT(0), .within = "mm_mat2_backward", .is_transposed = true},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_mm = {.name = "linear without bias",
                                .node = "MmBackward0",
                                .autocast = TSR__AUTOCAST_LOW,
                                .forward = mm_forward,
                                .backward = mm_backward};
