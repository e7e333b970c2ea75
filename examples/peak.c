/* peak.c - tessera's public API in some thirty lines: print what holds the memory at the peak of
 * the snapshot named on the command line, and how much that is. Any other question is asked in the same way.
 *
 * Every function that can fail returns 0 or a negative status and says why in the error. After a failure
 * there is nothing to release that was not there before; the _free functions accept NULL.
 */
#include <inttypes.h>
#include <stdio.h>
#include <tessera/tessera.h>

static int write_out(void *context, const char *data, size_t size_bytes) {
  return fwrite(data, 1, size_bytes, context) == size_bytes ? 0 : -1;
}

int main(int argc, char **argv) {
  tsr_snapshot *snapshot = NULL;
  tsr_study *study = NULL;
  tsr_answer *answer = NULL;
  tsr_error error = {.message = "usage: peak FILE"};
  tsr_query query = TSR_OPTIONS_INIT(tsr_query);
  int status = argc == 2 ? 0 : TSR_ERROR_ARGUMENT;

  query.top = 10;
  if (!status) status = tsr_snapshot_open(argv[1], NULL, &snapshot, &error);
  if (!status) status = tsr_study_new(snapshot, &study, &error);
  if (!status) {
    tsr_subject subject = {study, argv[1]};
    status = tsr_ask(tsr_question_find("peak"), &subject, 1, NULL, &query, &answer, &error);
  }
  if (!status) status = tsr_answer_write(answer, NULL, write_out, stdout, &error);
  if (!status) {
    int64_t bytes = 0;
    status = tsr_answer_number(answer, "peak.allocated_bytes", &bytes, &error);
    if (!status) printf("The peak is %" PRId64 " bytes.\n", bytes);
    if (status == TSR_ERROR_ABSENT) status = 0; /* a snapshot of no device has no peak */
  }
  if (status) fprintf(stderr, "%s\n", error.message);
  tsr_answer_free(answer);
  tsr_study_free(study);
  tsr_snapshot_free(snapshot);
  return status || fflush(stdout) ? 1 : 0;
}
