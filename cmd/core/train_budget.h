/* train_budget.h - a plan for `tessera train --budget`. */
#ifndef CLI_TRAIN_BUDGET_H
#define CLI_TRAIN_BUDGET_H

#include <stdbool.h>

#include "session.h"

/* If --budget is given and no plan, and the run does not fit as it is: look for one, print what it changes, and let it be
 * the session's parameter "plan". The budget is of each rank. `ranks`: processes that a launcher has started, 0: none; each
 * finds the same plan, and one with `is_member` prints nothing. Nothing is done for a run that goes on. Returns 0, a negative status, or an exit status:
 * CLI_CHECK_FAILED if nothing fits. */
int cli_train_plan(cli_session *session, const char *name, uint64_t ranks, bool is_member);
#endif
