/* op_optimizer.c - what an optimizer does with one parameter: parameter, gradient, first moment, second moment and,
 * if the kernel counts steps, their number (torch/optim/adam.py, sgd.py). models/optimizer.c has the functions
 * around it.
 *
 *   p = p * (1 - lr * decay)
 *   m = m + (1 - beta 1) * (g - m)          v = beta 2 * v + (1 - beta 2) * g * g
 *   p = p - lr / (1 - beta 1 ^ t) * m / (root of v / root of (1 - beta 2 ^ t) + epsilon)
 *
 * The foreach form of AdamW briefly has a tensor as large as each parameter, all at once: the root of the second
 * moment, which is its output and stays until its function returns. The loop has two such tensors of one parameter,
 * the fused kernel none. SGD works in place; with momentum it has one moment,
 *
 *   m = momentum * m + g          p = p - lr * m, or p - lr * (g + momentum * m) with Nesterov's
 *
 * which is zero at first, where PyTorch's is a copy of the first gradient: the same after the first step.
 *
 * After an overflow a GradScaler skips the optimizer. The executor decides that, not a step here: it skips the runs
 * of the optimizer's ops if the scaler's flag is set. */
#include "graph/table.h"

#define PARAMETER IN(0)
#define GRADIENT  IN(1)
#define FIRST     IN(2)
#define SECOND    IN(3)
#define COUNT     IN(4)

static tsr__shape scalar(const tsr__op_call *call) {
  (void)call;
  return TSR__SCALAR;
}

/* The state: a moment and, if the kernel needs it, the number of steps. */
static const tsr__op_step adamw_state[] = {{ONCE(ZEROS_LIKE), .to = OUT(0), .like = PARAMETER},
                                           {.action = TSR__DO_END}};
static const tsr__op_step adamw_count[] = {{ONCE(ZEROS), .to = OUT(0), F32, .shape = scalar},
                                           {.action = TSR__DO_END}};
const tsr__op_row tsr__op_adamw_state = {.name = "AdamW's state", .forward = adamw_state};
const tsr__op_row tsr__op_adamw_count = {.name = "AdamW's state", .forward = adamw_count};

/* Apply decay, and update both moments. */
#define MOMENTS                                                                                    \
  {INTO(MUL), .reads = {PARAMETER}, .writes = {PARAMETER}, .scalars = {LATE(KEPT)}},               \
      {INTO(LERP), .reads = {FIRST, GRADIENT}, .writes = {FIRST}, .scalars = {LATE(BETA_1_REST)}}, \
      {INTO(MUL), .reads = {SECOND}, .writes = {SECOND}, .scalars = {LATE(BETA_2)}}, {             \
    INTO(ADDCMUL), .reads = {SECOND, GRADIENT, GRADIENT}, .writes = {SECOND}, .scalars = {         \
      LATE(BETA_2_REST)                                                                            \
    }                                                                                              \
  }
/* OUT(0) is the denominator without epsilon. */
#define DESCEND                                                                             \
  {INTO(ADD), .reads = {OUT(0)}, .writes = {OUT(0)}, .scalars = {LATE(ADAM_EPSILON)}}, {    \
    INTO(ADDCDIV), .reads = {PARAMETER, FIRST, OUT(0)}, .writes = {PARAMETER}, .scalars = { \
      LATE(ADAM_STEP)                                                                       \
    }                                                                                       \
  }

