/* mosaic_stages.c - a drop-in, see mosaic.h. */
#include "mosaic.h"
int cli_mosaic_stages(cli_session *session) {
  (void)session;
  return TSR_ERROR_UNSUPPORTED;
}
