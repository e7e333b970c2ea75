/* source.c - `tessera source FILE SOURCE`: which lines of my file cost what?
 *
 * The source's whole path helps to find it among the snapshot's files, however it was named here. */
#define _XOPEN_SOURCE 700

#include <stdlib.h>

#include "session.h"
#include "textfile.h"

static int ask_one(cli_session *session, const tsr_source_file *file) {
  cli_input input = {0};
  tsr_source *source = NULL;
  int status = cli_open(session, 0, &input);
  if (status == 0)
    status = tsr_source_compute(input.snapshot, file, &session->query, &source, &session->error);
  if (status == 0)
    status = tsr_report_source(&input.heading, source, &session->report, cli_output_write,
                               &session->output, &session->error);
  tsr_source_free(source);
  cli_close(&input);
  return status;
}

static int ask_both(cli_session *session, const tsr_source_file *file) {
  cli_input first = {0}, second = {0};
  tsr_source_comparison *comparison = NULL;
  tsr_error *error = &session->error;
  int status = cli_open(session, 0, &first);
  if (status == 0) status = cli_open_path(session, session->options->compare, &second);
  if (status == 0)
    status = tsr_source_compare(first.snapshot, second.snapshot, file, &session->query, &comparison,
                                error);
  if (status == 0)
    status =
        tsr_report_source_comparison(&first.heading, &second.heading, comparison, &session->report,
                                     cli_output_write, &session->output, error);
  tsr_source_comparison_free(comparison);
  cli_close(&first);
  cli_close(&second);
  return status;
}

int cli_source(cli_session *session) {
  const char *path = session->options->operands[1];
  char *text = NULL;
  tsr_source_file file = {.path = path};
  session->path = path;
  int status = cli_read_text(path, CLI_TEXTFILE_ANY, &text, &file.size_bytes, &session->error);
  if (status) return status;
  char *whole = realpath(path, NULL);
  if (whole) file.path = whole;
  file.text = text;
  status = session->options->compare ? ask_both(session, &file) : ask_one(session, &file);
  free(whole);
  free(text);
  return status;
}
