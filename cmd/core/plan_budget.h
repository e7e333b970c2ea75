/* plan_budget.h - the part of `tessera plan` that looks for plans: --budget, --largest, --front and --for. */
#ifndef CLI_PLAN_BUDGET_H
#define CLI_PLAN_BUDGET_H

#include <tessera/unstable/planning.h>

#include "session.h"

/* Answer for these options: `name` is the model's, as typed. Returns as a cli_command_fn does, and CLI_CHECK_FAILED if
 * nothing fits. */
int cli_plan_search(cli_session *session, const char *name, const tsr_simulate_options *how);

/* --front (plan_front.c): the list, as text or JSON, and in the file of --write-front. */
int cli_plan_front(cli_session *session, const char *name, tsr_planning *planning);
/* "412 ms". Returns `text`, of at least 32 bytes. */
const char *cli_time_text(double seconds, char *text, size_t room);
#endif
