/* steps.c - `tessera steps FILE`: where do steps begin, and what does one take?
 *
 * A training run repeats itself. What one step takes, once warmed up, is what the job takes; and no
 * marker in the program is needed to see it.
 */
#include "session.h"

int cli_steps(cli_session *session) {
  cli_input input = {0};
  tsr_steps *steps = NULL;
  tsr_error *error = &session->error;
  int status = cli_open(session, 0, &input);
  if (status == 0) status = tsr_steps_compute(input.snapshot, &session->query, &steps, error);
  if (status == 0)
    status = tsr_report_steps(&input.heading, steps, &session->report, cli_output_write,
                              &session->output, error);
  tsr_steps_free(steps);
  cli_close(&input);
  return status;
}
