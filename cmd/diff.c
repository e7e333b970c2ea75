/* diff.c - `tessera diff OLD NEW`: what changed between two runs?
 *
 * The question after a change that made memory go up, and between a rank that died and one that did
 * not.
 */
#include "session.h"

int cli_diff(cli_session *session) {
  cli_input before = {0}, after = {0};
  tsr_diff *diff = NULL;
  tsr_error *error = &session->error;
  int status = cli_open(session, 0, &before);
  if (status == 0) status = cli_open(session, 1, &after);
  if (status == 0)
    status =
        tsr_diff_compute(before.snapshot, after.snapshot, (tsr_diff_by)session->options->diff_by,
                         &session->query, &diff, error);
  if (status == 0)
    status = tsr_report_diff(&before.heading, &after.heading, diff, &session->report,
                             cli_output_write, &session->output, error);
  tsr_diff_free(diff);
  cli_close(&before);
  cli_close(&after);
  return status;
}
