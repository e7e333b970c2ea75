/* op_loss.c - from hidden states to the loss.
 *
 * transformers' ForCausalLMLoss shifts labels by padding and copying them, and takes
 * cross_entropy, which is log_softmax and nll_loss: the first keeps its whole output, the second
 * labels and a weight. In backward each makes a tensor as large as the logits; the second of them
 * exists beside the first.
 *
 * The chunked loss is head and cross-entropy in one, some tokens at a time, as Liger's and others
 * do: for each chunk its logits and, from their softmax, their gradient, which at once becomes part
 * of the gradients of hidden states and weight. Only these two outlive the forward. */
#include "engine/table.h"

static tsr__shape scalar(const tsr__call *call) {
  (void)call;
  return TSR__SCALAR;
}

/* ---- shifted labels: labels ---- */

static tsr__shape one_longer(const tsr__call *call) {
  tsr__shape shape = tsr__shape_in(call, IN(0));
  shape.dim[shape.rank - 1]++;
  return shape;
}

static const tsr__step shift_labels_forward[] = {
    {RUN(PAD), .to = OUT(1), .from = {IN(0)}, .shape = one_longer},
    {RUN(CLONE), .to = OUT(0), .from = {OUT(1)}, .like = IN(0)},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_shift_labels = {.name = "shifted labels",
                                          .forward = shift_labels_forward};

/* ---- cross-entropy: logits; then log-softmax, labels ---- */

static const tsr__step log_softmax_forward[] = {
    {RUN(LOG_SOFTMAX), .to = OUT(0), .from = {IN(0)}}, {SAVE(0, OUT(0))}, {.action = TSR__DO_END}};
static const tsr__step log_softmax_backward[] = {
    {RUN(LOG_SOFTMAX_BACKWARD), .to = GRAD_IN(0), .from = {GRAD_OUT(0), SAVED(0)}, .like = IN(0)},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_log_softmax = {.name = "log-softmax",
                                         .node = "LogSoftmaxBackward0",
                                         .autocast = TSR__AUTOCAST_FULL,
                                         .forward = log_softmax_forward,
                                         .backward = log_softmax_backward};

static const tsr__step nll_loss_forward[] = {
    {MAKE(NLL_LOSS), .to = OUT(0), .like = IN(0), .shape = scalar},
    {MAKE(NLL_LOSS), .to = OUT(1), .like = IN(0), .shape = scalar}, /* total weight */
    {RUN(NLL_LOSS), .from = {IN(0), IN(1)}},
    {SAVE(0, IN(0))},
    {SAVE(1, IN(1))},
    {SAVE(2, OUT(1))},
    {.action = TSR__DO_END}};
/* The kernel is no structured one: it calls zeros_like for its result. */
static const tsr__step nll_loss_backward[] = {
    {RUN(ZEROS_LIKE), .to = GRAD_IN(0), .from = {SAVED(0)}, .by = TSR__KERNEL_NLL_LOSS_BACKWARD},
    {INTO(NLL_LOSS_BACKWARD), .from = {GRAD_IN(0), GRAD_OUT(0), SAVED(1), SAVED(2)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_nll_loss = {.name = "nll loss",
                                      .node = "NllLossBackward0",
                                      .autocast = TSR__AUTOCAST_FULL,
                                      .forward = nll_loss_forward,
                                      .backward = nll_loss_backward};

/* ---- chunked: hidden states (tokens, width), weight (vocabulary, width), labels ---- */

static uint64_t chunks(const tsr__call *call) {
  uint64_t chunk = call->attributes->chunk;
  return tsr__round_up(tsr__shape_in(call, IN(0)).dim[0], chunk) / chunk;
}

static tsr__shape logits(const tsr__call *call) {
  uint64_t chunk = call->attributes->chunk;
  uint64_t left = tsr__shape_in(call, IN(0)).dim[0] - call->turn * chunk;
  return TSR__SHAPE(left < chunk ? left : chunk, tsr__shape_in(call, IN(1)).dim[0]);
}

static bool is_recorded(const tsr__call *call) {
  return call->is_recorded;
}

static bool narrows(const tsr__call *call) {
  return call->is_recorded && tsr__type_in(call, IN(0)) != TSR__F32;
}

static const tsr__step chunked_loss_forward[] = {
    {RUN(EMPTY_LIKE), .to = T(0), .from = {IN(0)}, .when = is_recorded},
    {RUN(ZEROS_LIKE), .to = T(1), .from = {IN(1)}, .when = is_recorded},
    {RUN(ZEROS), .to = OUT(0), F32, .shape = scalar},
    {LOOP(chunks)},
    {RUN(MM), .to = T(2), .from = {IN(0), IN(1)}, .shape = logits},
    {RUN(SOFTMAX), .to = T(3), .from = {T(2), IN(2)}, F32, .done = {T(2)}},
    {RUN(TO_COPY), .to = T(3), .from = {T(3)}, .typed = IN(0), .when = narrows},
    {INTO(MM), .from = {T(0), T(3), IN(1)}},
    {INTO(MM), .from = {T(1), T(3), IN(0)}, .done = {T(3)}},
    {FREE(T(3))},
    {AGAIN},
    {SAVE(0, T(0))},
    {SAVE(1, T(1))},
    {FREE(T(0), T(1))},
    {.action = TSR__DO_END}};
/* What was saved is scaled in place and handed on. */
static const tsr__step chunked_loss_backward[] = {{INTO(MUL), .from = {SAVED(0), GRAD_OUT(0)}},
                                                  {INTO(MUL), .from = {SAVED(1), GRAD_OUT(0)}},
                                                  {PASS(0, SAVED(0))},
                                                  {PASS(1, SAVED(1))},
                                                  {.action = TSR__DO_END}};
const tsr__op_row tsr__op_chunked_loss = {.name = "chunked loss",
                                          .node = "ChunkedLossBackward",
                                          .autocast = TSR__AUTOCAST_LOW,
                                          .forward = chunked_loss_forward,
                                          .backward = chunked_loss_backward};
