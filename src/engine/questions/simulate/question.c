/* question.c - the row of "simulate": what a training run needs, before anything has run. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "ask/question.h"
#include "base/error.h"
#include "base/format.h"
#include "base/memory.h"
#include "base/number.h"
#include "exec/card.h"
#include "exec/simulate.h"
#include "questions/outside.h"
#include "questions/reports.h"
#include "tessera/unstable/runs.h"
#include "tessera/unstable/simulation.h"

static const tsr_parameter parameters[] = {
    {.name = "model",
     .is_operand = true,
     .kind = TSR_PARAMETER_OBJECT,
     .type = &tsr_model_type,
     .argument = "MODEL",
     .help = "A model's name, its config.json, or a step graph."},
    {.name = "settings",
     .option = "set",
     .kind = TSR_PARAMETER_SETTING,
     .argument = "CONF",
     .help = "Allocator settings of the run, in the syntax of PYTORCH_CUDA_ALLOC_CONF."},
    {.name = "capacity",
     .kind = TSR_PARAMETER_BYTES,
     .argument = "SIZE",
     .help =
         "Memory of the card that PyTorch may use, such as 40GiB (default: unlimited). Of a whole "
         "card, it may use what --outside leaves. A run that needs more ends in an oom event."},
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
     .help = "Optimizer steps (default: 3; the first has no optimizer state yet).",
     .fallback = 3,
     .least = 1},
    {.name = "eval_steps",
     .option = "eval-steps",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help =
         "Evaluate after every N steps: without gradients and dropout, batch after batch, while "
         "gradients and outputs of the training step are still there (default: never).",
     .least = 1},
    {.name = "eval_batch",
     .option = "eval-batch",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Sequences per batch of an evaluation (default: as many as in a forward of training).",
     .least = 1},
    TSR_RUN_BOOK("torch"),
    {.rows = tsr_run_parameters},
    {.name = "rank",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Which of --ranks is simulated, from 0 (default). With -o, all of them are, and each "
             "has a "
             "snapshot of its own."},
    {.name = "gpu",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "CARD",
     .help =
         "The card: kernels and workspaces, what is left to PyTorch, and the time of a step: %s "
         "(default: an A100's memory, no time).",
     .word = tsr_gpu_word,
     .choices = tsr_gpu_names},
    {.rows = tsr_run_traced},
    {.name = "rates",
     .kind = TSR_PARAMETER_FILE,
     .argument = "FILE",
     .help = "Estimate the time of a step for the machine on which train --write-rates wrote FILE, "
             "from "
             "its measured rates."},
    {.rows = tsr_run_link},
    {.rows = tsr_run_outside},
    {.name = "fresh_process",
     .option = "fresh-process",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Assume that nothing ran before the recording, so that cuBLAS allocates its "
             "workspaces during it."},
    {.name = "checkpoint_modules",
     .option = "checkpoint-modules",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "LIST",
     .help =
         "For a step graph: checkpoint each call of the modules with these names or classes, such "
         "as model.layers.* or LlamaDecoderLayer, with use_reentrant=False. Several have commas "
         "between them, and the option may be repeated."},
    {.name = "offload_modules",
     .option = "offload-modules",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "LIST",
     .help =
         "For a step graph: keep what these modules, in a list of the same form, save for backward "
         "in the host's memory, as torch.autograd.graph.save_on_cpu() does."},
    {.name = "optimizer_form",
     .option = "optimizer-form",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "FORM",
     .help = "For a step graph: whether the optimizer works on lists of tensors (foreach), on one "
             "parameter after another (loop), or in one kernel (fused).",
     .choices = (const char *const[]){"foreach", "loop", "fused", NULL}},
    {.name = "categories",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Write the true category of each allocation into the snapshot."},
};

static_assert(TSR_LEAK_NONE == 0 && TSR_LEAK_GRAPH == 1 && TSR_LEAK_OUTPUTS == 2 &&
                  TSR_LEAK_SHELL == 3 && TSR_LEAK_BATCHES == 4,
              "the words of `leak` are in the order of its enum");
static_assert(TSR_OPTIMIZER_FORM_TRACED == 0 && TSR_OPTIMIZER_FORM_FOREACH == 1 &&
                  TSR_OPTIMIZER_FORM_LOOP == 2 && TSR_OPTIMIZER_FORM_FUSED == 3,
              "the words of `optimizer_form` are in the order of its enum, from 1");
static_assert(TSR_BOOK_TORCH == 0 && TSR_BOOK_OWN == 1,
              "the words of `book` are in the order of its enum");

typedef struct simulated {
  tsr_simulation *simulation;
  tsr_outside outside;
  uint64_t capacity_bytes, top;
} simulated;

bool tsr_simulate_is_open_to_traced(const char *name) {
  static const char *const open[] = {"model",
                                     "settings",
                                     "capacity",
                                     "steps",
                                     "plan",
                                     "gpu",
                                     "outside",
                                     "machine",
                                     "python",
                                     "profile",
                                     "fresh_process",
                                     "categories",
                                     "checkpoint_modules",
                                     "offload_modules",
                                     "optimizer_form"};
  for (size_t i = 0; i < sizeof open / sizeof *open; i++)
    if (strcmp(name, open[i]) == 0) return true;
  return false;
}

/* A traced step fixes everything else. */
static int check_traced(const tsr_params *params, tsr_error *error) {
  const tsr_parameter *row;
  for (size_t i = 0; (row = tsr_params_row(params, i)); i++) {
    const char *name = row->name;
    if (tsr_simulate_is_open_to_traced(name) || !tsr_params_has(params, name)) continue;
    char format[96];
    (void)snprintf(format, sizeof format, "{=%s} does not apply to a step graph, which is %%s",
                   name);
    return tsr_params_fail(params, error, format, "simulated as it was traced");
  }
  return 0;
}