static const tsr__op_step adamw_foreach[] = {
    MOMENTS,
    {RUN(FOREACH_SQRT), .to = OUT(0), .reads = {SECOND}, .like = PARAMETER},
    {INTO(DIV), .reads = {OUT(0)}, .writes = {OUT(0)}, .scalars = {LATE(BETA_2_ROOT)}},
    DESCEND,
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_adamw_foreach = {.name = "foreach AdamW", .forward = adamw_foreach};

static const tsr__op_step adamw_loop[] = {
    MOMENTS,
    {RUN(SQRT), .to = T(0), .reads = {SECOND}, .like = PARAMETER},
    {RUN(DIV), .to = OUT(0), .reads = {T(0)}, .scalars = {LATE(BETA_2_ROOT)}, .done = {T(0)}},
    DESCEND,
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_adamw_loop = {.name = "AdamW", .forward = adamw_loop};

static const tsr__op_step adamw_fused[] = {
    {INTO(FUSED_ADAMW), .reads = {PARAMETER, GRADIENT, FIRST, SECOND, COUNT},
     .writes = {PARAMETER, FIRST, SECOND, COUNT},
     .scalars = {LATE(LEARNING_RATE), LATE(BETA_1), LATE(BETA_2), LATE(ADAM_EPSILON),
                 LATE(WEIGHT_DECAY)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_adamw_fused = {.name = "fused AdamW", .forward = adamw_fused};

static const tsr__op_step sgd[] = {
    {INTO(ADD), .reads = {PARAMETER, GRADIENT}, .writes = {PARAMETER}, .scalars = {LATE(DESCENT)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_sgd = {.name = "SGD", .forward = sgd};

static const tsr__op_step sgd_state[] = {{ONCE(ZEROS_LIKE), .to = OUT(0), .like = PARAMETER},
                                         {.action = TSR__DO_END}};
const tsr__op_row tsr__op_sgd_state = {.name = "SGD's state", .forward = sgd_state};

#define MOMENTUM                                                                       \
  {INTO(MUL), .reads = {FIRST}, .writes = {FIRST}, .scalars = {LATE(MOMENTUM)}}, {     \
    INTO(ADD), .reads = {FIRST, GRADIENT}, .writes = {FIRST}, .scalars = { NUMBER(1) } \
  }
static const tsr__op_step sgd_momentum[] = {
    MOMENTUM,
    {INTO(ADD), .reads = {PARAMETER, FIRST}, .writes = {PARAMETER}, .scalars = {LATE(DESCENT)}},
    {.action = TSR__DO_END}};
static const tsr__op_step sgd_nesterov[] = {
    MOMENTUM,
    {INTO(ADD), .reads = {GRADIENT, FIRST}, .writes = {GRADIENT}, .scalars = {LATE(MOMENTUM)}},
    {INTO(ADD), .reads = {PARAMETER, GRADIENT}, .writes = {PARAMETER}, .scalars = {LATE(DESCENT)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_sgd_momentum = {.name = "SGD", .forward = sgd_momentum};
const tsr__op_row tsr__op_sgd_nesterov = {.name = "SGD", .forward = sgd_nesterov};

/* GradScaler.unscale_: one over the scale, computed in double, and a flag for overflowing gradients
 * (torch/amp/grad_scaler.py). The program runs UNSCALE on each gradient. */
static const tsr__op_step unscale[] = {
    {RUN(TO_COPY), .to = T(0), .reads = {IN(0)}, F64},
    {RUN(RECIPROCAL), .to = T(1), .reads = {T(0)}, .done = {T(0)}},
    {RUN(TO_COPY), .to = OUT(0), .reads = {T(1)}, F32, .done = {T(1)}},
    {RUN(FULL), .to = OUT(1), F32, .shape = scalar, .scalars = {NUMBER(0)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_unscale = {.name = "unscale", .forward = unscale};

/* A 16-bit parameter has a master in fp32, made from it in the first step. After each update the parameter is made
 * from its master, so that updates too small for 16 bits are not lost. */
static const tsr__op_step master[] = {{ONCE(TO_COPY), .to = OUT(0), .reads = {PARAMETER}, F32},
                                      {.action = TSR__DO_END}};
static const tsr__op_step master_store[] = {
    {INTO(TO_COPY), .reads = {IN(1)}, .writes = {PARAMETER}}, {.action = TSR__DO_END}};
const tsr__op_row tsr__op_master = {.name = "master weight", .forward = master};
const tsr__op_row tsr__op_master_store = {.name = "master weight", .forward = master_store};

/* ---- tessera's own: one kernel, in place; no step counts in memory ---- */

static const tsr__op_step own_adamw[] = {
    {INTO(ADAMW), .reads = {PARAMETER, GRADIENT, FIRST, SECOND},
     .writes = {PARAMETER, FIRST, SECOND},
     .scalars = {LATE(KEPT), LATE(BETA_1_REST), LATE(BETA_2), LATE(BETA_2_ROOT), LATE(ADAM_STEP),
                 LATE(ADAM_EPSILON)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__own_adamw = {.name = "AdamW", .forward = own_adamw};
