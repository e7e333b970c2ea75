/* plan.c - `tessera plan MODEL`: what each technique saves and costs for a model; and `tessera plan show FILE
 * [MODEL]`: what a plan says, and what each of its choices does.
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
#include <tessera/unstable/runs.h>

#include "plan_budget.h"
#include "plan_compare.h"
#include "session.h"

enum { SIZE_BYTES = 32, LINE_BYTES = 512 };

static const tsr_parameter plan_parameters[] = {
    {.name = "model",
     .is_operand = true,
     .kind = TSR_PARAMETER_OBJECT,
     .type = &tsr_model_type,
     .argument = "MODEL",
     .help = "A model's name, or its config.json; or a step graph."},
    {.name = "plan",
     .kind = TSR_PARAMETER_FILE,
     .type = &tsr_run_plan_type,
     .argument = "FILE",
     .help = "The plan to begin with, as --write-plan of simulate and train writes it "
             "(docs/plan.md). Options on the command line override it."},
    {.name = "budget",
     .kind = TSR_PARAMETER_BYTES,
     .argument = "SIZE",
     .example = "24GiB",
     .help = "Find the fastest plan that reserves at most this: 24GiB. Exits with 1 if there is "
             "none."},
    {.name = "allow",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "LIST",
     .example = "recompute,offload",
     .help = "With --budget, what may be changed (default: all but precision): " TSR_ALLOW_WORDS
             "; or all, or none."},
    {.name = "largest",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "WHAT",
     .help = "With --budget, find the largest batch or sequence that fits, or the model of most "
             "parameters that has MODEL's proportions (without offload, unless --allow has it).",
     .choices = (const char *const[]){"batch", "seq", "model", NULL}},
    {.name = "write_model",
     .option = "write-model",
     .kind = TSR_PARAMETER_PATH,
     .is_written = true,
     .argument = "FILE",
     .help = "With --largest model, write its config.json to FILE, for train and simulate."},
    {.name = "front",
     .kind = TSR_PARAMETER_FLAG,
     .help = "List the fastest plan for less and less memory."},
    {.name = "write_front",
     .option = "write-front",
     .kind = TSR_PARAMETER_PATH,
     .is_written = true,
     .argument = "FILE",
     .help =
         "With --front, write the list to FILE: a page if its name ends in .html, else CSV. Both "
         "have the plans. -o does so instead of the list, for names that end in .html or .csv."},
    {.name = "for",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "TARGET",
     .help = "Print the plan that --budget finds, or that --plan has, to be pasted into a program: "
             "hf, deepspeed, fsdp2, torchtitan, megatron, env or tessera.",
     .choices = TSR_TARGET_CHOICES},
    {.name = "write_plan",
     .option = "write-plan",
     .kind = TSR_PARAMETER_PATH,
     .is_written = true,
     .argument = "FILE",
     .help = "Write the plan that --budget found to FILE."},
    {.name = "explain",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Show every technique: what it saves and costs alone, and after those before it (what "
             "the command "
             "does without an action, too)."},
    {.name = "compare",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Show what papers and other tools estimate for --gpus cards, by their formulas, next "
             "to the predicted peak."},
    {.name = "gpus",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Cards that train together, each with a batch of its own: --ranks of simulate and "
             "train. ZeRO's stage is chosen with the rest, unless --zero has one. With --compare, "
             "cards that formulas count (default: 1).",
     .fallback = 1,
     .least = 1},
    {.name = "gpus_per_node",
     .option = "gpus-per-node",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "With --compare, cards in each machine (default: all).",
     .least = 1},
    {.name = "tp",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "With --compare, cards that share each layer (tensor parallel, default: 1).",
     .fallback = 1,
     .least = 1},
    {.name = "lora_rank",
     .option = "lora-rank",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "With --compare, the rank of LoRA's adapters (default: 4).",
     .fallback = 4,
     .least = 1},
    {.name = "parameters",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "With --compare, a number of parameters instead of a MODEL.",
     .least = 1},
    {.name = "largest_layer",
     .option = "largest-layer",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "With --parameters, how many of them the largest layer has.",
     .least = 1},
    {.name = "gpu",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "CARD",
     .help = "The card that times are estimated for: " TSR_GPU_WORDS
             " (default: a100, or the card of a step graph).",
     .choices = TSR_GPU_CHOICES},
    {.name = "rates",
     .kind = TSR_PARAMETER_FILE,
     .argument = "FILE",
     .help = "Estimate times for the machine on which train --write-rates wrote FILE, from its "
             "measured "
             "rates."},
    TSR_RUN_LINK,
    {.name = "from",
     .kind = TSR_PARAMETER_PATH,
     .argument = "SNAPSHOT",
     .help =
         "With --budget, --largest or --front, a recorded run of MODEL: times become those of its "
         "steps, and what it has at its peak beyond the prediction is taken from the budget."},
    {.name = "book",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "OPS",
     .help = "Whose ops run: torch (default), or own, tessera's, which train runs.",
     .choices = (const char *const[]){"torch", "own", NULL}},
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
    TSR_RUN_PARAMETERS,
    TSR_DS_CONFIG_PARAMETER,
};

const cli_command cli_plan_row = {
    .about = {.name = "plan",
              .summary = "what does each technique save, and what does it cost?",
              .description = "Simulates the training of MODEL as it is, then with each technique "
                             "that saves memory, alone and after "
                             "those before it: what is free first, then what costs time. With "
                             "--plan it begins with that plan.\n\n"
                             "With --budget it finds the fastest plan that reserves no more memory "
                             "than that, for simulate and train.\n\n"
                             "A plan is a file that describes how a model is trained: types, "
                             "kernels, micro-batches, what is kept "
                             "elsewhere, and what each block computes again. simulate and train "
                             "read it with --plan and write it "
                             "with --write-plan.\n\ntessera plan show FILE prints a plan in its "
                             "canonical form, with its hash; "
                             "tessera plan show FILE MODEL also simulates MODEL without it, with "
                             "each of its choices alone, and "
                             "with the choices one after another. (A model's folder that is called "
                             "show is ./show.) With --ds-config, a DeepSpeed configuration "
                             "is the plan, and FILE is left out.",
              CLI_PARAMETERS(plan_parameters),
              .examples =
                  {{"tessera plan gpt2 --batch 4 --gpu t4 --budget 3GiB",
                    "what has to change so that it fits, and what does that cost?"},
                   {"tessera plan gpt2 --batch 4 --seq 512",
                    "what would each technique save, and what would it cost?"},
                   {"tessera simulate gpt2 --dtype bf16 --checkpoint full --write-plan plan.json",
                    "write a plan"},
                   {"tessera plan show plan.json gpt2 --batch 8",
                    "what does it save, and at which price?"}}},
    .operands = "MODEL | show FILE [MODEL]",
    .operand_min = 0, /* with --parameters */
    .operand_max = 3,
    .answers = true,
    .lacks = "color verbose quiet",
    .run = cli_plan,
};

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

