/* session.h - what every command needs around its question: input, output, errors, exit status.
 *
 * A command is three calls: cli_open, one of the library's compute functions, one of its report
 * functions. Each is skipped when an earlier one failed, the command frees what it got, and returns
 * the status; cli_run explains it and turns it into an exit status.
 */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include <tessera/tessera.h>

#include "options.h"
#include "output.h"

typedef struct cli_session {
  const cli_options *options;
  const char *path;          /* the input that an error is about; NULL before the first */
  size_t opened_count;       /* snapshots so far */
  tsr_query query;           /* from --device and --top */
  tsr_report_options report; /* from --json, --color, ... and the terminal */
  cli_output output;         /* for cli_output_write */
  tsr_error error;
} cli_session;

/* Do what the command line says; answers the exit status. */
int cli_run(const cli_options *options);

/* A snapshot and how reports name it. */
typedef struct cli_input {
  tsr_snapshot *snapshot;
  tsr_report_input heading;
} cli_input;

/* Open the operand number `index`, with a progress bar if it takes long. Answers 0 with `*input`
 * filled, to be given to cli_close; a negative tsr_status; or an exit status, where --strict
 * refuses the file and has said why. */
int cli_open(cli_session *session, size_t index, cli_input *input);
/* The same for a file that is no operand; `path` must outlive the session. */
int cli_open_path(cli_session *session, const char *path, cli_input *input);
/* Release the snapshot. A zeroed input is fine. */
void cli_close(cli_input *input);

/* The commands, one file each (cli_help: help.c). */
int cli_at(cli_session *session);
int cli_check(cli_session *session);
int cli_diff(cli_session *session);
int cli_export(cli_session *session);
int cli_help(cli_session *session);
int cli_info(cli_session *session);
int cli_leaks(cli_session *session);
int cli_mcp(cli_session *session);
int cli_peak(cli_session *session);
int cli_profile(cli_session *session);
int cli_serve(cli_session *session);
int cli_simulate(cli_session *session);
int cli_source(cli_session *session);
int cli_stages(cli_session *session);
int cli_steps(cli_session *session);
int cli_trim(cli_session *session);
int cli_view(cli_session *session);
int cli_whatif(cli_session *session);
int cli_why(cli_session *session);

#endif
