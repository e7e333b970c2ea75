/* mosaic_json.c - the drop-in that writes a snapshot as Python's json.dump(indent=4) does.
 *
 * Not as in Mosaic, the file appears when it is complete. Its default is Mosaic's. */
#include "mosaic.h"

int cli_mosaic_json(cli_session *session) {
  const cli_mosaic_options *options = &session->options->mosaic;
  cli_input input = {0};
  int status = cli_mosaic_open(session, "snapshot", options->snapshot, &input);
  session->output.path = options->output_file ? options->output_file : "/tmp/snapshot.json";
  if (status == 0)
    status = tsr_snapshot_export(input.snapshot, TSR_EXPORT_PYTHON_JSON, cli_output_write,
                                 &session->output, &session->error);
  if (status == 0) cli_mosaic_services(session);
  cli_close(&input);
  return status;
}