/* "412 ms", or "-" without a time. */
static const char *time_text(double seconds, char text[SIZE_BYTES]) {
  if (seconds <= 0)
    (void)snprintf(text, SIZE_BYTES, "-");
  else
    (void)snprintf(text, SIZE_BYTES, seconds >= 1 ? "%.2f s" : "%.0f ms",
                   seconds >= 1 ? seconds : seconds * 1000);
  return text;
}

static int put_verdict(cli_session *session, const char *model, const tsr_run_plan_effects *e) {
  char line[LINE_BYTES], peak[SIZE_BYTES], saved[SIZE_BYTES], before[SIZE_BYTES];
  char time[SIZE_BYTES], time_before[SIZE_BYTES];
  tsr_size_text(e->with.peak_bytes, peak, sizeof peak);
  saved_text(e->without.peak_bytes, e->with.peak_bytes, saved);
  (void)snprintf(line, sizeof line,
                 "%.200s: peak %s with this plan, %s without it: saves %s, for %.1f %% more "
                 "operations.\n",
                 model, peak, tsr_size_text(e->without.peak_bytes, before, sizeof before), saved,
                 extra_percent(&e->with));
  int status = cli_put(session, line);
  (void)snprintf(line, sizeof line, "  a step takes about %s, and %s without it (estimate)\n",
                 time_text(e->with.step_seconds, time),
                 time_text(e->without.step_seconds, time_before));
  if (status == 0 && e->with.step_seconds > 0) status = cli_put(session, line);
  return status ? status : cli_put(session, "\n");
}

