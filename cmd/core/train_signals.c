/* train_signals.c - see train_signals.h. */
#define _XOPEN_SOURCE 700

#include "train_signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { ENDING_SIGNALS = sizeof ending_signals / sizeof *ending_signals };

/* What the handler uses is prepared before it can run: all it does is write. */
static char lines[2][512];
static atomic_int first, count, has_begun, most = 1;
static struct sigaction before[ENDING_SIGNALS], action;

static void restore(void) {
  for (size_t i = 0; i < ENDING_SIGNALS; i++) sigaction(ending_signals[i], &before[i], NULL);
}

static void take(int signal) {
  int number = atomic_fetch_add(&count, 1), saved_errno = errno;
  if (number == 0) atomic_store(&first, signal);
  if (atomic_load(&has_begun) && number < 2) {
    const char *line = lines[number];
    if (write(STDERR_FILENO, line, strlen(line)) < 0) errno = saved_errno;
  }
  if (number + 1 >= atomic_load(&most))
    restore(); /* the next one ends the program */
  else
    (void)sigaction(signal, &action, NULL); /* Windows forgets a handler that has run */
  errno = saved_errno;
}

static void prepare(int number, const char *name, const char *what, const char *folder,
                    const char *next) {
  const char *start = isatty(STDERR_FILENO) ? "\n" : ""; /* after the terminal's ^C */
  (void)snprintf(lines[number], sizeof lines[number], "%stessera %s: %s%s%s%s\n", start, name, what,
                 folder ? ", then saving to " : "", folder ? folder : "", next);
}

void cli_signals_watch(const char *name, const char *folder, bool is_quiet) {
  action = (struct sigaction){.sa_handler = take, .sa_flags = (int)SA_RESTART};
  sigemptyset(&action.sa_mask);
  atomic_store(&first, 0);
  atomic_store(&count, 0);
  atomic_store(&has_begun, 0);
  atomic_store(&most, 1);
  prepare(0, name, "ending after this step", folder, "; Ctrl-C again leaves the step unfinished");
  prepare(1, name, "leaving this step unfinished", folder, "; Ctrl-C again ends at once");
  if (is_quiet) lines[0][0] = lines[1][0] = '\0';
  for (size_t i = 0; i < ENDING_SIGNALS; i++) {
    sigaction(ending_signals[i], NULL, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(ending_signals[i], &action, NULL);
  }
}

void cli_signals_begin(bool can_give_up) {
  char *next = strstr(lines[0], "; Ctrl-C again");
  if (next && !can_give_up)
    memcpy(next, "; Ctrl-C again ends at once\n", sizeof "; Ctrl-C again ends at once\n");
  if (can_give_up) atomic_store(&most, 2);
  atomic_store(&has_begun, 1);
}

void cli_signals_unwatch(void) {
  restore();
}

int cli_signals_first(void) {
  return atomic_load(&first);
}

int cli_signals_count(void) {
  return atomic_load(&count);
}

bool cli_signals_are_due(void) {
  sigset_t waiting;
  bool are_due = cli_signals_first() != 0;
  sigemptyset(&waiting);
  (void)sigpending(&waiting);
  for (size_t i = 0; i < ENDING_SIGNALS; i++)
    are_due |= sigismember(&waiting, ending_signals[i]) == 1;
  return are_due;
}
