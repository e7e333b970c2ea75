/* question.c - the row of "ranks": which of many ranks differs, or ran out of memory, and where? The value is a tsr_ranks. */
#include <stdlib.h>
#include <string.h>

#include "ask/question.h"
#include "base/error.h"
#include "questions/ranks/ranks.h"
#include "questions/shared/limits.h"
#include "tessera/unstable/params.h"

static const tsr_parameter parameters[] = {
    {.name = "paths",
     .kind = TSR_PARAMETER_TEXTS,
     .is_operand = true,
     .argument = "PATH...",
     .help = "Snapshots of ranks: folders with all that is in them, files, patterns such as "
             "'run/*.pickle', @FILE for a list of them, and files of sketches.",
     .advice =
         "Where the snapshots of the ranks are on the machine of this server: folders, files, "
         "or patterns."},
    {.name = "pattern",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "REGEX",
     .help = "Where a path tells its rank: a regular expression with groups named rank, step, "
             "world_size or an axis of the mesh, such as 'node\\d+/w(?<rank>\\d+)'. The names "
             "that frameworks give are known."},
    {.name = "mesh",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "AXES",
     .help = "Axes and sizes of the mesh, outermost first, such as pp=4,dp=8,tp=8: ranks of one "
             "pipeline stage are equals. Without it, sidecars and names tell, or else ranks that "
             "are alike are equals."},
    {.name = "capacity",
     .kind = TSR_PARAMETER_BYTES,
     .argument = "SIZE",
     .help = "Total memory of each card, such as 80GiB, to say when it will be full (default: what "
             "sidecars contain).",
     .advice = "Memory of each card, such as 80GiB: with several snapshots of a rank, when it will "
               "be full. Sidecars contain it."},
    {.name = "max",
     .kind = TSR_PARAMETER_TEXTS,
     .argument = "[CATEGORY=]SIZE",
     .help = "Fail if any rank allocates more than SIZE, such as 70GiB, or if a category of one "
             "holds more (activation=30GiB). May be repeated.",
     .advice = "Budgets for the worst rank: a size such as 70GiB for all allocated memory, or "
               "CATEGORY=SIZE such as activation=30GiB."},
    {.name = "max_reserved",
     .option = "max-reserved",
     .kind = TSR_PARAMETER_BYTES,
     .argument = "SIZE",
     .help = "Fail if any rank reserves more than SIZE.",
     .advice = "Budget of reserved memory for the worst rank, such as 76GiB.",
     .example = "76GiB"},
    {.name = "max_spread",
     .option = "max-spread",
     .kind = TSR_PARAMETER_BYTES,
     .argument = "SIZE",
     .help = "Fail if the peaks of ranks that are equals are further apart than SIZE.",
     .advice = "Budget for how far the peaks of ranks of equal role may be apart, such as 2GiB.",
     .example = "2GiB"},
    {.name = "allow_missing",
     .option = "allow-missing",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Let checks pass though ranks are missing, or files cannot be read."},
    {.name = "format",
     .kind = TSR_PARAMETER_CHOICE,
     .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON,
     .argument = "FORMAT",
     .help = "The output format: text (default), json, junit or markdown for checks, prometheus "
             "for a scraper, or the table of ranks as csv, arrow or parquet (with DuckDB, where it "
             "is installed).",
     .choices = (const char *const[]){"text", "json", "junit", "markdown", "prometheus", "csv",
                                      "arrow", "parquet", NULL}},
    {.name = "part",
     .kind = TSR_PARAMETER_TEXT,
     .hidden_from = TSR_INTERFACE_MCP,
     .argument = "I/N",
     .help =
         "Read only the I-th of N parts of the files, for a job of several processes; auto: the "
         "part that Slurm, MPI or Kubernetes gives this process. Write its sketches with "
         "--sketches, and give those of all parts to tessera ranks. Under Slurm, auto without "
         "--sketches, and srun without --part, have one process answer for all; 1/1: each reads "
         "all files."},
    {.name = "wait",
     .kind = TSR_PARAMETER_COUNT,
     .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON,
     .argument = "SECONDS",
     .help = "How long the first process of srun waits for other parts, since the last one came, "
             "before it reads them itself (default: 60, and ten times what its own part took)."},
    {.name = "sketches",
     .kind = TSR_PARAMETER_PATH,
     .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON,
     .is_written = true,
     .argument = "FILE",
     .help = "Also write what was read of each file, at most 64 KiB, to FILE, which tessera ranks "
             "reads in place of the snapshots. If FILE is there, snapshots that have not changed "
             "since are not read again. %p in its name is the number of the part."},
    {.name = "html",
     .kind = TSR_PARAMETER_PATH,
     .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON,
     .is_written = true,
     .argument = "FILE",
     .help = "Also write a page to FILE: a map of the ranks over time and by category, sorted by "
             "group or size, in which a click on a rank shows its own memory."},
    {.name = "threads",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Files that are read at once (default: as many as there are processors).",
     .least = 1},
    {.name = "top",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Stacks that are listed of each rank that stands apart (default: 10; 0: all). The "
             "others are one entry.",
     .fallback = TSR__RANKS_CHANGES},
};

/* "2/8" */
static int read_part(const tsr_params *params, tsr_fleet_options *how, tsr_error *error) {
  const char *text = tsr_params_text(params, "part");
  char *end = NULL;
  if (!text) return 0;
  unsigned long part = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0, parts = 0;
  if (part && *end == '/' && end[1] >= '0' && end[1] <= '9') parts = strtoul(end + 1, &end, 10);
  if (!part || *end || part > parts || parts > 1u << 20)
    return tsr_params_fail(params, error,
                           "{=part} takes a part and how many there are, such as 2/8, not '%.40s'",
                           text);
  how->part = (uint32_t)part;
  how->parts = (uint32_t)parts;
  return 0;
}

/* All budgets; `limits` has room for TSR__LIMITS_MOST + 1. */
static int read_limits(const tsr_params *params, tsr_rank_limit *limits, size_t *count,
                       tsr_error *error) {
  static const tsr_rank_rule rules[] = {[TSR_CHECK_MAX_PEAK] = TSR_RANK_MAX_PEAK,
                                        [TSR_CHECK_MAX_CATEGORY] = TSR_RANK_MAX_CATEGORY,
                                        [TSR_CHECK_MAX_RESERVED] = TSR_RANK_MAX_RESERVED};
  tsr_check_limit given[TSR__LIMITS_MOST];
  int status = tsr__read_limits(params, given, count, error);
  if (status) return status;
  for (size_t i = 0; i < *count; i++)
    limits[i] = (tsr_rank_limit){rules[given[i].rule], given[i].category, given[i].bytes};
  if (tsr_params_has(params, "max_spread"))
    limits[(*count)++] = (tsr_rank_limit){.rule = TSR_RANK_MAX_SPREAD,
                                          .bytes = tsr_params_count(params, "max_spread")};
  return 0;
}

static int check(const tsr_params *params, tsr_error *error) {
  tsr_fleet_options how;
  tsr_rank_limit limits[TSR__LIMITS_MOST + 1];
  size_t count;
  int status = read_limits(params, limits, &count, error);
  if (status) return status;
  if (tsr_params_flag(params, "allow_missing") && !count)
    return tsr_params_fail(params, error,
                           "{allow_missing} needs a budget: {max}, {max_reserved} or {max_spread}");
  if (tsr_params_count(params, "threads") > 1024)
    return tsr_params_fail(params, error, "{=threads} takes at most 1024");
  return read_part(params, &how, error);
}

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  tsr_ranks *ranks = NULL;
  tsr_rank_limit limits[TSR__LIMITS_MOST + 1];
  tsr_fleet_options how = {.limits = limits,
                           .allows_missing = tsr_params_flag(asked->params, "allow_missing"),
                           .pattern = tsr_params_text(asked->params, "pattern"),
                           .mesh = tsr_params_text(asked->params, "mesh"),
                           .known = tsr_params_text(asked->params, "sketches"),
                           .capacity_bytes = tsr_params_count(asked->params, "capacity"),
                           .threads = (uint32_t)tsr_params_count(asked->params, "threads"),
                           .top = (size_t)tsr_params_count(asked->params, "top")};
  if (!tsr_params_has(asked->params, "top") && asked->query) how.top = asked->query->top;
  if (asked->query) {
    how.progress = asked->query->progress;
    how.progress_context = asked->query->progress_context;
  }
  how.places = tsr_params_texts(asked->params, "paths", &how.place_count);
  int status = read_part(asked->params, &how, error);
  if (!status) status = read_limits(asked->params, limits, &how.limit_count, error);
  if (!status) status = tsr_ranks_compute(&how, &ranks, error);
  if (!status) *out = ranks;
  return status;
}

