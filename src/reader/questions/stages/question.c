/* question.c - the row of "stages": how high did memory go in each annotated stage? */
#include "questions/reports.h"
#include "questions/shared/row.h"

static const tsr_parameter parameters[] = {
    {.name = "match",
     .kind = TSR_PARAMETER_TEXTS,
     .argument = "TEXT",
     .help = "Take only annotations whose name contains TEXT. May be repeated: any of them.",
     .advice = "Only stages whose name contains one of these texts. Default: all."},
};

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  tsr_stages_options how = {0};
  tsr_stages *stages = NULL;
  how.matches = tsr_params_texts(asked->params, "match", &how.match_count);
  int status = tsr_stages_compute(asked->studies[0], &how, asked->query, &stages, error);
  if (status == 0) *out = stages;
  return status;
}

TSR__QUESTION_REPORTS(stages)

const tsr__question_row tsr__question_stages = {
    .about =
        {.name = "stages",
         .summary = "how high did memory go in each annotated stage?",
         .description =
             "Shows, for each stage that the program marked, how much was allocated when it began "
             "and when it ended, the peak in between, and which stage contains the overall peak. "
             "Stages come from torch.profiler.record_function, the profiler's steps and PyTorch's "
             "optimizers; those inside another are indented below it.\n\nIf there are more stages "
             "than --top, those with the same name (ignoring numbers) share one line: their count, "
             "and the one with the highest peak. --top 0 or -v shows each.",
         TSR__ONE_SUBJECT,
         TSR__PARAMETERS(parameters),
         .examples = {{"tessera stages snapshot.pickle", "all stages"},
                      {"tessera stages --match Optimizer.step --match backward snapshot.pickle",
                       "those with either text in their name"},
                      {"tessera stages -v snapshot.pickle", "every repetition"}},
         .title = "How high did memory go in each annotated stage?",
         .advice = "Memory at the start and end of each record_function range, and the peak inside "
                   "it. The tool for 'which part of the step needs most'.",
         .ranks = "stages",
         .verbose_lists_all = true},
    .fields = &tsr__fields_stages,
    .ask = ask,
    .report = report,
    .free = release,
};
