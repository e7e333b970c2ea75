/* plan_calibrate.c - `tessera plan MODEL --from SNAPSHOT`: what a recorded run says about the prediction.
 *
 *   From run.pickle: a step took 512 ms, the median of 8; estimated 478 ms, so times are multiplied by 1.07.
 *     forward     160 ms   estimated 150 ms
 *     ...
 *   1.20 GiB at its peak are not predicted, and taken from the budget:
 *     communication   train.py:31 step                      1.10 GiB   in 14 allocations */
#include <stdio.h>
#include <string.h>
#include <tessera/category.h>
#include <tessera/unstable/plans.h>

#include "plan_budget.h"

enum { SIZE_BYTES = 32, LINE_BYTES = 512 };
#define FAR_FACTOR 5.0 /* between a step that was measured and its estimate */

int cli_plan_calibrate(cli_session *session, const tsr_run_plan *plan,
                       const tsr_simulate_options *how, tsr_calibration *out) {
  const tsr_params *own = session->options->own;
  const char *path = tsr_params_text(own, "from");
  tsr_simulate_options options = *how;
  cli_input input = {0};
  if (!path) return 0;
  tsr_run_plan_options(plan, &options);
  int status = cli_open_path(session, path, &input);
  if (status) return status;
  status = tsr_calibrate(tsr_params_object(own, "model", &tsr_model_type), &options, input.study,
                         out, &session->error);
  cli_close(&input);
  if (status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED || status == TSR_ERROR_LIMIT)
    return cli_usage_error(session->options->command, "%s", session->error.message);
  return status;
}

uint64_t cli_plan_budget_of(const cli_session *session, const tsr_calibration *calibration) {
  uint64_t budget = tsr_params_count(session->options->own, "budget");
  uint64_t taken = calibration ? calibration->unexplained_bytes : 0;
  return taken < budget ? budget - taken : 1;
}

static int put_times(cli_session *session, const tsr_calibration *c, const char *path) {
  char line[LINE_BYTES], measured[SIZE_BYTES], estimated[SIZE_BYTES];
  if (c->measured_s <= 0) {
    (void)snprintf(line, sizeof line,
                   "\nFrom %.200s: no steps with times, so times are estimates for the card.\n",
                   path);
    return cli_put(session, line);
  }
  (void)snprintf(line, sizeof line,
                 "\nFrom %.200s: a step took %s, the median of %llu; estimated %s.\n"
                 "Times are estimates, multiplied by %.3g.\n",
                 path, cli_time_text(c->measured_s, measured, sizeof measured),
                 (unsigned long long)c->steps,
                 cli_time_text(c->predicted_s, estimated, sizeof estimated), c->factor);
  int status = cli_put(session, line);
  if (status == 0 && (c->factor < 1 / FAR_FACTOR || c->factor > FAR_FACTOR))
    status = cli_put(
        session, "That is far from the estimate: is --gpu the card of the recording? A simulated\n"
                 "snapshot's times are invented.\n");
  for (size_t i = 0; status == 0 && i < TSR_CALIBRATION_PHASES; i++) {
    if (c->phases[i].measured_s <= 0) continue;
    (void)snprintf(line, sizeof line, "  %-12s %9s   estimated %s\n", tsr_calibration_phase(i),
                   cli_time_text(c->phases[i].measured_s, measured, sizeof measured),
                   cli_time_text(c->phases[i].predicted_s, estimated, sizeof estimated));
    status = cli_put(session, line);
  }
  return status;
}

static int put_unexplained(cli_session *session, const tsr_calibration *c) {
  char line[LINE_BYTES], size[SIZE_BYTES];
  uint64_t shown = 0;
  if (!c->unexplained_bytes) return cli_put(session, "All that it has at its peak is predicted.\n");
  (void)snprintf(line, sizeof line,
                 "%s at its peak are not predicted, and are taken from the budget:\n",
                 tsr_size_text(c->unexplained_bytes, size, sizeof size));
  int status = cli_put(session, line);
  for (size_t i = 0; status == 0 && i < c->row_count; i++) {
    const tsr_unexplained *row = &c->rows[i];
    (void)snprintf(line, sizeof line, "  %-15s %-38.38s %11s, %llu of them\n",
                   tsr_category_name(row->category), row->place,
                   tsr_size_text(row->bytes, size, sizeof size), (unsigned long long)row->count);
    status = cli_put(session, line);
    shown += row->bytes;
  }
  if (status || shown == c->unexplained_bytes) return status;
  (void)snprintf(line, sizeof line, "  %-54s %11s\n", "all other",
                 tsr_size_text(c->unexplained_bytes - shown, size, sizeof size));
  return cli_put(session, line);
}

int cli_plan_put_calibration(cli_session *session, const tsr_calibration *c) {
  int status = put_times(session, c, tsr_params_text(session->options->own, "from"));
  return status ? status : put_unexplained(session, c);
}
