/* mosaic_usage.c - drop-ins that print stacks: at the peak, at an allocation, at one peak but not at
 * another.
 *
 * Windows and moments are used as given, except that a time of 0 means none, as in Mosaic.
 */
#include "mosaic.h"

static int print_groups(cli_session *session, const tsr_snapshot *snapshot,
                        const tsr_mosaic_groups *groups) {
  return tsr_mosaic_print_groups(snapshot, groups, cli_mosaic_is_shown(), cli_output_write,
                                 &session->output, &session->error);
}

/* ---- mosaic_get_memory_usage_peak ---- */

static int read_window(const cli_session *session, tsr_mosaic_window *window) {
  const tsr_params *own = session->options->own;
  *window = (tsr_mosaic_window){
      .has_first = tsr_params_integer(own, "start_time") != 0,
      .has_last = tsr_params_integer(own, "end_time") != 0,
      .has_stop = tsr_params_text(own, "allocation") && *tsr_params_text(own, "allocation"),
      .first_us = tsr_params_integer(own, "start_time"),
      .last_us = tsr_params_integer(own, "end_time"),
  };
  return window->has_stop ? cli_mosaic_moment(session, &window->stop) : 0;
}

int cli_mosaic_peak(cli_session *session) {
  const tsr_params *own = session->options->own;
  cli_input input = {0};
  tsr_mosaic_window window;
  tsr_mosaic_peak *peak = NULL;
  tsr_error *error = &session->error;
  int status = read_window(session, &window);
  if (status == 0)
    status = cli_mosaic_open(session, "snapshot", tsr_params_text(own, "snapshot"), &input);
  if (status == 0)
    status = cli_mosaic_require_trace(session, tsr_params_text(own, "snapshot"), input.snapshot);
  if (status == 0) status = tsr_mosaic_peak_compute(input.study, &window, &peak, error);
  if (status == 0) status = tsr_mosaic_log_peak(input.snapshot, peak, cli_mosaic_log, NULL, error);
  if (status == 0) cli_mosaic_services(session);
  if (status == 0 && tsr_params_flag(own, "print_stack"))
    status = print_groups(session, input.snapshot, &peak->groups);
  tsr_mosaic_peak_free(peak);
  cli_close(&input);
  return status;
}

/* ---- mosaic_get_memory_usage ---- */

/* As in Mosaic, a moment that no device has is not a failure; standard error reports it. A file without a trace is one. */
int cli_mosaic_usage(cli_session *session) {
  const tsr_params *own = session->options->own;
  cli_input input = {0};
  tsr_mosaic_moment moment;
  tsr_mosaic_usage *usage = NULL;
  tsr_error *error = &session->error;
  if (!tsr_params_text(own, "allocation") || !tsr_params_has(own, "action"))
    return cli_usage_error(session->options->command, "missing --%s",
                           tsr_params_text(own, "allocation") ? "action ACTION"
                                                              : "allocation ADDRESS_VERSION");
  int status = cli_mosaic_moment(session, &moment);
  if (status == 0)
    status = cli_mosaic_open(session, "snapshot", tsr_params_text(own, "snapshot"), &input);
  if (status == 0) status = tsr_mosaic_usage_compute(input.study, &moment, &usage, error);
  if (status == 0)
    status = tsr_mosaic_log_usage(input.snapshot, usage, cli_mosaic_log, NULL, error);
  if (status == 0) cli_mosaic_services(session);
  if (status == 0 && usage->event >= 0 && tsr_params_flag(own, "print_stack"))
    status = print_groups(session, input.snapshot, &usage->groups);
  if (status == 0 && usage->first_device == TSR_NONE) status = CLI_CHECK_FAILED;
  tsr_mosaic_usage_free(usage);
  cli_close(&input);
  return status;
}

/* ---- mosaic_get_memory_usage_diff ---- */

typedef struct diff_side {
  cli_input input;
  tsr_mosaic_peak *peak;
} diff_side;

static int compute_peak(cli_session *session, diff_side *side) {
  int status = tsr_mosaic_peak_compute(side->input.study, NULL, &side->peak, &session->error);
  if (status) return status;
  return tsr_mosaic_log_peak(side->input.snapshot, side->peak, cli_mosaic_log, NULL,
                             &session->error);
}

static int print_diff(cli_session *session, const diff_side *base, const diff_side *newer) {
  tsr_mosaic_diff *diff = NULL;
  int status = tsr_mosaic_diff_compute(base->input.study, base->peak, newer->input.study,
                                       newer->peak, &diff, &session->error);
  if (status == 0) status = tsr_mosaic_log_diff(diff, cli_mosaic_log, NULL, &session->error);
  if (status == 0) cli_mosaic_services(session);
  if (status == 0) status = print_groups(session, newer->input.snapshot, &diff->groups);
  tsr_mosaic_diff_free(diff);
  return status;
}

int cli_mosaic_diff(cli_session *session) {
  const tsr_params *own = session->options->own;
  diff_side base = {.peak = NULL}, newer = {.peak = NULL};
  if (!tsr_params_text(own, "snapshot_base") || !tsr_params_text(own, "snapshot_diff"))
    return cli_usage_error(session->options->command, "missing --snapshot_%s FILE",
                           tsr_params_text(own, "snapshot_base") ? "diff" : "base");
  int status =
      cli_mosaic_open(session, "snapshot_base", tsr_params_text(own, "snapshot_base"), &base.input);
  if (status == 0)
    status = cli_mosaic_open(session, "snapshot_diff", tsr_params_text(own, "snapshot_diff"),
                             &newer.input);
  if (status == 0)
    status = cli_mosaic_require_trace(session, tsr_params_text(own, "snapshot_base"),
                                      base.input.snapshot);
  if (status == 0)
    status = cli_mosaic_require_trace(session, tsr_params_text(own, "snapshot_diff"),
                                      newer.input.snapshot);
  if (status == 0) status = compute_peak(session, &base);
  if (status == 0) status = compute_peak(session, &newer);
  if (status == 0) status = print_diff(session, &base, &newer);
  tsr_mosaic_peak_free(base.peak);
  tsr_mosaic_peak_free(newer.peak);
  cli_close(&base.input);
  cli_close(&newer.input);
  return status;
}
