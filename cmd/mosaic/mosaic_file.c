/* mosaic_file.c - the drop-in for Mosaic's analysis of one source file. */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <string.h>

#include "core/textfile.h"
#include "mosaic.h"

/* A snapshot, its peak, and what the file holds there. */
typedef struct side {
  cli_input input;
  tsr_mosaic_peak *peak;
  tsr_mosaic_file *analysis;
} side;

static void release(side *s) {
  tsr_mosaic_file_free(s->analysis);
  tsr_mosaic_peak_free(s->peak);
  cli_close(&s->input);
}

static int read_side(cli_session *session, const char *option, const char *path,
                     const tsr_source_file *file, side *out) {
  const tsr_params *own = session->options->own;
  tsr_mosaic_window window = {.has_stop = tsr_params_text(own, "allocation") &&
                                          *tsr_params_text(own, "allocation")};
  int status = window.has_stop ? cli_mosaic_moment(session, &window.stop) : 0;
  if (status == 0) status = cli_mosaic_open(session, option, path, &out->input);
  if (status == 0)
    status = tsr_mosaic_peak_compute(out->input.study, &window, &out->peak, &session->error);
  if (status == 0)
    status =
        tsr_mosaic_log_peak(out->input.snapshot, out->peak, cli_mosaic_log, NULL, &session->error);
  if (status == 0)
    status =
        tsr_mosaic_file_compute(out->input.study, out->peak, file, &out->analysis, &session->error);
  return status;
}

static int analyze(cli_session *session, const tsr_source_file *file) {
  const tsr_params *own = session->options->own;
  cli_output *output = &session->output;
  side only = {.peak = NULL};
  int status = read_side(session, "snapshot", tsr_params_text(own, "snapshot"), file, &only);
  if (status == 0) cli_mosaic_services(session);
  if (status == 0)
    status = tsr_mosaic_print_file(only.input.snapshot, only.peak, only.analysis,
                                   tsr_params_flag(own, "verbose"), cli_mosaic_write, output,
                                   &session->error);
  if (status == 0 && tsr_params_flag(own, "augmented_view"))
    status = tsr_mosaic_print_file_view(only.analysis, cli_mosaic_write, output, &session->error);
  release(&only);
  return status;
}

static int compare(cli_session *session, const tsr_source_file *file) {
  const tsr_params *own = session->options->own;
  side base = {.peak = NULL}, newer = {.peak = NULL};
  if (!tsr_params_text(own, "base_snapshot") || !tsr_params_text(own, "diff_snapshot"))
    return cli_usage_error(session->options->command, "missing --%s-snapshot FILE",
                           tsr_params_text(own, "base_snapshot") ? "diff" : "base");
  int status =
      read_side(session, "base-snapshot", tsr_params_text(own, "base_snapshot"), file, &base);
  if (status == 0)
    status =
        read_side(session, "diff-snapshot", tsr_params_text(own, "diff_snapshot"), file, &newer);
  if (status == 0) cli_mosaic_services(session);
  if (status == 0)
    status = tsr_mosaic_print_file_comparison(base.analysis, newer.analysis, cli_mosaic_write,
                                              &session->output, &session->error);
  release(&base);
  release(&newer);
  return status;
}

/* Where the source is: a path, or a name and a file with the text. */
static int choose_source(const cli_session *session, const char **name, const char **path) {
  const tsr_params *own = session->options->own;
  const cli_command *command = session->options->command;
  bool has_content = tsr_params_text(own, "file_name") || tsr_params_text(own, "file_content");
  if (tsr_params_text(own, "file_path") && has_content)
    return cli_usage_error(command, "--file-path excludes --file-name and --file-content");
  if (!tsr_params_text(own, "file_path") &&
      !(tsr_params_text(own, "file_name") && tsr_params_text(own, "file_content")))
    return cli_usage_error(command, "missing --file-path FILE, or --file-name NAME and "
                                    "--file-content FILE");
  *name = tsr_params_text(own, "file_path") ? tsr_params_text(own, "file_path")
                                            : tsr_params_text(own, "file_name");
  *path = tsr_params_text(own, "file_path") ? tsr_params_text(own, "file_path")
                                            : tsr_params_text(own, "file_content");
  return 0;
}

int cli_mosaic_file(cli_session *session) {
  const char *word = session->options->operands[0], *path = NULL;
  bool compares = strcmp(word, "compare") == 0;
  tsr_source_file file = {.path = NULL};
  char *text = NULL;
  if (!compares && strcmp(word, "analyze") != 0)
    return cli_usage_error(session->options->command, "'%s' is neither analyze nor compare", word);
  int status = choose_source(session, &file.path, &path);
  if (!status) {
    session->path = path;
    status = cli_read_text(path, CLI_TEXTFILE_ANY, &text, &file.size_bytes, &session->error);
  }
  if (status) return status;
  file.text = text;
  status = compares ? compare(session, &file) : analyze(session, &file);
  free(text);
  return status;
}
