/* progress.c - shows the progress of reading and writing.
 *
 *   reading snapshot.pickle [############            ]  51 %  612 of 1200 MiB
 *
 * Most files are read before anyone wonders, so nothing is drawn in the first half second. After that
 * the line is redrawn ten times a second at most and removed at the end: it leaves no trace in the
 * scrollback. A terminal gets it, a log never does. When the size is not known (a pipe), the line
 * holds the bytes so far only.
 */
#define _POSIX_C_SOURCE 200809L

#include "progress.h"

#include <inttypes.h>
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

static int64_t now_ms(void) {
  struct timespec now;
  if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) return 0;
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

cli_progress cli_progress_start(const char *verb, const char *path, bool quiet) {
  cli_progress progress = {.verb = verb, .path = strcmp(path, "-") == 0 ? "standard input" : path};
  progress.enabled = !quiet && isatty(STDERR_FILENO);
  if (progress.enabled) progress.start_ms = now_ms();
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
  int64_t now = now_ms();
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
