/* plan.c - `tessera plan show FILE [MODEL]`: what a plan says, and what each choice saves and costs.
 *
 *   plan 3d8ca540b291...: gpt2 peaks at 1.21 GiB, 1.47 GiB less than without it, and computes 13.3 % more.
 *
 *   choice             peak so far      saved  computed  alone it saves
 *   dtype bf16            1.39 GiB   1.29 GiB     0.0 %        1.29 GiB
 *   checkpoint full       1.21 GiB   182 MiB     33.1 %      712.4 MiB
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/plans.h>

#include "session.h"

enum { SIZE_BYTES = 32, LINE_BYTES = 512 };

static const tsr_parameter plan_parameters[] = {
    {.name = "action",
     .is_operand = true,
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "ACTION",
     .help = "What to do with the plan: show it.",
     .choices = (const char *const[]){"show", NULL}},
    {.name = "plan",
     .is_operand = true,
     .kind = TSR_PARAMETER_PLAN,
     .argument = "FILE",
     .help = "A plan, as --write-plan of simulate and train writes it (docs/plan.md)."},
    {.name = "model",
     .is_operand = true,
     .kind = TSR_PARAMETER_MODEL,
     .argument = "MODEL",
     .help = "A model's name, or its config.json: say what each choice does for it."},
    {.name = "batch",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Sequences per batch (default: 1).",
     .fallback = 1,
     .least = 1},
    {.name = "seq",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Tokens per sequence (default: 512).",
     .fallback = 512,
     .least = 1},
    {.name = "steps",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Optimizer steps (default: 3).",
     .fallback = 3,
     .least = 1},
};

const cli_command cli_plan_row = {
    .about =
        {.name = "plan",
         .summary = "what does each choice of a plan save, and what does it cost?",
         .description =
             "A plan is a file that describes how a model is trained: types, kernels, "
             "micro-batches, "
             "and what each block keeps or computes again. simulate and train read it with --plan "
             "and "
             "write it with --write-plan.\n\nshow prints the plan in its canonical form, with its "
             "hash. With a MODEL it simulates the training without the plan, with each choice "
             "alone, "
             "and with the choices one after another.",
         CLI_PARAMETERS(plan_parameters),
         .examples =
             {{"tessera simulate gpt2 --dtype bf16 --checkpoint full --write-plan plan.json",
               "write a plan"},
              {"tessera plan show plan.json gpt2 --batch 8",
               "what does it save, and at which price?"}}},
    .operands = "show FILE [MODEL]",
    .operand_min = 2,
    .operand_max = 3,
    .answers = true,
    .lacks = "color verbose quiet",
    .run = cli_plan,
};

static int put(cli_session *session, const char *text) {
  return cli_output_write(&session->output, text, strlen(text)) ? TSR_ERROR_WRITE : 0;
}

/* Operations beyond those of the plan's steps without recomputation, in percent. */
static double extra_percent(const tsr_run_plan_cost *cost) {
  uint64_t own = cost->step_flops - cost->recomputed_flops;
  return own ? 100 * (double)cost->recomputed_flops / (double)own : 0;
}

/* "1.2 GiB", or "-1.2 GiB" of what is not saved but taken. */
static const char *saved_text(uint64_t before, uint64_t after, char text[SIZE_BYTES]) {
  bool is_more = after > before;
  char size[SIZE_BYTES];
  (void)snprintf(text, SIZE_BYTES, "%s%s", is_more ? "-" : "",
                 tsr_size_text(is_more ? after - before : before - after, size, sizeof size));
  return text;
}

/* ---- text ---- */

static int put_verdict(cli_session *session, const char *model, const tsr_run_plan_effects *e) {
  char line[LINE_BYTES], peak[SIZE_BYTES], saved[SIZE_BYTES], before[SIZE_BYTES];
  tsr_size_text(e->with.peak_bytes, peak, sizeof peak);
  saved_text(e->without.peak_bytes, e->with.peak_bytes, saved);
  (void)snprintf(line, sizeof line,
                 "%.200s: peak %s with this plan, %s without it: saves %s, for %.1f %% more "
                 "operations.\n\n",
                 model, peak, tsr_size_text(e->without.peak_bytes, before, sizeof before), saved,
                 extra_percent(&e->with));
  return put(session, line);
}

static int put_choice(cli_session *session, const tsr_run_plan_effect *e,
                      const tsr_run_plan_cost *last, const tsr_run_plan_cost *without) {
  char line[LINE_BYTES], peak[SIZE_BYTES] = "-", saved[SIZE_BYTES] = "-", alone[SIZE_BYTES] = "-";
  if (e->so_far.is_possible) {
    tsr_size_text(e->so_far.peak_bytes, peak, sizeof peak);
    saved_text(last->peak_bytes, e->so_far.peak_bytes, saved);
  }
  if (e->alone.is_possible) saved_text(without->peak_bytes, e->alone.peak_bytes, alone);
  (void)snprintf(line, sizeof line, "  %-40.40s %12s %12s %8.1f %% %14s\n", e->name, peak, saved,
                 extra_percent(&e->so_far), alone);
  return put(session, line);
}

