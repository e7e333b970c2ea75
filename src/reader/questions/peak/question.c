/* question.c - the row of "peak": what holds the memory at the peak? */
#include "questions/reports.h"
#include "questions/shared/row.h"

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  tsr_peak *peak = NULL;
  int status = tsr_peak_compute(asked->studies[0], asked->query, &peak, error);
  if (status == 0) *out = peak;
  return status;
}

TSR__QUESTION_REPORTS(peak)

const tsr__question_row tsr__question_peak = {
    .about =
        {.name = "peak",
         .summary = "what holds the memory at the peak?",
         .description =
             "Finds the first moment at which most memory was allocated, as "
             "torch.cuda.memory_allocated() would have returned, and lists what was live then "
             "by the stack that allocated it, largest first. It also shows how much reserved "
             "memory was lost to fragmentation, and why. The stacks are drawn as one tree, which "
             "fits on a screen; -v lists each in full.\n\nMemory from before the recording "
             "is counted too; its stacks are known if the snapshot's blocks have them.",
         TSR__ONE_SUBJECT,
         .examples = {{"tessera peak snapshot.pickle", "the ten largest stacks at the peak"},
                      {"tessera peak --device 0 --top 3 snapshot.pickle", "three, of one device"},
                      {"tessera peak --full-stacks --top 0 -o peak.txt snapshot.pickle",
                       "everything, with framework frames, into a file"}},
         .title = "What holds the GPU memory at its peak?",
         .advice = "Find the moment at which a PyTorch job had most GPU memory allocated, and rank "
                   "the lines of code (stacks) that held it, with bytes, number of allocations and "
                   "category; also what fragmentation cost. The tool for 'why does my job need so "
                   "much memory'. Totals are absolute, memory from before the recording included.",
         .ranks = "stacks",
         .has_stacks = true},
    .fields = &tsr__fields_peak,
    .ask = ask,
    .report = report,
    .free = release,
};
