/* at.c - `tessera at FILE --event N`: what was live at another moment than the peak?
 *
 * The moment is said in one of three ways: by an event's number, by a time, or as Mosaic and
 * PyTorch's viewer name it, by an address, how often it was given back before, and what happened to
 * it.
 */
#include "parse.h"
#include "session.h"
#include "when.h"

static const tsr_action actions[] = {TSR_ACTION_ALLOC, TSR_ACTION_FREE_REQUESTED,
                                     TSR_ACTION_FREE_COMPLETED, TSR_ACTION_FREE_COMPLETED};

/* Where the command line points; answers 0 or a usage error. */
static int read_where(const cli_options *options, tsr_at_where *where) {
  if (!!options->event + !!options->time + !!options->allocation != 1)
    return cli_usage_error(options->command,
                           "say one of --event, --time and --alloc, to choose the moment");
  if (options->event) {
    where->kind = TSR_AT_EVENT;
    return cli_read_integer(options, "event", options->event, &where->event);
  }
  if (options->time) {
    where->kind = TSR_AT_TIME;
    return cli_read_integer(options, "time", options->time, &where->time_us);
  }
  where->kind = TSR_AT_ALLOCATION;
  where->action = actions[options->action];
  if (cli_parse_allocation(options->allocation, where)) return 0;
  return cli_usage_error(options->command,
                         "option '--alloc' takes ADDRESS_VERSION, such as cd1000000_1, not '%s'",
                         options->allocation);
}

int cli_at(cli_session *session) {
  cli_input input = {0};
  tsr_at *at = NULL;
  tsr_at_where where = {.kind = TSR_AT_EVENT};
  tsr_error *error = &session->error;
  int status = read_where(session->options, &where);
  if (status) return status;
  status = cli_open(session, 0, &input);
  if (status == 0) status = tsr_at_compute(input.snapshot, &where, &session->query, &at, error);
  if (status == 0)
    status = tsr_report_at(&input.heading, at, &session->report, cli_output_write, &session->output,
                           error);
  tsr_at_free(at);
  cli_close(&input);
  return status;
}
