/* question.c - the row of "info": what is in this file? */
#include "questions/reports.h"
#include "questions/shared/row.h"

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  tsr_info *info = NULL;
  int status = tsr_info_compute(asked->studies[0], asked->query, &info, error);
  if (status == 0) *out = info;
  return status;
}

TSR__QUESTION_REPORTS(info)

const tsr__question_row tsr__question_info = {
    .about = {.name = "info",
              .summary = "what is in this file?",
              .description =
                  "Counts what the snapshot contains for each device: events by action, segments, "
                  "blocks, distinct stacks and frames, the time the trace covers, frees of memory "
                  "allocated before the trace, and the memory in use when the snapshot was taken.",
              TSR__ONE_SUBJECT,
              .examples = {{"tessera info snapshot.pickle",
                            "what the file contains, device by device"},
                           {"tessera info --json snapshot.pickle", "the same for a program"}},
              .title = "What is in this snapshot?",
              .advice =
                  "Describe a PyTorch GPU memory snapshot: devices, events by action, the time "
                  "covered, memory in use at the end, and warnings about the file. Ask this first "
                  "of an unknown file."},
    .fields = &tsr__fields_info,
    .ask = ask,
    .report = report,
    .free = release,
};
