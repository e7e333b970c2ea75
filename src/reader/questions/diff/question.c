/* question.c - the row of "diff": what changed between two runs?
 *
 * The question after a change that made memory grow, and between a rank that died and one that did
 * not.
 */
#include <assert.h>

#include "questions/reports.h"
#include "questions/shared/row.h"

static const tsr_parameter parameters[] = {
    {.name = "by",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "GROUPING",
     .help = "What to compare: stack (default), category, op or line, whose changes add up to the "
             "same total; or allocation: each allocation of the last whole step.",
     .advice = "What to compare: stacks (default), categories, operations, or lines of the "
               "program; or the "
               "allocations of the last whole step one by one, such as a predicted run's and a "
               "recorded one's.",
     .choices = (const char *const[]){TSR_BY_STACK, TSR_BY_CATEGORY, TSR_BY_OP, TSR_BY_LINE,
                                      TSR_BY_ALLOCATION, NULL},
     .synonyms = TSR_GROUPING_SYNONYMS},
};

static_assert(TSR_DIFF_BY_STACK == 0 && TSR_DIFF_BY_CATEGORY == 1 && TSR_DIFF_BY_OP == 2 &&
                  TSR_DIFF_BY_LINE == 3 && TSR_DIFF_BY_ALLOCATION == 4,
              "the words of `by` are in the order of tsr_diff_by");

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  int by = tsr_params_choice(asked->params, "by");
  tsr_diff *diff = NULL;
  int status =
      tsr_diff_compute(asked->studies[0], asked->studies[1],
                       by < 0 ? TSR_DIFF_BY_STACK : (tsr_diff_by)by, asked->query, &diff, error);
  if (status == 0) *out = diff;
  return status;
}

static int report(const tsr__report_call *call, tsr_error *error) {
  return tsr__report_diff(&call->inputs[0], &call->inputs[1], call->value, call->options,
                          call->write, call->context, error);
}

static void release(void *value) {
  tsr_diff_free(value);
}

const tsr__question_row tsr__question_diff = {
    .about =
        {.name = "diff",
         .summary = "what changed between two runs?",
         .situation = TSR_SITUATION_CHANGE,
         .description =
             "Compares what was live at the peaks of two snapshots, stack by stack, and lists what "
             "was added, removed, grew and shrank, and by how much.\n\n"
             "Stacks match if the functions, files and lines of all their frames are equal. The "
             "remaining stacks match if their functions and file names are equal; this is "
             "reported. Devices with the same number are compared; if each file has only one "
             "device, these two are, so that two ranks can be compared.\n\n"
             "With --by allocation the last whole steps are compared instead, in the order in "
             "which they allocate. It lists, with category, size and stack, each allocation that "
             "only one of them has, that differs in size, or that is live at only one of the "
             "peaks. This shows exactly what a simulated run lacks, compared with a recorded one.",
         .subjects =
             {{"OLD", "old_path",
               "Path of the snapshot to compare with: the earlier run, or the healthy rank.",
               tsr_study_snapshot},
              {"NEW", "new_path", "Path of the snapshot in question: the later run.",
               tsr_study_snapshot}},
         .subject_count = 2,
         TSR__PARAMETERS(parameters),
         .examples = {{"tessera diff before.pickle after.pickle", "the ten largest changes"},
                      {"tessera diff --by allocation predicted.pickle measured.pickle",
                       "what the prediction lacks"},
                      {"tessera diff --json --top 0 rank0.pickle rank7.pickle",
                       "all of them, for a program"}},
         .title = "What changed between two runs?",
         .advice =
             "Compare the peaks of two snapshots stack by stack and rank what was added, removed, "
             "grew or shrank. The tool for regressions, and for two ranks of one job.",
         .ranks = "changes",
         .has_stacks = true},
    .fields = &tsr__fields_diff,
    .ask = ask,
    .report = report,
    .free = release,
};
