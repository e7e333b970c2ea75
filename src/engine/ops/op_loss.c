/* op_loss.c - from hidden states to the loss.
 *
 * transformers' ForCausalLMLoss shifts labels by padding and copying them, and calls cross_entropy, which is
 * log_softmax and nll_loss: the first keeps its whole output, the second labels and a weight. In backward each
 * makes a tensor as large as the logits; the second of them exists next to the first.
 *
 * The chunked loss is head and cross-entropy in one, for some tokens at a time, as in Liger and others: each chunk
 * computes its logits and, from their softmax, their gradient, which is added to the gradients of hidden states and
 * weight at once. Only these two outlive the forward. */
#include "graph/table.h"

/* The label that means no label: cross_entropy's default. */
#define IGNORED (-100)

static tsr__shape scalar(const tsr__op_call *call) {
  (void)call;
  return TSR__SCALAR;
}

/* ---- shifted labels: labels ---- */

static tsr__shape one_longer(const tsr__op_call *call) {
  tsr__shape shape = tsr__op_shape(call, IN(0));
  assert(shape.rank);
  shape.dim[shape.rank - 1]++;
  return shape;
}

static tsr__layout without_first(const tsr__op_call *call, tsr__layout layout) {
  uint32_t last = layout.shape.rank - 1;
  (void)call;
  return tsr__layout_slice(layout, last, 1, layout.shape.dim[last] - 1);
}

