/* reports.h - print an answer, as text for a person or as JSON for a program.
 *
 * Both come from one description of the answer, so they cannot disagree. One function for each type
 * of answer, in src/reader/questions/NAME/report.c; a question's row names it, and tsr_answer_write calls it. */
#ifndef TSR_QUESTIONS_REPORTS_H
#define TSR_QUESTIONS_REPORTS_H

#include "emit/fields.h"
#include "tessera/output.h"
#include "tessera/unstable/answers.h"
#include "tessera/unstable/check.h"
#include "tessera/unstable/input.h"
#include "tessera/unstable/pools.h"
#include "tessera/unstable/source.h"
#include "tessera/unstable/stages.h"
#include "tessera/unstable/steps.h"
#include "tessera/unstable/whatif.h"
#include "tessera/unstable/why.h"

/* The fields of each answer's JSON: src/reader/questions/NAME/fields.c. */
extern const tsr_record tsr__fields_info, tsr__fields_peak, tsr__fields_at, tsr__fields_profile,
    tsr__fields_diff, tsr__fields_stages, tsr__fields_source, tsr__fields_steps, tsr__fields_leaks,
    tsr__fields_whatif, tsr__fields_pools, tsr__fields_why, tsr__fields_check;

/* Each writes one complete report. Fails with TSR_ERROR_MEMORY or TSR_ERROR_WRITE. */
int tsr__report_info(const tsr_report_input *input, const tsr_info *info,
                     const tsr_report_options *options, tsr_write_fn *write, void *context,
                     tsr_error *error);
int tsr__report_peak(const tsr_report_input *input, const tsr_peak *peak,
                     const tsr_report_options *options, tsr_write_fn *write, void *context,
                     tsr_error *error);
int tsr__report_at(const tsr_report_input *input, const tsr_at *at,
                   const tsr_report_options *options, tsr_write_fn *write, void *context,
                   tsr_error *error);
int tsr__report_profile(const tsr_report_input *input, const tsr_profile *profile,
                        const tsr_report_options *options, tsr_write_fn *write, void *context,
                        tsr_error *error);
int tsr__report_source(const tsr_report_input *input, const tsr_source *source,
                       const tsr_report_options *options, tsr_write_fn *write, void *context,
                       tsr_error *error);
int tsr__report_source_comparison(const tsr_report_input *first, const tsr_report_input *second,
                                  const tsr_source_comparison *comparison,
                                  const tsr_report_options *options, tsr_write_fn *write,
                                  void *context, tsr_error *error);
int tsr__report_stages(const tsr_report_input *input, const tsr_stages *stages,
                       const tsr_report_options *options, tsr_write_fn *write, void *context,
                       tsr_error *error);
int tsr__report_steps(const tsr_report_input *input, const tsr_steps *steps,
                      const tsr_report_options *options, tsr_write_fn *write, void *context,
                      tsr_error *error);
int tsr__report_leaks(const tsr_report_input *input, const tsr_leaks *leaks,
                      const tsr_report_options *options, tsr_write_fn *write, void *context,
                      tsr_error *error);
int tsr__report_whatif(const tsr_report_input *input, const tsr_whatif *whatif,
                       const tsr_report_options *options, tsr_write_fn *write, void *context,
                       tsr_error *error);
int tsr__report_why(const tsr_report_input *input, const tsr_why *why,
                    const tsr_report_options *options, tsr_write_fn *write, void *context,
                    tsr_error *error);
int tsr__report_pools(const tsr_report_input *input, const tsr_pools *pools,
                      const tsr_report_options *options, tsr_write_fn *write, void *context,
                      tsr_error *error);
/* The report of two snapshots. */
int tsr__report_diff(const tsr_report_input *old_input, const tsr_report_input *new_input,
                     const tsr_diff *diff, const tsr_report_options *options, tsr_write_fn *write,
                     void *context, tsr_error *error);

/* The format in `options` does not matter. Fails with TSR_ERROR_WRITE or
 * _MEMORY. */
int tsr__report_check(const tsr_report_input *input, const tsr_check *check,
                      const tsr_check_face *face, const tsr_report_options *options,
                      tsr_write_fn *write, void *context, tsr_error *error);

#endif
