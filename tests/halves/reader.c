/* reader.c - the reader opens snapshots. */
#include "open.h"

int half_open(const char *path, tsr_study **out, tsr_error *error) {
  tsr_snapshot *snapshot = NULL;
  int status = tsr_snapshot_open(path, NULL, &snapshot, error);
  if (status == 0) status = tsr_study_new(snapshot, out, error);
  if (status) tsr_snapshot_free(snapshot);
  return status;
}

void half_close(tsr_study *study) {
  const tsr_snapshot *snapshot = study ? tsr_study_snapshot(study) : NULL;
  tsr_study_free(study);
  tsr_snapshot_free((tsr_snapshot *)(uintptr_t)snapshot);
}
