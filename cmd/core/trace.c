/* trace.c - `tessera trace SCRIPT|CONFIG -o FILE`: one training step of a program, or of a model by its description, as a step graph.
 *
 * Both are traced in the user's Python (tracer.h). Which of the two an operand is, its content decides: a description is a JSON object. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "session.h"
#include "textfile.h"
#include "tracing.h"

static const tsr_parameter trace_parameters[] = {
    {.rows = tsr_run_traced},
    {.name = "gpu",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "CARD",
     .help = "The card for which PyTorch chooses kernels: %s (default: a100).",
     .word = tsr_gpu_word,
     .choices = tsr_gpu_names},
    {.name = "time_limit",
     .option = "time-limit",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "SECONDS",
     .help = "The longest that a trace may take (default: 1200 for a CONFIG, unlimited for a "
             "SCRIPT)."},
    {.name = "module",
     .letter = 'm',
     .kind = TSR_PARAMETER_FLAG,
     .help = "SCRIPT is the name of a module, as after python -m."},
    {.name = "value",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "X",
     .example = "1.0",
     .help = "For a SCRIPT: the value of loss.item() and of other numbers that it reads from the "
             "GPU. Without it, a script that reads one is refused."},
    {.name = "after",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "For a SCRIPT: steps before the two that are compared (default: 1 to 4, until two are "
             "alike).",
     .least = 1},
    {.name = "step_of",
     .option = "step-of",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "For a SCRIPT with several optimizers: the one whose step() ends a step, the N-th to "
             "make one (default: 1).",
     .least = 1},
    {.name = "batch",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "For a CONFIG: sequences, or images, per batch (default: 1).",
     .fallback = 1,
     .least = 1},
    {.name = "seq",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "For a CONFIG: tokens per sequence (default: 512, or as many as the model has "
             "positions).",
     .fallback = 512,
     .least = 1},
    {.name = "eval_steps",
     .option = "eval-steps",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "For a CONFIG: evaluate after every step (1; default: never).",
     .least = 1},
    {.name = "eval_batch",
     .option = "eval-batch",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Sequences per batch of an evaluation (default: as many as in a forward of training).",
     .least = 1},
    {.rows = tsr_run_options},
    {.name = "plan",
     .kind = TSR_PARAMETER_FILE,
     .type = &tsr_run_plan_type,
     .argument = "FILE",
     .help = "For a CONFIG: take these options from FILE, a plan (docs/plan.md); options that are "
             "given override it."},
};

const cli_command cli_trace_row = {
    .about =
        {.name = "trace",
         .summary = "one training step of any PyTorch program, as a step graph",
         .situation = TSR_SITUATION_FORECAST,
         .main_options = "module batch seq dtype optimizer checkpoint gpu python",
         .description =
             "Traces one training step on a machine without a GPU, and writes it as a step graph, "
             "which simulate and plan take as a model. Nothing is computed, and no tensor takes "
             "memory. A Python with PyTorch is needed: that of the active environment "
             "(VIRTUAL_ENV, CONDA_PREFIX), else TESSERA_PYTHON, else the python3 next to tessera, "
             "else python3, unless --python names another. The package tessera need not be "
             "installed there.\n\n"
             "SCRIPT is a training script, which runs unchanged with the arguments after it (after "
             "--, if they begin with a dash) until two of its steps are alike. What it prints goes "
             "to standard error. With --ranks N it is rank 0 of N.\n\n"
             "CONFIG is the config.json of a model of transformers, or its folder, or a name that "
             "simulate knows. Its step is "
             "that "
             "of simulate, with a batch for the model's task: tokens and labels, images and "
             "classes, or spectrograms and tokens. simulate and plan do this themselves, and keep "
             "the graph in the user's cache (XDG_CACHE_HOME). Weights are not read, and code that "
             "a description names is not run.\n\n"
             "In Python, tessera.trace() traces any function that makes a step.",
         CLI_PARAMETERS(trace_parameters),
         .examples = {{"tessera trace train.py -o train.graph -- --batch-size 8",
                       "a script with its arguments"},
                      {"tessera trace train.py --value 1 -o train.graph",
                       "a script that prints loss.item(): each number it reads is 1"},
                      {"tessera trace Qwen3-0.6B/config.json -o qwen3.graph --batch 4",
                       "a model of transformers"},
                      {"tessera simulate train.graph", "what the step needs"}}},
    .operands = "SCRIPT|CONFIG [ARGUMENT...]",
    .operand_min = 1,
    .operand_max = SIZE_MAX,
    .answers = true,
    .lacks = "json color verbose",
    .confines = true,
    .run = cli_trace,
};

/* The text of a description. The caller frees it. */
typedef struct description {
  char *text; /* NULL: the operand is something else, or cannot be read */
  size_t size_bytes;
} description;

/* Both return 0, or TSR_ERROR_MEMORY: what cannot be read for lack of memory is no script. */
static int description_in(const char *path, description *out) {
  static const char blanks[] = {' ',    '\t',   '\r',  '\n',
                                '\xef', '\xbb', '\xbf'}; /* and a byte order mark */
  tsr_error error;
  size_t at = 0;
  int status = cli_read_text(path, CLI_TEXTFILE_REGULAR, &out->text, &out->size_bytes, &error);
  if (status) return status == TSR_ERROR_MEMORY ? status : 0;
  while (at < out->size_bytes && memchr(blanks, out->text[at], sizeof blanks)) at++;
  if (at < out->size_bytes && out->text[at] == '{') return 0;
  free(out->text);
  out->text = NULL;
  return 0;
}

