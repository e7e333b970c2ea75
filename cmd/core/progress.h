/* progress.h - a line on standard error while something takes long: a bar while a file is read or written, a
 * clock while an answer is computed or a page is made. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <pthread.h>
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

/* Work whose end is not known in advance. A thread of its own draws, because the work reports nothing. */
typedef struct cli_clock {
  cli_progress progress;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t over;
  bool is_running; /* the thread was started */
  bool is_over;    /* by the lock */
} cli_clock;

/* Until cli_clock_stop, which must follow, nothing else may write to the terminal. Without a terminal, or if no
 * thread can be started, nothing is drawn. `path` must outlive the clock. */
void cli_clock_start(cli_clock *clock, const char *verb, const char *path, bool quiet);
/* Take the line off the terminal. */
void cli_clock_stop(cli_clock *clock);

#endif
