/* profile.c - `tessera profile FILE`: what kind of memory is it at the peak?
 *
 * Parameters, activations, optimizer state: the kinds say which technique would help. The words
 * that --by takes stand in its row in the order of tsr_profile_by.
 */
#include "session.h"

_Static_assert(TSR_PROFILE_BY_CATEGORY == 0, "--by's first word is category");

int cli_profile(cli_session *session) {
  cli_input input = {0};
  tsr_profile *profile = NULL;
  tsr_error *error = &session->error;
  tsr_profile_by by = (tsr_profile_by)session->options->by;
  int status = cli_open(session, 0, &input);
  if (status == 0)
    status = tsr_profile_compute(input.snapshot, by, &session->query, &profile, error);
  if (status == 0)
    status = tsr_report_profile(&input.heading, profile, &session->report, cli_output_write,
                                &session->output, error);
  tsr_profile_free(profile);
  cli_close(&input);
  return status;
}
