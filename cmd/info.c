/* info.c - `tessera info FILE`: what is in this file?
 *
 * The question to ask of a file one has been sent: which devices, how many events, how far back the
 * trace reaches, and whether anything about the file is odd.
 */
#include "session.h"

int cli_info(cli_session *session) {
  cli_input input = {0};
  tsr_info *info = NULL;
  tsr_error *error = &session->error;
  int status = cli_open(session, 0, &input);
  if (status == 0) status = tsr_info_compute(input.snapshot, &session->query, &info, error);
  if (status == 0)
    status = tsr_report_info(&input.heading, info, &session->report, cli_output_write,
                             &session->output, error);
  tsr_info_free(info);
  cli_close(&input);
  return status;
}
