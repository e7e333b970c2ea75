/* question.c - the row of "why": why did it run out of memory?
 *
 * For users who have just seen torch.OutOfMemoryError: was the cause the tensors, fragmentation, or
 * another process, and what would have been enough?
 */
#include "questions/question.h"

static const tsr_parameter parameters[] = {
    {.name = "event",
     .kind = TSR_PARAMETER_INTEGER,
     .argument = "N",
     .help = "Which out-of-memory to explain, by the number of its event (default: the last that "
             "the program did not recover from).",
     .advice = "Which out-of-memory to explain, by the number of its event. Default: the last that "
               "the program did not recover from.",
     .fallback = -1},
    TSR__SETTINGS_TO_TRY(
        "Configurations that might have let it fit, each as PYTORCH_CUDA_ALLOC_CONF has "
        "it. Default: the usual ones, where any could."),
    {.name = "capacity",
     .kind = TSR_PARAMETER_BYTES,
     .argument = "SIZE",
     .help = "Memory of the card, all of it, such as 24GiB; shows how much of it others held.",
     .advice = "Memory of the card, such as 24GiB; shows how much of it others than PyTorch held."},
};

static int check(const tsr_params *params, tsr_error *error) {
  if (!tsr_params_has(params, "event") || tsr_params_integer(params, "event") >= 0) return 0;
  return tsr_params_fail(params, error, "{=event} needs the number of an event");
}

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  tsr_why_options how = {.event = tsr_params_integer(asked->params, "event"),
                         .capacity_bytes = tsr_params_count(asked->params, "capacity")};
  tsr_why *why = NULL;
  how.settings = tsr_params_settings(asked->params, "settings", &how.setting_count);
  int status = tsr_why_compute(asked->studies[0], &how, asked->query, &why, error);
  if (status == 0) *out = why;
  return status;
}

TSR__QUESTION_REPORTS(why)

const tsr__question_row tsr__question_why = {
    .about =
        {.name = "why",
         .summary = "why did it run out of memory?",
         .description =
             "Explains the out-of-memory that the trace recorded: what was asked for and what "
             "the device had, what PyTorch had cached and could not use for it, and why "
             "(fragmentation, another stream's or pool's cache, freed blocks that wait for "
             "another stream), what held the rest, by category and by line of the program, and "
             "which settings of PYTORCH_CUDA_ALLOC_CONF would have served the request. If the same "
             "request was made before, in an earlier step or an earlier block of the same forward "
             "pass, what followed it then is repeated under these settings too: it shows whether "
             "the "
             "run would have gone on, or how much more it would have needed. From that it "
             "estimates what would help: settings, a smaller batch, checkpointing.\n\nWhere "
             "the program ran out of memory several times, the last that it did not get over "
             "is explained, or the one of --event. Where none was recorded, it tells how "
             "close it came, when most was reserved.\n\nA snapshot does not say how much "
             "memory the card has: with --capacity, the report also shows what others held of it.",
         TSR__ONE_SUBJECT,
         TSR__PARAMETERS(parameters),
         .examples = {{"tessera why snapshot.pickle", "the verdict, and its evidence"},
                      {"tessera why --capacity 80GiB snapshot.pickle", "on a card of that size"}},
         .title = "Why did it run out of memory?",
         .advice = "Explain an out-of-memory error: what was asked for, what was free and why "
                   "that could not be used (fragmentation, other streams and pools, other "
                   "processes), what held the card, by lines of code, and which allocator "
                   "settings, batch or checkpointing would let the run finish. Without such an "
                   "error: how close it came.",
         .ranks = "causes",
         .has_stacks = true},
    .check = check,
    .ask = ask,
    .report = report,
    .free = release,
};