static int report(const tsr__report_call *call, tsr_error *error) {
  return tsr__report_ranks(call->inputs, call->value, call->options, call->write, call->context,
                           error);
}

static int form(const tsr__report_call *call, size_t number, const char *root, tsr_error *error) {
  (void)root;
  return tsr__ranks_write_form(number, call->inputs->path, call->value, call->write, call->context,
                               error);
}

static bool passed(const void *value) {
  const tsr_ranks *ranks = value;
  return !ranks->failed_count && !ranks->doubt;
}

static void release(void *value) {
  tsr_ranks_free(value);
}

static const tsr_snapshot *stacks(const void *value) {
  return ((const tsr_ranks *)value)->stacks;
}

const tsr__question_row tsr__question_ranks = {
    .about =
        {.name = "ranks",
         .summary = "which of many ranks ran out of memory, or differs, and where?",
         .situation = TSR_SITUATION_FAILURE,
         .main_options = "max max-reserved max-spread capacity pattern mesh html format",
         .description =
             "Reads the snapshots of all ranks of a job and says which ran out of memory first, "
             "which holds more than its equals, where it allocates that, and why as far as the "
             "memory shows: a leak, the optimizer's state twice, longer sequences, work that "
             "only one rank does, memory on another process's device, one expert's load, more "
             "micro-batches in flight.\n\n"
             "Ranks are known by the sidecars of tessera.record, by the names that torchtitan, "
             "Megatron-LM, verl, slime, torchtnt, Composer, torchtune and SGLang give to files, or "
             "by --pattern. Equals are ranks of one pipeline stage, by the mesh, or ranks with as "
             "much memory for parameters. A difference that a stage explains is none. Of "
             "several dumps of a rank the last counts; what grows steadily over them is shown by "
             "stack, and when the card will be full.\n\n"
             "A file that cannot be read is listed, and changes nothing for the others.\n\n"
             "With --max, --max-reserved or --max-spread it is a check, with the exit status of "
             "`tessera check`, which asks this question when it is given a folder or several "
             "files.",
         TSR__PARAMETERS(parameters),
         .examples = {{"tessera ranks snapshots/", "which rank, and which line?"},
                      {"tessera ranks snapshots/ --mesh pp=4,dp=8,tp=8 --html ranks.html",
                       "with the mesh, and a page for a browser"},
                      {"tessera ranks snapshots/ --part 2/8 --sketches %p.sketch",
                       "one of eight processes"},
                      {"tessera ranks snapshots/ --max 70GiB --max-spread 2GiB --format junit",
                       "within their budgets?"}},
         .title = "Which of many ranks ran out of memory, or differs from its equals, and where?",
         .advice = "For a distributed job with one snapshot per rank: which rank died first, which "
                   "ones hold more than ranks of equal role, the stack and the likely cause, "
                   "missing and broken files. Then look at the rank's own file with other tools.",
         .has_stacks = true},
    .check = check,
    .fields = &tsr__fields_ranks,
    .ask = ask,
    .report = report,
    .free = release,
    .passed = passed,
    .snapshot = stacks,
    .forms = tsr__ranks_forms,
    .form = form,
};