static int put_choice(cli_session *session, const tsr_run_plan_effect *e,
                      const tsr_run_plan_cost *last, const tsr_run_plan_cost *without) {
  char line[LINE_BYTES], peak[SIZE_BYTES] = "-", saved[SIZE_BYTES] = "-", alone[SIZE_BYTES] = "-",
                         time[SIZE_BYTES] = "-";
  if (e->so_far.is_possible) {
    tsr_size_text(e->so_far.peak_bytes, peak, sizeof peak);
    time_text(e->so_far.step_seconds, time);
    saved_text(last->peak_bytes, e->so_far.peak_bytes, saved);
  }
  if (e->alone.is_possible) saved_text(without->peak_bytes, e->alone.peak_bytes, alone);
  (void)snprintf(line, sizeof line, "  %-40.40s %12s %12s %8.1f %% %9s %14s\n", e->name, peak,
                 saved, extra_percent(&e->so_far), time, alone);
  return cli_put(session, line);
}

static int put_text(cli_session *session, const tsr_run_plan *plan, const char *model,
                    const tsr_run_plan_effects *e) {
  char line[LINE_BYTES];
  int status = model ? put_verdict(session, model, e) : 0;
  (void)snprintf(line, sizeof line, "plan %s\n", tsr_run_plan_hash(plan));
  if (status == 0) status = cli_put(session, line);
  if (status == 0) status = cli_put(session, tsr_run_plan_text(plan));
  if (status || !model || !e->count) return status;
  (void)snprintf(line, sizeof line, "\n  %-40s %12s %12s %10s %9s %14s\n", "choice", "peak so far",
                 "saved", "operations", "a step", "saved alone");
  status = cli_put(session, line);
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
                   ",\"step_flops\":%" PRIu64 ",\"step_recomputed_flops\":%" PRIu64
                   ",\"step_time_us\":%.0f}",
                   key, cost->peak_bytes, cost->reserved_bytes, cost->step_flops,
                   cost->recomputed_flops, cost->step_seconds * 1e6);
  return cli_put(session, line);
}

static int put_effects(cli_session *session, const tsr_run_plan_effects *e) {
  char line[LINE_BYTES];
  int status = cli_put(session, ",");
  if (status == 0) status = put_cost(session, "without", &e->without);
  if (status == 0) status = cli_put(session, ",");
  if (status == 0) status = put_cost(session, "with", &e->with);
  if (status == 0) status = cli_put(session, ",\"choices\":[");
  for (size_t i = 0; status == 0 && i < e->count; i++) {
    (void)snprintf(line, sizeof line, "%s{\"choice\":\"%s\",", i ? "," : "", e->choices[i].name);
    status = cli_put(session, line);
    if (status == 0) status = put_cost(session, "alone", &e->choices[i].alone);
    if (status == 0) status = cli_put(session, ",");
    if (status == 0) status = put_cost(session, "so_far", &e->choices[i].so_far);
    if (status == 0) status = cli_put(session, "}");
  }
  return status ? status : cli_put(session, "]");
}

static int put_json(cli_session *session, const tsr_run_plan *plan, const char *model,
                    const tsr_run_plan_effects *e) {
  char line[LINE_BYTES];
  (void)snprintf(line, sizeof line,
                 "{\"schema\":\"tessera/1\",\"command\":\"plan\",\"plan_hash\":\"%s\",\"plan\":",
                 tsr_run_plan_hash(plan));
  int status = cli_put(session, line);
  if (status == 0) status = cli_put(session, tsr_run_plan_text(plan));
  if (status == 0 && model) status = put_effects(session, e);
  return status ? status : cli_put(session, "}\n");
}

/* ---- every technique ---- */

static int put_technique(cli_session *session, const tsr_technique *t,
                         const tsr_run_plan_cost *without) {
  char line[LINE_BYTES], alone[SIZE_BYTES] = "-", alone_time[SIZE_BYTES] = "-",
                         peak[SIZE_BYTES] = "-", time[SIZE_BYTES] = "-";
  if (t->alone.is_possible) {
    saved_text(without->peak_bytes, t->alone.peak_bytes, alone);
    (void)snprintf(alone_time, sizeof alone_time, "%+.1f %%",
                   without->step_seconds > 0
                       ? 100 * (t->alone.step_seconds / without->step_seconds - 1)
                       : 0.0);
  }
  if (t->so_far.is_possible) {
    tsr_size_text(t->so_far.peak_bytes, peak, sizeof peak);
    time_text(t->so_far.step_seconds, time);
  }
  (void)snprintf(line, sizeof line, "  %-28s %12s %9s %12s %9s\n", t->name, alone, alone_time, peak,
                 time);
  return cli_put(session, line);
}