static const tsr__op_step shift_labels_forward[] = {
    {RUN(PAD), .to = OUT(1), .reads = {IN(0)}, .scalars = {NUMBER(IGNORED)}, .shape = one_longer},
    {VIEW(T(0), OUT(1), without_first)},
    {DENSE(OUT(0), T(0)), .done = {T(0)}}, /* a view if there is one sequence */
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_shift_labels = {.name = "shifted labels",
                                          .forward = shift_labels_forward};

/* ---- cross-entropy: logits; then log-softmax, labels ---- */

static const tsr__op_step log_softmax_forward[] = {
    {RUN(LOG_SOFTMAX), .to = OUT(0), .reads = {IN(0)}}, {SAVE(0, OUT(0))}, {.action = TSR__DO_END}};
static const tsr__op_step log_softmax_backward[] = {
    {RUN(LOG_SOFTMAX_BACKWARD), .to = GRAD_IN(0), .reads = {GRAD_OUT(0), SAVED(0)}, .like = IN(0)},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_log_softmax = {.name = "log-softmax",
                                         .node = "LogSoftmaxBackward0",
                                         .autocast = TSR__AUTOCAST_FULL,
                                         .forward = log_softmax_forward,
                                         .backward = log_softmax_backward};

static const tsr__op_step nll_loss_forward[] = {
    {MAKE(NLL_LOSS), .to = OUT(0), .like = IN(0), .shape = scalar},
    {MAKE(NLL_LOSS), .to = OUT(1), .like = IN(0), .shape = scalar}, /* total weight */
    {RUN(NLL_LOSS), .reads = {IN(0), IN(1)}, .writes = {OUT(0), OUT(1)},
     .scalars = {NUMBER(IGNORED)}},
    {SAVE(0, IN(0))}, /* for its shape; PyTorch keeps it */
    {SAVE(1, IN(1))},
    {SAVE(2, OUT(1))},
    {.action = TSR__DO_END}};
/* The kernel is not a structured one: it calls zeros_like for its result. */
static const tsr__op_step nll_loss_backward[] = {
    {RUN(ZEROS_LIKE), .to = GRAD_IN(0), .like = SAVED(0), .by = TSR__KERNEL_NLL_LOSS_BACKWARD},
    {INTO(NLL_LOSS_BACKWARD), .reads = {GRAD_IN(0), GRAD_OUT(0), SAVED(1), SAVED(2)},
     .writes = {GRAD_IN(0)}, .scalars = {NUMBER(IGNORED)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_nll_loss = {.name = "nll loss",
                                      .node = "NllLossBackward0",
                                      .autocast = TSR__AUTOCAST_FULL,
                                      .forward = nll_loss_forward,
                                      .backward = nll_loss_backward};

/* ---- chunked: hidden states (tokens, width), weight (vocabulary, width), labels ---- */

static uint64_t chunks(const tsr__op_call *call) {
  uint64_t chunk = call->attributes->chunk;
  assert(chunk);
  return tsr__shape_round_up(tsr__op_shape(call, IN(0)).dim[0], chunk) / chunk;
}

/* The tokens of this turn; the last turn may have fewer. */
static uint64_t chunk_first(const tsr__op_call *call) {
  return call->turn * call->attributes->chunk;
}
static uint64_t chunk_size(const tsr__op_call *call) {
  uint64_t left = tsr__op_shape(call, IN(0)).dim[0] - chunk_first(call);
  return left < call->attributes->chunk ? left : call->attributes->chunk;
}

static tsr__shape logits(const tsr__op_call *call) {
  return TSR__SHAPE(chunk_size(call), tsr__op_shape(call, IN(1)).dim[0]);
}

static tsr__layout chunk_tokens(const tsr__op_call *call, tsr__layout layout) {
  return tsr__layout_slice(layout, 0, chunk_first(call), chunk_size(call));
}

/* Labels may have the shape of a batch. */
static tsr__layout chunk_labels(const tsr__op_call *call, tsr__layout layout) {
  tsr__shape flat = TSR__SHAPE(tsr__shape_elements(layout.shape));
  return chunk_tokens(call, tsr__layout_reshaped(layout, flat));
}

static bool is_recorded(const tsr__op_call *call) {
  return call->is_recorded;
}

static bool trains_weight(const tsr__op_call *call) {
  return call->is_recorded && tsr__op_trains_1(call);
}

static bool narrows(const tsr__op_call *call) {
  return call->is_recorded && tsr__op_dtype(call, IN(0)) != TSR__DTYPE_F32;
}

#define HIDDEN_GRADIENT T(0)
#define WEIGHT_GRADIENT T(1)
#define HIDDEN_CHUNK    T(4)
#define LABELS_CHUNK    T(5)
#define GRADIENT_CHUNK  T(6)

static const tsr__op_step chunked_loss_forward[] = {
    {MAKE(EMPTY_LIKE), .to = HIDDEN_GRADIENT, .like = IN(0), .when = is_recorded},
    {RUN(ZEROS_LIKE), .to = WEIGHT_GRADIENT, .like = IN(1), .when = trains_weight},
    {RUN(ZEROS), .to = OUT(0), F32, .shape = scalar},
    {LOOP(chunks)},
    {VIEW(HIDDEN_CHUNK, IN(0), chunk_tokens)},
    {VIEW(LABELS_CHUNK, IN(2), chunk_labels)},
    {RUN(MM), .to = T(2), .reads = {HIDDEN_CHUNK, IN(1)}, SECOND_TRANSPOSED, .shape = logits},
    {MAKE(CROSS_ENTROPY), .to = T(3), F32, .like = T(2)},
    {RUN(CROSS_ENTROPY), .reads = {T(2), LABELS_CHUNK, IN(2), OUT(0)}, .writes = {T(3), OUT(0)},
     .scalars = {NUMBER(IGNORED)}, .done = {T(2)}},
    {RUN(TO_COPY), .to = T(3), .reads = {T(3)}, .typed = IN(0), .when = narrows},
    {VIEW(GRADIENT_CHUNK, HIDDEN_GRADIENT, chunk_tokens), .when = is_recorded},
    {INTO(MM), .reads = {T(3), IN(1)}, .writes = {GRADIENT_CHUNK}},
    {INTO(MM), .reads = {T(3), HIDDEN_CHUNK, WEIGHT_GRADIENT}, FIRST_TRANSPOSED,
     .writes = {WEIGHT_GRADIENT}, .done = {T(3)}},
    {FREE(T(3), GRADIENT_CHUNK, LABELS_CHUNK, HIDDEN_CHUNK)},
    {AGAIN},
    {SAVE(0, HIDDEN_GRADIENT)},
    {SAVE(1, WEIGHT_GRADIENT)},
    {FREE(HIDDEN_GRADIENT, WEIGHT_GRADIENT)},
    {.action = TSR__DO_END}};
/* The saved tensor is scaled in place and passed on. */
static const tsr__op_step chunked_loss_backward[] = {
    {INTO(MUL), .reads = {SAVED(0), GRAD_OUT(0)}, .writes = {SAVED(0)}},
    {INTO(MUL), .reads = {SAVED(1), GRAD_OUT(0)}, .writes = {SAVED(1)}},
    {PASS(GRAD_IN(0), SAVED(0))},
    {PASS(GRAD_IN(1), SAVED(1))},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_chunked_loss = {.name = "chunked loss",
                                          .node = "ChunkedLossBackward",
                                          .autocast = TSR__AUTOCAST_LOW,
                                          .forward = chunked_loss_forward,
                                          .backward = chunked_loss_backward};

/* ---- tessera's own: logits, labels; `repeats` micro-batches share the step ----
 *
 * The whole loss keeps logits and log-sum-exps, and its gradient overwrites the logits. Gradients are divided by
 * labels times micro-batches at once: a batch and its micro-batches have the same factor. */

static double parts(const tsr__op_call *call) {
  return call->attributes->repeats ? (double)call->attributes->repeats : 1;
}

static tsr__shape logit_rows(const tsr__op_call *call) {
  tsr__shape shape = tsr__op_shape(call, IN(0));
  assert(shape.rank == 2);
  shape.dim[shape.rank - 1] = 1;
  return shape;
}

static const tsr__op_step own_cross_entropy_forward[] = {
    {MAKE(LOSS), .to = OUT(0), .like = IN(0), F32, .shape = scalar},
    {MAKE(LOSS), .to = OUT(1), .like = IN(0), F32, .shape = logit_rows}, /* log-sum-exps */
    {MAKE(LOSS), .to = OUT(2), .like = IN(0), F32,
     .shape = scalar}, /* labels that are not ignored */
    {RUN(LOSS), .reads = {IN(0), IN(1)}, .writes = {OUT(0), OUT(1), OUT(2)},
     .scalars = {NUMBER(IGNORED)}},
    {SAVE(0, IN(0))},
    {SAVE(1, IN(1))},
    {SAVE(2, OUT(1))},
    {SAVE(3, OUT(2))},
    {.action = TSR__DO_END}};
static const tsr__op_step own_cross_entropy_backward[] = {
    {REUSE(LOSS_BACKWARD, GRAD_IN(0), SAVED(0))},
    {INTO(LOSS_BACKWARD), .reads = {SAVED(0), SAVED(1), SAVED(2), SAVED(3), GRAD_OUT(0)},
     .writes = {GRAD_IN(0)}, .scalars = {NUMBER(IGNORED), RULE(parts)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__own_cross_entropy = {.name = "cross-entropy",
                                            .node = "CrossEntropyBackward",
                                            .forward = own_cross_entropy_forward,
                                            .backward = own_cross_entropy_backward};

static bool is_first_chunk(const tsr__op_call *call) {
  return call->turn == 0;
}
static bool is_later_chunk(const tsr__op_call *call) {
  return call->turn > 0;
}
static bool is_scaled(const tsr__op_call *call) {
  return call->attributes->is_scaled;
}

/* As above, but the gradient overwrites the logits. */
static const tsr__op_step own_chunked_loss_forward[] = {
    {MAKE(EMPTY_LIKE), .to = HIDDEN_GRADIENT, .like = IN(0), .when = is_recorded},
    {MAKE(EMPTY_LIKE), .to = WEIGHT_GRADIENT, .like = IN(1), .when = trains_weight},
    {RUN(ZEROS), .to = OUT(0), .like = IN(0), F32, .shape = scalar},
    {LOOP(chunks)},
    {VIEW(HIDDEN_CHUNK, IN(0), chunk_tokens)},
    {VIEW(LABELS_CHUNK, IN(2), chunk_labels)},
    {RUN(MM), .to = T(2), .reads = {HIDDEN_CHUNK, IN(1)}, SECOND_TRANSPOSED, .shape = logits},
    {INTO(CROSS_ENTROPY), .reads = {T(2), LABELS_CHUNK, IN(2), OUT(0)}, .writes = {T(2), OUT(0)},
     .scalars = {NUMBER(IGNORED), RULE(parts)}},
    {VIEW(GRADIENT_CHUNK, HIDDEN_GRADIENT, chunk_tokens), .when = is_recorded},
    {INTO(MM), .reads = {T(2), IN(1)}, .writes = {GRADIENT_CHUNK}},
    {INTO(MM), .reads = {T(2), HIDDEN_CHUNK}, FIRST_TRANSPOSED, .writes = {WEIGHT_GRADIENT},
     .when = is_first_chunk},
    {INTO(MM), .reads = {T(2), HIDDEN_CHUNK, WEIGHT_GRADIENT}, FIRST_TRANSPOSED,
     .writes = {WEIGHT_GRADIENT}, .when = is_later_chunk},
    {FREE(T(2), GRADIENT_CHUNK, LABELS_CHUNK, HIDDEN_CHUNK)},
    {AGAIN},
    {SAVE(0, HIDDEN_GRADIENT)},
    {SAVE(1, WEIGHT_GRADIENT)},
    {FREE(HIDDEN_GRADIENT, WEIGHT_GRADIENT)},
    {.action = TSR__DO_END}};
/* A weight's gradient is large, so it is only scaled if necessary. */
static const tsr__op_step own_chunked_loss_backward[] = {
    {INTO(MUL), .reads = {SAVED(0), GRAD_OUT(0)}, .writes = {SAVED(0)}},
    {INTO(MUL), .reads = {SAVED(1), GRAD_OUT(0)}, .writes = {SAVED(1)}, .when = is_scaled},
    {PASS(GRAD_IN(0), SAVED(0))},
    {PASS(GRAD_IN(1), SAVED(1))},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__own_chunked_loss = {.name = "chunked loss",
                                           .node = "ChunkedLossBackward",
                                           .autocast = TSR__AUTOCAST_LOW_BUT_WEIGHTS,
                                           .forward = own_chunked_loss_forward,
                                           .backward = own_chunked_loss_backward};
