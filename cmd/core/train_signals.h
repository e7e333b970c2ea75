/* train_signals.h - Ctrl-C and other signals that end a training.
 *
 * The first one lets the step that runs be finished, the second leaves it unfinished; both save the run if it is to be saved. The
 * next ends the program. Each of the two is answered at once with a line on standard error, also in a pipe. */
#ifndef CLI_TRAIN_SIGNALS_H
#define CLI_TRAIN_SIGNALS_H

#include <stdbool.h>

/* Watch SIGINT, SIGTERM and SIGHUP, but for those that are ignored. `name` is the command's; `folder` is where the run
 * is saved, or NULL; both live until the watch ends. A quiet watch prints nothing. */
void cli_signals_watch(const char *name, const char *folder, bool is_quiet);
/* The first step begins: before it, a signal is answered by ending at once, without a line. `can_give_up`: a step can be left
 * unfinished; else the second signal ends the program. */
void cli_signals_begin(bool can_give_up);
void cli_signals_unwatch(void);

/* The first signal that came, or 0. Any thread may ask. */
int cli_signals_first(void);
/* How many came. */
int cli_signals_count(void);
/* Whether one came, or waits because all threads block it. */
bool cli_signals_are_due(void);

#endif
