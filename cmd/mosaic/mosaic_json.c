/* mosaic_json.c - the drop-in that writes a snapshot as Python's json.dump(indent=4) does.
 *
 * Unlike in Mosaic, the file appears only when it is complete. Its default name is Mosaic's. */
#include "core/export.h"
#include "mosaic.h"

int cli_mosaic_json(cli_session *session) {
  static const tsr_format json = {
      .name = "JSON", .content = TSR_FORMAT_SNAPSHOT, .form = TSR_EXPORT_PYTHON_JSON};
  const tsr_params *own = session->options->own;
  cli_input input = {0};
  int status = cli_mosaic_open(session, "snapshot", tsr_params_text(own, "snapshot"), &input);
  const char *path = tsr_params_text(own, "output_file");
  session->output.path = path ? path : session->options->command->default_output;
  if (status == 0) (void)cli_export_warn_of_size(session, input.snapshot, &json);
  if (status == 0)
    status = tsr_snapshot_export(input.snapshot, TSR_EXPORT_PYTHON_JSON, cli_output_write,
                                 &session->output, &session->error);
  if (status == 0) cli_mosaic_services(session);
  cli_close(&input);
  return status;
}
