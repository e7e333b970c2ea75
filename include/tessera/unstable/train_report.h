/* tessera/unstable/train_report.h - a training run as it is printed: lines for people, or a stream of events, each a
 * JSON object on a line of its own (docs/json.md, "train").
 *
 *   tsr_train_report *report;
 *   int status = tsr_train_report_new(&how, write, context, &report, &error);
 *   ...                                                   in the run, after each step:
 *   tsr_train_report_begin(report, "gpt2", false, step);  (the first one only)
 *   tsr_train_report_step(report, step, &times);
 *   ...                                                   after the run:
 *   tsr_train_report_end(report, &ending);
 *   status = tsr_train_report_finish(report, &error); */
#ifndef TESSERA_UNSTABLE_TRAIN_REPORT_H
#define TESSERA_UNSTABLE_TRAIN_REPORT_H

#include "tessera/output.h"
#include "tessera/unstable/fields.h"
#include "tessera/unstable/planning.h"
#include "tessera/unstable/training.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One run's report. Each function below passes what it prints to `write` before it returns, and returns false once
 * writing has failed or memory has run out; tsr_train_report_finish returns which. One thread at a time. */
typedef struct tsr_train_report tsr_train_report;

/* The times that a step is printed with, in seconds; the library reads no clock. */
typedef struct tsr_train_times {
  double step; /* what the step took, without its evaluation */
  double
      since; /* from the start of the run to the end of the step, evaluations and saves included */
} tsr_train_times;

/* How a run ended. */
typedef struct tsr_train_ending {
  const tsr_training *training;
  const tsr_train_rank *ranks; /* training->rank_count of them; NULL: there is one rank */
  const char *plan_hash;
  double seconds;       /* from the start of the run to its end */
  bool was_interrupted; /* by a signal */
  bool is_saved;        /* to the folder of --save */
} tsr_train_ending;

/* The words for tsr_train_products, in its order; ends at NULL. */
extern const char *const tsr_train_products_words[];
/* The words of --isa, in the order of tsr_train_isa from TSR_TRAIN_ISA_PLAIN on; ends in NULL. */
extern const char *const tsr_train_isa_words[];

/* `options` NULL means the defaults: text. The caller owns `*out`, for tsr_train_report_finish. Fails with
 * TSR_ERROR_MEMORY. */
int tsr_train_report_new(const tsr_report_options *options, tsr_write_fn *write, void *context,
                         tsr_train_report **out, tsr_error *error);
/* Release it; NULL is fine. Returns 0, or the first failure: TSR_ERROR_WRITE or TSR_ERROR_MEMORY. */
int tsr_train_report_finish(tsr_train_report *report, tsr_error *error);

/* What has to change so that `model` fits into the budget. */
bool tsr_train_report_plan(tsr_train_report *report, const char *model, const tsr_planned *planned);
/* What is trained and which peak is predicted. Text only. `step` is the first one; `has_weights`: weights were read, and
 * are not random. */
bool tsr_train_report_begin(tsr_train_report *report, const char *model, bool has_weights,
                            const tsr_train_step *step);
/* A finished step. The text shows the first, the last, every skipped and about twenty others, and at least one in ten
 * seconds; the JSON shows all. */
bool tsr_train_report_step(tsr_train_report *report, const tsr_train_step *step,
                           const tsr_train_times *times);
/* A text that the weights of a step continue: the prompt, and what follows it, of `size_bytes`. */
bool tsr_train_report_sample(tsr_train_report *report, uint64_t step, const char *prompt,
                             const char *text, size_t size_bytes);
/* The time of each op: training->op_count of `ops`, the longest first. */
bool tsr_train_report_ops(tsr_train_report *report, const tsr_training *training,
                          const tsr_train_op *ops);
/* What is in memory at the peak: in text, `top` rows of each table (0: all). */
bool tsr_train_report_profile(tsr_train_report *report, const tsr_memory_profile *profile,
                              uint64_t top);
/* What filled the budget, of a run that ran out of memory. Text only. */
bool tsr_train_report_out_of_memory(tsr_train_report *report, const tsr_training *training,
                                    uint64_t budget_bytes);
/* The summary. */
bool tsr_train_report_end(tsr_train_report *report, const tsr_train_ending *ending);

/* The fields of the events, each a record of its own ("TrainStep"), in the order in which a run prints them. NULL at the
 * end. */
const tsr_record *tsr_train_event_fields(size_t index);

#ifdef __cplusplus
}
#endif
#endif