int tsr_params_check_card(const tsr_params *params, const char *limit, tsr_error *error) {
  tsr_gpu gpu;
  int index = tsr_params_choice(params, "gpu");
  uint64_t bytes = tsr_params_has(params, limit) ? tsr_params_count(params, limit) : 0;
  char asked[TSR__FORMAT_BYTES], has[TSR__FORMAT_BYTES], format[160];
  if (index < 0 || !tsr_gpu_at((size_t)index, &gpu) || bytes <= gpu.memory_bytes) return 0;
  (void)snprintf(format, sizeof format, "{=%s} of %s is more than the %s of an %s%%s", limit,
                 tsr__format_size(bytes, asked), tsr__format_size(gpu.memory_bytes, has),
                 gpu.title);
  return tsr_params_fail(params, error, format, "");
}

static int check(const tsr_params *params, tsr_error *error) {
  tsr_offload ignored;
  unsigned flags;
  const tsr_model *model = tsr_params_object(params, "model", &tsr_model_type);
  int status = model && tsr_model_is_traced(model) ? check_traced(params, error) : 0;
  if (status == 0 && model && tsr_params_flag(params, "padding"))
    status = tsr_params_fail(params, error, "{=padding} needs a trace of the model");
  if (status == 0 && model && tsr_params_has(params, "routing"))
    status =
        tsr_params_fail(params, error, "{=routing} is for models with experts, which are traced");
  if (status == 0) status = tsr_offload_parse(tsr_params_text(params, "offload"), &ignored, error);
  if (status == 0) status = tsr_in_place_parse(tsr_params_text(params, "in_place"), &flags, error);
  if (status == 0) status = tsr_params_check_card(params, "capacity", error);
  if (status) return status;
  bool has_batch = tsr_params_count(params, "batch") && tsr_params_count(params, "seq") &&
                   tsr_params_count(params, "accumulate");
  if (has_batch && tsr_params_count(params, "steps")) return 0;
  if (has_batch) return tsr_params_fail(params, error, "{steps} must be at least 1");
  return tsr_params_fail(params, error,
                         "{batch}, {seq}, {steps} and {accumulate} must be at least 1");
}

