/* plan_compare.c - `tessera plan MODEL --compare --gpus N`: what papers and other tools say that each card takes.
 *
 *   gpt2 on 8 cards, 8 in a machine: 124,439,808 parameters, 38,597,376 in the largest layer.
 *
 *   source       what                          a card    a machine
 *   ZeRO paper   no sharding                 1.85 GiB            -
 *   ...
 *   tessera      one card, allocated         2.42 GiB            -
 */
#include "plan_compare.h"

#include "plan_budget.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tessera/unstable/estimates.h>
#include <tessera/unstable/plans.h>
#include <tessera/unstable/simulation.h>

enum { SIZE_BYTES = 32, LINE_BYTES = 512 };

static const char *size_text(double bytes, char text[SIZE_BYTES]) {
  return bytes > 0 ? tsr_size_text((uint64_t)bytes, text, SIZE_BYTES) : "-";
}

static int put_row(cli_session *session, const char *source, const char *what, double device_bytes,
                   double host_bytes) {
  char line[LINE_BYTES], device[SIZE_BYTES], host[SIZE_BYTES];
  (void)snprintf(line, sizeof line, "  %-12s  %-34s  %10s  %10s\n", source, what,
                 size_text(device_bytes, device), size_text(host_bytes, host));
  return cli_put(session, line);
}

static int put_remark(cli_session *session, const tsr_estimate *e) {
  char text[LINE_BYTES];
  (void)snprintf(text, sizeof text, "%s, %s: %s.", e->source, e->what, e->remark);
  return cli_put_words(session, "  ", 4, text);
}

static int put_text(cli_session *session, const char *model, const tsr_estimate_question *q,
                    const tsr_estimate all[TSR_ESTIMATES], const tsr_simulation *s) {
  char line[LINE_BYTES];
  (void)snprintf(line, sizeof line,
                 "%.200s on %" PRIu64 " card%s, %" PRIu64 " in a machine: %" PRIu64
                 " parameters, %" PRIu64 " in the largest.\n\n  %-12s  %-34s  %10s  %10s\n",
                 model, q->cards, q->cards == 1 ? "" : "s", q->cards_a_node, q->parameters,
                 q->largest_layer, "source", "what", "a card", "a machine");
  int status = cli_put(session, line);
  for (size_t i = 0; status == 0 && i < TSR_ESTIMATES; i++)
    status = put_row(session, all[i].source, all[i].what, all[i].device_bytes, all[i].host_bytes);
  if (status == 0)
    status = put_row(session, "tessera", "one card, peak allocated",
                     (double)s->peak.totals.allocated_bytes, 0);
  if (status == 0)
    status =
        put_row(session, "tessera", "one card, peak reserved", (double)s->peak_reserved_bytes, 0);
  if (status == 0)
    status = cli_put(
        session, "\nThe others count parameters, gradients and the optimizer's state, by their "
                 "own\nformulas. tessera's peak has activations, temporaries and the allocator's\n"
                 "rounding as well.\n");
  for (size_t i = 0; status == 0 && i < TSR_ESTIMATES; i++)
    if (all[i].remark) status = put_remark(session, &all[i]);
  return status;
}

static int put_json(cli_session *session, const tsr_estimate_question *q,
                    const tsr_estimate all[TSR_ESTIMATES], const tsr_simulation *s) {
  char line[LINE_BYTES];
  (void)snprintf(line, sizeof line,
                 "{\"parameters\":%" PRIu64 ",\"largest_layer_parameters\":%" PRIu64
                 ",\"cards\":%" PRIu64 ",\"cards_per_node\":%" PRIu64
                 ",\"peak_allocated_bytes\":%" PRIu64 ",\"peak_reserved_bytes\":%" PRIu64
                 ",\"estimates\":[",
                 q->parameters, q->largest_layer, q->cards, q->cards_a_node,
                 s->peak.totals.allocated_bytes, s->peak_reserved_bytes);
  int status = cli_put(session, line);
  for (size_t i = 0; status == 0 && i < TSR_ESTIMATES; i++) {
    const char *quote = all[i].remark ? "\"" : "";
    (void)snprintf(line, sizeof line,
                   "%s{\"source\":\"%s\",\"what\":\"%s\",\"device_bytes\":%.0f,\"host_bytes\":%.0f,"
                   "\"remark\":%s%s%s}",
                   i ? "," : "", all[i].source, all[i].what, all[i].device_bytes, all[i].host_bytes,
                   quote, all[i].remark ? all[i].remark : "null", quote);
    status = cli_put(session, line);
  }
  return status ? status : cli_put(session, "]}\n");
}

int cli_plan_compare(cli_session *session, const char *name, const tsr_run_plan *plan,
                     const tsr_simulate_options *how) {
  const tsr_params *own = session->options->own;
  tsr_estimate all[TSR_ESTIMATES];
  tsr_simulation *s = NULL;
  tsr_estimate_question q = {.cards = tsr_params_count(own, "gpus"),
                             .cards_a_node = tsr_params_count(own, "gpus_per_node")};
  tsr_simulate_options options = *how;
  tsr_run_plan_options(plan, &options);
  if (!q.cards_a_node) q.cards_a_node = q.cards;
  if (q.cards % q.cards_a_node)
    return cli_usage_error(session->options->command,
                           "--gpus must be a multiple of --gpus-per-node");
  int status = tsr_simulate(tsr_params_model(own, "model"), &options, &s, &session->error);
  bool is_of_options =
      status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED || status == TSR_ERROR_LIMIT;
  if (is_of_options)
    return cli_usage_error(session->options->command, "%s", session->error.message);
  if (status) return status;
  q.parameters = s->parameter_count;
  q.largest_layer = s->largest_parameter;
  tsr_estimates(&q, all);
  bool is_json = session->report.format == TSR_REPORT_JSON;
  status = is_json ? put_json(session, &q, all, s) : put_text(session, name, &q, all, s);
  tsr_simulation_free(s);
  return status;
}
