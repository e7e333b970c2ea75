/* peak.c - tessera's public API in some twenty lines: print what holds the memory at the peak of
 * the snapshot named on the command line.
 *
 * Every function that can fail answers 0 or a negative status and says why in the error; nothing
 * needs to be released after a failure that was not obtained before it.
 */
#include <stdio.h>
#include <tessera/tessera.h>

static int write_out(void *context, const char *data, size_t size_bytes) {
  return fwrite(data, 1, size_bytes, context) == size_bytes ? 0 : -1;
}

int main(int argc, char **argv) {
  tsr_snapshot *snapshot = NULL;
  tsr_peak *peak = NULL;
  tsr_error error = {.message = "usage: peak FILE"};
  tsr_query query = {.top = 10};
  tsr_report_options plain_text = {0};
  int status = argc == 2 ? 0 : TSR_ERROR_ARGUMENT;

  if (!status) status = tsr_snapshot_open(argv[1], NULL, &snapshot, &error);
  if (!status) status = tsr_peak_compute(snapshot, &query, &peak, &error);
  if (!status) {
    tsr_report_input input = {.path = argv[1], .snapshot = snapshot};
    status = tsr_report_peak(&input, peak, &plain_text, write_out, stdout, &error);
  }
  if (status) fprintf(stderr, "%s\n", error.message);
  tsr_peak_free(peak);
  tsr_snapshot_free(snapshot);
  return status || fflush(stdout) ? 1 : 0;
}