int tsr_simulate_options_of(const tsr_params *params, tsr_run_plan **plan,
                            tsr_simulate_options *out, tsr_error *error) {
  int leak = tsr_params_choice(params, "leak"), book = tsr_params_choice(params, "book");
  int status = tsr_run_plan_of(params, plan, error);
  if (status) return status;
  *out = (tsr_simulate_options){.struct_bytes = sizeof *out,
                                .batch = tsr_params_count(params, "batch"),
                                .sequence = tsr_params_count(params, "seq"),
                                .steps = tsr_params_count(params, "steps"),
                                .capacity_bytes = tsr_params_count(params, "capacity"),
                                .leak = leak < 0 ? TSR_LEAK_NONE : (tsr_simulate_leak)leak,
                                .book = book < 0 ? TSR_BOOK_TORCH : (tsr_simulate_book)book,
                                .profile = tsr_params_flag(params, "profile")};
  tsr_run_plan_options(*plan, out);
  return 0;
}

const char *tsr_params_gpu(const tsr_params *params) {
  tsr_gpu gpu;
  int index = tsr_params_choice(params, "gpu");
  return index >= 0 && tsr_gpu_at((size_t)index, &gpu) ? gpu.name : NULL;
}

uint64_t tsr_params_gpu_bytes(const tsr_params *params) {
  tsr_simulate_options how = {.ranks = tsr_params_count(params, "ranks"),
                              .replicas = tsr_params_count(params, "replicas"),
                              .ranks_per_node = tsr_params_count(params, "gpus_per_node")};
  const tsr__data_sheet *gpu = tsr__params_card(params, NULL);
  tsr_outside outside;
  if (tsr_params_find(params, "gpus", strlen("gpus")) &&
      tsr_params_count(params, "gpus") > how.ranks)
    how.ranks = tsr_params_count(params, "gpus");
  if (!gpu) return 0;
  int status = tsr__params_outside(params, NULL, NULL, &how, &outside, NULL);
  if (status || outside.source == TSR_OUTSIDE_NOT_COUNTED)
    outside = tsr__outside_by_table(gpu, &how);
  return tsr__card_safe_bytes(gpu, &outside);
}

int tsr_params_rates(const tsr_params *params, tsr_rates **out, tsr_error *error) {
  const char *path;
  size_t size;
  const char *text =
      tsr_params_has(params, "rates") ? tsr_params_file(params, "rates", &path, &size) : NULL;
  *out = NULL;
  int status = text ? tsr_rates_parse(text, size, out, error) : 0;
  if (status == 0 || !error) return status;
  tsr_error cause = *error;
  return tsr__fail(error, (tsr_status)status, cause.offset, "%.200s: %s", path, cause.message);
}

typedef struct unit {
  const char *name;
  double worth;
} unit;

/* Read a number and its unit, "50GB/s"; `*rest` is what follows after a comma, or NULL. */
static bool read_quantity(const char *text, const unit *units, double *out, const char **rest) {
  char digits[32], name[8];
  double number = 0;
  size_t length = strspn(text, "0123456789."), spaces = strspn(text + length, " ");
  const char *after = text + length + spaces;
  size_t name_length = strcspn(after, ",");
  if (!length || length >= sizeof digits || name_length >= sizeof name) return false;
  memcpy(digits, text, length);
  digits[length] = '\0';
  memcpy(name, after, name_length);
  name[name_length] = '\0';
  *rest = after[name_length] ? after + name_length + 1 : NULL;
  while (units->name && strcmp(name, units->name) != 0) units++;
  if (!units->name || !tsr__read_real(digits, &number) || !(number >= 0 && number <= 1e6))
    return false;
  *out = number * units->worth;
  return true;
}

