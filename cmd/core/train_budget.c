/* train_budget.c - `tessera train --budget SIZE` without a plan: no change if the run fits, else the fastest plan that does. */
#include <stdio.h>
#include <string.h>
#include <tessera/unstable/planning.h>
#include <tessera/unstable/runs.h>

#include "train_budget.h"

/* What a common processor does in a second, for comparing plans: 25 GFLOP, 4 GB of what a kernel reads and writes, and 1 GB that
 * a rank sends to others, by the same threads. Kernels that are not named take what these take. */
static const char common_rates[] =
    "{\"copies\":[4e9,1e9],\"ranks\":1e9,\"kernels\":{\"mm\":[[0.04,0.0],[0.04,0."
    "0]],\"add\":[[0.0,0.25],[0.0,0.25]]},"
    "\"schema\":\"tessera-rates/1\",\"title\":\"a processor\"}";

tsr_memory cli_train_memory(const tsr_params *own) {
  return tsr_params_choice(own, "memory") == 1 ? TSR_MEMORY_PLACED : TSR_MEMORY_CACHING;
}

static int solve(cli_session *session, tsr_planning_options *options, unsigned allow,
                 tsr_planned *out) {
  tsr_planning *planning = NULL;
  uint64_t budget = tsr_params_count(session->options->own, "capacity");
  options->allow = allow;
  int status = tsr_planning_new(tsr_params_object(session->options->own, "model", &tsr_model_type),
                                options, &planning, &session->error);
  if (status == 0) status = tsr_planning_solve(planning, budget, out, &session->error);
  tsr_planning_free(planning);
  return status;
}

/* Print what was found, and let it be the run's plan. */
static int take(cli_session *session, const char *name, tsr_train_report *report,
                const tsr_planned *p) {
  if (report && !tsr_train_report_plan(report, name, p)) return TSR_ERROR_WRITE;
  if (p->verdict == TSR_PLANNING_DOES_NOT_FIT) return CLI_CHECK_FAILED;
  const char *text = tsr_run_plan_text(p->plan);
  return tsr_params_set_text(session->options->own, "plan", text, strlen(text), &session->error);
}

static int find(cli_session *session, const char *name, tsr_train_report *report,
                const tsr_run_plan *plan, const tsr_rates *rates, unsigned allow) {
  const tsr_params *own = session->options->own;
  uint64_t steps = tsr_params_count(own, "steps");
  tsr_simulate_options how = {.struct_bytes = sizeof how,
                              .batch = tsr_params_count(own, "batch"),
                              .sequence = tsr_params_count(own, "seq"),
                              .steps = steps == 2 ? 2 : 3,
                              .memory = cli_train_memory(own),
                              .rates = rates};
  int status = tsr_params_effort(own, NULL, &how.effort, &session->error);
  if (status) return status;
  how.book = tsr_params_has(own, "book") && tsr_params_choice(own, "book") == TSR_BOOK_TORCH
                 ? TSR_BOOK_TORCH
                 : TSR_BOOK_OWN;
  tsr_planning_options options = TSR_OPTIONS_INIT(tsr_planning_options);
  how.eval_steps = tsr_params_has(own, "val");
  how.eval_batch = tsr_params_count(own, "eval_batch");
  options.plan = plan;
  options.how = &how;
  tsr_planned as_it_is = {.verdict = TSR_PLANNING_FITS}, found = {.verdict = TSR_PLANNING_FITS};
  status = solve(session, &options, 0, &as_it_is);
  bool fits = as_it_is.verdict == TSR_PLANNING_FITS;
  if (status == 0 && !fits) status = solve(session, &options, tsr_allow_unset(own, allow), &found);
  if (status == 0 && !fits) status = take(session, name, report, &found);
  if (status == TSR_ERROR_LIMIT && tsr_effort_ended(how.effort))
    status = tsr_params_effort_fail(own, how.effort, &session->error);
  tsr_planned_release(&as_it_is);
  tsr_planned_release(&found);
  tsr_effort_free(how.effort);
  return status;
}

int cli_train_plan(cli_session *session, const char *name, tsr_train_report *report) {
  tsr_params *own = session->options->own;
  const char *words = tsr_params_text(own, "allow");
  unsigned allow =
      tsr_allow_default() & ~TSR_ALLOW_OFFLOAD; /* the host's memory is this machine's */
  if (words && tsr_allow_parse(words, &allow, &session->error))
    return cli_usage_error(session->options->command, "%s", session->error.message);
  bool is_decided = tsr_params_has(own, "plan") || tsr_params_has(own, "resume") ||
                    tsr_params_has(own, "ds_config");
  if (!tsr_params_has(own, "capacity") || is_decided || !allow) return 0;
  tsr_run_plan *plan = NULL;
  tsr_rates *rates = NULL;
  int status = tsr_run_plan_of(own, &plan, &session->error);
  if (status == 0)
    status = tsr_rates_parse(common_rates, sizeof common_rates - 1, &rates, &session->error);
  if (status == 0) status = find(session, name, report, plan, rates, allow);
  tsr_rates_free(rates);
  tsr_run_plan_free(plan);
  if (cli_is_about_options(status))
    return cli_usage_error(session->options->command, "%s", session->error.message);
  return status;
}
