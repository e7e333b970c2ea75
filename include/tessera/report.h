/* tessera/report.h - turn an answer into text for a person or JSON for a program.
 *
 * Both come from one description of the answer, so they cannot disagree. Output goes to a write
 * function of the caller's; the library itself never touches standard output.
 */
#ifndef TESSERA_REPORT_H
#define TESSERA_REPORT_H

#include "tessera/answers.h"
#include "tessera/simulate.h"
#include "tessera/source.h"
#include "tessera/stages.h"
#include "tessera/steps.h"
#include "tessera/whatif.h"
#include "tessera/why.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tsr_report_format { TSR_REPORT_TEXT, TSR_REPORT_JSON } tsr_report_format;

/* One file the answer was computed from, for the report's heading. */
typedef struct tsr_report_input {
  const char *path; /* as the user named it */
  const tsr_snapshot *snapshot;
} tsr_report_input;

/* How to print; a zeroed struct is plain text at 100 columns. */
typedef struct tsr_report_options {
  tsr_report_format format;
  bool color;       /* ANSI colours, text only */
  bool full_stacks; /* show framework and interpreter frames, text only */
  bool quiet;       /* leave warnings out of text (JSON always has them) */
  bool verbose;     /* more columns in text */
  /* JSON: fold stacks as text does, down to the innermost so many frames of those that text shows,
   * and count the rest in "folded_frames"; 0 = whole stacks. */
  uint32_t stack_frames;
  uint32_t width; /* columns of the terminal, 0 = 100 */
} tsr_report_options;

/* Each writes one whole report. Fails with TSR_ERROR_MEMORY or TSR_ERROR_WRITE. */
int tsr_report_info(const tsr_report_input *input, const tsr_info *info,
                    const tsr_report_options *options, tsr_write_fn *write, void *context,
                    tsr_error *error);
int tsr_report_peak(const tsr_report_input *input, const tsr_peak *peak,
                    const tsr_report_options *options, tsr_write_fn *write, void *context,
                    tsr_error *error);
int tsr_report_at(const tsr_report_input *input, const tsr_at *at,
                  const tsr_report_options *options, tsr_write_fn *write, void *context,
                  tsr_error *error);
int tsr_report_profile(const tsr_report_input *input, const tsr_profile *profile,
                       const tsr_report_options *options, tsr_write_fn *write, void *context,
                       tsr_error *error);
int tsr_report_source(const tsr_report_input *input, const tsr_source *source,
                      const tsr_report_options *options, tsr_write_fn *write, void *context,
                      tsr_error *error);
int tsr_report_source_comparison(const tsr_report_input *first, const tsr_report_input *second,
                                 const tsr_source_comparison *comparison,
                                 const tsr_report_options *options, tsr_write_fn *write,
                                 void *context, tsr_error *error);
int tsr_report_stages(const tsr_report_input *input, const tsr_stages *stages,
                      const tsr_report_options *options, tsr_write_fn *write, void *context,
                      tsr_error *error);
int tsr_report_steps(const tsr_report_input *input, const tsr_steps *steps,
                     const tsr_report_options *options, tsr_write_fn *write, void *context,
                     tsr_error *error);
int tsr_report_leaks(const tsr_report_input *input, const tsr_leaks *leaks,
                     const tsr_report_options *options, tsr_write_fn *write, void *context,
                     tsr_error *error);
int tsr_report_whatif(const tsr_report_input *input, const tsr_whatif *whatif,
                      const tsr_report_options *options, tsr_write_fn *write, void *context,
                      tsr_error *error);
int tsr_report_why(const tsr_report_input *input, const tsr_why *why,
                   const tsr_report_options *options, tsr_write_fn *write, void *context,
                   tsr_error *error);
/* The report of two snapshots. */
int tsr_report_diff(const tsr_report_input *old_input, const tsr_report_input *new_input,
                    const tsr_diff *diff, const tsr_report_options *options, tsr_write_fn *write,
                    void *context, tsr_error *error);

/* `input` names the model, and has the simulation's snapshot; `capacity_bytes` is what it was
 * simulated under, 0 for no limit. */
int tsr_report_simulate(const tsr_report_input *input, const tsr_simulation *simulation,
                        uint64_t capacity_bytes, const tsr_report_options *options,
                        tsr_write_fn *write, void *context, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
