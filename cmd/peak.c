/* peak.c - `tessera peak FILE`: what holds the memory at the peak?
 *
 * The question that most people come with: the job ran out of memory, or nearly did; which lines
 * of code owned the memory at the worst moment?
 */
#include "session.h"

int cli_peak(cli_session *session) {
  cli_input input = {0};
  tsr_peak *peak = NULL;
  tsr_error *error = &session->error;
  int status = cli_open(session, 0, &input);
  if (status == 0) status = tsr_peak_compute(input.snapshot, &session->query, &peak, error);
  if (status == 0)
    status = tsr_report_peak(&input.heading, peak, &session->report, cli_output_write,
                             &session->output, error);
  tsr_peak_free(peak);
  cli_close(&input);
  return status;
}
