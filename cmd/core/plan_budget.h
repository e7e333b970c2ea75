/* plan_budget.h - the part of `tessera plan` that looks for a plan within a budget. */
#ifndef CLI_PLAN_BUDGET_H
#define CLI_PLAN_BUDGET_H

#include <tessera/unstable/planning.h>

#include "session.h"

/* Answer for --budget: `name` is the model's, as typed. Returns as a cli_command_fn does, and CLI_CHECK_FAILED if nothing
 * fits. */
int cli_plan_budget(cli_session *session, const char *name, const tsr_simulate_options *how);

#endif
