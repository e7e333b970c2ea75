/* plan_compare.c - `tessera plan MODEL --compare --gpus N`: what papers and other tools say that each card takes.
 *
 *   gpt2 on 8 cards, 8 in a machine: 124439808 parameters, 38597376 in the largest.
 *
 *   source       what                          a card    a machine
 *   ZeRO paper   no sharding                 1.85 GiB            -
 *   ...
 *   tessera      one card, allocated         2.42 GiB            -
 *
 * With --parameters instead of a MODEL there are only formulas of states.
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
  (void)snprintf(line, sizeof line, "  %-14s %-34s  %10s  %10s\n", source, what,
                 size_text(device_bytes, device), size_text(host_bytes, host));
  return cli_put(session, line);
}

static int put_remark(cli_session *session, const tsr_estimate *e) {
  char text[LINE_BYTES];
  (void)snprintf(text, sizeof text, "%s, %s: %s.", e->source, e->what, e->remark);
  return cli_put_words(session, "  ", 4, text);
}

static bool is_there(const tsr_estimate *e) {
  return e->device_bytes > 0 || e->host_bytes > 0;
}

static int put_rows(cli_session *session, tsr_estimate_kind kind,
                    const tsr_estimate all[TSR_ESTIMATES]) {
  int status = 0;
  for (size_t i = 0; status == 0 && i < TSR_ESTIMATES; i++)
    if (all[i].kind == kind && is_there(&all[i]))
      status = put_row(session, all[i].source, all[i].what, all[i].device_bytes, all[i].host_bytes);
  return status;
}

static int put_head(cli_session *session, const char *model, const tsr_estimate_question *q) {
  char line[LINE_BYTES], largest[64] = "";
  if (q->largest_layer)
    (void)snprintf(largest, sizeof largest, ", %" PRIu64 " in the largest", q->largest_layer);
  (void)snprintf(line, sizeof line,
                 "%.200s on %" PRIu64 " card%s, %" PRIu64 " in a machine: %" PRIu64
                 " parameters%s.\n\nStates:\n  %-14s %-34s  %10s  %10s\n",
                 model ? model : "A model", q->cards, q->cards == 1 ? "" : "s", q->cards_a_node,
                 q->parameters, largest, "source", "what", "a card", "a machine");
  return cli_put(session, line);
}

static int put_peak(cli_session *session, const tsr_simulation *s) {
  int status = cli_put(session, "\nAll of it, simulated:\n");
  if (status == 0)
    status = put_row(session, "tessera", "one card, peak allocated",
                     (double)s->peak.totals.allocated_bytes, 0);
  if (status == 0)
    status =
        put_row(session, "tessera", "one card, peak reserved", (double)s->peak_reserved_bytes, 0);
  return status ? status
                : cli_put(session, "\nThe others are formulas of states, or of what is saved for "
                                   "backward, in 16 bits.\ntessera's peak has both, temporaries "
                                   "and the allocator's rounding.\n");
}

/* `s` is NULL without a model. */
static int put_text(cli_session *session, const char *model, const tsr_estimate_question *q,
                    const tsr_estimate all[TSR_ESTIMATES], const tsr_simulation *s) {
  char line[LINE_BYTES];
  int status = put_head(session, model, q);
  if (status == 0) status = put_rows(session, TSR_ESTIMATE_STATES, all);
  (void)snprintf(line, sizeof line,
                 "\nSaved for backward, of %" PRIu64 " x %" PRIu64 " tokens on each card:\n",
                 q->batch, q->sequence);
  if (status == 0 && s) status = cli_put(session, line);
  if (status == 0 && s) status = put_rows(session, TSR_ESTIMATE_ACTIVATIONS, all);
  if (status == 0 && s) status = put_peak(session, s);
  if (status == 0) status = cli_put(session, "\n");
  for (size_t i = 0; status == 0 && i < TSR_ESTIMATES; i++)
    if (all[i].remark && is_there(&all[i])) status = put_remark(session, &all[i]);
  return status;
}

