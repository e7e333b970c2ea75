/* limits.h - budgets, as `check` and `ranks` take them. */
#ifndef TSR_QUESTIONS_SHARED_LIMITS_H
#define TSR_QUESTIONS_SHARED_LIMITS_H

#include "tessera/unstable/check.h"
#include "tessera/unstable/params.h"

enum { TSR__LIMITS_MOST = 65 };

/* The parameters "max" (texts, "18GiB" or "activation=3GiB") and "max_reserved" (bytes) as budgets, in this order. `limits` has room for
 * TSR__LIMITS_MOST. Fails with TSR_ERROR_ARGUMENT and a message for what is no budget, or too many. */
int tsr__read_limits(const tsr_params *params, tsr_check_limit *limits, size_t *count,
                     tsr_error *error);

#endif