static int put_techniques_text(cli_session *session, const char *model, const tsr_techniques *all) {
  char line[LINE_BYTES], peak[SIZE_BYTES], time[SIZE_BYTES], least[SIZE_BYTES];
  uint64_t lowest = all->without.peak_bytes, free_lowest = lowest;
  for (size_t i = 0; i < all->count; i++) {
    const tsr_technique *t = &all->items[i];
    if (!t->so_far.is_possible) continue;
    if (t->so_far.peak_bytes < lowest) lowest = t->so_far.peak_bytes;
    if (t->is_free && t->so_far.peak_bytes < free_lowest) free_lowest = t->so_far.peak_bytes;
  }
  char free_text[SIZE_BYTES];
  (void)snprintf(line, sizeof line,
                 "%.200s: peak %s as it is; %s with what costs no time; %s with everything.\n"
                 "  a step takes about %s on the %s (estimate)\n\n",
                 model, tsr_size_text(all->without.peak_bytes, peak, sizeof peak),
                 tsr_size_text(free_lowest, free_text, sizeof free_text),
                 tsr_size_text(lowest, least, sizeof least),
                 time_text(all->without.step_seconds, time), all->gpu_title);
  int status = cli_put(session, line);
  (void)snprintf(line, sizeof line, "  %-28s %12s %9s %12s %9s\n", "technique", "alone saves",
                 "time", "peak so far", "a step");
  if (status == 0) status = cli_put(session, line);
  for (size_t i = 0; status == 0 && i < all->count; i++)
    status = put_technique(session, &all->items[i], &all->without);
  if (status == 0)
    status = cli_put(
        session,
        "\n'-' where the model or a choice before it does not allow a technique. \"so far\" "
        "includes those above;\nof two that exclude one another, the later counts.\n");
  return status;
}

static int put_techniques_json(cli_session *session, const tsr_techniques *all) {
  char line[LINE_BYTES];
  (void)snprintf(line, sizeof line,
                 "{\"schema\":\"tessera/1\",\"command\":\"plan\",\"gpu\":\"%s\",", all->gpu_title);
  int status = cli_put(session, line);
  if (status == 0) status = put_cost(session, "without", &all->without);
  if (status == 0) status = cli_put(session, ",\"techniques\":[");
  for (size_t i = 0; status == 0 && i < all->count; i++) {
    const tsr_technique *t = &all->items[i];
    (void)snprintf(line, sizeof line, "%s{\"technique\":\"%s\",\"choice\":%s,\"is_free\":%s,",
                   i ? "," : "", t->name, t->choice, t->is_free ? "true" : "false");
    status = cli_put(session, line);
    if (status == 0) status = put_cost(session, "alone", &t->alone);
    if (status == 0) status = cli_put(session, ",");
    if (status == 0) status = put_cost(session, "so_far", &t->so_far);
    if (status == 0) status = cli_put(session, "}");
  }
  return status ? status : cli_put(session, "]}\n");
}

/* ---- the command ---- */

static tsr_simulate_options options_of(const tsr_params *own) {
  tsr_simulate_options how = {.struct_bytes = sizeof how,
                              .batch = tsr_params_count(own, "batch"),
                              .sequence = tsr_params_count(own, "seq"),
                              .steps = tsr_params_count(own, "steps")};
  how.gpu = tsr_params_gpu(own);
  const tsr_model *model = tsr_params_object(own, "model", &tsr_model_type);
  bool is_traced = model && tsr_model_is_traced(model); /* has a card of its own */
  if (!how.gpu && !is_traced) how.gpu = "a100";
  how.book = tsr_params_choice(own, "book") == TSR_BOOK_OWN ? TSR_BOOK_OWN : TSR_BOOK_TORCH;
  return how;
}

static int explained(cli_session *session, int status) {
  bool is_of_options =
      status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED || status == TSR_ERROR_LIMIT;
  return is_of_options ? cli_usage_error(session->options->command, "%s", session->error.message)
                       : status;
}

static int find_link(cli_session *session, const tsr_run_plan *plan, tsr_simulate_options *how) {
  tsr_simulate_options whole = *how;
  tsr_run_plan_options(plan, &whole);
  int status = tsr_params_link(session->options->own, &whole, &session->error);
  how->link_bytes_per_s = whole.link_bytes_per_s;
  return explained(session, status);
}

