/* engine.c - the engine opens no snapshots. */
#include "base/error.h"
#include "open.h"

int half_open(const char *path, tsr_study **out, tsr_error *error) {
  (void)out;
  return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE, "%s: no half that reads it",
                   path);
}

void half_close(tsr_study *study) {
  (void)study;
}
