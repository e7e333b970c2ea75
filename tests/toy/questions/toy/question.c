/* question.c - the row of "toy". */
#include "questions/shared/row.h"

#include "base/memory.h"
#include "toy.h"

static const tsr_parameter parameters[] = {
    {.name = "which_events",
     .option = "which-events",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "ACTION",
     .help = "Events to count: alloc (default), free-requested or free-completed.",
     .choices = (const char *const[]){"alloc", "free-requested", "free-completed", NULL}},
    {.name = "least",
     .kind = TSR_PARAMETER_BYTES,
     .argument = "SIZE",
     .help = "Count those of SIZE or more.",
     .example = "1MiB"},
};

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  static const tsr_action actions[] = {TSR_ACTION_ALLOC, TSR_ACTION_FREE_REQUESTED,
                                       TSR_ACTION_FREE_COMPLETED};
  int which = tsr_params_choice(asked->params, "which_events");
  tsr__toy *value = NULL;
  int status = tsr__toy_compute(asked->studies[0], actions[which < 0 ? 0 : which],
                                tsr_params_count(asked->params, "least"), &value, error);
  if (status == 0) *out = value;
  return status;
}

static int report(const tsr__report_call *call, tsr_error *error) {
  return tsr__toy_report(call->inputs, call->value, call->options, call->write, call->context,
                         error);
}

const tsr__question_row tsr__question_toy = {
    .about = {.name = "toy",
              .summary = "how often does it happen?",
              .description = "Counts the events of a trace, for the tests of the registry.",
              TSR__ONE_SUBJECT,
              TSR__PARAMETERS(parameters),
              .examples = {{"tessera toy --least 1MiB snapshot.pickle", "large allocations"}},
              .title = "How often does it happen?",
              .advice = "Counts the events of a trace; here for the tests of the registry alone."},
    .fields = &tsr__fields_toy,
    .ask = ask,
    .report = report,
    .free = tsr__free,
};