static int read_rate(const tsr_params *params, const char *name, double *out, tsr_error *error) {
  static const unit units[] = {{"GB/s", 1e9}, {"Gb/s", 1e9 / 8}, {NULL, 0}};
  const char *text = tsr_params_text(params, name), *rest = NULL;
  char format[96];
  *out = 0;
  if (!text) return 0;
  if (read_quantity(text, units, out, &rest) && *out > 0 && !rest) return 0;
  (void)snprintf(format, sizeof format,
                 "{=%s} takes a rate such as 50GB/s or 400Gb/s, not '%%.40s'", name);
  return tsr_params_fail(params, error, format, text);
}

static int read_latency(const tsr_params *params, tsr_simulate_options *how, tsr_error *error) {
  static const unit units[] = {{"us", 1e-6}, {"ms", 1e-3}, {"ns", 1e-9}, {NULL, 0}};
  const char *text = tsr_params_text(params, "latency"), *rest = NULL, *end = NULL;
  how->has_latency = text != NULL;
  how->latency_s = how->network_latency_s = 0;
  if (!text) return 0;
  bool ok = read_quantity(text, units, &how->latency_s, &rest);
  how->network_latency_s = how->latency_s;
  if (ok && rest) ok = read_quantity(rest, units, &how->network_latency_s, &end) && !end;
  return ok ? 0
            : tsr_params_fail(params, error,
                              "{=latency} takes a time such as 10us, or two such as 3.4us,14us, "
                              "not '%.40s'",
                              text);
}

int tsr_params_link(const tsr_params *params, tsr_simulate_options *how, tsr_error *error) {
  static const char *const names[] = {"link", "gpus_per_node", "network", "latency"};
  /* In comparisons of formulas, machines matter for what they hold. */
  bool is_compared =
      tsr_params_find(params, "compare", strlen("compare")) && tsr_params_flag(params, "compare");
  how->ranks_per_node = is_compared ? 0 : tsr_params_count(params, "gpus_per_node");
  for (size_t i = 0; i < sizeof names / sizeof *names && !is_compared; i++)
    if (tsr_params_has(params, names[i]) && how->ranks < 2) {
      char format[64];
      (void)snprintf(format, sizeof format, "{=%s} needs {ranks}, 2 at least%%s", names[i]);
      return tsr_params_fail(params, error, format, "");
    }
  int status = read_rate(params, "link", &how->link_bytes_per_s, error);
  if (status == 0) status = read_rate(params, "network", &how->network_bytes_per_s, error);
  if (status == 0) status = read_latency(params, how, error);
  if (status == 0 && how->network_bytes_per_s > 0 && !how->ranks_per_node && !is_compared)
    return tsr_params_fail(params, error,
                           "{=network} needs {gpus_per_node}, which says where machines end");
  return status;
}

static int options_of(const tsr_params *params, tsr_run_plan **plan, tsr_simulate_options *how,
                      tsr_error *error) {
  size_t settings;
  int status = tsr_simulate_options_of(params, plan, how, error);
  if (status) return status;
  how->rank = tsr_params_count(params, "rank");
  how->eval_steps = tsr_params_count(params, "eval_steps");
  how->eval_batch = tsr_params_count(params, "eval_batch");
  how->fresh_process = tsr_params_flag(params, "fresh_process");
  how->categories = tsr_params_flag(params, "categories");
  how->gpu = tsr_params_gpu(params);
  how->checkpoint_modules = tsr_params_text(params, "checkpoint_modules");
  how->offload_modules = tsr_params_text(params, "offload_modules");
  how->optimizer_form = (tsr_optimizer_form)(tsr_params_choice(params, "optimizer_form") + 1);
  const tsr_allocator_settings *given = tsr_params_settings(params, "settings", &settings);
  if (settings) how->settings = *given;
  return settings ? 0 : tsr_allocator_settings_parse(NULL, &how->settings, error);
}

