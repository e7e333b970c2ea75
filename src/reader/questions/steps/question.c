/* question.c - the row of "steps": where do steps begin, and what does one take? */
#include "questions/reports.h"
#include "questions/shared/row.h"

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  tsr_steps *steps = NULL;
  int status = tsr_steps_compute(asked->studies[0], asked->query, &steps, error);
  if (status == 0) *out = steps;
  return status;
}

TSR__QUESTION_REPORTS(steps)

const tsr__question_row tsr__question_steps = {
    .about = {.name = "steps",
              .summary = "where do steps begin, and what does one need?",
              .description =
                  "Finds the steps of a training run, or the iterations of any other loop, without "
                  "markers: by the phases visible in stacks (forward, backward, the optimizer's "
                  "step); without a backward pass by the outermost loop in the program's Python; "
                  "without Python by stacks and sizes that repeat. The layers of a model are not "
                  "taken for steps, and a call that the program makes once is in no loop. Shows "
                  "the peak of a steady step, how much more warm-up needs, "
                  "and the peak of each phase.\n\n"
                  "If the snapshot has annotations of Optimizer.step or ProfilerStep, it shows how "
                  "many of them agree. A step that is cut off by the recording, or that ran out of "
                  "memory, is shown, but not used for any figure.",
              TSR__ONE_SUBJECT,
              .examples = {{"tessera steps snapshot.pickle",
                            "the steps, and what a steady one needs"},
                           {"tessera steps -v snapshot.pickle", "every step"},
                           {"tessera steps --json snapshot.pickle", "for a program"}},
              .title = "Where do training steps begin, and what does one need?",
              .advice = "Find the steps of a training run without any marks in the program: how "
                        "many there are, what a steady one peaks at, whether warm-up went higher, "
                        "and the peaks of forward, backward and optimizer."},
    .fields = &tsr__fields_steps,
    .ask = ask,
    .report = report,
    .free = release,
};
