/* question.c - the row of "plan": what to change so that a training run fits, and what each technique saves and
 * costs. */
#include <stdio.h>
#include <string.h>

#include "plan/paste.h"
#include "questions/plan/plan.h"
#include "questions/reports.h"
#include "tessera/unstable/runs.h"

static const tsr_parameter parameters[] = {
    {.name = "show",
     .is_operand = true,
     .is_optional = true,
     .kind = TSR_PARAMETER_FLAG,
     .help =
         "Show the plan in its canonical form, with its hash; and with a model, what each of its "
         "choices does."},
    {.name = "model",
     .is_operand = true,
     .is_optional = true,
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
     .help =
         "Find the fastest plan that reserves at most this: 24GiB; of a whole card, at most what "
         "--outside leaves. Exits with 1 if nothing fits."},
    {.name = "host_budget",
     .option = "host-budget",
     .kind = TSR_PARAMETER_BYTES,
     .argument = "SIZE",
     .example = "256GiB",
     .help =
         "With --budget, --largest or --front, what plans may keep on the host of each machine, "
         "for all of its cards (default: no limit)."},
    {.name = "allow",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "LIST",
     .example = "recompute,offload",
     .help = "With --budget, what may be changed (default: what leaves results unchanged): %s; or "
             "all, or none.",
     .word = tsr_allow_word},
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
     .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON,
     .argument = "FILE",
     .help = "With --largest model, write its config.json to FILE, for train and simulate."},
    {.name = "front",
     .kind = TSR_PARAMETER_FLAG,
     .help = "List the fastest plan for less and less memory."},
    {.name = "write_front",
     .option = "write-front",
     .kind = TSR_PARAMETER_PATH,
     .is_written = true,
     .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON,
     .argument = "FILE",
     .help =
         "With --front, write the list to FILE: a page if its name ends in .html, else CSV. Both "
         "have the plans. -o does so instead of the list, for names that end in .html or .csv."},
    {.name = "ways",
     .kind = TSR_PARAMETER_FLAG,
     .help =
         "List the ways to run MODEL that a search compares: all that --allow leads to, without "
         "what blocks recompute; with --largest, those of a search for sizes. With --json also "
         "what bounds of the plan to begin with are computed from."},
    {.name = "for",
     .kind = TSR_PARAMETER_CHOICES,
     .argument = "TARGET",
     .help = "Print the plan that --budget finds, or that --plan has, as settings of another "
             "program: %s. "
             "Repeated, each text has a heading; -o FOLDER/ makes a file of each.",
     .word = tsr_target_word,
     .choices = tsr_target_names},
    {.name = "write_plan",
     .option = "write-plan",
     .kind = TSR_PARAMETER_PATH,
     .is_written = true,
     .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON,
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
     .help = "The card that times are estimated for: %s (default: a100, h100 for products in "
             "FP8, or the card of a step graph).",
     .word = tsr_gpu_word,
     .choices = tsr_gpu_names},
    {.rows = tsr_run_traced},
    {.name = "rates",
     .kind = TSR_PARAMETER_FILE,
     .argument = "FILE",
     .help = "Estimate times for the machine on which train --write-rates wrote FILE, from its "
             "measured "
             "rates."},
    {.rows = tsr_run_link},
    {.rows = tsr_run_outside},
    {.name = "from",
     .kind = TSR_PARAMETER_SNAPSHOT,
     .argument = "SNAPSHOT",
     .help =
         "With --budget, --largest or --front, a recorded run of MODEL: times become those of its "
         "steps, and what it has at its peak beyond the prediction is taken from the budget."},
    {.name = "book",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "OPS",
     .help = "Which kernels are modelled: PyTorch's (torch, default), or tessera's own (own), "
             "which train runs.",
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
    {.rows = tsr_run_limits},
    {.rows = tsr_run_options},
    {.rows = tsr_ds_config_parameter},
};

/* ---- parameters that depend on each other ---- */

/* Fail with a message about parameters `a` and `b`; `form` contains %s for each name. */
static int fail_pair(const tsr_params *params, const char *form, const char *a, const char *b,
                     tsr_error *error) {
  char format[160];
  (void)snprintf(format, sizeof format, form, a, b);
  return tsr_params_fail(params, error, format, "");
}

/* Whether plans are searched, or what is searched is listed. */
static bool is_search(const tsr_params *own) {
  return tsr_params_has(own, "budget") || tsr_params_has(own, "front") ||
         tsr_params_flag(own, "ways");
}

