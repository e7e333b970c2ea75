/* progress.c - shows the progress of reading and writing.
 *
 *   reading snapshot.pickle [############            ]  51 %  612 of 1200 MiB
 *
 * Most files are read before anyone wonders, so nothing is drawn in the first half second. After that
 * the line is redrawn ten times a second at most and removed at the end: it leaves no trace in the
 * scrollback. A terminal gets it, a log never does. When the size is not known (a pipe), the line
 * holds the bytes so far only. Of work that has no size, it holds the time so far:
 *
 *   making the page of snapshot.pickle  3 s
 */
#define _POSIX_C_SOURCE 200809L

#include "progress.h"
#include "monotonic.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <tessera/unstable/terminal.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 500
#define REDRAW_MS   100
#define BAR_COLUMNS 24
/* Of a longer path, the end is shown: that is where the name is. */
#define PATH_COLUMNS 30

cli_progress cli_progress_start(const char *verb, const char *path, bool quiet) {
  cli_progress progress = {.verb = verb, .path = strcmp(path, "-") == 0 ? "standard input" : path};
  progress.enabled = !quiet && isatty(STDERR_FILENO);
  if (progress.enabled) progress.start_ms = cli_now_ms();
  return progress;
}

/* The end of the path, without bytes that would drive the terminal. */
static void short_path(const char *path, char out[PATH_COLUMNS + 1]) {
  size_t length = strlen(path);
  const char *from = length > PATH_COLUMNS ? path + length - PATH_COLUMNS : path;
  size_t size = strlen(from);
  memcpy(out, from, size);
  if (from != path) memcpy(out, "...", 3);
  out[tsr_terminal_clean(out, size, false)] = '\0';
}

static void draw(const cli_progress *progress, uint64_t done_bytes, uint64_t total_bytes) {
  char path[PATH_COLUMNS + 1];
  char bar[BAR_COLUMNS + 1];
  uint64_t done_mib = done_bytes >> 20;
  uint64_t total_mib = total_bytes >> 20;
  short_path(progress->path, path);
  if (total_mib == 0) {
    fprintf(stderr, "\r\033[K%s %s  %" PRIu64 " MiB", progress->verb, path, done_mib);
  } else {
    if (done_mib > total_mib) done_mib = total_mib;
    size_t filled = (size_t)((double)done_mib / (double)total_mib * BAR_COLUMNS);
    memset(bar, ' ', BAR_COLUMNS);
    memset(bar, '#', filled);
    bar[BAR_COLUMNS] = '\0';
    fprintf(stderr, "\r\033[K%s %s [%s] %3.0f %%  %" PRIu64 " of %" PRIu64 " MiB", progress->verb,
            path, bar, (double)done_mib / (double)total_mib * 100, done_mib, total_mib);
  }
  fflush(stderr);
}

bool cli_progress_update(void *context, uint64_t done_bytes, uint64_t total_bytes) {
  cli_progress *progress = context;
  if (!progress->enabled) return true;
  int64_t now = cli_now_ms();
  if (now - progress->start_ms < PATIENCE_MS || now - progress->drawn_ms < REDRAW_MS) return true;
  draw(progress, done_bytes, total_bytes);
  progress->drawn_ms = now;
  progress->shown = true;
  return true;
}

void cli_progress_end(cli_progress *progress) {
  if (progress->shown) fputs("\r\033[K", stderr);
  progress->shown = false;
}

/* ---- A clock ---- */

#define SECOND_MS 1000

static void draw_clock(cli_progress *progress) {
  char path[PATH_COLUMNS + 1];
  int64_t seconds = (cli_now_ms() - progress->start_ms) / SECOND_MS;
  short_path(progress->path, path);
  fprintf(stderr, "\r\033[K%s %s", progress->verb, path);
  if (seconds) fprintf(stderr, "  %" PRId64 " s", seconds);
  fflush(stderr);
  progress->shown = true;
}

/* Wait for the end, for at most `milliseconds`. The lock is held. */
static void wait_for_end(cli_clock *clock, int64_t most_ms) {
  struct timespec until = {0};
  if (clock_gettime(CLOCK_REALTIME, &until) != 0) return;
  until.tv_sec += (time_t)(most_ms / SECOND_MS);
  until.tv_nsec += (long)(most_ms % SECOND_MS) * 1000000;
  if (until.tv_nsec >= 1000000000) {
    until.tv_nsec -= 1000000000;
    until.tv_sec++;
  }
  while (!clock->is_over && pthread_cond_timedwait(&clock->over, &clock->lock, &until) == 0)
    ;
}

static void *run_clock(void *context) {
  cli_clock *clock = context;
  pthread_mutex_lock(&clock->lock);
  wait_for_end(clock, PATIENCE_MS);
  while (!clock->is_over) {
    draw_clock(&clock->progress);
    wait_for_end(clock, SECOND_MS);
  }
  pthread_mutex_unlock(&clock->lock);
  return NULL;
}

void cli_clock_start(cli_clock *clock, const char *verb, const char *path, bool quiet) {
  sigset_t all, before;
  *clock = (cli_clock){.progress = cli_progress_start(verb, path, quiet)};
  if (!clock->progress.enabled) return;
  pthread_mutex_init(&clock->lock, NULL);
  pthread_cond_init(&clock->over, NULL);
  /* Signals are for the thread that cleans up after itself (output.c). */
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  clock->is_running = pthread_create(&clock->thread, NULL, run_clock, clock) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void cli_clock_stop(cli_clock *clock) {
  if (!clock->progress.enabled) return;
  if (clock->is_running) {
    pthread_mutex_lock(&clock->lock);
    clock->is_over = true;
    pthread_cond_signal(&clock->over);
    pthread_mutex_unlock(&clock->lock);
    pthread_join(clock->thread, NULL);
  }
  cli_progress_end(&clock->progress);
  pthread_cond_destroy(&clock->over);
  pthread_mutex_destroy(&clock->lock);
  *clock = (cli_clock){0};
}