static void release(void *value) {
  simulated *run = value;
  tsr_simulation_free(run->simulation);
  tsr__free(run);
}

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  tsr_simulate_options how;
  tsr_run_plan *plan = NULL;
  tsr_rates *rates = NULL;
  tsr_effort *effort = NULL;
  simulated *run = TSR__NEW(simulated);
  if (!run) return tsr__fail_memory(error);
  run->top = tsr_params_count(asked->params, "top");
  const tsr_model *model = tsr_params_object(asked->params, "model", &tsr_model_type);
  int status = options_of(asked->params, &plan, &how, error);
  if (status == 0) status = tsr_params_rates(asked->params, &rates, error);
  if (status == 0) status = tsr_params_link(asked->params, &how, error);
  if (status == 0)
    status = tsr__params_outside(asked->params, model, "capacity", &how, &run->outside, error);
  run->capacity_bytes = how.capacity_bytes;
  how.capacity_bytes = run->outside.share_bytes;
  if (status == 0) status = tsr_params_effort(asked->params, asked->query, &effort, error);
  how.rates = rates;
  how.effort = effort;
  if (status == 0)
    status = tsr__simulate_beside(model, &how, &run->outside, &run->simulation, error);
  tsr_run_plan_free(plan);
  tsr_rates_free(rates);
  tsr_effort_free(effort);
  if (status)
    release(run);
  else
    *out = run;
  return status;
}

static int report(const tsr__report_call *call, tsr_error *error) {
  const simulated *run = call->value;
  return tsr__report_simulate(call->inputs, run->simulation, run->capacity_bytes, run->top,
                              call->options, call->write, call->context, error);
}

static const tsr_snapshot *snapshot(const void *value) {
  return ((const simulated *)value)->simulation->snapshot;
}

const tsr__question_row tsr__question_simulate = {
    .about =
        {.name = "simulate",
         .summary = "what will a training run need, before anything has run?",
         .situation = TSR_SITUATION_FORECAST,
         .main_options = "batch seq capacity dtype optimizer attention checkpoint loss gpu ranks "
                         "zero plan write-plan",
         .description =
             "Runs the training steps of a model without a device, with the same memory requests "
             "as PyTorch and transformers, byte for byte, and shows the peak, when it occurs, and "
             "what its memory is for. With -o it writes the snapshot that PyTorch would have "
             "recorded: every other command, Mosaic and PyTorch's own viewer read it.\n\n"
             "MODEL is the config.json of a GPT-2, Llama, Mistral or Qwen2 model, or one of these "
             "names: gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-2-7b, llama-2-13b, llama-2-70b, "
             "llama-3-8b, llama-3-70b, llama-3-405b, llama-3.2-1b, llama-3.2-3b, mistral-7b, "
             "qwen2.5-7b, gpt2-bytes. It can also be a step graph, which tessera.trace() in Python "
             "writes for any PyTorch program.\n\n"
             "With --capacity, a run that does not fit ends where PyTorch's would, in an oom "
             "event. The exit status is 0 then, too: fits in JSON has the answer. "
             "'tessera plan MODEL --budget SIZE' exits with 1 if nothing fits.",
         TSR__PARAMETERS(parameters),
         .examples =
             {{"tessera simulate gpt2 --batch 4 --seq 512", "what will fine-tuning GPT-2 need?"},
              {"tessera simulate llama-3-8b --dtype bf16 --checkpoint full --capacity 80GiB",
               "does it fit on that card?"},
              {"tessera simulate config.json --batch 8 --steps 5 -o steps.pickle",
               "a snapshot of five steps"}}},
    .check = check,
    .fields = &tsr__fields_simulate,
    .ask = ask,
    .report = report,
    .free = release,
    .snapshot = snapshot,
};