/* Refuse two parameters that ask different questions. */
static int check_together(const tsr_params *own, tsr_error *error) {
  static const char *const pairs[][2] = {
      {"compare", "budget"}, {"compare", "front"},   {"compare", "for"},  {"explain", "budget"},
      {"explain", "front"},  {"explain", "compare"}, {"front", "for"},    {"front", "largest"},
      {"ways", "budget"},    {"ways", "front"},      {"ways", "compare"}, {"ways", "explain"}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    if (tsr_params_has(own, pairs[i][0]) && tsr_params_has(own, pairs[i][1]))
      return fail_pair(own, "{%s} and {%s} ask different questions%%s", pairs[i][0], pairs[i][1],
                       error);
  if (!tsr_params_count(own, "batch") || !tsr_params_count(own, "seq") ||
      !tsr_params_count(own, "steps") || !tsr_params_count(own, "gpus"))
    return tsr_params_fail(own, error, "{batch}, {seq}, {steps} and {gpus} must be at least 1");
  if (is_search(own) && tsr_params_count(own, "steps") < 2)
    return tsr_params_fail(own, error,
                           "{steps} must be at least 2 for {budget} and {front}: the first step "
                           "lacks the optimizer's state");
  return 0;
}

/* Refuse parameters that need another one. */
static int check_alone(const tsr_params *own, tsr_error *error) {
  static const char *const needs[][2] = {
      {"write_plan", "budget"},       {"write_model", "largest"}, {"tp", "compare"},
      {"lora_rank", "compare"},       {"parameters", "compare"},  {"write_front", "front"},
      {"largest_layer", "parameters"}};
  static const char *const of_search[] = {"allow", "from", "host_budget"};
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
    if (tsr_params_has(own, needs[i][0]) && !tsr_params_has(own, needs[i][1]))
      return fail_pair(own, "{=%s} needs {%s}%%s", needs[i][0], needs[i][1], error);
  for (size_t i = 0; i < sizeof of_search / sizeof *of_search && !is_search(own); i++)
    if (tsr_params_has(own, of_search[i]))
      return fail_pair(own, "{=%s} needs {budget} or {%s}%%s", of_search[i], "front", error);
  if (tsr_params_has(own, "largest") && !tsr_params_has(own, "budget") &&
      !tsr_params_flag(own, "ways"))
    return fail_pair(own, "{=%s} needs {%s}%%s", "largest", "budget", error);
  if (tsr_params_has(own, "from") && tsr_params_has(own, "rates"))
    return tsr_params_fail(own, error, "{from} and {rates} both say how long a step takes");
  if (tsr_params_has(own, "write_model") && tsr_params_choice(own, "largest") != TSR_LARGEST_MODEL)
    return tsr_params_fail(own, error, "{=write_model} needs {largest} model");
  return 0;
}

/* A traced step fixes everything else. */
static int check_traced(const tsr_params *own, tsr_error *error) {
  static const char *const decided[] = {
      "batch", "seq",           "book",    "compare", "explain",   "largest", "rates",  "gpus",
      "link",  "gpus_per_node", "network", "latency", "ds_config", "padding", "routing"};
  const tsr_model *model = tsr_params_object(own, "model", &tsr_model_type);
  size_t target_count;
  const char *const *targets = tsr_params_texts(own, "for", &target_count);
  if (model && !tsr_model_is_traced(model) && tsr_params_flag(own, "padding"))
    return tsr_params_fail(own, error, "{=padding} needs a trace of the model");
  if (model && !tsr_model_is_traced(model) && tsr_params_has(own, "routing"))
    return tsr_params_fail(own, error, "{=routing} is for models with experts, which are traced");
  if (!model || !tsr_model_is_traced(model)) return 0;
  for (size_t i = 0; i < sizeof decided / sizeof *decided; i++)
    if (tsr_params_has(own, decided[i]))
      return fail_pair(own, "{=%s} does not apply to a step graph: trace another%s%%s", decided[i],
                       "", error);
  for (size_t i = 0; i < target_count; i++) {
    int status = tsr__target_check(targets[i], model, error);
    if (status) return status;
  }
  if (is_search(own)) return 0;
  return tsr_params_fail(own, error,
                         "plan needs {budget} or {front} for a traced model or a step graph");
}

/* Formulas for states need only the number of parameters. */
static int check_model(const tsr_params *own, tsr_error *error) {
  bool has_model = tsr_params_has(own, "model"), has_count = tsr_params_has(own, "parameters");
  if (has_model && has_count)
    return tsr_params_fail(own, error, "{parameters} replaces {model}: give one of them");
  return has_model || has_count ? 0 : tsr_params_fail(own, error, "missing {model}");
}

/* Users count cards. A plan counts ranks, with a card each; formulas count cards directly. */
static int check_cards(const tsr_params *own, tsr_error *error) {
  uint64_t cards = tsr_params_count(own, "gpus"), a_node = tsr_params_count(own, "gpus_per_node");
  uint64_t tensor_cards = tsr_params_count(own, "tp");
  if (!tsr_params_flag(own, "compare")) {
    bool is_other = tsr_params_has(own, "ranks") && tsr_params_count(own, "ranks") != cards;
    return tsr_params_has(own, "gpus") && is_other
               ? tsr_params_fail(own, error, "{gpus} and {ranks} both say how many cards there are")
               : 0;
  }
  if (a_node && cards % a_node)
    return tsr_params_fail(own, error, "{gpus} must be a multiple of {gpus_per_node}");
  if (!tensor_cards || cards % tensor_cards)
    return tsr_params_fail(own, error, "{gpus} must be a multiple of {tp}");
  return 0;
}

static int check(const tsr_params *params, tsr_error *error) {
  const char *allow = tsr_params_text(params, "allow");
  unsigned allowed = 0, parts = TSR_ALLOW_ALL_BLOCKS | TSR_ALLOW_RECOMPUTE;
  const tsr_model *model = tsr_params_object(params, "model", &tsr_model_type);
  int status = check_cards(params, error);
  if (status || tsr_params_flag(params, "show")) return status;
  status = check_alone(params, error);
  if (status == 0) status = check_model(params, error);
  if (status == 0) status = check_together(params, error);
  if (status == 0) status = check_traced(params, error);
  if (status == 0) status = tsr_params_check_card(params, "budget", error);
  if (status || !allow) return status;
  status = tsr_allow_parse(allow, &allowed, error);
  if (status == 0 && model && tsr_model_is_traced(model) &&
      (allowed & parts) == TSR_ALLOW_ALL_BLOCKS)
    return tsr_params_fail(
        params, error,
        "all-blocks does not apply to a traced model: its modules are chosen one "
        "by one ({allow} recompute)");
  return status;
}

static void release(void *value) {
  tsr__plan_value_free(value);
}

static int report(const tsr__report_call *call, tsr_error *error) {
  return tsr__report_plan(call, error);
}

static bool passed(const void *value) {
  const tsr_plan_answer *answer = value;
  return answer->fits;
}

static const char *const forms[] = {"plan", "model", "csv", "html", NULL};

const tsr__question_row tsr__question_plan = {
    .about = {.name = "plan",
              .summary = "what does each technique save, and what does it cost?",
              .situation = TSR_SITUATION_FORECAST,
              .main_options = "budget allow largest gpu batch seq dtype optimizer attention for "
                              "write-plan compare gpus",
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
              TSR__PARAMETERS(parameters),
              .examples =
                  {{"tessera plan gpt2 --batch 4 --gpu t4 --budget 3GiB",
                    "what has to change so that it fits, and what does that cost?"},
                   {"tessera plan gpt2 --batch 4 --seq 512",
                    "what would each technique save, and what would it cost?"},
                   {"tessera simulate gpt2 --dtype bf16 --checkpoint full --write-plan plan.json",
                    "write a plan"},
                   {"tessera plan show plan.json gpt2 --batch 8",
                    "what does it save, and at which price?"}},
              .title = "What to change so that a training fits",
              .advice =
                  "Find the fastest way to train a model within a memory budget, before anything "
                  "runs: which kernels, micro-batches, recomputation or offloading to use, what "
                  "each saves and costs, and a proof if nothing fits. Without a budget: what each "
                  "technique saves and costs. model is a name such as gpt2 or llama-3-8b, the path "
                  "of a config.json or step graph, or the text of a config.json. With for, the "
                  "plan in the words of another program."},
    .fields = &tsr__fields_plan,
    .check = check,
    .ask = tsr__ask_plan,
    .report = report,
    .free = release,
    .passed = passed,
    .forms = forms,
    .form = tsr__form_plan,
};
