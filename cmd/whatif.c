/* whatif.c - `tessera whatif FILE`: what would other settings, or another card, have made of it? */
#include "session.h"
#include "settings.h"

int cli_whatif(cli_session *session) {
  const cli_options *options = session->options;
  tsr_allocator_settings settings[CLI_SETTINGS_MAX];
  tsr_whatif_options how = {.settings = settings};
  cli_input input = {0};
  tsr_whatif *whatif = NULL;
  tsr_error *error = &session->error;
  int status = cli_read_capacity(options, &how.capacity_bytes);
  if (status == 0) status = cli_read_settings(session, settings, &how.setting_count);
  if (status) return status;
  status = cli_open(session, 0, &input);
  if (status == 0)
    status = tsr_whatif_compute(input.snapshot, &how, &session->query, &whatif, error);
  if (status == 0)
    status = tsr_report_whatif(&input.heading, whatif, &session->report, cli_output_write,
                               &session->output, error);
  tsr_whatif_free(whatif);
  cli_close(&input);
  return status;
}