static int put_text(cli_session *session, const tsr_run_plan *plan, const char *model,
                    const tsr_run_plan_effects *e) {
  char line[LINE_BYTES];
  int status = model ? put_verdict(session, model, e) : 0;
  (void)snprintf(line, sizeof line, "plan %s\n", tsr_run_plan_hash(plan));
  if (status == 0) status = put(session, line);
  if (status == 0) status = put(session, tsr_run_plan_text(plan));
  if (status || !model || !e->count) return status;
  (void)snprintf(line, sizeof line, "\n  %-40s %12s %12s %10s %14s\n", "choice", "peak so far",
                 "saved", "operations", "saved alone");
  status = put(session, line);
  const tsr_run_plan_cost *last = &e->without;
  for (size_t i = 0; status == 0 && i < e->count; i++) {
    status = put_choice(session, &e->choices[i], last, &e->without);
    if (e->choices[i].so_far.is_possible) last = &e->choices[i].so_far;
  }
  return status;
}

/* ---- JSON ---- */

static int put_cost(cli_session *session, const char *key, const tsr_run_plan_cost *cost) {
  char line[LINE_BYTES];
  if (!cost->is_possible)
    (void)snprintf(line, sizeof line, "\"%s\":null", key);
  else
    (void)snprintf(line, sizeof line,
                   "\"%s\":{\"peak_allocated_bytes\":%" PRIu64 ",\"peak_reserved_bytes\":%" PRIu64
                   ",\"step_flops\":%" PRIu64 ",\"step_recomputed_flops\":%" PRIu64 "}",
                   key, cost->peak_bytes, cost->reserved_bytes, cost->step_flops,
                   cost->recomputed_flops);
  return put(session, line);
}

static int put_effects(cli_session *session, const tsr_run_plan_effects *e) {
  char line[LINE_BYTES];
  int status = put(session, ",");
  if (status == 0) status = put_cost(session, "without", &e->without);
  if (status == 0) status = put(session, ",");
  if (status == 0) status = put_cost(session, "with", &e->with);
  if (status == 0) status = put(session, ",\"choices\":[");
  for (size_t i = 0; status == 0 && i < e->count; i++) {
    (void)snprintf(line, sizeof line, "%s{\"choice\":\"%s\",", i ? "," : "", e->choices[i].name);
    status = put(session, line);
    if (status == 0) status = put_cost(session, "alone", &e->choices[i].alone);
    if (status == 0) status = put(session, ",");
    if (status == 0) status = put_cost(session, "so_far", &e->choices[i].so_far);
    if (status == 0) status = put(session, "}");
  }
  return status ? status : put(session, "]");
}

static int put_json(cli_session *session, const tsr_run_plan *plan, const char *model,
                    const tsr_run_plan_effects *e) {
  char line[LINE_BYTES];
  (void)snprintf(line, sizeof line,
                 "{\"schema\":\"tessera/1\",\"command\":\"plan\",\"plan_hash\":\"%s\",\"plan\":",
                 tsr_run_plan_hash(plan));
  int status = put(session, line);
  if (status == 0) status = put(session, tsr_run_plan_text(plan));
  if (status == 0 && model) status = put_effects(session, e);
  return status ? status : put(session, "}\n");
}

/* ---- the command ---- */

static int explain(cli_session *session, const tsr_run_plan *plan, tsr_run_plan_effects *out) {
  const tsr_params *own = session->options->own;
  tsr_simulate_options how = {.struct_bytes = sizeof how,
                              .batch = tsr_params_count(own, "batch"),
                              .sequence = tsr_params_count(own, "seq"),
                              .steps = tsr_params_count(own, "steps")};
  int status =
      tsr_run_plan_explain(plan, tsr_params_model(own, "model"), &how, out, &session->error);
  bool is_of_options =
      status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED || status == TSR_ERROR_LIMIT;
  return is_of_options ? cli_usage_error(session->options->command, "%s", session->error.message)
                       : status;
}

int cli_plan(cli_session *session) {
  const tsr_params *own = session->options->own;
  int status = cli_read_parameters(session);
  if (status) return status;
  const tsr_run_plan *plan = tsr_params_plan(own, "plan");
  const char *model = session->options->operand_count > 2 ? session->options->operands[2] : NULL;
  tsr_run_plan_effects *effects = calloc(1, sizeof *effects);
  if (!effects) return TSR_ERROR_MEMORY;
  status = model ? explain(session, plan, effects) : 0;
  bool is_json = session->report.format == TSR_REPORT_JSON;
  if (status == 0) status = (is_json ? put_json : put_text)(session, plan, model, effects);
  free(effects);
  return status;
}
