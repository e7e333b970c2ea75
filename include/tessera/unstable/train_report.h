/* tessera/unstable/train_report.h - a training run as it is printed: lines for people, or a stream of events, each a
 * JSON object on a line of its own (docs/train.md, "JSON"). */
#ifndef TESSERA_UNSTABLE_TRAIN_REPORT_H
#define TESSERA_UNSTABLE_TRAIN_REPORT_H

#include "tessera/output.h"
#include "tessera/unstable/planning.h"
#include "tessera/unstable/training.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One run's report. What each function prints is handed to `write` before it returns. One thread at a time. */
typedef struct tsr_train_report tsr_train_report;

/* `options` NULL means the defaults: text. The caller owns `*out`, for tsr_train_report_finish. Fails with
 * TSR_ERROR_MEMORY. */
int tsr_train_report_new(const tsr_report_options *options, tsr_write_fn *write, void *context,
                         tsr_train_report **out, tsr_error *error);
/* Release it; NULL is fine. Returns 0, or what the first failure was: TSR_ERROR_WRITE or TSR_ERROR_MEMORY. */
int tsr_train_report_finish(tsr_train_report *report, tsr_error *error);

/* What has to change so that `model` fits into the budget. False after a failure. */
bool tsr_train_report_plan(tsr_train_report *report, const char *model, const tsr_planned *planned);

#ifdef __cplusplus
}
#endif
#endif
