/* mosaic_stages.c - the drop-in that prints memory at each annotation. */
#include "mosaic.h"

int cli_mosaic_stages(cli_session *session) {
  const tsr_params *own = session->options->own;
  size_t annotation_count;
  const char *const *annotations = tsr_params_texts(own, "annotation", &annotation_count);
  cli_input input = {0};
  tsr_mosaic_stages *stages = NULL;
  tsr_error *error = &session->error;
  int status = cli_mosaic_open(session, "snapshot", tsr_params_text(own, "snapshot"), &input);
  if (status == 0)
    status = cli_mosaic_require_trace(session, tsr_params_text(own, "snapshot"), input.snapshot);
  if (status == 0)
    status = tsr_mosaic_stages_compute(input.study, annotations, annotation_count, &stages, error);
  if (status == 0) status = tsr_mosaic_log_stages(stages, cli_mosaic_log, NULL, error);
  if (status == 0) cli_mosaic_services(session);
  if (status == 0)
    status = tsr_mosaic_print_stages(input.snapshot, stages, cli_mosaic_is_shown(),
                                     cli_output_write, &session->output, error);
  if (status == 0 && annotation_count && !stages->count) { /* Mosaic fails, too */
    cli_say(session->options->command->about.name, "no annotation of %s contains %s'%s'",
            tsr_params_text(own, "snapshot"),
            annotation_count > 1 ? "one of the texts, such as " : "", annotations[0]);
    status = CLI_CHECK_FAILED;
  }
  tsr_mosaic_stages_free(stages);
  cli_close(&input);
  return status;
}
