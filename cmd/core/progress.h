/* progress.h - a bar on standard error while a file is read or written. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cli_progress {
  const char *verb; /* "reading" */
  const char *path;
  bool enabled;     /* standard error is a terminal and the user has not asked for quiet */
  bool shown;       /* something is on the line */
  int64_t start_ms; /* of the monotonic clock */
  int64_t drawn_ms; /* when last drawn */
} cli_progress;

cli_progress cli_progress_start(const char *verb, const char *path, bool quiet);
/* A tsr_progress_fn; `context` is the cli_progress. Never stops the work. */
bool cli_progress_update(void *context, uint64_t done_bytes, uint64_t total_bytes);
/* Take the bar off the terminal. */
void cli_progress_end(cli_progress *progress);

#endif
