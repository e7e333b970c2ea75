/* mosaic_json.c - a drop-in, see mosaic.h. */
#include "mosaic.h"
int cli_mosaic_json(cli_session *session) {
  (void)session;
  return TSR_ERROR_UNSUPPORTED;
}
