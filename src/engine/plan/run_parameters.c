/* run_parameters.c - the parameters that commands which run training steps share, besides the options of a run (option_rows.def). */
#include <stdio.h>
#include <string.h>

#include "tessera/unstable/runs.h"

bool tsr_parameter_is_traced(const char *name) {
  static const char *const others[] = {"batch",      "seq",     "eval_steps",
                                       "eval_batch", "padding", "routing"};
  bool is_traced = false;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    is_traced |= strcmp(name, others[i]) == 0;
  for (const tsr_parameter *row = tsr_run_options; row->name; row++)
    is_traced |= strcmp(name, row->name) == 0;
  return is_traced;
}

const tsr_parameter tsr_ds_config_parameter[] = {
    {.name = "ds_config",
     .option = "ds-config",
     .kind = TSR_PARAMETER_PATH,
     .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON,
     .argument = "FILE",
     .help = "Take options from FILE, a DeepSpeed configuration (ds_config.json); options that "
             "are given override it. Keys that have no effect are listed."},
    {.name = NULL}};

const tsr_parameter tsr_run_traced[] = {
    {.name = "python",
     .kind = TSR_PARAMETER_PATH,
     .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON,
     .argument = "PROGRAM",
     .help = "The Python that traces a model that is not built in; it needs torch and transformers "
             "(default: that of the active environment, else python3)."},
    {.name = "padding",
     .kind = TSR_PARAMETER_FLAG,
     .hidden_from = TSR_INTERFACE_MCP,
     .help = "The batch is padded: its attention mask has zeros, so that the model builds a mask "
             "for each row of scores. A model that is built in is traced then, too."},
    {.name = "routing",
     .kind = TSR_PARAMETER_TEXT,
     .hidden_from = TSR_INTERFACE_MCP,
     .argument = "HOW",
     .example = "worst",
     .help = "For a traced mixture of experts: each expert gets the same share of the tokens "
             "(balanced, the default for models of transformers), a few get almost all (worst), or "
             "each gets what a JSON file lists, [[COUNT, ...], ...] for each router."},
    {.name = NULL}};

const tsr_parameter tsr_run_link[] = {
    {.name = "link",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "RATE",
     .example = "50GB/s",
     .help = "What each rank sends to others in a second, for the time of a step: 50GB/s, or "
             "400Gb/s (default: 80 % of the card's NVLink, or PCIe, by its data sheet)."},
    {.name = "gpus_per_node",
     .option = "gpus-per-node",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Ranks, or cards, of each machine (default: all). What they send to other machines "
             "goes over --network.",
     .least = 1},
    {.name = "network",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "RATE",
     .example = "400Gb/s",
     .help = "What each rank sends to other machines in a second: its share of what its machine "
             "does."},
    {.name = "latency",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "TIME",
     .example = "3.4us,14us",
     .help = "What a message between ranks takes besides its bytes: one time, or one inside of "
             "machines and one between them (default: 3.4us by NVLink, 5.7us by PCIe, and 14us by "
             "the network, from NCCL's table; 0 with --rates)."},
    {.name = NULL}};

const tsr_parameter tsr_run_outside[] = {
    {.name = "outside",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "SIZE",
     .example = "1.5GiB",
     .help = "What the process holds of the card outside of PyTorch's allocator: CUDA's context, "
             "libraries, NCCL. auto (default): what is known of the card, which a limit that is "
             "more than the card leaves to PyTorch is lowered for; none: nothing is counted; or a "
             "size."},
    {.name = "machine",
     .kind = TSR_PARAMETER_FILE,
     .hidden_from = TSR_INTERFACE_MCP,
     .argument = "FILE",
     .help =
         "Take that from FILE, what tessera doctor measured on this machine, if it has the card "
         "(default: $TESSERA_MACHINE, else ~/.config/tessera/machine.json)."},
    {.name = NULL}};

const tsr_parameter tsr_run_limits[] = {
    {.name = "work_limit",
     .option = "work-limit",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "End the search for a plan after N instructions were simulated, with the best plan so "
             "far (default: 500000000, which take about a minute; 0: unlimited). The result is the "
             "same on every machine.",
     .fallback = 500000000},
    {.name = "time_limit",
     .option = "time-limit",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "SECONDS",
     .help = "End the search for a plan after this time, with the best plan so far (default: 300; "
             "0: unlimited).",
     .fallback = 300},
    {.name = NULL}};

int tsr_params_effort(const tsr_params *params, const tsr_query *query, tsr_effort **out,
                      tsr_error *error) {
  tsr_effort_options limits = TSR_OPTIONS_INIT(tsr_effort_options);
  if (tsr_params_find(params, "work_limit", strlen("work_limit"))) {
    limits.most_work = tsr_params_count(params, "work_limit");
    limits.most_seconds = (double)tsr_params_count(params, "time_limit");
  }
  if (query) limits.progress = query->progress;
  if (query) limits.progress_context = query->progress_context;
  return tsr_effort_new(&limits, out, error);
}

int tsr_params_effort_fail(const tsr_params *params, const tsr_effort *effort, tsr_error *error) {
  const char *name = effort && tsr_effort_ended(effort) == TSR_EFFORT_TIME ? "time" : "work";
  char format[96];
  (void)snprintf(format, sizeof format,
                 "nothing was found within {%s_limit}: raise it, or set it to 0%%s", name);
  return tsr_params_fail(params, error, format, "");
}

const tsr_parameter tsr_run_parameters[] = {
    {.rows = tsr_run_options},
    {.name = "profile",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Also list what is in memory at the peak: by phase, block and saved tensor.",
     .is_resumed = true},
    {.name = "top",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Rows of each list of --profile (default: 10; 0: all). JSON has all.",
     .fallback = 10,
     .is_resumed = true},
    {.name = "leak",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "WHAT",
     .help = "Plant a mistake that keeps memory of every step, to see how it shows: graph, a "
             "list of losses with their graphs; outputs, a list of the model's outputs; shell, "
             "logits that a notebook's Out keeps; batches, a list of batches.",
     .choices = (const char *const[]){"none", "graph", "outputs", "shell", "batches", NULL},
     .is_resumed = true},
    {.name = "plan",
     .kind = TSR_PARAMETER_FILE,
     .type = &tsr_run_plan_type,
     .argument = "FILE",
     .help = "Take the options of this group, and choices for single blocks, from FILE, a "
             "plan (docs/plan.md); options that are given override it.",
     .is_resumed = true},
    {.rows = tsr_ds_config_parameter},
    {.name = "write_plan",
     .option = "write-plan",
     .kind = TSR_PARAMETER_PATH,
     .is_written = true,
     .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON,
     .argument = "FILE",
     .help = "Write the plan of this run to FILE."},
    {.name = NULL}};
