/* trim.c - `tessera trim FILE -o OUT --events A..B`: a part of a trace as a snapshot of its own.
 *
 * For viewers that cannot hold the whole, and for showing someone one step: PyTorch's own tools
 * read what is written, and every answer about it is that about the whole at the same moment.
 */
#include "export.h"
#include "session.h"
#include "when.h"

int cli_trim(cli_session *session) {
  cli_input input = {0};
  tsr_snapshot *part = NULL;
  tsr_window window;
  int status = cli_read_window(session->options, &window);
  if (status == 0) status = cli_export_check(session->options);
  if (status == 0) status = cli_open(session, 0, &input);
  if (status == 0)
    status = tsr_snapshot_trim(input.snapshot, &window, &session->query, &part, &session->error);
  if (status == 0) status = cli_export_write(session, part);
  tsr_snapshot_free(part);
  cli_close(&input);
  return status;
}
