/* row.h - what the rows of questions about snapshots have in common. */
#ifndef TSR_QUESTIONS_SHARED_ROW_H
#define TSR_QUESTIONS_SHARED_ROW_H

#include "ask/question.h"
#include "tessera/study.h"

/* The subject of a question about one snapshot. */
#define TSR__ONE_SUBJECT                                                                        \
  .subjects = {{"FILE", "path",                                                                 \
                "Path of the memory snapshot on the machine of this server: a file of "         \
                "torch.cuda.memory._dump_snapshot(), also as JSON, as PyTorch's HTML page, or " \
                "compressed. It is read as data; nothing in it is executed.",                   \
                tsr_study_snapshot}},                                                           \
  .subject_count = 1

/* The parameter of questions that repeat the trace under other settings. */
#define TSR__SETTINGS_TO_TRY(ADVICE)                                                         \
  {                                                                                          \
    .name = "settings", .option = "set", .kind = TSR_PARAMETER_SETTINGS, .argument = "CONF", \
    .help = "Settings to try, in the syntax of PYTORCH_CUDA_ALLOC_CONF; separate several "   \
            "configurations by blanks or semicolons.",                                       \
    .advice = (ADVICE)                                                                       \
  }

/* `report` and `release` of a question about one snapshot whose value is a tsr_NAME: the names that the
 * library gives to the parts of most answers. */
#define TSR__QUESTION_REPORTS(NAME)                                                  \
  static int report(const tsr__report_call *call, tsr_error *error) {                \
    return tsr__report_##NAME(call->inputs, call->value, call->options, call->write, \
                              call->context, error);                                 \
  }                                                                                  \
  static void release(void *value) {                                                 \
    tsr_##NAME##_free(value);                                                        \
  }

#endif
