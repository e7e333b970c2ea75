/* stages.c - `tessera stages FILE`: how high did memory go in each annotated stage? */
#include "session.h"

int cli_stages(cli_session *session) {
  const cli_options *options = session->options;
  tsr_stages_options how = {.matches = options->matches.items,
                            .match_count = options->matches.count};
  cli_input input = {0};
  tsr_stages *stages = NULL;
  tsr_error *error = &session->error;
  if (options->verbose) session->query.top = 0;
  int status = cli_open(session, 0, &input);
  if (status == 0)
    status = tsr_stages_compute(input.snapshot, &how, &session->query, &stages, error);
  if (status == 0)
    status = tsr_report_stages(&input.heading, stages, &session->report, cli_output_write,
                               &session->output, error);
  tsr_stages_free(stages);
  cli_close(&input);
  return status;
}