static int show(cli_session *session, const char *model, const tsr_run_plan *plan) {
  const tsr_params *own = session->options->own;
  tsr_simulate_options how = options_of(own);
  int status = find_link(session, plan, &how);
  if (status) return status;
  tsr_run_plan_effects *effects = calloc(1, sizeof *effects);
  if (!effects) return TSR_ERROR_MEMORY;
  if (model)
    status = explained(session,
                       tsr_run_plan_explain(plan, tsr_params_object(own, "model", &tsr_model_type),
                                            &how, effects, &session->error));
  bool is_json = session->report.format == TSR_REPORT_JSON;
  if (status == 0) status = (is_json ? put_json : put_text)(session, plan, model, effects);
  free(effects);
  return status;
}

/* Each asks something else; one answer is given. */
static int check_together(const cli_session *session) {
  static const char *const pairs[][2] = {
      {"compare", "budget"}, {"compare", "front"},   {"compare", "for"}, {"explain", "budget"},
      {"explain", "front"},  {"explain", "compare"}, {"front", "for"},   {"front", "largest"}};
  const tsr_params *own = session->options->own;
  const cli_command *command = session->options->command;
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    if (tsr_params_has(own, pairs[i][0]) && tsr_params_has(own, pairs[i][1]))
      return cli_usage_error(command, "--%s and --%s ask different questions", pairs[i][0],
                             pairs[i][1]);
  if (tsr_params_has(own, "for") && session->report.format == TSR_REPORT_JSON)
    return cli_usage_error(command, "--for prints text for another program, and not JSON");
  if (!tsr_params_count(own, "batch") || !tsr_params_count(own, "seq") ||
      !tsr_params_count(own, "steps") || !tsr_params_count(own, "gpus"))
    return cli_usage_error(command, "--batch, --seq, --steps and --gpus must be at least 1");
  bool is_search = tsr_params_has(own, "budget") || tsr_params_has(own, "front");
  if (is_search && tsr_params_count(own, "steps") < 2)
    return cli_usage_error(command, "--steps must be at least 2 for --budget and --front: the "
                                    "first step lacks the optimizer's state");
  return 0;
}

/* Options that mean nothing by themselves. */
static int check_alone(const cli_session *session) {
  static const struct {
    const char *name, *option, *other;
  } needs[] = {{"write_plan", "write-plan", "budget"},
               {"largest", "largest", "budget"},
               {"write_model", "write-model", "largest"},
               {"gpus_per_node", "gpus-per-node", "compare"},
               {"tp", "tp", "compare"},
               {"lora_rank", "lora-rank", "compare"},
               {"parameters", "parameters", "compare"},
               {"largest_layer", "largest-layer", "parameters"},
               {"write_front", "write-front", "front"}};
  const tsr_params *own = session->options->own;
  const cli_command *command = session->options->command;
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
    if (tsr_params_has(own, needs[i].name) && !tsr_params_has(own, needs[i].other))
      return cli_usage_error(command, "option '--%s' needs --%s", needs[i].option, needs[i].other);
  static const char *const of_search[] = {"allow", "from"};
  bool is_search = tsr_params_has(own, "budget") || tsr_params_has(own, "front");
  for (size_t i = 0; i < sizeof of_search / sizeof *of_search && !is_search; i++)
    if (tsr_params_has(own, of_search[i]))
      return cli_usage_error(command, "option '--%s' needs --budget or --front", of_search[i]);
  if (tsr_params_has(own, "from") && tsr_params_has(own, "rates"))
    return cli_usage_error(command, "--from and --rates both say how long a step takes");
  return 0;
}

/* Of a traced step, the program has decided the rest. */
static int check_traced(const cli_session *session) {
  static const char *const decided[] = {"batch",   "seq",   "book", "compare", "explain",
                                        "largest", "rates", "gpus", "link",    "ds_config"};
  const tsr_params *own = session->options->own;
  const cli_command *command = session->options->command;
  if (!tsr_params_object(own, "model", &tsr_model_type)) return 0;
  if (!tsr_model_is_traced(tsr_params_object(own, "model", &tsr_model_type))) return 0;
  for (size_t i = 0; i < sizeof decided / sizeof *decided; i++)
    if (tsr_params_has(own, decided[i]))
      return cli_usage_error(command, "option '--%s' does not apply to a step graph: trace another",
                             decided[i]);
  if (tsr_params_has(own, "budget") || tsr_params_has(own, "front")) return 0;
  return cli_usage_error(command, "with a step graph, plan needs --budget or --front");
}

