/* deliver.c - see deliver.h. */
#include "deliver.h"

#include "page.h"
#include "sql/save.h"

int cli_ranks_deliver(cli_session *session, const cli_asking *asking) {
  const char *form;
  int status = cli_choose_form(session, &form);
  if (status == 0 && form && sql_saves_ranks(form))
    status = sql_save_ranks(session, tsr_answer_value(asking->answer), form);
  else if (status == 0 && form)
    status = tsr_answer_write_form(asking->answer, form, NULL, &session->report, cli_output_write,
                                   &session->output, &session->error);
  else if (status == 0)
    status = cli_asking_print(session, asking);
  return status ? status : cli_page_save_ranks(session, asking->answer);
}

int cli_ranks_judge(cli_session *session, const tsr_ranks *ranks) {
  static const char *const reasons[TSR_RANK_DOUBT_COUNT] = {
      [TSR_RANK_BROKEN] = "files that cannot be read could hold more; --allow-missing lets it pass",
      [TSR_RANK_MISSING] = "ranks are missing, and could hold more; --allow-missing lets it pass",
      [TSR_RANK_PARTIAL] = "truncated or damaged snapshots could hold more",
      [TSR_RANK_OUT_OF_MEMORY] = "ranks ran out of memory: they needed more than they got",
      [TSR_RANK_UNKNOWN] =
          "most memory of a rank has no category, and could belong to one with a budget"};
  session->is_complete = true;
  if (!ranks->rank_count) return CLI_INPUT;
  if (ranks->failed_count) return CLI_CHECK_FAILED;
  if (!ranks->doubt) return 0;
  cli_say(NULL, "the check is inconclusive: %s", reasons[ranks->doubt]);
  return CLI_INPUT;
}
