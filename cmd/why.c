/* why.c - `tessera why FILE`: why did it run out of memory?
 *
 * The question of whoever has just seen torch.OutOfMemoryError: was it the tensors, the allocator's
 * pieces, or somebody else, and what would have been enough?
 */
#include "parse.h"
#include "session.h"
#include "settings.h"
#include "when.h"

int cli_why(cli_session *session) {
  const cli_options *options = session->options;
  tsr_allocator_settings settings[CLI_SETTINGS_MAX];
  tsr_why_options how = {.event = -1, .settings = settings};
  cli_input input = {0};
  tsr_why *why = NULL;
  tsr_error *error = &session->error;
  int status = cli_read_capacity(options, &how.capacity_bytes);
  if (status == 0) status = cli_read_settings(session, settings, &how.setting_count);
  if (status == 0 && options->event)
    status = cli_read_integer(options, "event", options->event, &how.event);
  if (status) return status;
  if (options->event && how.event < 0)
    return cli_usage_error(options->command, "option '--event' needs the number of an event");
  status = cli_open(session, 0, &input);
  if (status == 0) status = tsr_why_compute(input.snapshot, &how, &session->query, &why, error);
  if (status == 0)
    status = tsr_report_why(&input.heading, why, &session->report, cli_output_write,
                            &session->output, error);
  tsr_why_free(why);
  cli_close(&input);
  return status;
}
