/* train_budget.h - a plan for `tessera train --budget`. */
#ifndef CLI_TRAIN_BUDGET_H
#define CLI_TRAIN_BUDGET_H

#include <stdbool.h>

#include "session.h"

/* If --budget is given without a plan, and the run does not fit as it is: find a plan, print what it changes, and set it as
 * the session's parameter "plan". The budget is that of each rank. Every rank finds the same plan; one with `is_member` prints nothing.
 * A resumed run is left as it is. Returns 0, a negative status, or an exit status: CLI_CHECK_FAILED if nothing fits. */
int cli_train_plan(cli_session *session, const char *name, bool is_member);

#endif
