/* op_optimizer.c - what an optimizer does with one parameter: parameter, gradient, first moment,
 * second moment (torch/optim/adam.py, sgd.py). optimizer.c has the functions around it.
 *
 * The foreach form of AdamW has, for a moment, a tensor as large as each parameter, all at once: the
 * root of the second moment, which is its output and stays until its function returns. The loop has
 * two of one parameter's, the fused kernel none. SGD without momentum adds in place. */
#include "engine/table.h"

#define PARAMETER IN(0)
#define GRADIENT  IN(1)
#define FIRST     IN(2)
#define SECOND    IN(3)

static tsr__shape scalar(const tsr__call *call) {
  (void)call;
  return TSR__SCALAR;
}

/* State: a moment, and where the kernel wants it, the number of steps. */
static const tsr__step adamw_state[] = {{ONCE(ZEROS_LIKE), .to = OUT(0), .from = {PARAMETER}},
                                        {.action = TSR__DO_END}};
static const tsr__step adamw_count[] = {{ONCE(ZEROS), .to = OUT(0), F32, .shape = scalar},
                                        {.action = TSR__DO_END}};
const tsr__op_row tsr__op_adamw_state = {.name = "AdamW's state", .forward = adamw_state};
const tsr__op_row tsr__op_adamw_count = {.name = "AdamW's state", .forward = adamw_count};

static const tsr__step adamw_foreach[] = {
    {INTO(MUL), .from = {PARAMETER}}, /* weight decay */
    {INTO(LERP), .from = {FIRST, GRADIENT}},
    {INTO(MUL), .from = {SECOND}},
    {INTO(ADDCMUL), .from = {SECOND, GRADIENT, GRADIENT}},
    {RUN(FOREACH_SQRT), .to = OUT(0), .from = {SECOND}, .like = PARAMETER},
    {INTO(DIV), .from = {OUT(0)}},
    {INTO(ADD), .from = {OUT(0)}},
    {INTO(ADDCDIV), .from = {PARAMETER, FIRST, OUT(0)}},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_adamw_foreach = {.name = "foreach AdamW", .forward = adamw_foreach};

static const tsr__step adamw_loop[] = {{INTO(MUL), .from = {PARAMETER}},
                                       {INTO(LERP), .from = {FIRST, GRADIENT}},
                                       {INTO(MUL), .from = {SECOND}},
                                       {INTO(ADDCMUL), .from = {SECOND, GRADIENT, GRADIENT}},
                                       {RUN(SQRT), .to = T(0), .from = {SECOND}, .like = PARAMETER},
                                       {RUN(DIV), .to = OUT(0), .from = {T(0)}, .done = {T(0)}},
                                       {INTO(ADD), .from = {OUT(0)}},
                                       {INTO(ADDCDIV), .from = {PARAMETER, FIRST, OUT(0)}},
                                       {.action = TSR__DO_END}};
const tsr__op_row tsr__op_adamw_loop = {.name = "AdamW", .forward = adamw_loop};

static const tsr__step adamw_fused[] = {
    {INTO(FUSED_ADAMW), .from = {PARAMETER, GRADIENT, FIRST, SECOND}}, {.action = TSR__DO_END}};
const tsr__op_row tsr__op_adamw_fused = {.name = "fused AdamW", .forward = adamw_fused};

static const tsr__step sgd[] = {{INTO(ADD), .from = {PARAMETER, GRADIENT}},
                                {.action = TSR__DO_END}};
const tsr__op_row tsr__op_sgd = {.name = "SGD", .forward = sgd};

/* GradScaler.unscale_: one over the scale, taken as a double, and whether anything overflowed
 * (torch/amp/grad_scaler.py). */
static const tsr__step unscale[] = {
    {RUN(TO_COPY), .to = T(0), I64, .shape = scalar},
    {RUN(RECIPROCAL), .to = T(1), .from = {T(0)}, .done = {T(0)}},
    {RUN(TO_COPY), .to = OUT(0), .from = {T(1)}, F32, .done = {T(1)}},
    {RUN(FULL), .to = OUT(1), F32, .shape = scalar},
    {.action = TSR__DO_END}};
const tsr__op_row tsr__op_unscale = {.name = "unscale", .forward = unscale};
