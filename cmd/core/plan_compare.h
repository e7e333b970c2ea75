/* plan_compare.h - the part of `tessera plan` that shows other tools' estimates next to a prediction. */
#ifndef CLI_PLAN_COMPARE_H
#define CLI_PLAN_COMPARE_H

#include <tessera/simulate.h>

#include <tessera/unstable/plans.h>

#include "session.h"

/* Answer for --compare: `name` is the model's, as typed. Returns as a cli_command_fn does. */
int cli_plan_compare(cli_session *session, const char *name, const tsr_run_plan *plan,
                     const tsr_simulate_options *how);

#endif
