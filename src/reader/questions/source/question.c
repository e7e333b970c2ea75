/* question.c - the row of "source": which lines of a source file cost what?
 *
 * With a second snapshot the value is a comparison, otherwise the lines of one (`sourced`).
 */
#include "base/error.h"
#include "base/memory.h"
#include "questions/reports.h"
#include "questions/shared/row.h"

static const tsr_parameter parameters[] = {
    {.name = "source",
     .is_operand = true,
     .kind = TSR_PARAMETER_FILE,
     .argument = "SOURCE",
     .may_be_absent =
         true, /* it may be on another machine: the snapshot knows its lines by number */
     .help = "The source file, of the version that ran.",
     .advice = "Path of the Python file in question; with source_text, as much of its end as is "
               "unambiguous is enough.",
     .contents_advice = "The file's text, of the version that ran. Default: the content of "
                        "source_path on the machine of this server."},
    {.name = "compare",
     .kind = TSR_PARAMETER_SNAPSHOT,
     .hidden_from = TSR_INTERFACE_MCP,
     .argument = "OTHER",
     .help = "Also show what another snapshot holds, and the difference."},
};

/* One of the two is set. */
typedef struct sourced {
  tsr_source *source;
  tsr_source_comparison *comparison;
} sourced;

static void release(void *value) {
  sourced *is = value;
  tsr_source_free(is->source);
  tsr_source_comparison_free(is->comparison);
  tsr__free(is);
}

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  tsr_source_file file = {.path = NULL};
  sourced *is = TSR__NEW(sourced);
  if (!is) return tsr__fail_memory(error);
  file.text = tsr_params_file(asked->params, "source", &file.path, &file.size_bytes);
  int status;
  if (asked->study_count == 2)
    status = tsr_source_compare(asked->studies[0], asked->studies[1], &file, asked->query,
                                &is->comparison, error);
  else
    status = tsr_source_compute(asked->studies[0], &file, asked->query, &is->source, error);
  if (status)
    release(is);
  else
    *out = is;
  return status;
}

static int report(const tsr__report_call *call, tsr_error *error) {
  const sourced *is = call->value;
  if (is->comparison)
    return tsr__report_source_comparison(&call->inputs[0], &call->inputs[1], is->comparison,
                                         call->options, call->write, call->context, error);
  return tsr__report_source(call->inputs, is->source, call->options, call->write, call->context,
                            error);
}

const tsr__question_row tsr__question_source = {
    .about = {.name = "source",
              .summary = "which lines of my source file cost what?",
              .description =
                  "Finds the frames of a Python file in the stacks of what is live at the peak, "
                  "and shows for each line, function and class how many bytes it holds: self if it "
                  "is the file's innermost frame in the stack, inclusive if it is any. Then it "
                  "prints the file with these numbers in the margin; lines that hold nothing are "
                  "folded (-v shows them).\n\nThe file is found in the snapshot by its name and by "
                  "as much of its path as matches. It should be the version that ran; lines that "
                  "do not match the snapshot are reported.",
              TSR__ONE_SUBJECT,
              TSR__PARAMETERS(parameters),
              .examples = {{"tessera source snapshot.pickle model.py",
                            "what each line of model.py holds"},
                           {"tessera source before.pickle model.py --compare after.pickle",
                            "and what changed"},
                           {"tessera source --top 0 -v snapshot.pickle model.py", "everything"}},
              .title = "Which lines of a source file hold memory at the peak?",
              .advice = "Bytes at the peak for each line, function and class of one Python file: "
                        "of the line itself, and of all that was called from it.",
              .ranks = "lines, functions and classes"},
    .fields = &tsr__fields_source,
    .ask = ask,
    .report = report,
    .free = release,
};
