/* plan_budget.h - the part of `tessera plan` that looks for plans: --budget, --largest, --front and --for. */
#ifndef CLI_PLAN_BUDGET_H
#define CLI_PLAN_BUDGET_H

#include <tessera/unstable/planning.h>

#include "session.h"

/* Answer for these options: `name` is the model's, as typed; `plan` is the one to begin with. Returns as a cli_command_fn does, and CLI_CHECK_FAILED if
 * nothing fits. */
int cli_plan_search(cli_session *session, const char *name, const tsr_run_plan *plan,
                    const tsr_simulate_options *how);

/* The verdict, the changes, and if nothing fits what proves it. */
int cli_plan_put_found(cli_session *session, const char *name, const tsr_planned *planned);
/* A line that names the plan's ranks, if it has two at least. */
int cli_plan_put_ranks(cli_session *session, const tsr_run_plan *plan);
/* --front (plan_front.c): the list, as text or JSON, and in the file of --write-front. With -o, a name that ends in .html
 * or .csv is that of a page or of CSV. */
bool cli_plan_front_is_file(const char *path);
int cli_plan_front(cli_session *session, const char *name, tsr_planning *planning);
/* --from (plan_calibrate.c): `*out` is what the recorded run says, as it was if the option is not there. Returns 0, a negative status, or an
 * exit status. */
int cli_plan_calibrate(cli_session *session, const tsr_run_plan *plan,
                       const tsr_simulate_options *how, tsr_calibration *out);
/* Print it, after an answer. */
int cli_plan_put_calibration(cli_session *session, const tsr_calibration *calibration);
/* What is left of --budget for what is predicted; at least 1. */
uint64_t cli_plan_budget_of(const cli_session *session, const tsr_calibration *calibration);
/* `text` after a label, in lines of 80 columns; those after the first begin with `indent` blanks. */
int cli_put_words(cli_session *session, const char *label, size_t indent, const char *text);
/* "412 ms". Returns `text`, of at least 32 bytes. */
const char *cli_time_text(double seconds, char *text, size_t room);
#endif
