/* profile.c - `tessera profile FILE`: what kind of memory is it, at the peak and over time?
 *
 * Parameters, activations, optimizer state: the kinds say which technique would help. The words
 * that --by takes stand in its row in the order of tsr_profile_by. The page (--html) is that of
 * `tessera view`, opened as the other options say.
 */
#include "page.h"
#include "rules.h"

_Static_assert(TSR_PROFILE_BY_CATEGORY == 0 && TSR_PROFILE_BY_ANNOTATION == 1 &&
                   TSR_PROFILE_BY_COMPILE_CONTEXT == 2 && TSR_PROFILE_BY_RULES == 3 &&
                   TSR_PROFILE_BY_OP == 4 && TSR_PROFILE_BY_MODULE == 5 &&
                   TSR_PROFILE_BY_LINE == 6 && TSR_PROFILE_BY_STACK == 7,
               "--by's words are in the order of tsr_profile_by");

/* Moments of a history that nobody asked to be longer. */
enum { DEFAULT_SAMPLES = 200 };

/* What the options ask for: 0, or an exit status. Rules are the caller's to free. */
static int read_options(const cli_session *session, tsr_profile_options *how, tsr_rules **rules) {
  const cli_options *options = session->options;
  how->is_ordered = options->is_ordered;
  how->by = options->by >= 0 ? (tsr_profile_by)options->by
            : options->rules ? TSR_PROFILE_BY_RULES
                             : TSR_PROFILE_BY_CATEGORY;
  if (options->rules_of_categories == 1) {
    if (how->by != TSR_PROFILE_BY_CATEGORY)
      return cli_usage_error(options->command, "--categories goes with --by category only");
    how->by = TSR_PROFILE_BY_MOSAIC_CATEGORY;
  }
  if (how->by == TSR_PROFILE_BY_RULES && !options->rules)
    return cli_usage_error(options->command, "--by rules needs --rules FILE-OR-TEXT");
  if (how->by != TSR_PROFILE_BY_RULES && options->rules)
    return cli_usage_error(options->command, "--rules goes with --by rules only");
  if (options->samples && !options->over_time)
    return cli_usage_error(options->command, "--samples goes with --over-time only");
  if (options->over_time) {
    uint64_t samples = options->samples ? options->samples : DEFAULT_SAMPLES;
    how->moment_count = samples > SIZE_MAX ? SIZE_MAX : (size_t)samples;
  }
  if (!options->rules) return 0;
  int status = cli_rules_load(session, "rules", options->rules, TSR_RULES_STRICT, rules);
  how->rules = *rules;
  return status;
}

int cli_profile(cli_session *session) {
  cli_input input = {0};
  tsr_profile *profile = NULL;
  tsr_rules *rules = NULL;
  tsr_profile_options how = {0};
  tsr_error *error = &session->error;
  int status = read_options(session, &how, &rules);
  if (status == 0) status = cli_open(session, 0, &input);
  if (status == 0)
    status = tsr_profile_compute(input.snapshot, &how, &session->query, &profile, error);
  if (status == 0)
    status = tsr_report_profile(&input.heading, profile, &session->report, cli_output_write,
                                &session->output, error);
  if (status == 0 && session->options->html) {
    cli_page_from from = {.inputs = &input, .count = 1, .rules = rules, .query = &session->query};
    from.by = how.by;
    from.options.by = cli_page_grouping(how.by);
    from.options.is_ordered = how.is_ordered;
    status = cli_page_save(session, &from, session->options->html);
  }
  tsr_profile_free(profile);
  cli_close(&input);
  tsr_rules_free(rules);
  return status;
}