static int put_estimate(cli_session *session, const tsr_estimate *e, bool is_first) {
  char line[LINE_BYTES];
  const char *quote = e->remark ? "\"" : "";
  const char *kind = e->kind == TSR_ESTIMATE_STATES ? "states" : "activations";
  (void)snprintf(line, sizeof line,
                 "%s{\"source\":\"%s\",\"what\":\"%s\",\"counts\":\"%s\",\"device_bytes\":%.0f,"
                 "\"host_bytes\":%.0f,\"remark\":%s%s%s}",
                 is_first ? "" : ",", e->source, e->what, kind, e->device_bytes, e->host_bytes,
                 quote, e->remark ? e->remark : "null", quote);
  return cli_put(session, line);
}

static int put_json(cli_session *session, const tsr_estimate_question *q,
                    const tsr_estimate all[TSR_ESTIMATES], const tsr_simulation *s) {
  char line[LINE_BYTES];
  (void)snprintf(line, sizeof line,
                 "{\"parameters\":%" PRIu64 ",\"largest_layer_parameters\":%" PRIu64
                 ",\"cards\":%" PRIu64 ",\"cards_per_node\":%" PRIu64,
                 q->parameters, q->largest_layer, q->cards, q->cards_a_node);
  int status = cli_put(session, line);
  if (s)
    (void)snprintf(line, sizeof line,
                   ",\"peak_allocated_bytes\":%" PRIu64 ",\"peak_reserved_bytes\":%" PRIu64,
                   s->peak.totals.allocated_bytes, s->peak_reserved_bytes);
  if (status == 0 && s) status = cli_put(session, line);
  if (status == 0) status = cli_put(session, ",\"estimates\":[");
  for (size_t i = 0, shown = 0; status == 0 && i < TSR_ESTIMATES; i++)
    if (is_there(&all[i])) status = put_estimate(session, &all[i], shown++ == 0);
  return status ? status : cli_put(session, "]}\n");
}

/* What the options say, or a status. */
static int read_question(const cli_session *session, tsr_estimate_question *q) {
  const tsr_params *own = session->options->own;
  const cli_command *command = session->options->command;
  *q = (tsr_estimate_question){.parameters = tsr_params_count(own, "parameters"),
                               .largest_layer = tsr_params_count(own, "largest_layer"),
                               .cards = tsr_params_count(own, "gpus"),
                               .cards_a_node = tsr_params_count(own, "gpus_per_node"),
                               .bucket_elements = tsr_params_count(own, "bucket"),
                               .batch = tsr_params_count(own, "batch"),
                               .sequence = tsr_params_count(own, "seq"),
                               .tensor_cards = tsr_params_count(own, "tp"),
                               .adapter_rank = tsr_params_count(own, "lora_rank")};
  if (!q->cards_a_node) q->cards_a_node = q->cards;
  if (q->cards % q->cards_a_node)
    return cli_usage_error(command, "--gpus must be a multiple of --gpus-per-node");
  if (q->cards % q->tensor_cards)
    return cli_usage_error(command, "--gpus must be a multiple of --tp");
  return 0;
}

int cli_plan_compare(cli_session *session, const char *name, const tsr_run_plan *plan,
                     const tsr_simulate_options *how) {
  const tsr_model *model = tsr_params_object(session->options->own, "model", &tsr_model_type);
  tsr_estimate all[TSR_ESTIMATES];
  tsr_simulation *s = NULL;
  tsr_estimate_question q;
  tsr_simulate_options options = *how;
  tsr_run_plan_options(plan, &options);
  int status = read_question(session, &q);
  if (status) return status;
  if (model) status = tsr_simulate(model, &options, &s, &session->error);
  bool is_of_options =
      status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED || status == TSR_ERROR_LIMIT;
  if (is_of_options)
    return cli_usage_error(session->options->command, "%s", session->error.message);
  if (status) return status;
  if (model) {
    q.parameters = s->parameter_count;
    q.largest_layer = s->largest_parameter;
    (void)tsr_model_sizes_of(model, &q.sizes);
  }
  tsr_estimates(&q, all);
  bool is_json = session->report.format == TSR_REPORT_JSON;
  status = is_json ? put_json(session, &q, all, s) : put_text(session, name, &q, all, s);
  tsr_simulation_free(s);
  return status;
}