/* A number of parameters is enough for formulas of states. */
static int check_model(const cli_session *session) {
  const cli_command *command = session->options->command;
  bool has_model = tsr_params_has(session->options->own, "model");
  bool has_parameters = tsr_params_has(session->options->own, "parameters");
  if (has_model && has_parameters)
    return cli_usage_error(command, "--parameters replaces MODEL: give one of them");
  return has_model || has_parameters ? 0 : cli_usage_error(command, "missing MODEL");
}

static int list(cli_session *session, const char *model, const tsr_run_plan *plan) {
  const tsr_params *own = session->options->own;
  tsr_simulate_options how = options_of(own);
  tsr_rates *rates = NULL;
  int status = check_alone(session);
  if (status == 0) status = check_model(session);
  if (status == 0) status = check_together(session);
  if (status == 0) status = check_traced(session);
  if (status == 0) status = tsr_params_rates(own, &rates, &session->error);
  if (status == 0) status = find_link(session, plan, &how);
  how.rates = rates;
  bool compares = tsr_params_flag(own, "compare");
  bool is_search =
      tsr_params_has(own, "budget") || tsr_params_has(own, "front") || tsr_params_has(own, "for");
  if (status == 0 && (compares || is_search)) {
    status = (compares ? cli_plan_compare : cli_plan_search)(session, model, plan, &how);
    tsr_rates_free(rates);
    return status;
  }
  tsr_techniques *all = status ? NULL : calloc(1, sizeof *all);
  if (status == 0 && !all) status = TSR_ERROR_MEMORY;
  if (status == 0)
    status = explained(session,
                       tsr_plan_techniques(plan, tsr_params_object(own, "model", &tsr_model_type),
                                           &how, all, &session->error));
  if (status == 0)
    status = session->report.format == TSR_REPORT_JSON ? put_techniques_json(session, all)
                                                       : put_techniques_text(session, model, all);
  tsr_rates_free(rates);
  free(all);
  return status;
}

/* FILE of `show FILE [MODEL]`. */
static int take_file(const cli_options *options) {
  tsr_error error = {.status = TSR_OK};
  if (options->operand_count < 2) return cli_usage_error(options->command, "missing FILE");
  int status = tsr_params_set_path(options->own, "plan", options->operands[1], &error);
  return status ? cli_params_error(options->command, status, &error) : 0;
}

/* --gpus is --ranks: users count cards, and a plan counts ranks, of which each has a card. One card is a process alone. */
static int take_cards(const cli_options *options) {
  tsr_params *own = options->own;
  tsr_error error = {.status = TSR_OK};
  if (!tsr_params_has(own, "gpus") || tsr_params_flag(own, "compare")) return 0;
  uint64_t cards = tsr_params_count(own, "gpus");
  if (tsr_params_has(own, "ranks") && tsr_params_count(own, "ranks") != cards)
    return cli_usage_error(options->command,
                           "--gpus and --ranks both say how many cards there are");
  int status = tsr_params_set_integer(own, "ranks", cards > 1 ? (int64_t)cards : 0, &error);
  return status ? cli_params_error(options->command, status, &error) : 0;
}

int cli_plan(cli_session *session) {
  const cli_options *options = session->options;
  bool is_show = options->operand_count && strcmp(options->operands[0], "show") == 0;
  bool has_file = is_show && !tsr_params_has(options->own, "ds_config");
  size_t before = (size_t)is_show + has_file; /* operands before the model */
  int status = has_file ? take_file(options) : 0;
  if (status == 0) status = take_cards(options);
  if (status == 0)
    status = cli_read_ds_config(session, (tsr_ds_config_how){.note = cli_say_ds_note});
  if (status == 0 && options->operand_count > before + 1)
    status =
        cli_usage_error(options->command, "unexpected operand '%s'", options->operands[before + 1]);
  if (status == 0) status = cli_read_parameters(session, before);
  bool is_page = tsr_params_flag(options->own, "front") && cli_plan_front_is_file(options->output);
  if (status == 0 && !is_page) status = cli_choose_format(session);
  if (status) return status;
  const char *model = options->operand_count > before ? options->operands[before] : NULL;
  tsr_run_plan *plan = NULL; /* to begin with */
  status = explained(session, tsr_run_plan_of(options->own, &plan, &session->error));
  if (status == 0) status = (is_show ? show : list)(session, model, plan);
  tsr_run_plan_free(plan);
  return status;
}