/* The same of a model that is built in, by its name. */
static int description_of(const char *operand, description *out) {
  tsr_model *model = NULL;
  int status =
      cli_is_model_file(operand) ? TSR_ERROR_ARGUMENT : tsr_model_named(operand, &model, NULL);
  if (status == TSR_ERROR_MEMORY) return status;
  if (status) return description_in(operand, out);
  const char *config = tsr_model_config(model);
  *out = (description){.text = strdup(config), .size_bytes = strlen(config)};
  tsr_model_free(model);
  return out->text ? 0 : TSR_ERROR_MEMORY;
}

/* Refuse options of a script for a description, and the other way around. */
static int check_options(const cli_options *options, bool is_script) {
  static const char *const of_script[] = {"module", "value", "after", "step_of"};
  const tsr_parameter *row;
  for (size_t i = 0; (row = tsr_params_row(options->own, i)) != NULL; i++) {
    bool is_scripts = false, is_both = strcmp(row->name, "ranks") == 0;
    for (size_t k = 0; k < sizeof of_script / sizeof *of_script; k++)
      is_scripts |= strcmp(row->name, of_script[k]) == 0;
    is_both |= strcmp(row->name, "python") == 0 || strcmp(row->name, "gpu") == 0 ||
               strcmp(row->name, "routing") == 0 || strcmp(row->name, "time_limit") == 0;
    if (!is_both && is_scripts != is_script && tsr_params_has(options->own, row->name))
      return cli_usage_error(options->command, "option '--%s' is for %s", cli_option_name(row),
                             is_script ? "the config.json of a model; a script decides this itself"
                                       : "scripts, and this is a description of a model");
  }
  return 0;
}

static int trace_config(cli_session *session, const char *path, const description *config,
                        cli_traced *out) {
  int status = cli_session_confine(session);
  if (status) return status;
  if (session->options->operand_count > 1)
    return cli_usage_error(session->options->command,
                           "unexpected operand '%s': a description takes no arguments",
                           session->options->operands[1]);
  status = check_options(session->options, false);
  if (status == 0) status = cli_read_parameters(session);
  return status ? status : cli_trace_config(session, path, config->text, config->size_bytes, out);
}

/* Whether a file's beginning has a null byte, which Python refuses in a program, and is neither of what Python runs besides: an
 * archive and compiled code. A snapshot is such a file. */
static bool is_binary(const char *path) {
  char head[4096];
  const char *ending = strrchr(path, '.');
  FILE *file = cli_open_text(path, CLI_TEXTFILE_REGULAR);
  size_t size = file ? fread(head, 1, sizeof head, file) : 0;
  if (file) (void)fclose(file);
  bool is_archive = size > 2 && (!memcmp(head, "PK", 2) || !memcmp(head, "#!", 2));
  return memchr(head, 0, size) && !is_archive && !(ending && strcmp(ending, ".pyc") == 0);
}

static int trace_script(cli_session *session, cli_traced *out) {
  const cli_options *options = session->options;
  const char *name = options->operands[0], *ending = strrchr(name, '.');
  int status = check_options(options, true);
  if (status) return status;
  if (ending && strcasecmp(ending, ".json") == 0) {
    cli_say(NULL, "%s: not a description of a model: it does not begin with '{'", name);
    return CLI_INPUT;
  }
  if (!tsr_params_flag(options->own, "module") && access(options->operands[0], R_OK)) {
    cli_say_no_model(options->operands[0], strerror(errno));
    return CLI_INPUT;
  }
  if (!tsr_params_flag(options->own, "module") && is_binary(name)) {
    cli_say(NULL,
            "%s: not a Python script: it has null bytes; trace takes a training script or a "
            "config.json, and `tessera info "
            "FILE` reads a snapshot",
            name);
    return CLI_INPUT;
  }
  return cli_trace_script(session, options->operands[0], (const char *const *)options->operands + 1,
                          options->operand_count - 1, out);
}

int cli_trace(cli_session *session) {
  const cli_options *options = session->options;
  const char *operand = options->operands[0];
  cli_traced traced = {.note = ""};
  if (!options->output)
    return cli_usage_error(options->command,
                           "-o names the step graph to write, such as -o step.graph");
  session->path = operand;
  if (cli_is_folder(operand)) {
    int status = cli_model_in_folder(session, operand);
    if (status) return status;
    operand = session->path;
  }
  description found = {0};
  int status = 0;
  if (!tsr_params_flag(options->own, "module")) status = description_of(operand, &found);
  if (status == 0)
    status = found.text ? trace_config(session, operand, &found, &traced)
                        : trace_script(session, &traced);
  if (status == 0 && cli_output_write(&session->output, traced.graph, traced.graph_size))
    status = TSR_ERROR_WRITE;
  cli_traced_release(&traced);
  free(found.text);
  return status;
}
