/* mosaic_usage.c - a drop-in, see mosaic.h. */
#include "mosaic.h"
int cli_mosaic_peak(cli_session *session) {
  (void)session;
  return TSR_ERROR_UNSUPPORTED;
}
int cli_mosaic_usage(cli_session *session) {
  (void)session;
  return TSR_ERROR_UNSUPPORTED;
}
int cli_mosaic_diff(cli_session *session) {
  (void)session;
  return TSR_ERROR_UNSUPPORTED;
}
