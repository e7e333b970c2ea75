/* train_budget.h - a plan for `tessera train --budget`. */
#ifndef CLI_TRAIN_BUDGET_H
#define CLI_TRAIN_BUDGET_H

#include <tessera/unstable/train_report.h>

#include "session.h"

/* The choice of --memory. */
tsr_memory cli_train_memory(const tsr_params *own);

/* If --budget is given without a plan, and the run does not fit without changes: find a plan, print what it changes, and
 * set it as the session's parameter "plan". The budget is that of each rank. Every rank finds the same plan; one whose
 * `report` is NULL prints nothing. A resumed run keeps its plan. Returns 0, a negative status, or an exit status:
 * CLI_CHECK_FAILED if nothing fits. */
int cli_train_plan(cli_session *session, const char *name, tsr_train_report *report);

#endif
