/* leaks.c - `tessera leaks FILE`: what grows from step to step?
 *
 * A job that ran out of memory after hours grew. What it left behind in every step has a stack.
 */
#include "session.h"

int cli_leaks(cli_session *session) {
  cli_input input = {0};
  tsr_leaks *leaks = NULL;
  tsr_error *error = &session->error;
  int status = cli_open(session, 0, &input);
  if (status == 0) status = tsr_leaks_compute(input.snapshot, &session->query, &leaks, error);
  if (status == 0)
    status = tsr_report_leaks(&input.heading, leaks, &session->report, cli_output_write,
                              &session->output, error);
  tsr_leaks_free(leaks);
  cli_close(&input);
  return status;
}
