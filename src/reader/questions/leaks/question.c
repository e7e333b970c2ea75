/* question.c - the row of "leaks": what grows from step to step? */
#include "questions/reports.h"
#include "questions/shared/row.h"

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  tsr_leaks *leaks = NULL;
  int status = tsr_leaks_compute(asked->studies[0], asked->query, &leaks, error);
  if (status == 0) *out = leaks;
  return status;
}

TSR__QUESTION_REPORTS(leaks)

const tsr__question_row tsr__question_leaks = {
    .about = {.name = "leaks",
              .summary = "what grows from step to step?",
              .description =
                  "Finds memory that survives every step and grows with each: the stack that "
                  "allocates it, how much per step, since when, and how much in total. Memory that "
                  "is allocated once (parameters, optimizer state), replaced in every step "
                  "(gradients), or stops growing (caches) is not a leak.\n\nSteps are those of "
                  "'tessera steps'; three whole steps are needed.",
              TSR__ONE_SUBJECT,
              .examples = {{"tessera leaks snapshot.pickle", "what grows, largest first"},
                           {"tessera leaks --json --top 0 snapshot.pickle",
                            "all of it, for a program"}},
              .title = "What grows from step to step?",
              .advice = "Rank the stacks whose memory grows with every training step, with bytes a "
                        "step. The tool for jobs that run out of memory after a while.",
              .ranks = "stacks",
              .has_stacks = true},
    .fields = &tsr__fields_leaks,
    .ask = ask,
    .report = report,
    .free = release,
};
