/* train_log.h - the file of `train --log`: a row for each step, for other programs to draw. */
#ifndef CLI_TRAIN_LOG_H
#define CLI_TRAIN_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <tessera/unstable/training.h>

#include "session.h"

/* A zeroed one writes nothing. */
typedef struct cli_train_log {
  const char *path, *command;
  int handle;            /* while `is_open` */
  bool is_open, is_json; /* one JSON object a line, else CSV */
  bool is_resumed;       /* rows of the steps before are kept */
  uint64_t first_step;   /* of this run; 0: none yet */
  uint64_t written;      /* bytes of whole rows that are in the file */
  cli_text waiting;      /* rows that are not */
  bool is_said;          /* that rows are missing */
} cli_train_log;

/* Prepare to write `path`, whose name ends in .csv or .jsonl. With `is_resumed`, the rows that are there are kept up to the step that the
 * run continues from; a file that no run has written is refused. Returns 0, or an exit status after printing the reason. The path is
 * borrowed. */
int cli_train_log_open(cli_train_log *log, const cli_session *session, const char *path,
                       bool is_resumed);
/* Add a row, which is in the file when this returns. A failure is printed once, and the row is tried again with the next one. */
void cli_train_log_step(cli_train_log *log, const tsr_train_step *step, double seconds);
void cli_train_log_close(cli_train_log *log);

#endif
