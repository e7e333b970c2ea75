/* question.c - the row of "why": why did it run out of memory?
 *
 * For users who have just seen torch.OutOfMemoryError: was the cause the tensors, fragmentation, or
 * another process, and what would have been enough?
 */
#include "questions/reports.h"
#include "questions/shared/row.h"

static const tsr_parameter parameters[] = {
    {.name = "event",
     .kind = TSR_PARAMETER_INTEGER,
     .argument = "N",
     .help = "Which out-of-memory error to explain, by the number of its event (default: the last "
             "one that the program did not recover from).",
     .advice = "Which out-of-memory error to explain, by the number of its event. Default: the "
               "last one that the program did not recover from.",
     .fallback = -1},
    TSR__SETTINGS_TO_TRY(
        "Configurations that might have made it fit, each in the syntax of "
        "PYTORCH_CUDA_ALLOC_CONF. Default: the usual ones, if any of them could help."),
    {.name = "capacity",
     .kind = TSR_PARAMETER_BYTES,
     .argument = "SIZE",
     .help = "Total memory of the card, such as 24GiB; the report then also shows how much of it "
             "other processes held.",
     .advice = "Memory of the card, such as 24GiB; shows how much of it was held outside PyTorch."},
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
         .situation = TSR_SITUATION_FAILURE,
         .description =
             "Explains the out-of-memory error in the trace: what was requested and what the "
             "device had, what PyTorch had cached and could not use for the request, and why "
             "(fragmentation, another stream's or pool's cache, freed blocks that wait for another "
             "stream), what held the rest, by category and by line of the program, and which "
             "settings of PYTORCH_CUDA_ALLOC_CONF would have made the request succeed. If the same "
             "request was made before, in an earlier step or an earlier block of the same forward "
             "pass, what followed it then is replayed under these settings, too, which shows "
             "whether the run would have continued, or how much more it would have needed. From "
             "this the command estimates what would help: settings, a smaller batch, "
             "checkpointing.\n\n"
             "If the program ran out of memory several times, the last time that it did not "
             "recover from is explained, or the one that --event selects. If it never did, the "
             "report shows how close it came, at the moment when most memory was reserved.\n\n"
             "A snapshot does not contain the size of the card's memory: with --capacity, the "
             "report also shows how much of it other processes held.",
         TSR__ONE_SUBJECT,
         TSR__PARAMETERS(parameters),
         .examples = {{"tessera why snapshot.pickle", "the verdict, and its evidence"},
                      {"tessera why --capacity 80GiB snapshot.pickle", "on a card of that size"}},
         .title = "Why did it run out of memory?",
         .advice = "Explain an out-of-memory error: what was requested, what was free and why that "
                   "could not be used (fragmentation, other streams and pools, other processes), "
                   "what held the card's memory, by lines of code, and which allocator settings, "
                   "batch or checkpointing would let the run finish. Without such an error: how "
                   "close it came.",
         .ranks = "causes",
         .has_stacks = true},
    .check = check,
    .fields = &tsr__fields_why,
    .ask = ask,
    .report = report,
    .free = release,
};
