/* A lock: any text. What is read can be checked against, and written again. */
#include "../unit/study_support.h"
#include "questions.h"
#include "questions/reports.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char memory[] =
    "{\"segments\": [], \"device_traces\": [[{\"action\": \"alloc\", \"addr\": 4096, \"size\": "
    "600, "
    "\"frames\": [{\"name\": \"load\", \"filename\": \"data.py\", \"line\": 1}]}]]}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr_lock *lock = NULL;
  tsr_snapshot *snapshot = NULL;
  tsr_check *check = NULL;
  tsr_error error = {0};
  int status = tsr_lock_parse((const char *)data, size, &lock, &error);
  check_error(status, &error);
  require((status == 0) == (lock != NULL), "a lock, or an error");
  if (!lock) return 0;
  require(!tsr_snapshot_read(memory, sizeof memory - 1, NULL, &snapshot, NULL), "a snapshot");
  tsr_check_options how = {.lock = lock, .tolerance_millionths = 10000};
  require(!tsr_check_compute(test_study(snapshot), &how, NULL, &check, &error), "a check");
  for (int format = TSR_CHECK_TEXT; format <= TSR_CHECK_MARKDOWN; format++) {
    tsr_check_face face = {.format = (tsr_check_format)format};
    tsr_report_input heading = {"file", snapshot};
    tsr__buffer written = {0};
    status = tsr__report_check(&heading, check, &face, NULL, fuzz_write, &written, &error);
    check_written(status, &error, &written);
  }
  tsr_check_free(check);
  tsr_snapshot_free(snapshot);
  tsr_lock_free(lock);
  return 0;
}
